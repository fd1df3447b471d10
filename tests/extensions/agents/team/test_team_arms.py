"""Agents as an arm of a portfolio: their beginning, rights, view and earnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.errors import UserError
from culmen.core.event import EvaluateRequest, ProposeRequest
from culmen.core.options import RunOptions
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.messages import AnswerExperiments, Experiment, Open, Waited
from culmen.extensions.baselines.portfolio import Portfolio
from culmen.run.plan import plan_run
from culmen.testing.landscape import landscape_program
from culmen.testing.virtual import Simulation, simulate
from tests.extensions.agents.team.worlds import PLAIN, Desks, notes
from tests.strategies.helpers import Witness

TASK = msgspec.structs.replace(PLAIN, deterministic=None)  # noisy, without a verifier
SMALL = ("best_of_n", "cato(agent=cmd:x, agents=40)")


def ask(*rewards: float, **more: Any) -> Waited:
    wanted = tuple(
        Experiment(f"t{reward}-{n}", f"candidates/a00/{n}.py", landscape_program(reward, n), "try")
        for n, reward in enumerate(rewards)
    )
    return Waited(wanted, **more)


GONE = Waited(ended="finished", word="that is all")


def run(
    world: Any, arms: tuple[str, ...] = SMALL, budget: str = "evaluations=300", **options: Any
) -> Simulation:
    rules = {name: options.pop(name) for name in ("turn", "trials") if name in options}
    return simulate(Portfolio(arms, **rules), TASK, world, Budget.parse(budget), seed=1, **options)


def turns(done: Simulation) -> list[str]:
    return [note["arm"].partition("(")[0] for note in notes(done, "turn")]


def test_agents_that_find_more_get_the_budget() -> None:
    """Repeated sampling reaches about .5 here, the agents write .9, and then .93."""
    world = Desks(programs=(ask(0.9), ask(0.93), GONE))
    done = run(world)
    assert done.verdict is not None and done.verdict.score == 0.93
    assert set(turns(done)) == {"best_of_n", "cato"}
    assert len(world.of(Open)) == 40


def test_agents_that_find_nothing_leave_the_budget_to_the_others() -> None:
    world = Desks(programs=(ask(*[0.01] * 9), GONE))
    run(world)
    assert len(world.of(Open)) < 16
    spent = sum(len(answer.rows) for answer in world.of(AnswerExperiments) if answer.agent >= 0)
    assert (
        0 < spent < 0.45 * 300
    )  # a tenth is theirs in any case, and an agent takes a few turns at once


@pytest.mark.parametrize(
    ("budget", "limit", "most"),
    [
        ("evaluations=300", "experiments", 29),
        ("evaluations=300,dollars=5", "dollars", 0.5),
        ("seconds=5000", "seconds", 450),
    ],
)
def test_an_agent_may_use_five_turns_share_of_every_budget(
    budget: str, limit: str, most: float
) -> None:
    """The share is one of the search's own budget: a part is kept for the final choice."""
    world = Desks(programs=(ask(0.5), GONE))
    run(world, ("cato(agent=cmd:x, agents=2, seconds=off)", "best_of_n"), budget, turn=0.02)
    assert [each.limits[limit] for each in world.of(Open)] == pytest.approx([most] * 2)


@pytest.mark.parametrize(
    ("agent", "message"),
    [("builtin", "the built-in agent needs a model"), ("claude", "'claude' is not installed")],
)
def test_an_arm_whose_agent_cannot_work_is_refused_before_the_run(
    agent: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no program of an agent is there
    options = RunOptions(budget=Budget(evaluations=20), model="offline")
    with pytest.raises(UserError, match=message) as caught:
        plan_run(TASK, Portfolio(("pedigree", f"cato(agent={agent})")), options)
    assert caught.value.fix


def test_an_agent_finds_the_leader_of_the_other_arms_and_is_no_person() -> None:
    world = Desks(programs=(ask(0.02), GONE))
    done = run(world, trials=1.0)
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows]
    other = [row for row in rows if row.agent == -1 and not row.ticket.startswith("seed")]
    assert other and {row.ticket.partition("-")[0] for row in other} == {"search"}
    assert {row.note for row in other} == {"leads another search of this run"}
    boards = [answer.leaderboard for answer in world.of(AnswerExperiments) if answer.leaderboard]
    assert "| search |" in boards[-1]
    assert done.search.is_done


def test_other_arms_see_what_an_agent_found() -> None:
    world = Desks(programs=(ask(0.9), GONE))
    witness = Witness(world)
    run(witness, ("map_elites", "cato(agent=cmd:x, agents=40)"), trials=1.0)
    shown = [each.candidate for brief in witness.briefs for each in brief.inspirations]
    assert "agent:cmd a00" in {candidate.origin.operator for candidate in shown}


def test_experiments_of_an_agent_at_work_wait_for_no_turn() -> None:
    """A program waits for its answer, and its time runs.

    Of one worker nothing else is done until it has ended.
    """
    world = Desks(programs=(ask(0.3, 0.4), ask(0.5), GONE))
    witness = Witness(world)
    run(witness, trials=1.0)
    at_work, inside = False, list[type]()
    for kind, request in ((effect.kind, effect.request) for effect in witness.effects):
        at_work = kind == "session.open" or (at_work and kind != "session.end")
        inside += [type(request)] if at_work else []
    assert inside.count(EvaluateRequest) > 2 * len(world.of(Open)) and ProposeRequest not in inside


def test_others_go_on_beside_an_agent_if_a_worker_is_free() -> None:
    world = Desks(programs=(ask(0.3), ask(0.4), GONE))
    alone = run(world, trials=1.0)
    beside = run(Desks(programs=world.programs), trials=1.0, workers=3)
    assert beside.seconds < 0.8 * alone.seconds


def test_what_an_agent_pays_is_charged_to_its_arm() -> None:
    """Agents that pay get fewer turns than those that pay nothing.

    The model of each that pays takes a twentieth of the dollars.
    """
    paid = Usage(calls=1, input_tokens=10, output_tokens=10, dollars=0.25)
    dear, free = Desks(programs=((ask(0.5), paid), GONE)), Desks(programs=(ask(0.5), GONE))
    for world in (dear, free):
        run(world, budget="evaluations=300,dollars=5", trials=1.0)
    assert 0 < len(dear.of(Open)) < 0.7 * len(free.of(Open))
