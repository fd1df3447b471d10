"""The parts of `culmen.mcp`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(name="mcp", verbs={"mcp": "culmen.mcp.cli:VERBS"})
