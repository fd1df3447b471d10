"""The best candidate of a run, and how it was chosen."""

from __future__ import annotations

from typing import Any

import msgspec

FINAL_RULE = "the engine's final choice, scored on evaluations made after it was chosen"
FAILED_RULE = "the engine's final choice; it failed some of the evaluations made after it was chosen"
UNCONFIRMED_RULE = "the engine's final choice; no evaluations were left to confirm it"


class Best(msgspec.Struct, frozen=True):
    """The best candidate: `mean` over `count` evaluations, `score` what is reported of it; `how` it was chosen.

    Once the run has finished these are the engine's: `score` comes from `count` fresh evaluations if `confirmed`, with
    standard error `se`, and `search_score` is the mean it had before. `trust` is the level of the weakest evaluation
    (`core.trust`); `verified`: at least at that level, and where the task has a verifier each output passed it as given
    (`strict`). `certified` is the verifier's value, of the output or else of its strictly feasible repair (None: none
    asked, or not accepted).
    """

    id: str
    score: float
    mean: float
    count: int
    verified: bool
    how: str
    confirmed: bool = False
    se: float | None = None
    search_score: float | None = None
    certified: float | None = None
    strict: bool | None = None
    trust: str = ""

    @property
    def value(self) -> float:
        """What the run stands for: the certified value where there is one, else the score."""
        return self.score if self.certified is None else self.certified


def final(winner: dict[str, Any]) -> Best:
    """The engine's final choice as its state event tells it."""
    score, confirmed = float(winner["score"]), bool(winner.get("confirmed", False))
    return Best(
        id=str(winner["id"]),
        score=score,
        mean=float(winner.get("mean", score)),
        count=int(winner["count"]),
        verified=bool(winner.get("verified", False)),
        how=FINAL_RULE if confirmed else FAILED_RULE if winner.get("failures") else UNCONFIRMED_RULE,
        confirmed=confirmed,
        se=winner.get("se"),
        search_score=winner.get("search_score"),
        certified=winner.get("certified"),
        strict=winner.get("strict"),
        trust=str(winner.get("trust") or _trust_before_levels(winner)),
    )


def _trust_before_levels(winner: dict[str, Any]) -> str:
    """What a run that ended under format 1 says: yes or no, and the verifier's value."""
    if winner.get("certified") is not None:
        return "certified"
    return "verified" if winner.get("verified") or winner.get("strict") is not None else "self-reported"
