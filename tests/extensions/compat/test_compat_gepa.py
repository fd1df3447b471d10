"""GEPA's evaluators, adapters and settings.

With the types of the real package where it is installed.
"""

from __future__ import annotations

import pytest

import culmen
from culmen import gepa as oa
from culmen.core.errors import UserError

ANSWERS = {"2 + 3": "5", "4 * 6": "24", "9 - 5": "4", "8 / 2": "4"}


def better(prompt: str) -> str:
    return "```\nCalculate the result.\n```"


def quiz(candidate, example):
    right = "calculate" in candidate.lower()
    oa.log("asked", example)
    return float(right), {
        "scores": {"length": len(candidate)},
        "Feedback": f"{example} is {ANSWERS[example]}",
    }


def run(**given):
    keywords = {"model": better, "budget": 24, "deterministic": True, "progress": False}
    return oa.optimize_anything(**{**keywords, **given})


def test_score_and_side_information_become_score_metrics_and_feedback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = run(
        seed_candidate="Answer.",
        evaluator=quiz,
        dataset=list(ANSWERS)[:2],
        valset=list(ANSWERS)[2:],
        objective="Prompts that calculate.",
        background="Only numbers.",
    )
    assert study.best.text == "Calculate the result." and study.best.score == 1.0
    assert study.meta.task.goal == "Prompts that calculate.\n\nOnly numbers."
    assert {case.split for case in study.meta.task.cases} == {"train", "val"}
    seen = (
        [row.observation for row in study.evaluations()]
        if hasattr(study.evaluations()[0], "observation")
        else []
    )
    seen = seen or list(study.evaluations())
    assert any(
        "log: asked 2 + 3" in each.feedback and "2 + 3 is 5" in each.feedback for each in seen
    )
    assert all(each.metrics["length"] > 0 for each in seen if each.status == "ok")


def test_a_dict_candidate_keeps_its_parts_without_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def evaluator(candidate: dict[str, str]) -> float:
        return float(sum("calculate" in text.lower() for text in candidate.values()))

    def model(prompt: str) -> str:
        return "\n".join(
            f"{name}\n```\ncalculate {name}\n```" for name in ("system", "user", "tool")
        )

    study = run(
        seed_candidate={"system": "a", "user": "b", "tool": "c"}, evaluator=evaluator, model=model
    )
    assert set(study.best.parts) == {"system", "user", "tool"} and study.best.score >= 1.0


def test_a_batch_evaluator_and_what_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = run(
        seed_candidate="Answer.",
        batch_evaluator=lambda pairs: [float(len(text)) for text, _ in pairs],
    )
    assert study.best.score == len("Calculate the result.")
    with pytest.raises(UserError, match="2 results for 1 pair"):
        run(seed_candidate="Answer.", batch_evaluator=lambda pairs: [1.0, 2.0])


@pytest.mark.parametrize("returned", [None, "high", [1.0], {"a": 1}, float("nan"), (1.0, 2.0, 3.0)])
def test_a_foreign_return_value_is_said(tmp_path, monkeypatch, returned):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"evaluator|score"):
        run(seed_candidate="Answer.", evaluator=lambda candidate: returned)


def test_megabytes_of_log_are_cut(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def loud(candidate):
        oa.log("x" * 5_000_000)
        return 1.0, {"trace": "y" * 5_000_000}

    study = run(seed_candidate="Answer.", evaluator=loud, budget=10)
    assert study.best.score == 1.0
    assert all(len(each.feedback) < 20_000 for each in study.evaluations())


def test_what_is_missing_is_said():
    for given in ({}, {"evaluator": quiz, "seed_candidate": "x", "budget": None}):
        with pytest.raises(UserError):
            oa.optimize_anything(**given)


def test_a_config_of_the_package(tmp_path, monkeypatch):
    theirs = pytest.importorskip("gepa.optimize_anything")
    monkeypatch.chdir(tmp_path)

    def evaluator(candidate):
        theirs.log("length", len(candidate))
        print("printed here")
        return float("calculate" in candidate.lower())

    engine = theirs.EngineConfig(
        max_metric_calls=30, seed=7, run_dir="out", max_workers=2, capture_stdio=True
    )
    reflection = theirs.ReflectionConfig(reflection_lm=better, reflection_minibatch_size=2)
    config = theirs.GEPAConfig(engine=engine, reflection=reflection)
    study = oa.optimize_anything("Answer.", evaluator=evaluator, config=config, progress=False)
    meta = study.meta
    assert (meta.budget.evaluations, meta.seed, meta.workers, study.path.name) == (30, 7, 2, "out")
    assert meta.strategy["config"]["batch"] == 2 and study.best.score == 1.0
    assert any(
        "log: length 7" in each.feedback and "printed here" in each.feedback
        for each in study.evaluations()
    )


@pytest.mark.parametrize(
    ("section", "setting", "said"),
    [
        ("engine", {"candidate_selection_strategy": "current_best"}, "strategy="),
        ("tracking", {"use_wandb": True}, "--track wandb"),
        ("reflection", {"perfect_score": 1.0}, "stop_at"),
        ("", {"callbacks": [object()]}, "observers"),
    ],
)
def test_settings_without_a_counterpart_name_ours(section, setting, said):
    theirs = pytest.importorskip("gepa.optimize_anything")
    kinds = {
        "engine": theirs.EngineConfig,
        "reflection": theirs.ReflectionConfig,
        "tracking": theirs.TrackingConfig,
    }
    config = theirs.GEPAConfig(**({section: kinds[section](**setting)} if section else setting))
    with pytest.raises(UserError) as caught:
        oa.optimize_anything("x", evaluator=quiz, config=config)
    assert said in caught.value.fix


def test_an_adapter_of_the_package(tmp_path, monkeypatch):
    pytest.importorskip("gepa")
    from gepa.adapters.default_adapter.default_adapter import DefaultAdapter

    def task_lm(messages) -> str:
        return (
            ANSWERS[messages[1]["content"]] if "alculate" in messages[0]["content"] else "a number"
        )

    monkeypatch.chdir(tmp_path)
    examples = [
        {"input": ask, "answer": told, "additional_context": {}} for ask, told in ANSWERS.items()
    ]
    given = {
        "max_metric_calls": 40,
        "reflection_lm": better,
        "seed": 3,
        "progress": False,
        "deterministic": True,
    }
    for how in ({"adapter": DefaultAdapter(model=task_lm)}, {"task_lm": task_lm}):
        study = oa.optimize(
            {"system_prompt": "Answer."}, examples[:2], examples[2:], **how, **given
        )
        assert (
            study.best.parts == {"system_prompt": "Calculate the result."}
            and study.best.score == 1.0
        )
        assert any("Generated Outputs: a number" in each.feedback for each in study.evaluations())


def test_the_module_is_reached_from_culmen():
    assert culmen.gepa is oa
