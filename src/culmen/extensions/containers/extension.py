"""The parts of `culmen.extensions.containers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(name="containers", jails={"container": "culmen.extensions.containers.jail"})
