"""Best of n: the rest of the budget goes to comparing drafts, by its expected worth."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np
import pytest
from bench.truth import worlds

from culmen.core.usage import Budget
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.drafts import DraftStandings, gain_of_drafts, gain_of_looks
from culmen.testing.virtual import simulate


def counts_of(done) -> list[int]:
    """Evaluations of each candidate of the search, most first."""
    return sorted((tally.count for tally in done.search.evidence.account.tallies()), reverse=True)


def test_with_exact_scores_no_draft_is_evaluated_again_for_the_choice() -> None:
    world = replace(worlds.FAMILY["smooth"], number=3)
    task = world.task()
    done = simulate(BestOfN(), task, world, Budget(evaluations=100), seed=3)
    assert (
        sum(count - 1 for count in counts_of(done)) <= 5
    )  # repeats that find out if there is noise


def test_under_noise_the_leaders_get_the_repeats() -> None:
    world = replace(worlds.FAMILY["smooth, noise 2 steps"], number=3)
    done = simulate(BestOfN(), world.task(), world, Budget(evaluations=200), seed=3)
    counts = counts_of(done)
    assert counts[0] >= 4 and sum(count > 1 for count in counts) < len(counts) / 2
    drawn = simulate(BestOfN(again=0.0), world.task(), world, Budget(evaluations=200), seed=3)
    assert counts_of(drawn)[0] == 5  # the engine's own, from which the noise is known


def test_on_a_data_set_a_bad_draft_is_not_evaluated_on_all_cases() -> None:
    world = replace(worlds.FAMILY["data set"], number=2)
    done = simulate(BestOfN(), world.task(), world, Budget(evaluations=300), seed=2)
    counts = counts_of(done)
    cases = len(world.task().split("train"))
    assert counts[0] >= cases and counts[-1] < cases and len(counts) > 300 / cases


@pytest.mark.parametrize("looks", [2.0, 20.0])
def test_the_gain_of_looks_is_that_of_draws(looks: float) -> None:
    known = DraftStandings(["a", "b", "c"], np.array([1.0, 0.9, 0.2]), np.array([0.3, 0.3, 0.2]))
    noise, rng = 0.25, Random(1)
    gaps, errors = 1.0 - known.worth, known.gap_errors()
    weights = np.exp(-0.5 * (gaps / errors) ** 2)
    each = looks / weights.sum()
    steps = known.sd * np.sqrt(each / (each + noise / known.sd**2))
    best = fmean(max(rng.gauss(m, s) for m, s in zip(known.worth, steps)) for _ in range(40_000))
    assert gain_of_looks(known, noise, looks) == pytest.approx(best - 1.0, abs=0.005)
    assert gain_of_looks(known, noise, 0.0) == 0.0


def test_the_gain_of_drafts_is_that_of_a_larger_sample() -> None:
    rng = Random(2)
    best = [fmean(max(rng.gauss(0, 1) for _ in range(n)) for _ in range(8000)) for n in (10, 20)]
    drafts = np.array([rng.gauss(0, 1) for _ in range(10)])
    drafts /= drafts.std(ddof=1)
    assert gain_of_drafts(drafts, 10) == pytest.approx(best[1] - best[0], abs=0.04)
    assert gain_of_drafts(drafts, 0) == 0.0
