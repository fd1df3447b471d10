"""Offline, a budget of 100 evaluations or more has room for ten turns of every strategy.

Where it has not, a message reports that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.evaluation import Case
from culmen.core.task import Limits, Task
from culmen.core.usage import Budget
from culmen.models.offline.proposer import OfflineProposer
from culmen.run.study import optimize
from culmen.strategies import catalog
from culmen.testing.virtual import Simulation, simulate
from tests.models.offline.worlds import ROUTE, Workshop

ELSEWHERE = {
    "cato",
    "ask_tell",
    "pacevolve",
    "pacevolve_plus_plus",
}  # agents, one's own optimiser, an advisor decide
EXACT = Task("route", seeds=({"route.py": ROUTE},), limits=Limits(seconds=1.0), deterministic=True)
NOISY = Task("noisy", seeds=({"route.py": ROUTE},), limits=Limits(seconds=1.0))
CASES = Task(
    "cases",
    seeds=({"route.py": ROUTE},),
    cases=tuple(Case(str(n), n) for n in range(40)),
    deterministic=True,
)


def length(parts: dict[str, str], case: Case | None) -> float:
    """Cheap, and improved by some edits."""
    return float(sum(map(ord, parts["route.py"])) % 997 + len(parts["route.py"]) % 13)


def search(strategy: object, task: Task, evaluations: int) -> Simulation:
    """Offline, with loops, on a world that runs nothing."""
    world, budget = Workshop(length), Budget(evaluations=evaluations)
    return simulate(strategy, task, world, budget, workers=2, seed=3, proposer=OfflineProposer())  # pyright: ignore


def told(done: Simulation) -> list[dict[str, object]]:
    """The notes about few turns."""
    bodies = [event.entry.body for event in done.journal.read()]
    return [body for body in bodies if body.get("note") == "few_turns"]


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [100, 200])
@pytest.mark.parametrize("name", sorted(set(catalog.strategy_paths()) - ELSEWHERE))
def test_every_strategy_has_its_turns(name: str, evaluations: int) -> None:
    done = search(catalog.make_strategy(name, {}), EXACT, evaluations)
    assert done.search.turn_counter.finished_count >= 10
    assert told(done) == []


@pytest.mark.parametrize("name", ["gepa", "polca", "turboevolve"])
@pytest.mark.parametrize("task", [NOISY, CASES], ids=["noisy", "cases"])
def test_where_the_strategy_itself_takes_all_it_is_told(task: Task, name: str) -> None:
    done = search(catalog.make_strategy(name, {}), task, 100)
    turns = done.search.turn_counter.finished_count
    notes = told(done)
    assert [note["turns"] for note in notes] == ([] if turns >= 10 else [turns])
    assert all(int(str(note["needed"])) > 100 for note in notes)


def test_the_user_is_told_what_to_change(tmp_path: Path) -> None:
    program, budget = "def run():\n    return 1.0\n", Budget(evaluations=100)
    strategy = catalog.make_strategy("polca", {"batch": "8"})
    study = optimize(
        program, len, strategy=strategy, budget=budget, run_dir=tmp_path / "run", workers=2
    )
    few = study.status.few_turns
    assert few is not None and few.turns < 10 and few.needed > 100
    told = next(found for found in study.summary.findings if found.topic == "few_turns")
    assert f"only {few.turns} turn" in told.what
    assert (
        f'budget="evaluations={few.needed}"' in told.command
        and "fewer programs and cases" in told.do
    )


def test_small_budgets_are_not_told_of() -> None:
    assert told(search(catalog.make_strategy("polca", {}), NOISY, 40)) == []
