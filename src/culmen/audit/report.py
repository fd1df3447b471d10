"""What an audit found, as plain data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Result = Literal["gamed", "effect", "look", "held", "skipped"]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the evaluator to change; `proven` if the attack failed once it was changed."""

    file: str
    line: int
    text: str
    why: str = ""
    proven: bool = False


class Try(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation of an attack: with which value, and what came of it."""

    value: Any
    status: str
    score: float | None = None
    certified: float | None = None
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one attack.

    result    gamed: a score above the honest one · effect: something outside its own process was touched
              look: the score moved, but that may be honest · held · skipped: does not apply, or was left out
    honest    the score without the attack; `scored` with it; `certified` what the verifier says of the attack's output
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
    places: tuple[Place, ...] = ()
    tries: tuple[Try, ...] = ()


class Honest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program as it is: mean score, spread with one random seed and between several, the verifier's value.

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


class Report(msgspec.Struct, frozen=True):
    """Everything found. `trust` is the level of the honest score, `isolation` that of the candidates' processes."""

    task: str
    form: str
    direction: str
    trust: str
    isolation: str
    honest: Honest
    outcomes: tuple[Outcome, ...]
    evaluations: int
    seconds: float
    notes: tuple[str, ...] = ()

    def of(self, *results: Result) -> list[Outcome]:
        """The outcomes with one of these results."""
        return [outcome for outcome in self.outcomes if outcome.result in results]

    @property
    def gamed(self) -> bool:
        """Whether anything can be gamed."""
        return bool(self.of("gamed", "effect"))
