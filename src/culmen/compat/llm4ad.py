"""LLM4AD: `culmen import llm4ad DIR` makes task folders of evaluator classes.

A task of LLM4AD is a class `Evaluation` that calls the function to be designed many times. Here it
drives the function, which runs in the jail, from the scorer's process (form serve). The task's
files are copied unchanged; nothing else of LLM4AD is needed: `install_stand_ins` provides the base
class. LLM4AD: Liu et al. 2024, arXiv:2412.17287.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate.jail.scorer import Invalid
from culmen.evaluate.taskfiles.loading import toml_text

ROOT, FILE = "llm4ad", "evaluation.py"
_PROBE_SECONDS = 300.0
_CALL_SECONDS = 2e-3  # that one call into the jail may take
_LEAST_SECONDS = 30.0

# -- evaluators: their base class, and how they are loaded ------------------------------------


class Evaluation:
    """The base class of LLM4AD's evaluators, with the settings that matter here."""

    def __init__(
        self, template_program: object, task_description: str = "", **settings: object
    ) -> None:
        self.template_program = str(template_program)
        self.task_description = task_description
        settings.pop("timeout_seconds", None)
        self.exec_code = settings.pop("exec_code", True) is not False
        self.settings = settings

    def evaluate_program(self, program_str: str, callable_func: Callable[..., object]) -> object:
        """The fitness of a function, larger is better; None if it is not acceptable."""
        raise NotImplementedError


def install_stand_ins(folder: Path, name: str) -> None:
    """Let the files in `folder` import LLM4AD's base, and one another as package `name`."""
    base = ModuleType(f"{ROOT}.base")
    base.__dict__["Evaluation"] = Evaluation
    sys.modules.setdefault(base.__name__, base)
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:depth]))
        package.__path__ = [str(folder)] if depth == len(parts) else []
        sys.modules.setdefault(package.__name__, package)


def load_evaluation(folder: Path, name: str) -> Evaluation:
    """The evaluator of a task's files.

    Raises what they raise, and LookupError if no class derives from `Evaluation`.
    """
    install_stand_ins(folder, name)
    module = importlib.import_module(f"{name}.{FILE.removesuffix('.py')}")
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Evaluation) and kind is not Evaluation
    ]
    if not kinds:
        raise LookupError(f"{FILE} has no class that derives from Evaluation")
    return kinds[-1]()  # pyright: ignore[reportCallIssue] - an evaluator has defaults for all


def fitness_of(evaluation: Evaluation, call: Callable[..., object]) -> float:
    """The fitness of a function; raises Invalid if the evaluator does not accept it.

    The evaluator does not get the program's text, which it might run.
    """
    value = evaluation.evaluate_program("", call)
    if isinstance(value, dict):
        value = value.get("score", value.get("objective"))
    if value is None:
        raise Invalid("the evaluator does not accept the function")
    number = float(value)  # pyright: ignore[reportArgumentType]
    if not math.isfinite(number):
        raise Invalid(f"the fitness is {number}")
    return number


# -- one task: what it needs; in a process of its own -----------------------------------------


def probe_task(folder: Path, name: str) -> JsonObject:
    """Facts of one task, from its initial program; raises what its files raise."""
    evaluation = load_evaluation(folder, name)
    if not evaluation.exec_code:
        return {"runs_code": True}
    program = evaluation.template_program.strip() + "\n"
    entry = entry_of(program)
    names: JsonObject = {"__name__": "program"}
    exec(compile(program, "program.py", "exec"), names)
    calls = 0

    def call(*values: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        return names[entry](*values, **named)

    begun = time.monotonic()
    try:
        score: float | None = fitness_of(evaluation, call)
    except Invalid:
        score = None
    return {
        "program": program,
        "entry": entry,
        "goal": evaluation.task_description.strip(),
        "runs_code": False,
        "ignored": sorted(key for key, value in evaluation.settings.items() if value),
        "calls": calls,
        "seconds": time.monotonic() - begun,
        "score": score,
    }


def entry_of(program: str) -> str:
    """The name of the function to be designed: the last one; raises LookupError."""
    functions = [node for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise LookupError("the template has no function")
    return functions[-1].name


def run_probe() -> None:
    """Entry point of the probe's process: folder and package in, one JSON document out."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = probe_task(Path(sys.argv[1]), sys.argv[2])
    except ModuleNotFoundError as error:
        answer = {"error": str(error), "package": error.name or ""}
    except Exception as error:  # noqa: BLE001 - a task's files may raise anything; it becomes an answer
        answer = {"error": f"{type(error).__name__}: {error}"[:600], "package": ""}
    out.write(json.dumps(answer))
    out.flush()
    os._exit(0)


# -- the import -------------------------------------------------------------------------------

EVALUATOR = '''\
"""LLM4AD's task {name}: its evaluator calls the function, which runs in the jail."""

from pathlib import Path

from culmen.compat.llm4ad import fitness_of, load_evaluation

EVALUATION = load_evaluation(Path(__file__).parent / "files", "{package}")


def score(call):
    """The evaluator's fitness, larger is better."""
    return fitness_of(EVALUATION, call)
'''
SETTINGS = """\
# LLM4AD's task {name} (see LICENSE). An evaluation of the initial program makes {calls} calls.
name = {quoted}
goal = {goal}

[seed]
files = ["program.py"]

[evaluator]
form = "serve"
entry = {entry}
packages = ["numpy"]

[limits]
seconds = {seconds}
memory_mb = 2048
output_kb = 65536
scorer_seconds = {seconds}
scorer_memory_mb = 4096
"""


class ImportedDesign(msgspec.Struct):
    """The result of importing one task; `error` and `fix` are "" if it worked."""

    name: str
    folder: str = ""
    entry: str = ""
    calls: int = 0
    seconds: float = 0.0
    score: float | None = None
    notes: list[str] = []
    error: str = ""
    fix: str = ""


def task_folders(checkout: Path, names: Sequence[str]) -> dict[str, Path]:
    """The tasks' folders by name: all of a checkout, or those named; raises `UserError`."""
    root = checkout / ROOT / "task"
    found = {path.parent.name: path.parent for path in sorted(root.rglob(FILE))}
    if not found:
        raise UserError(
            f"no task of LLM4AD is here: there is no {ROOT}/task/.../{FILE}",
            where=str(checkout),
            fix="give a checkout: git clone https://github.com/Optima-CityU/LLM4AD",
        )
    for name in names:
        if name not in found:
            from culmen.evaluate.taskfiles.reading import one_of

            raise UserError(f"there is no task '{name}'", where=str(root), fix=one_of(name, found))
    return {name: found[name] for name in names or found}


def import_design(folder: Path, target: Path, checkout: Path) -> ImportedDesign:
    """Write the task folder of one task into `target`, which is replaced."""
    package = ".".join(folder.relative_to(checkout).parts)
    facts = _probe(folder, package)
    if "error" in facts:
        return ImportedDesign(folder.name, error=facts["error"], fix=_remedy(folder, facts))
    if facts["runs_code"]:
        what = "its evaluator runs the program's text itself, outside of the jail"
        return ImportedDesign(folder.name, error=what, fix="leave it out")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(folder, target / "files", ignore=shutil.ignore_patterns("__pycache__"))
    if (checkout / "LICENSE").is_file():
        shutil.copyfile(checkout / "LICENSE", target / "LICENSE")
    seconds = math.ceil(max(_LEAST_SECONDS, 3 * facts["seconds"] + _CALL_SECONDS * facts["calls"]))
    settings = SETTINGS.format(
        name=folder.name,
        quoted=json.dumps(folder.name),
        calls=f"{facts['calls']:,}",
        goal=toml_text(facts["goal"] or f"Improve {facts['entry']}."),
        entry=json.dumps(facts["entry"]),
        seconds=seconds,
    )
    texts = {
        "task.toml": settings,
        "program.py": facts["program"],
        "evaluator.py": EVALUATOR.format(name=folder.name, package=package),
    }
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    notes = [f"{key} is not applied" for key in facts["ignored"]]
    measured = facts["calls"], facts["seconds"], facts["score"]
    return ImportedDesign(folder.name, str(target), facts["entry"], *measured, notes)


def _probe(folder: Path, package: str) -> JsonObject:
    """The answer of `run_probe`, or what went wrong with its process."""
    line = [sys.executable, "-c", f"from {__name__} import run_probe; run_probe()"]
    try:
        ran = subprocess.run(
            [*line, str(folder), package],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
        answer: JsonObject = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_PROBE_SECONDS:g} s", "package": ""}
    except ValueError:
        last = ran.stderr.strip().splitlines()[-1:] or [f"status {ran.returncode}"]
        return {"error": f"the process that tried it ended: {last[0]}", "package": ""}
    return answer


def _remedy(folder: Path, facts: JsonObject) -> str:
    """The smallest change for a task that cannot be imported."""
    package = facts["package"].partition(".")[0]
    if package and package != ROOT:
        return f"{sys.executable} -m pip install {package}"
    return f"correct {folder / FILE}, or leave the task out"
