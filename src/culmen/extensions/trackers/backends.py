"""Trackers for tracking libraries: MLflow, Weights & Biases, TensorBoard, OpenTelemetry.

MLflow gets one run per search in an experiment named after the task.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.event import Result
from culmen.core.json import JsonObject
from culmen.extensions.trackers.rollouts import RolloutSpan, rollout_spans
from culmen.extensions.trackers.tracking import (
    EffectSpan,
    TrackedCandidate,
    TrackedPoint,
    TrackedRun,
    Tracker,
    Tracking,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer
    from tensorboardX import SummaryWriter

_TAG = "culmen.run"
_ENDS = {"finished": "FINISHED", "failed": "FAILED"}


class MLflow(Tracker):
    """Tracker that logs to MLflow at `uri`, or as MLflow's own settings define.

    It uses MLflow's client and changes no global state. With `run`, it logs to that existing run of
    MLflow, which its owner ends; all keys begin with `prefix`.
    """

    def __init__(self, uri: str, run: str = "", prefix: str = "", texts: bool = False) -> None:
        self._uri, self._run_id, self._prefix, self.texts = uri, run, prefix, texts
        self._client: Any = None
        self._run, self.reached = run, 0

    def start(self, about: TrackedRun) -> None:
        """Resume the MLflow run of this name, or begin it."""
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

        self._client = client = MlflowClient(tracking_uri=self._uri or None)
        if self._run_id:
            self._read_reached()
            logged = client.get_run(self._run).data.params
            return self._log_settings(about, logged)
        name = f"culmen-{about.task}"
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        same = client.search_runs([experiment], f"tags.`{_TAG}` = '{about.run}'", max_results=1)
        if same:
            self._run = same[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return self._read_reached()
        self._run = client.create_run(
            experiment, run_name=about.run, tags={_TAG: about.run}
        ).info.run_id
        self._log_settings(about, {})

    def _read_reached(self) -> None:
        """Read the number of evaluations logged before."""
        before = self._client.get_metric_history(self._run, f"{self._prefix}seconds")
        self.reached = max((metric.step for metric in before), default=0)

    def _log_settings(self, about: TrackedRun, logged: Mapping[str, str]) -> None:
        """Log settings that are not there yet: MLflow refuses to change one."""
        for key, value in {
            "task": about.task,
            "strategy": about.strategy,
            **about.settings,
        }.items():
            if f"{self._prefix}{key}" not in logged:
                self._client.log_param(self._run, f"{self._prefix}{key}", value[:500])

    def log_point(self, point: TrackedPoint) -> None:
        """Log one step of every curve, in one request."""
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        at = int(point.time * 1000)
        metrics = [
            Metric(f"{self._prefix}{name}", value, at, point.evaluations)
            for name, value in point.plotted_values().items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def log_candidates(self, candidates: Sequence[TrackedCandidate]) -> None:
        """Log the candidates as a table in MLflow's format, and a file for each text."""
        columns = [name for name in _COLUMNS if name != "text"]
        data = [_candidate_table_row(each)[: len(columns)] for each in candidates]
        folder = self._prefix.strip("/") or "culmen"
        self._client.log_dict(
            self._run, {"columns": columns, "data": data}, f"{folder}/candidates.json"
        )
        for each in candidates:
            for name, text in each.parts.items():
                self._client.log_text(self._run, text, f"{folder}/texts/{each.id}/{name}")

    def close(self, state: str) -> None:
        """Set the final state, unless the run has another owner."""
        if self._run_id:
            return
        self._client.set_terminated(self._run, _ENDS.get(state, "KILLED"))


# Weights & Biases: one run per search; offline with WANDB_MODE=offline.


class WeightsAndBiases(Tracker):
    """Tracker that logs to `project` of Weights & Biases.

    W&B's own environment variables define the server and offline mode. With `run`, it logs to that
    existing run, where all keys begin with `prefix` and have their own count of evaluations; a run
    begun by this process stays open.
    """

    def __init__(self, project: str, run: str = "", prefix: str = "", texts: bool = False) -> None:
        self._project, self._run_id, self._prefix, self.texts = (
            project or "culmen",
            run,
            prefix,
            texts,
        )
        self._run: Any = None
        self._borrowed, self.reached = False, 0

    def start(self, about: TrackedRun) -> None:
        """Begin the run of this name, or resume it."""
        import wandb  # pyright: ignore[reportMissingImports]

        named = {"task": about.task, "strategy": about.strategy, **about.settings}
        config = {f"{self._prefix}{key}": value for key, value in named.items()}
        if self._run_id:
            self._borrowed = wandb.run is not None and wandb.run.id == self._run_id
        names: JsonObject = {} if self._run_id else {"name": about.run, "group": about.task}
        self._run = (
            wandb.run
            if self._borrowed
            else self._init_run(config, self._run_id or about.run, names)
        )
        if self._run_id:
            self._run.config.update(config, allow_val_change=True)
            self._run.define_metric(f"{self._prefix}*", step_metric=f"{self._prefix}evaluations")
            self.reached = int(self._run.summary.get(f"{self._prefix}evaluations") or 0)
        elif self._run.resumed:
            self.reached = max(0, int(self._run.step) - 1)

    def _init_run(self, config: dict[str, str], id: str, names: JsonObject) -> Any:
        import wandb  # pyright: ignore[reportMissingImports]

        return wandb.init(
            project=self._project,
            id=id,
            **names,
            config=config,
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def log_point(self, point: TrackedPoint) -> None:
        """Log one step of every curve."""
        figures = {f"{self._prefix}{name}": value for name, value in point.plotted_values().items()}
        if self._run_id:  # the run's owner counts its steps
            self._run.log({**figures, f"{self._prefix}evaluations": point.evaluations})
        else:
            self._run.log(figures, step=point.evaluations)

    def log_candidates(self, candidates: Sequence[TrackedCandidate]) -> None:
        """Log the candidates as a table; texts, if wanted, are in its last column."""
        import wandb  # pyright: ignore[reportMissingImports]

        columns: list[Any] = [name for name in _COLUMNS if self.texts or name != "text"]
        rows: list[Any] = [_candidate_table_row(each)[: len(columns)] for each in candidates]
        self._run.log({f"{self._prefix}candidates": wandb.Table(columns=columns, data=rows)})

    def close(self, state: str) -> None:
        """Wait until all data are written or sent; leave a run begun by this process open."""
        self._run.summary[f"{self._prefix}state"] = state
        if self._borrowed:
            return
        self._run.finish(exit_code=0 if state == "finished" else 1)


# TensorBoard: scalars against evaluations, in a folder of the run's name.


class TensorBoard(Tracker):
    """Tracker that writes event files below `folder`; a resumed run adds to its own files."""

    def __init__(self, folder: str, prefix: str = "") -> None:
        self._folder, self._prefix = Path(folder or "runs/tensorboard"), prefix
        self._writer: SummaryWriter  # set by `start`

    def start(self, about: TrackedRun) -> None:
        """Open the files and record the settings."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(self._folder / about.run))
        rows = {"task": about.task, "strategy": about.strategy, **about.settings}
        self._writer.add_text(
            "settings", "\n".join(f"    {name} = {value}" for name, value in rows.items())
        )

    def log_point(self, point: TrackedPoint) -> None:
        """Write one step of every curve."""
        for name, value in point.plotted_values().items():
            self._writer.add_scalar(
                f"{self._prefix}{name}", value, point.evaluations, walltime=point.time
            )

    def close(self, state: str) -> None:
        """Flush and close the files."""
        self._writer.close()


# OpenTelemetry: one span per effect; calls of models after the semantic conventions for generative
# AI.

_NANO = 1_000_000_000  # nanoseconds of a second


class OpenTelemetry(Tracker):
    """Tracker that sends spans to `endpoint` by OTLP over HTTP.

    The default is the endpoint in OTEL_EXPORTER_OTLP_ENDPOINT; `exporter` replaces the exporter.
    """

    def __init__(self, endpoint: str = "", exporter: SpanExporter | None = None) -> None:
        self._endpoint, self._exporter = endpoint, exporter
        self._provider: TracerProvider  # these two are set by `start`
        self._tracer: Tracer

    def start(self, about: TrackedRun) -> None:
        """Make a provider of its own; the process's global provider is not touched."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        facts = {"service.name": "culmen", "culmen.run": about.run, "culmen.task": about.task}
        self._provider = TracerProvider(
            resource=Resource.create({**facts, "culmen.strategy": about.strategy})
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(self._exporter or _otlp_exporter(self._endpoint))
        )
        self._tracer = self._provider.get_tracer("culmen")

    def log_span(self, span: EffectSpan) -> None:
        """Send a span for one finished effect."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        result, model = span.result, getattr(span.result, "model", "")
        called = isinstance(result, Proposal | Text) and result.usage.calls > 0
        otel_span = self._tracer.start_span(
            f"chat {model}".strip() if called else span.effect,
            kind=SpanKind.CLIENT if called else SpanKind.INTERNAL,
            start_time=int(span.start * _NANO),
            attributes={
                "culmen.effect": span.effect,
                "culmen.key": span.key,
                **_span_attributes(span, called),
            },
        )
        fault = _result_fault(result)
        if fault:
            otel_span.set_attribute("error.type", fault)
            otel_span.set_status(Status(StatusCode.ERROR))
        if isinstance(result, Observation):
            self._send_rollout(otel_span, rollout_spans(result, span.start, span.end), fault)
        otel_span.end(end_time=int(max(span.start, span.end) * _NANO))

    def _send_rollout(self, evaluation: Span, spans: Sequence[RolloutSpan], fault: str) -> None:
        """Send the spans of a rollout, below that of its evaluation."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        parent = set_span_in_context(evaluation)
        for each in spans:
            made = self._tracer.start_span(
                each.name,
                context=parent,
                kind=SpanKind.CLIENT if each.calls else SpanKind.INTERNAL,
                start_time=int(each.start * _NANO),
                attributes=each.attributes,
            )
            if not each.inner:
                parent = set_span_in_context(made)
                if fault:
                    made.set_attribute("error.type", fault)
                    made.set_status(Status(StatusCode.ERROR))
            made.end(end_time=int(max(each.start, each.end) * _NANO))

    def close(self, state: str) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def _span_attributes(span: EffectSpan, called: bool) -> JsonObject:
    """Attributes of a span, named by the conventions for calls of models."""
    result = span.result
    if called and isinstance(result, Proposal | Text):
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


def _result_fault(result: Result | None) -> str:
    if isinstance(result, Observation):
        return "" if result.score is not None else result.status.value
    return str(getattr(result, "fault", ""))


def _otlp_exporter(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (
        OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        if endpoint
        else OTLPSpanExporter()
    )


# Trackers by the text of --track.


_MAKERS: dict[str, tuple[str, Callable[..., Tracker], tuple[str, ...]]] = {
    "tensorboard": ("tensorboardX", TensorBoard, ("prefix",)),
    "mlflow": ("mlflow", MLflow, ("run", "prefix", "texts")),
    "wandb": ("wandb", WeightsAndBiases, ("run", "prefix", "texts")),
    "otel": ("opentelemetry.exporter.otlp.proto.http", OpenTelemetry, ()),
}

_COLUMNS = ("id", "parents", "score", "margin", "count", "failed", "operator", "model", "text")


def _candidate_table_row(candidate: TrackedCandidate) -> list[object]:
    known = [getattr(candidate, name) for name in _COLUMNS[2:-1]]
    return [candidate.id, ", ".join(candidate.parents), *known, Candidate.of(candidate.parts).text]


def make_tracker(text: str) -> Tracking:
    """Observer for `NAME`, `NAME:PLACE` or `NAME:PLACE#run=ID,prefix=TEXT,texts`.

    Raises `UserError` for an unknown option, or a missing package.
    """
    target, _, rest = text.partition("#")
    name, _, destination = target.partition(":")
    package, make, options = _MAKERS[name]
    values: JsonObject = {}
    for piece in filter(None, rest.split(",")):
        key, equals, value = piece.partition("=")
        if key not in options or bool(equals) == (key == "texts") or (equals and not value):
            known = (
                ", ".join(each if each == "texts" else f"{each}=TEXT" for each in options)
                or "nothing behind #"
            )
            raise UserError(
                f"{name} has no option '{piece}'", where=f"--track {text}", fix=f"use {known}"
            )
        values[key] = value or True
    if not _is_installed(package):
        fix = f"pip install 'culmen[{name}]'"
        raise UserError(f"{name} needs the package {package}", where=f"--track {text}", fix=fix)
    return Tracking(name, make(destination, **values))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
