"""The parts of `culmen.extensions.judge`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="judge",
    verbs={
        "judge": "culmen.extensions.judge.cli:VERBS",
        "receipt": "culmen.extensions.judge.cli:RECEIPTS",
    },
    judges={"command": "culmen.jail.command:CommandJudge"},
)
