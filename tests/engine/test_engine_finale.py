"""The final choice: cases drawn at random, failures at the floor, the initial program.

Nothing is mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean

import msgspec
import pytest
from bench.truth import worlds

from culmen.core.brief import Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.result import RunResult
from culmen.core.task import Evaluator, Objective, Task
from culmen.core.usage import Budget
from culmen.engine.ledger import final_share
from culmen.store.journal import MemoryJournal
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.virtual import simulate

from .worlds import EXACT, TASK, Looks, Script, Turns, named, split

Rule = Callable[[str, Case | None, Random], float | None]


@dataclass
class Table:
    """Scores by a rule (None: the evaluation fails); keeps what it was asked after the search."""

    rule: Rule
    seconds: float = 1.0

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        if not isinstance(request, EvaluateRequest):
            return 0.1, Text("nothing")
        score = self.rule(request.candidate.text, request.case, Random(request.seed))
        name, case = request.candidate.id, request.case.id if request.case else ""
        status = Status.ERROR if score is None else Status.OK
        return self.seconds, Observation(
            name, status, score, case=case, seed=request.seed, trust="verified"
        )


def around(level: float, *then: float | str | None, after: int = 8) -> list[float | str | None]:
    """Scores that differ a little, except those of `then`, which follow the first `after`."""
    found: list[float | str | None] = [level + (0.1, -0.1, 0.05, -0.05)[n % 4] for n in range(200)]
    found[after : after + len(then)] = then
    return found


def sorted_cases(tests: int, train: int = 20) -> tuple[Case, ...]:
    """Test cases in the order of their difficulty, as data sets often are."""
    return tuple(Case(f"train{i}", i / train) for i in range(train)) + tuple(
        Case(f"test{i}", i / tests, split="test") for i in range(tests)
    )


def by_case(text: str, case: Case | None, rng: Random) -> float:
    return (0.0 if case is None else float(case.input)) + 0.1 * float(text)


def final(task: Task, rule: Rule, strategy: Looks, budget: Budget, seed: int) -> RunResult:
    verdict = simulate(strategy, task, Table(rule), budget, seed=seed).verdict
    assert verdict is not None
    return verdict


# Data sets.


def test_a_sample_of_the_test_cases_is_drawn_at_random_and_its_interval_holds_the_truth() -> None:
    """Test cases ordered by difficulty, with a true mean of 0.495 + 0.1.

    The reserve holds some of them only.
    """
    task = msgspec.structs.replace(EXACT, cases=sorted_cases(100))
    found = [
        final(task, by_case, Looks(("1", "0"), 20), Budget(evaluations=100), seed)
        for seed in range(40)
    ]
    assert {one.of for one in found} == {100} and all(
        1 < one.cases < 100 and one.count == one.cases for one in found
    )
    assert abs(fmean(one.score for one in found) - 0.595) < 0.05
    covered = sum(abs(one.score - 0.595) <= one.margin for one in found if one.margin is not None)
    assert covered >= 35  # 0.95 of 40 and chance


def test_the_whole_split_is_evaluated_where_the_reserve_can_hold_it_and_the_reserve_is_planned_so() -> (
    None
):
    task = msgspec.structs.replace(EXACT, cases=sorted_cases(25))
    one = final(task, by_case, Looks(("1", "0"), 20), Budget(evaluations=300), 3)
    assert (one.cases, one.of, one.count, one.split) == (25, 25, 25, "test")
    assert one.score == pytest.approx(0.48 + 0.1) and one.margin == 0.0


@pytest.mark.parametrize("tests", [10, 40])
def test_the_winner_and_the_initial_program_are_evaluated_on_the_same_cases(tests: int) -> None:
    task = msgspec.structs.replace(TASK, cases=sorted_cases(tests))
    journal = MemoryJournal()
    end = simulate(
        Looks(("0.0", "1", "2")),
        task,
        Table(by_case),
        Budget(evaluations=80),
        seed=1,
        journal=journal,
    )
    seen: dict[str, list[str]] = {}
    for event in journal.read():
        if event.entry.kind == "done" and isinstance(event.entry.result, Observation):
            one = event.entry.result
            if one.case.startswith("test"):
                seen.setdefault(one.candidate, []).append(one.case)
    assert end.verdict is not None and end.verdict.initial is not None
    assert set(seen) == {end.verdict.id, end.verdict.initial.id}
    one, other = seen.values()
    assert sorted(one) == sorted(other)
    assert end.verdict.gain == pytest.approx(0.2)


def test_validation_cases_decide_between_candidates_that_are_exact_and_alike_in_the_search() -> (
    None
):
    """One training case, on which both score the same, is no evidence on the others."""
    cases = (Case("train0", 0), *(Case(f"val{i}", i, split="val") for i in range(4)))
    task = msgspec.structs.replace(EXACT, cases=cases, seeds=({"x": "0"},))

    def rule(text: str, case: Case | None, rng: Random) -> float:
        return 1.0 if text == "1" or case is None or case.split == "train" else 0.0

    end = final(task, rule, Looks(("0", "1"), 1), Budget(evaluations=60), 0)
    assert end.id == Candidate.of({"x": "1"}).id


@pytest.mark.parametrize("deterministic", [True, None])
@pytest.mark.parametrize("train", [2, 4])
def test_exact_candidates_alike_on_the_case_that_the_search_saw_are_told_apart_by_the_others(
    deterministic: bool | None, train: int
) -> None:
    """A search that looked at one case of a data set knows little, however exact its scores are."""
    cases = tuple(Case(f"train{i}", i) for i in range(train))
    task = msgspec.structs.replace(
        EXACT, cases=cases, seeds=({"x": "0"},), deterministic=deterministic
    )

    def rule(text: str, case: Case | None, rng: Random) -> float:
        return 1.0 if text == "1" or (case is not None and case.input % 2) else 0.0

    for seed in range(4):
        journal = MemoryJournal()
        end = simulate(
            Looks(("0", "1"), 1),
            task,
            Table(rule),
            Budget(evaluations=60),
            seed=seed,
            journal=journal,
        )
        assert end.verdict is not None and end.verdict.id == Candidate.of({"x": "1"}).id
        looks = [
            e.entry.result.case
            for e in journal.read()
            if e.entry.effect == "evaluate" and e.entry.kind == "done"
        ]
        assert (
            deterministic is None or len(looks) <= 2 + 4 * train
        )  # each candidate on each case once, and once more


@pytest.mark.parametrize(
    ("evaluations", "cases", "kept"),
    [
        (9, 0, 0),
        (50, 0, 5),
        (300, 0, 16),
        (1000, 0, 40),
        (1000, 50, 140),
        (300, 100, 30),
        (200, 5, 26),
    ],
)
def test_as_much_is_kept_as_the_task_needs(evaluations: int, cases: int, kept: int) -> None:
    task = msgspec.structs.replace(TASK, cases=sorted_cases(cases) if cases else ())
    assert final_share(Budget(evaluations=evaluations), task) == kept


@pytest.mark.parametrize(
    ("evaluations", "cases", "kept"), [(100, 6, 16), (60, 6, 6), (300, 50, 30), (100, 2, 8)]
)
def test_a_deterministic_data_set_is_reported_whole_where_a_fifth_holds_it(
    evaluations: int, cases: int, kept: int
) -> None:
    """Twice every case, and a twenty-fifth to choose by.

    A sample would report the luck of its cases.
    """
    task = msgspec.structs.replace(EXACT, cases=sorted_cases(cases))
    assert task.deterministic and final_share(Budget(evaluations=evaluations), task) == kept


# Failures.


def flaky(text: str, case: Case | None, rng: Random) -> float | None:
    """ "1" scores 1.0 half of the time and fails otherwise, "2" is a steady 0.8."""
    if text == "1":
        return 1.0 if rng.random() < 0.5 else None
    return {"0.0": 0.1, "2": 0.8}[text] + rng.gauss(0, 0.02)


def test_a_program_that_fails_half_of_the_time_gives_way_to_a_steady_one() -> None:
    found = [
        final(TASK, flaky, Looks(("0.0", "1", "2"), 2), Budget(evaluations=100), seed)
        for seed in range(30)
    ]
    steady = Candidate.of({"x": "2"}).id
    assert [one.id for one in found] == [steady] * 30
    assert all(one.confirmed and one.score == pytest.approx(0.8, abs=0.05) for one in found)


@pytest.mark.slow
def test_failures_count_at_the_floor_in_the_reported_score() -> None:
    task = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, 1.0)))
    found = [
        final(task, flaky, Looks(("0.0", "1"), 6), Budget(evaluations=200), seed)
        for seed in range(30)
    ]
    assert abs(fmean(one.score for one in found) - 0.5) < 0.1
    failing = [one for one in found if one.failures]
    assert len(failing) >= 28 and all(one.margin and one.margin > 0.1 for one in failing)
    assert all(one.score < 1 for one in failing)


# The initial program.


def noisy(text: str, case: Case | None, rng: Random) -> float:
    return float(text) + rng.gauss(0, 0.1)


def test_the_initial_program_is_always_among_the_finalists_and_measured_afresh() -> None:
    texts = ("0.0", *(f"0.{n}" for n in range(50, 70)))
    one = final(TASK, noisy, Looks(texts, 3), Budget(evaluations=200), 4)
    initial = Candidate.of({"x": "0.0"}).id
    assert initial in one.finalists and one.initial is not None and one.initial.id == initial
    assert one.initial.count >= 2 and abs(one.initial.score) < 0.2
    assert one.gain == pytest.approx(one.score - one.initial.score)
    assert one.gain_margin is not None and one.gain > one.gain_margin > 0


def test_where_nothing_is_better_the_initial_program_is_the_choice() -> None:
    one = final(TASK, noisy, Looks(("0.0", "-1", "-2"), 6), Budget(evaluations=100), 1)
    assert one.id == Candidate.of({"x": "0.0"}).id
    assert one.initial is not None and (one.initial.id, one.initial.score) == (one.id, one.score)
    assert one.kept_initial and one.gain is not None and one.gain < 0


def test_of_several_initial_programs_the_best_is_the_one_to_compare_with() -> None:
    task = msgspec.structs.replace(TASK, seeds=({"x": "0.0"}, {"x": "0.4"}))
    one = final(task, noisy, Looks(("0.0", "0.4", "0.9"), 6), Budget(evaluations=100), 1)
    assert one.initial is not None and one.initial.id == Candidate.of({"x": "0.4"}).id


def test_the_gain_is_a_difference_of_scores_in_the_tasks_own_direction() -> None:
    task = msgspec.structs.replace(TASK, objective=Objective("min"))
    one = final(task, noisy, Looks(("0.0", "-1"), 6), Budget(evaluations=100), 1)
    assert one.gain is not None and one.gain == pytest.approx(-1, abs=0.3)


# How much is spent on whom.


def ended(
    task: Task, world: Script | Table, search: Looks, kept: int | None = 40
) -> tuple[RunResult, dict[str, dict[str, int]]]:
    """Verdict of a run that keeps `kept` evaluations for its final choice (None: no limit).

    Also returned is how many of these were made, by text and split.
    """
    used = len(search.texts) * search.times
    budget = (
        Budget(seconds=1e6)
        if kept is None
        else Budget(used + kept, final=max(0.0, kept - 0.5) / (used + kept))
    )
    run, asked = simulate(search, task, world, budget, trial=False), dict[str, dict[str, int]]()
    splits = {case.id: case.split for case in task.cases}
    for entry in (event.entry for event in run.journal.read()):
        if (
            entry.kind == "done"
            and isinstance(entry.result, Observation)
            and entry.body.get("phase")
        ):
            looks = asked.setdefault(run.search.lab.find(entry.result.candidate).text, {})
            on = splits.get(entry.result.case, "")
            looks[on] = looks.get(on, 0) + 1
    assert run.verdict is not None
    return run.verdict, asked


THREE = Looks(("0.0", "1", "2"))


def test_a_single_evaluation_confirms_the_winner_alone_and_none_confirms_nothing() -> None:
    verdict, asked = ended(TASK, Table(noisy), THREE, 1)
    assert (asked, verdict.count, verdict.confirmed, verdict.initial) == (
        {"2": {"": 1}},
        1,
        True,
        None,
    )
    verdict, asked = ended(TASK, Table(noisy), THREE, 0)
    assert (asked, verdict.count, verdict.confirmed, verdict.finalists) == ({}, 4, False, ())
    assert verdict.score == verdict.search_score and verdict.trust == "verified"


def test_what_a_verdict_does_not_tell_is_nothing() -> None:
    """So it is written without zeros, and one of an older run is read."""
    written = msgspec.to_builtins(ended(TASK, Table(noisy), THREE, 2)[0])
    assert not {"failures", "cases", "of"} & {*written, *written["initial"]}
    del written["search_count"]
    old = msgspec.convert(written, RunResult)
    assert (old.search_count, old.failures, old.cases, old.of) == (0, 0, 0, 0)
    assert old.initial is not None and old.initial.failures == 0


def steady(text: str, case: Case | None, rng: Random) -> float:
    return float(text)


@pytest.mark.parametrize(
    ("cases", "kept", "two", "one", "initial"),
    [
        # The whole split as often as it fits, what is left chooses on training cases.
        (
            split(train=4, test=5),
            40,
            {"train": 4, "test": 15},
            {"train": 4},
            {"train": 1, "test": 15},
        ),
        (split(train=4, test=5), 12, {"train": 1, "test": 5}, {"train": 1}, {"test": 5}),
        (split(train=4, test=5), 10, {"test": 5}, None, {"test": 5}),
        (
            split(train=4, test=5),
            9,
            {"train": 1, "test": 3},
            {"train": 1},
            {"test": 3},
        ),  # no room for it
        (split(train=3), 40, {"train": 4 + 15}, {"train": 4}, {"train": 1 + 15}),
        # Cases of the validation split get two fifths; without test cases they are what is
        # reported, too.
        (split(train=4, val=100), 40, {"val": 7 + 12}, {"val": 7}, {"val": 2 + 12}),
        (
            split(train=4, val=6, test=5),
            40,
            {"val": 8, "test": 10},
            {"val": 8},
            {"val": 3, "test": 10},
        ),
    ],
)
def test_of_a_data_set_the_reported_cases_are_whole_where_they_fit(
    cases: tuple[Case, ...],
    kept: int,
    two: dict[str, int],
    one: dict[str, int] | None,
    initial: dict[str, int],
) -> None:
    _, asked = ended(msgspec.structs.replace(TASK, cases=cases), Table(noisy), THREE, kept)
    assert (asked["2"], asked.get("1"), asked["0.0"]) == (two, one, initial)


@pytest.mark.parametrize(
    ("cases", "times", "kept", "two", "one", "initial"),
    [
        ((), 1, 40, {"": 1}, None, {"": 1}),
        (
            split(train=4, test=5),
            4,
            40,
            {"test": 5},
            None,
            {"test": 5},
        ),  # all that can be known of them is
        (
            split(train=4, test=5),
            1,
            40,
            {"train": 4, "test": 5},
            {"train": 4},
            {"train": 4, "test": 5},
        ),
        (split(train=4, test=5), 1, 12, {"train": 1, "test": 5}, {"train": 1}, {"test": 5}),
        (
            split(train=4, test=50),
            1,
            40,
            {"train": 4, "test": 15},
            {"train": 4},
            {"train": 1, "test": 15},
        ),
        (split(train=4, val=2), 4, 40, {"val": 2 + 2}, {"val": 2}, {"val": 2 + 2}),
    ],
)
def test_exact_scores_are_looked_at_once_on_a_case(
    cases: tuple[Case, ...],
    times: int,
    kept: int,
    two: dict[str, int],
    one: dict[str, int] | None,
    initial: dict[str, int],
) -> None:
    task = msgspec.structs.replace(EXACT, cases=cases)
    _, asked = ended(task, Table(steady), Looks(THREE.texts, times), kept)
    assert (asked["2"], asked.get("1"), asked["0.0"]) == (two, one, initial)


@pytest.mark.parametrize(
    ("texts", "count"),
    [(("0.0", "1"), 20), (("0.0", "1", "2"), 1), (("0.0", "1", "2", "3", "4"), 1)],
)
def test_equal_repeats_prove_exactness_unless_scores_are_pass_or_fail(
    texts: tuple[str, ...], count: int
) -> None:
    """Three equal repeats of two candidates, among three and five different scores."""
    assert ended(TASK, Table(steady), Looks(texts, 2))[0].count == count


@pytest.mark.parametrize(("best", "most"), [("3.14159265", 6), ("3", 10)])
def test_a_final_choice_ends_once_equal_repeats_of_two_programs_have_shown_exactness(
    best: str, most: int
) -> None:
    """Forty evaluations are kept."""
    verdict, asked = ended(TASK, Table(steady), Looks(("0.5", best), 1))
    assert (verdict.noise.exact, verdict.margin, verdict.gain_margin) == (True, 0.0, 0.0)
    assert sum(sum(seen.values()) for seen in asked.values()) <= most


def test_scores_that_are_declared_noisy_are_measured_with_all_that_is_kept() -> None:
    said = msgspec.structs.replace(TASK, deterministic=False)
    assert ended(said, Table(steady), Looks(THREE.texts, 4))[0].count == 20


def test_who_is_alone_is_confirmed_with_all_and_without_an_initial_program_nothing_is_compared() -> (
    None
):
    verdict, asked = ended(TASK, Table(noisy), Looks(("0.0",)))
    assert asked == {"0.0": {"": 20}} and verdict.finalists == named("0.0")
    verdict, asked = ended(msgspec.structs.replace(TASK, seeds=()), Table(noisy), Looks(("1", "2")))
    assert asked["2"][""] >= 30 and verdict.id == named("2")[0]
    assert (verdict.initial, verdict.gain, verdict.count) == (None, None, 40)


@pytest.mark.parametrize(
    ("kept", "checks", "each"), [(40, 3, 18), (13, 3, 5), (6, 3, 1), (5, 0, 2), (4, 0, 2)]
)
def test_three_evaluations_tell_whether_the_winners_score_rests_on_a_tolerance(
    kept: int, checks: int, each: int
) -> None:
    """They are kept apart before the rest is shared, where there is room for them."""
    task = msgspec.structs.replace(TASK, evaluator=Evaluator(path="/evaluate.py"))
    world = Script({"0.0": around(0.5), "1": around(1), "2": around(2)})
    verdict, _ = ended(task, world, THREE, kept)
    assert (+world.checks, verdict.count) == (Counter({"2": checks} if checks else {}), each)
    strict = msgspec.structs.replace(
        task, evaluator=Evaluator(path="/evaluate.py", tolerances=False)
    )
    world = Script({"0.0": around(0.5), "1": around(1), "2": around(2)})
    ended(strict, world, THREE, kept)
    assert not +world.checks


# Who gives way: see also test_engine_finale_race.

FLOOR = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, None)))


def confirmed(
    second: float,
    *then: float | str | None,
    task: Task = FLOOR,
    kept: int = 40,
    others: Turns | None = None,
) -> tuple[RunResult, dict[str, int]]:
    """The verdict where "2" scores 10 and "1" scores `second`, and the evaluations of each.

    `then` are the scores of "2" in its confirmation.
    """
    world = Script(
        {"0.0": around(0.5), "1": around(second), "2": around(10, *then), **(others or {})}
    )
    verdict, asked = ended(task, world, THREE, kept)
    return verdict, {text: sum(seen.values()) for text, seen in asked.items()}


def test_a_finalist_that_cheats_in_the_choice_or_in_its_confirmation_is_out() -> None:
    verdict, asked = confirmed(5.0, 10.0, "cheats")
    assert verdict.id == named("1")[0] and asked["2"] < asked["1"] + 15
    verdict, asked = confirmed(5.0, others={"2": around(10, "cheats", after=4)})
    assert verdict.id == named("1")[0] and asked["2"] <= 5


@pytest.mark.parametrize(("deterministic", "times"), [(True, 1), (None, 4)])
def test_where_scores_are_exact_one_failure_is_enough(
    deterministic: bool | None, times: int
) -> None:
    task = msgspec.structs.replace(FLOOR, deterministic=deterministic)
    world = Script({"0.0": [0.5], "1": [1.0], "2": [*[10.0] * times, None]})
    verdict, asked = ended(task, world, Looks(THREE.texts, times))
    assert verdict.id == named("1")[0]
    assert not deterministic or asked == {"2": {"": 1}, "1": {"": 1}, "0.0": {"": 1}}


def test_what_failed_on_a_case_is_not_certain_however_exact_scores_are() -> None:
    task = msgspec.structs.replace(FLOOR, deterministic=True, cases=split(train=1, test=3))
    verdict, _ = ended(task, Script({"0.0": [0.5, None, 0.5]}), Looks(("0.0",), 1))
    assert (verdict.count, verdict.failures) == (3, 1) and verdict.margin
    assert ended(task, Script({"0.0": [0.5]}), Looks(("0.0",), 1))[0].margin == 0.0


def test_one_failure_on_a_data_set_decides_nothing_and_is_reported() -> None:
    task = msgspec.structs.replace(FLOOR, cases=split(train=4, test=20))
    verdict, asked = confirmed(9.0, None, task=task, kept=39)
    assert (verdict.id, verdict.count, verdict.failures) == (*named("2"), 15, 1) and asked["1"] == 4


# An interrupted choice.


def shifted(text: str, case: Case | None, rng: Random) -> float:
    """Test cases score 100 more than training cases: mixed, they would show."""
    return by_case(text, case, rng) + (100 if case is not None and case.split == "test" else 0)


@pytest.mark.parametrize("late", range(1, 24, 3))
def test_an_interrupted_final_choice_leaves_the_searchs_mean_alone(late: int) -> None:
    task = msgspec.structs.replace(TASK, cases=sorted_cases(50))
    journal, searched = MemoryJournal(), 3 * 20
    run = simulate(
        Looks(("0.0", "1", "2"), 20),
        task,
        Table(shifted),
        Budget(evaluations=120),
        seed=1,
        workers=2,
        journal=journal,
        kill_after=searched + late,
    )
    assert run.killed and run.search.phase == "final"
    verdict = run.verdict
    assert verdict is not None and verdict.search_score is not None and verdict.search_score < 5
    assert (verdict.score > 90) == verdict.confirmed and (verdict.score < 5) != verdict.confirmed
    assert all(tally.mean < 5 for tally in run.search.evidence.account.tallies())
    whole = simulate(
        Looks(("0.0", "1", "2"), 20),
        task,
        Table(shifted),
        Budget(evaluations=120),
        seed=1,
        workers=2,
    )
    rest = simulate(
        Looks(("0.0", "1", "2"), 20),
        task,
        Table(shifted),
        Budget(evaluations=120),
        seed=1,
        workers=2,
        journal=journal,
    )
    assert rest.verdict == whole.verdict


# Where scores seem exact.


@pytest.mark.slow
def test_scores_that_never_differ_are_not_exact_where_candidates_fail_at_times() -> None:
    def at_times(text: str, case: Case | None, rng: Random) -> float | None:
        fails = (
            text != "0.0" and rng.random() < 0.3
        )  # what strikes the initial program, too, is nobody's failure
        return None if fails else {"0.0": 0.1, "1": 1.0, "2": 0.8}[text]

    task = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, 1.0)))
    found = [
        final(task, at_times, Looks(("0.0", "1", "2"), 8), Budget(evaluations=200), seed)
        for seed in range(30)
    ]
    assert all(one.count >= 6 for one in found)  # an exact score would be taken once
    assert abs(fmean(one.score for one in found) - 0.7) < 0.05
    assert sum(abs(one.score - 0.7) <= (one.margin or 0.0) for one in found) >= 27


def test_less_is_kept_back_once_scores_are_known_to_be_exact() -> None:
    task, budget = Task("t", seeds=({"a": "1"},)), Budget(evaluations=120)
    assert final_share(budget, task) == 12 and final_share(budget, task, exact=True) == 3
    assert final_share(budget, task, flaky=True) == 36  # a share of failures takes more to tell
    assert final_share(Budget(evaluations=120, final=0.1), task, exact=True) == 12  # a user's word
    said = msgspec.structs.replace(task, deterministic=False)
    assert final_share(budget, said, exact=True) == 12
    assert searched(worlds.SimulatedWorld(), budget) >= 115
    assert searched(worlds.SimulatedWorld(noise=0.1), budget) <= 109


def searched(world: worlds.SimulatedWorld, budget: Budget) -> int:
    """Evaluations of a search before its final choice."""
    run = simulate(PedigreeSearch(), world.task(), world, budget)
    entries = [event.entry for event in run.journal.read()]
    done = [entry for entry in entries if entry.kind == "done" and entry.effect == "evaluate"]
    return sum(not entry.body.get("phase") for entry in done)
