"""Value model of a run: posterior of every candidate's true reward, from it and its relatives.

Equations, constants and schedule: docs/evidence.md. Results depend on the observations and
their order alone, never on who asked for results, nor when.
"""

from culmen.evidence.pedigree.failing import FailureChances, FailureModel, FailureShare
from culmen.evidence.pedigree.learning import StepLaw
from culmen.evidence.pedigree.model import Noise, Value, ValueModel

__all__ = [
    "FailureChances",
    "FailureModel",
    "FailureShare",
    "Noise",
    "StepLaw",
    "Value",
    "ValueModel",
]
