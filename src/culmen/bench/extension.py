"""The parts of `culmen.bench`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="bench",
    verbs={
        "bench": "culmen.bench.compare_cli:VERBS",
        "power": "culmen.bench.power_cli:VERBS",
        "reproduce": "culmen.bench.reproduce_cli:VERBS",
        "score": "culmen.bench.measure_cli:VERBS",
    },
    examples={"culmen": "culmen.tasks"},
    comparison_pages={"compare": "culmen.bench.page:compare_page"},
)
