"""The parts of `culmen.train`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="train",
    strategies={"pacevolve_plus_plus": "culmen.train.plus_plus:PacevolvePlusPlus"},
    performers={"train": "culmen.train.advisors:make_training_craft"},
    demos={"pacevolve_plus_plus": "culmen.train.demo:demonstrate_advisor"},
    verbs={"advisor": "culmen.train.cli:VERBS"},
)
