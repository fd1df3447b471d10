"""The parts of `culmen.extensions.web`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="web",
    readings={"pages": "culmen.extensions.web.pages:prepare_pages"},
    verbs={"report": "culmen.extensions.web.cli:REPORT", "ui": "culmen.extensions.web.cli:UI"},
)
