"""TensorBoard: scalars against evaluations, in a folder of the run's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from culmen.observe.trackers.points import About, Point, Span


class TensorBoard:
    """Writes event files below `folder`; a run that is gone on with adds to its own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._writer: Any = None

    def start(self, about: About) -> None:
        """Open the files and note the settings."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(self._folder / about.run))
        rows = {"task": about.task, "strategy": about.strategy, **about.settings}
        self._writer.add_text("settings", "\n".join(f"    {name} = {value}" for name, value in rows.items()))

    def point(self, point: Point) -> None:
        """One step of every curve."""
        for name, value in point.figures().items():
            self._writer.add_scalar(name, value, point.evaluations, walltime=point.time)

    def span(self, span: Span) -> None:
        """Nothing: there are no spans in TensorBoard."""

    def close(self, state: str) -> None:
        """Everything is on disk."""
        self._writer.close()
