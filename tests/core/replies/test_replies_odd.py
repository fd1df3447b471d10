"""Every odd reply of docs/replies.md is read as the page describes."""

from __future__ import annotations

import pytest

from culmen.models.prompts.formats import FORMATS, Completion, parse_completion
from tests.core.replies.odd import ALL, PAGE, TASKS, Odd, page_with_table


@pytest.mark.parametrize("odd", ALL, ids=lambda odd: f"{odd.kind}: {odd.what}")
def test_an_odd_reply_is_the_meant_text_or_a_fault(odd: Odd) -> None:
    task = TASKS[odd.task]
    (parent,) = task.initial_candidates()
    sample = Completion(odd.reply, odd.finish)
    parsed = parse_completion(sample, FORMATS[odd.form], task, parent)
    if isinstance(odd.read, str):
        assert (parsed.fault, parsed.drafts) == (odd.read, ())
        assert parsed.detail or odd.read in ("empty", "refused")
    else:
        assert not parsed.fault, parsed.detail
        assert [draft.parts for draft in parsed.drafts] == [{**parent.parts, **odd.read}]


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len({odd.what for odd in ALL}) >= 100
    assert page == page_with_table(page), "python -m tests.core.replies.odd --write"
