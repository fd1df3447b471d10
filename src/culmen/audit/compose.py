"""Attack programs: the honest program with an attack behind it, put before its main block."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from culmen.audit.catalog import Attack, prelude
from culmen.core.task import Task
from culmen.evaluate.integrity.signs import is_python

_MAIN = re.compile(r"^if\s+__name__\s*==", re.M)


def part_of(task: Task, parts: Mapping[str, str]) -> str:
    """The part that is the program; "" if it is no Python."""
    if task.evaluator.form == "command":
        named = re.findall(r"\{([^{}]*)\}", " ".join(task.evaluator.command))
        runs_python = Path(task.evaluator.command[0]).name.startswith("python") if task.evaluator.command else False
        name = next((name for name in named if name in parts and name.endswith(".py")), "") if runs_python else ""
    else:
        name = task.evaluator.module or next(iter(parts), "")
    usable = name in parts and (is_python(name, task) or task.evaluator.form in ("call", "serve"))
    return name if usable and _tree(parts[name]) is not None else ""


def targets(task: Task, text: str, evaluators: Iterable[str]) -> list[str]:
    """The program's functions that the evaluator may call: the entry, those it names, or else all public ones."""
    tree = _tree(text)
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


def program(text: str, attack: Attack, facts: Mapping[str, Any]) -> str:
    """The honest text with the attack; `facts` is what it may know (plain data)."""
    head = prelude().replace("{facts!r}", repr(json.dumps(dict(facts))))
    install = "\n\naudit_install(audit_attack)\n" if "def audit_attack" in attack.code else "\n"
    added = f"\n\n{head}\n\n{attack.code}{install}\n"
    main = _MAIN.search(text)
    at = main.start() if main else len(text)
    return text[:at] + added + text[at:]


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
