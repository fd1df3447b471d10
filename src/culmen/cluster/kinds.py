"""The backends `ray`, `slurm` and `queue`; each imports its package when a run asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.cluster.remote import Carrier
    from culmen.core.evaluation import Scoring
    from culmen.core.options import BackendChoice
    from culmen.core.ports import Backend
    from culmen.core.task import Task


@dataclass(frozen=True)
class ClusterKind:
    """A kind of cluster (`evaluate.backends.BackendKind`)."""

    package: str
    extra: str
    workers: int | None
    has_address: bool
    carrier: Callable[[BackendChoice, int, Callable[[str], None] | None], Carrier]
    """The connection to the cluster, from the choice, the workers and a receiver of messages."""
    address: Callable[[str], str] = str
    """An address as the journal keeps it: without passwords. Raises `UserError` for a bad one."""

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
        from culmen.cluster.remote import RemoteBackend

        carrier = self.carrier(choice, workers, on_message)
        return RemoteBackend(task, workers, carrier, require, scoring=scoring)


def _ray_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    from culmen.cluster.ray import RayCarrier

    return RayCarrier(choice, on_message)


def _slurm_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    from culmen.cluster.slurm import SlurmCarrier

    return SlurmCarrier(choice, workers, on_message)


def _queue_carrier(
    choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None
) -> Carrier:
    from culmen.cluster.queue import QueueCarrier

    return QueueCarrier(choice, on_message)


def _queue_address(text: str) -> str:
    from culmen.core.errors import UserError
    from culmen.store.address import parse_address

    if text == "auto":
        fix = "culmen run TASK --backend queue:postgresql://user@host/database"
        raise UserError("a queue needs its database", where="--backend queue", fix=fix)
    return parse_address(text).url


RAY = ClusterKind("ray", "'culmen[ray]'", 0, True, _ray_carrier)
SLURM = ClusterKind("submitit", "'culmen[slurm]'", None, False, _slurm_carrier)
QUEUE = ClusterKind("psycopg", "'culmen[postgres]'", 0, True, _queue_carrier, _queue_address)
