"""Problem folders of programming contests, as an extension of culmen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from culmen.core.errors import TaskError
from culmen.core.evaluation import Case, Scoring
from culmen.core.extensions import Extension
from culmen.core.task import Evaluator, Objective, Surface, Task
from culmen.extensions.web.pages.added import Page
from culmen.extensions.web.runs import Digest
from culmen.store import views
from culmen.tasks import reading

EXTENSION = Extension(
    name="contest",
    task_folders={"contest": "culmen_contest:FOLDERS"},
    judges={"contest": "culmen_contest:ContestJudge"},
    pages={"contest": "culmen_contest:PAGE"},
)


class ContestFolders:
    """Reader of problem folders (`tasks.loading.FolderAdapter`)."""

    EVALUATOR: ClassVar[str] = ""
    READS_TASK_TOML: ClassVar[bool] = False

    def can_read_folder(self, folder: Path) -> bool:
        """True if there are a problem, a solution and tests."""
        return (folder / "problem.md").is_file() and any(folder.glob("tests/*.in"))

    def read_folder(self, folder: Path, goal: str = "") -> Task:
        """The task of a problem; raises `TaskError` for a test without its output."""
        solution = folder / "solution.py"
        if not solution.is_file():
            raise TaskError("there is no solution.py", where=str(folder), fix="write a first one")
        problem = folder / "problem.md"
        files, note = reading.evaluator_files(problem, [solution])
        evaluator = Evaluator(
            form="command",
            path=str(problem),
            command=("python3", "{solution.py}"),
            program=("contest:lines",),
            packages=(),
            files=files,
            digest=reading.evaluator_digest(files),
        )
        task = Task(
            name=folder.name,
            goal=goal or problem.read_text(encoding="utf-8").strip(),
            seeds=({"solution.py": solution.read_text(encoding="utf-8")},),
            evaluator=evaluator,
            cases=tuple(_read_case(path) for path in sorted(folder.glob("tests/*.in"))),
            surface=Surface(language="python"),
            notes=tuple(filter(None, (note,))),
            root=str(folder),
        )
        objective = Objective(bounds=(0.0, 1.0), target=1.0)
        return reading.with_digest(replace(task, deterministic=True, objective=objective))


def _read_case(path: Path) -> Case:
    expected = path.with_suffix(".out")
    if not expected.is_file():
        raise TaskError("a test has no output", where=str(path), fix=f"write {expected.name}")
    return Case(path.stem, path.read_text("utf-8"), expected.read_text("utf-8"))


FOLDERS = ContestFolders()


class ContestJudge:
    """Compares a solution's output with the expected one (`jail.spoken.JudgeType`)."""

    scoring: ClassVar[Scoring] = Scoring("verified")
    level: ClassVar[str] = "namespaces"
    starts_containers: ClassVar[bool] = False

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def score(self, output: str, case: Case) -> dict[str, Any]:
        """The share of expected lines that the output has, line by line."""
        expected, printed = str(case.info).split("\n"), output.split("\n")
        wrong = [n for n, line in enumerate(expected) if printed[n : n + 1] != [line]]
        share = 1 - len(wrong) / len(expected)
        return {"score": share, "feedback": f"line {wrong[0] + 1} is wrong" if wrong else ""}


def tests_page(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """The tests that the run's best program passes and fails."""
    best = views.run_status(run.run).best
    if best is None:
        return {"blocks": []}
    rows = [
        [row.case, row.score if row.score is not None else row.status, row.feedback]
        for row in views.candidate_detail(run.run, best.id).observations
    ]
    columns = ["test", "share of lines that are right", "first mistake"]
    table = {"kind": "table", "heading": "Tests", "columns": columns, "rows": rows}
    return {"blocks": [table]}


PAGE = Page("Tests", tests_page)
