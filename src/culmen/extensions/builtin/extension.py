"""The parts of `culmen.extensions.builtin`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(name="builtin", examples={"culmen": "culmen.extensions.builtin"})
