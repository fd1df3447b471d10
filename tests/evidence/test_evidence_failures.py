"""Failures: how likely a candidate is to fail again, and whose failures are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evidence.account import CHOICE, FINAL, LoadedTallies
from culmen.evidence.evidence import Evidence
from culmen.evidence.failures import failure_chances, unseen_failures

TASK = Task("hill", seeds=({"x": "initial"},))
INITIAL = TASK.initial_candidates()[0]

# The chance to fail again.


def chances(
    rows: list[tuple[float, float, float]], early: float = 0.0, parents: list[int] | None = None
) -> list[float]:
    """Posterior chances of candidates with these counts of scores and failures, and these means."""
    scored, failed, means = np.array(rows, float).T
    above = np.full(len(rows), -1) if parents is None else np.array(parents)
    return failure_chances(scored, failed, np.full(len(rows), early), means, above).mean.tolist()


def test_while_no_candidate_that_scored_has_failed_all_chances_are_zero() -> None:
    broken = [(0.0, 3.0, 0.0), (0.0, 1.0, 0.0)]
    rows = np.array([(1.0, 0.0, 0.5), (4.0, 0.0, 0.7), *broken]).T
    found = failure_chances(rows[0], rows[1], np.zeros(4), rows[2], np.full(4, -1))
    for each in (found.mean, found.sd, found.step):
        assert each.tolist() == [0.0] * 4


def test_a_candidate_of_a_kind_that_never_failed_is_steady_and_one_of_a_failing_kind_is_not() -> (
    None
):
    """Root mean squares of its chance to fail after twelve successes, by the counts of its kind."""
    never = np.array([(0.0, 2.0)] * 10 + [(0.0, 12.0)]).T
    seldom = np.array([(0.0, 2.0)] * 7 + [(1.0, 2.0)] * 3 + [(0.0, 12.0)]).T
    steady, doubtful = (unseen_failures(*counts, 10) ** 0.5 for counts in (never, seldom))
    assert steady < 0.03 < 0.05 < doubtful < 0.15
    fewer = [unseen_failures(seldom[0], np.append(seldom[1][:-1], n), 10) for n in (2, 12, 48)]
    assert fewer == sorted(fewer, reverse=True)


def test_an_initial_program_leads_by_no_luck_and_a_failure_of_its_kind_tells_little_about_it():
    """A failing neighbour made its margin three times as wide; it was not chosen for its luck."""
    fails, succeeds = np.array([1.0] * 3 + [0.0] * 30), np.array([0.0] * 3 + [1.0] * 29 + [27.0])
    chosen, initial = (unseen_failures(fails, succeeds, 32, each) ** 0.5 for each in (True, False))
    assert initial < 0.03 < chosen / 2


def test_a_kind_of_candidates_whose_members_fail_lowers_the_others_of_the_kind_and_not_the_steady_kind() -> (
    None
):
    """Twenty that score 1 half of the time and twenty steady ones at 0.8.

    One more of each kind was seen once.
    """
    kind = [*[(2.0, 2.0, 1.0 + n / 1000) for n in range(20)], (1.0, 0.0, 1.01)]
    steady = [*[(3.0, 0.0, 0.8 + n / 1000) for n in range(20)], (1.0, 0.0, 0.81)]
    found = chances([*kind, *steady])
    assert 0.5 < found[20] < 0.8  # of their second evaluations two of three failed
    assert max(found[21:]) < 0.05
    alike = chances([*[(2.0, 2.0, 1.0)] * 20, *[(3.0, 0.0, 1.0)] * 20, (1.0, 0.0, 1.0)])
    assert 0.3 < alike[-1] < 0.5  # scores tell no kinds apart: the rate of the run


def test_relatives_that_fail_lower_their_kin() -> None:
    """Two families that score alike; the last of each was seen once."""
    rows = [
        (1.0, 0.0, 1.0),
        (1.0, 0.0, 1.0),
        *[(3.0, 2.0, 1.0), (5.0, 0.0, 1.0)] * 10,
        *[(1.0, 0.0, 1.0)] * 2,
    ]
    found = chances(rows, parents=[-1, -1, *[0, 1] * 11])
    assert found[-2] > 0.25 and found[-1] < 0.1 and found[0] > 0.25 and found[1] < 0.1


def test_own_failures_count_the_more_the_more_there_are() -> None:
    others = [(4.0, 1.0, 0.5 + n / 100) for n in range(10)]
    found = [chances([*others, (4.0, failed, 0.55)])[-1] for failed in (0.0, 1.0, 3.0, 9.0)]
    assert found == sorted(found) and found[0] < 0.25 < found[2] and 0.45 < found[3] < 1
    many = chances([*others, (400.0, 900.0, 0.55)])[-1]
    assert many == pytest.approx(900 / 1300, abs=0.05)  # at last it is the share itself


def test_certainty_grows_with_trials_and_one_trial_moves_less_the_more_there_were() -> None:
    rows = np.array([(2.0, 1.0, 0.5), (20.0, 10.0, 0.5), (200.0, 100.0, 0.5)]).T
    found = failure_chances(rows[0], rows[1], np.zeros(3), rows[2], np.full(3, -1))
    assert found.sd.tolist() == sorted(found.sd, reverse=True) and found.sd[-1] > 0
    assert found.step.tolist() == sorted(found.step, reverse=True) and (found.step < found.sd).all()


def test_failures_before_the_first_score_are_the_candidates_own_and_tell_nothing_of_others() -> (
    None
):
    """Only what failed was looked at again: that it had failed is no sample of its neighbours."""
    rows = [*[(3.0, 1.0, 0.5)] * 10, (1.0, 0.0, 0.5)]
    late, early = chances(rows), chances(rows, early=1.0)
    assert early[-1] < 0.5 * late[-1] and early[0] > early[-1]


# Whose failure it is.


class World:
    """Evaluations one after the other; failures of a kind read alike and name no culprit."""

    def __init__(self, task: Task = TASK) -> None:
        self.evidence = Evidence(task)
        self.judge = self.evidence.account.judge

    def see(
        self,
        candidate: Candidate,
        ok: bool,
        words: str = "ConnectionError: no simulator",
        purpose: str = "",
        reward: float = 1.0,
    ) -> None:
        status = Status.OK if ok else Status.ERROR
        feedback = "" if ok else f"Traceback (most recent call last):\n  ...\n{words}"
        seen = Observation(candidate.id, status, reward if ok else None, feedback=feedback)
        assert ok or seen.failure_kind
        self.evidence.observe(candidate, seen, purpose)

    def failures(self, candidate: Candidate) -> int:
        tally = self.evidence.account.tally(candidate.id)
        assert tally is not None
        return tally.failures


def child(n: int) -> Candidate:
    return Candidate.of({"x": f"child {n}"}, (INITIAL.id,))


@pytest.mark.parametrize("seed", range(5))
def test_failures_that_strike_everybody_alike_the_initial_program_too_are_the_evaluators(
    seed: int,
) -> None:
    world, rng = World(), Random(seed)
    for n in range(300):
        world.see(INITIAL if n % 8 == 0 else child(n // 2), rng.random() > 0.3)
    (kind,) = world.judge.kinds.values()
    assert kind.is_scorers and kind.total > 60 and world.judge.excused_failures == kind.total
    assert all(tally.failures == 0 for tally in world.evidence.account.tallies())
    assert not world.judge.is_doubtful and not world.evidence.account.counted_failures().any()
    result = world.evidence.result()
    assert result is not None and result.failed == {"scorer": kind.total}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("looks", [12, 40])
def test_failures_of_flaky_candidates_are_their_own_while_the_initial_program_never_fails(
    seed: int, looks: int
) -> None:
    """One candidate in two fails half of the time."""
    world, rng = World(), Random(seed)
    for n in range(300):
        if n % (300 // looks) == 0:
            world.see(INITIAL, True)
        world.see(child(n // 3), (n // 3) % 2 == 0 or rng.random() > 0.5)
    (kind,) = world.judge.kinds.values()
    assert not kind.is_scorers and world.judge.excused_failures == 0
    assert world.evidence.account.is_flaky
    assert sum(tally.failures for tally in world.evidence.account.tallies()) == kind.total > 40
    result = world.evidence.result()
    assert result is not None and result.failed == {"candidate": kind.total}


def test_even_where_every_candidate_but_the_initial_program_fails_at_one_rate_the_failures_are_theirs() -> (
    None
):
    """A model that writes flaky programs alone.

    Failures that never strike the initial program are not the evaluator's.
    """
    world, rng = World(), Random(1)
    world.see(INITIAL, True)
    for n in range(200):
        world.see(child(n // 2), rng.random() > 0.3)
    (kind,) = world.judge.kinds.values()
    assert not kind.is_scorers and world.judge.excused_failures == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_that_is_broken_keeps_its_failures_and_says_nothing_of_the_evaluators(
    seed: int,
) -> None:
    """It fails before it asks for the things that the evaluator loses."""
    world, rng = World(), Random(seed)
    for n in range(300):
        world.see(INITIAL if n % 8 == 0 else child(n // 2), rng.random() > 0.3)
        if n % 10 == 0:
            world.see(child(1000), False, words="ValueError: not a number")
    assert world.failures(child(1000)) == 30 and world.failures(child(1)) == 0


def outage(canary: bool, alike: bool = True, before: int = 40) -> World:
    """Forty scores, then twenty failures in a row, the sixth of the initial program if `canary`."""
    world = World()
    for n in range(before):
        world.see(INITIAL if n % 5 == 0 else child(n), True)
    for n in range(20):
        words = (
            "ConnectionError: no simulator" if alike else f"{'ABCDEFGHIJKLMNOPQRST'[n]}Error: no"
        )
        world.see(INITIAL if canary and n == 5 else child(100 + n), False, words)
    return world


def test_a_streak_of_failures_alike_that_strikes_the_initial_program_is_an_outage_and_excused() -> (
    None
):
    world = outage(canary=True)
    assert world.judge.is_outage and world.judge.excused_failures == 20
    assert all(tally.failures == 0 for tally in world.evidence.account.tallies())
    assert all(world.judge.is_external(kind) for kind in world.judge.kinds)
    world.see(INITIAL, True)
    assert (
        not world.judge.is_outage and world.judge.excused_failures == 20
    )  # what it excused stays excused
    world.see(child(500), False)
    assert world.failures(child(500)) == 1  # what comes after is judged anew
    assert not any(world.judge.is_external(kind) for kind in world.judge.kinds)


def test_a_streak_of_broken_children_is_theirs_while_the_initial_program_is_well() -> None:
    world = outage(canary=False)
    assert world.judge.suspects_outage and not world.judge.is_outage
    world.see(INITIAL, True)
    assert not world.judge.suspects_outage and not world.judge.is_outage
    assert world.judge.excused_failures == 0 and world.failures(child(119)) == 1


def test_failures_that_read_differently_are_no_outage() -> None:
    world = outage(canary=True, alike=False)
    assert not world.judge.suspects_outage and world.judge.excused_failures == 0


def test_a_streak_is_suspicious_by_what_failed_before() -> None:
    """Five in a row are nothing new if half of all fail; of one candidate they are its own."""
    world = World()
    for n in range(40):
        world.see(child(n), n % 2 == 0, words="ValueError: odd")
    for n in range(5):
        world.see(child(100 + n), False)
    assert not world.judge.suspects_outage
    world = outage(canary=False, before=40)
    one = World()
    for _ in range(40):
        one.see(INITIAL, True)
    for _ in range(20):
        one.see(child(1), False)
    assert world.judge.suspects_outage and not one.judge.suspects_outage


def test_failures_of_the_evaluators_kind_count_for_nobody_in_the_final_choice() -> None:
    world, rng = World(), Random(0)
    for n in range(300):
        world.see(INITIAL if n % 8 == 0 else child(n // 2), rng.random() > 0.3)
    for ok in (True, False, True):
        world.see(child(1), ok, purpose=FINAL)
    assert [fact.reward for fact in world.evidence.verdict.fresh_facts(child(1).id)] == [1.0, 1.0]
    world.see(child(1), False, words="ValueError: its own", purpose=FINAL)
    assert [fact.reward for fact in world.evidence.verdict.fresh_facts(child(1).id)] == [
        1.0,
        1.0,
        None,
    ]


def test_failures_of_the_evaluators_kind_widen_no_interval() -> None:
    """The floor is far below all others: where lost evaluations counted, the margin was ten."""
    world, rng, noise = World(), Random(0), Random(1)
    for n in range(300):
        reward = noise.gauss(1.0 if n > 8 else -20.0 * n, 0.1)
        world.see(INITIAL if n % 8 == 0 else child(n // 2), rng.random() > 0.3, reward=reward)
    for _ in range(6):
        world.see(child(20), True, purpose=FINAL, reward=noise.gauss(1.0, 0.1))
    world.see(child(20), False, purpose=FINAL)
    told = world.evidence.verdict.fresh_mean(child(20).id)
    assert told is not None and told.count == 6 and told.failures == 0
    assert told.margin is not None and told.margin < 0.2


def test_evaluations_that_name_their_culprit_are_not_judged() -> None:
    world = World()
    for n in range(20):
        seen = Observation(
            child(n).id, Status.ERROR, feedback="ConnectionError: no", culprit="candidate"
        )
        world.evidence.observe(child(n), seen)
    assert (
        not world.judge.kinds
        and world.judge.excused_failures == 0
        and world.failures(child(3)) == 1
    )


def test_an_outage_of_the_final_choice_counts_for_nobody_and_what_comes_after_does() -> None:
    """It begins with the last children of the search.

    The initial program fails in the confirmation alone.
    """
    world = outage(canary=False)
    fresh, looks = world.evidence.account.fresh, world.evidence.account.looks
    world.see(child(1), False, purpose=CHOICE)
    for candidate in (child(1), INITIAL, INITIAL):
        world.see(candidate, False, purpose=FINAL)
    assert world.judge.is_outage and world.judge.excused_failures == 20
    assert len(fresh[INITIAL.id]) == 2 and len(looks[child(1).id]) == 1  # kept, but not counted
    assert not world.evidence.account.without_external_failures(
        [*fresh[INITIAL.id], *looks[child(1).id]]
    )
    result = world.evidence.result()
    assert (
        result is not None and not result.confirmed and result.failures == 0 and result.score == 1.0
    )
    assert result.failed == {"scorer": 24}
    world.see(INITIAL, True, purpose=FINAL)
    world.see(INITIAL, False, purpose=FINAL)
    assert [fact.reward for fact in world.evidence.verdict.fresh_facts(INITIAL.id)] == [1.0, None]


def test_failures_in_the_final_choice_alone_are_the_candidates_unless_many_fail_alike() -> None:
    world = outage(canary=True, before=40)
    world.see(INITIAL, True)
    for _ in range(8):
        world.see(child(1), False, purpose=FINAL)
    world.see(INITIAL, False, purpose=FINAL)
    assert not world.judge.is_outage and len(world.evidence.verdict.fresh_facts(child(1).id)) == 8


def test_an_outage_of_the_final_choice_is_told_by_the_sums_of_a_long_search_too() -> None:
    world, long = outage(canary=False), World()
    rows = [
        (each.id, each.count, each.failures, each.mean, each.squares)
        for each in world.evidence.account.tallies()
    ]
    ids, *sums = zip(*[row for row in rows if row[1]])
    nothing, unknown = np.zeros(len(ids), bool), np.full(len(ids), np.nan)
    judged = unknown, nothing, nothing, np.full(len(ids), -1, np.int8), nothing
    keys = np.array([key_of(name) for name in ids], np.uint64)
    long.evidence.account.load_tallies(LoadedTallies(keys, *map(np.array, sums), *judged))
    for candidate in (*map(child, (1, 2, 3, 4)), INITIAL):
        assert candidate.id in [row[0] for row in rows]
        long.see(candidate, False, purpose=FINAL)
    assert long.judge.is_outage and long.evidence.verdict.fresh_facts(INITIAL.id) == []
