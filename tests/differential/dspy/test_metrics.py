"""Metrics, scores and programs: what `dspy.Evaluate` and `dspy.GEPA` make of them."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path
from typing import Any

import dspy
import numpy
import pytest
from dspy.teleprompt.gepa.gepa_utils import DspyAdapter
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.extensions.compat import dspy as ours
from culmen.extensions.compat.example_cases import plain_number
from tests.differential.comparing import answer_or_error, inputs, same


class Echo(dspy.Module):
    """A program without a model: its answer is its question."""

    def __init__(self) -> None:
        super().__init__()
        self.first = dspy.Predict("question -> answer")
        self.second = dspy.ChainOfThought("question, hint -> answer")

    def forward(self, question: str) -> Any:
        return dspy.Prediction(answer=question)


NUMBERS = st.one_of(
    st.floats(-9, 9),
    st.integers(-9, 9),
    st.booleans(),
    st.floats(-9, 9).map(numpy.float64),
    st.integers(-9, 9).map(numpy.int64),
    st.booleans().map(numpy.bool_),
)
OBJECTIVES = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(("cost", "speed", "feedback")), NUMBERS, max_size=2)
)
FEEDBACK = st.one_of(st.none(), st.text(max_size=9))


@st.composite
def results(draw: st.DrawFn) -> Any:
    """Any result of a metric."""
    score = draw(NUMBERS)
    kind = draw(st.sampled_from(("number", "score", "feedback", "objectives")))
    if kind == "number":
        return score
    given: dict[str, Any] = {"score": score}
    if kind != "score":
        given["feedback"] = draw(FEEDBACK)
    if kind == "objectives":
        given["objective_scores"] = draw(OBJECTIVES)
    return dspy.Prediction(**given)


@inputs(1700)
@given(results(), st.text(max_size=9))
def test_scores_and_objectives(result: Any, question: str) -> None:
    example = dspy.Example(question=question, answer=question).with_inputs("question")
    adapter = DspyAdapter(Echo(), lambda *args: result, {}, failure_score=0.0)
    batch = adapter._make_evaluation_batch([None], [result], None)
    objectives = dict((batch.objective_scores or [{}])[0])
    package = (float(batch.scores[0]), {name: float(value) for name, value in objectives.items()})
    judge = ours._Program(lambda gold, pred, trace=None: result, {}, Echo())
    score, facts = judge.judge_example({}, True, example)
    metrics = {
        name.removeprefix("scores."): value
        for name, value in facts.items()
        if isinstance(value, float)
    }
    same("metrics: scores and objectives", package, (score, metrics), result)
    feedback = getattr(result, "feedback", None)
    told = facts["feedback"].replace(f"{question!r}", "")
    assert (feedback or "") in facts["feedback"] and (feedback or "None" not in told)


@inputs(150)
@given(results(), st.text(max_size=9))
def test_scores_of_evaluate(result: Any, question: str) -> None:
    example = dspy.Example(question=question).with_inputs("question")
    evaluate = dspy.Evaluate(
        devset=[example], metric=lambda *args: result, num_threads=1, display_progress=False
    )
    score, _ = ours._Program(lambda *args: result, {}, Echo()).judge_example({}, True, example)
    percent = evaluate(Echo()).score
    assert isinstance(score, float)
    same("Evaluate: a hundred times the score", percent, round(100 * score, 2), result)


PARAMETERS = st.lists(
    st.sampled_from(
        [
            *("a", "b", "c", "d", "e", "gold", "pred", "trace=None", "pred_name=None", "*args"),
            *("pred_trace=None", "program_trace=None", "*", "k=1", "**more", "/", "limit=0.5"),
        ]
    ),
    max_size=6,
    unique=True,
)


class Object:
    """An object that is called as a metric."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, a: Any, b: Any, c: Any = None, d: Any = 2, e: Any = 3) -> Any:
        return self.function(a, b, c, d, e)


@inputs(1000)
@given(PARAMETERS, st.sampled_from(("function", "partial", "method", "object")))
def test_metrics_and_their_arguments(parameters: list[str], kind: str) -> None:
    calls: list[str] = []
    space: dict[str, Any] = {"seen": lambda given: calls.append(repr(given)) or 1.0}
    receiver = "self, " if kind == "method" else ""
    try:
        exec(f"def metric({receiver}{', '.join(parameters)}):\n    return seen(locals())\n", space)
    except SyntaxError:
        return
    metric = space["metric"]
    if kind == "partial":
        metric = functools.partial(metric)
    elif kind == "method":
        metric = type("Holder", (), {"metric": metric, "__repr__": lambda self: "holder"})().metric
    elif kind == "object":
        metric = Object(lambda *args: space["seen"](args))
    lm = dspy.utils.DummyLM([{"answer": "x"}])
    package = answer_or_error(
        lambda: dspy.GEPA(metric=metric, max_metric_calls=1, reflection_lm=lm)
    )
    arity = answer_or_error(lambda: ours.metric_arity(metric))
    if arity == f"raised {UserError.__name__}":
        assert isinstance(package, str), "GEPA accepts it"
        for number in (5, 3, 2):
            assert answer_or_error(lambda n=number: metric(*[None] * n)) == "raised TypeError"
        return
    example = dspy.Example(question="q").with_inputs("question")
    evaluate = dspy.Evaluate(devset=[example], metric=metric, num_threads=1, display_progress=False)
    with contextlib.suppress(Exception):
        evaluate(Echo())
    if calls:  # else it needs more than two arguments, and DSPy counts 0
        ours._Program(metric, {}, Echo()).judge_example({}, True, example)
        same("metrics: arguments", calls[0], calls[1], parameters)


class Typed(dspy.Signature):
    """Fields of several types."""

    words: list[str] = dspy.InputField()
    number: int = dspy.InputField()
    right: bool = dspy.OutputField()
    counts: dict[str, float] = dspy.OutputField()


DEMO = st.fixed_dictionaries(
    {"words": st.lists(st.text(max_size=4), max_size=3), "number": st.integers()},
    optional={
        "right": st.booleans(),
        "counts": st.dictionaries(st.text(max_size=3), st.floats(-9, 9), max_size=2),
        "other": st.text(max_size=3),
    },
)


@inputs(300)
@given(st.lists(DEMO, min_size=1, max_size=3))
def test_demonstrations_in_a_prompt(rows: list[dict[str, Any]]) -> None:
    """The model reads the demonstrations as from `LabeledFewShot`."""
    train = [dspy.Example(**row).with_inputs("words", "number") for row in rows]
    student = dspy.Predict(Typed)
    package = dspy.LabeledFewShot(k=len(train)).compile(student, trainset=train, sample=False)
    mine = ours.with_parts(student, ours._program_parts(student, train))
    prompts = [
        dspy.ChatAdapter().format(each.signature, each.demos, {"words": ["a"], "number": 1})
        for each in (package, mine)
    ]
    same("demonstrations: prompts", *prompts, rows)


@inputs(200)
@given(st.text(max_size=30), st.text(max_size=30), st.booleans())
def test_programs_with_texts(first: str, second: str, only_one: bool) -> None:
    names = [name for name, _ in Echo().named_predictors()]
    parts = dict(zip(names, [first] if only_one else [first, second], strict=False))
    adapter = DspyAdapter(Echo(), lambda *args: 0.0, {}, failure_score=0.0)
    package, mine = adapter.build_program(parts), ours.with_parts(Echo(), parts)
    texts = [
        {name: predictor.signature.instructions for name, predictor in program.named_predictors()}
        for program in (package, mine)
    ]
    same("programs: instructions", *texts, parts)
    with tempfile.TemporaryDirectory() as folder:
        mine.save(Path(folder, "program.json"))
        loaded = Echo()
        loaded.load(Path(folder, "program.json"))
    assert [p.signature.instructions for _, p in loaded.named_predictors()] == list(
        texts[1].values()
    )


def test_the_parts_are_those_that_gepa_improves() -> None:
    student = Echo()
    parts = {name: each.signature.instructions for name, each in student.named_predictors()}
    assert ours._program_parts(student, []) == parts


@pytest.mark.parametrize("value", [None, {"score": 1.0}, "good"])
def test_no_numbers_are_refused_by_both(value: Any) -> None:
    example = dspy.Example(question="q").with_inputs("question")
    evaluate = dspy.Evaluate(devset=[example], metric=lambda *args: value, display_progress=False)
    assert answer_or_error(lambda: evaluate(Echo())) == "raised TypeError"
    assert not isinstance(plain_number(value), float)
