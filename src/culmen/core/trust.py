"""How far a score can be trusted: four levels, strongest first, and the one way to compare them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LEVELS = ("certified", "verified", "proxied", "self-reported")

MEANINGS = {
    "certified": "the task's exact verifier vouches for the value",
    "verified": "scored in a process that candidate code never enters, from plain data",
    "proxied": "scored by evaluate(path) in a jailed process of its own; the candidate answered from another one",
    "self-reported": "evaluator and candidate share a process, so a candidate can forge its score",
}


class Scoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the scores of a run come about: the level of `trust` and, where it is not the strongest the form can have,
    `why`. `accept` names what an evaluator at level proxied takes from a candidate besides plain finite data."""

    trust: str = ""
    why: str = ""
    accept: tuple[str, ...] = ()


def rank(level: str) -> int:
    """0 for the strongest. "" (nobody said) counts as self-reported; an unknown name raises ValueError."""
    return LEVELS.index(level or LEVELS[-1])


def weakest(levels: Iterable[str]) -> str:
    """The level of a value made from several: that of its weakest part; "" of none."""
    return max((level or LEVELS[-1] for level in levels), key=rank, default="")


def reaches(level: str, wanted: str) -> bool:
    """Whether `level` is at least as strong as `wanted`."""
    return rank(level) <= rank(wanted)
