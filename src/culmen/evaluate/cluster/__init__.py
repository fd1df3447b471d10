"""Where evaluations run: this machine, a Ray cluster, Slurm jobs. Nothing is loaded before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culmen.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from culmen.core.evaluation import Scoring
    from culmen.core.ports import Backend
    from culmen.core.task import Task
    from culmen.evaluate.cluster.choice import BackendChoice
    from culmen.evaluate.cluster.remote import Carrier


def make(
    choice: BackendChoice,
    task: Task,
    workers: int,
    require: str | None = None,
    scoring: Scoring | None = None,
    tell: Callable[[str], None] | None = None,
    *,
    level: str | None = None,
) -> Backend:
    """The backend a run asked for, with its usual number of `workers` for 0.

    `tell` gets messages while it waits for nodes. Raises `UserError` where its extra is not
    installed or it cannot run this task.
    """
    from culmen.evaluate.cluster import choice as choices

    choices.check(choice)
    workers = workers or choices.usual_workers(choice)
    if choice.name == "local":
        from culmen.evaluate.local import LocalBackend

        return LocalBackend(task, workers, require, level=level, scoring=scoring)
    if level is not None:
        raise UserError(
            "only evaluations on this machine take a level",
            where=f"--isolation {level}",
            fix="leave it out, or use --require",
        )
    if task.evaluator.form == "function":
        raise UserError(
            "a Python function of your own process cannot run elsewhere",
            where=f"--backend {choice.name}",
            fix="write the evaluator as a task folder: culmen new DIR",
        )
    from culmen.evaluate.cluster.remote import RemoteBackend

    return RemoteBackend(task, workers, _carrier(choice, workers, tell), require, scoring=scoring)


def _carrier(choice: BackendChoice, workers: int, tell: Callable[[str], None] | None) -> Carrier:
    if choice.name == "ray":
        from culmen.evaluate.cluster.ray import RayCarrier

        return RayCarrier(choice, tell)
    from culmen.evaluate.cluster.slurm import SlurmCarrier

    return SlurmCarrier(choice, workers, tell)
