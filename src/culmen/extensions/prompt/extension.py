"""The parts of `culmen.extensions.prompt`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="prompt",
    evaluator_forms={"prompt": "culmen.extensions.prompt.form:PROMPT"},
    verbs={"prompt": "culmen.extensions.prompt.cli:VERBS"},
    pages={"prompt": "culmen.extensions.prompt.page:PROMPT"},
    endings={"prompt": "culmen.extensions.prompt.report:make_ending"},
)
