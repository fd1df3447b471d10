"""Estimates shown to people lie inside the bounds of the score.

This holds however steep the way to them was.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from culmen.core.candidate import Candidate
from culmen.core.event import Entry
from culmen.core.task import Objective, Task, Way
from culmen.core.usage import Budget
from culmen.evidence.account import Account
from culmen.evidence.ranking import Race, Ranking
from culmen.evidence.verdict import expected_score
from culmen.run.explain import explain_evaluation
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.evidence import evidence_before
from culmen.store.journal import SqlJournal
from tests.store.runs import observed, program, proposed


def climbed(folder: Path, direction: Way) -> tuple[Path, list[Candidate]]:
    """A run whose candidates rise by steps up to the end of the scale.

    A look of the final choice follows.
    """
    objective = Objective(direction, bounds=(0.0, 1.0))
    sign = objective.reward(1.0)
    first = program(0, operator="seed")
    task = Task("steep", seeds=(first.parts,), objective=objective)
    meta = RunMeta(
        "steep",
        task,
        {"path": "culmen.strategies.best_of_n:BestOfN", "config": {}},
        budget=Budget(evaluations=60),
    )
    chance, chain, entries, key = Random(3), [first], list[Entry](), 0
    for number in range(12):
        if number:
            chain.append(program(number, [chain[-1].id]))
        entries.append(proposed(key := key + 1, chain[-1]))
        for _ in range(2):
            reward = min(1.0, max(0.0, 0.1 * number + chance.gauss(0, 0.03)))
            score = reward if sign > 0 else 1.0 - reward
            entries.append(observed(key := key + 1, chain[-1], score))
    final = observed(key + 1, chain[-1], 1.0 if sign > 0 else 0.0)
    entries.append(Entry("done", key + 1, "bb", "evaluate", {"phase": "choice"}, final.result))
    with SqlJournal.create(folder / "steep", meta) as journal:
        journal.append(entries)
    return folder / "steep", chain


def test_the_story_and_the_finalists_stay_inside_the_bounds(tmp_path: Path):
    ways: tuple[Way, ...] = ("max", "min")
    for direction in ways:
        (tmp_path / direction).mkdir()
        run, chain = climbed(tmp_path / direction, direction)
        with evidence_before(run, 2**62) as evidence:
            highest = max(
                each.worth
                for each in Race(evidence.ranking, [each.id for each in chain]).standings().values()
            )
        assert highest > (1.0 if direction == "max" else 0.0)  # the model knows no bounds
        finalists = explain_evaluation(run).finalists
        assert finalists and all(0.0 <= each.score <= 1.0 for each in finalists)
        sign = 1.0 if direction == "max" else -1.0
        steps, tried = views.ascent_to(run, chain[-1].id), views.tried_candidates(run)
        assert len(steps) == len(tried) + 1 == 12
        assert all(0.0 <= sign * each.reward <= 1.0 for each in (*steps, *tried))


def test_an_estimate_has_no_digits_that_only_arithmetic_made():
    """An estimate of 0.99999999994 is one of 1."""
    ranking = Ranking(Account(Task("t", objective=Objective(bounds=(0.0, 1.0)))))
    assert expected_score(ranking, "a" * 12, 3, 0.9999999999403647, 0.01).score == 1.0
    third = expected_score(ranking, "a" * 12, 3, 1 / 3, 0.01)
    assert third.score == 0.333333333 and third.expected
