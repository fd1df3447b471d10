"""Trackers: observers that copy a run to another program; extensions add them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from culmen.core.errors import UserError
from culmen.core.extensions import find_part, part_addresses
from culmen.core.ports import Observer


class RunTracker(Observer, Protocol):
    """An observer that copies a run to a tracker."""

    name: str

    def for_run(
        self, run: Path, report_message: Callable[[str], None]
    ) -> AbstractContextManager[object]:
        """The tracker at work on this run, as a context; it reports trouble, and raises nothing."""
        ...

    def send_journal(self, run: Path) -> int:
        """Copy a run from its journal; return the number of evaluations sent.

        Waits for the end of a running search.
        """
        ...


def make_trackers(wanted: Sequence[str]) -> tuple[RunTracker, ...]:
    """Trackers for texts `NAME[:PLACE][#OPTIONS]`, each made by the extension of its name.

    Raises `UserError` for an unknown name or option, or a missing package.
    """
    return tuple(_make_tracker(text) for text in dict.fromkeys(wanted))


def _make_tracker(text: str) -> RunTracker:
    name = text.partition("#")[0].partition(":")[0]
    make: Callable[[str], RunTracker] | None = find_part("trackers", name)
    if make is None:
        known = ", ".join(part_addresses("trackers"))
        raise UserError(
            f"there is no tracker '{name}'",
            where=f"--track {text}",
            fix=f"use one of {known}" if known else "install a package that adds it",
        )
    return make(text)
