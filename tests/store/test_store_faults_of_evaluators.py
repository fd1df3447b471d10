"""Culprits and kinds of failures in the tables."""

import pytest

from culmen.core.evaluation import Status
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
