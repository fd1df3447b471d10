"""Patches of replies beside the package's: the same program, or a fault.

`diff` has SEARCH/REPLACE blocks; `full`, by which `cross` is applied too, has the program in a fence.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shinka.edit import apply_diff_patch, apply_full_patch

from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Surface, Task
from culmen.models.prompts.formats import FORMATS, Completion, parse_completion
from culmen.tasks.surface import surface_fault
from tests.differential.comparing import COMPARED, inputs, same

pytestmark = pytest.mark.timeout(1800)
logging.disable(logging.CRITICAL)

HEAD = "# EVOLVE-BLOCK-START\n"
FOOT = "# EVOLVE-BLOCK-END\n"
LINE = st.sampled_from(["a = 1", "b = 2", "    c = 3", "", "# d", "print(a)", "a = 12  "])
LINES = st.lists(LINE, min_size=1, max_size=4)
NAMED = "<NAME>\nan_idea\n</NAME>\n\n<DESCRIPTION>\nWhy.\n</DESCRIPTION>\n\n"


def program_of(inner: list[str]) -> str:
    return "import math\n\n" + HEAD + "".join(f"{line}\n" for line in inner) + FOOT + "\nrun()\n"


@st.composite
def diffs(draw: st.DrawFn) -> tuple[str, str]:
    """A program, and a reply with one to three edits of it, some of them faulty."""
    is_distinct = draw(st.integers(0, 4)) > 0
    inner = draw(LINES) + draw(LINES)
    if is_distinct:
        inner = [f"{line}  # {number}" for number, line in enumerate(inner)]
    parent = program_of(inner)
    blocks: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(inner) - 1))
        search = inner[start : start + draw(st.integers(1, 3))]
        search = draw(
            st.sampled_from(
                [
                    *[search] * 6,
                    [line.strip() for line in search],
                    [f"  {line}" for line in search],
                    [*search, "z = 9"],
                    [],
                    [""],
                    ["run()"],
                    ["import math"],
                    [HEAD.strip(), *search],
                ]
            )
        )
        replace = draw(st.sampled_from([*[["e = 5"], ["    f()", "", "g"]] * 6, [], [""]]))
        blocks.append(
            "\n".join(["<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE"])
        )
    return parent, f"{NAMED}<DIFF>\n" + "\n\n".join(blocks) + "\n\n</DIFF>\n"


@st.composite
def rewrites(draw: st.DrawFn) -> tuple[str, str]:
    """A program, and a reply with another one in a fence, with and without its frame."""
    inner = draw(LINES)
    body = "".join(f"{line}\n" for line in draw(LINES))
    frame = draw(st.sampled_from(["whole", "whole", "markers", "body", "start", "end", "changed"]))
    text = {
        "whole": "import math\n\n" + HEAD + body + FOOT + "\nrun()\n",
        "markers": HEAD + body + FOOT,
        "body": body,
        "start": "import math\n\n" + HEAD + body + "\nrun()\n",
        "end": "import math\n\n" + body + FOOT + "\nrun()\n",
        "changed": "import cmath\n\n" + HEAD + body + FOOT + "\nrun(1)\n",
    }[frame]
    fence = draw(st.sampled_from(["python", "python", "py", ""]))
    said = draw(st.sampled_from(["", "As asked.\n"]))
    return program_of(inner), f"{NAMED}<CODE>\n```{fence}\n{text}```\n</CODE>\n{said}"


def own_program(form: str, parent: str, reply: str) -> str | None:
    """The program that culmen reads, None for a fault or a refused change."""
    surface = Surface(markers="enforced", max_chars=1_000_000)
    task = Task(
        "t", seeds=({"initial.py": parent},), evaluator=Evaluator(form="legacy"), surface=surface
    )
    candidate = Candidate.of({"initial.py": parent})
    parsed = parse_completion(Completion(reply), FORMATS[form], task, candidate)
    if not parsed.drafts:
        return None
    made = Candidate.of(parsed.drafts[0].parts)
    return None if surface_fault(task, made) else made.parts["initial.py"]


def plain(text: str) -> list[str]:
    """Lines with text, without space at their ends, in which the package strips."""
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def is_theirs_alone(parent: str, searches: list[str], replaces: list[str]) -> bool:
    """True for edits that mean another thing here, on purpose.

    The package finds the first place, also inside of a line, and reads a deletion with the next
    edit as one.
    """
    stripped = "\n".join(line.rstrip() for line in parent.split("\n"))
    found = ["\n".join(line.strip() for line in each.split("\n")) for each in searches]
    flat = "\n".join(line.strip() for line in stripped.split("\n"))
    inside = (
        each in stripped and f"\n{each}\n" not in f"\n{stripped}\n"
        for each in ("\n".join(line.rstrip() for line in one.split("\n")) for one in searches)
    )
    several = (flat.count(each) > 1 for each in found)
    return not all(map(str.strip, replaces)) or any(several) or any(inside)


@inputs(2600)
@given(diffs())
def test_a_diff_gives_their_program_or_is_a_fault(case: tuple[str, str]) -> None:
    parent, reply = case
    blocks = [each.split(">>>>>>>")[0] for each in reply.split("<<<<<<< SEARCH\n")[1:]]
    pairs = [each.partition("\n=======\n")[::2] for each in blocks]
    package, _, _, error, _, _ = apply_diff_patch(reply, parent, verbose=False)
    own = own_program("diff", parent, reply)
    if is_theirs_alone(parent, *map(list, zip(*pairs, strict=True))):
        COMPARED["patches: meant otherwise on purpose"] += 1
    elif error is not None:
        same("patches: a refused diff", None, own, reply)
    elif own is None:
        COMPARED["patches: a fault here alone"] += 1
    else:
        same("patches: the program of a diff", plain(package), plain(own), reply)


@inputs(800)
@given(rewrites())
def test_a_rewrite_gives_their_program_or_is_a_fault(case: tuple[str, str]) -> None:
    parent, reply = case
    package, _, _, error, _, _ = apply_full_patch(reply, parent, verbose=False)
    own = own_program("rewrite", parent, reply)
    if error is not None and "```python" not in reply:
        COMPARED["patches: another fence, which counts here"] += 1
    elif error is not None:
        same("patches: a refused rewrite", None, own, reply)
    elif own is None:
        COMPARED["patches: a fault here alone"] += 1
    else:
        same("patches: the program of a rewrite", plain(package), plain(own), reply)
