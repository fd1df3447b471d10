"""The parts of `culmen.web`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="web",
    verbs={"report": "culmen.web.cli:REPORT", "ui": "culmen.web.cli:UI"},
)
