"""The backends `ray` and `slurm`; each imports its package when a run asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.core.evaluation import Scoring
    from culmen.core.options import BackendChoice
    from culmen.core.ports import Backend
    from culmen.core.task import Task
    from culmen.extensions.cluster.remote import Carrier


@dataclass(frozen=True)
class ClusterKind:
    """A kind of cluster (`evaluate.backends.BackendKind`)."""

    package: str
    extra: str
    workers: int | None
    has_address: bool
    carrier: Callable[[BackendChoice, int, Callable[[str], None] | None], Carrier]
    """The connection to the cluster, from the choice, the workers and a receiver of messages."""

    def make_backend(
        self,
        choice: BackendChoice,
        task: Task,
        workers: int,
        require: str | None,
        scoring: Scoring | None,
        on_message: Callable[[str], None] | None,
    ) -> Backend:
        """The backend, not yet started."""
        from culmen.extensions.cluster.remote import RemoteBackend

        carrier = self.carrier(choice, workers, on_message)
        return RemoteBackend(
            task, workers, carrier, require, scoring=scoring, on_message=on_message
        )


def _ray_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    from culmen.extensions.cluster.ray import RayCarrier

    return RayCarrier(choice, on_message)


def _slurm_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    from culmen.extensions.cluster.slurm import SlurmCarrier

    return SlurmCarrier(choice, workers, on_message)


RAY = ClusterKind("ray", "'culmen[ray]'", 0, True, _ray_carrier)
SLURM = ClusterKind("submitit", "'culmen[slurm]'", None, False, _slurm_carrier)
