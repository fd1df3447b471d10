"""Account of a run: noise and spread by hand, exactness, and the value model.

Also beliefs about long searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import CULPRITS, Case, Observation, Status
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task
from culmen.evidence import account
from culmen.evidence.account import CHOICE, FINAL, SEARCH, Account, PooledNoise
from culmen.evidence.evidence import Evidence
from culmen.evidence.ranking import BELIEVED
from culmen.evidence.verdict import SHOWN

TASK = Task("hill", seeds=({"x": "0.0"},))
EXACT = msgspec.structs.replace(TASK, deterministic=True)
BOUNDED = msgspec.structs.replace(TASK, objective=Objective(bounds=(-4.0, 100.0)))
CASES = msgspec.structs.replace(TASK, cases=(Case("a"), Case("b")))


def named(text: str, *parents: Candidate) -> Candidate:
    return Candidate.of({"x": text}, tuple(parent.id for parent in parents))


A, B, C = map(named, "abc")


Seen = tuple[Candidate, Sequence[float | None]]


def see(run: Evidence, candidate: Candidate, *scores: float | None, **more: Any) -> None:
    """These scores; None: a failure."""
    purpose, told = more.pop("purpose", ""), more.pop("status", None)
    for score in scores:
        status = told or (Status.ERROR if score is None else Status.OK)
        run.observe(candidate, Observation(candidate.id, status, score, **more), purpose)


def run_of(task: Task, *seen: Seen) -> Evidence:
    run = Evidence(task)
    for candidate, scores in seen:
        see(run, candidate, *scores)
    return run


def account_of(task: Task, *seen: Seen) -> Account:
    return run_of(task, *seen).account


def noise_of(task: Task, *seen: Seen) -> PooledNoise:
    return account_of(task, *seen).pooled_noise()


# Noise.


@pytest.mark.parametrize(("task", "within"), [(TASK, None), (EXACT, 0.0)])
def test_nothing_is_known_of_noise_before_the_first_score(task: Task, within: float | None) -> None:
    for noise in (Account(task).pooled_noise(), noise_of(task, (A, [None]))):
        assert noise == PooledNoise(within)


def test_noise_is_pooled_within_candidates_and_taken_from_the_spread_between_them() -> None:
    """Means 2, 6 and 9 with a variance of 37/3.

    Four degrees of freedom hold squares of 2 + 8 + 0.
    """
    found = account_of(
        TASK, (A, [1.0, 3.0, 2.0]), (B, [4.0, 8.0]), (C, [9.0, 9.0]), (named("d"), [None, None])
    )
    noise = found.pooled_noise()
    assert (noise.within, noise.centre) == pytest.approx((2.5, 17 / 3))
    assert noise.between == pytest.approx(37 / 3 - 2.5 * (1 / 3 + 1 / 2 + 1 / 2) / 3)
    assert (noise.repeats, noise.squares) == (
        4,
        10.0,
    )  # without cases, all repeats are of one evaluation
    assert (found.degrees, found.squares) == (4, 10.0)
    assert (noise.failed, noise.failing) == (
        0.0,
        0.0,
    )  # a candidate that never scored says nothing of failures


def test_a_spread_that_noise_explains_still_leaves_a_twentieth_of_itself() -> None:
    noise = noise_of(TASK, (A, [0.0, 10.0]), (B, [1.0, 11.0]))
    assert (noise.within, noise.between) == pytest.approx((50.0, 0.5 * 0.05))
    assert noise_of(TASK, (A, [1.0]), (B, [5.0])).between == 8.0  # nothing is known of noise


@pytest.mark.parametrize(("task", "floor"), [(TASK, None), (BOUNDED, -4.0)])
def test_failures_beside_scores_add_the_variance_of_falling_to_the_floor(
    task: Task, floor: float | None
) -> None:
    """One failure, two degrees of freedom and two for doubt: a fifth."""
    found = account_of(task, (A, [1.0, 3.0, None]), (B, [6.0, 6.0]))
    noise, low = found.pooled_noise(), found.floor if floor is None else floor
    assert noise.failed == pytest.approx(1 / 5) and found.floor == low
    assert noise.failing == pytest.approx(0.2 * 0.8 * (4.0 - low) ** 2)


def test_agreement_is_the_chance_that_two_scores_of_the_run_are_equal() -> None:
    assert Account(TASK).repeated.agreement == 1.0
    found = account_of(TASK, (A, [1.0, 7.0, 7.0]), (B, [1.0]), (C, [2.0]), (named("d"), [3.0]))
    assert (
        found.repeated.agreement == found.pooled_noise().agreement == (2**2 + 1 + 1) / 4**2
    )  # first looks alone


def test_a_score_spans_its_bounds_or_else_the_few_values_that_were_seen() -> None:
    five = [(named(str(n)), [float(n)]) for n in range(5)]
    assert (
        account_of(TASK, *five[1:]).score_span == 3.0 and account_of(TASK, *five).score_span == 0.0
    )
    assert Account(TASK).score_span == 0.0 and account_of(BOUNDED, *five).score_span == 104.0
    half = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, None)))
    assert account_of(half, *five[:2]).score_span == 1.0


def test_an_undeclared_floor_of_a_long_search_is_a_low_mean_and_never_above_the_initial_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Account.value_model, "__defaults__", (0,))
    many: list[Seen] = [(named(f"c{n}"), [float(n)]) for n in range(40)]
    outlier: Seen = named("outlier"), [-1e9]
    assert Account(TASK).floor == 0.0 and account_of(TASK, *many, outlier).floor == 1.0
    initial = TASK.initial_candidates()[0]
    assert account_of(TASK, (initial, [-3.0]), *many).floor == -3.0


def test_repeats_on_cases_are_watched_of_as_many_pairs_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(account, "_PAIRS", 1)
    run = Evidence(CASES)
    for case, score in (("a", 1.0), ("b", 5.0), ("b", 9.0), ("a", 3.0), ("", 4.0), ("", 6.0)):
        see(run, A, score, case=case)
    noise = run.account.pooled_noise()
    assert (noise.repeats, noise.squares) == (1, pytest.approx(2.0))


TEN: list[Seen] = [(named(str(n)), [float(n)]) for n in range(10)]


@pytest.mark.parametrize(
    ("seen", "exact"),
    [
        ([*TEN, (TEN[0][0], [0.0, 0.0]), (TEN[1][0], [1.0])], True),
        ([*TEN, (TEN[0][0], [0.0]), (TEN[1][0], [1.0])], None),  # two repeats
        (
            [*TEN, (TEN[0][0], [0.0] * 9)],
            None,
        ),  # the initial program may be exact where others are not
        (
            [*TEN[:2], (TEN[0][0], [0.0] * 9), (TEN[1][0], [1.0] * 9)],
            None,
        ),  # pass or fail
        (
            [*TEN[:4], (TEN[0][0], [0.0] * 9), (TEN[1][0], [1.0] * 9)],
            True,
        ),
        (
            [*TEN, (A, [0.0]), (B, [1.0]), (A, [0.0] * 9), (B, [1.0] * 9)],
            None,
        ),  # values that others have, too
        ([*TEN, (TEN[0][0], [0.0, 0.0]), (TEN[1][0], [1.0, 1.5])], False),
        ([*TEN, (TEN[0][0], [0.0, 0.0]), (TEN[1][0], [1.0, None])], False),
        (
            [(A, [None]), *TEN, (TEN[0][0], [0.0, 0.0]), (TEN[1][0], [1.0])],
            True,
        ),  # broken, not at times
    ],
)
def test_exactness_takes_equal_repeats_that_could_have_differed(
    seen: list[Seen], exact: bool | None
) -> None:
    assert account_of(TASK, *seen).is_exact is exact
    for said in (True, False):
        assert account_of(msgspec.structs.replace(TASK, deterministic=said), *seen).is_exact is said


def _repeated(*scores: float, times: int, others: Sequence[float] = ()) -> Account:
    """Candidates with these scores, each evaluated that often, and others evaluated once."""
    seen: list[Seen] = [(named(f"r{n}"), [each] * times) for n, each in enumerate(scores)]
    return account_of(TASK, *seen, *((named(f"o{n}"), [each]) for n, each in enumerate(others)))


@pytest.mark.parametrize(
    ("scores", "times", "others", "exact"),
    [
        ((2.541421356, 2.612345678), 2, (), True),  # many digits: luck would not repeat them
        ((1.0, 3.0), 4, (), True),
        ((1.0, 3.0), 2, (), None),  # few digits: two repeats may agree by luck
        ((1.0, 3.0, 5.0, 9.0), 2, (), True),
        ((2.541421356, 2.541421356), 9, (), None),  # one program in two texts
        ((2.541421356, 2.612345678), 2, [2.541421356] * 9, True),  # edits that change nothing
        ((0.0, 1.0), 9, (), None),
        ((0.0, 100.0), 9, (), None),
        ((-1.0, 1.0), 9, (), None),
        ((0.9, 1.0), 9, [1.0] * 5, None),  # shares of passed tests, which several have
        ((0.5, 0.75), 4, (), True),
    ],
)
def test_two_programs_with_equal_repeats_are_exact_unless_scores_have_few_values(
    scores: Sequence[float], times: int, others: Sequence[float], exact: bool | None
) -> None:
    assert _repeated(*scores, times=times, others=others).is_exact is exact


def test_equal_scores_on_different_cases_are_no_repeats() -> None:
    run = Evidence(CASES)
    for text in "abcdefgh":
        for case in "ab":
            see(run, named(text), float(ord(text)), case=case)
    assert run.account.repeated.repeats == 0 and run.account.is_exact is None


def test_the_slowest_evaluation_with_a_score_and_the_highest_single_reward_are_kept() -> None:
    run = Evidence(msgspec.structs.replace(TASK, objective=Objective("min")))
    found = run.account
    assert (found.slowest, found.top, found.evaluations) == (0.0, None, 0)
    for score, seconds in ((2.0, 0.25), (None, 9.0), (-1.0, 0.5), (3.0, 0.125)):
        see(run, A, score, seconds=seconds)
    assert (found.slowest, found.top, found.evaluations) == (0.5, 1.0, 4)


# Failures.


@pytest.mark.parametrize("culprit", CULPRITS)
def test_only_failures_of_the_candidates_own_doing_count_against_it(culprit: str) -> None:
    run = run_of(TASK, (A, [1.0]))
    for purpose in ("", CHOICE, FINAL):
        see(run, A, None, culprit=culprit, purpose=purpose)
    own, tally = culprit == "candidate", run.account.tally(A.id)
    assert tally is not None and (tally.count, tally.failures) == (1, int(own))
    assert run.account.evaluations == 1 + own and run.account.is_flaky == own
    assert [len(kept.get(A.id, ())) for kept in (run.account.looks, run.account.fresh)] == [
        int(own)
    ] * 2
    assert run.account.failed == {culprit: 3} and run.account.made == 4


def test_a_lost_evaluation_counts_for_nothing() -> None:
    run = run_of(TASK, (A, [1.0]))
    see(run, A, None, status=Status.LOST)
    tally = run.account.tally(A.id)
    assert tally is not None and tally.failures == 0 and run.account.evaluations == 1


def test_evaluations_of_the_final_choice_are_kept_apart_from_the_search() -> None:
    run = run_of(TASK, (A, [1.0]))
    see(run, A, 5.0, purpose=CHOICE)
    see(run, A, 7.0, None, purpose=FINAL)
    tally = run.account.tally(A.id)
    assert tally is not None and (tally.count, tally.mean, tally.failures) == (1, 1.0, 0)
    assert [fact.reward for fact in run.account.looks[A.id]] == [5.0]
    assert [fact.reward for fact in run.account.fresh[A.id]] == [7.0, None]
    assert (run.account.evaluations, run.account.made) == (1, 4)


# The value model.


def test_the_model_knows_first_parents_that_were_evaluated_and_every_evaluation_so_far() -> None:
    run, unknown = Evidence(TASK), named("unknown")
    child, other, grandchild = (
        named("child", unknown, A, B),
        named("other", B, A),
        named("grandchild", unknown),
    )
    for candidate, scores in (
        (A, [1.0, 1.5]),
        (B, [2.0]),
        (child, [3.0]),
        (other, [None]),
        (grandchild, [4.0]),
    ):
        see(run, candidate, *scores)
    model = run.account.value_model()
    assert model is not None and model is run.account.value_model()
    assert model.parents.tolist() == [-1, -1, 0, 1, -1] and model.evaluations == 6
    assert model.ids[2] == child.id and (
        model.value_of(A.id).count,
        model.value_of(other.id).failures,
    ) == (2, 1)
    see(run, B, 2.5)
    later = run.account.value_model()
    assert later is not None and later.evaluations == 7 and later.value_of(B.id).count == 2


def test_belief_is_what_the_model_says() -> None:
    run = run_of(TASK, (A, [1.0, 1.5]), (B, [2.0, 2.25]), (C, [4.0]))
    model, belief = run.account.value_model(), run.ranking.belief_of(C.id)
    assert model is not None and belief is not None
    value = model.value_of(C.id)
    assert (
        belief == pytest.approx((value.mean, value.sd))
        and 0 < belief.sd != 1
        and belief.mean != 4.0
    )
    assert run.ranking.belief_of(named("d").id) is None


def test_a_search_too_long_for_the_model_shrinks_means_of_few_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(account, "MODELLED", 6)
    monkeypatch.setattr(Account.value_model, "__defaults__", (6,))
    run = run_of(TASK, (A, [1.0, 3.0]), (B, [4.0, 8.0]), (C, [9.0, 9.0]))
    assert run.account.value_model() is not None
    see(run, C, 9.0)
    assert run.account.value_model() is None
    noise = run.account.pooled_noise()
    assert noise.within is not None and noise.within == pytest.approx(10 / 4) and noise.between > 0
    for candidate, count, mean in ((A, 2, 2.0), (B, 2, 6.0), (C, 3, 9.0)):
        share = noise.between / (noise.between + noise.within / count)
        deviation = (1 / (1 / noise.between + count / noise.within)) ** 0.5
        expected = noise.centre + share * (mean - noise.centre), deviation
        assert run.ranking.belief_of(candidate.id) == pytest.approx(expected)


def test_without_a_model_what_is_not_known_to_vary_is_taken_as_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Account.value_model, "__defaults__", (0,))
    assert run_of(TASK, (A, [1.0]), (B, [4.0])).ranking.belief_of(A.id) == (
        1.0,
        0.0,
    )  # never looked at twice
    assert run_of(TASK, (A, [1.0, 1.0]), (B, [4.0])).ranking.belief_of(A.id) == (1.0, 0.0)
    assert run_of(TASK, (A, [1.0, 3.0])).ranking.belief_of(A.id) == (
        2.0,
        0.0,
    )  # all candidates alike


# Rejections for integrity.

REJECTED: dict[str, Any] = {"status": Status.REJECTED, "reason": "integrity_frames"}


@pytest.mark.parametrize("purpose", ["", CHOICE, FINAL])
def test_a_rejection_for_integrity_is_no_chance_to_fail(purpose: str) -> None:
    """Its candidate is out; the others' scores are as exact as they were."""
    one, other = (run_of(EXACT, (named("0.0"), [1.0]), (A, [2.0]), (B, [3.0])) for _ in range(2))
    see(one, B, None, purpose=purpose, **REJECTED)
    other.bar_candidate(B.id)
    see(one, A, 2.0, purpose=FINAL)
    see(one, named("0.0"), 1.0, purpose=FINAL)
    result = one.result()
    assert result is not None and (result.id, result.score, result.margin, result.gain) == (
        A.id,
        2.0,
        0.0,
        1.0,
    )
    assert not one.account.is_flaky and one.account.pooled_noise().failed == 0.0
    assert (
        one.ranking.beliefs.fails.tolist()
        == [0.0, 0.0, 0.0]
        == other.ranking.beliefs.fails.tolist()
    )
    assert one.account.pooled_noise() == other.account.pooled_noise()


def test_values_that_only_the_final_choice_saw_span_the_score_too() -> None:
    """A search that saw one value: of the initial program, only the final choice has scores."""
    run = run_of(TASK, (A, [1.0]))
    assert run.account.score_span == 0.0
    see(run, A, *[1.0] * 28, purpose=FINAL)
    see(run, named("0.0"), *[0.0] * 28, purpose=FINAL)
    assert run.account.score_span == 1.0
    result = run.result()
    assert result is not None and (result.id, result.score, result.gain, result.kept_initial) == (
        A.id,
        1.0,
        1.0,
        False,
    )
    assert result.gain_margin is None and result.noise.exact is None
    assert result.noise.repeats == 54 and 0.05 < (result.noise.differing_rate or 0.0) < 0.06


def test_an_id_that_is_no_digest_has_a_key_as_well():
    from culmen.core.candidate import key_of

    assert key_of("0123456789abcdef" + "f" * 48) == 0x0123456789ABCDEF
    keys = [key_of(name) for name in ("\udfff", "", "-5", "candidate")]
    assert len(set(keys)) == 4 and all(0 <= key < 2**64 for key in keys)


def _searched(*chosen: tuple[Candidate, list[float]], others: int = 30) -> RunResult:
    """The result of a search over many values, whose finalists then gave these fresh scores."""
    run = run_of(TASK, (A, [1.0]), (B, [7.5]), *((named(str(n)), [0.1 * n]) for n in range(others)))
    see(run, named("twin"), 7.5)
    for candidate, scores in chosen:
        see(run, candidate, *scores, purpose=FINAL)
    result = run.result()
    assert result is not None and result.noise is not None
    return result


def test_finalists_whose_scores_never_differ_are_exact_although_others_share_one() -> None:
    result = _searched((A, [1.0, 1.0]), (B, [7.5, 7.5]))
    assert result.noise.exact is True and (result.id, result.score, result.margin) == (
        B.id,
        7.5,
        0.0,
    )


@pytest.mark.parametrize(
    ("chosen", "others", "exact"),
    [
        (((A, [1.0, 1.0]), (B, [7.5, 7.4])), 30, False),
        (((A, [1.0]), (B, [7.5, 7.5])), 30, None),
        (((B, [7.5, 7.5, 7.5, 7.5]),), 30, None),
    ],
    ids=["one differs", "one repeat of the other", "one candidate"],
)
def test_less_than_that_proves_no_exactness(chosen, others: int, exact: bool | None) -> None:
    assert _searched(*chosen, others=others).noise.exact is exact


@pytest.mark.parametrize(("passed", "is_kept"), [(6, True), (12, False)])
def test_a_gain_on_cases_must_be_shown_by_the_final_choice_too(passed: int, is_kept: bool) -> None:
    """0.2 ± 0.31 is not shown, whatever the training cases say; 0.3 ± 0.30 is."""
    cases = tuple(
        Case(f"{part}{n}", n, split=part) for part in ("train", "test") for n in range(20)
    )
    task = Task("pass", seeds=({"x": "a"},), cases=cases, objective=Objective(bounds=(0.0, 1.0)))
    run = Evidence(task)

    def enter(candidate: Candidate, score: int, case: str, purpose: str, seed: int) -> None:
        seen = Observation(candidate.id, Status.OK, float(score), case, seed=seed)
        run.observe(candidate, seen, purpose)

    for n in range(20):
        for seed in range(2):
            enter(A, (n + seed) % 2, f"train{n}", SEARCH, seed)
            enter(B, (n + seed) % 2 or n < 15, f"train{n}", SEARCH, seed)
        enter(A, n % 2, f"test{n}", FINAL, 9)
        enter(B, n // 2 % 2 or n < passed, f"test{n}", FINAL, 9)
    found = run.verdict.estimate_gain(B.id, A.id)
    assert found.probability > BELIEVED and (found.alone < SHOWN) == is_kept
    result = run.result()
    assert result is not None and result.kept_initial == is_kept
