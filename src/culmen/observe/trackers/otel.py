"""OpenTelemetry: one span per effect; calls of models after the semantic conventions for generative AI.

Prompts and replies are never sent: they are in the journal.
"""

from __future__ import annotations

from typing import Any

from culmen.core.brief import Proposal, Text
from culmen.core.evaluation import Observation
from culmen.observe.trackers.points import About, Point, Span

_NANO = 1_000_000_000


class OpenTelemetry:
    """Sends spans to `endpoint`, or where OTEL_EXPORTER_OTLP_ENDPOINT says, by OTLP over HTTP; `exporter` takes that
    one's place."""

    def __init__(self, endpoint: str = "", exporter: Any = None) -> None:
        self._endpoint, self._exporter = endpoint, exporter
        self._provider: Any = None
        self._tracer: Any = None

    def start(self, about: About) -> None:
        """Make a provider of our own: whatever the process has set up globally is left alone."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        facts = {"service.name": "culmen", "culmen.run": about.run, "culmen.task": about.task}
        self._provider = TracerProvider(resource=Resource.create({**facts, "culmen.strategy": about.strategy}))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter or _otlp(self._endpoint)))
        self._tracer = self._provider.get_tracer("culmen")

    def point(self, point: Point) -> None:
        """Nothing: the evaluation's span says it."""

    def span(self, span: Span) -> None:
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


def _facts(span: Span, called: bool) -> dict[str, Any]:
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
