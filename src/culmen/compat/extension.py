"""The parts of `culmen.compat`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="compat",
)
