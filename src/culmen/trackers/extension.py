"""The parts of `culmen.trackers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="trackers",
)
