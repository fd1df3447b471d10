"""Attacks and their outcomes, as plain data.

An attack is a data file in `attacks/` with a head of `# key: value` lines and the code that is
appended to an honest program.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

_HEAD = re.compile(r"^# (\w+): (.*)$")


class Attack(msgspec.Struct, frozen=True):
    """One attack.

    title     name in tables
    shows     what it exploits
    success   criterion of success
    fix       what to change
    cause     pattern in the evaluator's text (see `locate`)
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
    """Code shared by all attacks."""
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


Result = Literal["gamed", "effect", "look", "inconclusive", "held", "skipped"]


class EvaluatorLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the evaluator to change; `proven` if the attack failed once it was changed."""

    file: str
    line: int
    text: str
    why: str = ""
    proven: bool = False


class AttackTry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation of an attack: its value and the result."""

    value: Any
    status: str
    score: float | None = None
    certified: float | None = None
    reason: str = ""


class AttackOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of one attack.

    result    gamed: a score above the honest one · effect: something outside its own process was
    touched
              look: the score moved, but that may be honest · inconclusive: with this program it
              could not be tried
              held · skipped: does not apply, or was left out
    honest    the score without the attack; `scored` with it; `certified` what the verifier says of
    the attack's output
    false     whether even the certified value is above what is honest
    """

    name: str
    title: str
    result: Result
    evidence: str = ""
    honest: float | None = None
    scored: float | None = None
    certified: float | None = None
    false: bool = False
    shows: str = ""
    fix: str = ""
    places: tuple[EvaluatorLine, ...] = ()
    tries: tuple[AttackTry, ...] = ()


class HonestResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program as it is: mean score, spread with one random seed and between several, the
    verifier's value.

    `lucky` is the best score of any random seed.
    """

    candidate: str
    score: float | None = None
    noise: float = 0.0
    seed_noise: float = 0.0
    lucky: float | None = None
    certified: float | None = None
    seconds: float = 0.0
    failure: str = ""


class AuditReport(msgspec.Struct, frozen=True):
    """The report of an audit. `trust` is the level of the honest score, `isolation` that of the
    candidates' processes."""

    task: str
    form: str
    direction: str
    trust: str
    isolation: str
    honest: HonestResult
    outcomes: tuple[AttackOutcome, ...]
    evaluations: int
    seconds: float
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # why nothing that held reassures

    def of(self, *results: Result) -> list[AttackOutcome]:
        """The outcomes with one of these results."""
        return [outcome for outcome in self.outcomes if outcome.result in results]

    @property
    def gamed(self) -> bool:
        """Whether any attack gamed the evaluator."""
        return bool(self.of("gamed", "effect"))

    @property
    def inconclusive(self) -> bool:
        """Whether nothing was gamed, and something could not be tried with this program."""
        return not self.gamed and bool(self.doubts or self.of("inconclusive"))
