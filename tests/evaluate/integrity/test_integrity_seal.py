"""An evaluator whose files change stops the run.

It stays stopped until they are put back or it is forked.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from culmen import Study
from culmen.core.candidate import Candidate
from culmen.core.usage import Budget
from culmen.evaluate.integrity.guard import EvaluatorChanged, EvaluatorSeal
from culmen.evaluate.local import LocalBackend
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.tasks import load

EVALUATOR = "import helper\ndef score(output):\n    return output + helper.BONUS\n"
PROGRAM = "def run():\n    return 1.0\n"
TOML = '[seed]\nfiles = ["p.py"]\n'


def folder(path: Path, **more: str) -> Path:
    files = {
        "evaluator.py": EVALUATOR,
        "helper.py": "BONUS = 1.0\n",
        "p.py": PROGRAM,
        "task.toml": TOML,
        **more,
    }
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_files_that_are_touched_are_read_again_and_only_other_contents_count(
    tmp_path: Path,
) -> None:
    place = folder(tmp_path / "task", data__csv="1,2\n")
    task = load(place)
    assert set(task.evaluator.files) == {"evaluator.py", "helper.py", "data__csv"}
    seal = EvaluatorSeal(task.evaluator)
    seal.require_unchanged()
    text = (place / "helper.py").read_text()
    (place / "helper.py").unlink()
    with pytest.raises(EvaluatorChanged, match=r"helper\.py is missing"):
        seal.require_unchanged()
    (place / "helper.py").write_text(text)
    os.utime(place / "evaluator.py", ns=(1, 1))
    (place / "p.py").write_text(
        "def run(): return 2\n"
    )  # a seed is copied into the journal, not read again
    (place / "new.txt").write_text("a file that was not there")
    seal.require_unchanged()
    (place / "data__csv").write_text("1,3\n")
    with pytest.raises(EvaluatorChanged, match="data__csv was changed") as caught:
        seal.require_unchanged()
    in_run = caught.value.in_run().fix
    assert (
        "culmen resume" in in_run
        and "culmen runs fork" in in_run
        and "culmen" not in caught.value.fix
    )


@pytest.mark.jail
def test_a_change_between_two_evaluations_is_seen_by_the_next(tmp_path: Path) -> None:
    place = folder(tmp_path / "task")
    task = load(place)

    async def work() -> None:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            candidate = Candidate.of({"p.py": PROGRAM})
            assert (await backend.evaluate(candidate, None, 0)).score == 2.0
            (place / "evaluator.py").write_text(EVALUATOR.replace("BONUS", "BONUS + 100"))
            with pytest.raises(EvaluatorChanged, match=r"evaluator.py was changed"):
                await backend.evaluate(candidate, None, 0)
        finally:
            await backend.close()
        with pytest.raises(EvaluatorChanged):
            await LocalBackend(task, 1).start()

    asyncio.run(work())


class Meddler:
    """Changes a file once the run has evaluated something."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def see(self, events: Any) -> None:
        if any(event.entry.effect == "evaluate" and event.entry.kind == "done" for event in events):
            self.path.write_text(self.text)


@pytest.mark.slow
@pytest.mark.jail
def test_a_run_halts_stays_halted_and_goes_on_when_the_file_is_back(tmp_path: Path) -> None:
    place, run = folder(tmp_path / "task"), tmp_path / "run"
    meddler = Meddler(place / "helper.py", "BONUS = 100.0\n")
    study = Study.create(
        load(place),
        "best_of_n",
        budget=Budget(evaluations=40),
        run_dir=run,
        workers=1,
        observers=(meddler,),
    )
    with pytest.raises(EvaluatorChanged, match=r"helper\.py was changed"):
        study.run()
    status = views.run_status(run)
    assert status.state == "paused" and "helper.py was changed" in status.error
    assert all(o.score < 50 for o in study.observations() if o.score is not None)
    with pytest.raises(EvaluatorChanged):
        Study.resume(run).run()
    before = views.run_status(run).evaluations

    forked = Study.fork(run, tmp_path / "fork")
    assert forked.meta.task.evaluator.digest != study.meta.task.evaluator.digest
    assert (
        forked.run() == "finished"
    )  # with the evaluator as it is; nothing scored by the other one is taken over
    assert all(o.score > 50 for o in forked.observations() if o.score is not None)

    (place / "helper.py").write_text("BONUS = 1.0\n")
    assert Study.resume(run).run() == "finished" and views.run_status(run).evaluations > before
    assert Study.fork(run, tmp_path / "again").meta.task == study.meta.task


COUNTING = (
    "import os\ncalls = []\n"
    "def score(output, seed):\n    calls.append(seed)\n"
    "    return {'score': output, 'metrics': {'calls': len(calls), 'process': os.getpid(), 'drawn': seed}}\n"
)
DRAWING = "import random, os\nseen = []\ndef run():\n    seen.append(1)\n    return len(seen) + random.random() / 10\n"


@pytest.mark.jail
@pytest.mark.extension("audit")
def test_finalists_run_in_fresh_processes_with_fresh_seeds_before_fresh_scorers(
    tmp_path: Path,
) -> None:
    place, run = (
        folder(tmp_path / "task", **{"evaluator.py": COUNTING, "p.py": DRAWING}),
        tmp_path / "run",
    )
    study = Study.create(
        load(place), "best_of_n", budget=Budget(evaluations=40), run_dir=run, workers=2
    )
    assert study.run() == "finished"
    final, search = [], []
    journal = SqlJournal.open(run, write=False)
    done = [event.entry for event in journal.read(whole=True) if event.entry.kind == "done"]
    journal.close()
    for entry, result in ((entry, entry.result) for entry in done):
        if entry.effect == "evaluate" and result.ok:
            (final if entry.body.get("phase") == "final" else search).append(result)
    assert final and search
    assert (
        not {o.seed for o in final} & {o.seed for o in search} and len({o.seed for o in final}) > 1
    )
    (seed,) = study.meta.task.initial_candidates()
    again = [o.score for o in (*search, *final) if o.candidate == seed.id]
    assert all(1.0 <= score < 1.2 for score in again)  # nothing is left of an earlier evaluation
    assert not {o.metrics["process"] for o in final} & {o.metrics["process"] for o in search}
    assert min(o.metrics["calls"] for o in final) == 1.0
