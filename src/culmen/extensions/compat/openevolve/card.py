"""Goal, cascade and best known value in a `card.yaml`, as open-galapagos (0.4.0) has them.

The best value is a text for people: the card does not say of which metric it is.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from culmen.core.errors import TaskError
from culmen.core.task import Task
from culmen.extensions.compat.openevolve.config import load_mapping
from culmen.extensions.compat.openevolve.scoring import STAGES

CARD = "card.yaml"


def with_card(task: Task, folder: Path) -> Task:
    """The task with its card's goal, unless it has one, its cascade, and the best value."""
    path = folder / CARD
    if not path.is_file():
        return task
    try:
        card = load_mapping(path)
    except TaskError as error:
        return replace(task, notes=(*task.notes, f"{CARD} is left out: {error.what}"))
    described = card.get("description") or card.get("summary")
    goal = described.strip() if isinstance(described, str) else ""
    notes = (*task.notes, *_best_known(card.get("references")))
    evaluator = task.evaluator
    if evaluator.thresholds is not None:
        evaluator = replace(
            evaluator, thresholds=_thresholds(card.get("evaluation"), evaluator.thresholds)
        )
    return replace(task, goal=task.goal or goal, notes=notes, evaluator=evaluator)


def _thresholds(evaluation: object, usual: tuple[float, ...]) -> tuple[float, ...] | None:
    """Thresholds of the stages, None if the card turns them off; the last one stated counts on."""
    match evaluation:
        case {"cascade_evaluation": False}:
            return None
        case {"cascade_thresholds": [float() | int(), *_] as stated}:
            return tuple(float(each) for each in (*stated, stated[-1])[: STAGES - 1])
        case _:
            return usual


def _best_known(references: object) -> list[str]:
    """The sentence on the best value known, none if the card states none."""
    if not isinstance(references, dict) or references.get("best_known") is None:
        return []
    by = references.get("best_known_scaffold")
    found = f"{references['best_known']}{f' (by {by})' if by else ''}"
    return [f"{CARD} states the best value known, of a metric that it does not name: {found}"]
