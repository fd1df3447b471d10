"""The attacks: data files with a head of `# key: value` lines and the code that is put behind an honest program."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_HEAD = re.compile(r"^# (\w+): (.*)$")


class Attack(msgspec.Struct, frozen=True):
    """One attack.

    title     what a table calls it
    shows     what it exploits
    success   how its success is read
    fix       what to change
    cause     what to look for in the evaluator's text (see `locate`)
    needs     what the output must have: numbers | reported | function (one the evaluator calls) | python
    effect    where success is no score: told | folder | stays | random; "" for a score
    values    one evaluation each
    control   a value that changes the output alike without the trick; None: the honest output is the control
    """

    name: str
    code: str
    title: str
    shows: str = ""
    success: str = ""
    fix: str = ""
    cause: str = ""
    needs: str = "python"
    effect: str = ""
    values: tuple[Any, ...] = (None,)
    control: Any = None
    internal: bool = False


@cache
def attacks() -> dict[str, Attack]:
    """All attacks by name, also those that the audit uses for itself."""
    folder = files("culmen.audit") / "attacks"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    return {name[:-3]: _read(name[:-3]) for name in found if not name.startswith("_")}


@cache
def prelude() -> str:
    """The code that all attacks share."""
    return _text("_prelude")


def _text(name: str) -> str:
    return (files("culmen.audit") / "attacks" / f"{name}.py").read_text(encoding="utf-8")


def _read(name: str) -> Attack:
    head: dict[str, Any] = {}
    lines = _text(name).splitlines(keepends=True)
    while lines and (found := _HEAD.match(lines[0])):
        head[found[1]] = found[2].strip()
        lines.pop(0)
    for key in ("values", "control"):
        if key in head:
            read = ast.literal_eval(f"[{head[key]}]")
            head[key] = tuple(read) if key == "values" else read[0]
    head["internal"] = "internal" in head
    return Attack(name, "".join(lines), **head)
