"""AlgoTune: `culmen import algotune DIR` makes a task folder of each task of a checkout.

An imported task times a program against AlgoTune's reference (`metric = "speedup"`), on inputs of
the task's own generator, and judges results by its own `is_solution`. The task's file is copied
unchanged with its licence; nothing else of AlgoTune is needed: `install_stand_ins` provides the
two names that task files import. AlgoTune: Press et al. 2025, arXiv:2507.15887.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeGuard

from culmen.core.errors import UserError
from culmen.core.foreign import parse_python
from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.extensions.importers.importing import (
    ImportedTask,
    answer_probe,
    choose_places,
    probe,
    remedy,
    write_task_folder,
)

ROOT, BASE, BASE_CLASS = "AlgoTuneTasks", "AlgoTuneTasks.base", "Task"
SPLITS = {"train": 2, "val": 2, "test": 4}  # cases of each
_NEAR = 1.15  # factor of the wanted time within which a size is taken
_OUTPUT_KB = 65536  # longest result of a task that is written
_RESULT_SHARE = 0.5  # of it that the reference may need, since other results may be longer

# -- task files: the names that they import, and their class ----------------------------------

_registered: dict[str, type] = {}


class AlgoTask(Protocol):
    """A task of AlgoTune, as its file defines it."""

    task_name: str

    def generate_problem(self, n: int, random_seed: int = 1) -> object:
        """A problem of size `n`."""
        ...

    def solve(self, problem: object) -> object:
        """The reference's solution."""
        ...

    def is_solution(self, problem: object, solution: object) -> bool:
        """True if a solution is right."""
        ...


class BaseTask:
    """The base class of AlgoTune's task files; they define the three functions themselves."""

    def __init__(self, n: int | None = None, **options: str) -> None:
        self.n = n
        self.task_name = options.get("task_name", "")


def register_task(name: str) -> Callable[[type], type]:
    """The decorator of a task's class."""

    def register(kind: type) -> type:
        _registered[name] = kind
        return kind

    return register


def install_stand_ins(folder: Path) -> None:
    """Let files in `folder` import `AlgoTuneTasks.base`, and modules beside them."""
    base = ModuleType(BASE)
    base.__dict__.update(Task=BaseTask, register_task=register_task, TASK_REGISTRY=_registered)
    for name in (ROOT, f"{ROOT}.{folder.name}"):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)
    sys.modules.setdefault(BASE, base)


def load_task(file: str | Path) -> AlgoTask:
    """The task of a file of AlgoTune, ready to use.

    Raises what the file raises, ImportError for a missing package, and LookupError if no class is
    registered.
    """
    path = Path(file).resolve()
    install_stand_ins(path.parent)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    before = set(_registered.values())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = [kind for kind in _registered.values() if kind not in before]
    if not found:
        raise LookupError(f"{path.name} registers no task")
    task = found[-1]()
    task.task_name = path.stem
    return task


@contextlib.contextmanager
def _heard_warnings() -> Iterator[list[str]]:
    """The warnings and errors that are logged meanwhile."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger, level = logging.getLogger(), logging.getLogger().level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def accepts(task: AlgoTask, problem: object, solution: object) -> str:
    """The log or exception with which `is_solution` refuses a solution; "" if it accepts."""
    with _heard_warnings() as heard:
        try:
            if bool(task.is_solution(problem, solution)):
                return ""
        except Exception as error:  # noqa: BLE001 - of an output that is_solution does not expect
            heard.append(f"{type(error).__name__}: {error}")
    return "; ".join(heard)[-2000:] or "is_solution refuses the result"


# -- the initial program: the reference as a solver -------------------------------------------


_FOR_TESTS = ("generate_problem", "is_solution")  # methods that no solver needs


def _task_class(tree: ast.Module) -> ast.ClassDef:
    """The registered class; LookupError if there is not exactly one."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    tasks = [node for node in classes if any("register_task" in n for n in _class_names(node))]
    if len(tasks) != 1:
        raise LookupError(f"{len(tasks)} classes are registered as tasks")
    return tasks[0]


def _class_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]


def _line_range(node: ast.stmt) -> range:
    """Numbers of the lines of a statement from 0, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return range(first - 1, node.end_lineno or node.lineno)


def _methods(task: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in task.body if isinstance(node, ast.FunctionDef)}


def solver_text(text: str) -> str:
    """A `solver.py` with the reference's algorithm: class Solver, cut out of a task's file.

    Raises LookupError if the file has not exactly one registered class with a method `solve`.
    """
    tree, lines = parse_python(text), text.splitlines()
    task = _task_class(tree)
    methods = _methods(task)
    if "solve" not in methods:
        raise LookupError("the task's class has no method solve")
    for node in filter(_calls_super, ast.walk(task)):
        first, *more = _line_range(node)
        lines[first] = " " * node.col_offset + "pass"
        for number in more:
            lines[number] = ""
    left_out = [node for node in tree.body if _imports_base(node)]
    left_out += [methods[name] for name in _FOR_TESTS if name in methods]
    first = _line_range(task)[0]
    head = range(first, _line_range(task.body[0])[0])
    for number in (*head, *(number for node in left_out for number in _line_range(node))):
        lines[number] = ""
    lines[first] = "class Solver:"
    alias = [f"\n\n{task.name} = Solver"] if task.name in "\n".join(lines) else []
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join([*lines, *alias])).strip() + "\n"


def whole_solver_text(text: str) -> str:
    """A `solver.py` that holds a task's whole file, for files that cannot be cut."""
    tree, lines = parse_python(text), text.splitlines()
    for node in filter(_imports_base, tree.body):
        for number in _line_range(node):
            lines[number] = ""
        lines[node.lineno - 1] = f"from {__name__} import BaseTask as Task, register_task"
    return "\n".join(lines) + f"\n\n\nclass Solver({_task_class(tree).name}):\n    pass\n"


def _imports_base(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOT)


def _calls_super(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("super().__init__(")


# -- one task: its size, and what is wrong with it; in a process of its own -------------------


def probe_task(file: str, milliseconds: float) -> JsonObject:
    """Facts of one task: its packages, size, solver, and weaknesses of its `is_solution`.

    Raises what the task's file raises.
    """
    from culmen.extensions.timing import packed
    from culmen.jail import procfs

    path = Path(file)
    text = path.read_text(encoding="utf-8")
    packages = imported_packages(parse_python(text))
    threads = procfs.thread_count()
    fit = []
    for name in packages:
        with contextlib.suppress(ImportError):  # part of a package: `from scipy import signal`
            importlib.import_module(name)
            fit += [name] if procfs.thread_count() <= threads else []
    task = load_task(path)
    size, seconds = find_size(task, milliseconds / 1000)
    problem = task.generate_problem(size, random_seed=1)
    data = packed.encode(problem)
    with _heard_warnings() as heard:
        crossed = packed.decode(packed.encode(task.solve(packed.decode(data))))
    if why := accepts(task, packed.decode(data), crossed):
        words = "; ".join([*heard[-3:], why])
        raise ValueError(f"is_solution does not accept the reference's result: {words}")
    other = packed.encode(task.generate_problem(size, random_seed=2))
    return {
        "packages": fit,
        "size": size,
        "seconds": seconds,
        "solver": find_solver(task, text, problem),
        "weak": weaknesses(task, problem, crossed),
        "varies": other != data,
    }


def imported_packages(tree: ast.Module) -> list[str]:
    """Modules that a file imports and that are not Python's own, each with its packages."""
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= dict.fromkeys([node.module, *(f"{node.module}.{a.name}" for a in node.names)])
    own = (*sys.stdlib_module_names, ROOT)
    return [name for name in names if name.partition(".")[0] not in own]


def find_size(task: AlgoTask, seconds: float) -> tuple[int, float]:
    """The size of problem for which the reference takes about `seconds`, and what it takes then.

    Raises what the task raises for every size.
    """
    search = SizeSearch(task, seconds)
    low, high = search.grow()
    search.halve(low, high)
    return search.best


class SizeSearch:
    """A search for the size that takes a time; `best` is the nearest size, with its seconds."""

    def __init__(self, task: AlgoTask, seconds: float) -> None:
        self._task, self._seconds = task, seconds
        self._until = time.monotonic() + 60.0  # seconds for the size
        self.best = (0, 0.0)

    def _try_size(self, size: int) -> float:
        spent = _solving_seconds(self._task, size, self._seconds)
        if not self.best[0] or abs(spent - self._seconds) < abs(self.best[1] - self._seconds):
            self.best = (size, spent)
        return spent

    def grow(self) -> tuple[int, int]:
        """Try larger and larger sizes; two between which the wanted one lies.

        They are the same where no larger size can be tried: it fails or takes too long.
        """
        low, high = 0, 1
        while True:
            begun = time.monotonic()
            try:
                spent = self._try_size(high)
            except Exception:
                if low:
                    return low, low
                if high >= 64:  # a generator must take one of the first sizes
                    raise
                high *= 2  # the generator wants a larger one
                continue
            if spent > self._seconds / _NEAR:
                return low, high
            now = time.monotonic()
            if high >= (1 << 22) or now + 4 * (now - begun) > self._until:  # size of a problem
                return high, high
            few = spent < self._seconds / 4
            factor = 2.0 if few else max(1.1, (self._seconds / spent) ** 0.5)
            low, high = high, max(high + 1, int(high * factor))

    def halve(self, low: int, high: int) -> None:
        """Halve the interval until its middle takes about the wanted time."""
        while high - low > max(1, low // 50) and time.monotonic() < self._until:
            if self._seconds / _NEAR < self.best[1] < self._seconds * _NEAR:
                return
            middle = (low + high) // 2
            low, high = (middle, high) if self._try_size(middle) < self._seconds else (low, middle)


def _solving_seconds(task: AlgoTask, size: int, wanted: float) -> float:
    """Median processor seconds of the reference for a size.

    Raises ValueError if a result is too long for the limit of the tasks that are written.
    """
    from culmen.extensions.timing import packed

    taken = []
    for seed in range(1, 5):
        problem = task.generate_problem(size, random_seed=seed)
        begun = time.process_time()
        result = task.solve(problem)
        taken.append(time.process_time() - begun)
        if seed == 1 and len(packed.encode(result)) > _RESULT_SHARE * (_OUTPUT_KB << 10):
            raise ValueError(f"the reference's result for size {size} is too long")
        if taken[-1] > 2 * wanted and seed > 1:
            break
    warm = sorted(taken[1:])
    return warm[len(warm) // 2]


def find_solver(task: AlgoTask, text: str, problem: object) -> str:
    """A solver that holds the reference; the shortest that `is_solution` accepts.

    Raises what the longer one raises.
    """
    try:
        solver = solver_text(text)
        if not accepts(task, problem, _run_solver(solver, problem)):
            return solver
    except Exception:  # noqa: BLE001 - a text cut out of a file may lack anything
        pass
    solver = whole_solver_text(text)
    _run_solver(solver, problem)
    return solver


def _run_solver(text: str, problem: object) -> object:
    names: JsonObject = {"__name__": "solver"}
    exec(compile(text, "solver.py", "exec", dont_inherit=True), names)
    return names["Solver"]().solve(problem)


def weaknesses(task: AlgoTask, problem: object, result: object) -> list[str]:
    """Results without work that `is_solution` accepts."""
    cheap = cheap_answers(result)
    return [name for name, value in cheap.items() if not accepts(task, problem, value)]


def cheap_answers(result: object) -> dict[str, object]:
    """Results without work, by kind, that differ from an honest one."""
    from culmen.extensions.timing import packed

    tried = {
        "nothing (None)": None,
        "an empty dict": {},
        "an empty list": [],
        "zeros in place of all numbers": _replaced(result, 0.0),
        "NaN in place of all numbers": _replaced(result, float("nan")),
        "the first item in place of all": _first_repeated(result),
    }
    honest = packed.encode(result)
    return {name: value for name, value in tried.items() if packed.encode(value) != honest}


def _replaced(value: object, number: float) -> object:
    """A result with `number` in place of every float."""
    if isinstance(value, dict):
        return {key: _replaced(item, number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_replaced(item, number) for item in value])
    if isinstance(value, float | complex):
        return number
    import numpy

    if isinstance(value, numpy.ndarray) and value.dtype.kind in "fc":
        return numpy.full_like(value, number)
    return value


def _first_repeated(value: object) -> object:
    """A result whose lists and arrays hold their first item again and again."""
    if isinstance(value, dict):
        return {key: _first_repeated(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_first_repeated, value))
    if isinstance(value, list):
        return value[:1] * len(value)
    import numpy

    if isinstance(value, numpy.ndarray) and value.ndim and len(value):
        return numpy.repeat(value[:1], len(value), axis=0)
    return value


def run_probe() -> None:
    """Entry point of the probe's process: file and milliseconds, one JSON document out."""
    logging.disable(logging.INFO)
    answer_probe(lambda: probe_task(sys.argv[1], float(sys.argv[2])))


# -- the import -------------------------------------------------------------------------------

EVALUATOR = '''\
"""AlgoTune's task {name}: inputs from its generator, results judged by its is_solution.

The score is the reference's time divided by the program's, on inputs that come only once.
"""

from pathlib import Path

from culmen.extensions.importers.algotune import accepts, load_task
from culmen.jail.scorer import Invalid

TASK = load_task(Path(__file__).with_name("{name}.py"))


def generate(case, seed):
    """A problem of the case's size; each case has random seeds of its own."""
    own = (case.info["seed"] * 1000003 + seed) % 2**31
    return TASK.generate_problem(case.info["n"], random_seed=own)


def reference(problem):
    """The solution that AlgoTune compares with."""
    return TASK.solve(problem)


def check(problem, solution):
    """True if is_solution accepts; what it logs is the feedback."""
    if why := accepts(TASK, problem, solution):
        raise Invalid(why)
    return True
'''
GOAL = """\
Write solver.py with a class Solver whose method solve(self, problem) is as fast as possible; it \
runs on one core. Making a Solver is not timed, nor is the first call; every call gets a new \
problem. The score is the reference's time divided by the solver's.

{description}

A solution counts if this accepts it:

{check}
"""


class ImportedSpeedup(ImportedTask, kw_only=True):
    """The result of importing one task: its size, and the reference's time."""

    size: int = 0
    milliseconds: float = 0.0


def task_files(checkout: Path, names: Sequence[str]) -> dict[str, Path]:
    """The tasks' files by name: all of a checkout, or those named.

    Raises `UserError` with the smallest change for a folder that is no checkout, or unknown names.
    """
    root = checkout / ROOT if (checkout / ROOT).is_dir() else checkout
    found = {
        path.stem: path for path in sorted(root.glob("*/*.py")) if path.stem == path.parent.name
    }
    if not found:
        raise UserError(
            f"no task of AlgoTune is here: there is no {ROOT}/NAME/NAME.py",
            where=str(checkout),
            fix="give the folder of a checkout: git clone https://github.com/oripress/AlgoTune",
        )
    return choose_places(found, names, root)


def import_task(file: Path, target: Path, milliseconds: float) -> ImportedSpeedup:
    """Write the task folder of one file into `target`, which is replaced.

    The file is tried as candidates run: one thread, hashes fixed.
    """
    from culmen.jail.fork_server import ENVIRONMENT

    environment = {**ENVIRONMENT, "HOME": os.environ.get("HOME", "/")}
    facts = probe(__name__, str(file), str(milliseconds), environment=environment)
    if "error" in facts:
        fix = remedy(file, facts, ROOT)
        return ImportedSpeedup(name=file.stem, error=facts["error"], fix=fix)
    if not facts["varies"]:
        what = "generate_problem makes the same problem for two random seeds"
        return ImportedSpeedup(name=file.stem, error=what, fix=f"use random_seed in {file}")
    spent, size = 1000 * facts["seconds"], facts["size"]
    licences = [file.parents[depth] / "LICENSE" for depth in (2, 1)]
    licence = next((path for path in licences if path.is_file()), licences[0])
    write_task_folder(
        target,
        f"AlgoTune's task {file.stem} (MIT licence, see LICENSE): its reference takes about "
        f"{spent:.3g} ms\nfor a problem of size {size}, measured on the machine that imported it."
        "\nOne worker: programs that are timed beside each other disturb each other.",
        {
            "": {"name": file.stem, "goal": _goal(file), "cases": "cases.jsonl"},
            "seed": {"files": ["solver.py"]},
            "evaluator": {
                "metric": "speedup",
                "entry": "Solver.solve",
                "packages": list(dict.fromkeys(["numpy", *facts["packages"]])),
            },
            "limits": {
                "seconds": 120,
                "memory_mb": 4096,
                "output_kb": _OUTPUT_KB,
                "scorer_seconds": 300,
                "scorer_memory_mb": 4096,
            },
            "defaults": {"workers": 1},
        },
        {
            "solver.py": facts["solver"],
            "evaluator.py": EVALUATOR.format(name=file.stem),
            "cases.jsonl": "".join(_case_lines(size)),
        },
        {"LICENSE": licence, **{path.name: path for path in file.parent.glob("*.py")}},
    )
    return ImportedSpeedup(
        name=file.stem, folder=str(target), size=size, milliseconds=spent, weak=facts["weak"]
    )


def _goal(file: Path) -> str:
    described = file.with_name("description.txt")
    text = text_inside(file.parent, file.name)
    description = text_inside(file.parent, described.name) if described.is_file() else ""
    method = _methods(_task_class(parse_python(text))).get("is_solution")
    lines = text.splitlines()
    check = "\n".join(lines[number] for number in _line_range(method)) if method else ""
    return GOAL.format(description=description.strip(), check=check)


def _case_lines(size: int) -> Iterator[str]:
    """Cases of one size with seeds of their own, by split."""
    seed = 0
    for split, count in SPLITS.items():
        for number in range(1, count + 1):
            seed += 1
            info = {"n": size, "seed": seed}
            yield json.dumps({"id": f"{split}-{number}", "info": info, "split": split}) + "\n"
