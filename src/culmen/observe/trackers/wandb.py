"""Weights & Biases: one run per search; offline with WANDB_MODE=offline."""

from __future__ import annotations

from typing import Any

from culmen.observe.trackers.points import About, Point, Span


class WeightsAndBiases:
    """Logs to `project`; where and whether over the network is for W&B's own variables to say."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._run: Any = None

    def start(self, about: About) -> None:
        """Begin the run of this name, or go on with it."""
        import wandb  # pyright: ignore[reportMissingImports]

        self._run = wandb.init(
            project=self._project,
            id=about.run,
            name=about.run,
            group=about.task,
            config={"task": about.task, "strategy": about.strategy, **about.settings},
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def point(self, point: Point) -> None:
        """One step of every curve."""
        self._run.log(point.figures(), step=point.evaluations)

    def span(self, span: Span) -> None:
        """Nothing: calls are told by the curves."""

    def close(self, state: str) -> None:
        """Wait until it is written or sent."""
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "finished" else 1)
