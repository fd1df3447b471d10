"""Durable search for the best program, prompt or agent that an evaluator can honestly find.

The names below are imported when first used, so `import culmen` stays light. Strategies and the
parts of a run are imported from their modules (docs/api.md).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from culmen.core import VERSION as __version__

if sys.platform == "win32":
    raise ImportError(
        "culmen runs on Linux and macOS; on Windows use WSL: wsl --install, and install culmen "
        "in there"
    )

if TYPE_CHECKING:
    from culmen.core.brief import Brief, Proposal
    from culmen.core.candidate import Candidate
    from culmen.core.errors import CulmenError, NothingScored, UserError
    from culmen.core.evaluation import Case, Observation, Rollout
    from culmen.core.ports import Lab, Strategy
    from culmen.core.task import Evaluator, Limits, Objective, Task
    from culmen.core.usage import Budget, Usage
    from culmen.evaluate import Invalid
    from culmen.extensions.compat.inspect_task import InspectEvaluator
    from culmen.extensions.prompt.search import PromptStudy, optimize_prompt
    from culmen.jail.asking import AskFailed
    from culmen.models.roles import Model
    from culmen.run.study import ReportedCandidate, Study, check, optimize
    from culmen.store.views import CandidateRow, RunStatus

_HOME = {
    "Brief": "core.brief",
    "Proposal": "core.brief",
    "Candidate": "core.candidate",
    "CulmenError": "core.errors",
    "NothingScored": "core.errors",
    "UserError": "core.errors",
    "Case": "core.evaluation",
    "Observation": "core.evaluation",
    "Rollout": "core.evaluation",
    "Model": "models.roles",
    "Lab": "core.ports",
    "Strategy": "core.ports",
    "Evaluator": "core.task",
    "Limits": "core.task",
    "Objective": "core.task",
    "Task": "core.task",
    "Budget": "core.usage",
    "Usage": "core.usage",
    "Invalid": "evaluate",
    "AskFailed": "jail.asking",
    "InspectEvaluator": "extensions.compat.inspect_task",
    "PromptStudy": "extensions.prompt.search",
    "optimize_prompt": "extensions.prompt.search",
    "CandidateRow": "store.views",
    "RunStatus": "store.views",
    "ReportedCandidate": "run.study",
    "Study": "run.study",
    "check": "run.study",
    "optimize": "run.study",
}

# modules, of packages that bring their own programs and evaluators
_ECOSYSTEMS = ("dspy", "gepa", "trace")

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _ECOSYSTEMS:
        return import_module(f"culmen.extensions.compat.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'culmen' has no attribute '{name}'")
    value = getattr(import_module(f"culmen.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
