"""Scores as people return them: a bool, a pair of score and info, a number written as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.cli.main import main
from culmen.core.evaluation import Observation
from culmen.store import views

SEED = "def run():\n    return 7.0\n"
RETURNS = [
    ("output == 7.0", 1.0, {}),
    ("output != 7.0", 0.0, {}),
    ("'0.25'", 0.25, {}),
    ("(0.5, {'speed': 2.0, 'note': 'fine'})", 0.5, {"speed": 2.0}),
    ("(True, 'well done')", 1.0, {}),
    ("{'score': '0.75', 'speed': '2.5'}", 0.75, {"speed": 2.5}),
]


def first_seen(run: Path) -> Observation:
    return next(iter(views.stream_observations(run)))


def check(seen: Observation, score: float, metrics: dict[str, float]) -> None:
    assert seen.ok, seen.feedback
    assert seen.score == score and metrics.items() <= seen.metrics.items()


@pytest.mark.parametrize(("returned", "score", "metrics"), RETURNS)
def test_of_a_function(
    returned: str, score: float, metrics: dict[str, float], tmp_path: Path
) -> None:
    def evaluator(program: str) -> Any:
        space: dict[str, Any] = {}
        exec(program, space)
        return eval(returned, {"output": space["run"]()})

    study = culmen.optimize(
        SEED, evaluator=evaluator, budget=1, run_dir=tmp_path / "run", progress=False
    )
    check(first_seen(study.path), score, metrics)


@pytest.mark.parametrize(("returned", "score", "metrics"), RETURNS)
@pytest.mark.parametrize("head", ["def score(output):", "def evaluate(path):"])
def test_of_a_file(
    head: str,
    returned: str,
    score: float,
    metrics: dict[str, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "evaluate" in head:
        pytest.importorskip("culmen.extensions.compat")
        lines = [
            "    space = {}",
            "    exec(open(path).read(), space)",
            "    output = space['run']()",
        ]
        returned = returned.replace("'score'", "'combined_score'")
    else:
        lines = []
    (tmp_path / "initial_program.py").write_text(SEED)
    (tmp_path / "evaluator.py").write_text(
        "\n".join([head, *lines, f"    return {returned}"]) + "\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", ".", "--budget", "2", "--run-dir", "run", "--quiet"]) in (0, 1)
    check(first_seen(tmp_path / "run"), score, metrics)


@pytest.mark.extension("compat")
def test_texts_and_flags_count_in_no_mean() -> None:
    from culmen.extensions.compat.openevolve.evaluator_process import combined_fitness

    assert combined_fitness({"a": 0.5, "version": "3"}, []) == 0.5
    assert combined_fitness({"a": "0.9"}, []) is None
    assert combined_fitness({"a": 0.5, "late": True}, []) == 0.5
    assert combined_fitness({"combined_score": "0.9"}, []) == 0.9


@pytest.mark.parametrize("text", ["nan", "inf", "1_0", "0x1", "9%", "", "1e", "²", "1" * 200])
def test_other_texts_are_no_scores(text: str) -> None:
    from culmen.jail.plain import score_or_type

    assert isinstance(score_or_type(text), str)
