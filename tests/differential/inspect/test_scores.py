"""Epochs, reducers, NaN, None and metrics: the figure of the package's own log."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai import Epochs, Task, eval, task
from inspect_ai._eval.task.results import eval_results
from inspect_ai.dataset import Sample
from inspect_ai.log import headline_metric
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, mean, scorer, std, stderr, value_to_float
from inspect_ai.scorer._metric import SampleScore
from inspect_ai.scorer._reducer import create_reducers
from inspect_ai.solver import generate, system_message

from culmen.extensions.compat.inspect_task import InspectEvaluator, SampleFailed
from tests.differential.comparing import inputs, same

VALUES = st.sampled_from(
    (
        "C",
        "I",
        "P",
        "N",
        "yes",
        "no",
        "true",
        "0.7",
        "x",
        1,
        0,
        2.5,
        -1,
        True,
        False,
        math.nan,
        None,
    )
)
REDUCERS = st.sampled_from(
    [
        *(None, "mean", "median", "mode", "max", "majority", "at_least_2", "pass_at_2"),
        *("pass_k_2", ["mean", "max"], ["mode", "median"], []),
    ]
)
METRICS: dict[str, list[Any]] = {
    "accuracy": [accuracy(), stderr()],
    "mean": [mean(), std()],
    "spread first": [stderr(), accuracy()],
    "own values": [accuracy(to_float=value_to_float(correct="yes", incorrect="C"))],
}


def scorer_with(metrics: Any) -> Any:
    @scorer(metrics=metrics)
    def graded() -> Any:
        async def score(state: Any, target: Any) -> None:
            return None

        return score

    return graded()


def log_of(rows: list[list[Any]], reducers: Any, metrics: Any) -> Any:
    """A log as the package makes it from these values, one row a sample, one entry an epoch."""
    scores, samples = [], []
    for number, row in enumerate(rows, 1):
        for value in row:
            given_scores = {} if value is None else {"graded": Score(value=value)}
            scores.append(
                {
                    name: SampleScore(score=score, sample_id=number, scorer="graded")
                    for name, score in given_scores.items()
                }
            )
            samples.append(SimpleNamespace(id=number, scores=given_scores, error=None))
    results, reductions = eval_results(
        len(rows), scores, create_reducers(reducers), [scorer_with(metrics)], None
    )
    about = SimpleNamespace(headline_metric=None)
    return SimpleNamespace(results=results, reductions=reductions, eval=about, error=None), samples


def adapter(score_name: str = "", key: str = "") -> InspectEvaluator:
    def no_task(system: str = "") -> None:
        return None

    return InspectEvaluator(no_task, None, scorer=score_name, key=key)


def our_score(log: Any, samples: Any, key: str = "") -> float | str:
    from culmen.extensions.compat.inspect_task import reduced_values

    try:
        return adapter(key=key)._chosen_score(log, samples, reduced_values(log, samples))
    except SampleFailed:
        return "no score"


ROWS = st.integers(1, 5).flatmap(
    lambda epochs: st.lists(
        st.lists(VALUES, min_size=epochs, max_size=epochs), min_size=1, max_size=4
    )
)


@inputs(1500)
@given(rows=ROWS, reducers=REDUCERS, metrics=st.sampled_from(sorted(METRICS)))
def test_scalar_values(rows: list[list[Any]], reducers: Any, metrics: str) -> None:
    log, samples = log_of(rows, reducers, METRICS[metrics])
    resolved = headline_metric(log)
    package: float | str = "no score"
    if resolved is not None and resolved.score.scored_samples:
        level = "accuracy" if metrics == "spread first" else resolved.name
        package = resolved.score.metrics[level].value
    same("scores of a scorer", package, our_score(log, samples), (rows, reducers, metrics))


DICTS = st.fixed_dictionaries(
    {"right": st.sampled_from(("C", "I", 1, 0.25, math.nan)), "length": st.integers(0, 9)}
)


@inputs(500)
@given(
    rows=st.integers(1, 4).flatmap(
        lambda epochs: st.lists(
            st.lists(DICTS, min_size=epochs, max_size=epochs), min_size=1, max_size=3
        )
    ),
    reducers=REDUCERS,
    key=st.sampled_from(("right", "length")),
)
def test_values_that_are_dicts(rows: list[list[Any]], reducers: Any, key: str) -> None:
    log, samples = log_of(rows, reducers, {"*": [mean()]})
    view = next(view for view in log.results.scores if view.name == key)
    package = view.metrics["mean"].value if view.scored_samples else "no score"
    same("scores of a scorer with several values", package, our_score(log, samples, key), rows)


def answer(input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", "x")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


@pytest.mark.parametrize(
    ("values", "epochs"),
    [
        (["I", "C", "I", "I"], Epochs(4, "max")),
        (["C", "C", "I", "I"], Epochs(4, "pass_at_2")),
        (["I", "I", "C", "I"], Epochs(4, "mode")),
        ([math.nan, 1], None),
        ([None, 1], None),
        (["C", "P", "N"], None),
        ([math.nan, math.nan, "C", "I"], Epochs(2)),
    ],
)
def test_whole_evaluations(values: list[Any], epochs: Epochs | None) -> None:
    left: list[Any] = []

    @scorer(metrics=[accuracy(), stderr()])
    def graded() -> Any:
        async def score(state: Any, target: Any) -> Score | None:
            value = left.pop(0)
            return None if value is None else Score(value=value)

        return score

    @task
    def asked(system: str = "add") -> Task:
        number = len(values) // (epochs.epochs if epochs else 1)
        data = [Sample(input=str(n), target="1") for n in range(number)]
        solver = [system_message(system), generate()]
        return Task(dataset=data, solver=solver, scorer=graded(), epochs=epochs)

    model = get_model("mockllm/model", custom_outputs=answer)
    left.extend(values)
    quiet = {"display": "none", "max_samples": 1, "log_level": "error"}
    (log,) = eval(asked(), model=model, log_dir="memory://logs", **quiet)
    left.extend(values)
    ours = InspectEvaluator(asked, model, max_samples=1)("add")
    assert log.results is not None
    same(
        "whole evaluations", log.results.scores[0].metrics["accuracy"].value, ours["score"], values
    )
