"""Several objectives, from a person's task to the report, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.cli.main import main
from culmen.core.errors import TaskError, UserError
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from culmen.report.figures import number_text
from culmen.tasks import load

TASK = """
name = "trade"
{top}
[seed]
files = ["program.py"]

[objectives]
accuracy = "max"
latency = {{direction = "min", reference = 20}}
{more}
"""
DOZEN, THIRTY = culmen.Budget(evaluations=12), culmen.Budget(evaluations=30)
PROGRAM = "A = 2.0\n\ndef run():\n    return A\n"
EVALUATOR = """
def score(output):
    a = abs(output)
    return {"accuracy": 1 - 1 / (1 + a), "metrics": {"latency": 2 + a}, "feedback": "fine"}
"""


def folder(
    tmp_path: Path,
    top: str = 'constraints = ["latency <= 9"]',
    more: str = "",
    evaluator: str = EVALUATOR,
) -> Path:
    place = tmp_path / "trade"
    place.mkdir()
    (place / "task.toml").write_text(TASK.format(top=top, more=more))
    (place / "program.py").write_text(PROGRAM)
    (place / "evaluator.py").write_text(evaluator)
    return place


def test_a_task_folder_gives_a_confirmed_front_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "run"
    study = culmen.Study.create(folder(tmp_path), run_dir=run, budget=culmen.Budget(evaluations=60))
    study.run(progress=False)
    front = study.front
    assert front is not None and front.confirmed and front.members and front.hypervolume > 0
    assert all(member.metrics["latency"] <= 9 for member in front.members)
    words = f"{len(front.members)} trade-offs between accuracy and latency: "
    assert study.summary.result.startswith(words) and "initial program" in study.summary.result
    assert main(["best", str(run), "--json", "--weights", "latency=1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chosen"] == min(front.members, key=lambda member: member.metrics["latency"]).id
    assert len(told["front"]["members"]) == len(front.members)
    hidden = ("score", "se", "margin", "search_score", "initial", "gain", "gain_margin")
    assert told["best"]["id"] == study.best.id and not any(told["best"][name] for name in hidden)
    assert main(["best", str(run), "--limit", "latency<=0.5"]) != 0
    assert "no member of the front holds latency <= 0.5" in capsys.readouterr().err
    assert main(["best", str(run)]) == 0
    shown = capsys.readouterr()
    assert all(member.id in shown.err for member in front.members) and "def run" in shown.out
    assert main(["status", str(run)]) == 0
    status = capsys.readouterr().out
    combined = number_text(
        study.best.score
    )  # of metrics that nobody weighed: strategies see it, people do not
    assert front.members[0].id in status and f"front of {len(front.members)}" in status
    assert main(["status", "--all"]) == 0
    listed = capsys.readouterr().out
    assert f"front of {len(front.members)}" in listed
    assert all(combined not in text for text in (status, listed, shown.err, study.summary.result))
    assert front.choice == front.choose().id == study.best.id
    assert (
        f"{front.choice}, the default choice" in shown.err
        and "nearest to the best value of every" in shown.err
    )
    first = overview_page(Digest(run), {})
    page = first["front"]
    assert page["choice"] == front.choice and "nearest to the best value" in page["why"]
    assert page["start"]["metrics"] == pytest.approx({"accuracy": 2 / 3, "latency": 4})
    assert (
        len(page["members"]) == len(front.members)
        and page["growth"]
        and page["constraints"][0]["text"] == "latency <= 9"
    )
    heights = [height for _, height in page["growth"]]
    assert heights == sorted(heights)


def test_a_function_returns_metrics_and_one_that_is_missing_or_nan_is_invalid(
    tmp_path: Path,
) -> None:
    def judge(text: str) -> dict[str, Any]:
        if "bad" in text:
            return {"size": float("nan"), "words": 1}
        return {"metrics": {"size": len(text)}, "words": len(text.split()), "note": "seen"}

    several = {"size": "min", "words": "max"}
    study = culmen.optimize(
        ["one two", "bad one"],
        judge,
        objectives=several,
        budget=THIRTY,
        run_dir=tmp_path / "run",
        progress=False,
    )
    seen = study.evaluations()
    bad = [each for each in seen if each.status == "invalid"]
    assert bad and all(each.reason == "metric_missing" and "size" in each.feedback for each in bad)
    assert study.front is not None and {"size", "words"} == set(study.front.members[0].metrics)


def test_a_run_with_one_score_has_no_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = culmen.optimize(
        "abc", lambda text: len(text), budget=DOZEN, run_dir=tmp_path / "run", progress=False
    )
    assert study.front is None
    assert main(["best", str(tmp_path / "run"), "--weights", "a=1"]) != 0
    assert "one score" in capsys.readouterr().err


def test_a_scorer_that_lacks_a_metric_blames_the_evaluation(tmp_path: Path) -> None:
    broken = 'def score(output):\n    return {"accuracy": 1.0, "latency": None}\n'
    study = culmen.Study.create(
        folder(tmp_path, evaluator=broken), run_dir=tmp_path / "run", budget=DOZEN
    )
    with pytest.raises(culmen.CulmenError):
        study.run(progress=False)
    assert {each.reason for each in study.evaluations()} == {"metric_missing"}


@pytest.mark.parametrize(
    ("top", "more", "said"),
    [
        ('constraints = ["latency"]', "", "not a constraint"),
        ("", 'memory = "smaller"', "direction"),
        ("", "memory = {worst = 3}", "unknown key"),
        ("", '[objective]\ndirection = "min"', "exclude"),
    ],
)
def test_mistakes_in_a_task_are_told(tmp_path: Path, top: str, more: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as error:
        load(folder(tmp_path, top, more))
    assert "task.toml" in str(error.value.where)


def test_mistakes_in_python_are_told() -> None:
    with pytest.raises(UserError, match="constraints need objectives"):
        culmen.optimize("a", lambda text: 1.0, constraints=["x <= 1"], budget=DOZEN)
    with pytest.raises(UserError, match="single score"):
        culmen.optimize(
            "a", lambda text: 1.0, objectives={"x": "max"}, direction="min", budget=DOZEN
        )
