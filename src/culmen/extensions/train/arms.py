"""Arms of the comparison: who decides, who writes, whose replies are trained (3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.ports import Lab
from culmen.core.replies.names import part_names
from culmen.extensions.train.policy import TrainedPolicy
from culmen.models.call import Completion
from culmen.models.prompts.formats import Rewrite, read_completion
from culmen.strategies.pacevolve.advisor import Advising, ModelVoice, Voice
from culmen.strategies.pacevolve.implementing import (
    ProgramWriter,
    ProposingWriter,
    WrittenProgram,
)

IMPLEMENT = "implement"
"""The step in which a policy writes a program."""


@dataclass(frozen=True)
class TrainedAdvisor:
    """The policy decides and is trained; the run's model writes programs (PACEvolve++)."""

    trains: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def voice(self, policy: TrainedPolicy) -> Voice:
        """The model that decides."""
        return policy

    def writer(self, policy: TrainedPolicy, advising: Advising) -> ProgramWriter:
        """The model that writes programs."""
        return ProposingWriter()


@dataclass(frozen=True)
class FrontierAdvisor(TrainedAdvisor):
    """The run's model in the role `advisor` decides, in the same barriers; nothing is trained."""

    trains: ClassVar[bool] = False

    def voice(self, policy: TrainedPolicy) -> Voice:
        """The run's model."""
        return ModelVoice()


@dataclass(frozen=True)
class EndToEnd(TrainedAdvisor):
    """The policy decides and writes the programs; all its replies are trained (ThetaEvolve)."""

    writes: ClassVar[bool] = True

    def writer(self, policy: TrainedPolicy, advising: Advising) -> ProgramWriter:
        """The policy."""
        return PolicyWriter(policy, advising)


@dataclass(frozen=True)
class PolicyWriter:
    """Programs by the policy in training: one reply, whole texts or edits."""

    policy: TrainedPolicy
    advising: Advising

    async def write_program(self, lab: Lab, brief: Brief) -> WrittenProgram:
        """One candidate; a reply without one is a fault and is trained all the same."""
        parent, task = brief.parent, lab.task
        slots = {
            "goal": task.goal,
            "experiment": brief.hypothesis,
            "program": _program_slot(parent),
            "parts": list(part_names(task, parent).editable),
            **self.advising.evaluation_slots(brief.observations),
        }
        reply = await self.policy.answer_step(lab, IMPLEMENT, **slots)
        parsed = read_completion(Completion(reply.text), Rewrite(), task, parent)
        origin = Origin(IMPLEMENT, self.policy.name, island=brief.island)
        parents = (parent.id,) if parent else ()
        made = tuple(Candidate.of(draft.parts, parents, origin) for draft in parsed.drafts)
        return WrittenProgram(made, parsed.fault, reply.sample)


def _program_slot(parent: Candidate | None) -> str | dict[str, str]:
    if parent is None:
        return ""
    return parent.text if len(parent.parts) == 1 else dict(parent.parts)


def trained_steps(arm: TrainedAdvisor, roles: Sequence[str]) -> tuple[str, ...]:
    """The steps whose replies are trained: the advisor's `roles`, and programs if it writes."""
    return (*roles, IMPLEMENT) if arm.writes else tuple(roles)
