"""The advisor as a policy that is trained: its replies are samples, a barrier's rewards become one update or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from culmen.core.ports import Lab
from culmen.strategies.parts.voice import MENU, Said, from_menu

TRAINED = ("generate", "select")  # the steps whose replies share a decision's advantage
TRAINABLE = ("generate", "classify", "select")
_MENU_STEPS = ("generate", "select")  # those that the tiny policy knows


@dataclass
class Policy:
    """One policy in training. `version` is the one sampled from; `samples` those of the present barrier, by number."""

    name: str
    steps: tuple[str, ...] = TRAINED
    version: int = 0
    samples: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    drawn: int = 0

    async def open(self, lab: Lab, **settings: Any) -> None:
        """Make the policy, or find it where an earlier session of this run left it; settings left empty are not
        mentioned."""
        given = {name: value for name, value in settings.items() if value not in ({}, False)}
        opened = await lab.effect("train.open", policy=self.name, menu=MENU, **given)
        self.version = int(opened.data.get("version", 0))
        lab.note("policy", name=self.name, **opened.data)

    async def say(self, lab: Lab, step: str, **slots: Any) -> Said:
        """One reply (`parts.voice.Voice`); the tiny policy knows a menu, all its other steps are left to rules."""
        if self.name == "tiny" and step not in _MENU_STEPS:
            return Said(from_menu(step, slots, lab.rng))
        drawn = await lab.effect("train.sample", step=step, slots=slots, version=self.version)
        text = str(drawn.data.get("text", ""))
        if step not in self.steps:
            return Said(text)
        self.drawn += 1
        self.samples[self.drawn] = drawn.data["sample"]
        return Said(text, sample=self.drawn)

    async def update(
        self,
        lab: Lab,
        decisions: Sequence[Sequence[int]],
        advantages: Sequence[float],
        rules: dict[str, Any],
        plan: dict[str, Any],
    ) -> dict[str, Any]:
        """One optimiser step on all samples of the barrier; the version afterwards is the one sampled from.

        `plan` says where the step stands among those planned; it is kept with the checkpoint. A decision's advantage
        goes to every sample it is made of. Ten digits of it are kept: the last ones differ from one processor to
        another, and a run may be resumed elsewhere.
        """
        batch = [
            {"sample": self.samples[number], "advantage": round(advantage, 10)}
            for numbers, advantage in zip(decisions, advantages, strict=True)
            for number in numbers
        ]
        updated = await lab.effect("train.update", version=self.version, batch=batch, rules=rules, plan=plan)
        self.version = int(updated.data["version"])
        return updated.data

    def forget(self) -> None:
        """A barrier is over: its samples are of no more use."""
        self.samples.clear()
