"""What candidates are ranked by: noise and spread by hand, the value model, and the shrunken mean of long searches."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, mark
from culmen.core.task import Objective, Task, goals
from culmen.engine import record
from culmen.engine.record import Memo, MemoryStore, RewardNoise, Scoreboard

from .worlds import EXACT, TASK

BOUNDED = msgspec.structs.replace(TASK, objective=Objective(bounds=(-4.0, 100.0)))
CASES = msgspec.structs.replace(TASK, cases=(Case("a"), Case("b")))


def named(text: str, *parents: Candidate) -> Candidate:
    return Candidate.of({"x": text}, tuple(parent.id for parent in parents))


A, B, C = map(named, "abc")


def see(board: Scoreboard, candidate: Candidate, *scores: float | None, **more: Any) -> None:
    """These scores; None: a failure."""
    for score in scores:
        status = Status.ERROR if score is None else Status.OK
        board.see(candidate, Observation(candidate.id, status, score, **more))


def board_of(task: Task, *seen: tuple[Candidate, list[float | None]]) -> Scoreboard:
    board = Scoreboard(task)
    for candidate, scores in seen:
        see(board, candidate, *scores)
    return board


def ranked(board: Scoreboard) -> list[str]:
    return [tally.id for tally in board.ranking(9)]


# Noise.


@pytest.mark.parametrize(("task", "within"), [(TASK, None), (EXACT, 0.0)])
def test_nothing_is_known_of_noise_before_the_first_score(task: Task, within: float | None) -> None:
    for board in (Scoreboard(task), board_of(task, (A, [None]))):
        assert astuple(board.noise()) == (within, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)


def test_noise_is_pooled_within_candidates_and_taken_from_the_spread_between_them() -> None:
    """Means 2, 6 and 9 with a variance of 37/3; four degrees of freedom hold squares of 2 + 8 + 0."""
    board = board_of(TASK, (A, [1.0, 3.0, 2.0]), (B, [4.0, 8.0]), (C, [9.0, 9.0]), (named("d"), [None, None]))
    noise = board.noise()
    assert (noise.within, noise.centre, noise.least) == pytest.approx((2.5, 17 / 3, 1.0))
    assert noise.between == pytest.approx(37 / 3 - 2.5 * (1 / 3 + 1 / 2 + 1 / 2) / 3)
    assert (noise.repeats, noise.squares) == (4, 10.0)  # without cases, all repeats are of one evaluation
    assert (board.degrees, board.squares) == (4, 10.0)
    assert (noise.failed, noise.failing) == (0.0, 0.0)  # a candidate that never scored says nothing of failures


def test_a_spread_that_noise_explains_still_leaves_a_twentieth_of_itself() -> None:
    noise = board_of(TASK, (A, [0.0, 10.0]), (B, [1.0, 11.0])).noise()
    assert (noise.within, noise.between) == pytest.approx((50.0, 0.5 * 0.05))
    assert board_of(TASK, (A, [1.0]), (B, [5.0])).noise().between == 8.0  # nothing is known of noise


@pytest.mark.parametrize(("task", "floor"), [(TASK, 1.0), (BOUNDED, -4.0)])
def test_failures_beside_scores_add_the_variance_of_falling_to_the_floor(task: Task, floor: float) -> None:
    """One failure, two degrees of freedom and two for doubt: a fifth. The floor is the declared one, else the least."""
    noise = board_of(task, (A, [1.0, 3.0, None]), (B, [6.0, 6.0])).noise()
    assert noise.failed == pytest.approx(1 / 5)
    assert noise.failing == pytest.approx(0.2 * 0.8 * (4.0 - floor) ** 2)


def test_repeats_on_cases_are_watched_of_as_many_pairs_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_PAIRS", 1)
    board = Scoreboard(CASES)
    for case, score in (("a", 1.0), ("b", 5.0), ("b", 9.0), ("a", 3.0), ("", 4.0), ("", 6.0)):
        see(board, A, score, case=case)
    assert (board.noise().repeats, board.noise().squares) == (1, pytest.approx(2.0))


def test_scores_are_taken_for_exact_after_three_equal_repeats_unless_anything_speaks_against_it() -> None:
    assert not board_of(TASK, (A, [1.0, 1.0]), (B, [2.0, 2.0])).exact
    assert board_of(TASK, (A, [1.0, 1.0]), (B, [2.0, 2.0, 2.0])).exact
    assert not board_of(TASK, (A, [1.0, 1.0]), (B, [2.0, 2.0, 2.5])).exact
    assert not board_of(TASK, (A, [1.0, 1.0, 1.0, 1.0, None])).exact
    assert not board_of(CASES, (A, [1.0, 1.0, 1.0, 1.0])).exact


def test_the_slowest_evaluation_with_a_score_and_the_highest_single_reward_are_kept() -> None:
    board = Scoreboard(msgspec.structs.replace(TASK, objective=Objective("min")))
    assert (board.slowest, board.top, board.evaluations) == (0.0, None, 0)
    for score, seconds in ((2.0, 0.25), (None, 9.0), (-1.0, 0.5), (3.0, 0.125)):
        see(board, A, score, seconds=seconds)
    assert (board.slowest, board.top, board.evaluations) == (0.5, 1.0, 4)


# The value model.


def test_the_model_knows_first_parents_that_were_evaluated_and_every_evaluation_so_far() -> None:
    board, unknown = Scoreboard(TASK), named("unknown")
    child, other, grandchild = named("child", unknown, A, B), named("other", B, A), named("grandchild", unknown)
    for candidate, scores in ((A, [1.0, 1.5]), (B, [2.0]), (child, [3.0]), (other, [None]), (grandchild, [4.0])):
        see(board, candidate, *scores)
    model = board.model()
    assert model is not None and model is board.model()
    assert model.parents.tolist() == [-1, -1, 0, 1, -1] and model.evaluations == 6
    assert model.ids[2] == child.id and (model.value(A.id).count, model.value(other.id).failures) == (2, 1)
    see(board, B, 2.5)
    later = board.model()
    assert later is not None and later.evaluations == 7 and later.value(B.id).count == 2


def test_belief_is_what_the_model_says() -> None:
    board = board_of(TASK, (A, [1.0, 1.5]), (B, [2.0, 2.25]), (C, [4.0]))
    model, tally = board.model(), board.tally(C.id)
    assert model is not None and tally is not None
    value = model.value(C.id)
    assert board.belief(tally, board.noise()) == pytest.approx((value.mean, value.sd**2))
    assert 0 < value.sd != 1 and value.mean != 4.0


def test_there_is_no_model_where_one_evaluation_tells_all() -> None:
    assert board_of(EXACT, (A, [1.0]), (B, [2.0])).model() is None
    board = Scoreboard(msgspec.structs.replace(CASES, deterministic=True))
    for case in ("a", "b"):
        see(board, A, 1.0, case=case)
    assert board.model() is not None


def test_a_search_too_long_for_the_model_shrinks_means_of_few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MODELLED", 6)
    board = board_of(TASK, (A, [1.0, 3.0]), (B, [4.0, 8.0]), (C, [9.0, 9.0]))
    assert board.model() is not None
    see(board, C, 9.0)
    noise = RewardNoise(2.0, 5.0, 4.0)
    assert board.model() is None
    beliefs = [board.belief(tally, noise) for tally in board.tallies()]
    assert [mean for mean, _ in beliefs] == pytest.approx([5 - 3 * 0.8, 5 + 1 * 0.8, 5 + 4 * 6 / 7])
    assert [variance for _, variance in beliefs] == pytest.approx([0.8, 0.8, 4 / 7])


def test_without_a_model_what_is_not_known_to_vary_is_taken_as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MODELLED", 0)
    board = board_of(TASK, (A, [1.0, 3.0]))
    (tally,) = board.tallies()
    assert board.belief(tally, RewardNoise(None, 5.0, 4.0)) == (2.0, 4.0)  # never looked at twice
    assert board.belief(tally, RewardNoise(0.0, 5.0, 4.0)) == (2.0, 0.0)  # exact
    assert board.belief(tally, RewardNoise(2.0, 5.0, 0.0)) == (2.0, 0.0)  # all candidates alike
    assert board.belief(tally, RewardNoise(0.5, 5.0, 0.5)) == pytest.approx((5 - 3 * 0.5 / 0.75, 1 / 6))


# The ranking.


def test_failures_count_at_the_floor_in_the_order_of_exact_scores() -> None:
    """The first is worth half of the way from the floor to its mean, the last fell below all that ever scored."""
    exact = msgspec.structs.replace(BOUNDED, deterministic=True)
    board = board_of(exact, (A, [8.0, None]), (B, [3.0]), (C, [1.0]))
    assert ranked(board) == [B.id, A.id, C.id]
    tally = board.tally(A.id)
    assert tally is not None and board.belief(tally, board.noise())[0] == pytest.approx(8 + (-4 - 8) / 2)
    low = board_of(msgspec.structs.replace(EXACT, objective=Objective(bounds=(0.0, 1.0))), (A, [-2.0, None]))
    assert low.belief(next(low.tallies()), low.noise())[0] == -2.0  # a failure never raises it


def test_a_certified_value_stands_for_itself_and_one_that_was_refused_comes_last() -> None:
    board = board_of(TASK, (A, [1.0, 1.2]), (B, [5.0, 5.2]))
    see(board, B, 4.8, strict=False, certified=0.5)
    see(board, C, 6.0, strict=False)
    tally = board.tally(B.id)
    assert tally is not None and board.belief(tally, board.noise())[0] == 0.5
    assert ranked(board) == [A.id, B.id, C.id]


def test_ties_go_to_fewer_failures_and_then_to_the_older() -> None:
    exact = msgspec.structs.replace(EXACT, objective=Objective(bounds=(2.0, 3.0)))
    board = board_of(exact, (A, [2.0, None]), (B, [2.0]), (C, [2.0]))
    assert ranked(board) == [B.id, C.id, A.id]


def test_who_is_barred_is_never_the_best_nor_on_the_front() -> None:
    board = board_of(TASK, (A, [1.0]), (B, [2.0]))
    board.bar(B.id)
    board.bar(C.id)  # nobody knows it
    assert ranked(board) == [A.id] and [tally.barred for tally in board.tallies()] == [False, True]
    front = Scoreboard(msgspec.structs.replace(TASK, objective=Objective(metrics=goals({"speed": "max"}))))
    for candidate, speed in ((A, 1.0), (B, 2.0)):
        see(front, candidate, 0.0, metrics={"speed": speed})
    assert front.front is not None and [front.front.ids[row] for row in front.front.front()] == [B.id]
    front.bar(B.id)
    assert [front.front.ids[row] for row in front.front.front()] == [A.id]


# What was asked before.


@pytest.mark.parametrize(("task", "known"), [(EXACT, True), (TASK, False)])
def test_only_evaluations_of_a_deterministic_task_are_found_again(task: Task, known: bool) -> None:
    memo, request = Memo(task, MemoryStore(), {}), EvaluateRequest(A, None, 1)
    memo.issued(Effect(1, mark(request), request))
    seen = Observation(A.id, Status.OK, 1.0)
    memo.delivered(mark(request), A, seen)
    assert memo.future(EvaluateRequest(A, None, 2)) is None
    again = memo.future(request)
    assert (again is not None and again.result() == seen) == known
