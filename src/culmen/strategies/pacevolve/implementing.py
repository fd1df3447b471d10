"""From an experiment in words to a candidate with a score, with bounded repairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from culmen.core.brief import Brief
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.ports import Lab
from culmen.strategies.pacevolve.memory import FailureMemory
from culmen.strategies.settings import About, Format, check


@dataclass(frozen=True)
class ExperimentOutcome:
    """Outcome of one experiment.

    `rollout` is None if there is no candidate; `fault` is a short word for the failure, "" if the
    candidate scored.
    """

    rollout: Rollout | None = None
    fault: str = ""
    reason: str = ""

    @property
    def scored_rollout(self) -> tuple[Rollout, float] | None:
        """The candidate with its reward, if it has one."""
        reward = self.rollout.reward if self.rollout else None
        return None if self.rollout is None or reward is None else (self.rollout, reward)


@dataclass(frozen=True)
class Implementing:
    """Requests to the proposer, in the role `implementer`, for one experiment on the parent."""

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
        parent: Rollout | None,
        experiment: str,
        island: int,
        batch: int | None,
        failures: FailureMemory,
    ) -> ExperimentOutcome:
        """The experiment's candidate with its observations.

        Code that has failed before is not evaluated again.
        """
        outcome = await self._write_candidate(lab, parent, experiment, island, batch, failures)
        for _ in range(self.repairs):
            failed = outcome.rollout
            if not outcome.fault or failed is None or outcome.fault == Status.LOST:
                break
            again = (
                f"{experiment}\n\nThe candidate was written for this and failed. Repair it; keep "
                "to the experiment."
            )
            failures.forbid_code(failed.candidate.digest)
            repaired = await self._write_candidate(lab, failed, again, island, batch, failures)
            if repaired.rollout is None:
                break
            outcome = repaired
        return outcome

    async def _write_candidate(
        self,
        lab: Lab,
        parent: Rollout | None,
        experiment: str,
        island: int,
        batch: int | None,
        failures: FailureMemory,
    ) -> ExperimentOutcome:
        brief = Brief(
            parent.candidate if parent else None,
            parent.observations if parent else (),
            parent.reward if parent else None,
            format=self.format,
            role="implementer",
            island=island,
            hypothesis=experiment,
        )
        fault = ""
        for _ in range(self.attempts):
            proposal = await lab.propose(brief)
            fresh = [
                c for c in proposal.candidates if parent is None or c.id != parent.candidate.id
            ]
            untried = [c for c in fresh if not failures.knows_code(c.digest)]
            if untried:
                cases = None if batch is None else lab.minibatch(batch)
                return rollout_outcome(await lab.evaluate(untried[0], cases))
            fault = "failed before" if fresh else proposal.fault or "unchanged"
        return ExperimentOutcome(fault="no_candidate", reason=fault)


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
