"""Evidence of a run from its journal: a reader knows what the engine knew.

Also of long and odd runs.
"""

from __future__ import annotations

import random
import shutil

import msgspec
import numpy as np
import pytest

from culmen.core.admissions import ADMISSION
from culmen.core.brief import Proposal
from culmen.core.evaluation import Observation, Sign, Status
from culmen.core.event import Entry
from culmen.core.task import Evaluator, MetricGoal, Objective, Task
from culmen.core.usage import Budget
from culmen.evidence.evidence import Evidence
from culmen.extensions.bench.records import read_run
from culmen.store import evidence as store_evidence
from culmen.store import views
from culmen.store.database import RunMeta, open_snapshot
from culmen.store.evidence import RunEvidence, evidence_of, result_before
from culmen.store.journal import SqlJournal
from tests.store.runs import address, new_run, observed, program, proposed, state

pytestmark = pytest.mark.usefixtures("each_store")


def run_of(folder, name="run-1", verifier="", metrics=(), prior=None, **settings):
    """A run without events."""
    objective = Objective("max", metrics=tuple(MetricGoal(each) for each in metrics))
    task = Task("a task", "a goal", objective=objective, evaluator=Evaluator(verifier=verifier))
    strategy = {
        "path": "culmen.strategies.pedigree:PedigreeSearch",
        "config": {"prior": prior} if prior else {},
    }
    meta = RunMeta(name, task, strategy, models={}, budget=Budget(evaluations=1000), **settings)
    return SqlJournal.create(folder / name, meta, db=address(name))


def as_observed(journal):
    """The evidence from the observations themselves, as the engine has it."""
    evidence, known = Evidence(journal.meta.task, store_evidence.prior_in(journal.meta)), {}
    for event in journal.read():
        result = event.entry.result
        if isinstance(result, Proposal):
            known |= {each.id: each for each in result.candidates}
        elif isinstance(result, Observation):
            evidence.observe(known[result.candidate], result, event.entry.body.get("phase", ""))
    return evidence


def read(journal):
    """The evidence of a reader that read every evaluation."""
    found = RunEvidence(journal.meta, journal.run_dir)
    with open_snapshot(journal.run_dir) as connection:
        found.read(connection)
    return found.evidence


def read_as_long(journal):
    """The evidence of a reader that read the sums alone, as of a run that is too long."""
    found = RunEvidence(journal.meta, journal.run_dir)
    with open_snapshot(journal.run_dir) as connection:
        last = connection.execute("SELECT max(seq), count(*) FROM observation").one()
        found.read_tallies(connection, last[1], last[0])
    return found.evidence


def in_phase(entry, phase):
    return msgspec.structs.replace(entry, body={"phase": phase})


def mixed_run(folder, seed=1, verifier="", **settings):
    """200 evaluations of 30 candidates: noise, failures, and lost ones.

    Those of a final choice are at the end.
    """
    chance, journal = random.Random(seed), run_of(folder, verifier=verifier, **settings)
    pool = [program(number, (program(0).id,) if number else ()) for number in range(30)]
    journal.append(
        [
            Entry(
                "note",
                1,
                effect="candidates",
                body={"note": "candidates"},
                result=Proposal(tuple(pool)),
            )
        ]
    )
    for key in range(200):
        place = key % 30
        judged = (
            {"strict": place % 5 != 4, "certified": None if place % 5 == 4 else place / 2}
            if verifier
            else {}
        )
        entry = observed(
            key,
            pool[place],
            place + chance.gauss(0, 1),
            trust=("verified", "proxied")[key % 2],
            **judged,
        )
        if place % 7 == 3 and chance.random() < 0.5:
            entry = observed(
                key,
                pool[place],
                None,
                Status.ERROR,
                reason="raised",
                feedback=f"Error: {'abc'[key % 3]}",
            )
        elif chance.random() < 0.05:
            entry = observed(key, pool[place], None, Status.LOST, reason="worker_died")
        journal.append([in_phase(entry, "final") if key >= 190 else entry])
    late = observed(900, pool[2], 2.5, **({"strict": True, "certified": 1.0} if verifier else {}))
    journal.append([late])  # of the search, finished while the final choice was made
    return journal, pool


SAME = ("key", "count", "failures", "refused", "barred", "trust")


@pytest.mark.parametrize("verifier", ["", "verify.py"])
def test_a_reader_knows_of_every_candidate_what_the_engine_knew(tmp_path, verifier):
    journal, _ = mixed_run(tmp_path, verifier=verifier)
    engine, reader = as_observed(journal), read(journal)
    for name in (*SAME, "mean", "squares", "certified", "early"):
        assert engine.account.rows[name].tobytes() == reader.account.rows[name].tobytes(), name
    for name in (
        "made",
        "evaluations",
        "top",
        "failed",
        "degrees",
        "squares",
        "slowest",
        "is_flaky",
    ):
        assert getattr(engine.account, name) == getattr(reader.account, name), name
    assert (
        engine.ranking.best_ids(30) == reader.ranking.best_ids(30)
        and engine.result() == reader.result()
    )
    journal.close()


@pytest.mark.parametrize("verifier", ["", "verify.py"])
def test_the_sums_of_a_long_run_tell_what_its_evaluations_tell(tmp_path, verifier):
    """Also of a run whose search ended some evaluations after the final choice had begun."""
    journal, _ = mixed_run(tmp_path, verifier=verifier)
    one_by_one, sums = read(journal).account, read_as_long(journal).account
    assert {name for name in sums.fresh} == {name for name in one_by_one.fresh} and sums.fresh
    for name, seen in one_by_one.fresh.items():
        assert [fact._replace(size=0) for fact in sums.fresh[name]] == [
            fact._replace(size=0) for fact in seen
        ]
    one, other = (np.sort(account.rows, order="key") for account in (sums, one_by_one))
    for name in SAME:
        assert one[name].tolist() == other[name].tolist(), name
    for name in ("mean", "squares", "certified"):
        assert one[name].tolist() == pytest.approx(
            other[name].tolist(), rel=1e-9, abs=1e-9, nan_ok=True
        ), name
    for name in ("made", "evaluations", "top", "failed", "degrees", "is_flaky"):
        assert getattr(sums, name) == getattr(one_by_one, name), name
    assert sums.squares == pytest.approx(one_by_one.squares)
    journal.close()


def test_of_equals_in_a_long_run_the_shortest_leads_as_in_a_short_one(tmp_path):
    journal = run_of(tmp_path)
    long, short, worse = program(1, text="x" * 900), program(2), program(3)
    journal.append([proposed(1, long, short, worse)])
    journal.append([observed(2, long, 3.0), observed(3, short, 3.0), observed(4, worse, 1.0)])
    assert as_observed(journal).ranking.best_ids(3) == [short.id, long.id, worse.id]
    for is_long in (False, True):
        with open_snapshot(journal.run_dir) as connection:
            found = RunEvidence(journal.meta, journal.run_dir)
            if is_long:
                found.read_tallies(connection, 3, 4)
            else:
                found.read(connection)
            assert found.evidence.ranking.best_ids(3) == [short.id, long.id, worse.id]
    journal.close()


def test_the_order_of_equals_does_not_depend_on_who_looked_before(tmp_path):
    """Sizes are looked up of those that lead; once others lead, nothing may be left of that."""
    journal, found = run_of(tmp_path), None
    long, short, better = program(1, text="x" * 900), program(2), program(3)
    journal.append([proposed(1, long, short, better)])
    journal.append([observed(2, long, 3.0), observed(3, short, 3.0)])
    watcher = RunEvidence(journal.meta, journal.run_dir)
    with open_snapshot(journal.run_dir) as connection:
        watcher.read(connection)
        assert watcher.evidence.ranking.best_ids(2) == [short.id, long.id]
    journal.append([observed(4, better, 9.0)])
    with open_snapshot(journal.run_dir) as connection:
        watcher.read(connection)
        found = watcher.evidence.ranking.best_ids(3)
    assert found == as_observed(journal).ranking.best_ids(3) == read(journal).ranking.best_ids(3)
    journal.close()


def test_a_judged_observation_that_is_kept_as_a_blob_is_read(tmp_path):
    """Many artifacts make a row so large that it lies elsewhere."""
    journal = run_of(tmp_path, verifier="verify.py")
    one = program(1)
    large = {f"file {number}": "x" * 4000 for number in range(30)}
    journal.append(
        [proposed(1, one), observed(2, one, 3.0, strict=True, certified=2.0, artifacts=large)]
    )
    tally = read(journal).account.tally(one.id)
    assert tally is not None and (tally.certified, tally.refused) == (2.0, False)
    assert views.best_result(journal.run_dir).value == 2.0
    journal.close()


def test_a_long_run_with_several_objectives_has_its_front(tmp_path, monkeypatch):
    journal = run_of(tmp_path, metrics=("speed", "size"))
    pool = [program(number) for number in range(4)]
    journal.append([proposed(1, *pool)])
    values = [(1.0, 4.0), (4.0, 1.0), (3.0, 3.0), (1.0, 1.0)]
    journal.append(
        [
            observed(10 * turn + key, each, sum(pair), metrics=dict(zip(("speed", "size"), pair)))
            for turn in range(3)
            for key, (each, pair) in enumerate(zip(pool, values), 2)
        ]
    )
    before = views.best_result(journal.run_dir)
    assert {point.id for point in before.front} == {each.id for each in pool[:3]}
    monkeypatch.setattr(store_evidence, "MODELLED", 5)
    store_evidence._kept.clear()
    assert views.best_result(journal.run_dir) == before == as_observed(journal).result()
    journal.close()


@pytest.mark.parametrize("integrity", ["warn", "reject"])
def test_a_candidate_that_admits_to_gaming_falls_at_once_where_it_is_barred(tmp_path, integrity):
    """On a page that had been looked at before as on a new one, without another evaluation."""
    journal = run_of(tmp_path, integrity=integrity)
    honest, sly = program(1), program(2)
    journal.append([proposed(1, honest, sly), observed(2, honest, 1.0), observed(3, sly, 5.0)])
    assert views.best_result(journal.run_dir).id == sly.id
    assert [row.id for row in views.candidate_rows(journal.run_dir, "best", limit=1)] == [sly.id]
    journal.append(
        [
            Entry(
                "note",
                9,
                body={"note": ADMISSION, "candidates": [sly.id], "evidence": ["I game it"]},
            )
        ]
    )
    best = sly if integrity == "warn" else honest
    assert views.best_result(journal.run_dir).id == best.id
    assert [row.id for row in views.candidate_rows(journal.run_dir, "best", limit=1)] == [best.id]
    journal.append([observed(10, honest, 1.0)])
    assert read_run(journal.run_dir).moments[-1].candidate == best.id
    journal.close()


def test_the_best_before_a_sign_is_not_one_that_showed_its_own_later(tmp_path):
    journal = run_of(tmp_path)
    first, second, third = program(1), program(2), program(3)
    grave = (Sign("frames", "it walks up the stack", True),)
    journal.append(
        [proposed(1, first, second, third), observed(2, first, 1.0), observed(3, second, 2.0)]
    )
    journal.append([observed(4, third, 9.0, signs=grave)])
    assert views.run_status(journal.run_dir).best_before_first_finding.id == second.id
    journal.append([observed(5, second, 2.0, signs=grave)])
    assert views.run_status(journal.run_dir).best_before_first_finding.id == first.id
    with open_snapshot(journal.run_dir) as connection:
        assert result_before(connection, 2) is None
    journal.close()


def test_a_prior_is_part_of_what_a_reader_believes(tmp_path):
    law = {"fields": {"noise": 4.0, "step": 0.5, "drift": -0.5, "sign": 1}}
    journal = run_of(tmp_path, prior=law)
    first = program(0)
    child = program(1, (first.id,))
    journal.append([proposed(1, first, child), observed(2, first, 1.0), observed(3, child, 6.0)])
    prior = store_evidence.prior_in(journal.meta)
    assert prior is not None and prior._asdict() == law["fields"]
    assert (
        read(journal).result()
        == as_observed(journal).result()
        != Evidence(journal.meta.task).result()
    )
    journal.close()


def test_the_law_of_steps_of_a_long_run_is_learnt_from_its_evaluations(tmp_path, monkeypatch):
    journal, _ = mixed_run(tmp_path)
    law = views.step_law(journal.run_dir)
    monkeypatch.setattr(store_evidence, "MODELLED", 5)
    monkeypatch.setattr("culmen.evidence.account.MODELLED", 5)
    assert law is not None and views.step_law(journal.run_dir) == law
    journal.close()


def test_a_run_without_scores_has_no_result_and_no_law(tmp_path):
    journal = run_of(tmp_path)
    assert views.best_result(journal.run_dir) is None and views.step_law(journal.run_dir) is None
    one = program(1)
    journal.append([proposed(1, one), observed(2, one, None, Status.ERROR)])
    assert views.best_result(journal.run_dir) is None and views.step_law(journal.run_dir) is None
    assert read_as_long(journal).result() is None
    journal.close()


def test_a_run_that_goes_on_after_its_result_is_no_longer_told_by_it(tmp_path):
    """A finished run reports the engine's result.

    One that was taken up again reports the contents of its journal.
    """
    journal = run_of(tmp_path)
    one, two = program(1), program(2)
    journal.append([proposed(1, one, two), observed(2, one, 1.0)])
    winner = {"id": one.id, "score": 1.25, "count": 4, "se": 0.1, "margin": 0.2, "confirmed": True}
    journal.append([state("finished", winner=winner)])
    assert views.best_result(journal.run_dir).score == 1.25
    journal.append([state("running"), observed(3, two, 7.0)])
    best = views.best_result(journal.run_dir)
    assert (best.id, best.confirmed) == (two.id, False) and best == as_observed(journal).result()
    journal.close()


def test_a_run_of_the_same_name_that_is_made_anew_is_not_taken_for_the_one_before(tmp_path):
    for score in (5.0, 2.0):
        with new_run(tmp_path, created=score) as journal:
            journal.append([proposed(1, program(1)), observed(2, program(1), score)])
            assert views.best_result(journal.run_dir).score == score
        shutil.rmtree(
            tmp_path / "run-1", ignore_errors=True
        )  # in a database it gets a number of its own


@pytest.mark.slow
def test_many_who_look_at_once_see_one_evidence(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    journal, _ = mixed_run(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: views.best_result(journal.run_dir), range(16)))
    assert all(each == found[0] == as_observed(journal).result() for each in found)
    with (
        open_snapshot(journal.run_dir) as connection,
        evidence_of(connection) as run,
    ):
        assert run.evidence.account.made == 201
    journal.close()


@pytest.mark.parametrize("large", [False, True], ids=["in its row", "as a blob"])
@pytest.mark.parametrize("at", [None, 0, 5, 11])
def test_a_reader_knows_that_a_score_drew_as_the_engine_knew(tmp_path, at, large):
    """Read one by one, as sums, and up to an event before or after it."""
    journal = run_of(tmp_path)
    pool = [program(number) for number in range(6)]
    journal.append([proposed(1, *pool)])
    artifacts = {f"file {number}": '"drew":[' * 500 for number in range(30 if large else 1)}
    for key in range(12):
        drew = ("evaluator.rng",) if key == at else ()
        entry = observed(key + 2, pool[key % 6], float(key % 6), drew=drew, artifacts=artifacts)
        journal.append([in_phase(entry, "final") if key > 9 else entry])
    engine = as_observed(journal)
    assert engine.account.is_exact is (at is None)
    for found in (read(journal), read_as_long(journal)):
        assert found.account.repeated.has_drawn is (at is not None)
    assert read(journal).result() == engine.result() == views.best_result(journal.run_dir)
    with open_snapshot(journal.run_dir) as connection:
        early = RunEvidence(journal.meta, journal.run_dir)
        early.read(connection, 5)
        assert early.evidence.account.repeated.has_drawn is (at == 0)
        early.read(connection)
        assert early.evidence.result() == engine.result()
    journal.close()
