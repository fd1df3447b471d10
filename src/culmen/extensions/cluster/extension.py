"""The parts of `culmen.extensions.cluster`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="cluster",
    backends={
        "ray": "culmen.extensions.cluster.kinds:RAY",
        "slurm": "culmen.extensions.cluster.kinds:SLURM",
    },
    journals={  # the first scheme is the one that is stored
        "postgresql+psycopg": "culmen.extensions.cluster.postgres:PostgresDatabase",
        "postgresql": "culmen.extensions.cluster.postgres:PostgresDatabase",
        "postgres": "culmen.extensions.cluster.postgres:PostgresDatabase",
    },
    verbs={"runs db": "culmen.extensions.cluster.cli:VERBS"},
)
