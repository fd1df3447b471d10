"""The parts of `culmen.labelled`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="labelled",
    evaluator_forms={"prompt": "culmen.labelled.form:PROMPT"},
    verbs={"prompt": "culmen.labelled.cli:VERBS"},
    pages={"prompt": "culmen.labelled.page:PROMPT"},
    endings={"prompt": "culmen.labelled.report:make_ending"},
)
