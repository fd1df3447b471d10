"""The ecosystems whose task folders run unmodified, and the protocol of one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from culmen.core.task import Task
from culmen.evaluate.adapters import harbor, shinka
from culmen.evaluate.adapters.openevolve import folder as openevolve


class FolderAdapter(Protocol):
    """A module with these functions; nothing of a folder is imported or run while it is read.

    What happens inside the jail belongs in a file of its own, which `evaluator_process` chooses by
    `evaluator.options["contract"]`.
    """

    def fits(self, folder: Path) -> bool:
        """Whether the folder is one of this ecosystem's, as far as its files tell."""
        ...

    def read_folder(self, folder: Path, goal: str = "") -> Task:
        """Its task; raises `TaskError` that names the smallest change where it cannot run as it is."""
        ...


ADAPTERS: tuple[FolderAdapter, ...] = (harbor, openevolve, shinka)


def read(folder: Path, goal: str = "") -> Task | None:
    """The task of a folder of a known ecosystem, None if it is none."""
    adapter = next((adapter for adapter in ADAPTERS if adapter.fits(folder)), None)
    return None if adapter is None else adapter.read_folder(folder, goal)
