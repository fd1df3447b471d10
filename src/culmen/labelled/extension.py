"""The parts of `culmen.labelled`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="labelled",
    evaluator_forms={"prompt": "culmen.labelled.form:PROMPT"},
    verbs={"prompt": "culmen.labelled.cli:VERBS"},
    endings={"prompt": "culmen.labelled.report:make_ending"},
)
