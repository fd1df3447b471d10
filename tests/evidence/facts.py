"""Observations entered as the engine enters them."""

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Objective, Task
from culmen.evidence.account import SEARCH, fact_of
from culmen.evidence.front import FrontModel


def enter(front: FrontModel, candidate: Candidate, observation: Observation) -> None:
    """One evaluation of the search, entered into a model of a front."""
    task = Task(
        "several", objective=Objective(metrics=front.objectives, constraints=front.constraints)
    )
    front.observe(fact_of(task, candidate, observation, SEARCH))
