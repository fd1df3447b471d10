"""Frontier-CS: `culmen import frontier-cs DIR` makes task folders of algorithmic problems.

A candidate is a C++ program, compiled once in the jail; each test is a case. The problem's own
testlib checker judges what the program printed, in the scorer's process. Interactive problems are
not imported: no candidate's command can be driven by an interactor. Programs that the benchmark
recorded become a bank. Frontier-CS: arXiv:2512.15699.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from culmen.core.errors import UserError
from culmen.core.foreign import yaml_value
from culmen.core.inside import path_inside, read_inside, text_inside
from culmen.core.json import JsonObject
from culmen.extensions.importers.importing import (
    PROBE_SECONDS,
    ImportedTask,
    choose_places,
    write_task_folder,
)

HEADER, CHECKER, PROGRAM = "testlib.h", "checker", "solution.cpp"
_SUFFIXES = (".cc", ".cpp")
_COMPILER = ("g++", "-O2", "-std=c++17")
# memory that compiling a program with all of the standard library takes
_LEAST_MB = 1024
_NUMBER = r"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)"
_RATIO = re.compile(rf"\bRatio:\s*{_NUMBER}")
_UNBOUNDED = re.compile(rf"\bRatioUnbounded:\s*{_NUMBER}")
_POINTS = re.compile(rf"^points\s+{_NUMBER}")
# exit statuses of testlib's verdicts
_OK, _WRONG, _POINTS_STATUS = 0, (1, 2, 8), 7
_MEGABYTES = {"k": 1 / 1024, "m": 1.0, "g": 1024.0}

# -- judging: in the scorer of an imported task -----------------------------------------------


def judge_output(folder: Path, given: str, output: str, answer: str) -> JsonObject:
    """The checker's verdict on an output: a ratio from 0 to 1 (wrong ones: 0), and its message.

    Raises RuntimeError if the checker itself fails.
    """
    with tempfile.TemporaryDirectory() as place:
        files = []
        for name, text in (("in", given), ("out", output), ("ans", answer)):
            files.append(Path(place, name))
            files[-1].write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [folder / CHECKER, *files],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60.0,
            check=False,
        )
    message = (ran.stderr.strip() or ran.stdout.strip())[:2000]
    if ran.returncode not in (_OK, *_WRONG, _POINTS_STATUS):
        raise RuntimeError(f"the checker ended with status {ran.returncode}: {message}")
    return _verdict(ran.returncode, message)


def _verdict(status: int, message: str) -> JsonObject:
    if status in _WRONG:
        return {"score": 0.0, "feedback": message}
    found = _RATIO.search(message) or _POINTS.search(message)
    if status == _POINTS_STATUS and found is None:
        raise RuntimeError(f"the checker gives no points: {message}")
    ratio = 1.0 if found is None or status == _OK else float(found[1])
    unbounded = _UNBOUNDED.search(message)
    metrics = {"unbounded": float(unbounded[1])} if unbounded else {}
    return {"score": min(1.0, max(0.0, ratio)), "metrics": metrics, "feedback": message}


# -- the import -------------------------------------------------------------------------------

EVALUATOR = '''\
"""Frontier-CS problem {name}: the checker chk{suffix} judges what the program printed."""

from pathlib import Path

from culmen.extensions.importers.frontier_cs import judge_output


def score(output, case):
    """The checker's ratio; the answer that it compares with is not seen by the program."""
    return judge_output(Path(__file__).parent, case.input, output, case.info)
'''
GOAL = """\
Write solution.cpp, a C++17 program that reads a test from standard input and writes to standard \
output. The score is the mean over the tests of what the problem's checker gives, from 0 to 1.

{statement}
"""
START = """\
#include <bits/stdc++.h>

int main() {
    return 0;
}
"""


class ImportedProblem(ImportedTask, kw_only=True):
    """The result of importing one problem: its tests, their time limit, recorded programs."""

    cases: int = 0
    seconds: float = 0.0
    programs: int = 0


class ProblemError(Exception):
    """A problem that cannot be imported, and the smallest change."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


def problem_folders(checkout: Path, names: Sequence[str]) -> dict[str, Path]:
    """The problems' folders by name: all of a checkout, or those named.

    Raises `UserError` for a folder that is no checkout, or unknown names.
    """
    root = next(
        (
            place
            for place in (checkout / "algorithmic" / "problems", checkout / "problems", checkout)
            if any(place.glob("*/config.yaml"))
        ),
        None,
    )
    if root is None:
        raise UserError(
            "no problem of Frontier-CS is here: there is no algorithmic/problems/NAME/config.yaml",
            where=str(checkout),
            fix="give a checkout: git clone https://github.com/FrontierCS/Frontier-CS",
        )
    found = {path.parent.name: path.parent for path in root.glob("*/config.yaml")}
    found = dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))
    return choose_places(found, names, "problem", root)


def find_header(checkout: Path, named: Path | None) -> Path:
    """The file testlib.h: the one named, of the checkout, or of the system; raises `UserError`."""
    places = [named] if named else [*sorted(checkout.rglob(HEADER)), *_system_headers()]
    for place in places:
        if place.is_file():
            return place
    raise UserError(
        "testlib.h, which the checkers include, was not found",
        where=str(named or checkout),
        fix=(
            "git clone https://github.com/MikeMirzayanov/testlib, then add --testlib "
            "testlib/testlib.h"
        ),
    )


def _system_headers() -> Iterator[Path]:
    return (Path(place, HEADER) for place in ("/usr/local/include", "/usr/include"))


def import_problem(folder: Path, target: Path, header: Path) -> ImportedProblem:
    """Write the task folder of one problem into `target`."""
    try:
        return _write_task(_Problem(folder), target, header)
    except ProblemError as error:
        return ImportedProblem(name=folder.name, error=str(error), fix=error.fix)


class _Problem:
    """The files of one problem; raises ProblemError for what is missing or not supported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name, self.notes = folder, folder.name, list[str]()
        self.settings = self._read_settings()
        if self.settings.get("type") == "interactive" or self._named_file("interactor") is not None:
            fix = "leave it out: name the problems to import"
            raise ProblemError("it is interactive, which culmen cannot run", fix)
        checker = self._named_file("checker", *("chk", "checker", "check"))
        if checker is None:
            fix = f"put its checker at {folder / 'chk.cc'}"
            raise ProblemError("it has no checker", fix)
        self.checker = checker
        self.tests = sorted(folder.glob("testdata/*.in"), key=lambda path: (len(path.name), path))
        if not self.tests:
            raise ProblemError("it has no test", f"put tests at {folder / 'testdata' / '1.in'}")
        self._note_counts()

    def _read_settings(self) -> JsonObject:
        import yaml

        path = self.folder / "config.yaml"
        try:
            found = yaml_value(text_inside(self.folder, path.name))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ProblemError(f"config.yaml cannot be read: {error}", f"correct {path}") from None
        if not isinstance(found, dict):
            raise ProblemError("config.yaml has no settings", f"correct {path}")
        return found

    def _named_file(self, setting: str, *usual: str) -> Path | None:
        """The C++ file that a setting names, or one of the usual names."""
        named = self.settings.get(setting)
        names = [str(named)] if named else []
        names += [f"{name}{suffix}" for name in (usual or (setting,)) for suffix in _SUFFIXES]
        return next((p for name in names if (p := path_inside(self.folder, name)).is_file()), None)

    def _note_counts(self) -> None:
        subtasks = self.settings.get("subtasks") or []
        counts = [s.get("n_cases", 0) for s in subtasks if isinstance(s, dict)]
        if len(counts) > 1:
            self.notes.append("its tests count alike, not by the scores of its subtasks")
        if sum(counts) > len(self.tests):
            self.notes.append(f"{len(self.tests)} of its {sum(counts)} tests are public")

    @property
    def seconds(self) -> float:
        """The time limit of one test."""
        value = self.settings.get("time", self.settings.get("time_limit", "1s"))
        text = str(value).strip().lower()
        if isinstance(value, int | float):
            return value / 1000  # a plain number is in milliseconds
        try:
            return float(text[:-2]) / 1000 if text.endswith("ms") else float(text.rstrip("s"))
        except ValueError:
            raise self._bad_limit("time", text) from None

    @property
    def memory_mb(self) -> int:
        """The memory limit, at least what compiling takes."""
        value = self.settings.get("memory", self.settings.get("memory_limit", "256m"))
        text = str(value).strip().lower().rstrip("b")
        try:
            if isinstance(value, int | float):
                amount = value / 1024  # a plain number is in kilobytes
            else:
                amount = float(text[:-1]) * _MEGABYTES[text[-1:]]
        except (ValueError, KeyError):
            raise self._bad_limit("memory", text) from None
        if amount < _LEAST_MB:
            self.notes.append(f"{_LEAST_MB} MB of memory, which compiling takes, for {amount:g}")
        return max(_LEAST_MB, round(amount))

    def _bad_limit(self, name: str, text: str) -> ProblemError:
        return ProblemError(
            f"the limit {name}: {text!r} cannot be read", f"correct {self.folder / 'config.yaml'}"
        )

    @property
    def goal(self) -> str:
        path = self.folder / "statement.txt"
        if not path.is_file():
            raise ProblemError("it has no statement", f"put it at {path}")
        return GOAL.format(statement=_text_in(self.folder, path.name).strip())

    def case_lines(self) -> Iterator[str]:
        """The tests as cases; answers are facts for the scorer alone."""
        for test in self.tests:
            answer = test.with_suffix(".ans")
            yield (
                json.dumps(
                    {
                        "id": test.stem,
                        "input": _text_in(test.parent, test.name),
                        "info": _text_in(test.parent, answer.name) if answer.is_file() else "",
                    }
                )
                + "\n"
            )

    def recorded_programs(self) -> Iterator[tuple[str, Path]]:
        """(model, file) of the programs that the benchmark recorded for this problem."""
        for path in sorted(self.folder.parents[1].glob(f"solutions/{self.name}/*.cpp")):
            yield re.sub(r"_\d+$", "", path.stem), path


def _text_in(folder: Path, name: str) -> str:
    return read_inside(folder, name).decode("utf-8", "replace").replace("\r\n", "\n")


def _write_task(problem: _Problem, target: Path, header: Path) -> ImportedProblem:
    checker = f"chk{problem.checker.suffix}"
    cases, programs = list(problem.case_lines()), list(problem.recorded_programs())
    settings = {
        "": {
            "name": f"frontier_{problem.name}",
            "goal": problem.goal,
            "cases": "cases.jsonl",
            "deterministic": False,
        },
        "seed": {"files": [PROGRAM]},
        "evaluator": {
            "form": "command",
            "build": [*_COMPILER, "-o", "solution", f"{{{PROGRAM}}}"],
            "command": ["./solution"],
            "packages": [],
        },
        "objective": {"direction": "max", "bounds": [0, 1]},
        "limits": {
            "seconds": problem.seconds,
            "memory_mb": problem.memory_mb,
            "output_kb": 65536,
            "scorer_seconds": 120,
        },
    }
    texts = {
        "cases.jsonl": "".join(cases),
        "evaluator.py": EVALUATOR.format(name=problem.name, suffix=problem.checker.suffix),
        PROGRAM: START,
    }
    with tempfile.TemporaryDirectory() as place:
        shutil.copyfile(header, Path(place, HEADER))
        compiled = Path(place, CHECKER)
        compile_checker(problem.checker, compiled)
        copies = {HEADER: header, checker: problem.checker, CHECKER: compiled}
        copies |= {f"bank/{model}/{path.name}": path for model, path in programs}
        write_task_folder(
            target,
            f"Frontier-CS, algorithmic problem {problem.name}. Its checker was compiled on the "
            "machine that imported it:\nelsewhere, run the import again. Not deterministic: "
            "programs may search until their time is over.",
            settings,
            texts,
            copies,
        )
    return ImportedProblem(
        name=problem.name,
        folder=str(target),
        cases=len(cases),
        seconds=problem.seconds,
        programs=len(programs),
        notes=problem.notes,
    )


def compile_checker(source: Path, target: Path) -> None:
    """Compile a checker with the header in the folder of `target`.

    Raises ProblemError with the first error.
    """
    if shutil.which(_COMPILER[0]) is None:
        raise ProblemError("g++ is not installed", "sudo apt install g++")
    line = [*_COMPILER, "-I", str(target.parent), "-o", str(target), str(source)]
    ran = subprocess.run(
        line, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS, check=False
    )
    if ran.returncode:
        first = next((s for s in ran.stderr.splitlines() if "error" in s), ran.stderr[:300])
        raise ProblemError(f"its checker does not compile: {first}", f"correct {source}")
