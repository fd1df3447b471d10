"""Errors: the fault, its place and the next step, in the words of its readers."""

from __future__ import annotations

import pytest

from culmen.core.errors import UserError

FIXES = [
    ("correct x; to search all the same: --set allow_failing=on", "allow_failing=True"),
    ("use fewer: --workers 1", "workers=1"),
    ("--strategy portfolio(arms=a), or --model NAME", "strategy='portfolio(arms=a)', model='NAME'"),
    ("check --model and base_url", ""),
    ("culmen runs fork RUN --budget calls=9; then go on", ""),
    ("pip install --upgrade culmen", ""),
    ("--set backend.address=local", ""),
    ("move '/home/me/x --workers 1/a.csv' away", "workers="),
]


@pytest.mark.parametrize(("fix", "keywords"), FIXES)
def test_python_reads_keywords_beside_the_fix_which_is_shown_as_it_is(fix: str, keywords: str):
    """A user's own text may look like an option: it is never rewritten."""
    error = UserError("it failed", where="here", fix=fix)
    first, _, last = str(error).partition("\n  Python: ")
    assert first == f"it failed\n  where: here\n  next:  {fix}"
    assert keywords in last and bool(keywords) == bool(last)
    assert error.fix == fix
