"""MLflow: one run per search in an experiment named after the task."""

from __future__ import annotations

from typing import Any

from culmen.observe.trackers.points import About, Point, Span

_TAG = "culmen.run"
_ENDS = {"finished": "FINISHED", "failed": "FAILED"}


class MLflow:
    """Logs to `uri`, or where MLflow's own settings say. Uses its client: nothing global is touched."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: Any = None
        self._run = ""

    def start(self, about: About) -> None:
        """Go on with the run of this name, or begin it."""
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

        self._client = client = MlflowClient(tracking_uri=self._uri or None)
        name = f"culmen-{about.task}"
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        same = client.search_runs([experiment], f"tags.`{_TAG}` = '{about.run}'", max_results=1)
        if same:
            self._run = same[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        self._run = client.create_run(experiment, run_name=about.run, tags={_TAG: about.run}).info.run_id
        for key, value in {"task": about.task, "strategy": about.strategy, **about.settings}.items():
            client.log_param(self._run, key, value[:500])

    def point(self, point: Point) -> None:
        """One step of every curve, in one request."""
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        at = int(point.time * 1000)
        metrics = [Metric(name, value, at, point.evaluations) for name, value in point.figures().items()]
        self._client.log_batch(self._run, metrics=metrics)

    def span(self, span: Span) -> None:
        """Nothing: calls are told by the curves."""

    def close(self, state: str) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._run, _ENDS.get(state, "KILLED"))
