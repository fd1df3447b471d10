"""The parts of `culmen.extensions.trackers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="trackers",
    trackers=dict.fromkeys(
        ("tensorboard", "mlflow", "wandb", "otel"),
        "culmen.extensions.trackers.backends:make_tracker",
    ),
    verbs={"runs track": "culmen.extensions.trackers.cli:VERBS"},
)
