"""Questions about everything that was measured."""

from __future__ import annotations

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.task import Objective
from culmen.extensions.agents.messages import ExperimentRow
from culmen.extensions.agents.team.history import History


def made(direction="max", exact=False):
    history = History(Objective(direction), exact)
    texts = ["x = 1\n", "x = 2\ny = 3\n", "x = 3\n"]
    scores = [1.0, 3.0, 2.0]
    for n, (text, score) in enumerate(zip(texts, scores), 1):
        candidate = Candidate.of({"p.py": text})
        rollout = Rollout(candidate, (Observation(candidate.id, Status.OK, score),), (score,))
        path = f"candidates/a00/e{n:03d}.py"
        history.record_row(
            ExperimentRow(
                n,
                0,
                f"a00-{n}",
                candidate.id,
                path,
                score,
                metrics={"gap": n / 10},
                note=f"Try {n}",
            ),
            rollout,
        )
    history.record_row(ExperimentRow(4, 1, "a01-1", "", status="refused", reason="experiments"))
    return history


def test_the_best_is_what_counts():
    assert made().best.n == 2 and made("min").best.n == 1
    exact = made(exact=True)
    assert exact.best is None and exact.beats_best(0.0)
    exact.record_row(ExperimentRow(5, 0, "t", "cc", score=9.0, certified=1.5))
    exact.record_row(ExperimentRow(6, 0, "u", "dd", score=8.0, certified=1.5))
    assert exact.best.n == 5 and not exact.beats_best(1.5) and exact.beats_best(1.6)


def test_top_counts_a_candidate_once_and_leaves_out_what_the_verifier_refused():
    history = made()
    history.record_row(ExperimentRow(5, 1, "a01-2", history.rows[1].candidate, score=3.5))
    history.record_row(ExperimentRow(6, 1, "a01-3", "ee", score=99.0, reason="not_certified"))
    assert [row.n for row in history.top_rows(2)] == [5, 3]
    assert [row.n for row in made("min").top_rows(10)] == [1, 3, 2]
    assert history.top_rows(5, [history.rows[0]]) == [history.rows[0]]


def test_nothing_uncertified_ranks_above_what_is_certified():
    history = made(exact=True)
    history.record_row(ExperimentRow(5, 0, "t", "cc", score=2.5, certified=2.5 - 1e-15))
    history.record_row(ExperimentRow(6, 0, "u", "dd", score=2.5))
    assert [row.n for row in history.top_rows(3)] == [5, 2, 6]


def test_names_of_candidates():
    history = made()
    known = history.rows[1].candidate
    for name in (known, known[:6], "a00-2", "candidates/a00/e002.py"):
        assert history.resolve_candidate(name) == known
    assert (
        history.resolve_candidate("") == ""
        and history.resolve_candidate("zz") == ""
        and history.resolve_candidate(known[:2]) == ""
    )


def test_the_digest_depends_on_everything_before():
    one, two = made(), made()
    assert one.digest == two.digest and len(one.digest) == 16
    two.record_row(ExperimentRow(5, 0, "t", "cc", score=9.0))
    one.record_row(ExperimentRow(5, 0, "t", "cc", score=9.1))
    assert one.digest != two.digest
