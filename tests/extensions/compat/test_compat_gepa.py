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


def test_a_text_that_ends_like_a_file_is_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Use notes.md").write_text("another text")
    study = run(
        seed_candidate="Use notes.md",
        evaluator=lambda candidate: float(candidate == "Use notes.md"),
        budget=1,
    )
    assert (study.best_candidate, study.best.score) == ("Use notes.md", 1.0)


@pytest.mark.parametrize("part", [None, 0.5])
def test_a_part_that_is_no_text_is_refused(part):  # GEPA passes it on as it is
    with pytest.raises(UserError, match="the part 'prompt' is no text"):
        run(seed_candidate={"prompt": part}, evaluator=lambda candidate: 1.0)


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


def test_the_example_is_given_by_its_name_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = run(
        seed_candidate="Answer.",
        evaluator=lambda candidate, threshold=0.5: threshold / 100,
        dataset=[10, 20],
        valset=[30],
        budget=6,
    )
    assert {each.score for each in study.evaluations()} == {0.005}
    with pytest.raises(UserError, match="missing a required argument: 'case'"):
        run(seed_candidate="Answer.", evaluator=lambda candidate, case: 1.0, dataset=[10])


def test_a_state_of_the_optimization_is_empty_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def evaluator(candidate, example, opt_state):
        return float(example + len(opt_state.best_example_evals))

    with pytest.warns(UserWarning, match="opt_state has no earlier evaluations"):
        study = run(seed_candidate="Answer.", evaluator=evaluator, dataset=[10, 20], budget=6)
    assert {each.score for each in study.evaluations()} == {10.0, 20.0}


@pytest.mark.parametrize(
    "result",
    [[0.5, {"a": 1}], (0.5, "out", {"a": 1}), (0.5,), [0.5, None], "0.5", 0.5],
)
def test_every_form_of_a_batch_result(tmp_path, monkeypatch, result):
    monkeypatch.chdir(tmp_path)
    study = run(seed_candidate="Answer.", batch_evaluator=lambda pairs: [result], budget=4)
    assert study.best.score == 0.5


def test_the_batch_evaluator_is_preferred(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    both = {"evaluator": lambda candidate: 1.0, "batch_evaluator": lambda pairs: [2.0]}
    assert run(seed_candidate="Answer.", budget=4, **both).best.score == 2.0


def test_side_information_of_ones_own_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def evaluator(candidate):
        oa.log("logged")
        info = {"log": "mine", "steps": 12, "scores": {"x": 1}}
        return 1.0, info | {"system_specific_info": {"scores": {"y": 2.0}}}

    study = run(seed_candidate={"system": "Answer."}, evaluator=evaluator, budget=4)
    (seen, *_) = study.evaluations()
    assert "log: mine" in seen.feedback and "_gepa_log: logged" in seen.feedback
    assert seen.metrics == {"x": 1.0, "system::y": 2.0} and "steps: 12" in seen.feedback


def test_an_exception_is_a_zero_if_it_is_not_to_be_raised(tmp_path, monkeypatch):
    theirs = pytest.importorskip("gepa.optimize_anything")
    monkeypatch.chdir(tmp_path)

    def evaluator(candidate):
        raise ValueError("no luck")

    config = theirs.GEPAConfig(engine=theirs.EngineConfig(raise_on_exception=False))
    config.reflection.reflection_lm = better
    cases = {"dataset": [1], "budget": 4, "deterministic": True, "progress": False}
    study = oa.optimize_anything("Answer.", evaluator=evaluator, config=config, **cases)
    assert {each.score for each in study.evaluations()} == {0.0}
    assert "error: no luck" in study.evaluations()[0].feedback


def test_a_script_reads_the_result_as_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(
        seed_candidate="Answer.",
        evaluator=quiz,
        dataset=list(ANSWERS)[:2],
        valset=list(ANSWERS)[2:],
        random_seed=5,
    )
    assert result.best_candidate == "Calculate the result."
    assert result.candidates[0] == {"current_candidate": "Answer."}
    assert result.parents[:2] == [[None], [0]] and result.num_val_instances == 2
    assert result.val_aggregate_scores[result.best_idx] == 1.0
    assert result.val_subscores[0] == {0: 0.0, 1: 0.0}
    assert result.per_val_instance_best_candidates[1] == {result.best_idx}
    assert result.discovery_eval_counts[0] == 0 < result.discovery_eval_counts[1]
    assert result.total_metric_calls == len(result.evaluations())
    assert result.seed == 5 and result.to_dict()["best_idx"] == result.best_idx
    assert result.study.best.text == result.best_candidate


def test_without_a_model_gepas_own_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(UserError, match=r"gpt-5\.1|OPENAI"):
        oa.optimize_anything("Answer.", evaluator=lambda candidate: 1.0, budget=4, progress=False)


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
    from culmen.gepa import optimize_anything

    assert culmen.gepa is oa and oa.optimize_anything is optimize_anything


def test_other_names_are_those_of_the_package():
    theirs = pytest.importorskip("gepa.optimize_anything")
    assert oa.GEPAConfig is theirs.GEPAConfig and oa.EvaluationBatch.__module__.startswith("gepa.")
    with pytest.raises(AttributeError, match="neither"):
        _ = oa.nothing_of_this_name
