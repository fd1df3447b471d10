"""The parts of `culmen.cluster`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="cluster",
)
