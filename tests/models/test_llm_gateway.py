"""The gateway with scripted models: rendering, reading, cache, budgets, faults by kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import EmbedRequest, ProposeRequest, WriteRequest
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.models import make_gateway
from culmen.models.call import BadResponse, Call, ChatMessage, Completion, Declined, Reply, Tokens
from culmen.models.caller import Providers
from culmen.models.gateway import ContextSizes, ModelGateway
from culmen.models.roles import ModelBook, of_backend
from culmen.testing.scripted import ScriptedModel
from tests.models.conftest import FakeClock

GOOD = "Because.\n\n```python main.py\nx = {}\n```\n"


def ask(model: Any, task: Task, brief: Brief, seed: int = 1, **options: Any) -> Proposal:
    async def main() -> Proposal:
        gateway = make_gateway(task, model, **options)
        try:
            return await gateway.propose(brief, seed)
        finally:
            await gateway.close()

    return asyncio.run(main())


def test_a_proposal_carries_everything(task: Task, parent: Candidate) -> None:
    model = ScriptedModel([GOOD.format(2)])
    made = ask(model, task, Brief(parent=parent))
    assert [c.parts for c in made.candidates] == [{"main.py": "x = 2\n"}]
    assert (made.fault, made.faults, made.model, made.hypothesis) == (
        "",
        {},
        "custom/scripted",
        "Because.",
    )
    assert made.reply == GOOD.format(2)
    assert task.goal in made.prompt and parent.text in made.prompt
    assert made.usage.calls == 1 and made.usage.unpriced == 0 and made.usage.input_tokens > 50
    assert model.calls[0].seed == 1


def test_a_reply_that_cannot_be_read_is_no_candidate_and_says_why(
    task: Task, parent: Candidate
) -> None:
    edit = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    model = ScriptedModel([edit, "```python main.py\nx = 2\n```"])
    gateway = ModelGateway(task, ModelBook().parse_roles({"default": model}))
    bad = asyncio.run(gateway.propose(Brief(parent, format="diff"), 1))
    assert (bad.candidates, bad.fault, bad.faults) == ((), "diff_mismatch", {"diff_mismatch": 1})
    assert bad.detail.startswith("diff_mismatch: the lines under SEARCH are not in the candidate")
    assert bad.detail.endswith("`x = 1`")
    good = asyncio.run(gateway.propose(Brief(parent, format="diff"), 2))
    assert good.detail == "" and len(good.candidates) == 1


def test_k_samples_with_ranks_and_missing_ones_said(task: Task, parent: Candidate) -> None:
    made = ask(
        ScriptedModel([GOOD.format(2), GOOD.format(2), "", GOOD.format(3)]),
        task,
        Brief(parent=parent, k=4),
    )
    assert [(c.text, c.origin.rank) for c in made.candidates] == [("x = 2\n", 0), ("x = 3\n", 1)]
    assert made.faults == {"duplicate": 1, "empty": 1}
    assert made.fault == "duplicate"


def test_one_request_a_sample_where_the_server_knows_no_n(task: Task, parent: Candidate) -> None:
    model = ScriptedModel(lambda call: GOOD.format(call.seed))
    one = msgspec.structs.replace(of_backend(model), samples=1)
    gateway = ModelGateway(task, ModelBook().parse_roles({"default": one}))
    made = asyncio.run(gateway.propose(Brief(parent=parent, k=3), 10))
    assert sorted(c.text for c in made.candidates) == ["x = 10\n", "x = 11\n", "x = 12\n"]
    assert [c.samples for c in model.calls] == [1, 1, 1] and made.usage.calls == 3


def test_servers_that_ignore_n_are_asked_again(task: Task, parent: Candidate) -> None:
    def lazy(call: Call) -> Reply:
        return Reply((Completion(GOOD.format(len(model.calls))),), Tokens(1, 1))

    model = ScriptedModel(lazy)
    made = ask(model, task, Brief(parent=parent, k=3))
    assert len(made.candidates) == 3 and [c.samples for c in model.calls] == [3, 1, 1]


def test_truncated_once_more_with_twice_the_room(task: Task, parent: Candidate) -> None:
    def cut(call: Call) -> Completion:
        return (
            Completion(GOOD.format(7))
            if call.max_tokens > 16_384
            else Completion(GOOD.format(7)[:30], "length")
        )

    model = ScriptedModel(cut)
    made = ask(model, task, Brief(parent=parent, k=2))
    assert [c.text for c in made.candidates] == ["x = 7\n"]
    assert [c.max_tokens for c in model.calls] == [16_384, 32_768]
    assert made.faults == {"truncated": 2, "duplicate": 1} and made.usage.calls == 2
    for_ever = ScriptedModel(lambda call: Completion("```python\nx = ", "length"))
    made = ask(for_ever, task, Brief(parent=parent))
    assert (made.fault, made.candidates, len(for_ever.calls)) == ("truncated", (), 2)


def test_whole_though_cut_is_not_asked_again(task: Task, parent: Candidate) -> None:
    model = ScriptedModel(lambda call: Completion(GOOD.format(7) + "And furth", "length"))
    assert len(ask(model, task, Brief(parent=parent)).candidates) == 1
    assert len(model.calls) == 1


def test_spending_more_needs_permission(task: Task, parent: Candidate) -> None:
    model = ScriptedModel(lambda call: Completion("```python\nx = ", "length"))
    gateway = make_gateway(task, model)
    assert isinstance(gateway, ModelGateway)
    asked: list[Usage] = []
    gateway.begin(lambda usage: bool(asked.append(usage)))
    made = asyncio.run(gateway.propose(Brief(parent=parent), 1))
    assert (made.fault, len(model.calls)) == ("truncated", 1)
    assert (
        asked[0].calls == 2 and asked[0].output_tokens > 32_768
    )  # the first reply and twice its length


def test_permission_is_asked_for_what_a_request_may_cost_in_all(
    task: Task, parent: Candidate
) -> None:
    model = ScriptedModel(lambda call: Completion("```python\nx = ", "length"))
    gateway = make_gateway(task, model)
    assert isinstance(gateway, ModelGateway)
    asked: list[int] = []
    gateway.begin(lambda usage: asked.append(usage.calls) or True)

    async def main() -> None:
        await asyncio.gather(*(gateway.propose(Brief(parent=parent), seed) for seed in range(3)))
        await gateway.propose(Brief(parent=parent), 9)

    asyncio.run(main())
    assert asked == [2, 2, 2, 2]


def test_malformed_replies_are_kept_and_counted(task: Task, parent: Candidate) -> None:
    def bad(call: Call) -> str:
        if len(model.calls) < 3:
            raise BadResponse("not_json", raw="<oops>", tokens=Tokens(3, 4))
        return GOOD.format(2)

    model = ScriptedModel(bad)
    gateway = ModelGateway(
        task, ModelBook().parse_roles({"default": model}), providers=Providers(FakeClock())
    )
    made = asyncio.run(gateway.propose(Brief(parent=parent), 1))
    assert made.faults == {"not_json": 2} == gateway.faults and made.fault == ""
    assert made.usage.calls == 3 and made.reply.count("<oops>") == 2 and "x = 2" in made.reply


def test_cache_makes_hits_free(task: Task, parent: Candidate, tmp_path: Path) -> None:
    model = ScriptedModel(lambda call: GOOD.format(len(model.calls)))
    brief = Brief(parent=parent)
    first = ask(model, task, brief, 1, cache_dir=tmp_path)
    again = ask(model, task, brief, 1, cache_dir=tmp_path)
    other = ask(model, task, brief, 2, cache_dir=tmp_path)
    assert again.usage == Usage(cache_hits=1)
    assert again.candidates == first.candidates and other.candidates != first.candidates
    more = ask(model, task, Brief(parent=parent, k=2), 1, cache_dir=tmp_path)
    assert (
        more.usage.cache_hits == 1
        and more.usage.calls == 1
        and more.candidates[0].id == first.candidates[0].id
    )
    assert model.calls[-1].samples == 1
    assert (
        ask(model, task, Brief(parent=parent, context="new"), 1, cache_dir=tmp_path).usage.calls
        == 1
    )


def test_the_cache_keeps_no_failures_and_survives_damage(
    task: Task, parent: Candidate, tmp_path: Path
) -> None:
    for broken in (
        Completion("", "stop"),
        Completion("no", "refused"),
        Completion("```python\nx", "length"),
    ):
        ask(
            ScriptedModel(lambda call, broken=broken: broken),
            task,
            Brief(parent=parent),
            cache_dir=tmp_path,
        )
    assert not list(tmp_path.rglob("*.json"))
    model = ScriptedModel([GOOD.format(1)])
    ask(model, task, Brief(parent=parent), cache_dir=tmp_path)
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{garbage")
    assert ask(model, task, Brief(parent=parent), cache_dir=tmp_path).usage.calls == 1
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert ask(model, task, Brief(parent=parent), cache_dir=blocked / "x").candidates


def write(model: Any, task: Task, role: str = "summarizer", **slots: Any) -> Text:
    return asyncio.run(make_gateway(task, model).write(role, slots, 5))


def test_prose(task: Task) -> None:
    made = write(
        ScriptedModel(["<reasoning>r</reasoning><summary>go left</summary>"]),
        task,
        pairs=[{"program": "p"}],
    )
    assert (made.text, made.fault, made.usage.calls) == ("go left", "", 1)
    assert "program: p" in made.prompt and made.reply.startswith("<reasoning>")
    assert write({"proposer": ScriptedModel(["x"])}, task) == Text(fault="no_model")
    assert write(ScriptedModel([""]), task).fault == "empty"
    assert write(ScriptedModel(lambda call: Completion("", "refused")), task).fault == "refused"
    cut = write(ScriptedModel(lambda call: Completion("<summary>half", "length")), task)
    assert (cut.text, cut.fault, cut.usage.calls) == ("half", "truncated", 2)


def test_roles_pick_models_and_a_missing_proposer_is_an_error(
    task: Task, parent: Candidate
) -> None:
    a, b = ScriptedModel([GOOD.format(1)]), ScriptedModel(["<summary>s</summary>"])
    gateway = make_gateway(task, {"proposer": a, "summarizer": b})

    async def main() -> None:
        await gateway.propose(Brief(parent=parent), 1)
        await gateway.write("summarizer", {}, 1)
        with pytest.raises(UserError, match="no model for the role 'judge'"):
            await gateway.propose(Brief(parent=parent, role="judge"), 1)
        with pytest.raises(UserError, match="no reply format 'sonnet'"):
            await gateway.propose(Brief(parent=parent, format="sonnet"), 1)

    asyncio.run(main())
    assert (len(a.calls), len(b.calls)) == (1, 1)


def test_a_gateway_passes_through(task: Task) -> None:
    gateway = make_gateway(task, ScriptedModel(["x"]))
    assert make_gateway(task, gateway) is gateway


def test_a_format_of_ones_own(task: Task, parent: Candidate) -> None:
    """The seam for formats that carry several candidates in one reply."""
    from culmen.core.replies import Draft, Parsed

    class Lines:
        name = "lines"

        def samples(self, k: int) -> int:
            return 1

        def instructions(
            self, templates: Any, task: Task, parent: Candidate | None, k: int = 1
        ) -> str:
            return "One program a line."

        def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
            return Parsed(tuple(Draft({"main.py": line}, 0.5) for line in reply.splitlines()))

    model = ScriptedModel(["x = 1\nx = 2\nx = 3"])
    gateway = ModelGateway(
        task, ModelBook().parse_roles({"default": model}), formats={"lines": Lines()}
    )
    made = asyncio.run(gateway.propose(Brief(parent=parent, k=2, format="lines"), 1))
    assert [(c.text, c.origin.weight, c.origin.operator) for c in made.candidates] == [
        ("x = 1", 0.5, "lines"),
        ("x = 2", 0.5, "lines"),
    ]
    assert len(model.calls) == 1 and model.calls[0].samples == 1


TOML = """
[models.m]
model = "gpt-5-mini"
provider = "ollama"
max_tokens = 1000
samples = {samples}
price = {{ input = 1.0, output = 10.0 }}
"""


def test_estimates_bound_what_is_spent(task: Task, parent: Candidate, tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    brief = ProposeRequest(Brief(parent=parent, k=3, context="ünïcödé " * 50), 4)
    known: list[Usage] = []
    for samples in (1, 2, 8):
        file.write_text(TOML.format(samples=samples))
        gateway = make_gateway(task, "m", models_file=str(file))
        assert isinstance(gateway, ModelGateway)
        estimate = gateway.estimate(brief)
        assert estimate == gateway.estimate(brief)
        assert estimate.output_tokens == 3000 and estimate.dollars > 0.03
        most = gateway.most(brief)
        assert (most.calls, most.output_tokens) == (estimate.calls, 3000)
        assert most.input_tokens > 2 * estimate.input_tokens and most.dollars > estimate.dollars
        known.append(estimate)
    assert [usage.calls for usage in known] == [3, 2, 1]
    assert gateway.estimate(WriteRequest("summarizer", {"pairs": []}, 1)).calls == 1
    assert gateway.estimate(EmbedRequest(())) == Usage()
    none = make_gateway(task, "proposer=gpt-5")
    assert (
        isinstance(none, ModelGateway)
        and none.estimate(WriteRequest("summarizer", {}, 1)) == Usage()
    )


def test_a_missing_key_is_named_and_found_missing_only_when_needed(
    task: Task, parent: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    gateway = make_gateway(task, "gpt-5-mini")
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        asyncio.run(gateway.propose(Brief(parent=parent), 1))


def test_litellm_missing_is_said(
    task: Task, parent: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(UserError, match=r"pip install 'culmen\[litellm\]'"):
        ask("litellm/bedrock/claude", task, Brief(parent=parent))


def test_importing_and_building_stay_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from culmen.models import make_gateway; from culmen.core.task import Task;"
        "make_gateway(Task('t'), 'gpt-5'); from culmen.models.embed import make_embedder; make_embedder();"
        "heavy = {'openai', 'numpy', 'httpx2', 'genai_prices', 'yaml', 'tenacity'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scripted_latency_uses_the_given_sleep(task: Task, parent: Candidate) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    ask(ScriptedModel([GOOD.format(1)], latency=0.5, sleep=sleep), task, Brief(parent=parent))
    assert slept == [0.5]
    with pytest.raises(ValueError, match="at least one"):
        ScriptedModel([])


def test_a_conversation_is_sent_as_it_is_and_the_reply_comes_whole(task: Task) -> None:
    messages = [
        {"role": "system", "content": "You act."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "I went."},
        {"role": "user", "content": "And now?"},
    ]
    reply = "<think>hm</think>\n<summary>x</summary> and more"
    model = ScriptedModel(
        [
            reply,
            Completion("cut o", "length"),
            Completion("cut off", "length"),
            Completion("", "refused"),
            " ",
        ]
    )

    async def main() -> list[Text]:
        gateway = make_gateway(task, model)
        try:
            return [await gateway.write("agent", {"messages": messages}, seed) for seed in range(4)]
        finally:
            await gateway.close()

    whole, cut, refused, empty = asyncio.run(main())
    assert [(m.role, m.content) for m in model.calls[0].messages] == [
        (m["role"], m["content"]) for m in messages
    ]
    assert whole.text == reply and whole.fault == "" and "I went." in whole.prompt
    assert (
        cut.text == "cut off"
        and cut.fault == "truncated"
        and model.calls[2].max_tokens == 2 * model.calls[1].max_tokens
    )
    assert (refused.text, refused.fault) == ("", "refused") and empty.fault == "empty"
    gateway: Any = make_gateway(task, model)
    longer = gateway.estimate(WriteRequest("agent", {"messages": [*messages, *messages]}, 1))
    assert (
        longer.input_tokens
        >= gateway.estimate(WriteRequest("agent", {"messages": messages}, 1)).input_tokens
        > 0
    )


# Requests that are too long.

_LONG = tuple(
    Observation(
        "0" * 12,
        Status.ERROR,
        case=f"c{n}",
        feedback=f"{n} went wrong\n" * 400,
        artifacts={"notes": f"{n}" * 5000},
    )
    for n in range(6)
)


def _limited(
    most: int,
    says: str = "This model's maximum context length is {most} tokens. However, you requested {n}.",
):
    """A model that refuses requests of more than `most` tokens, four bytes each."""

    def answer(call: Call) -> Completion:
        tokens = sum(len(m.content) for m in call.messages) // 4 + call.max_tokens
        if tokens > most:
            text = says.format(most=most, n=tokens)
            raise Declined("too_long", text, raw=text)
        return Completion(GOOD.format(9))

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    "says",
    [
        "maximum context length is {most} tokens, you requested {n}",
        "context_length_exceeded",
    ],
)
def test_a_prompt_shrinks_to_the_context_that_a_refusal_tells_and_stays_so(
    task, parent, says
) -> None:
    model = _limited(6000, says)
    gateway = make_gateway(task, model)
    brief = Brief(parent=parent, observations=_LONG)
    made = asyncio.run(gateway.propose(brief, 1))
    assert [c.text for c in made.candidates] == ["x = 9\n"] and made.fault == ""
    assert parent.text in made.prompt and made.usage.calls == 1
    refused = len(model.calls) - 1
    assert (
        refused
        and asyncio.run(gateway.propose(brief, 2)).candidates
        and len(model.calls) == refused + 2
    )


@pytest.mark.parametrize("size", ["131072", "131,072"])
def test_a_context_is_learnt_from_its_whole_number(size: str) -> None:
    sizes, model = ContextSizes(), of_backend(_limited(10))
    call = Call("m", (ChatMessage("user", "x" * 600_000),), max_tokens=1000)
    sizes.learn_from_refusal(model, call, f"maximum context length is {size} tokens")
    fitted = sizes.fit_call(model, call, None)
    assert 130_000 < fitted.prompt_tokens() + fitted.max_tokens <= 131_072


def test_a_context_setting_is_kept_to_from_the_first_request(task, parent) -> None:
    model = _limited(4000)
    spec = msgspec.structs.replace(of_backend(model), context=4000)
    gateway = ModelGateway(task, ModelBook().parse_roles({"default": spec}))
    made = asyncio.run(gateway.propose(Brief(parent=parent, observations=_LONG), 1))
    assert made.candidates and len(model.calls) == 1 and model.calls[0].max_tokens <= 4000
    text = asyncio.run(gateway.write("summarizer", {"memory": "much was seen. " * 4000}, 1))
    assert text.fault != "too_long" and len(model.calls) == 2


def test_where_every_request_is_too_long_the_run_stops_and_says_so(task, parent) -> None:
    with pytest.raises(UserError, match="refuses every request as too long") as caught:
        ask(_limited(10), task, Brief(parent=parent))
    assert "larger context" in caught.value.fix


def test_where_others_are_answered_one_that_is_too_long_is_a_fault(task, parent) -> None:
    gateway = make_gateway(task, _limited(3000))
    assert asyncio.run(gateway.propose(Brief(parent=parent), 1)).candidates
    huge = Candidate.of({"main.py": "x = 1\n" * 20_000})
    assert asyncio.run(gateway.propose(Brief(parent=huge), 1)).fault == "too_long"
