"""Value model of a run: posterior of every candidate's true reward.

It uses a candidate's own evaluations and its relatives'. Equations, constants and schedule:
docs/evidence.md. Results depend on the observations and their order alone, never on the calls that
read results.
"""

from culmen.evidence.pedigree.inference import FailureChances, FailureModel, FailureShare
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
