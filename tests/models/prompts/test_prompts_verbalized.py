"""Several candidates in one reply: as JSON with probabilities, as diffs, as blocks.

Also models that cannot do it.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.task import Task
from culmen.models.gateway import ModelGateway
from culmen.models.prompts.formats import SEVERAL, Completion, parse_completion, read_replies
from culmen.models.prompts.template import Templates, shipped_templates
from culmen.models.prompts.writer import GIVEN_UP, FallbackProposer, PromptWriter
from culmen.models.roles import ModelBook
from culmen.testing.scripted import ScriptedModel

ONE, TWO = "def run(n):\n    return [1.0] * n\n", "def run(n):\n    return [2.0] * n\n"
PAIR = [{"code": ONE, "probability": 0.7}, {"code": TWO, "probability": 0.3}]


def read(
    reply: str, task: Task, form: str = "verbalized", finish: str = "stop"
) -> list[tuple[dict[str, str], object]]:
    parsed = parse_completion(
        Completion(reply, finish), SEVERAL[form], task, task.initial_candidates()[0]
    )
    return [(draft.parts, draft.weight) for draft in parsed.drafts]


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps({"responses": PAIR}),
        "```json\n" + json.dumps({"responses": PAIR}, indent=1) + "\n```",
        "Here they are:\n" + json.dumps({"responses": PAIR}) + "\nGood luck!",
        json.dumps(PAIR),
        json.dumps(
            {"responses": [{"code": f"```python\n{ONE}```", "probability": "70%"}, PAIR[1]]}
        ),
        json.dumps({"responses": PAIR}).replace("\\n", "\n"),  # raw line breaks inside the strings
        json.dumps({"responses": PAIR})[:-2] + ",]}",
        json.dumps({"responses": PAIR}) + " and {more}",
    ],
)
def test_every_dress_of_the_object(reply: str, task: Task) -> None:
    assert read(reply, task) == [({"main.py": ONE}, 0.7), ({"main.py": TWO}, 0.3)]


@pytest.mark.parametrize("cut", range(20, 60, 7))
def test_what_was_whole_before_the_reply_broke_off_is_kept(cut: int, task: Task) -> None:
    reply = json.dumps(
        {"responses": [*PAIR, {"code": "def run(n):\n    return [3.0] * n\n", "probability": 0.1}]}
    )
    assert read(reply[:-cut], task, finish="length") == [
        ({"main.py": ONE}, 0.7),
        ({"main.py": TWO}, 0.3),
    ]


@pytest.mark.parametrize("stated", [None, "much", -0.1, 1.5, True, float("nan"), [0.5]])
def test_what_is_no_probability_is_not_recorded(stated: object, task: Task) -> None:
    reply = json.dumps({"responses": [{"code": ONE, "probability": stated}, PAIR[1]]})
    assert [weight for _, weight in read(reply, task)] == [None, 0.3]


@pytest.mark.parametrize("k", [2, 5])
def test_probabilities_are_asked_to_sum_to_one_and_kept_as_stated(k: int, task: Task) -> None:
    """TurboEvolve, Appendix A.

    A reply whose probabilities sum to something else is not rescaled.
    """
    for form in ("verbalized", "verbalized_diff"):
        asked = SEVERAL[form].instructions(
            Templates(shipped_templates()), task, task.initial_candidates()[0], k
        )
        assert f"the {k} probabilities sum to 1.0" in " ".join(asked.split())
    off = [{"code": ONE, "probability": 0.9}, {"code": TWO, "probability": 0.6}]
    assert [weight for _, weight in read(json.dumps({"responses": off}), task)] == [0.9, 0.6]


def test_diffs_and_several_parts(task: Task, pair: Task) -> None:
    edit = "<<<<<<< SEARCH\n    return [1 / n] * n\n=======\n    return [2.0] * n\n>>>>>>> REPLACE"
    reply = json.dumps(
        {
            "responses": [
                {"diff": edit, "probability": 0.4},
                {"diff": "nonsense", "probability": 0.6},
            ]
        }
    )
    assert read(reply, task, "verbalized_diff") == [({"main.py": TWO}, 0.4)]
    both = {
        "responses": [
            {"parts": {"a.py": "A = 2\n"}},
            {"parts": {"b.txt": "x\n", "fixed.py": "F = 0\n"}},
        ]
    }
    fixed = {"fixed.py": "F = 0\n"}
    assert [parts for parts, _ in read(json.dumps(both), pair)] == [
        {"a.py": "A = 2\n", "b.txt": "hello\nworld\n", **fixed},
        {"a.py": "A = 1\n", "b.txt": "x\n", **fixed},
    ]


def test_blocks_with_and_without_headings(task: Task, pair: Task) -> None:
    blocks = f"```python main.py\n{ONE}```"
    for reply in (
        f"=== CANDIDATE 1 ===\n{blocks}\n\n=== CANDIDATE 2 ===\n```python\n{TWO}```",
        f"=== CANDIDATE 1 ===\n```\n{ONE}```\n=== CANDIDATE 2 ===\n```\n{TWO}```",
        f"First:\n{blocks}\nThen:\n```python\n{TWO}```\n```bash\nls\n```",
    ):
        assert [parts["main.py"] for parts, _ in read(reply, task, "blocks")] == [ONE, TWO]
        parsed = parse_completion(
            Completion(reply), SEVERAL["verbalized"], task, task.initial_candidates()[0]
        )
        assert len(parsed.drafts) == 2 and parsed.fault == "not_json"
    several = "```a.py\nA = 2\n```\n```b.txt\nx\n```\n```a.py\nA = 3\n```"
    assert [(p["a.py"], p["b.txt"]) for p, _ in read(several, pair, "blocks")] == [
        ("A = 2\n", "x\n"),
        ("A = 3\n", "hello\nworld\n"),
    ]


@pytest.mark.parametrize("form", SEVERAL)
def test_the_prompt_names_the_number_and_its_own_example_can_be_read(
    form: str, task: Task, pair: Task
) -> None:
    for made in (task, pair):
        for parent in (made.initial_candidates()[0], None):
            prompt = PromptWriter(made).brief_prompt(Brief(parent=parent, k=5), SEVERAL[form]).user
            assert (
                "Give 5 different candidates" in prompt
                and "$" not in prompt.partition("# Format")[2]
            )


def test_the_first_k_are_kept_in_their_order(task: Task, parent: Candidate) -> None:
    texts = [f"def run(n):\n    return [{i}.0] * n\n" for i in (1, 1, 2, 3, 4)]
    reply = json.dumps(
        {"responses": [{"code": text, "probability": i / 10} for i, text in enumerate(texts)]}
    )
    made = read_replies(
        (Completion(reply),), SEVERAL["verbalized"], task, Brief(parent=parent, k=3, island=2), "m"
    )
    assert [c.parts["main.py"] for c in made.candidates] == [texts[0], texts[2], texts[3]]
    assert [(c.origin.rank, c.origin.weight, c.origin.island) for c in made.candidates] == [
        (0, 0.0, 2),
        (1, 0.2, 2),
        (2, 0.3, 2),
    ]
    assert made.faults == {"duplicate": 1}


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["responses", "code", "parts", "diff", "probability", "main.py"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    data=json_like,
    cut=st.integers(0, 40),
    form=st.sampled_from(sorted(SEVERAL)),
    finish=st.sampled_from(["stop", "length"]),
)
def test_no_reply_makes_the_parser_raise(data: object, cut: int, form: str, finish: str) -> None:
    text = json.dumps(data)
    made = Task(name="t", seeds=({"main.py": "def run(n):\n    return [1 / n] * n\n"},))
    for parent in (made.initial_candidates()[0], None):
        parsed = parse_completion(
            Completion(text[: max(0, len(text) - cut)], finish), SEVERAL[form], made, parent
        )
        assert parsed.drafts or parsed.fault
        assert all(d.weight is None or 0.0 <= d.weight <= 1.0 for d in parsed.drafts)


class Desk:
    """A lab that does nothing but ask a gateway and keep notes."""

    def __init__(self, gateway: ModelGateway) -> None:
        self.gateway, self.asked, self.notes = (
            gateway,
            list[str](),
            list[tuple[str, dict[str, object]]](),
        )

    async def ask(self, brief: Brief) -> Proposal:
        self.asked.append(brief.format)
        return await self.gateway.propose(brief, len(self.asked))

    def note(self, kind: str, **fields: object) -> None:
        self.notes.append((kind, fields))


def test_a_model_that_cannot_keep_the_format_is_asked_for_blocks(
    task: Task, parent: Candidate
) -> None:
    good = json.dumps({"responses": PAIR})
    model = ScriptedModel(
        [
            "no",
            good,
            "no",
            f"```python\n{ONE}```",
            "never",
            f"```python\n{ONE}```\n```python\n{TWO}```",
        ]
    )
    desk = Desk(ModelGateway(task, ModelBook().parse_roles({"default": model})))
    proposer = FallbackProposer(patience=3)

    async def go() -> list[Proposal]:
        return [
            await proposer.propose(desk, Brief(parent=parent, k=2, format="verbalized"))
            for _ in range(6)
        ]  # pyright: ignore

    answers = asyncio.run(go())
    assert desk.asked == ["verbalized"] * 5 + ["blocks"]
    assert [len(answer.candidates) for answer in answers] == [0, 2, 0, 1, 0, 2]
    assert [GIVEN_UP in answer.faults for answer in answers] == [False] * 4 + [True, False]
    assert [kind for kind, _ in desk.notes] == [GIVEN_UP] and desk.notes[0][1][
        "format"
    ] == "verbalized"
    assert all(call.samples == 1 for call in model.calls)
