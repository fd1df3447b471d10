"""Durable search for the best program, prompt or agent that an evaluator can honestly find.

The names below are imported when first used, so `import culmen` stays light.
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
    from culmen.agents.cato import Cato
    from culmen.compat.inspect_task import InspectEvaluator
    from culmen.core.brief import Brief, Exhibit, Proposal, Text
    from culmen.core.candidate import Candidate, Origin
    from culmen.core.errors import CulmenError, NothingScored, UserError
    from culmen.core.evaluation import Case, Observation, Rollout, Status
    from culmen.core.ports import Backend, Embedder, Lab, Observer, Proposer, Strategy
    from culmen.core.task import Evaluator, Limits, Objective, Task
    from culmen.core.usage import Budget, Usage
    from culmen.evaluate import Invalid
    from culmen.evaluate.jail.asking import AskFailed
    from culmen.labelled.search import PromptStudy, optimize_prompt
    from culmen.memory.epsilon_net import EpsilonNet
    from culmen.offline.proposer import OfflineProposer
    from culmen.store.views import CandidateDetail, CandidateRow, RunStatus
    from culmen.strategies.ask_tell import AskTell
    from culmen.strategies.best_of_n import BestOfN
    from culmen.strategies.gated import Gated
    from culmen.strategies.gepa import Gepa
    from culmen.strategies.map_elites import MapElites
    from culmen.strategies.openevolve import OpenEvolve
    from culmen.strategies.pacevolve.pacevolve import Pacevolve
    from culmen.strategies.pedigree import PedigreeSearch
    from culmen.strategies.polca import Polca
    from culmen.strategies.portfolio import Portfolio
    from culmen.strategies.puct import PuctSearch
    from culmen.strategies.settings import About
    from culmen.strategies.settings import check as check_settings
    from culmen.strategies.special_cases import Beam, Sequential
    from culmen.strategies.turboevolve import TurboEvolve
    from culmen.study import ReportedCandidate, Study, check, optimize
    from culmen.train.plus_plus import PacevolvePlusPlus

_HOME = {
    "Brief": "core.brief",
    "Exhibit": "core.brief",
    "Proposal": "core.brief",
    "Text": "core.brief",
    "Candidate": "core.candidate",
    "Origin": "core.candidate",
    "CulmenError": "core.errors",
    "NothingScored": "core.errors",
    "UserError": "core.errors",
    "Case": "core.evaluation",
    "Observation": "core.evaluation",
    "Rollout": "core.evaluation",
    "Status": "core.evaluation",
    "Backend": "core.ports",
    "Embedder": "core.ports",
    "Lab": "core.ports",
    "Observer": "core.ports",
    "Proposer": "core.ports",
    "Strategy": "core.ports",
    "Evaluator": "core.task",
    "Limits": "core.task",
    "Objective": "core.task",
    "Task": "core.task",
    "Budget": "core.usage",
    "Usage": "core.usage",
    "Invalid": "evaluate",
    "AskFailed": "evaluate.jail.asking",
    "InspectEvaluator": "compat.inspect_task",
    "PromptStudy": "labelled.search",
    "optimize_prompt": "labelled.search",
    "EpsilonNet": "memory.epsilon_net",
    "OfflineProposer": "offline.proposer",
    "CandidateDetail": "store.views",
    "CandidateRow": "store.views",
    "RunStatus": "store.views",
    "AskTell": "strategies.ask_tell",
    "Beam": "strategies.special_cases",
    "BestOfN": "strategies.best_of_n",
    "Cato": "agents.cato",
    "Gated": "strategies.gated",
    "Gepa": "strategies.gepa",
    "MapElites": "strategies.map_elites",
    "OpenEvolve": "strategies.openevolve",
    "Pacevolve": "strategies.pacevolve.pacevolve",
    "PacevolvePlusPlus": "train.plus_plus",
    "PedigreeSearch": "strategies.pedigree",
    "Polca": "strategies.polca",
    "Portfolio": "strategies.portfolio",
    "PuctSearch": "strategies.puct",
    "Sequential": "strategies.special_cases",
    "About": "strategies.settings",
    "TurboEvolve": "strategies.turboevolve",
    "ReportedCandidate": "study",
    "Study": "study",
    "check": "study",
    "optimize": "study",
    # the name `check` is clear only beside the settings
    "check_settings": "strategies.settings:check",
}

# modules, of packages that bring their own programs and evaluators
_ECOSYSTEMS = ("dspy", "gepa", "trace")

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _ECOSYSTEMS:
        return import_module(f"culmen.compat.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'culmen' has no attribute '{name}'")
    module, _, there = home.partition(":")
    value = getattr(import_module(f"culmen.{module}"), there or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
