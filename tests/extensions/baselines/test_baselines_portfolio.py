"""The strategy `portfolio`: who gets the turns, and what arms see of each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import fmean

import pytest
from bench.truth import worlds

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.ports import Lab, MinimalStrategy
from culmen.core.usage import Budget, Usage
from culmen.extensions.baselines.arm_lab import ArmLab
from culmen.extensions.baselines.portfolio import Portfolio
from culmen.extensions.baselines.turns import Arm, TurnRules, TurnTaking
from culmen.run.recheck import deciders_of
from culmen.strategies import catalog
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.landscape import task
from culmen.testing.virtual import Simulation, simulate
from tests.strategies.helpers import Witness

EXACT = worlds.FAMILY["smooth"]


def turns_of(done: Simulation) -> list[str]:
    """The arms that had the turns, in order."""
    notes = (event.entry.body for event in done.journal.read() if event.entry.kind == "note")
    return [body["arm"] for body in notes if body.get("note") == "turn"]


def reached(
    strategy: MinimalStrategy, seed: int, evaluations: int = 200
) -> tuple[float, list[str]]:
    world = replace(EXACT, number=seed)
    done = simulate(strategy, world.task(), world, Budget(evaluations=evaluations), seed=seed)
    assert done.verdict is not None
    return done.verdict.score, turns_of(done)


@pytest.mark.slow
@pytest.mark.parametrize("arms", [("best_of_n", "puct"), ("puct", "best_of_n")])
def test_portfolio_gives_the_budget_to_the_arm_that_improves(arms: tuple[str, ...]) -> None:
    """Repeated sampling finds two steps at most on this world, whichever arm is named first."""
    alone = [reached(catalog.make_strategy("best_of_n"), seed)[0] for seed in range(6)]
    together = [reached(Portfolio(arms), seed) for seed in range(6)]
    assert fmean(score for score, _ in together) > 2 * fmean(alone)
    late = sum((Counter(turns[len(turns) // 2 :]) for _, turns in together), Counter[str]())
    assert late["puct"] > 1.5 * late["best_of_n"] > 0  # 2 over 16 random seeds, named last


def test_portfolio_keeps_arms_whose_requests_take_many_turns_for_the_end() -> None:
    """An evaluation on all 30 cases takes a tenth of this budget; pedigree takes one at a time."""
    world = worlds.FAMILY["data set"]
    done = simulate(Portfolio(), world.task(), world, Budget(evaluations=300), seed=1)
    assert set(turns_of(done)) == {"pedigree"}


@dataclass(frozen=True)
class Improver:
    """Improves the first program for ever, and takes in the candidates handed to it."""

    asked: list[Brief] = field(default_factory=list, compare=False)
    taken: list[Candidate] = field(default_factory=list, compare=False)

    async def search(self, lab: Lab) -> None:
        await lab.evaluate(lab.seeds[0])
        while True:
            brief = Brief(lab.seeds[0])
            self.asked.append(brief)
            answer = await lab.propose(brief)
            handed = lab.handed()
            self.taken.extend(handed)
            for candidate in (*answer.candidates, *handed):
                await lab.evaluate(candidate)


IMPROVERS: list[Improver] = []


class Registered(Improver):
    """An improver that the test can look at."""

    def __init__(self) -> None:
        super().__init__()
        IMPROVERS.append(self)


def test_portfolio_shows_the_leader_and_hands_it_to_an_arm_that_stalls() -> None:
    IMPROVERS.clear()
    portfolio = Portfolio(("pedigree", f"{__name__}:Registered"), trials=0.5)
    IMPROVERS.clear()  # of those made to check the settings
    world = replace(EXACT, number=3)
    witness = Witness(world)
    done = simulate(portfolio, world.task(), witness, Budget(evaluations=200), seed=3)
    (improver,) = IMPROVERS
    assert done.verdict is not None and done.verdict.id in {each.id for each in improver.taken}
    seen = [
        brief
        for brief in witness.briefs
        if brief.parent and brief.parent.id == world.task().initial_candidates()[0].id
    ]
    shown = [each.candidate for brief in seen for each in brief.inspirations]
    assert max(map(worlds.hidden_quality, shown)) > 0.5


def test_portfolio_arm_asks_the_model_of_its_role() -> None:
    witness = Witness()
    portfolio = Portfolio(("best_of_n", "best_of_n(lanes=1)@strong"), trials=0.9)
    simulate(portfolio, task(), witness, Budget(evaluations=60), seed=1)
    assert {brief.role for brief in witness.briefs} == {"proposer", "strong"}


def test_portfolio_charges_what_is_dear() -> None:
    """Of two arms that gain nothing, calls being dear, the one that asks less is tried longer."""

    @dataclass
    class Budgets:
        workers: int = 1

        def left(self, name: str) -> float:
            return {"evaluations": 100.0, "dollars": 2.0}.get(name, float("inf"))

    rules = TurnRules(0.02, 0.2, 0.1, 0.1, 2)
    arm = Arm("a", Improver(), "")
    turns = TurnTaking(rules, Budgets(), [arm])  # type: ignore[arg-type]
    turns.charge(arm, Usage(evaluations=1, dollars=0.5), 0.0)
    assert arm.spent == 0.25 and arm.balance == -0.25
    turns.charge(arm, Usage(evaluations=10), 0.0)
    assert arm.spent == pytest.approx(0.35)
    assert arm.cost < arm.spent  # the older cost has faded


@dataclass
class Handing:
    """A lab whose person has handed in these candidates."""

    given: list[Candidate]
    workers: int = 1
    seeds: tuple[Candidate, ...] = ()

    def left(self, name: str) -> float:
        return {"evaluations": 100.0, "seconds": 60.0}.get(name, float("inf"))

    def handed(self) -> list[Candidate]:
        taken, self.given = self.given, []
        return taken


def test_every_arm_is_handed_a_persons_candidates_once() -> None:
    one, two = (Candidate.of({"program": text}, (), Origin("person")) for text in "ab")
    lab, arms = Handing([one]), [Arm(name, Improver(), "") for name in "xy"]
    turns = TurnTaking(TurnRules(0.02, 0.2, 0.1, 0.1, 2), lab, arms)  # type: ignore[arg-type]
    x, y = (ArmLab(turns, arm) for arm in arms)
    assert x.handed() == (one,) and x.handed() == ()
    lab.given.append(two)
    assert y.handed() == (one, two) and x.handed() == (two,) and y.handed() == ()
    assert x.session_limit("evaluations") == 10.0 and x.session_limit("dollars") == float("inf")
    turns.enter_candidates(arms[0], x._made_here(one))  # pyright: ignore[reportPrivateUsage]
    assert not turns.makers  # what a person handed in is no arm's success


def test_portfolio_knows_no_ancestors_of_another_run() -> None:
    """A fork's initial program names parents that this run never evaluated."""
    parts = {name: f"{text}\n" for name, text in task().initial_candidates()[0].parts.items()}
    first = Candidate.of(parts, ("elsewhere",))

    @dataclass(frozen=True)
    class Heir:
        async def search(self, lab: Lab) -> None:
            await lab.evaluate(first)
            while True:
                for candidate in (await lab.propose(Brief(first))).candidates:
                    await lab.evaluate(candidate)

    globals()["Heir"] = Heir
    two = Portfolio((f"{__name__}:Heir", "pedigree"))
    done = simulate(two, task(), Witness(), Budget(evaluations=60), seed=2)
    assert done.verdict is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_portfolio_goes_on_when_coroutines_end_beside_waiting_ones(workers: int) -> None:
    """The last result may belong to a coroutine that ends, while its brothers wait for a turn."""

    @dataclass(frozen=True)
    class Stages:
        async def search(self, lab: Lab) -> None:
            first = lab.seeds[0]

            async def evaluate_times(times: int) -> None:
                for _ in range(times):
                    await lab.evaluate(first)

            while True:
                await lab.gather(*(evaluate_times(times) for times in (2, 2, 1, 3)))

    globals()["Stages"] = Stages
    two = Portfolio((f"{__name__}:Stages",) * 2)
    plain = task()
    done = simulate(two, plain, Witness(), Budget(evaluations=100), seed=1, workers=workers)
    notes = [event.entry.body for event in done.journal.read() if event.entry.kind == "note"]
    assert not any("waits" in str(body) for body in notes)
    assert sum(event.entry.kind == "done" for event in done.journal.read()) >= 90


def test_portfolio_refuses_arms_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"no strategy 'pedigre'.*did you mean 'pedigree'"):
        Portfolio(("pedigre",))
    with pytest.raises(UserError, match="no arms"):
        Portfolio(())
    text = "portfolio(arms=[polca(epsilon=off, batch=3), puct@strong], turn=0.1)"
    made = catalog.make_strategy(*catalog.parse_strategy(text))
    assert made == Portfolio(("polca(epsilon=off, batch=3)", "puct@strong"), turn=0.1)


@pytest.mark.extension("agents")
@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (("cato(agent=offline)", "cato"), "one arm alone can be of agents"),
        (("pedigree", "cato@strong"), "agents make no proposals"),
    ],
)
def test_portfolio_has_one_arm_of_agents_and_no_role_for_it(
    arms: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Portfolio(arms)


@pytest.mark.extension("train")
def test_portfolio_refuses_arms_that_train() -> None:
    with pytest.raises(UserError, match="'pacevolve_plus_plus' cannot be an arm"):
        Portfolio(("pedigree", "pacevolve_plus_plus"))


def test_portfolio_journals_the_versions_of_its_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    named = deciders_of(Portfolio(("polca", "pedigree")), None)
    assert [named[key].name for key in ("arm 0", "arm 1")] == ["polca", "pedigree"]
    monkeypatch.setattr(PedigreeSearch, "version", 7, raising=False)
    assert deciders_of(Portfolio(("polca", "pedigree")), None)["arm 1"].version == 7


def test_portfolio_ends_when_its_arms_have_ended() -> None:
    @dataclass(frozen=True)
    class Quitter:
        async def search(self, lab: Lab) -> str:
            await lab.evaluate(lab.seeds[0])
            return "plateau"

    globals()["Quitter"] = Quitter
    two = Portfolio((f"{__name__}:Quitter",) * 2)
    done = simulate(two, task(), Witness(), Budget(evaluations=500))
    assert done.search.is_done and done.verdict is not None
    notes = [event.entry.body for event in done.journal.read() if event.entry.kind == "note"]
    assert [each["reason"] for each in notes if each.get("note") == "arm ended"] == ["plateau"] * 2
    assert sum(event.entry.kind == "done" for event in done.journal.read()) < 400
