"""Errors: the fault, its place and the next step, in the words of its readers."""

from __future__ import annotations

import pytest

from culmen.core.errors import UserError

FIXES = [
    ("correct x; to search all the same: --set allow_failing=on", "same: allow_failing=True"),
    ("use fewer: --workers 1", "use fewer: workers=1"),
    ("--strategy portfolio(arms=a), or --model NAME", "strategy='portfolio(arms=a)', or model='"),
    ("check --model and base_url", "check --model and base_url"),
    ("culmen runs fork RUN --budget calls=9; then go on", "culmen runs fork RUN --budget calls=9;"),
    ("pip install --upgrade culmen", "pip install --upgrade culmen"),
    ("--set backend.address=local", "--set backend.address=local"),
]


@pytest.mark.parametrize(("fix", "shown"), FIXES)
def test_python_reads_keywords_and_the_command_line_options(fix: str, shown: str) -> None:
    error = UserError("it failed", where="here", fix=fix)
    assert str(error).startswith("it failed\n  where: here\n  next:  ") and shown in str(error)
    assert error.fix == fix
