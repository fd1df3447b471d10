"""A run whose scorer asks a model, on whatever nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.core.options import BackendChoice
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.run.study import Study
from culmen.store import views
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

SCORE = """
def score(parts, case, ask):
    told = [{"role": "system", "content": parts["prompt.txt"]}, {"role": "user", "content": case.input}]
    return float(case.info in ask(told, role="student").text)
"""
TASK = """
goal = "add"
cases = "cases.jsonl"
seed = { files = ["prompt.txt"] }
evaluator = { entry = "", roles = ["student"] }
"""


def asks_models(chosen: BackendChoice, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's calls are made here, counted, and within the budget.

    A wrong key ends the run as it does elsewhere.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    task = place / "task"
    task.mkdir()
    for name, text in (("evaluator.py", SCORE), ("prompt.txt", "Add."), ("task.toml", TASK)):
        (task / name).write_text(text)
    cases = [{"id": str(n), "input": f"{n}+{n}", "info": str(2 * n)} for n in range(3)]
    (task / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    with ModelServer(lambda asked: Turn(str(eval(asked.text)))) as server:
        provider = Provider("mine", f"{server.url}/v1", base=0.001, cap=0.002)
        models = {
            "default": "offline",
            "student": ModelSpec(provider, "big", max_tokens=20, price=Price(1.0, 1.0)),
        }
        study = Study.create(
            task,
            model=models,
            budget="evaluations=40,calls=9",
            run_dir=place / "run",
            workers=3,
            backend=chosen,
        )
        study.run(progress=False)
        seen = study.evaluations()
        assert seen and all(
            one.score == 1.0 and one.asked[0].role == "student" for one in seen if one.ok
        )
        assert len(server.asked) == study.status.usage.calls <= 9 and study.status.reason == "calls"
        assert [row.role for row in views.call_costs(study.path) if row.effect == "ask"] == [
            "student"
        ]
        server.fail(*["401"] * 20)
        again = Study.create(
            task, model=models, budget=4, run_dir=place / "again", backend=chosen, random_seed=5
        )
        with pytest.raises(UserError, match="key"):
            again.run(progress=False)
