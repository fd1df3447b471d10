"""The final choice of a task with a verifier, on a virtual clock."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from culmen.core.evaluation import Observation, Status
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.task import Evaluator
from culmen.core.usage import Budget
from culmen.testing.virtual import Simulation, simulate
from tests.engine.worlds import EXACT, Climb, Hill

TASK = msgspec.structs.replace(EXACT, evaluator=Evaluator(verifier="verify.py"))
LONG = 4.0


class Fading(Hill):
    """A world where a program's score is halved in the final choice.

    With `dud`, the first program there has no score at all.
    """

    def __init__(self, dud: bool = False) -> None:
        super().__init__(sigma=0.0)
        self.dud, self.finalists = dud, list[str]()

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        if not isinstance(request, EvaluateRequest) or not request.certify:
            return super().perform(effect, rng)
        self.finalists.append(request.candidate.id)
        if self.dud and len(self.finalists) == 1:
            return LONG, Observation(request.candidate.id, Status.INVALID, seed=request.seed)
        score = float(request.candidate.text) / 2
        found = Observation(
            request.candidate.id, Status.OK, score, seed=request.seed, trust="verified"
        )
        return LONG, msgspec.structs.replace(found, certified=score, strict=True)


def ended(world: Fading, seconds: float | None, evaluations: int | None = None) -> Simulation:
    budget = Budget(seconds=seconds, evaluations=evaluations)
    return simulate(Climb(), TASK, world, budget, seed=3, workers=2)


def test_where_time_may_end_it_finalists_are_looked_at_side_by_side() -> None:
    """The failure of one does not leave the run with nothing.

    The next was looked at in the same time.
    """
    world = Fading(dud=True)
    end = ended(world, seconds=60.0)
    assert end.verdict is not None and end.verdict.confirmed
    assert end.verdict.id == world.finalists[1] and end.verdict.certified == pytest.approx(
        end.verdict.score
    )


def test_without_a_clock_they_are_looked_at_in_turn_while_one_may_be_better() -> None:
    world = Fading()
    end = ended(world, seconds=None, evaluations=60)
    assert end.verdict is not None and end.verdict.id == world.finalists[0]
    assert (
        len(world.finalists) == 4
    )  # none held its score: all three kept for were looked at, and the initial program


def killed(kill: int, **budget: float) -> Simulation:
    """A search that ends after `kill` completions, and goes on from its journal."""
    kept = Budget(**budget)  # type: ignore[arg-type]
    part = simulate(Climb(), TASK, Fading(), kept, seed=3, workers=2, kill_after=kill)
    assert part.killed
    return simulate(Climb(), TASK, Fading(), kept, seed=3, workers=2, journal=part.journal)


def test_a_choice_that_is_killed_between_two_finalists_reports_the_same() -> None:
    """The second's evaluation, lost by the kill, does not end in time any more: it is one less."""
    whole = ended(Fading(), seconds=60.0)
    rest = killed(whole.performed - 1, seconds=60.0)
    assert whole.verdict is not None and rest.verdict is not None
    first, second = whole.verdict.finalists
    assert first == whole.verdict.id != second
    left = {"evaluations": whole.verdict.evaluations - 1, "finalists": (first,)}
    assert rest.verdict == msgspec.structs.replace(whole.verdict, **left)


@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_without_a_clock_a_choice_that_is_killed_anywhere_ends_the_same(left: int) -> None:
    whole = ended(Fading(), seconds=None, evaluations=60)
    rest = killed(whole.performed - left, evaluations=60)
    assert rest.verdict == whole.verdict and rest.verdict is not None and rest.verdict.confirmed
