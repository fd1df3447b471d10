"""Where evaluations run: the options of run, resume and fork, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.store.meta import RunMeta

Backend = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where evaluations run: local, ray or slurm.", show_default="local")
]
RayAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of the Ray cluster: auto, local, ray://HOST:PORT.", show_default="auto"),
]
BackendSet = Annotated[
    str | None,
    typer.Option(metavar="NAME=N,...", help="What an evaluation needs there: cpu=1,gpu=0,memory=2GB,custom.NAME=1."),
]


def chosen(task: Task, backend: str | None, address: str | None, settings: str | None) -> dict[str, Any]:
    """The part of `Study.create`: nothing, where nobody says anything. Raises `UserError`."""
    from culmen.evaluate.cluster import choice

    found = choice.parse(backend, address, settings, task.defaults.get("resources", {}))
    return _part(found)


def changed(meta: RunMeta, backend: str | None, address: str | None, settings: str | None) -> dict[str, Any]:
    """The same for `Study.resume` and `Study.fork`, on top of what the run had."""
    if backend is None and address is None and settings is None:
        return {}
    from culmen.evaluate.cluster import choice

    return _part(choice.parse(backend, address, settings, {}, choice.as_choice(meta.extra.get("backend"))))


def _part(found: Any) -> dict[str, Any]:
    from culmen.evaluate.cluster import choice

    if found is None:
        return {}
    choice.check(found)
    return {"backend": found}
