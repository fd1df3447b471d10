"""Pedigree: its views for models, its lessons on costs, and its beginning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from bench.truth import worlds

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import EvaluateRequest, ProposeRequest
from culmen.core.ports import Lab
from culmen.core.usage import Budget, Usage
from culmen.strategies.pedigree import PedigreeSearch, Prior, _Run  # pyright: ignore[reportPrivateUsage]
from culmen.testing.virtual import simulate

Act = Callable[[_Run], Awaitable[None]]


@dataclass(frozen=True)
class Acts(PedigreeSearch):
    """The memory and the effects of the search, used by hand."""

    act: Any = None

    async def search(self, lab: Lab) -> None:
        await self.act(_Run(self, lab))


class Scripted:
    """A world where every evaluation takes 4 seconds and has a given score.

    Every request takes 6 seconds.
    """

    def __init__(
        self, scores: dict[str, list[float | None]], offered: tuple[Candidate, ...] = ()
    ) -> None:
        self._scores, self._offered = scores, offered
        self.briefs: list[Brief] = []
        self.evaluated: list[str] = []

    def perform(self, effect: Any, rng: Any) -> Any:
        request = effect.request
        if isinstance(request, EvaluateRequest):
            self.evaluated.append(request.candidate.id)
            waiting = self._scores.get(request.candidate.id) or [0.5]
            score = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            status = Status.ERROR if score is None else Status.OK
            return 4.0, Observation(
                request.candidate.id, status, score, seconds=4.0, trust="verified"
            )
        assert isinstance(request, ProposeRequest)
        self.briefs.append(request.brief)
        usage = Usage(calls=1, input_tokens=100, output_tokens=50 * len(self._offered))
        return 6.0, Proposal(self._offered, model="m", usage=usage)


def run(world: Scripted, act: Act, workers: int = 1, **left: float) -> None:
    """One search by hand, within a budget."""
    task = worlds.SimulatedWorld().task()
    budget = msgspec.convert({"evaluations": 100, **left}, Budget)
    simulate(Acts(act=act), task, world, budget, seed=1, workers=workers)


def child(name: str, *parents: Candidate) -> Candidate:
    return Candidate.of(
        {"program.py": f"mu=0.5\nserial={name}\ngenes=0\nbroken=0\n"}, tuple(p.id for p in parents)
    )


def test_a_prompt_tells_the_estimate_how_often_it_was_measured_and_its_95_percent() -> None:
    a, told = child("a"), list[Any]()

    async def act(run: _Run) -> None:
        for _ in range(4):
            await run.evaluate_next_case(a)
        told.extend([run.measured_mean(a), run.model.value_of(a.id)])

    run(Scripted({a.id: [1.0, 1.2, 1.1, None]}), act)
    (reward, measured), value = told
    assert reward == value.mean and (measured.count, measured.failures) == (3, 1)
    assert measured.margin == pytest.approx(1.96 * value.sd) and value.sd > 0


def test_a_prompt_tells_nothing_of_what_was_never_scored() -> None:
    a, told = child("a"), list[Any]()

    async def act(run: _Run) -> None:
        await run.evaluate_next_case(a)
        told.extend(run.measured_mean(a))

    run(Scripted({a.id: [None]}), act)
    assert told[0] is None and told[1].count == 0


def test_until_noise_is_known_a_candidate_is_looked_at_again_on_the_case_it_was_seen_on() -> None:
    for seed in range(4):
        seen = list[str]()

        async def act(run: _Run, seen: list[str] = seen) -> None:
            for _ in range(3):
                await run.evaluate_next_case(child("a"))
            seen.extend(observation.case for observation in run.seen[child("a").id])

        world = worlds.SimulatedWorld(cases=2, noise=0.1)
        simulate(
            Acts(act=act), world.task(), world, Budget(evaluations=100), seed=seed, trial=False
        )
        assert len(seen) == 3 and len(set(seen)) == 1


def test_a_prompt_shows_the_six_newest_observations() -> None:
    a, kept = child("a"), list[float | None]()

    async def act(run: _Run) -> None:
        for _ in range(9):
            await run.evaluate_next_case(a)
        kept.extend(o.score for o in run.seen[a.id])

    run(Scripted({a.id: [float(n) for n in range(9)]}), act)
    assert kept == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_shown_beside_a_parent_are_the_best_that_are_no_kin_of_it_or_of_each_other() -> None:
    parent, rival, third = child("parent"), child("rival"), child("third")
    son, brother = child("son", parent), child("brother", rival)
    low = child("low")
    scores: dict[str, list[float | None]] = {
        parent.id: [9.0],
        son.id: [8.0],
        rival.id: [7.0],
        brother.id: [6.0],
        third.id: [5.0],
        low.id: [4.0],
    }
    shown: dict[str, list[str]] = {}

    async def act(run: _Run) -> None:
        for each in (parent, son, rival, brother, third, low):
            await run.evaluate_next_case(each)
            await run.evaluate_next_case(each)
        for each in (parent, son, third):
            shown[each.id] = [exhibit.candidate.id for exhibit in run.other_exhibits(each)]

    run(Scripted(scores), act)
    assert shown == {
        parent.id: [rival.id, third.id],
        son.id: [rival.id, third.id],
        third.id: [parent.id, rival.id],
    }


def test_requests_and_evaluations_are_entered_at_what_they_took() -> None:
    new, costs = child("new"), list[float]()

    async def act(run: _Run) -> None:
        from culmen.strategies.knowledge_gradient import GAIN, Move, WeighedMove

        await run.evaluate_next_case(child("first"))
        await run.request_children(WeighedMove(Move(parent=""), GAIN))
        left = run.lab.left("seconds")
        costs.extend([run.costs.evaluation_share() * left, run.costs.request_share(1) * left])

    run(Scripted({}, (new,)), act, seconds=100.0)
    assert costs == pytest.approx([4.0, 10.0])


def test_a_request_that_brings_nothing_new_speaks_against_its_parent_alone() -> None:
    a, births = child("a"), list[list[float]]()

    async def act(run: _Run) -> None:
        from culmen.strategies.knowledge_gradient import GAIN, Move, WeighedMove

        for each in (a, child("b")):
            await run.evaluate_next_case(each)
        for parent in ("", a.id):
            births.append(run.model.child_success_chances().tolist())
            await run.request_children(WeighedMove(Move(parent=parent), GAIN))
        births.append(run.model.child_success_chances().tolist())

    run(Scripted({}, (a,)), act)
    before, after_none, after = births
    assert before == after_none and after[0] < before[0] and after[1] == before[1]


@pytest.mark.parametrize(
    ("workers", "deterministic", "first"), [(1, None, 1), (2, None, 2), (2, False, 1)]
)
def test_the_first_program_is_evaluated_twice_at_once_where_a_worker_would_be_idle(
    workers: int, deterministic: bool | None, first: int
) -> None:
    parts = [worlds.Genome(0.1).genome_parts(n) for n in range(3)]
    a, b, c = (Candidate.of(each).id for each in parts)
    world = Scripted(
        {a: [0.1], b: [0.2], c: [0.9]}, (child("new"),)
    )  # a leader may be looked at again soon: not these
    task = msgspec.structs.replace(
        worlds.SimulatedWorld().task(), seeds=tuple(parts), deterministic=deterministic
    )
    simulate(
        PedigreeSearch(lanes=1), task, world, Budget(evaluations=40), workers=workers, trial=False
    )
    assert [world.evaluated[:5].count(id) for id in (a, b)] == [first, 1]


def test_what_it_asks_for_besides_programs_is_told() -> None:
    assert (
        "whenever progress stalls" in PedigreeSearch().asides
        and PedigreeSearch(summarizer=None).asides == ""
    )


def test_nothing_is_known_before_of_a_prior_without_numbers_and_four_children_are_the_most() -> (
    None
):
    assert Prior() == Prior(noise=0.0, step=0.0, drift=0.0, sign=0)
    assert PedigreeSearch().most == 4
