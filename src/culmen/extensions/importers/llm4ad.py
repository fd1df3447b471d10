"""LLM4AD: `culmen import llm4ad DIR` makes task folders of evaluator classes.

A task of LLM4AD is a class `Evaluation` that calls the function to be designed many times. Here it
drives the function, which runs in the jail, from the scorer's process (form serve). The task's
files are copied unchanged; nothing else of LLM4AD is needed: `install_stand_ins` provides the base
class. LLM4AD: Liu et al. 2024, arXiv:2412.17287.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from culmen.core.errors import UserError
from culmen.core.foreign import parse_python
from culmen.core.json import JsonObject
from culmen.extensions.importers.importing import (
    ImportedTask,
    answer_probe,
    choose_places,
    probe,
    remedy,
    write_task_folder,
)
from culmen.extensions.timing import packed
from culmen.jail import wire
from culmen.jail.scorer import CandidateError, Invalid

ROOT, FILE = "llm4ad", "evaluation.py"
# LLM4AD runs programs with this in force, and templates annotate with names that they do not define
_HEAD = "from __future__ import annotations\n\n"
SIBLINGS = "siblings"  # files of other tasks that a task imports, by their path in the checkout

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


def install_stand_ins(folder: Path, name: str, checkout: Path) -> None:
    """Let the files in `folder` import LLM4AD's base, and one another as package `name`.

    Other tasks are imported from `checkout`; packages around tasks are empty, for LLM4AD's own
    import much that a task does not need.
    """
    base = ModuleType(f"{ROOT}.base")
    base.__dict__["Evaluation"] = Evaluation
    sys.modules.setdefault(base.__name__, base)
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:depth]))
        place = folder if depth == len(parts) else checkout.joinpath(*parts[:depth])
        package.__path__ = [str(place)]
        sys.modules.setdefault(package.__name__, package)


def load_evaluation(folder: Path, name: str, checkout: Path) -> Evaluation:
    """The evaluator of a task's files; `checkout` has the files of other tasks.

    Raises what they raise, LookupError if no class derives from `Evaluation`, and TypeError if it
    cannot be made without arguments.
    """
    install_stand_ins(folder, name, checkout)
    module = importlib.import_module(f"{name}.{FILE.removesuffix('.py')}")
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Evaluation) and kind is not Evaluation
    ]
    if not kinds:
        raise LookupError(f"{FILE} has no class that derives from Evaluation")
    try:
        return kinds[-1]()  # pyright: ignore[reportCallIssue] - an evaluator has defaults for all
    except ImportError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise TypeError(f"{kinds[-1].__name__} cannot be made without arguments: {why}") from error


def fitness_of(evaluation: Evaluation, call: Callable[..., object]) -> float | dict[str, float]:
    """The fitness of a function; raises Invalid if the evaluator does not accept it.

    Of several objectives each by its name (`objective_names`). The evaluator does not get the
    program's text, which it might run. It can catch what the function raises by its type.
    """

    def function(*values: object, **named: object) -> object:  # copied by evaluators: as itself
        try:
            return call(*values, **named)
        except CandidateError as error:
            raise _with_known_type(error) from error

    try:
        value: Any = evaluation.evaluate_program("", function)
    except Exception as error:
        if isinstance(error.__cause__, CandidateError):
            raise error.__cause__ from None  # with the program's own traceback
        raise
    if isinstance(value, dict):
        value = value.get("score", value.get("objective"))
    if value is None:
        raise Invalid("the evaluator does not accept the function")
    is_many = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
    values: list[Any] = [*value] if is_many else [value]
    numbers = [float(each) for each in values]
    if not numbers or not all(map(math.isfinite, numbers)):
        raise Invalid(f"the fitness is {value}")
    if len(numbers) == 1:
        return numbers[0]
    return dict(zip(objective_names(len(numbers)), numbers))


def _with_known_type(error: CandidateError) -> Exception:
    """The exception that ends the traceback, if its type is one of this process; else `error`."""
    tail = str(error).strip().rpartition("\n ")[2].partition("\n")[2]  # behind the last frame
    name, _, text = tail.partition(": ")
    home, _, short = name.rpartition(".")
    kind = getattr(sys.modules.get(home or "builtins"), short, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some types need more than a text
            return kind(text)
    return error


def objective_names(count: int) -> list[str]:
    """Names of this number of objectives, in the order of the evaluator's numbers."""
    return [f"objective_{number}" for number in range(1, count + 1)]


# -- one task: what it needs; in a process of its own -----------------------------------------


class CountedFunction:
    """The template's function: `count` of its calls, and what it `raised` last.

    A call takes as long as the way of its arguments into the jail does, too.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.count = 0
        self.raised: Exception | None = None

    def __call__(self, *values: object, **named: object) -> object:
        self.count += 1
        with contextlib.suppress(wire.WireError):
            packed.decode(packed.encode([values, named]))
        try:
            return self._function(*values, **named)
        except Exception as error:
            self.raised = error
            raise


def probe_task(folder: Path, name: str, checkout: Path) -> JsonObject:
    """Facts of one task, from its initial program.

    Raises what its files raise, and RuntimeError if it is the template's function.
    """
    evaluation = load_evaluation(folder, name, checkout)
    if not evaluation.exec_code:
        return {"runs_code": True}
    program = f"{_HEAD}{evaluation.template_program.strip()}\n"
    entry = entry_of(program)
    names: JsonObject = {"__name__": "program"}
    exec(compile(program, "program.py", "exec", dont_inherit=True), names)
    call = CountedFunction(names[entry])
    begun = time.monotonic()
    try:
        score: float | dict[str, float] | None = fitness_of(evaluation, call)
    except Invalid:
        score = None
    except Exception as error:
        if error is not call.raised:
            raise
        why = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"the template's own function {entry} raises {why}") from error
    return {
        "program": program,
        "entry": entry,
        "goal": evaluation.task_description.strip(),
        "runs_code": False,
        "ignored": sorted(key for key, value in evaluation.settings.items() if value),
        "calls": call.count,
        "seconds": time.monotonic() - begun,
        "score": score,
        "siblings": _imported_files(checkout, folder),
    }


def _imported_files(checkout: Path, folder: Path) -> list[str]:
    """Files of the checkout outside of the task's folder that were imported, and what they load.

    A module's whole folder is taken, for it may read data beside it.
    """
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    own = [Path(path).resolve() for path in paths if path]
    root, inner = (checkout / ROOT).resolve(), folder.resolve()
    found = {
        path.parent for path in own if path.is_relative_to(root) and not path.is_relative_to(inner)
    }
    outermost = [place for place in found if not found & set(place.parents)]
    return sorted(place.relative_to(checkout.resolve()).as_posix() for place in outermost)


def entry_of(program: str) -> str:
    """The name of the function to be designed: the last one; raises LookupError."""
    functions = [node for node in parse_python(program).body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise LookupError("the template has no function")
    return functions[-1].name


def run_probe() -> None:
    """Entry point of the probe's process: folder and package in, one JSON document out."""
    answer_probe(lambda: probe_task(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))


# -- the import -------------------------------------------------------------------------------

EVALUATOR = '''\
"""LLM4AD's task {name}: its evaluator calls the function, which runs in the jail."""

from pathlib import Path

from culmen.extensions.importers.llm4ad import fitness_of, load_evaluation

HERE = Path(__file__).parent
EVALUATION = load_evaluation(HERE / "files", "{package}", HERE / "{siblings}")


def score(call):
    """The evaluator's fitness, larger is better; of several objectives each by its name."""
    return fitness_of(EVALUATION, call.unchanged)
'''


class ImportedDesign(ImportedTask, kw_only=True):
    """The result of importing one task: its function, and an evaluation of its initial program."""

    entry: str = ""
    calls: int = 0
    seconds: float = 0.0
    score: float | dict[str, float] | None = None


DIFFERENCES = (
    "LLM4AD: a program with helper functions is accepted; the evaluator does not get its text",
    "LLM4AD: a fitness that is NaN or infinite is not acceptable",
    "LLM4AD: timeout_seconds, use_numba_accelerate, use_protected_div and random_seed do nothing",
    "LLM4AD: arguments and results are copies, plain data and arrays: NumPy's scalars are numbers, "
    "and what the function changes in an argument is not seen",
    "LLM4AD: an exception whose type the program defines is CandidateError for the evaluator",
)
"""Differences on purpose, compared with 1.11."""


def folder_differences(evaluator: Path) -> tuple[str, ...]:
    """The differences, for an imported folder."""
    return DIFFERENCES


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
    return choose_places(found, names, root)


def import_design(folder: Path, target: Path, checkout: Path) -> ImportedDesign:
    """Write the task folder of one task into `target`, which is replaced."""
    package = ".".join(folder.relative_to(checkout).parts)
    facts = probe(__name__, str(folder), package, str(checkout))
    if "error" in facts:
        fix = remedy(folder / FILE, facts, ROOT)
        return ImportedDesign(name=folder.name, error=facts["error"], fix=fix)
    if facts["runs_code"]:
        what = "its evaluator runs the program's text itself, outside of the jail"
        return ImportedDesign(name=folder.name, error=what, fix="leave it out")
    if not facts["calls"]:
        what = "its evaluator reads the program's text, or calls the function in another process"
        return ImportedDesign(name=folder.name, error=what, fix="leave it out")
    calls_seconds = 2e-3 * facts["calls"]  # two milliseconds for each call into the jail
    seconds = math.ceil(max(30.0, 3 * facts["seconds"] + calls_seconds))
    write_task_folder(
        target,
        f"LLM4AD's task {folder.name} (see LICENSE). "
        f"An evaluation of the initial program makes {facts['calls']:,} calls.",
        {
            "": {"name": folder.name, "goal": facts["goal"] or f"Improve {facts['entry']}."},
            **_objectives(facts["score"]),
            "seed": {"files": ["program.py"]},
            "evaluator": {"form": "serve", "entry": facts["entry"], "packages": ["numpy"]},
            "limits": {
                "seconds": seconds,
                "memory_mb": 2048,
                "output_kb": 65536,
                "scorer_seconds": seconds,
                "scorer_memory_mb": 4096,
            },
        },
        {
            "program.py": facts["program"],
            "evaluator.py": EVALUATOR.format(name=folder.name, package=package, siblings=SIBLINGS),
        },
        {
            "files": folder,
            "LICENSE": checkout / "LICENSE",
            **{f"{SIBLINGS}/{place}": checkout / place for place in facts["siblings"]},
        },
    )
    return ImportedDesign(
        name=folder.name,
        folder=str(target),
        notes=[f"{key} is not applied" for key in facts["ignored"]],
        **{key: facts[key] for key in ("entry", "calls", "seconds", "score")},
    )


def _objectives(score: float | dict[str, float] | None) -> dict[str, dict[str, object]]:
    """The table [objectives] of a task with several; all are maximised."""
    return {"objectives": dict.fromkeys(score, "max")} if isinstance(score, dict) else {}
