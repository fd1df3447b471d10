"""The parts of `culmen.extensions.train`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="train",
    strategies={"pacevolve_plus_plus": "culmen.extensions.train.plus_plus:PacevolvePlusPlus"},
    performers={"train": "culmen.extensions.train.advisors:make_training_craft"},
    verbs={"runs advisor": "culmen.extensions.train.cli:VERBS"},
)
