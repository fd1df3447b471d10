"""PACEvolve from end to end: scripted advisor and implementer, and a real evaluator.

The evaluator really runs in the jail.
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest

import culmen
from culmen.store import views
from culmen.testing.scripted import ScriptedModel

from .test_strategies_pacevolve_scaffold import paper

SEED = "VALUE = 1.0\n"
TOP = 4.0  # nobody gets beyond


def closeness(candidate: str) -> float:
    """The nearer VALUE is to 7, the better."""
    space: dict[str, float] = {}
    exec(candidate, space)
    return -abs(space["VALUE"] - 7.0)


class Team:
    """An advisor with endless ideas, and an implementer that gets half of the way only.

    Now and then the advisor insists on an experiment that cannot work.
    """

    def __init__(self) -> None:
        self.serial, self.experiments = count(1), count(1)

    def __call__(self, call: Any) -> str:
        prompt, n = call.prompt, next(self.serial)
        if '{"hypotheses"' in prompt:
            return json.dumps(
                {"hypotheses": [{"hypothesis": f"hypothesis {n}.{k}"} for k in range(3)]}
            )
        if '"exists"' in prompt:
            return json.dumps({"exists": False, "description": f"idea {n}"})
        if '"lesson"' in prompt:
            return json.dumps({"lesson": f"lesson {n}"})
        if '"drop"' in prompt:
            return "I would keep them all."
        if '"experiment"' in prompt:
            number = int(
                re.findall(r"idea: (\d+)", prompt.partition("# Hypotheses on the table")[2])[0]
            )
            impossible = next(self.experiments) % 3 == 0
            return json.dumps(
                {"idea": number, "experiment": "divide by nothing" if impossible else f"try {n}"}
            )
        value = float(re.findall(r"VALUE = ([-\d.]+)", prompt)[-1])
        body = (
            "VALUE = 1 / 0"
            if "divide by nothing" in prompt
            else f"VALUE = {min(TOP, value + 3.0) - n * 1e-9}"
        )
        return f"```python\n{body}\n```"


@pytest.mark.slow
def test_three_islands_on_a_real_evaluator(tmp_path):
    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        strategy=paper(
            islands=3, beta=0.2, threshold=0.01, freeze=1, backtrack_length=2, target=0.0
        ),
        model=ScriptedModel(Team()),
        budget=culmen.Budget(evaluations=60),
        deterministic=True,
        random_seed=4,
        run_dir=tmp_path / "run",
    )
    assert study.best is not None and -3.01 < study.best.score <= -3.0
    told = {
        kind: [note.entry.body for note in views.note_events(study.path, kind)] for kind in NOTES
    }
    assert told["backtrack"] and told["crossover"]  # each has a chance of a half, many times
    assert {note["island"] for note in told["experiment"]} == {0, 1, 2}
    assert all(len(note["ideas"]) <= 5 for note in told["experiment"])
    tried = [note["experiment"] for note in told["experiment"] if note["candidate"]]
    assert tried.count("divide by nothing") <= 3  # of three islands at once; never again after
    failures = told["experiment"][-1]["failures"]
    assert failures["repeat"] > 0 and failures["error"] > 0


NOTES = ("backtrack", "crossover", "experiment")
