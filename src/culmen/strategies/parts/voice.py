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


@dataclass(frozen=True)
class ModelVoice:
    """The model of the role `advisor`; a run without models draws from the menu instead, all entries alike."""

    async def say(self, lab: Lab, step: str, **slots: Any) -> Said:
        """One request."""
        reply = await lab.write(f"advisor.{step}", **slots)
        if reply.model == "offline":
            return Said(from_menu(step, slots, lab.rng))
        return Said(reply.text, reply.fault)


def from_menu(step: str, slots: dict[str, Any], rng: Random) -> str:
    """What an advisor without any preference answers; steps that need words are left to their fallbacks ("")."""
    if step == "generate":
        names = rng.sample(list(MENU), min(int(slots["count"]), len(MENU)))
        return json.dumps({"hypotheses": [{"hypothesis": entry(name)} for name in names]})
    if step == "classify":
        known = {idea["description"]: idea["number"] for idea in slots["ideas"]}
        number = known.get(slots["hypothesis"])
        return json.dumps({"exists": number is not None, "idea": number})
    if step == "select":
        return json.dumps(rng.choice([{"idea": o["idea"], "experiment": o["hypothesis"]} for o in slots["options"]]))
    return ""


def entry(name: str) -> str:
    """A line of the menu; its first word is the name."""
    return f"{name}: {MENU[name]}"
