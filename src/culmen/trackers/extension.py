"""The parts of `culmen.trackers`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="trackers",
    trackers=dict.fromkeys(
        ("tensorboard", "mlflow", "wandb", "otel"), "culmen.trackers.backends:make_tracker"
    ),
    verbs={"track": "culmen.trackers.cli:VERBS"},
)
