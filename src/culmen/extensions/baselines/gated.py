"""One text at a time behind a gate on held-out cases, as in SkillOpt and cap-evolve."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Annotated

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.settings import About, Batch, check

GATES = ("strict", "paired")


@dataclass(frozen=True)
class Gated:
    """A change of the current text stays if it is better on held-out cases by the gate's rule.

    strict: a higher mean than the current text had when it passed, however little higher. paired:
    the mean of the differences by case is above `errors` standard errors of it. Texts that did not
    pass are shown to the proposer, so that it does not repeat them. It is the control that shows
    what a gate costs under noise: one lucky evaluation of the current text bars its successors.
    """

    paper = "SkillOpt (arXiv:2605.23904); cap-evolve's paired gate"

    gate: Annotated[str, About("strict or paired")] = "strict"
    errors: Annotated[float, About("standard errors of the paired gate", least=0.0)] = 1.0
    batch: Batch = 8
    repeats: Annotated[int, About("evaluations on each held-out case", least=1)] = 1
    edits: Annotated[int, About("lines that one change may add and remove", least=1)] = 8
    remembered: Annotated[int, About("changes shown that did not pass", least=0)] = 10

    def __post_init__(self) -> None:
        check(self)
        if self.gate not in GATES:
            raise UserError(
                f"there is no gate '{self.gate}'",
                where="strategy Gated",
                fix=f"use {' or '.join(GATES)}",
            )

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        held_out = lab.task.split("val") or None
        first = lab.seeds or (await lab.propose(Brief())).candidates
        if not first:
            return
        tried = await lab.gather(*(lab.evaluate(one, held_out, self.repeats) for one in first))
        current = max(tried, key=lambda each: -math.inf if each.reward is None else each.reward)
        refused: list[str] = []
        while True:
            seen = await lab.evaluate(current.candidate, lab.minibatch(self.batch))
            context = "\n\n".join(refused[-self.remembered :] if self.remembered else ())
            told = f"Changes that did not help:\n\n{context}" if context else ""
            brief = Brief(current.candidate, seen.observations, seen.reward, context=told)
            for child in (await lab.propose(brief)).candidates:
                change = changed_lines(current.candidate, child)
                if not 0 < len(change) <= self.edits:
                    continue
                trial = await lab.evaluate(child, held_out, self.repeats)
                passes = self.lets_pass(current, trial, lab.task.objective.floor)
                lab.note("gate", candidate=child.id, passed=passes, mean=trial.reward)
                if passes:
                    current = trial
                else:
                    refused.append("\n".join(change))

    def lets_pass(self, current: Rollout, trial: Rollout, floor: float | None) -> bool:
        """True if the trial replaces the current text; both are of the same cases, in order.

        A failure counts as `floor`; without one, a text that failed loses to any that did not.
        """
        old, new = (
            [floor if each is None else each for each in r.rewards] for r in (current, trial)
        )
        before, after = (_mean_by_case(rewards, self.repeats) for rewards in (old, new))
        if before is None or after is None:
            return after is not None
        gains = [late - early for early, late in zip(before, after, strict=True)]
        if self.gate == "strict" or len(gains) < 2:
            return fmean(gains) > 0.0
        return fmean(gains) > self.errors * stdev(gains) / math.sqrt(len(gains))


def _mean_by_case(rewards: list[float | None], repeats: int) -> list[float] | None:
    """The mean of each case's repeats, which stand side by side; None if one is missing."""
    known = [each for each in rewards if each is not None]
    if not known or len(known) < len(rewards):
        return None
    return [fmean(known[at : at + repeats]) for at in range(0, len(known), repeats)]


def changed_lines(before: Candidate, after: Candidate) -> list[str]:
    """The lines that were removed (-) and added (+)."""
    lines: list[str] = []
    for name in dict.fromkeys([*before.parts, *after.parts]):
        old, text = before.parts.get(name, ""), after.parts.get(name, "")
        found = difflib.ndiff(old.splitlines(), text.splitlines())
        lines += [line for line in found if line[:2] in ("- ", "+ ")]
    return lines
