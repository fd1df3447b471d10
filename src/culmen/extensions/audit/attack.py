"""Attacks and their outcomes, as plain data.

An attack is a data file in `attacks/` with a head of `# key: value` lines and the code that is
appended to an honest program.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from culmen.core.json import JsonObject

_HEAD = re.compile(r"^# (\w+): (.*)$")


class Attack(msgspec.Struct, frozen=True):
    """One attack.

    title     name in tables
    shows     weakness that it exploits
    success   criterion of success
    fix       change of the evaluator that prevents it
    cause     pattern in the evaluator's text (see `locate`)
    needs     requirement on the output: numbers | reported | function (one that the evaluator
              calls) | python
    effect    success other than a score: told | folder | stays | random; "" for a score
    values    one evaluation each
    controls  values that change the output alike without the trick, one for all or one each; none:
              the honest output
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
    values: tuple[object, ...] = (None,)
    controls: tuple[object, ...] = ()
    internal: bool = False


@cache
def all_attacks() -> dict[str, Attack]:
    """All attacks by name, including those for the audit's own use."""
    folder = files("culmen.extensions.audit") / "attacks"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    return {name[:-3]: _read_attack(name[:-3]) for name in found if not name.startswith("_")}


def _read_attack(name: str) -> Attack:
    head: JsonObject = {}
    text = (files("culmen.extensions.audit") / "attacks" / f"{name}.py").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    while lines and (found := _HEAD.match(lines[0])):
        head[found[1]] = found[2].strip()
        lines.pop(0)
    for key in ("values", "controls"):
        if key in head:
            head[key] = tuple(ast.literal_eval(f"[{head[key]}]"))
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

    value: object
    status: str
    score: float | None = None
    certified: float | None = None
    reason: str = ""


class AttackOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of one attack.

    result      gamed: a score above the honest one
                effect: a change outside the candidate's own process
                look: the score moved, but that may be honest
                inconclusive: it could not be tried with this program
                held: no gain
                skipped: it does not apply, or was left out
    honest      score without the attack
    scored      score with the attack
    certified   the verifier's value of the attack's output
    false       True if even the certified value is above the honest one
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
    """Result of the unchanged program.

    score        mean of the evaluations with one random seed
    noise        standard deviation with one random seed
    seed_noise   standard deviation between random seeds
    lucky        best score of any random seed
    certified    the verifier's value
    seconds      time of the first evaluation
    failure      reason if the program does not score
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
    """The report of an audit.

    `trust` is the level of the honest score, `isolation` that of the candidates' processes.
    """

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
    doubts: tuple[str, ...] = ()  # reasons for which held attacks do not reassure

    def of(self, *results: Result) -> list[AttackOutcome]:
        """The outcomes with one of these results."""
        return [outcome for outcome in self.outcomes if outcome.result in results]

    @property
    def gamed(self) -> bool:
        """True if any attack gamed the evaluator."""
        return bool(self.of("gamed", "effect"))

    @property
    def inconclusive(self) -> bool:
        """True if no attack succeeded and some could not be tried with this program."""
        return not self.gamed and bool(self.doubts or self.of("inconclusive"))
