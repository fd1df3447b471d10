"""The parts of `culmen.extensions.mcp`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(name="mcp", verbs={"mcp": "culmen.extensions.mcp.cli:VERBS"})
