"""From an experiment in words to a candidate with a score, with bounded repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.ports import Lab
from culmen.strategies.pacevolve.memory import FailureMemory
from culmen.strategies.settings import About, Format, check

NO_CANDIDATE = "no_candidate"
"""The fault of an experiment whose writer returned no new program."""


@dataclass(frozen=True)
class ExperimentOutcome:
    """Outcome of one experiment.

    `rollout` is None if there is no candidate; `fault` is a short word for the failure, "" if the
    candidate scored. `samples` are the trainable replies of its writer.
    """

    rollout: Rollout | None = None
    fault: str = ""
    reason: str = ""
    samples: tuple[int, ...] = ()

    @property
    def scored_rollout(self) -> tuple[Rollout, float] | None:
        """The candidate with its reward, if it has one."""
        reward = self.rollout.reward if self.rollout else None
        return None if self.rollout is None or reward is None else (self.rollout, reward)


@dataclass(frozen=True)
class WrittenProgram:
    """The candidates of one request, or its fault, and the number of a trainable sample."""

    candidates: Sequence[Candidate] = ()
    fault: str = ""
    sample: int | None = None


class ProgramWriter(Protocol):
    """Writes the program of an experiment."""

    async def write_program(self, lab: Lab, brief: Brief) -> WrittenProgram: ...


class ProposingWriter:
    """The run's proposer, in the role `implementer`."""

    async def write_program(self, lab: Lab, brief: Brief) -> WrittenProgram:
        """One request for a candidate."""
        proposal = await lab.propose(brief)
        return WrittenProgram(proposal.candidates, proposal.fault)


@dataclass
class _Request:
    """One experiment on its way: its island, its cases, and the replies of its writer."""

    writer: ProgramWriter
    island: int
    batch: int | None
    failures: FailureMemory
    samples: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Implementing:
    """Requests to the writer of programs for one experiment on the parent."""

    attempts: Annotated[int, About("requests until a reply holds a candidate", least=1)] = 3
    repairs: Annotated[
        int, About("times a candidate that failed is given back to be repaired", least=0)
    ] = 2
    format: Format = "auto"

    def __post_init__(self) -> None:
        check(self)

    async def carry_out(
        self,
        lab: Lab,
        writer: ProgramWriter,
        parent: Rollout | None,
        experiment: str,
        island: int,
        batch: int | None,
        failures: FailureMemory,
    ) -> ExperimentOutcome:
        """The experiment's candidate with its observations.

        Code that has failed before is not evaluated again.
        """
        request = _Request(writer, island, batch, failures)
        outcome = await self._write_candidate(lab, parent, experiment, request)
        for _ in range(self.repairs):
            failed = outcome.rollout
            if not outcome.fault or failed is None or outcome.fault == Status.LOST:
                break
            again = (
                f"{experiment}\n\nThe candidate was written for this and failed. Repair it; keep "
                "to the experiment."
            )
            failures.forbid_code(failed.candidate.digest)
            repaired = await self._write_candidate(lab, failed, again, request)
            if repaired.rollout is None:
                break
            outcome = repaired
        return replace(outcome, samples=tuple(request.samples))

    async def _write_candidate(
        self, lab: Lab, parent: Rollout | None, experiment: str, request: _Request
    ) -> ExperimentOutcome:
        brief = Brief(
            parent.candidate if parent else None,
            parent.observations if parent else (),
            parent.reward if parent else None,
            format=self.format,
            role="implementer",
            island=request.island,
            hypothesis=experiment,
        )
        fault, batch = "", request.batch
        for _ in range(self.attempts):
            written = await request.writer.write_program(lab, brief)
            request.samples += [] if written.sample is None else [written.sample]
            fresh = [c for c in written.candidates if parent is None or c.id != parent.candidate.id]
            untried = [c for c in fresh if not request.failures.knows_code(c.digest)]
            if untried:
                cases = None if batch is None else lab.minibatch(batch)
                return rollout_outcome(await lab.evaluate(untried[0], cases))
            fault = "failed before" if fresh else written.fault or "unchanged"
        return ExperimentOutcome(fault=NO_CANDIDATE, reason=fault)


def rollout_outcome(rollout: Rollout) -> ExperimentOutcome:
    """The outcome of an evaluation: the first observation without a score names the fault."""
    bad = next((o for o in rollout.observations if not o.ok), None)
    return (
        ExperimentOutcome(rollout)
        if bad is None
        else ExperimentOutcome(rollout, bad.status.value, _failure_reason(bad))
    )


def _failure_reason(observation: Observation) -> str:
    lines = [line.strip() for line in observation.feedback.splitlines() if line.strip()]
    return " ".join(filter(None, (observation.reason, lines[-1][:200] if lines else "")))
