"""The parts of `culmen.agents`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="agents",
    strategies={"cato": "culmen.agents.cato:Cato"},
)
