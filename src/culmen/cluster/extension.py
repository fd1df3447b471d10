"""The parts of `culmen.cluster`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="cluster",
    backends={
        "ray": "culmen.cluster.kinds:RAY",
        "slurm": "culmen.cluster.kinds:SLURM",
        "queue": "culmen.cluster.kinds:QUEUE",
    },
    sandboxes={"container": "culmen.evaluate.containers:ContainerProvider"},
    journals={  # the first scheme is the one that is stored
        "postgresql+psycopg": "culmen.cluster.postgres:PostgresDatabase",
        "postgresql": "culmen.cluster.postgres:PostgresDatabase",
        "postgres": "culmen.cluster.postgres:PostgresDatabase",
    },
    verbs={"db": "culmen.cluster.cli:VERBS", "queue": "culmen.cluster.queue_cli:VERBS"},
)
