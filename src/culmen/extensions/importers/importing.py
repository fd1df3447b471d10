"""Task folders made of other ecosystems' benchmarks: choose, try in a process, write."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.inside import files_inside, path_inside
from culmen.core.json import JsonObject
from culmen.core.packages import module_advice
from culmen.jail.bubblewrap import PACKAGE
from culmen.tasks.reading import one_of

PROBE_SECONDS = 300.0  # that a benchmark's code may take for one task
_NO_SOLVER = re.compile(r"[Tt]he solver '?(\w+)'? is not installed")  # of CVXPY

Tables = Mapping[str, Mapping[str, object]]


class ImportedTask(msgspec.Struct, kw_only=True):
    """The result of importing one task; `error` and `fix` are "" if it worked."""

    name: str
    folder: str = ""
    notes: list[str] = []
    weak: list[str] = []  # results without work that the task's check accepts
    error: str = ""
    fix: str = ""


def choose_places(found: Mapping[str, Path], names: Sequence[str], root: Path) -> dict[str, Path]:
    """The places with these names, or all; UserError for a name that is not among them."""
    for name in names:
        if name not in found:
            raise UserError(f"there is no task '{name}'", where=str(root), fix=one_of(name, found))
    return {name: found[name] for name in names or found}


# -- a benchmark's own code, in a process of its own ------------------------------------------


def probe(module: str, *words: str, environment: Mapping[str, str] | None = None) -> JsonObject:
    """The answer of `run_probe` of a module, or an error of its process."""
    code = (
        f"import sys; sys.path.append({str(PACKAGE.parent)!r}); "
        f"from {module} import run_probe; run_probe()"
    )
    line = [sys.executable, "-s", "-P", "-c", code]
    try:
        ran = subprocess.run(
            [*line, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
            env=environment,
        )
        answer: JsonObject = json.loads(ran.stdout)
    except subprocess.TimeoutExpired as error:
        printed = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        last = f"; the last that it printed: {printed[-1][:300]}" if printed else ""
        return {"error": f"no answer within {PROBE_SECONDS:g} s{last}", "package": ""}
    except ValueError:
        last = ran.stderr.strip().splitlines()[-1:] or [f"status {ran.returncode}"]
        return {"error": f"the process that tried it ended: {last[0]}", "package": ""}
    return answer


def answer_probe(find_facts: Callable[[], JsonObject]) -> None:
    """Write facts, or the error of finding them, to stdout and end the process."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = find_facts()
    except ModuleNotFoundError as error:
        answer = {"error": str(error), "package": (error.name or "").partition(".")[0]}
    except Exception as error:  # noqa: BLE001 - a task's files may raise anything; it becomes an answer
        lacking = _NO_SOLVER.search(str(error))
        package = lacking[1].lower() if lacking else ""
        answer = {"error": f"{type(error).__name__}: {error}"[:600], "package": package}
    out.write(json.dumps(answer))
    out.flush()
    os._exit(0)  # threads that a package left would hold it


def remedy(file: Path, facts: JsonObject, own: str) -> str:
    """The smallest change for a task that cannot be imported; `own` is the benchmark's package."""
    package = facts["package"]
    if package and package != own:
        return module_advice(package)
    return f"correct {file}, or leave the task out"


# -- task folders -----------------------------------------------------------------------------


def write_task_folder(
    target: Path,
    heading: str,
    settings: Tables,
    texts: Mapping[str, str],
    copies: Mapping[str, Path],
) -> None:
    """Write a task folder in place of `target`.

    `settings` are the tables of `task.toml` by name, "" first; `copies` are files or folders by
    their path in the task, left out if they do not exist.
    """
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for name, source in copies.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if path_inside(source.parent, source.name).is_dir():
            files_inside(source)
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=unwanted)
        elif source.is_file():
            shutil.copy(source, target / name)
    lines = [f"# {line}\n" for line in heading.splitlines()]
    for table, items in settings.items():
        lines += [f"\n[{table}]\n"] if table else []
        lines += [f"{key} = {_toml_value(value)}\n" for key, value in items.items()]
    for name, text in (*texts.items(), ("task.toml", "".join(lines))):
        (target / name).write_text(text, encoding="utf-8")


def _toml_value(value: object) -> str:
    """A text, number or list in TOML; lists and numbers look as in JSON."""
    several = isinstance(value, str) and "\n" in value and "'''" not in value
    if several and all(c in "\n\t" or c.isprintable() for c in str(value)):
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=False)
