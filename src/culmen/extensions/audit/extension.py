"""The parts of `culmen.extensions.audit`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="audit",
    winner_checks={
        "tolerances": "culmen.extensions.audit.tightened:TightenedEvaluator",
        "flag": "culmen.extensions.audit.tolerances:with_tolerance_flag",
        "pushes": "culmen.extensions.audit.pushing:OutputPushes",
    },
    trials={"attack": "culmen.extensions.audit.doctor:run_attacks"},
    verbs={"audit": "culmen.extensions.audit.cli:VERBS"},
)
