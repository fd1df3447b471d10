"""The parts of `culmen.train`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="train",
    strategies={"pacevolve_plus_plus": "culmen.train.plus_plus:PacevolvePlusPlus"},
    verbs={"advisor": "culmen.train.cli:VERBS"},
)
