"""The parts of `culmen.extensions.bench`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="bench",
    verbs={
        "compare": "culmen.extensions.bench.compare_cli:VERBS",
        "compare analyze": "culmen.extensions.bench.compare_cli:VERBS",
        "compare power": "culmen.extensions.bench.power_cli:VERBS",
        "compare score": "culmen.extensions.bench.measure_cli:VERBS",
        "paper reproduce": "culmen.extensions.bench.reproduce_cli:VERBS",
    },
    comparison_pages={"compare": "culmen.extensions.bench.page:compare_page"},
)
