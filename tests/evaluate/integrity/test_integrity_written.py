"""Files that grow or change beside the evaluator while it judges.

They are named, and are damage only where scores could differ.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from culmen import Study
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation
from culmen.core.usage import Budget
from culmen.evaluate.check import check_task
from culmen.evaluate.integrity.guard import EvaluatorChanged, EvaluatorSeal
from culmen.evaluate.local import LocalBackend
from culmen.extensions.cluster import messages
from culmen.store import views
from culmen.tasks import load, with_present_files
from culmen.tasks.reading import evaluator_digest

PROGRAM = "def run():\n    return 3.0\n"
TOML = '[seed]\nfiles = ["p.py"]\n[evaluator]\npackages = []\n'
PLAIN = "def score(output):\n    return output\n"
LOGGING = (
    "import os\nF = os.path.join(os.path.dirname(__file__), 'log.txt')\n"
    "def score(output):\n    open(F, 'a').write('x\\n')\n    return output\n"
)
INSERTING = (
    "import os, sqlite3\nF = os.path.join(os.path.dirname(__file__), 'data.sqlite3')\n"
    "def score(output):\n    with sqlite3.connect(F, timeout=30) as db:\n"
    "        db.execute('create table if not exists t (x)')\n        db.execute('insert into t values (1)')\n"
    "    return output\n"
)
CLI = "import sys\nfrom culmen.cli.main import main\nsys.argv[0] = 'culmen'\nsys.exit(main())\n"


def folder(path: Path, evaluator: str = PLAIN, more: str = "", **files: str) -> Path:
    path.mkdir(exist_ok=True)
    texts = {"evaluator.py": evaluator, "p.py": PROGRAM, "task.toml": TOML + more, **files}
    for name, text in texts.items():
        (path / name).write_text(text)
    return path


def shell(place: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in a folder, with `culmen` as a command."""
    line = f'culmen() {{ "{sys.executable}" -c "$CULMEN" "$@"; }}\nset -o pipefail\n{words}'
    environment = {**os.environ, "CULMEN": CLI}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def evaluate(place: Path, times: int, meanwhile: Any = None) -> list[Observation]:
    """Observations of the initial program; `meanwhile` is called before the second."""
    task = load(place)

    async def work() -> list[Observation]:
        backend, seen = LocalBackend(task, 1), list[Observation]()
        try:
            await backend.start()
            for number in range(times):
                if number == 1 and meanwhile is not None:
                    meanwhile()
                seen.append(await backend.evaluate(Candidate.of({"p.py": PROGRAM}), None, number))
        finally:
            await backend.close()
        return seen

    return asyncio.run(work())


@pytest.mark.jail
@pytest.mark.parametrize(
    "words",
    [
        "culmen check . > out.txt 2>&1",
        "culmen check . > out.txt 2> err",
        "culmen check . 2>&1 | tee out.txt",
        "culmen run . --budget evaluations=4 > out.txt 2>&1",
        "culmen run . --budget evaluations=4 2>&1 | tee out.txt",
    ],
)
def test_output_that_goes_to_a_file_in_the_folder_is_no_damage(tmp_path: Path, words: str) -> None:
    ended = shell(folder(tmp_path / "task"), words)
    assert ended.returncode == 0, ended.stdout + (tmp_path / "task" / "out.txt").read_text()
    text = (tmp_path / "task" / "out.txt").read_text()
    assert ("can be searched" in text or "next: culmen" in text) and "Error" not in text


@pytest.mark.jail
def test_a_log_is_named_by_every_check_and_by_a_run(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", LOGGING)
    for _ in range(2):
        ended = shell(place, "culmen check .")
        assert ended.returncode == 0 and "files written: log.txt" in ended.stdout, ended.stderr
    ended = shell(
        place, "culmen run . --budget evaluations=4 --run-dir first && culmen status first"
    )
    assert ended.returncode == 0 and "written: log.txt" in ended.stdout, ended.stderr
    assert views.run_status(place / "first").written == ("log.txt",)
    # the folder of a run is no part of the evaluator
    assert not any(name.startswith("first") for name in load(place).evaluator.files)


@pytest.mark.jail
def test_only_the_evaluation_that_is_first_seen_to_write_names_the_file(tmp_path: Path) -> None:
    place = folder(tmp_path / "new", LOGGING)
    assert [o.left for o in evaluate(place, 3)] == [("file log.txt",), (), ()]
    assert [o.left for o in evaluate(place, 3)] == [("file log.txt",), (), ()]  # it is there now
    assert [o.left for o in evaluate(folder(tmp_path / "plain"), 2)] == [(), ()]


class Halt:
    """Stops a run after its first evaluation: changes the evaluator's text.

    The test restores the text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def see(self, events: Any) -> None:
        if any(event.entry.effect == "evaluate" and event.entry.kind == "done" for event in events):
            self.path.write_text("# other\n")


@pytest.mark.jail
def test_a_run_goes_on_although_the_log_grew_meanwhile(tmp_path: Path) -> None:
    place, run = folder(tmp_path / "task", LOGGING, **{"log.txt": "first\n"}), tmp_path / "run"
    study = Study.create(
        *(load(place), "best_of_n"),
        budget=Budget(evaluations=12),
        run_dir=run,
        workers=1,
        observers=(Halt(place / "evaluator.py"),),
    )
    with pytest.raises(EvaluatorChanged, match=r"evaluator\.py was changed") as caught:
        study.run()
    assert "culmen resume" in caught.value.fix and "culmen runs fork" in caught.value.fix
    folder(place, LOGGING)
    with (place / "log.txt").open("a") as log:
        log.write("by somebody\n")
    # results stay those of this evaluator
    fork = Study.fork(run, tmp_path / "fork")
    assert fork.meta.task.evaluator.digest == study.meta.task.evaluator.digest
    text = (place / "log.txt").read_text()
    (place / "log.txt").write_text("other\n")
    with pytest.raises(EvaluatorChanged, match=r"log\.txt was changed") as caught:
        Study.resume(run).run()
    assert "culmen resume" in caught.value.fix and "culmen runs fork" in caught.value.fix
    (place / "log.txt").write_text(text)
    assert Study.resume(run).run() == "finished"
    assert views.run_status(run).written == ("log.txt",)


@pytest.mark.jail
def test_data_that_evaluations_rewrite_is_refused_unless_the_evaluator_keeps_state(
    tmp_path: Path,
) -> None:
    place = folder(tmp_path / "task", INSERTING)
    first = shell(place, "culmen check .")
    assert (
        first.returncode == 0
        and "files rewritten while the evaluator judged: data.sqlite3" in first.stdout
    )
    for words in ("culmen check .", "culmen run . --budget evaluations=4 --run-dir r"):
        ended = shell(place, words)
        assert ended.returncode == 2
        assert "data.sqlite3 was changed while the evaluator judged" in ended.stderr
        assert "keeps_state = true" in ended.stderr
        assert "since the run" not in ended.stderr and "culmen resume" not in ended.stderr
    folder(place, INSERTING, "keeps_state = true\n")
    assert [o.left for o in evaluate(place, 3)] == [("file data.sqlite3 (rewritten)",), (), ()]
    ended = shell(place, "culmen check .")
    assert (
        ended.returncode == 0
        and "files rewritten while the evaluator judged: data.sqlite3" in ended.stdout
    )


@pytest.mark.jail
def test_a_change_of_data_between_two_evaluations_speaks_of_no_run(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", **{"data.csv": "1,2\n"})
    with pytest.raises(EvaluatorChanged, match=r"data\.csv was changed: ") as caught:
        evaluate(place, 2, lambda: (place / "data.csv").write_text("9,9\n"))
    assert "run" not in caught.value.what and "culmen" not in caught.value.fix
    in_run = caught.value.in_run()
    assert in_run.what == caught.value.what
    assert "culmen resume RUN" in in_run.fix and "culmen runs fork RUN" in in_run.fix


@pytest.mark.jail
def test_a_check_names_the_change_of_a_program_without_a_run(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", "import helper\n" + PLAIN, **{"helper.py": "A = 1\n"})
    task = load(place)
    (place / "helper.py").write_text("A = 1\nA = 2\n")  # a program that only grew has changed
    with pytest.raises(EvaluatorChanged, match=r"helper\.py was changed") as caught:
        asyncio.run(check_task(task, LocalBackend(task, 1)))
    assert "resume" not in str(caught.value) and "since the run" not in str(caught.value)


def test_programs_and_settings_may_not_grow_and_data_may(tmp_path: Path) -> None:
    names = ("helper.py", "tool.js", "settings.yaml", "run.sh", "more.ini")
    place = folder(tmp_path / "task", **dict.fromkeys((*names, "data.csv"), "a: 1\n"))
    task = load(place)
    for name in names:
        seal = EvaluatorSeal(task.evaluator)
        (place / name).write_text("a: 1\nb: 2\n")
        with pytest.raises(EvaluatorChanged, match=f"{name} was changed"):
            seal.require_unchanged()
        (place / name).write_text("a: 1\n")
    seal = EvaluatorSeal(task.evaluator)
    (place / "data.csv").write_text("a: 1\nb: 2\n")
    seal.require_unchanged()
    assert seal.written == {"data.csv"}
    (place / "data.csv").write_text("a: 1\n")
    with pytest.raises(EvaluatorChanged, match=r"data\.csv was changed"):
        seal.require_unchanged()


def test_a_long_log_may_go_on_growing_and_not_begin_anew(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", **{"log.txt": "x" * 100_000})
    seal = EvaluatorSeal(load(place).evaluator)
    for _ in range(3):
        with (place / "log.txt").open("a") as log:
            log.write("y" * 50_000)
        seal.require_unchanged()
    (place / "log.txt").write_text("z" * 300_000)
    with pytest.raises(EvaluatorChanged):
        seal.require_unchanged()


def test_records_without_sizes_hold_as_before(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", **{"log.txt": "first\n"})
    task = load(place)
    files = {name: record.partition(":")[0] for name, record in task.evaluator.files.items()}
    assert files != task.evaluator.files and evaluator_digest(files) == task.evaluator.digest
    old = replace(task, evaluator=replace(task.evaluator, files=files))
    EvaluatorSeal(old.evaluator).require_unchanged()
    assert with_present_files(old) == old
    (place / "log.txt").write_text("first\nsecond\n")
    with pytest.raises(EvaluatorChanged):
        EvaluatorSeal(old.evaluator).require_unchanged()


def test_an_empty_file_may_go_and_one_with_content_may_not(tmp_path: Path) -> None:
    place = folder(tmp_path / "task", **{"out.txt": "", "data.csv": "1\n"})
    task = load(place)
    (place / "out.txt").unlink()
    EvaluatorSeal(task.evaluator).require_unchanged()
    (place / "data.csv").unlink()
    with pytest.raises(EvaluatorChanged, match=r"data\.csv is missing"):
        EvaluatorSeal(task.evaluator).require_unchanged()


def test_files_of_editors_and_of_tests_are_no_part_of_the_evaluator(tmp_path: Path) -> None:
    place = folder(tmp_path / "task")
    files = load(place).evaluator.files
    for name in (".evaluator.py.swp", "evaluator.py~", "#evaluator.py#", "data.sqlite3-wal"):
        (place / name).write_text("x")
    for below in ("__pycache__", ".pytest_cache", "runs", "logs"):
        (place / below).mkdir()
        (place / below / "a.txt").write_text("x")
    assert load(place).evaluator.files == files


def test_a_node_takes_a_log_that_grew_after_the_task_was_read(tmp_path: Path) -> None:
    place = folder(tmp_path / "here", **{"log.txt": "first\n", "data.csv": "1\n"})
    task = load(place)
    (place / "log.txt").write_text("first\nsecond\n")
    sent = messages.pack_task(task)
    arrived = messages.unpack_task(sent, messages.parcel_digest(sent), tmp_path / "there")
    assert arrived.evaluator.digest == task.evaluator.digest
    wrong = replace(task, evaluator=replace(task.evaluator, digest="0" * 64))
    sent = messages.pack_task(wrong)
    with pytest.raises(TaskError, match="digest"):
        messages.unpack_task(sent, messages.parcel_digest(sent), tmp_path / "elsewhere")
