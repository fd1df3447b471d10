"""Every strategy passes the conformance kit, and the kit catches those that must not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.truth.hazards import HAZARDS

import culmen.extensions.agents.team
import culmen.strategies
import culmen.strategies.memory
from culmen.core.brief import Brief
from culmen.core.usage import Budget
from culmen.strategies import catalog
from culmen.strategies.ask_tell import AskTell
from culmen.testing import strategy_kit as kit
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .optimizers import HillClimber

PACKAGES = (culmen.extensions.agents.team, culmen.strategies.memory, culmen.strategies)
VARIANTS = {
    "pedigree": {},
    "pedigree bare": {"summarizer": "off", "inspirations": "0", "lanes": "2", "most": "1"},
    "polca pedigree": {"priority": "pedigree"},
    "polca": {},
    "polca lanes": {
        "lanes": "3",
        "explore": "2",
        "ties": "shuffled",
        "validation": "fresh_batch",
        "proposals": "2",
    },
    "polca bare": {"summarizer": "off", "epsilon": "off", "priority": "ucb(1.0)"},
    "polca quantile": {
        "epsilon": "q0.3",
        "priority": "ucb_sigma(0.2)",
        "tau": "q0.8",
        "explore": "1",
    },
    "map_elites": {"lanes": "2"},
    "turboevolve": {"islands": "3", "interval": "2"},
    "openevolve": {"islands": "2"},
    "gepa": {"lanes": "2"},
    "cato": {"agent": "offline"},
    "cato parallel": {"agent": "offline", "parallel": "3", "experiments": "7"},
    "cato hosted": {"agent": "cmd:simulated", "parallel": "2", "agents": "30", "experiments": "60"},
    "puct": {},
    "pacevolve": {"islands": "3", "freeze": "2"},
    "pacevolve_plus_plus": {
        "scaffold": "pacevolve(islands=3)",
        "worst": "0",
        "best": "1",
        "deadline": "20",
    },
    "beam": {},
    "sequential": {},
    "best_of_n": {},
    "portfolio": {},
    "portfolio of many": {
        "arms": "polca(lanes=2), gepa, best_of_n@proposer, portfolio(arms=[beam])",
        "turn": "0.05",
    },
    "portfolio with agents": {
        "arms": "pedigree, cato(agent=cmd:simulated, parallel=2, agents=30)",
        "turn": "0.04",
    },
    "portfolio with the offline agent": {"arms": "cato(agent=offline), map_elites"},
    "gated": {},
    "gated paired": {"gate": "paired", "repeats": "2", "batch": "2"},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_strategy_keeps_the_contract(variant):
    points = 4 if variant in catalog.strategy_paths() else 2  # other settings: fewer kills
    kit.check_strategy(catalog.make_strategy(variant.split()[0], VARIANTS[variant]), points=points)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["request", "time"])
@pytest.mark.parametrize(
    "name", ["fragile 0.5, own", "crashing cases", "simulator lost, minimised"]
)
def test_what_the_engine_asks_for_itself_is_asked_again_after_a_kill(name: str, order: kit.Order):
    """Second looks at failures, looks at the initial program, repeats.

    Of them all a killed run loses nothing.
    """
    world, strategy, budget = (
        HAZARDS[name],
        catalog.make_strategy("pedigree", {}),
        Budget(evaluations=80, calls=2000),
    )
    whole = simulate(strategy, world.task(), world, budget, seed=3, workers=3, order=order)
    inquiry = whole.search._attribution  # pyright: ignore[reportPrivateUsage]
    assert inquiry._looked or inquiry._spent  # pyright: ignore[reportPrivateUsage]
    kit.check_kill_points(strategy, world.task(), world, budget, order=order, points=5)


@pytest.mark.slow
def test_ask_tell_keeps_the_contract():
    kit.check_strategy(AskTell(HillClimber), points=4)


@pytest.mark.parametrize(
    "path",
    [path for package in PACKAGES for path in sorted(Path(package.__path__[0]).rglob("*.py"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_strategies_and_memories_cannot_see_clock_chance_or_hash_order(path):
    assert kit.impurities(path) == []


@pytest.mark.parametrize("package", ["core", "engine", "evidence", "extensions/baselines"])
def test_what_is_replayed_adds_floats_alike_in_every_python(package):
    folder = Path(culmen.strategies.__path__[0]).parent / package
    found = {str(path): kit.impurities(path) for path in folder.rglob("*.py")}
    assert found
    assert not [(path, line) for path in found for line in found[path] if "sum()" in line]


def test_impurities_are_found(tmp_path):
    source = tmp_path / "bad.py"
    source.write_text(
        "import time\nfrom random import Random, choice\nimport os\n"
        "x = hash('a')\nfor y in {1, 2}: pass\n"
        "z = [q for q in set(x)]\nw = list({3})\nr = Random(1)\nok = sorted({4})\n"
        "s = sum(w)\nok = sum(map(int, w)) + sum(a > b for a in w) + sum(len(a) for a in w)\n"
    )
    assert [line.partition(":")[0] for line in kit.impurities(source)] == [
        "1",
        "2",
        "4",
        "5",
        "6",
        "7",
        "8",
        "10",
    ]


class Chancy:
    """Uses chance of its own."""

    async def search(self, lab):
        while True:
            seeds = list(lab.seeds)
            await lab.evaluate(seeds[0], repeats=random.randrange(1, 4))
            await lab.propose(Brief(seeds[0], k=random.randrange(1, 1000)))


def test_chance_from_elsewhere_is_caught():
    with pytest.raises(AssertionError, match="two runs from one seed differ"):
        kit.check_repeatable(Chancy(), task(), kit.NOISY)


@dataclass(frozen=True)
class HashOrdered:
    """Depends on the iteration order of a set of texts."""

    async def search(self, lab):
        while True:
            answer = await lab.propose(Brief(lab.seeds[0], k=6))
            for name in {candidate.id for candidate in answer.candidates}:
                await lab.evaluate(next(c for c in answer.candidates if c.id == name))


def test_hash_order_is_caught():
    with pytest.raises(AssertionError, match="PYTHONHASHSEED"):
        kit.check_hash_seeds(HashOrdered())


class Remembering:
    """Keeps state outside its search, so that a resumed run starts from somewhere else."""

    def __init__(self):
        self.runs = 0

    async def search(self, lab):
        self.runs += 1
        while True:
            await lab.propose(Brief(lab.seeds[0], context=str(self.runs)))
            await lab.evaluate(lab.seeds[0])


def test_state_outside_the_search_is_caught():
    with pytest.raises(Exception, match=r"journal|differs"):
        kit.check_kill_points(Remembering(), task(), kit.NOISY)


class Blind:
    """Never looks at the seeds."""

    async def search(self, lab):
        while True:
            for candidate in (await lab.propose(Brief(lab.seeds[0]))).candidates:
                await lab.evaluate(candidate)


def test_an_unseen_seed_is_caught():
    """Of exact scores, where the engine itself has no reason to evaluate a seed."""
    with pytest.raises(AssertionError, match="never evaluated"):
        kit.check_finishes(Blind(), task(deterministic=True), Landscape(sigma=0.0))
