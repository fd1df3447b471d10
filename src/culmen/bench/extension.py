"""The parts of `culmen.bench`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="bench",
    examples={"culmen": "culmen.tasks"},
    comparison_pages={"compare": "culmen.bench.page:compare_page"},
)
