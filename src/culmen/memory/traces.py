"""What was seen of each candidate, kept short: the material of POLCA's Summarizer (Appendix B, trajectories H)."""

from __future__ import annotations

from typing import NamedTuple

from culmen.core.evaluation import Observation, Rollout, Status


class Trace(NamedTuple):
    """One observation without its bulk. `reward` is None when the candidate failed."""

    case: str
    reward: float | None
    status: str
    feedback: str


class Traces:
    """The newest `keep` traces of every candidate, each feedback cut to `chars` characters.

    The paper keeps all trajectories; a bound keeps long searches small, and the newest say most about a candidate.
    """

    def __init__(self, keep: int = 8, chars: int = 1500) -> None:
        self._keep = keep
        self._chars = chars
        self._traces: dict[str, list[Trace]] = {}

    def update(self, rollout: Rollout) -> None:
        """Take in one rollout; lost observations are passed over."""
        traces = self._traces.setdefault(rollout.candidate.id, [])
        for observation, reward in zip(rollout.observations, rollout.rewards, strict=True):
            if observation.status is not Status.LOST:
                traces.append(self._trace(observation, reward))
        del traces[: -self._keep]

    def _trace(self, observation: Observation, reward: float | None) -> Trace:
        status = observation.status.value + (f" ({observation.reason})" if observation.reason else "")
        return Trace(observation.case, reward, status, observation.feedback[: self._chars])

    def of(self, key: str) -> list[Trace]:
        """Traces of one candidate, oldest first."""
        return self._traces.get(key, [])
