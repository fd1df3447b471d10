"""The parts of `culmen.cluster`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="cluster",
    backends={"ray": "culmen.cluster.kinds:RAY", "slurm": "culmen.cluster.kinds:SLURM"},
)
