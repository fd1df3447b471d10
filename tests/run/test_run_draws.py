"""One random seed for all evaluations on a case, and reports on scores that draw."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import culmen
from culmen.cli.main import main
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.ports import Backend
from culmen.core.task import Task
from culmen.report.figures import traces_line
from culmen.run.options import function_task
from culmen.run.study import Study
from culmen.store import views
from culmen.tasks import load
from culmen.testing.scripted import ScriptedModel

RULES: tuple[dict[str, Any], ...] = ({"deterministic": True}, {"same_draws": True}, {})


def value(text: str) -> float:
    return float(text)


class Drawing(Backend):
    """Scores of numbers; `noise` times a draw by the evaluation's seed, named where `is_said`."""

    workers = 2

    async def start(self) -> str:
        return "none"

    async def close(self) -> None:
        """There is nothing to close."""

    def __init__(
        self, noise: float = 0.0, is_said: bool = True, left: tuple[str, ...] = ()
    ) -> None:
        self._noise, self._names, self._left = noise, ("evaluator.rng",) if is_said else (), left

    async def evaluate(self, candidate: Any, case: Any, seed: int, **_: Any) -> Observation:
        score = float(candidate.text) + self._noise * random.Random(seed).gauss(0, 1)
        name = case.id if case else ""
        return Observation(
            candidate.id,
            Status.OK,
            score,
            name,
            seed=seed,
            trust="verified",
            drew=self._names,
            left=self._left,
        )


def climb(call: Any) -> str:
    return f"A step.\n```\n{random.Random(call.prompt).uniform(0, 9):.3f}\n```"


def searched(run: Path, backend: Backend, cases: tuple[Case, ...] = (), **rules: Any) -> Study:
    task = function_task(
        "1.0", cases, "climb", "max", "t", rules.pop("deterministic", None), None, value, **rules
    )
    study = Study.create(
        task, run_dir=run, backend=backend, budget=40, model=ScriptedModel(climb), evaluator=value
    )
    study.run(progress=False)
    return study


@pytest.mark.parametrize("cases", [(), (Case("a"), Case("b"), Case("c"))], ids=["plain", "cases"])
def test_all_evaluations_on_a_case_have_one_seed(tmp_path: Path, cases: tuple[Case, ...]) -> None:
    study = searched(tmp_path / "run", Drawing(0.3), cases, same_draws=True)
    by_case: dict[str, set[int]] = {}
    for each in study.observations():
        by_case.setdefault(each.case, set()).add(each.seed)
    assert len(by_case) == max(1, len(cases)) and all(len(seeds) == 1 for seeds in by_case.values())
    best = study.best
    assert best is not None and best.noise.one_draw and best.noise.draws and not best.noise.exact
    assert "exact" not in repr(study)
    if not cases:
        assert best.gain_margin is None and "; on one draw; how it does on others" in best.result
    searched_pairs = [
        (o.candidate, o.case) for o in study.observations() if o.candidate not in best.finalists
    ]
    assert len(searched_pairs) == len(set(searched_pairs))  # none is evaluated twice


def test_equal_scores_that_draw_are_told_as_noisy_by_every_reader(tmp_path: Path) -> None:
    quiet = searched(tmp_path / "quiet", Drawing(is_said=False))
    assert quiet.best is not None and quiet.best.noise.exact
    drawing = searched(tmp_path / "drawing", Drawing())
    best = drawing.best
    assert best is not None and best.noise.exact is False and best.noise.draws
    assert best.margin != 0.0 and best.gain_margin != 0.0
    assert views.run_integrity(drawing.path).noise == best.noise
    notes = [note.body for note in views.strategy_notes(drawing.path) if note.kind == "noise"]
    assert [note["exact"] for note in notes] == [False]


def test_a_declared_task_that_draws_is_told_as_one_draw(tmp_path: Path) -> None:
    study = searched(tmp_path / "run", Drawing(0.3), deterministic=True)
    best = study.best
    assert best is not None and best.noise.one_draw and best.gain_margin is None
    assert "; on one draw; how it does on others" in best.result


def test_rules_of_a_function_are_part_of_its_task() -> None:
    def task_of(**rules: Any) -> Task:
        return function_task("1.0", (), "", "max", "t", None, None, value, **rules)

    plain, drawn, keeping = task_of(), task_of(same_draws=True), task_of(keeps_state=True)
    assert plain == task_of(same_draws=False, keeps_state=False)
    assert drawn.same_draws and drawn.is_evaluated_once and keeping.evaluator.keeps_state
    assert len({each.digest for each in (plain, drawn, keeping)}) == 3
    assert plain.digest == plain.evaluator.digest == drawn.evaluator.digest


def test_rules_of_a_folder_stand_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def run():\n    return 1\n")
    (tmp_path / "evaluator.py").write_text("def score(output):\n    return float(output)\n")
    toml, plain = tmp_path / "task.toml", 'goal = "a number"\n[seed]\nfiles = ["program.py"]\n'
    toml.write_text(plain)
    first = load(tmp_path)
    toml.write_text(f"same_draws = false\n{plain}[evaluator]\nkeeps_state = false\n")
    assert load(tmp_path).digest == first.digest
    toml.write_text(f"same_draws = true\n{plain}")
    drawn = load(tmp_path)
    assert drawn.same_draws and drawn.digest != first.digest
    assert (
        load(tmp_path, seeds=({"program.py": "def run():\n    return 2\n"},)).digest == drawn.digest
    )
    toml.write_text(f"{plain}[evaluator]\nkeeps_state = true\n")
    assert load(tmp_path).evaluator.keeps_state
    run = tmp_path / "run"
    with pytest.raises(UserError, match="at its top"):
        culmen.optimize(None, tmp_path, run_dir=run, progress=False, same_draws=True)
    with pytest.raises(UserError, match=r"under \[evaluator\]"):
        culmen.optimize(None, tmp_path, run_dir=run, progress=False, keeps_state=True)
    with pytest.raises(UserError, match="keeps_state"):
        culmen.check("x", tmp_path, keeps_state=True)


def test_the_keywords_reach_the_evaluator(tmp_path: Path) -> None:
    study = culmen.optimize(
        "1.0",
        value,
        budget=5,
        run_dir=tmp_path / "run",
        progress=False,
        same_draws=True,
        keeps_state=True,
    )
    assert study.meta.task.same_draws and study.meta.task.evaluator.keeps_state
    assert len({each.seed for each in study.observations()}) == 1
    assert msgspec.structs.replace(study.meta.task, same_draws=False) != study.meta.task


def test_what_is_drawn_and_kept_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From all evaluations of the run, however many; nothing where nothing was seen."""
    assert traces_line(searched(tmp_path / "quiet", Drawing(is_said=False)).status) == ""
    drawing = searched(tmp_path / "drawing", Drawing(left=("os.environ", "data ITEMS")))
    line = "draws: evaluator.rng; left and reset: data ITEMS, os.environ; state kept: no"
    assert traces_line(drawing.status) == line
    assert drawing.status.drew == {"evaluator.rng": drawing.status.statuses["ok"]}
    keeping = searched(tmp_path / "keeping", Drawing(is_said=False, left=("n",)), keeps_state=True)
    assert traces_line(keeping.status) == "draws: none seen; left for the next: n; state kept: yes"
    assert main(["status", str(drawing.path)]) == 0
    assert line in " ".join(capsys.readouterr().out.split())
    assert main(["status", str(drawing.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["traces"] == line and document["drew"] and document["left"]


def test_a_declaration_that_draws_refute_is_a_finding(tmp_path: Path) -> None:
    found = [
        finding
        for rules in RULES
        for finding in searched(tmp_path / str(rules), Drawing(0.3), **rules).summary.findings
        if finding.topic == "declared_draws"
    ]
    (finding,) = found
    assert "evaluations draw random numbers (evaluator.rng)" in finding.what
    assert "compared on one draw" in finding.what and "same_draws" in finding.do
