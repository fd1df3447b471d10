"""The built-in agent, with models that follow a script, on the virtual clock.

It is killed and resumed in mid-session.
"""

from __future__ import annotations

import json
import re

import pytest

from culmen.core.brief import Text
from culmen.core.event import WriteRequest, at_least
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.messages import AnswerExperiments, Commit, Open
from culmen.store.journal import MemoryJournal
from culmen.testing import strategy_kit as kit
from culmen.testing.virtual import simulate
from tests.extensions.agents.team.worlds import EXACT, PLAIN, Desks, notes, text


def act(tool, **arguments):
    body = arguments.pop("body", None)
    block = f"```json\n{json.dumps({'tool': tool, **arguments})}\n```\n"
    return block if body is None else f"{block}```python\n{body}```\n"


def climber(messages):
    """Writes the next program, evaluates it, and goes on from the result; stops after four."""
    seen = "\n".join(message["content"] for message in messages if message["role"] == "user")
    agent = re.search(r"You are agent `(a\d\d)`", seen)[1]
    done = seen.count("## evaluate")
    if "No more experiments" in messages[-1]["content"] or done == 4:
        learned = f"{agent}: steps of 0.1 help\n"
        return act("append", path="reflections.md", text=learned) + act("finish", word="four tries")
    best = max(map(float, re.findall(r"mu=([\d.]+)", seen)), default=0.0) if not done else None
    level = best if best is not None else float(re.findall(r'"score":([\d.]+)', seen)[-1])
    path = f"candidates/{agent}/{done}.py"
    return (
        "I go up.\n"
        + act("write", path=path, body=text(round(level + 0.1, 3)))
        + act("evaluate", files=[path], note="up")
    )


def run(
    world,
    task=EXACT,
    budget=None,
    journal=None,
    estimate=at_least,
    order="time",
    kill_after=None,
    **settings,
):
    strategy = Cato(**{"agents": 2, "agent": "builtin", **settings})
    budget = budget or Budget(evaluations=60, calls=200)
    options = {"journal": journal, "order": order, "estimate": estimate, "kill_after": kill_after}
    return simulate(strategy, task, world, budget, seed=1, workers=2, **options)


def test_agents_climb_on_what_others_left():
    world = Desks(model=climber)
    end = run(world)
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows]
    assert [row.certified for row in rows] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    )
    assert (
        rows[1].origin == "agent:builtin a00"
        and rows[1].note == "up"
        and rows[1].path == "candidates/a00/0.py"
    )
    assert [commit.trailers["Stop-Reason"] for commit in world.of(Commit)] == [
        "finished",
        "finished",
    ]
    assert world.files[0, "reflections.md"] == "a00: steps of 0.1 help\n"
    ended = notes(end, "agent ended")
    assert ended[0]["word"] == "four tries" and ended[0]["calls"] == 5 and ended[0]["tokens"] == 550
    assert (
        world.of(Open)[0].kind == "builtin"
        and "use the tool `evaluate`" in world.of(Open)[0].texts["TASK.md"]
    )


def test_killed_anywhere_and_resumed_it_is_the_same_session():
    whole = run(Desks(model=climber), order="request")
    for point in range(1, whole.performed, 4):
        world, journal = Desks(model=climber), MemoryJournal()
        run(world, journal=journal, order="request", kill_after=point)
        resumed = run(world, journal=journal, order="request")
        assert kit.outcome(journal) == kit.outcome(whole.journal), f"killed after {point}"
        assert resumed.performed == whole.performed - point


def test_the_threshold_is_told_and_ends_it():
    world = Desks(model=climber)
    end = run(world, threshold=0.35)
    assert end.search.reason == "threshold"
    assert [commit.trailers["Stop-Reason"] for commit in world.of(Commit)] == ["threshold"]
    assert "a00" in world.files[0, "reflections.md"]


def test_malformed_replies_are_answered_and_then_the_agent_is_ended():
    heard = []

    def babbler(messages):
        heard.append(messages[-1]["content"])
        return "Let me think about circles."

    world = Desks(model=babbler)
    run(world, agents=1)
    assert len(heard) == 3 and "there is no action in the reply" in heard[1]
    assert world.of(Commit)[0].trailers["Stop-Reason"] == "malformed"


def test_one_good_reply_wipes_out_the_bad_ones():
    replies = iter(
        [
            "nonsense",
            "```json\n{\n```",
            act("list"),
            "nonsense",
            "nonsense",
            act("finish", word="tired"),
        ]
    )
    world = Desks(model=lambda messages: next(replies))
    run(world, agents=1)
    assert world.of(Commit)[0].trailers["Stop-Reason"] == "finished"


def test_a_model_that_fails_is_like_one_that_babbles():
    world = Desks(model=lambda messages: Text(fault="provider", model="m", usage=Usage(calls=1)))
    run(world, agents=1)
    assert world.of(Commit)[0].trailers["Stop-Reason"] == "malformed"


@pytest.mark.parametrize("none", [Text(model="offline"), Text(fault="no_model")])
def test_without_a_model_the_offline_agent_works_and_that_is_said(none):
    world = Desks(model=lambda messages: none)
    end = run(world, agents=2, budget=Budget(evaluations=40))
    assert [note["agent"] for note in notes(end, "stand-in")] == [0, 1]
    assert len([row for answer in world.of(AnswerExperiments) for row in answer.rows]) > 20


def test_its_calls_are_limited():
    world = Desks(model=lambda messages: act("list"))
    run(world, agents=2, calls=7)
    assert [commit.trailers["Stop-Reason"] for commit in world.of(Commit)] == ["calls", "calls"]
    assert (
        run(Desks(model=lambda messages: act("list")), agents=1, calls=7).search.ledger.spent.calls
        == 7
    )


@pytest.mark.parametrize("budget", [Budget(calls=9), Budget(tokens=2000), Budget(dollars=0.21)])
def test_the_runs_budget_is_hard_and_ends_it_in_good_order(budget):
    def estimate(request):
        asks = isinstance(request, WriteRequest)
        return Usage(calls=1, input_tokens=200, dollars=0.05) if asks else at_least(request)

    answer = Text(act("list"), model="m", usage=Usage(calls=1, input_tokens=150, dollars=0.04))
    world = Desks(model=lambda messages: answer)
    end = run(world, budget=budget, estimate=estimate, agents=3)
    spent = end.search.ledger.spent
    assert spent.calls <= (budget.calls or 99) and spent.tokens <= (budget.tokens or 9e9)
    assert spent.dollars <= (budget.dollars or 9e9) + 1e-9
    assert len(world.of(Open)) == len(world.of(Commit)) and end.verdict is not None
    assert end.search.reason in ("calls", "tokens", "dollars", "agents")


def test_tools():
    said = []
    steps = [
        act("write", path="candidates/a00/x.py", body=text(0.4))
        + act("command", command="ls", seconds=5),
        act("read", path="candidates/a00/x.py") + act("read", path="nowhere"),
        act(
            "evaluate", files=["candidates/a00/x.py", "candidates/a00/none.py"], parents=["seed-0"]
        ),
        act("report", text="the seed is weak") + act("list") + act("finish", word=""),
    ]
    replies = iter(steps)

    def model(messages):
        said.append(messages[-1]["content"])
        return next(replies)

    world = Desks(model=model)
    end = run(world, agents=1, task=PLAIN)
    assert "# Leaderboard" in said[0] and "mu=0.1" in said[0]
    assert "exit code 1\ncommand of {'command': 'ls'}" in said[1]
    assert "mu=0.4" in said[2] and "failed: missing" in said[2]
    assert '"score":0.4' in said[3] and '"reason":"missing"' in said[3] and "(1 of " in said[3]
    assert notes(end, "report")[0]["text"] == "the seed is weak"
    row = next(
        row for answer in world.of(AnswerExperiments) for row in answer.rows if row.agent == 0
    )
    assert row.parents == (PLAIN.initial_candidates()[0].id,)
    assert notes(end, "agent ended")[-1]["word"] == "finished"


def test_a_long_session_is_summed_up_and_goes_on():
    lengths = []

    def model(messages):
        lengths.append(sum(len(message["content"]) for message in messages))
        if "Write down" in messages[-1]["content"]:
            return "I looked at the best again and again."
        if "I looked at the best" in "".join(message["content"] for message in messages):
            return act("finish", word="remembered")
        return "x" * 1500 + "\n" + act("command", command="y" * 2000)

    end = run(Desks(model=model), agents=1, context=12_000)
    assert notes(end, "agent ended")[-1]["word"] == "remembered"
    assert max(lengths) <= 12_500
