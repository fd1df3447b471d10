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
from inspect_ai.scorer import (
    SampleScore,
    Score,
    accuracy,
    grouped,
    mean,
    metric,
    scorer,
    std,
    stderr,
    value_to_float,
)
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


@metric
def own() -> Any:
    """The share of values that are long or not 0: of texts, dicts and lists as well."""

    def share(scores: list[SampleScore]) -> float:
        return sum(len(str(each.score.value)) > 3 for each in scores) / len(scores)

    return share


@metric(scores="unreduced")
def every_epoch() -> Any:
    def count(scores: list[SampleScore]) -> float:
        return float(len(scores))

    return count


METRICS: dict[str, list[Any]] = {
    "accuracy": [accuracy(), stderr()],
    "mean": [mean(), std()],
    "spread first": [stderr(), accuracy()],
    "two spreads": [std(), stderr(), stderr(cluster="group"), accuracy()],
    "own values": [accuracy(to_float=value_to_float(correct="yes", incorrect="C"))],
    "own": [own(), mean()],
    "unreduced": [every_epoch(), mean()],
    "unreduced alone": [every_epoch()],
    "groups": [grouped(accuracy(), "group", all=False), mean()],
    "groups and all": [grouped(mean(), "group", all="groups")],
}
SPREADS = ("stderr", "std")


def scorer_with(metrics: Any, name: str = "graded") -> Any:
    @scorer(metrics=metrics, name=name)
    def graded() -> Any:
        async def score(state: Any, target: Any) -> None:
            return None

        return score

    return graded()


def log_of(
    rows: list[list[Any]], reducers: Any, metrics: Any, names: tuple[str, ...] = ("graded",)
) -> Any:
    """A log as the package makes it from these values, one row a sample, one entry an epoch.

    With several names an entry has a value for each of these scorers.
    """
    scores, samples = [], []
    for number, row in enumerate(rows, 1):
        group = {"group": ("std", "b")[number % 2]}
        for entry in row:
            pairs = zip(names, entry if len(names) > 1 else [entry], strict=True)
            given_scores = {name: Score(value=value) for name, value in pairs if value is not None}
            scores.append(
                {
                    name: SampleScore(
                        score=score, sample_id=number, scorer=name, sample_metadata=group
                    )
                    for name, score in given_scores.items()
                }
            )
            samples.append(SimpleNamespace(id=number, scores=given_scores, error=None))
    scorers = [scorer_with(metrics, name) for name in names]
    results, reductions = eval_results(len(rows), scores, create_reducers(reducers), scorers, None)
    about = SimpleNamespace(headline_metric=None)
    return SimpleNamespace(results=results, reductions=reductions, eval=about, error=None), samples


def package_figure(log: Any) -> float | str:
    """The headline of a log; the next metric of its scorer in place of one that is a spread."""
    resolved = headline_metric(log)
    if resolved is None or not resolved.score.scored_samples:
        return "no score"
    metrics = resolved.score.metrics.values()
    figure = next(each.value for each in metrics if each.group or each.name not in SPREADS)
    return float(figure)


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


@inputs(2000)
@given(rows=ROWS, reducers=REDUCERS, metrics=st.sampled_from(sorted(METRICS)))
def test_scalar_values(rows: list[list[Any]], reducers: Any, metrics: str) -> None:
    log, samples = log_of(rows, reducers, METRICS[metrics])
    given_values = (rows, reducers, metrics)
    same("scores of a scorer", package_figure(log), our_score(log, samples), given_values)


@inputs(500)
@given(
    rows=st.integers(1, 3).flatmap(
        lambda epochs: st.lists(
            st.lists(st.tuples(VALUES, VALUES), min_size=epochs, max_size=epochs),
            min_size=1,
            max_size=4,
        )
    ),
    reducers=REDUCERS,
    metrics=st.sampled_from(sorted(METRICS)),
    is_empty=st.booleans(),
)
def test_several_scorers(
    rows: list[list[Any]], reducers: Any, metrics: str, is_empty: bool
) -> None:
    rows = [[(one, None if is_empty else two) for one, two in row] for row in rows]
    log, samples = log_of(rows, reducers, METRICS[metrics], ("gpt-4.1", "second"))
    given_values = (rows, reducers, metrics)
    same("scores of two scorers", package_figure(log), our_score(log, samples), given_values)


CONTAINERS = st.sampled_from(([1, 0], [0.5, 1], {"a": 1, "b": 0}, {"a": 0.25, "b": 3}, math.nan))


@inputs(300)
@given(rows=st.lists(st.lists(CONTAINERS, min_size=1, max_size=1), min_size=1, max_size=4))
def test_own_metrics_of_lists_and_dicts(rows: list[list[Any]]) -> None:
    log, samples = log_of(rows, [], METRICS["own"])
    same("own metrics of lists and dicts", package_figure(log), our_score(log, samples), rows)


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
