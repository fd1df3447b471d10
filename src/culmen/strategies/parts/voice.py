"""Who speaks for the advisor: a model behind the role `advisor`, or, without a model, a menu of kinds of edit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from culmen.core.ports import Lab

MENU = {  # what the offline proposer can do, by the name it knows it under
    "numbers": "change numbers a little, as large a step as has paid of late",
    "lines": "move, copy or remove single lines",
    "crossover": "take over parts of another good program",
    "statements": "exchange, repeat or remove whole statements",
    "operators": "exchange arithmetic operators and comparisons",
    "bounds": "move the limits of loops and ranges",
    "cheaper": "do less work where it may not matter",
    "refine": "improve a computed value by a loop of small random changes",
    "method": "replace a computation by another method for the same end",
    "restart": "run the whole from several random starts and keep the best",
    "effort": "spend more iterations on what is already there",
    "cma": "tune all numbers together by an evolution strategy",
}

STEPS = ("generate", "classify", "select", "result", "condense", "prune")


@dataclass(frozen=True)
class Said:
    """A reply: its text, a fault if there is none, and the number of its sample if it may be trained on."""

    text: str
    fault: str = ""
    sample: int | None = None


class Voice(Protocol):
    """Answers one of the `STEPS`."""

    async def say(self, lab: Lab, step: str, **slots: Any) -> Said: ...


class ModelVoice:
    """The model of the role `advisor`; a run without models draws from the menu instead, all entries alike."""

    def __init__(self) -> None:
        self._silent = False  # found out by asking once

    async def say(self, lab: Lab, step: str, **slots: Any) -> Said:
        """One request."""
        if not self._silent:
            reply = await lab.write(f"advisor.{step}", **slots)
            self._silent = reply.model == "offline"
            if not self._silent:
                return Said(reply.text, reply.fault)
        return Said(from_menu(step, slots, lab.rng))


def from_menu(step: str, slots: dict[str, Any], rng: Random) -> str:
    """What an advisor without any preference answers; steps that need words are left to their fallbacks ("").

    The same kind of edit is another experiment each time it is drawn, so choices carry a number.
    """
    if step == "generate":
        names = rng.sample(list(MENU), min(int(slots["count"]), len(MENU)))
        return json.dumps({"hypotheses": [{"hypothesis": entry(name)} for name in names]})
    if step == "classify":
        known = {idea["description"]: idea["number"] for idea in slots["ideas"]}
        number = known.get(slots["hypothesis"])
        return json.dumps({"exists": number is not None, "idea": number})
    if step == "select":
        option, draw = rng.choice(slots["options"]), rng.randrange(10**6)
        return json.dumps({"idea": option["idea"], "experiment": f"{option['hypothesis']} (draw {draw})"})
    return ""


def entry(name: str) -> str:
    """A line of the menu; its first word is the name."""
    return f"{name}: {MENU[name]}"
