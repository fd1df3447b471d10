"""The parts of `culmen.extensions.skills`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="skills",
    task_folders={"skill": "culmen.extensions.skills.rollouts.form:FOLDERS"},
    evaluator_forms={"rollout": "culmen.extensions.skills.rollouts.form:ROLLOUT"},
    verbs={
        "skill mine": "culmen.extensions.skills.mining.cli:VERBS",
        "skill tools": "culmen.extensions.skills.rollouts.cli:VERBS",
    },
)
