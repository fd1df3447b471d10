"""The parts of `culmen.extensions.compat`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="compat",
    task_folders={
        "harbor": "culmen.extensions.compat.harbor",
        "openevolve": "culmen.extensions.compat.openevolve.folder",
        "shinka": "culmen.extensions.compat.shinka",
    },
    differences={"InspectEvaluator": "culmen.extensions.compat.inspect_task:folder_differences"},
    evaluator_forms={"legacy": "culmen.extensions.compat.openevolve.form:LEGACY"},
    models_files={"llm": "culmen.extensions.compat.openevolve.config:models_file"},
    pools={
        "openevolve": "culmen.extensions.compat.openevolve.checkpoint:read_pool",
        "shinka": "culmen.extensions.compat.shinka_results:read_pool",
    },
    judges={"harbor": "culmen.extensions.compat.harbor:HarborJudge"},
)
