"""Factors that mattered: planted gains are found with their order.

Nothing is ranked that the data cannot order.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.task import Objective, Task, Way
from culmen.core.usage import Budget, Usage
from culmen.evidence.pedigree import ValueModel
from culmen.extensions.web.factors import levels as factors
from culmen.extensions.web.factors.effects import level_gains
from culmen.extensions.web.factors.origins import LEVELS
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal

PARTS = {"main.py": "0", "prompt.txt": "do it"}


class Run:
    """A search written by hand: the best of a few is asked for a child.

    The child's origin decides its step.
    """

    def __init__(
        self, folder: Path, direction: Way = "max", noise: float = 0.0, seed: int = 1
    ) -> None:
        exact = True if not noise else None
        task = Task(
            "made", "climb", seeds=(PARTS,), objective=Objective(direction), deterministic=exact
        )
        meta = RunMeta(
            "made",
            task,
            {"path": "x:Y", "config": {}},
            budget=Budget(evaluations=5000),
            created=1.0,
        )
        self.path, self.sign, self.noise, self.rng = (
            folder / "made",
            1 if direction == "max" else -1,
            noise,
            Random(seed),
        )
        self.journal, self.key, self.serial = SqlJournal.create(self.path, meta), 0, 0
        first = Candidate.of(PARTS)
        self.truths = {first.id: 0.0}
        self.known = {first.id: first}
        self.entries = [
            Entry(
                "note", effect="seeds", body={"note": "seeds"}, result=Proposal(candidates=(first,))
            )
        ]
        self.look(first)

    def look(self, candidate: Candidate, fails: bool = False) -> None:
        self.key += 1
        score = (
            None
            if fails
            else self.sign * (self.truths[candidate.id] + self.rng.gauss(0, self.noise))
        )
        seen = Observation(
            candidate.id,
            Status.ERROR if fails else Status.OK,
            score,
            reason="exception" if fails else "",
        )
        self.entries.append(
            Entry("done", self.key, "m", "evaluate", result=seen, elapsed=float(self.key))
        )

    def add(
        self,
        step: float,
        part: str = "main.py",
        fails: bool = False,
        dollars: float = 0.1,
        **origin: object,
    ) -> None:
        some = self.rng.sample(sorted(self.truths), min(4, len(self.truths)))
        parent = self.known[max(some, key=lambda name: self.truths[name])]
        self.serial, self.key = self.serial + 1, self.key + 1
        child = Candidate.of(
            {**parent.parts, part: str(self.serial)}, (parent.id,), Origin(**origin)
        )  # type: ignore[arg-type]
        made = Proposal((child,), usage=Usage(calls=1, dollars=dollars))
        self.entries.append(
            Entry("done", self.key, "m", "propose", {"role": "proposer"}, made, float(self.key))
        )
        self.known[child.id] = child
        self.truths[child.id] = self.truths[parent.id] + step + self.rng.gauss(0, 0.02)
        self.look(child, fails)
        if fails:
            del self.truths[child.id]

    def factors(self) -> tuple[factors.Factor, ...]:
        self.journal.append(self.entries)
        self.entries = []
        return factors.run_factors(self.path, views.spending_by_event(self.path))


def of(found: tuple[factors.Factor, ...], name: str) -> factors.Factor:
    return next(each for each in found if each.name == name)


@pytest.mark.parametrize("direction", ["max", "min"])
def test_planted_gains_are_found_for_every_kind_of_origin(tmp_path: Path, direction: Way) -> None:
    run = Run(tmp_path, direction, noise=0.02)
    for n in range(360):
        operator, model, island = (
            ("bold", "timid")[n % 2],
            ("small", "large")[n // 2 % 2],
            n // 4 % 3,
        )
        part, idea = ("main.py", "prompt.txt")[n // 12 % 2], ("widen", "shrink", "")[n // 24 % 3]
        step = (
            0.04 * (operator == "bold")
            + 0.02 * (model == "large")
            + 0.03 * (idea == "widen")
            - 0.05
        )
        step += 0.03 * (part == "prompt.txt")
        run.add(
            step,
            part,
            operator=operator,
            model=model,
            island=island,
            note=idea,
            dollars=0.3 if model == "large" else 0.1,
        )
    found = run.factors()
    assert [each.name for each in found] == ["operator", "model", "island", "part", "idea"]
    first = {each.name: each.levels[0].name for each in found}
    assert first | {"island": ""} == {
        "operator": "bold",
        "model": "large",
        "island": "",
        "part": "prompt.txt",
        "idea": "widen",
    }
    assert of(found, "operator").sentence == "bold gains most" and of(
        found, "idea"
    ).sentence.startswith("widen gains m")
    assert of(found, "island").sentence == "the data cannot tell which gains most"
    for factor in found:
        assert sum(each.count for each in factor.levels) == 360
        assert sum(each.share for each in factor.levels) == pytest.approx(1.0)
        assert all(run.sign * each.gain > 0 and each.margin > 0 for each in factor.levels)
    large, small = of(found, "model").levels
    assert large.dollars == pytest.approx(54.0) and small.dollars == pytest.approx(18.0)
    assert large.per_dollar == pytest.approx(large.gain * 180 / 54.0)
    assert factors.level_row(large)[5] == "$54.00"


def test_a_factor_with_one_level_is_left_out_and_rare_ones_are_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(60):
        run.add(0.01, operator=f"o{n % 12}" if n < 48 else "often", model="small")
    found = run.factors()
    assert [each.name for each in found] == ["operator"]
    names = [each.name for each in found[0].levels]
    assert len(names) == LEVELS and "others" in names and "often" in names


def test_few_counts_are_never_ranked(tmp_path: Path) -> None:
    run = Run(tmp_path, noise=0.05)
    for n in range(30):
        run.add(0.5 if n == 29 else 0.0, operator="often" if n < 27 else "rare")
    factor = of(run.factors(), "operator")
    margins = {each.name: each.margin for each in factor.levels}
    assert (
        margins["rare"] > 2 * margins["often"]
        and factor.sentence == "the data cannot tell which gains most"
    )


def test_failures_gain_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(200):
        run.add(0.05, operator=("sound", "breaks")[n % 2], fails=bool(n % 2) and n % 3 > 0)
    sound, breaks = of(run.factors(), "operator").levels
    assert (sound.name, breaks.name) == ("sound", "breaks")
    assert (
        breaks.gain == pytest.approx(sound.gain / 3, rel=0.25)
        and breaks.improves < 0.45 < 0.9 < sound.improves
    )


def test_factors_that_went_together_are_told(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(80):
        run.add(0.05 * (n % 2), operator=("bold", "timid")[n % 2], model=("small", "large")[n % 2])
    assert of(run.factors(), "operator").sentence.endswith(
        "; it went together with the model, so that either may be the cause"
    )


def test_a_run_without_children_has_no_factors(tmp_path: Path) -> None:
    assert Run(tmp_path).factors() == ()


def test_gains_are_on_the_scale_of_the_score(tmp_path: Path) -> None:
    """Scores that grow by shares are modelled as logarithms.

    The gain is that of the run's average parent.
    """
    rng, model, logs = Random(2), ValueModel(exact=True), [0.0]
    model.observe("0", 100.0)
    for n in range(1, 300):
        parent = max(rng.sample(range(n), min(4, n)), key=lambda each: logs[each])
        logs.append(logs[parent] + rng.gauss((0.0, 0.2)[n % 2], 0.05))
        model.add_candidate(str(n), (str(parent),))
        model.observe(str(n), 100.0 * float(np.exp(logs[n])))
    assert model.step_law is not None and model.step_law.sign
    levels = [n % 2 for n in range(1, 300)]
    (found,) = level_gains(model, [str(n) for n in range(1, 300)], [levels], [False] * 299)
    parents = [logs[int(model.parents[n])] for n in range(1, 300)]
    assert found[1].gain == pytest.approx(0.2 * 100.0 * float(np.exp(np.mean(parents))), rel=0.15)
    assert found[0].gain < 0.4 * found[1].gain
    (void,) = level_gains(
        model, [str(n) for n in range(1, 300)], [levels], [bool(level) for level in levels]
    )
    assert (
        void[1].gain < 0.02 * found[1].gain
    )  # rejected ones gained nothing, whatever their scores
