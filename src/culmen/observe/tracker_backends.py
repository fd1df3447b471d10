"""MLflow: one run per search in an experiment named after the task."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from culmen.core.brief import Proposal, Text
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.observe.trackers import EffectSpan, TrackedPoint, TrackedRun, Tracker, Tracking

_TAG = "culmen.run"
_ENDS = {"finished": "FINISHED", "failed": "FAILED"}


class MLflow:
    """Logs to `uri`, or where MLflow's own settings say. Uses its client: nothing global is touched."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: Any = None
        self._run = ""

    def start(self, about: TrackedRun) -> None:
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

    def point(self, point: TrackedPoint) -> None:
        """One step of every curve, in one request."""
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        at = int(point.time * 1000)
        metrics = [Metric(name, value, at, point.evaluations) for name, value in point.figures().items()]
        self._client.log_batch(self._run, metrics=metrics)

    def span(self, span: EffectSpan) -> None:
        """Nothing: calls are told by the curves."""

    def close(self, state: str) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._run, _ENDS.get(state, "KILLED"))


# Weights & Biases: one run per search; offline with WANDB_MODE=offline.


class WeightsAndBiases:
    """Logs to `project`; where and whether over the network is for W&B's own variables to say."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._run: Any = None

    def start(self, about: TrackedRun) -> None:
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

    def point(self, point: TrackedPoint) -> None:
        """One step of every curve."""
        self._run.log(point.figures(), step=point.evaluations)

    def span(self, span: EffectSpan) -> None:
        """Nothing: calls are told by the curves."""

    def close(self, state: str) -> None:
        """Wait until it is written or sent."""
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "finished" else 1)


# TensorBoard: scalars against evaluations, in a folder of the run's name.


class TensorBoard:
    """Writes event files below `folder`; a run that is gone on with adds to its own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._writer: Any = None

    def start(self, about: TrackedRun) -> None:
        """Open the files and note the settings."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(self._folder / about.run))
        rows = {"task": about.task, "strategy": about.strategy, **about.settings}
        self._writer.add_text("settings", "\n".join(f"    {name} = {value}" for name, value in rows.items()))

    def point(self, point: TrackedPoint) -> None:
        """One step of every curve."""
        for name, value in point.figures().items():
            self._writer.add_scalar(name, value, point.evaluations, walltime=point.time)

    def span(self, span: EffectSpan) -> None:
        """Nothing: there are no spans in TensorBoard."""

    def close(self, state: str) -> None:
        """Everything is on disk."""
        self._writer.close()


# OpenTelemetry: one span per effect; calls of models after the semantic conventions for generative AI.

_NANO = 1_000_000_000


class OpenTelemetry:
    """Sends spans to `endpoint`, or where OTEL_EXPORTER_OTLP_ENDPOINT says, by OTLP over HTTP; `exporter` takes that
    one's place."""

    def __init__(self, endpoint: str = "", exporter: Any = None) -> None:
        self._endpoint, self._exporter = endpoint, exporter
        self._provider: Any = None
        self._tracer: Any = None

    def start(self, about: TrackedRun) -> None:
        """Make a provider of our own: whatever the process has set up globally is left alone."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        facts = {"service.name": "culmen", "culmen.run": about.run, "culmen.task": about.task}
        self._provider = TracerProvider(resource=Resource.create({**facts, "culmen.strategy": about.strategy}))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter or _otlp(self._endpoint)))
        self._tracer = self._provider.get_tracer("culmen")

    def point(self, point: TrackedPoint) -> None:
        """Nothing: the evaluation's span says it."""

    def span(self, span: EffectSpan) -> None:
        """One finished effect."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        result, model = span.result, getattr(span.result, "model", "")
        called = isinstance(result, Proposal | Text) and result.usage.calls > 0
        made = self._tracer.start_span(
            f"chat {model}".strip() if called else span.effect,
            kind=SpanKind.CLIENT if called else SpanKind.INTERNAL,
            start_time=int(span.start * _NANO),
            attributes={"culmen.effect": span.effect, "culmen.key": span.key, **_facts(span, called)},
        )
        fault = _fault(result)
        if fault:
            made.set_attribute("error.type", fault)
            made.set_status(Status(StatusCode.ERROR))
        made.end(end_time=int(max(span.start, span.end) * _NANO))

    def close(self, state: str) -> None:
        """Send what is left."""
        self._provider.shutdown()


def _facts(span: EffectSpan, called: bool) -> dict[str, Any]:
    """Attributes of a span, under the conventions' names for calls of models."""
    result: Any = span.result
    if called:
        provider, _, rest = result.model.partition("/")
        named = {"gen_ai.provider.name": provider} if rest else {}
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": rest or result.model,
            **named,
            "gen_ai.usage.input_tokens": result.usage.input_tokens,
            "gen_ai.usage.output_tokens": result.usage.output_tokens,
            "culmen.role": span.role,
            "culmen.calls": result.usage.calls,
            "culmen.dollars": result.usage.dollars,
        }
    if isinstance(result, Observation):
        found = {"culmen.candidate": result.candidate, "culmen.status": result.status.value}
        return found if result.score is None else {**found, "culmen.score": result.score}
    return {}


def _fault(result: Any) -> str:
    if isinstance(result, Observation):
        return "" if result.score is not None else result.status.value
    return str(getattr(result, "fault", ""))


def _otlp(endpoint: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces") if endpoint else OTLPSpanExporter()


# Trackers by what is written behind --track.


def _tensorboard(place: str) -> Tracker:
    return TensorBoard(place or "runs/tensorboard")


def _mlflow(place: str) -> Tracker:
    return MLflow(place)


def _wandb(place: str) -> Tracker:
    return WeightsAndBiases(place or "culmen")


def _otel(place: str) -> Tracker:
    return OpenTelemetry(place)


_MAKERS: dict[str, tuple[str, Callable[[str], Tracker]]] = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
    "otel": ("opentelemetry.exporter.otlp.proto.http", _otel),
}
NAMES = tuple(_MAKERS)


def trackers(wanted: Sequence[str]) -> tuple[Tracking, ...]:
    """Observers for `NAME` or `NAME:PLACE`; raises `UserError` for a name nobody knows or a package that is missing."""
    return tuple(_one(each) for each in dict.fromkeys(wanted))


def _one(text: str) -> Tracking:
    name, _, place = text.partition(":")
    if name not in _MAKERS:
        raise UserError(f"there is no tracker '{name}'", where=f"--track {text}", fix=f"use one of {', '.join(NAMES)}")
    package, make = _MAKERS[name]
    if not _installed(package):
        fix = f"pip install 'culmen[{name}]'"
        raise UserError(f"{name} needs the package {package}", where=f"--track {text}", fix=fix)
    return Tracking(name, make(place))


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
