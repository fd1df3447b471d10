"""`culmen import alphaevolve DIR`: a task folder of each verification in its notebooks.

A notebook of AlphaEvolve's repository of problems, or of its results, has cells with data (a
construction), cells with functions, and cells that verify the data and print a value. Each of the
latter becomes a task: the initial program returns the construction, and the notebook's functions
and statements judge, in the scorer's process, what a program returns. Georgiev et al. 2025,
arXiv:2511.02864; Novikov et al. 2025, arXiv:2506.13131.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from culmen.compat.alphaevolve.judging import described, kind_of, number_of
from culmen.compat.alphaevolve.notebook import (
    CellError,
    CellStatement,
    NotebookCell,
    ShownValue,
    Verification,
    cell_statements,
    imported_packages,
    read_cells,
)
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate.jail.scorer import Invalid
from culmen.evaluate.taskfiles.loading import toml_text

_PROBE_SECONDS = 600.0  # for all cells of one notebook
_LEAST_SECONDS = 60.0
_GOAL_CHARS = 8000  # of a notebook's text in a goal
_CODE_CHARS = 12_000  # of its verification there
_NAME_CHARS = 40

# -- one notebook: its tasks; in a process of its own -----------------------------------------

EVALUATOR = '''\
"""{notebook}, cell {cell}: its statements judge {names}."""

from culmen.compat.alphaevolve.judging import {helpers}

{verification}


KINDS = {kinds}


def score(output):
    """The value that the notebook shows; {better} is better."""
    return judge(verify, KINDS, output)
'''
_BOUNDS: dict[str, str] = {
    "min": r"upper bound|<=|≤|\\leq?\b",
    "max": r"lower bound|>=|≥|\\geq?\b",
}
_AIMS: dict[str, str] = {
    "min": r"minimi[sz]|(?:smallest|lowest) possible|as (?:small|low|short|few) as possible",
    "max": r"maximi[sz]|(?:largest|highest) possible|as (?:large|high|big|long|many) as possible",
}


def probe_notebook(
    file: Path, direction: str, score: str, construction: Sequence[str]
) -> list[JsonObject]:
    """The tasks of a notebook, or what keeps its verifications from becoming tasks.

    Raises CellError for a file that is no notebook or verifies nothing.
    """
    cells = read_cells(file)
    statements: list[CellStatement] = []
    broken: list[JsonObject] = []
    for cell in cells:
        try:
            statements += cell_statements(cell) if cell.is_code else ()
        except SyntaxError as error:
            if cell.verifies:
                broken.append(_failed(cell, f"{error.msg}, line {error.lineno}", file))
    facts: list[JsonObject] = []
    for cell in cells:
        if cell.verifies:
            verification = Verification(statements, cell, frozenset(construction), score)
            facts += _cell_facts(verification, cells, file, direction)
    if not facts and not broken and (score or construction):
        raise CellError(
            f"no verification has the names of {score or ','.join(construction)}",
            f"use names of data in {file}",
        )
    if not facts and not broken:
        raise CellError(
            "no cell verifies data: none that has 'verification' in its title or heading shows a "
            "value of a construction",
            "add a cell `#@title Verification` that prints the value of a construction, as "
            f"print(FUNCTION(DATA)), to {file}",
        )
    return facts + broken


def _cell_facts(
    verification: Verification, cells: Sequence[NotebookCell], file: Path, direction: str
) -> Iterator[JsonObject]:
    """The tasks of one cell; none if it only defines functions."""
    cell = verification.cell
    try:
        verification.run()
        found = verification.constructions()
        taken = {name for names, _ in found for name in names}
        for names, shown in found:
            others = taken - set(names)
            yield _task_facts(verification, names, shown, others, cells, file, direction)
    except CellError as error:
        yield {"cell": cell.number, "error": str(error.args[0]), "fix": str(error.args[1])}
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        fix = f"{sys.executable} -m pip install {package}"
        yield {"cell": cell.number, "error": f"cell {cell.number}: {error}", "fix": fix}
    except Exception as error:  # noqa: BLE001 - a notebook may raise anything; it becomes an answer
        yield _failed(cell, f"{type(error).__name__}: {error}", file)


def _failed(cell: NotebookCell, text: str, file: Path) -> JsonObject:
    what = f"cell {cell.number} ({cell.title}) does not run: {text}"[:600]
    return {"cell": cell.number, "error": what, "fix": f"correct that cell of {file}"}


def _task_facts(
    verification: Verification,
    names: tuple[str, ...],
    shown: ShownValue,
    others: set[str],
    cells: Sequence[NotebookCell],
    file: Path,
    direction: str,
) -> JsonObject:
    """One task: its texts, tried once; raises CellError, and what its texts raise."""
    cell = verification.cell
    text = notebook_text(cells, cell)
    value, towards = _value_of(shown, cell, text, direction, file)
    kinds = {name: kind_of(verification.namespace[name]) for name in names}
    code = verification.verification_text(names, shown, others).strip("\n")
    program = verification.program_text(names)
    evaluator = EVALUATOR.format(
        notebook=file.name,
        cell=cell.number,
        names=", ".join(names),
        helpers="judge, require" if "require(" in code else "judge",
        verification=code,
        kinds=json.dumps(kinds),
        better="smaller" if towards == "min" else "larger",
    )
    return {
        "cell": cell.number,
        "section": cell.headings[0] if cell.headings else "",
        "names": list(names),
        "kinds": {name: described(kind) for name, kind in kinds.items()},
        "expression": ast.unparse(shown.node),
        "value": value,
        "direction": towards,
        "text": text,
        "code": code,
        "program": program,
        "evaluator": evaluator,
        "packages": sorted(imported_packages(ast.parse(program)) - sys.stdlib_module_names),
        "seconds": verification.seconds,
        "weak": _try_texts(program, evaluator, value, towards, cell),
    }


def _value_of(
    shown: ShownValue, cell: NotebookCell, text: str, direction: str, file: Path
) -> tuple[float, str]:
    """The value of the notebook's construction, and its direction; raises CellError."""
    place, expression = f"cell {cell.number} ({cell.title})", ast.unparse(shown.node)
    towards = direction or direction_of(shown.label, text)
    if not towards:
        what = f"{place}: nothing says whether {expression} should be large or small"
        raise CellError(what, "say it with --direction max or --direction min")
    value = number_of(shown.value)
    if value is None or not math.isfinite(value):
        raise CellError(f"{place}: {expression} is {value}", f"correct the data in {file}")
    return value, towards


def _try_texts(
    program: str, evaluator: str, value: float, direction: str, cell: NotebookCell
) -> list[str]:
    """Weaknesses of a task's verification; raises CellError if its texts give another value."""
    from culmen.compat.algotune import cheap_answers
    from culmen.evaluate.jail import wire

    judging: dict[str, object] = {"__name__": "evaluator"}
    making: dict[str, object] = {"__name__": "program"}
    sign = -1 if direction == "min" else 1
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(program, "program.py", "exec"), making)
        exec(compile(evaluator, "evaluator.py", "exec"), judging)
        make, judge = making["construct"], judging["score"]
        assert callable(make) and callable(judge)
        made = make()
        found = number_of(judge(wire.decode(wire.encode(made))))
        if found is None or not math.isclose(found, value, rel_tol=1e-9, abs_tol=1e-12):
            raise CellError(
                f"cell {cell.number} ({cell.title}): the value is {value!r} in the notebook and "
                f"{found!r} outside of it",
                "leave the notebook out: cells change what other cells read",
            )
        weak: list[str] = []
        for name, answer in cheap_answers(made).items():
            with contextlib.suppress(Invalid):
                got = number_of(judge(wire.decode(wire.encode(answer))))
                if got is not None and sign * got >= sign * value:
                    weak.append(f"{name} ({got:.6g})")
    return weak


def notebook_text(cells: Sequence[NotebookCell], cell: NotebookCell) -> str:
    """The notebook's words on a cell: its section, or the headings above it if that is long."""
    words = [each for each in cells if not each.is_code and "Apache License" not in each.text]
    section = [each for each in words if each.headings[:1] == cell.headings[:1]]
    above = [each for each in section if each.headings == cell.headings[: len(each.headings)]]
    whole = "\n\n".join(each.text.strip() for each in section)
    if len(whole) > _GOAL_CHARS:
        whole = "\n\n".join(each.text.strip() for each in above)
    return re.sub(r"!\[[^\]]*\]\([^)]*\)", "", whole)[:_GOAL_CHARS]


def direction_of(label: str, text: str) -> str:
    """The direction that a value's label (a bound) or the notebook's text names; "" if none."""
    for patterns, words in ((_BOUNDS, label), (_AIMS, text)):
        named = [key for key, each in patterns.items() if re.search(each, words, re.IGNORECASE)]
        if len(named) == 1:
            return named[0]
    return ""


def run_probe() -> None:
    """Entry point of the probe's process: a notebook and options in, one JSON document out."""
    out, sys.stdout = sys.stdout, sys.stderr
    asked = json.loads(sys.argv[2])
    try:
        answer = probe_notebook(Path(sys.argv[1]), **asked)
    except CellError as error:
        answer = [{"cell": 0, "error": str(error.args[0]), "fix": str(error.args[1])}]
    out.write(json.dumps(answer))
    out.flush()
    os._exit(0)


# -- the import -------------------------------------------------------------------------------

SETTINGS = """\
# {notebook}, cell {cell} (see LICENSE). The notebook's own construction has {value!r}.
name = {quoted}
goal = {goal}

[seed]
files = ["program.py"]

[evaluator]
entry = "construct"
packages = {packages}
optional_packages = ["scipy"]

[objective]
direction = "{direction}"

[limits]
seconds = 60
output_kb = 65536
scorer_seconds = {seconds}
"""
GOAL = """\
Write program.py with a function construct() that returns {kinds}. The score is `{expression}`, \
{better} is better; the construction that program.py has at first scores {value:.9g}.

{text}

A construction counts if verify accepts it, whatever the text above says of functions and times:

{code}
"""


class ImportedNotebook(msgspec.Struct):
    """The result of importing one verification; `error` and `fix` are "" if it worked."""

    name: str
    folder: str = ""
    cell: int = 0
    construction: list[str] = []
    expression: str = ""
    value: float = 0.0
    direction: str = ""
    weak: list[str] = []
    error: str = ""
    fix: str = ""


@dataclass(frozen=True)
class NotebookOptions:
    """The user's words on notebooks: "" and () leave it to them."""

    direction: str = ""
    score: str = ""
    construction: tuple[str, ...] = ()


def notebook_files(checkout: Path, names: Sequence[str]) -> dict[str, Path]:
    """The notebooks by name: all of a checkout, or those named; raises `UserError`."""
    found = {path.stem: path for path in sorted(checkout.rglob("*.ipynb"))}
    if checkout.suffix == ".ipynb" and checkout.is_file():
        found = {checkout.stem: checkout}
    if not found:
        raise UserError(
            "no notebook is here: there is no file .ipynb",
            where=str(checkout),
            fix="give a checkout: git clone "
            "https://github.com/google-deepmind/alphaevolve_repository_of_problems",
        )
    for name in names:
        if name not in found:
            from culmen.evaluate.taskfiles.reading import one_of

            fix = one_of(name, found)
            raise UserError(f"there is no notebook '{name}'", where=str(checkout), fix=fix)
    return {name: found[name] for name in names or found}


def options_of(direction: str, score: str, construction: str) -> NotebookOptions:
    """Options from the command line's words; raises `UserError`."""
    if direction not in ("", "max", "min"):
        raise UserError(f"no direction: {direction}", where="--direction", fix="use max or min")
    try:
        ast.parse(score or "0", mode="eval")
    except SyntaxError as error:
        fix = 'give an expression of Python: --score "len(points)"'
        raise UserError(f"{error.msg}: {score}", where="--score", fix=fix) from None
    names = tuple(each.strip() for each in construction.split(",") if each.strip())
    return NotebookOptions(direction, score, names)


def import_notebook(
    name: str, file: Path, options: NotebookOptions
) -> list[tuple[ImportedNotebook, JsonObject]]:
    """The tasks of one notebook with their facts, not written yet, and what cannot be imported."""
    facts = _probe(file, options)
    fine = [each for each in facts if "error" not in each]
    names = iter(_task_names(name, fine))
    done: list[tuple[ImportedNotebook, JsonObject]] = []
    for each in facts:
        if "error" in each:
            error = f"{file}: {each['error']}"
            failed = ImportedNotebook(name, cell=each["cell"], error=error, fix=each["fix"])
            done.append((failed, {}))
            continue
        measured = each["expression"], each["value"], each["direction"], each["weak"]
        found = ImportedNotebook(next(names), "", each["cell"], each["names"], *measured)
        done.append((found, each))
    return done


def _task_names(name: str, facts: Sequence[JsonObject]) -> list[str]:
    """Names of tasks: the notebook's, its section's if it has several, and the construction's."""
    sections = {each["section"] for each in facts}
    bases = [_slug(each["section"]) if len(sections) > 1 else name for each in facts]
    found: list[str] = []
    for base, each in zip(bases, facts):
        wanted = f"{base}_{each['names'][0]}" if bases.count(base) > 1 else base
        again = sum(other == wanted or other.startswith(f"{wanted}-") for other in found)
        found.append(f"{wanted}-{again + 1}" if again else wanted)
    return found


def _slug(text: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return words if len(words) <= _NAME_CHARS else words[: words[:_NAME_CHARS].rfind("_")]


def write_task(found: ImportedNotebook, facts: JsonObject, target: Path, checkout: Path) -> None:
    """Write the task folder of one verification into `target`, which is replaced."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    if (checkout / "LICENSE").is_file():
        shutil.copyfile(checkout / "LICENSE", target / "LICENSE")
    kinds = [f"{name} ({kind})" for name, kind in facts["kinds"].items()]
    goal = GOAL.format(
        kinds=("the tuple " if len(kinds) > 1 else "") + ", ".join(kinds),
        expression=facts["expression"],
        better="smaller" if facts["direction"] == "min" else "larger",
        value=facts["value"],
        text=facts["text"],
        code=facts["code"][:_CODE_CHARS].strip(),
    )
    settings = SETTINGS.format(
        notebook=facts["notebook"],
        cell=found.cell,
        value=facts["value"],
        quoted=json.dumps(found.name),
        goal=toml_text(goal),
        packages=json.dumps(sorted({"numpy", *facts["packages"]})),
        direction=facts["direction"],
        seconds=math.ceil(max(_LEAST_SECONDS, 10 * facts["seconds"])),
    )
    texts = {"task.toml": settings}
    texts |= {"program.py": facts["program"], "evaluator.py": facts["evaluator"]}
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    found.folder = str(target)


def _probe(file: Path, options: NotebookOptions) -> list[JsonObject]:
    """The answer of `run_probe`, or what went wrong with its process."""
    line = [sys.executable, "-c", f"from {__name__} import run_probe; run_probe()"]
    asked = {
        "direction": options.direction,
        "score": options.score,
        "construction": options.construction,
    }
    try:
        ran = subprocess.run(
            [*line, str(file), json.dumps(asked)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
        answer: list[JsonObject] = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        what = f"its cells did not end within {_PROBE_SECONDS:g} s"
        return [{"cell": 0, "error": what, "fix": "leave the notebook out"}]
    except ValueError:
        last = ran.stderr.strip().splitlines()[-1:] or [f"status {ran.returncode}"]
        what = f"the process that ran its cells ended: {last[0]}"
        return [{"cell": 0, "error": what, "fix": f"correct {file}, or leave it out"}]
    return [each | {"notebook": file.name} for each in answer]
