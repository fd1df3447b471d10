"""Outputs of programs: code put into a program's text reports or replaces what it returns.

The code stands before the program's main block and wraps every function that the evaluator may
call, so it needs nothing of the evaluator, and of its form only that a Python function returns the
output. The audit of evaluators puts its attacks into programs in the same way.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.evaluate.integrity.signs import is_python
from culmen.extensions.audit.tolerances import evaluator_sources, syntax_tree
from culmen.jail.forms import has_own_backend

MOST_NUMBERS = 4000
"""Numbers of an output that are reported; their text must fit into the log of an evaluation."""

Blocks = list[NDArray[np.float64]]
"""Arrays of numbers that an output consists of, in order."""

_MAIN = re.compile(r"^if\s+__name__\s*==", re.M)
_REPORT = """\
def audit_attack(result):
    blocks, given = audit_blocks(result), AUDIT["value"]
    if given is None:
        if 0 < sum(block.size for block in blocks) <= AUDIT["most"]:
            audit_tell("output", *[block.tolist() for block in blocks])
        return result
    left = iter(given)
    return audit_change(result, lambda array: audit_np.array(next(left), dtype=float))
"""


class OutputProgram:
    """Programs of one task with code that reports their output, or replaces its numbers.

    A candidate of one JSON text is an output itself: nothing has to be put into it.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._sources = list(evaluator_sources(task).values())

    def reporting(self, parts: Mapping[str, str], token: str) -> dict[str, str] | None:
        """The program that reports its output; None if code cannot be put into it."""
        return self._with_code(parts, None, token)

    def replacing(
        self, parts: Mapping[str, str], blocks: Blocks, token: str
    ) -> dict[str, str] | None:
        """The program whose output has these numbers in place of its own."""
        if json_blocks(parts) is not None:
            return {name: json.dumps(blocks[0].tolist()) for name in parts}
        return self._with_code(parts, [block.tolist() for block in blocks], token)

    def _with_code(
        self, parts: Mapping[str, str], value: object, token: str
    ) -> dict[str, str] | None:
        part = program_part(self._task, parts)
        if not part:
            return None
        targets = callable_functions(self._task, parts[part], self._sources)
        facts = {"value": value, "token": token, "targets": targets, "most": MOST_NUMBERS}
        return {**parts, part: insert_code(parts[part], _REPORT, facts)}


def json_blocks(parts: Mapping[str, str]) -> Blocks | None:
    """The numbers of a candidate that is one JSON list of numbers; None for any other."""
    try:
        (text,) = parts.values()
        value = np.array(json.loads(text), dtype=float)
    except (ValueError, TypeError, OverflowError, RecursionError):  # parts, no JSON, ragged lists
        return None
    return [value] if value.ndim and value.size else None


def reported_blocks(observation: Observation, token: str) -> Blocks | None:
    """The numbers of the output that a reporting program wrote; None if there are none."""
    for kind, *blocks in reported_facts(observation, token):
        if kind == "output":
            try:
                return [np.array(block, dtype=float) for block in blocks]
            except (ValueError, TypeError, OverflowError):  # the program wrote a report of its own
                return None
    return None


def reported_facts(observation: Observation, token: str) -> Iterator[list[Any]]:
    """Reports of inserted code, found anywhere in the observation: kind and facts each."""
    seen: list[list[Any]] = []
    for text in (observation.feedback, *observation.artifacts.values()):
        for line in text.splitlines():
            _, marker, rest = line.partition(f'AUDIT ["{token}", ')
            if not marker:
                continue
            try:
                report, _ = json.JSONDecoder().raw_decode("[" + rest)
            except (ValueError, RecursionError):
                continue
            if report and report not in seen:
                seen.append(report)
                yield report


def insert_code(text: str, code: str, facts: Mapping[str, object]) -> str:
    """The program with this code before its main block; `facts` are the code's plain data."""
    head = output_prelude().replace("{facts!r}", repr(json.dumps(dict(facts))))
    install = "\n\naudit_install(audit_attack)\n" if "def audit_attack" in code else "\n"
    added = f"\n\n{head}\n\n{code}{install}\n"
    main = _MAIN.search(text)
    at = main.start() if main else len(text)
    return text[:at] + added + text[at:]


@cache
def output_prelude() -> str:
    """Code that all inserted code begins with."""
    return Path(__file__).with_name("output_prelude.txt").read_text(encoding="utf-8")


def program_part(task: Task, parts: Mapping[str, str]) -> str:
    """The part that is the program; "" if it is not Python, or if agents call it."""
    if has_own_backend(task):
        return ""
    if task.evaluator.form == "command":
        named = re.findall(r"\{([^{}]*)\}", " ".join(task.evaluator.command))
        runs_python = (
            Path(task.evaluator.command[0]).name.startswith("python")
            if task.evaluator.command
            else False
        )
        name = (
            next((name for name in named if name in parts and name.endswith(".py")), "")
            if runs_python
            else ""
        )
    else:
        name = task.evaluator.module or next(iter(parts), "")
    usable = name in parts and (is_python(name, task) or task.evaluator.form in ("call", "serve"))
    return name if usable and syntax_tree(parts[name]) is not None else ""


def callable_functions(task: Task, text: str, evaluators: Iterable[str]) -> list[str]:
    """The program's functions that the evaluator may call.

    These are the entry and functions that the evaluator names, else all public ones.
    """
    if "." in task.evaluator.entry:  # Class.method, for a metric
        return [task.evaluator.entry]
    tree = syntax_tree(text)
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)] if tree else []
    if task.evaluator.form == "call":
        return [name for name in defined if name == task.evaluator.entry]
    if task.evaluator.form == "command":
        main = _MAIN.search(text)
        named = re.findall(r"\w+", text[main.start() :]) if main else []
    else:
        named = [word for each in evaluators for word in re.findall(r"\w+", each)]
    named = [*named, task.evaluator.entry] if task.evaluator.form == "serve" else named
    called = [name for name in defined if name in set(named)]
    return called or [name for name in defined if not name.startswith("_")]
