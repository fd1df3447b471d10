"""culmen: durable search for the best program, prompt or agent your evaluator can honestly find.

The names below are imported when first used, so `import culmen` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from culmen.core import VERSION as __version__

if TYPE_CHECKING:
    from culmen.core.brief import Brief, Exhibit, Proposal
    from culmen.core.candidate import Candidate, Origin
    from culmen.core.errors import CulmenError, UserError
    from culmen.core.evaluation import Case, Observation, Rollout, Status
    from culmen.core.task import Evaluator, Limits, Objective, Task
    from culmen.core.usage import Budget, Usage
    from culmen.evaluate import Invalid
    from culmen.strategies.beam import Beam
    from culmen.strategies.best_of_n import BestOfN
    from culmen.strategies.cato import Cato
    from culmen.strategies.map_elites import MapElites
    from culmen.strategies.polca import Polca
    from culmen.strategies.sequential import Sequential
    from culmen.study import Study, optimize

_HOME = {
    "Brief": "core.brief",
    "Exhibit": "core.brief",
    "Proposal": "core.brief",
    "Candidate": "core.candidate",
    "Origin": "core.candidate",
    "CulmenError": "core.errors",
    "UserError": "core.errors",
    "Case": "core.evaluation",
    "Observation": "core.evaluation",
    "Rollout": "core.evaluation",
    "Status": "core.evaluation",
    "Invalid": "evaluate",
    "Evaluator": "core.task",
    "Limits": "core.task",
    "Objective": "core.task",
    "Task": "core.task",
    "Budget": "core.usage",
    "Usage": "core.usage",
    "Beam": "strategies.beam",
    "BestOfN": "strategies.best_of_n",
    "Cato": "strategies.cato",
    "MapElites": "strategies.map_elites",
    "Polca": "strategies.polca",
    "Sequential": "strategies.sequential",
    "Study": "study",
    "optimize": "study",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'culmen' has no attribute '{name}'")
    value = getattr(import_module(f"culmen.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
