"""The parts of `culmen.audit`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="audit",
    verbs={"audit": "culmen.audit.cli:VERBS"},
)
