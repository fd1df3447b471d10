"""Edits of replies beside the package's: the same program, or none where it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Surface, Task
from culmen.models.prompts.formats import FORMATS, Completion, parse_completion

code_utils = pytest.importorskip(
    "openevolve.utils.code_utils", reason="python -m tests.differential"
)

pytestmark = pytest.mark.timeout(1800)

LINE = st.sampled_from(["a = 1", "b = 2", "    c = 3", "", "# d", "# =======", "print(a)"])
LINES = st.lists(LINE, min_size=1, max_size=4)
MARKER = st.sampled_from(["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str]:
    """A program of distinct lines, and a reply with edits of it, some with a marker astray."""
    lines = [f"{line}  # {number}" for number, line in enumerate(draw(LINES) + draw(LINES))]
    reply: list[str] = ["So:"]
    start = draw(st.integers(0, len(lines) - 1))
    quoted = lines[start : start + draw(st.integers(1, 3))]
    reply += ["<<<<<<< SEARCH", *quoted, "=======", *draw(LINES), ">>>>>>> REPLACE"]
    if draw(st.booleans()):
        # outside an edit, seven equality signs may underline a title of the prose
        reply.insert(draw(st.integers(2, len(reply) - 1)), draw(MARKER))
    return "\n".join(["x = 0", *lines, "y = 0", ""]), "\n".join([*reply, "Done."])


def own_program(parent: str, reply: str) -> str | None:
    """The program that culmen reads, None for a fault."""
    surface = Surface(max_chars=1_000_000)
    task = Task("t", seeds=({"p.py": parent},), evaluator=Evaluator(form="legacy"), surface=surface)
    parsed = parse_completion(
        Completion(reply), FORMATS["diff"], task, Candidate.of({"p.py": parent})
    )
    return parsed.drafts[0].parts["p.py"] if parsed.drafts else None


@settings(max_examples=500, deadline=None)
@given(case=cases())
def test_a_reply_that_they_refuse_gives_no_program_and_others_theirs(case: tuple[str, str]) -> None:
    parent, reply = case
    own = own_program(parent, reply)
    try:
        blocks = code_utils.extract_diffs(reply)
    except ValueError:
        assert own is None, own
        return
    package, applied = code_utils.apply_diff_blocks(parent, blocks)
    if own is not None and applied == len(blocks):
        plain = [line.rstrip() for line in own.rstrip().split("\n") if line.strip()]
        assert plain == [line.rstrip() for line in package.rstrip().split("\n") if line.strip()]
