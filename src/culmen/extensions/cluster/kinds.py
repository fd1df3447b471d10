"""The backends `ray` and `slurm`; each imports its package when a run asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    carrier: str
    """Address of the connection's class."""

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

        module, _, name = self.carrier.partition(":")
        carrier = getattr(import_module(module), name)(choice, workers, on_message)
        return RemoteBackend(
            task, workers, carrier, require, scoring=scoring, on_message=on_message
        )


_HERE = "culmen.extensions.cluster"
RAY = ClusterKind("ray", "'culmen[ray]'", 0, True, f"{_HERE}.ray:RayCarrier")
SLURM = ClusterKind("submitit", "'culmen[slurm]'", None, False, f"{_HERE}.slurm:SlurmCarrier")
