"""The parts of `culmen.audit`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="audit",
    winner_checks={"tolerances": "culmen.audit.tightened:TightenedEvaluator"},
    trials={"attack": "culmen.audit.doctor:run_attacks"},
    verbs={"audit": "culmen.audit.cli:VERBS"},
)
