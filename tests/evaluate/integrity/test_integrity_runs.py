"""Runs under guard: signs in the journal, policies, resume and fork, bests.

Both examples of the paper are among them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.cli.keep import replay_run
from culmen.cli.pages import exit_code, status_document
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Sign, Status
from culmen.core.event import at_least
from culmen.core.ports import Backend
from culmen.core.task import Evaluator, Objective, Task
from culmen.core.usage import Budget
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.evaluate.integrity.guard import IntegrityBackend, apply_policy, reapply_policy
from culmen.extensions.audit.cli import find_signs
from culmen.run.study import Study
from culmen.store import views
from culmen.store.journal import SqlJournal
from tests.evaluate.conftest import need
from tests.extensions.audit.worlds import PACK, POINTS, PUSHED, SCALED, Programs, packing, triangle

HONEST = "def run():\n    return 3.0\n"
BETTER = "def run():\n    return 5.0\n"
CHEAT = "import sys\n\n\ndef run():\n    return 9.0 if sys._getframe() else 0.0\n"
LATER = "def run():\n    return 6.0\n"


def value(parts: dict[str, str]) -> float:
    """The evaluator of these tests: the number a program returns."""
    names: dict[str, Any] = {}
    exec(parts["pack.py"], names)
    return float(names["run"]())


def made(
    folder: Path, *texts: str, policy: str | None = None, budget: int = 20, **options: Any
) -> Path:
    """A finished run over these programs with a Python function as evaluator."""
    from culmen.run.options import function_task

    task = function_task({"pack.py": HONEST}, (), "", "max", "numbers", True, None, value)
    task = msgspec.structs.replace(task, **options)
    study = Study.create(
        task,
        Programs(texts),
        budget=Budget(evaluations=budget),
        run_dir=folder,
        workers=1,
        evaluator=value,
        integrity=policy,
    )
    assert study.run() == "finished"
    return folder


def rows(run: Path) -> Mapping[str, views.CandidateRow]:
    """Rows by the text they stand for."""
    listed = {row.id: row for row in views.candidate_rows(run, "best", limit=None)}
    return {
        text: listed[Candidate.of({"pack.py": text}).id]
        for text in (HONEST, BETTER, CHEAT, LATER)
        if ident(text) in listed
    }


def ident(text: str, name: str = "pack.py") -> str:
    return Candidate.of({name: text}).id


def test_warn_notes_and_counts(tmp_path: Path) -> None:
    run = made(tmp_path / "run", HONEST, BETTER, CHEAT, LATER)
    status = views.run_status(run)
    assert (status.integrity, status.findings, status.reason) == ("warn", 1, "strategy_done")
    assert status.best is not None and status.best.id == ident(CHEAT)  # a warning changes nothing
    before = status.best_before_first_finding
    assert before is not None and (before.id, before.score) == (ident(BETTER), 5.0)
    assert json.loads(msgspec.json.encode(status))["best_before_first_finding"]["score"] == 5.0
    (seen,) = [o for o in views.stream_observations(run, ident(CHEAT))][:1]
    assert [s.name for s in seen.signs] == ["frames"] and seen.ok and seen.signs[0].line == 5
    assert rows(run)[CHEAT].grave and not rows(run)[CHEAT].barred
    assert replay_run(run, verify=True).data["matches"]


def test_reject_keeps_the_row_and_tells_why(tmp_path: Path) -> None:
    run = made(tmp_path / "run", HONEST, CHEAT, BETTER, policy="reject")
    status = views.run_status(run)
    assert status.best is not None and status.best.id == ident(BETTER)
    assert status.failures == {"integrity_frames": 1} and status.findings == 1
    (seen,) = views.stream_observations(run, ident(CHEAT))
    assert (seen.status, seen.reason, seen.score) == (Status.REJECTED, "integrity_frames", None)
    assert "looks into call frames" in seen.feedback and "pack.py:5" in seen.feedback
    assert rows(run)[CHEAT].barred and list(rows(run))  # the row is there
    assert views.candidate_rows(run, "best", limit=1)[0].id == ident(BETTER)
    assert replay_run(run, verify=True).data["matches"]


def test_stop_ends_the_search_and_says_what_to_type(tmp_path: Path) -> None:
    run = made(tmp_path / "run", HONEST, BETTER, CHEAT, LATER, policy="stop")
    status = views.run_status(run)
    assert (status.state, status.reason) == ("finished", "integrity") and exit_code(status) == 1
    assert status.best is not None and (status.best.id, status.best.confirmed) == (
        ident(BETTER),
        True,
    )
    assert (
        ident(LATER) not in {row.id for row in views.candidate_rows(run, limit=None)}
        or rows(run)[LATER].count == 0
    )
    told = status_document(status, run)
    commands = [*told["next"], *told["also"]]
    assert any(" audit " in f" {command} " for command in commands)
    assert any('integrity="reject"' in command for command in commands)
    assert replay_run(run, verify=True).data["matches"]


def test_the_policy_is_kept_by_resume(tmp_path: Path) -> None:
    """Ended by its budget before the cheat; a fork with more keeps the policy and meets it."""
    run = made(tmp_path / "run", HONEST, BETTER, CHEAT, policy="reject", budget=2)
    assert views.run_meta(run).integrity == "reject"
    forked = Study.fork(
        run,
        tmp_path / "fork",
        budget=Budget(evaluations=9),
        evaluator=value,
        strategy=Programs((HONEST, BETTER, CHEAT)),
    )
    forked.run()
    assert views.run_meta(forked.path).integrity == "reject"
    assert views.run_status(forked.path).failures == {"integrity_frames": 1}


def test_a_killed_run_resumes_under_its_policy(tmp_path: Path) -> None:
    """The journal up to the first evaluation, copied into a run of its own, then goes on."""
    whole = made(tmp_path / "whole", HONEST, BETTER, CHEAT, LATER, policy="stop")
    journal = SqlJournal.open(whole)
    events = list(journal.read(whole=True))
    first = next(e.seq for e in events if e.entry.kind == "done")
    copy = SqlJournal.create(tmp_path / "copy", msgspec.structs.replace(journal.meta, id="copy"))
    copy.append([e.entry for e in events if e.seq <= first])
    copy.close()
    study = Study.resume(
        tmp_path / "copy", evaluator=value, strategy=Programs((HONEST, BETTER, CHEAT, LATER))
    )
    assert study.run() == "finished"
    now = views.run_status(tmp_path / "copy")
    assert (now.reason, now.integrity, now.best and now.best.id) == (
        "integrity",
        "stop",
        ident(BETTER),
    )


@pytest.mark.parametrize(
    ("first", "second", "score"), [("warn", "reject", 6.0), ("reject", "warn", 9.0)]
)
def test_a_fork_may_change_the_policy(
    tmp_path: Path, first: str, second: str, score: float
) -> None:
    texts = (HONEST, CHEAT, LATER)
    run = made(tmp_path / "run", *texts, policy=first)
    forked = Study.fork(
        run, tmp_path / "fork", integrity=second, evaluator=value, strategy=Programs(texts)
    )
    forked.run()
    best = views.run_status(forked.path).best
    assert best is not None and best.score == score
    assert replay_run(forked.path, verify=True).data["matches"]


def test_a_policy_nobody_knows_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no policy 'shrug'"):
        made(tmp_path / "run", HONEST, policy="shrug")
    assert not (tmp_path / "run").exists()


def test_a_score_beyond_the_best_known_is_a_finding(tmp_path: Path) -> None:
    run = made(tmp_path / "run", HONEST, BETTER, LATER, objective=Objective(known=5.5))
    (finding,) = [each for each in find_signs(run) if each.grave]
    assert (finding.sign, finding.candidate, finding.score) == ("beyond_known", ident(LATER), 6.0)
    status = views.run_status(run)
    assert (
        status.best_before_first_finding is not None
        and status.best_before_first_finding.id == ident(BETTER)
    )


# -- the guard by itself
# -------------------------------------------------------------------------------------------


class Verified(Backend):
    """A backend whose verifier certifies at most 2; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def start(self) -> str:
        return "none"

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        self.asked.append(certify)
        score = float(candidate.text)
        told = {"certified": min(score, 2.0), "strict": score <= 2.0} if certify else {}
        return Observation(candidate.id, Status.OK, score, trust="verified", **told)

    async def close(self) -> None:
        return None


EXACT = Task(
    "t",
    seeds=({"x": "1.0"},),
    evaluator=Evaluator(verifier="/x/verify.py"),
    objective=Objective(known=2.5),
)


def guarded(policy: str, *values: str) -> tuple[list[Observation], list[bool]]:
    backend = Verified()
    whole = IntegrityBackend(backend, EXACT, policy)

    async def all_values() -> list[Observation]:
        return [await whole.evaluate(Candidate.of({"x": each}), None, 0) for each in values]

    return asyncio.run(all_values()), backend.asked


def test_what_is_beyond_the_known_is_certified_at_once() -> None:
    (plain, jump), asked = guarded("warn", "1.5", "3.0")
    assert asked == [False, False, True]
    assert plain.signs == () and plain.certified is None
    assert (jump.score, jump.certified, [s.name for s in jump.signs]) == (
        3.0,
        2.0,
        ["certified_gap"],
    )
    assert EXACT.effective_reward(jump) == 2.0 and EXACT.reward(jump) == 3.0


def test_a_gap_rejects_where_it_should() -> None:
    (seen,), _ = guarded("reject", "3.0")
    assert (seen.reason, seen.score, seen.metrics["claimed_score"]) == (
        "integrity_certified_gap",
        None,
        3.0,
    )
    assert seen.bars_candidate and seen.certified == 2.0 and EXACT.effective_reward(seen) is None


def test_lost_evaluations_and_refusals_stay_what_they_are() -> None:
    grave = (Sign("frames", "x", True),)
    lost = Observation("c", Status.LOST, signs=grave)
    assert apply_policy("reject", lost) is lost
    refused = apply_policy("reject", Observation("c", Status.OK, 1.0, signs=grave))
    assert apply_policy("stop", refused) is refused and refused.reason == "integrity_frames"
    assert reapply_policy({"m": refused, "n": lost}, "warn") == {"n": lost}
    assert reapply_policy({"m": refused}, "reject") == {"m": refused}


def test_only_barred_observations_stop_a_search() -> None:
    """The state machine alone: the same entries lead to the same end."""
    from culmen.engine.driver import graft_results

    def fed(policy: str, status: Status, reason: str) -> Search:
        search = Search(
            Programs((HONEST, BETTER)), EXACT, Budget(evaluations=9), 0, integrity=policy
        )
        (first,) = search.start()
        search.close()
        search = Search(
            Programs((HONEST, BETTER)), EXACT, Budget(evaluations=9), 0, integrity=policy
        )
        seen = Observation(
            "c",
            status,
            1.0 if status is Status.OK else None,
            reason=reason,
            signs=(Sign("frames", "x", True),),
        )
        graft_results(search, {first.mark: seen})
        search.close()
        return search

    assert fed("stop", Status.REJECTED, "integrity_frames").reason == "integrity"
    assert fed("reject", Status.REJECTED, "integrity_frames").phase == "search"
    assert fed("stop", Status.REJECTED, "memory_limit").phase == "search"
    assert fed("stop", Status.OK, "").phase == "search"


# -- both examples of the paper, end to end
# ------------------------------------------------------------------------


@pytest.mark.jail
@pytest.mark.parametrize(
    ("task", "name", "honest", "gamed"),
    [(packing, "pack.py", PACK, PUSHED), (triangle, "points.py", POINTS, SCALED)],
    ids=["radii pushed into the tolerance", "points scaled about their middle"],
)
def test_the_papers_examples_are_caught(
    tmp_path: Path, task: Any, name: str, honest: str, gamed: str
) -> None:
    need("restricted")
    folder = task(tmp_path / "task")
    run = tmp_path / "run"
    study = Study.create(
        folder,
        Programs((honest, gamed), name),
        budget=Budget(evaluations=12),
        run_dir=run,
        workers=2,
    )
    assert study.run() == "finished"

    fair, false = ident(honest, name), ident(gamed, name)
    listed = {row.id: row for row in views.candidate_rows(run, "best", limit=None)}
    assert listed[false].mean > listed[fair].mean  # the plain score believes it
    best = views.run_status(run).best
    assert best is not None and best.id == fair and best.certified is not None
    assert listed[false].certified is not None and listed[false].certified < best.certified
    assert next(iter(listed)) == fair  # the leaderboard as well

    found = {(each.candidate, each.sign): each for each in find_signs(run)}
    finding = found[false, "certified_gap"]
    assert finding.grave and finding.score is not None and finding.certified is not None
    assert (
        finding.score > best.certified > finding.certified
    )  # the honest certified score beside the claimed one
    assert (false, "tolerance") in found and (fair, "certified_gap") not in found
    status = views.run_status(run)
    assert (
        status.best_before_first_finding is not None and status.best_before_first_finding.id == fair
    )
    assert replay_run(run, verify=True).data["matches"]


@pytest.mark.jail
def test_rejected_for_the_gap_the_search_goes_on_with_the_honest_one(tmp_path: Path) -> None:
    need("restricted")
    folder, run = packing(tmp_path / "task"), tmp_path / "run"
    Study.create(
        folder,
        Programs((PACK, PUSHED)),
        budget=Budget(evaluations=12),
        run_dir=run,
        workers=2,
        integrity="reject",
    ).run()
    best = views.run_status(run).best
    assert best is not None and best.id == ident(PACK) and best.certified is not None
    assert (best.trust, best.strict, best.verified) == (
        "certified",
        False,
        False,
    )  # its repair was certified
    assert best.margin == 0.0  # a rejection of another makes no exact score doubtful
    last = list(views.stream_observations(run, ident(PUSHED)))[-1]
    assert (
        last.reason == "integrity_certified_gap" and last.metrics["claimed_score"] > best.certified
    )


def test_who_asks_for_the_best_again_looks_at_nothing_but_what_is_new(tmp_path: Path) -> None:
    """Every status asks for it: a verdict is found by its index, and no table is gone through."""
    from culmen.store.database import open_snapshot
    from culmen.store.evidence import evidence_of
    from tests.store.runs import new_run, observed, program, proposed

    journal = new_run(tmp_path)
    journal.append([proposed(100, *(program(key) for key in range(30)))])
    journal.append(
        [observed(key, program(key), float(key), certified=1.0, strict=True) for key in range(29)]
    )
    asked, steps = list[str](), list[str]()
    for key, score in ((40, 1.0), (41, 2.0)):
        journal.append([observed(key, program(29), score, certified=score, strict=False)])
        asked.clear()
        with open_snapshot(journal.run_dir) as connection:
            connection.raw.set_trace_callback(asked.append)
            with evidence_of(connection) as known:
                tally = known.evidence.account.tally(program(29).id)
            assert tally is not None and (tally.certified, tally.strict) == (1.0, False)
            connection.raw.set_trace_callback(None)
            plans = [f"EXPLAIN QUERY PLAN {sql}" for sql in asked if sql.startswith("SELECT")]
            steps = [row[-1] for plan in plans for row in connection.cursor().execute(plan)]
    journal.close()
    scans = {step for step in steps if step.startswith("SCAN")}
    assert scans == {"SCAN run", "SCAN tally USING INDEX tally_judged"}


def test_certified_values_rank_and_refused_outputs_come_last(tmp_path: Path) -> None:
    """The tables by themselves.

    Certified 4, one of 4.5 that failed, plain 3, refused 9, barred 8.
    """
    from tests.store.runs import new_run, observed, program, proposed

    journal = new_run(tmp_path)
    journal.append([proposed(100, *(program(key) for key in range(5)))])
    kinds: list[tuple[float | None, dict[str, Any]]] = [
        (3.0, {}),
        (5.0, {"certified": 4.0, "strict": False}),
        (9.0, {"strict": False}),
        (8.0, {}),
        (4.5, {}),
    ]
    for key, (score, more) in enumerate(kinds):
        journal.append([observed(key, program(key), score, **more)])
    barred = {"reason": "integrity_frames", "signs": (Sign("frames", "x", True),)}
    journal.append([observed(9, program(3), None, Status.REJECTED, **barred)])
    journal.append([observed(10, program(4), None, Status.ERROR)])
    listed = views.candidate_rows(journal.run_dir, "best", limit=None)
    order = [1, 4, 0, 2, 3]
    assert [row.id for row in listed] == [program(key).id for key in order]
    assert [row.search_mean for row in listed] == [5.0, 4.5, 3.0, 9.0, 8.0]
    assert (listed[0].mean, listed[0].margin, listed[0].certified) == (4.0, 0.0, 4.0)
    assert listed[1].mean is not None and 3.0 < listed[1].mean < 4.0  # it fails at times
    best = views.run_status(journal.run_dir).best
    assert best is not None and (best.id, best.score, best.certified) == (program(1).id, 4.0, 4.0)
    assert (best.value, best.strict, best.verified) == (4.0, False, False)
    assert views.progress_points(journal.run_dir)[-1].mean == 4.0
    page = views.candidate_page(journal.run_dir, views.CandidateQuery(sort="best"))
    assert [line.row for line in page.rows] == listed
    journal.append(
        [observed(11, program(1), 5.0, certified=2.0, strict=False)]
    )  # the worst certified value counts
    listed = views.candidate_rows(journal.run_dir, "best", limit=None)
    assert [row.id for row in listed] == [program(key).id for key in (4, 0, 1, 2, 3)]
    assert (listed[2].mean, listed[2].certified) == (2.0, 2.0)
    journal.close()


class Admitting:
    """Evaluates three programs; the maker of the second one admits its trick."""

    async def search(self, lab: Any) -> None:
        for text in (HONEST, BETTER):
            await lab.evaluate(Candidate.of({"pack.py": text}))
        lab.note(
            "admission",
            agent=1,
            evidence=["I exploit the evaluator's tolerance."],
            candidates=[ident(BETTER)],
        )
        await lab.evaluate(Candidate.of({"pack.py": LATER}))


def test_what_an_agent_admits_is_a_finding_of_its_candidates(tmp_path: Path) -> None:
    from culmen.run.options import function_task

    task = function_task({"pack.py": HONEST}, (), "", "max", "numbers", True, None, value)
    budget = Budget(evaluations=20)
    study = Study.create(
        task, Admitting(), budget=budget, run_dir=tmp_path / "run", workers=1, evaluator=value
    )
    assert study.run() == "finished"
    status = views.run_status(tmp_path / "run")
    assert status.findings == 1
    before = status.best_before_first_finding
    assert before is not None and before.id == ident(HONEST)
    (found,) = [each for each in find_signs(tmp_path / "run") if each.grave]
    assert (found.sign, found.candidate) == (
        "admits",
        ident(BETTER),
    ) and "agent a01" in found.evidence


UNSEEN = "not checked: not looked for by pushing: no output of numbers was seen"
UNPUSHED = (
    "not checked: the evaluator is a Python function, and its tolerances cannot be changed from "
    "outside; not looked for by pushing"
)


class Owning:
    """The program that scores most is one whose maker admits its trick."""

    async def search(self, lab: Any) -> None:
        for text in (HONEST, LATER):
            await lab.evaluate(Candidate.of({"pack.py": text}))
        lab.note(
            "admission",
            agent=1,
            evidence=["I exploit the evaluator's tolerance."],
            candidates=[ident(LATER)],
        )
        await lab.evaluate(Candidate.of({"pack.py": BETTER}))


@pytest.mark.parametrize(
    ("policy", "best", "tolerance"),
    [
        ("warn", LATER, UNSEEN),
        ("reject", BETTER, UNSEEN),
        ("stop", HONEST, UNPUSHED),
    ],
)
def test_what_an_agent_admits_bars_its_candidates_where_findings_do(
    tmp_path: Path, policy: str, best: str, tolerance: str
) -> None:
    """And a replay comes to the same end."""
    from culmen.run.options import function_task

    task = function_task({"pack.py": HONEST}, (), "", "max", "numbers", True, None, value)
    options: dict[str, Any] = {
        "budget": Budget(evaluations=20),
        "workers": 1,
        "evaluator": value,
        "integrity": policy,
    }
    study = Study.create(task, Owning(), run_dir=tmp_path / "run", **options)
    assert study.run() == "finished"
    status = views.run_status(tmp_path / "run")
    assert status.best is not None and status.best.id == ident(best)
    assert (status.reason == "integrity") is (policy == "stop")
    assert status.best.tolerance == tolerance
    with SqlJournal.open(tmp_path / "run") as journal:
        search = Search(
            Owning(), task, Budget(evaluations=20), journal.meta.seed, 1, integrity=policy
        )
        replay_journal(search, journal.read(), at_least)
    assert (
        search.is_done
        and search.result_so_far is not None
        and search.result_so_far.id == ident(best)
    )
    assert search.reason == status.reason
    search.close()
