"""The parts of `culmen.extensions.importers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="importers",
    differences={"importers.llm4ad": "culmen.extensions.importers.llm4ad:folder_differences"},
    verbs={"import": "culmen.extensions.importers.cli:VERBS"},
)
