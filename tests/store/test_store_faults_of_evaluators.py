"""Culprits and kinds of failures in the tables.

Also the evaluator's lines that raise for many candidates.
"""

import pytest

from culmen.core.candidate import Origin
from culmen.core.evaluation import Status
from culmen.core.event import Entry
from culmen.core.faults import EvaluationRow, evaluator_faults
from culmen.store import views
from culmen.store.database import open_snapshot
from culmen.store.transfer import recover_run
from tests.store.runs import new_run, observed, program

TRACE = "Traceback (most recent call last):\n  File \"/t/evaluator.py\", line 12, in score\n    x\nKeyError: 'c{}'"


def raised(key, candidate, case, **fields):
    """An evaluation that the evaluator's line 12 ended."""
    more = {"reason": "scorer_raised", "feedback": TRACE.format(case), **fields}
    return observed(key, candidate, None, Status.INVALID, case=case, **more)


def columns(folder):
    query = "SELECT status, culprit, kind FROM observation ORDER BY seq"
    with open_snapshot(folder) as connection:
        return [tuple(row) for row in connection.execute(query)]


EXPECTED = [
    ("ok", "", ""),
    ("invalid", "", "invalid scorer_raised KeyError: 'c#' @ evaluator.py:12"),
    ("lost", "provider", "lost provider_away "),
    ("error", "candidate", "error exception "),
    ("timeout", "candidate", "timeout timeout "),
]


@pytest.fixture
def run(tmp_path):
    with new_run(tmp_path) as journal:
        journal.append(
            [
                observed(1, program(1), 1.0, case="1"),
                raised(2, program(1), "3"),
                observed(3, program(1), None, Status.LOST, reason="provider_away"),
                observed(
                    4, program(1), None, Status.ERROR, reason="exception", culprit="candidate"
                ),
                observed(5, program(1), None, Status.TIMEOUT, reason="timeout"),
            ]
        )
    return tmp_path / "run-1"


def test_whose_failure_it_is_can_be_read_from_the_table(run):
    assert columns(run) == EXPECTED


def test_a_recovered_run_has_them_again(run, tmp_path):
    recover_run(run, tmp_path / "again")
    assert columns(tmp_path / "again") == EXPECTED


def test_both_kinds_of_store_hold_them(each_store, tmp_path):
    with new_run(tmp_path) as journal:
        odd = raised(4, program(3), "\x003", feedback=TRACE.format(3))
        journal.append([raised(2, program(1), "3"), raised(3, program(2), "3"), odd])
        assert [row[1:] for row in columns(journal.run_dir)] == [EXPECTED[1][1:]] * 3
        (fault,) = views.partial_faults(journal.run_dir)
    assert fault.cases == ("3", "\x003")


def test_a_line_of_the_evaluator_that_raises_for_many_candidates_is_found_with_its_cases(tmp_path):
    with new_run(tmp_path) as journal:
        key = 0
        for number in range(4):
            for case in ("1", "3", "13"):
                key += 1
                bad = case.endswith("3")
                journal.append(
                    [
                        raised(key, program(number), case)
                        if bad
                        else observed(key, program(number), 1.0, case=case)
                    ]
                )
    (fault,) = views.partial_faults(tmp_path / "run-1")
    assert (fault.place, fault.error, fault.cases, fault.all_cases) == (
        "evaluator.py:12",
        "KeyError",
        ("3", "13"),
        3,
    )
    assert (fault.candidates, fault.scored, fault.evaluations, fault.share, fault.initial) == (
        4,
        4,
        8,
        1.0,
        False,
    )
    assert (
        fault.is_certain
        and fault.sentence == "evaluator.py:12 raises KeyError on 2 of 3 cases: 3, 13"
    )


def test_that_an_initial_program_was_hit_is_read_from_the_journal(tmp_path):
    from culmen.core.candidate import Candidate

    seed = Candidate.of({"main.py": "x"}, (), Origin("seed"))
    with new_run(tmp_path) as journal:
        note = Entry("note", body={"note": "seeds", "candidates": [seed]})
        journal.append([note, raised(1, seed, "3"), observed(2, seed, 1.0, case="1")])
    (fault,) = views.partial_faults(tmp_path / "run-1")
    assert fault.initial and fault.is_certain and fault.candidates == 1


KIND = "invalid scorer_raised KeyError: '#' @ evaluator.py:12"


def rows(*listed):
    return [EvaluationRow(*each) for each in listed]


def test_what_few_candidates_meet_is_no_finding_unless_the_initial_program_is_among_them():
    two = rows(("a", "1", KIND), ("b", "1", KIND), ("a", "2", ""))
    assert evaluator_faults(two) == []
    (fault,) = evaluator_faults(two, {"b"})
    assert fault.initial and fault.candidates == 2 and fault.scored == 1


def test_candidates_that_never_score_anywhere_do_not_make_it_certain():
    broken = [(name, case, KIND) for name in "abcd" for case in "12"]
    good = [(name, case, "") for name in "efghij" for case in "12"]
    (fault,) = evaluator_faults(rows(*broken, *good))
    assert fault.share == 0.4 and fault.scored == 0 and not fault.is_certain


def test_without_a_data_set_evaluations_are_counted():
    (fault,) = evaluator_faults(
        rows(*((name, "", KIND) for name in "abc"), *((name, "", "") for name in "abcdef"))
    )
    assert fault.sentence == "evaluator.py:12 raises KeyError in 3 of 9 evaluations"


def test_lines_are_told_apart_and_the_most_frequent_comes_first():
    other = "invalid scorer_raised pkg.Oops @ evaluator.py:20"
    found = evaluator_faults(
        rows(*(((n, "1", other)) for n in "abc"), *((n, "2", KIND) for n in "abcd"))
    )
    assert [(fault.place, fault.error) for fault in found] == [
        ("evaluator.py:12", "KeyError"),
        ("evaluator.py:20", "pkg.Oops"),
    ]


def test_many_cases_are_named_in_part():
    (fault,) = evaluator_faults(rows(*(("a", f"c{n}", KIND) for n in range(11))), {"a"})
    assert fault.sentence.endswith("on 11 of 11 cases: c0, c1, c2, c3, c4, c5, c6, c7, 3 more")
