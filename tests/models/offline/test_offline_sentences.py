"""Without a model, words of a text go with their sentence: what is left of it can be read."""

from __future__ import annotations

from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.models.offline.changes import _without_sentence
from culmen.models.offline.tools import vary_candidate


@pytest.mark.parametrize(
    "line, word, left",
    [
        ("- Write sums with two decimals.\n", "two", ""),
        ("- Write sums. Round nothing.\n", "sums", "- Round nothing.\n"),
        ("- Write sums. Round nothing.\n", "nothing", "- Write sums. \n"),
        ("1. Use 3.5 cm, e.g.this. Then stop!\n", "cm", "1. Then stop!\n"),
        ("## Title\n", "Title", ""),
        ("Say yes. Say no", "yes", "Say no"),
        ("- Write sums.\n", "-", ""),
    ],
)
def test_a_sentence_goes_whole(line: str, word: str, left: str) -> None:
    assert _without_sentence(line, line.index(word)) == left


def test_no_change_leaves_a_gap_in_a_sentence() -> None:
    text = "- Write sums with two decimals.\n- Prefer whole numbers, as they are short.\n"
    parent, options = Candidate.of({"SKILL.md": text}), {"weights": {"lines": 1.0}, "count": 1}
    made = [vary_candidate([parent], options, Random(seed)).parts for seed in range(300)]
    texts = {parts["SKILL.md"] for each in made for parts in each}
    assert len(texts) > 50
    for each in texts:
        for line in each.splitlines():
            assert "  " not in line.rstrip() and line.strip() != "-", repr(each)
