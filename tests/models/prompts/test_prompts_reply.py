"""Replies to candidates: every shape that models give, and no exception whatever they write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.replies.fences import only_end, read_blocks
from culmen.core.replies.names import part_names
from culmen.core.task import Surface, Task
from culmen.models.prompts.formats import (
    FORMATS,
    Completion,
    is_broken_off,
    parse_completion,
    read_replies,
    reply_summary,
)

REWRITE = FORMATS["rewrite"]
NEW = "def run(n):\n    return [2 / n] * n\n"


def parts(reply: str, task: Task, form: str = "rewrite", finish: str = "stop") -> dict[str, str]:
    parsed = parse_completion(
        Completion(reply, finish), FORMATS[form], task, task.initial_candidates()[0]
    )
    assert not parsed.fault, parsed.fault
    return parsed.drafts[0].parts


def fault(reply: str, task: Task, form: str = "rewrite", finish: str = "stop") -> str:
    return parse_completion(
        Completion(reply, finish), FORMATS[form], task, task.initial_candidates()[0]
    ).fault


@pytest.mark.parametrize(
    "reply",
    [
        f"```python main.py\n{NEW}```",
        f"I double it.\n\n```python\n{NEW}```\nThat is all.",
        f"```\n{NEW}```",
        f"~~~py\n{NEW}~~~",
        f"````python name=main.py\n{NEW}````",
        f"```python:main.py\n{NEW}```",
        f"**main.py**\n\n```python\n{NEW}```",
        f"Try `x`.\n```bash\npip install foo\n```\nthen\n```python\n{NEW}```\nUsage:\n```python\nrun(1)\n```",
        f"<think>maybe\n```python\nwrong = 1\n```\n</think>\nHere:\n```python\n{NEW}```",
        NEW,  # no fence at all, but a program
        f"   ```python\n{NEW}   ```",
    ],
)
def test_one_part_in_every_dress(reply: str, task: Task) -> None:
    assert parts(reply, task) == {"main.py": NEW}


def test_text_before_the_block_is_the_hypothesis(task: Task) -> None:
    parsed = parse_completion(
        Completion(f"Doubling helps.\n\n```python\n{NEW}```"),
        REWRITE,
        task,
        task.initial_candidates()[0],
    )
    assert parsed.hypothesis == "Doubling helps."


def test_nested_fences_stay_inside(task: Task) -> None:
    code = 'DOC = """\n```python\nrun(1)\n```\n"""\n'
    assert parts(f"```python main.py\n{code}```\n", task) == {"main.py": code}


def test_several_parts_and_inheritance(pair: Task) -> None:
    reply = "```python a.py\nA = 2\n```\n\n=== b.txt ===\n```\nbye\n```\n"
    assert parts(reply, pair) == {"a.py": "A = 2\n", "b.txt": "bye\n", "fixed.py": "F = 0\n"}
    assert parts("```python a.py\nA = 3\n```", pair)["b.txt"] == "hello\nworld\n"


def test_frozen_parts_may_be_repeated_and_no_part_may_be_added(pair: Task) -> None:
    reply = "```python a.py\nA = 2\n```\n```python fixed.py\nF = {}\n```\n"
    assert fault(reply.format(1), pair) == "outside_blocks"
    assert parts(reply.format(0), pair) == {
        "a.py": "A = 2\n",
        "b.txt": "hello\nworld\n",
        "fixed.py": "F = 0\n",
    }
    assert fault(reply.format(0) + "```python evil.py\nimport os\n```", pair) == "unknown_part"


def test_a_part_that_begins_before_the_last_was_closed_is_in_doubt(pair: Task) -> None:
    assert fault("```python a.py\nA = 2\n```txt b.txt\nbye\n```", pair) == "unclosed"


@pytest.mark.parametrize(
    ("reply", "finish", "expected"),
    [
        ("", "stop", "empty"),
        ("  \n", "stop", "empty"),
        ("", "length", "truncated"),
        ("```python\ndef run(", "length", "truncated"),
        ("I would first think about", "length", "truncated"),
        ("I'm sorry, but I can't help with that.", "stop", "refused"),
        ("whatever", "refused", "refused"),
        ("The best packing is hexagonal.", "stop", "unparsable"),
        ("```python\n\n```", "stop", "empty"),
        (f"```python\n{NEW}", "stop", "unclosed"),
        (f"```python\n{NEW}", "MAX_TOKENS", "truncated"),
        (f"```python\n{NEW}```", "SAFETY", "refused"),
    ],
)
def test_faults_by_kind(reply: str, finish: str, expected: str, task: Task) -> None:
    assert fault(reply, task, finish=finish) == expected


def test_a_cut_reply_whose_program_is_whole_is_used(task: Task) -> None:
    reply = f"```python\n{NEW}```\nThis works because"
    assert parts(reply, task, finish="length") == {"main.py": NEW}
    assert not is_broken_off(
        Completion(reply, "length"), REWRITE, task, task.initial_candidates()[0]
    )
    assert is_broken_off(
        Completion(reply[:30], "length"), REWRITE, task, task.initial_candidates()[0]
    )


def test_too_long(task: Task) -> None:
    small = Task(name="t", seeds=task.seeds, surface=Surface(max_chars=20))
    assert fault(f"```python\n{NEW}```", small) == "too_long"


def test_parent_again_and_duplicates(task: Task, parent: Candidate) -> None:
    def wrap(text: str) -> Completion:
        return Completion(f"```python main.py\n{text}```")

    other = Candidate.of({"main.py": "x = 1\n"})
    brief = Brief(parent=parent, inspirations=(Exhibit(other),), k=5, island=2)
    samples = (wrap(parent.text), wrap(NEW), wrap(NEW), wrap("x = 1\n"), wrap("y = 1\n"))
    read = read_replies(samples, REWRITE, task, brief, "m/1")
    assert [c.text for c in read.candidates] == [NEW, "y = 1\n"]
    assert read.faults == {"unchanged": 1, "duplicate": 2}
    first = read.candidates[0]
    assert first.parents == (parent.id, other.id)
    assert (first.origin.operator, first.origin.model, first.origin.rank, first.origin.island) == (
        "rewrite",
        "m/1",
        0,
        2,
    )
    assert read.candidates[1].origin.rank == 1


def test_seedless_reply_gets_the_part_the_evaluator_loads(task: Task) -> None:
    parsed = parse_completion(Completion(f"```python\n{NEW}```"), REWRITE, task, None)
    assert parsed.drafts[0].parts == {"main.py": NEW}
    assert part_names(Task(name="p", surface=Surface(language="text")), None).editable == (
        "program.txt",
    )


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps({"hypothesis": "h", "parts": {"main.py": NEW}}),
        "```json\n" + json.dumps({"parts": {"main.py": NEW}}) + "\n```",
        json.dumps({"main.py": NEW}),
        '{"parts": {"main.py": ' + json.dumps(NEW) + ",}}",  # trailing comma
        "Sure: " + json.dumps({"parts": {"main.py": NEW}}),
        f"```python\n{NEW}```",  # ignored the request for JSON
    ],
)
def test_json_replies(reply: str, task: Task) -> None:
    assert parts(reply, task, "json") == {"main.py": NEW}


def test_cut_json_is_truncated(task: Task) -> None:
    reply = json.dumps({"parts": {"main.py": NEW}})[:-12]
    assert fault(reply, task, "json", "length") == "truncated"


def test_summary() -> None:
    assert reply_summary("<reasoning>r</reasoning><summary> do x </summary> bye") == "do x"
    assert reply_summary("<Summary>open end") == "open end"
    assert reply_summary("<reasoning>r</reasoning>\nadvice") == "advice"
    assert reply_summary("plain") == "plain"


MARKED = "import math\n# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\nprint(x)\n"


def marked(enforced: bool) -> Task:
    return Task(
        name="m",
        seeds=({"p.py": MARKED},),
        surface=Surface(markers="enforced" if enforced else "optional"),
    )


def test_enforced_markers_keep_the_text_outside() -> None:
    better, cheat = MARKED.replace("x = 1", "x = 2"), MARKED.replace("print(x)", "print(99)")
    assert parts(f"```python\n{better}```", marked(True)) == {"p.py": better}
    only = better[better.index("#") : better.index("print")]
    assert parts(f"```python p.py\n{only}```", marked(True)) == {"p.py": better}
    assert fault(f"```python p.py\n{cheat}```", marked(True)) == "outside_blocks"
    assert parts(f"```python p.py\n{cheat}```", marked(False)) == {"p.py": cheat}


def test_enforced_markers_that_the_reply_dropped() -> None:
    bare = "import math\n\nx = 3\ny = 4\nprint(x)\n"
    expected = MARKED.replace("x = 1", "x = 3\ny = 4")
    assert parts(f"```python\n{bare}```", marked(True)) == {"p.py": expected}
    assert fault("```python p.py\nimport os\nx = 3\n```", marked(True)) == "outside_blocks"


anything = st.text(max_size=400) | st.lists(
    st.sampled_from(
        [
            "```",
            "```python",
            "```python main.py",
            "~~~",
            "<<<<<<< SEARCH",
            "=======",
            ">>>>>>> REPLACE",
            "{",
            "}",
            "\n",
            '"parts"',
            ":",
            "[",
            "main.py",
            "=== main.py ===",
            "def run(n):",
            "    return [1 / n] * n",
            "<think>",
            "</think>",
            "# EVOLVE-BLOCK-START",
            "# EVOLVE-BLOCK-END",
            "\ud800",
            "\0",
            "'''",
            "\\",
        ]
    ),
    max_size=30,
).map("\n".join)


@settings(max_examples=400, deadline=None)
@given(
    reply=anything,
    form=st.sampled_from(sorted(FORMATS)),
    finish=st.sampled_from(["stop", "length", "refused"]),
)
def test_no_text_makes_the_parser_raise(reply: str, form: str, finish: str) -> None:
    for made in (
        marked(True),
        Task(name="t", seeds=({"main.py": "def run(n):\n    return [1 / n] * n\n"},)),
    ):
        for parent in (made.initial_candidates()[0], None):
            parsed = parse_completion(Completion(reply, finish), FORMATS[form], made, parent)
            assert bool(parsed.drafts) != bool(parsed.fault)
            for draft in parsed.drafts:
                assert set(draft.parts) == (set(parent.parts) if parent else {"program.py"})


@settings(max_examples=200, deadline=None)
@given(
    body=st.text(
        alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"),
        min_size=1,
        max_size=200,
    )
)
def test_what_the_prompt_shows_can_be_read_back(body: str) -> None:
    from culmen.core.wording import fence_text

    text = body if body.endswith("\n") else body + "\n"
    lines = f"Intro\n\n{fence_text(text, 'python main.py')}\nOutro".split("\n")
    (block,) = read_blocks(lines, only_end, lambda _: False)
    assert (block.opening.info, block.text) == ("python main.py", text)


@pytest.mark.parametrize(
    "reply",
    [
        "{" * 100_000,
        '[{"a"' * 20_000,
        '{"parts": {"main.py": "' + "x\\n" * 200_000,
        "```\n" * 50_000,
        "<think>" * 20_000,
    ],
    ids=["braces", "nested", "long", "fences", "thoughts"],
)
@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.timeout(20)
def test_hostile_replies_take_no_time(reply: str, form: str, task: Task) -> None:
    """Each of these takes minutes in a naive reading; the limit only shows the difference."""
    assert fault(reply, task, form)


@pytest.mark.timeout(20)
def test_edits_of_a_large_repetitive_text() -> None:
    big = Task(name="t", seeds=({"p.py": "x = 1\n" * 30_000},))
    search = "x = 1\n" * 5_000
    reply = f"<<<<<<< SEARCH\n{search}y\n=======\nz\n>>>>>>> REPLACE\n"
    assert fault(reply, big, "diff") == "diff_mismatch"
    reply = f"<<<<<<< SEARCH\n{search}=======\nz\n>>>>>>> REPLACE\n"
    assert fault(reply, big, "diff") == "diff_mismatch"  # it fits in many places
