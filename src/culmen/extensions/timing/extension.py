"""The parts of `culmen.extensions.timing`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="timing", metrics={"speedup": "culmen.extensions.timing.evaluation:SPEEDUP"}
)
