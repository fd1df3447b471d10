"""The parts of `culmen.compat`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="compat",
    task_folders={
        "harbor": "culmen.compat.harbor",
        "openevolve": "culmen.compat.openevolve.folder",
        "shinka": "culmen.compat.shinka",
    },
    evaluator_forms={"legacy": "culmen.compat.openevolve.form:LEGACY"},
    verbs={"import": "culmen.compat.cli:VERBS"},
    judges={"harbor": "culmen.compat.harbor:HarborJudge"},
)
