"""The paper's analysis on the simulated landscape, small; bench/ has the large runs."""

from __future__ import annotations

import math
import statistics

import pytest

from culmen.core.usage import Budget
from culmen.extensions.baselines.map_elites import MapElites
from culmen.strategies import catalog
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.memory.priorities import Newest, UcbSigma
from culmen.strategies.polca import Polca, Sequential
from culmen.testing.landscape import Faults, Landscape, Restart, task, written_reward
from culmen.testing.virtual import simulate

from .helpers import Witness

SEEDS = range(40)


class Reached(Exception):
    """A program above B - gamma was proposed."""


class Stopwatch(Witness):
    """Ends the run at the first program above B - gamma."""

    def perform(self, effect, rng):
        seconds, result = super().perform(effect, rng)
        for child in getattr(result, "candidates", ()):
            if written_reward(child) > self.world.bound - self.world.gamma:
                raise Reached
        return seconds, result


def steps(strategy, world, seed, calls=10_000):
    """Proposals asked for until one lies above B - gamma (inf if none of `calls` does)."""
    watch = Stopwatch(world)
    try:
        simulate(
            strategy, task(deterministic=True), watch, Budget(calls=calls, final=0.0), seed=seed
        )
    except Reached:
        return len(watch.briefs)
    return math.inf


def test_theorem_2_updating_from_the_best_takes_at_most_b_over_gamma_delta_steps():
    world = Landscape(gamma=0.2, delta0=0.5, failure=Restart())
    best = Polca(1, 1, epsilon=None, summarizer=None)
    taken = [steps(best, world, seed) for seed in SEEDS]
    assert statistics.mean(taken) <= 1.0 / (0.2 * 0.5)
    assert (
        statistics.mean(taken) >= 4 / 0.5 * 0.7
    )  # four improvements are needed, each after 1 / delta0 on average


def test_theorem_2_sequential_updating_grows_exponentially():
    newest = Polca(1, 1, epsilon=None, priority=Newest(), summarizer=None)
    means = []
    for n in (2, 4, 5):
        world = Landscape(gamma=1 / n, delta0=0.5, failure=Restart())
        means.append(statistics.mean(steps(newest, world, seed) for seed in SEEDS))
        assert means[-1] <= (0.5**-n - 1) / 0.5
    assert means[1] > 2.5 * means[0] and means[2] > 1.3 * means[1]


def test_theorem_1_ucb_spends_few_observations_on_poor_programs():
    world, epsilon, n = Landscape(gamma=0.1, delta0=0.3, sigma=0.02), 0.1, 400
    strategy = Polca(1, 1, epsilon, priority=UcbSigma(world.sigma, horizon=n), summarizer=None)
    spent = []
    for seed in range(5):
        run = simulate(strategy, task(), world, Budget(calls=n, final=0.0), seed=seed)
        tallies, find = list(run.search.evidence.account.tallies()), run.search.lab.find
        spent.append(
            sum(t.count for t in tallies if written_reward(find(t.id)) <= world.bound - world.gamma)
        )
        assert len(tallies) <= world.net_size(epsilon)
    interval, single = (
        2 * math.log(n) / world.delta0,
        64 * world.sigma**2 / world.gamma**2 * math.log(n),
    )
    assert statistics.mean(spent) <= 2 * world.bound / world.gamma * interval + world.net_size(
        epsilon
    ) * (single + 3)
    assert (
        statistics.mean(spent) < 0.5 * n
    )  # most observations go to programs that cannot be improved further


def true_reward(strategy, seeds):
    world = Landscape(gamma=0.1, delta0=0.3, sigma=0.2)
    pairs = []
    for seed in seeds:
        run = simulate(
            strategy, task(), world, Budget(evaluations=300, calls=3000), seed=seed, workers=4
        )
        pairs.append((written_reward(run.search.lab.find(run.verdict.id)), run.verdict.score))
    return pairs


@pytest.mark.slow
def test_under_noise_polca_reports_truly_better_programs_without_a_winners_curse():
    polca = true_reward(
        Polca(epsilon=0.1), range(12)
    )  # the paper's distance, for embeddings that tell the reward
    mean = statistics.mean(mu for mu, _ in polca)
    assert abs(statistics.mean(score - mu for mu, score in polca)) < 0.05
    for other in (Polca(epsilon=None), MapElites(), Sequential(), BestOfN()):
        assert mean > statistics.mean(mu for mu, _ in true_reward(other, range(12))) + 0.02


@pytest.mark.parametrize("name", ["puct", "map_elites", "turboevolve"])
def test_where_no_initial_program_scores_the_first_is_improved_and_without_one_a_first_is_written(
    name,
):
    for seeds, parents in (((0.0, 0.5), {0.0}), ((), {None})):
        witness = Witness(Landscape(faults=Faults(error=1.0)))
        simulate(
            catalog.make_strategy(name),
            task(seeds=seeds),
            witness,
            Budget(evaluations=12, calls=12),
            trial=False,
        )
        assert {
            brief.parent and written_reward(brief.parent) for brief in witness.briefs
        } == parents
