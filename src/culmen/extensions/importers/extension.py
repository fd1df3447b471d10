"""The parts of `culmen.extensions.importers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(name="importers", verbs={"import": "culmen.extensions.importers.cli:VERBS"})
