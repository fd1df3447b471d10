"""Evaluators, batch evaluators and adapters: arguments, scores and side information."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
from gepa import optimize_anything as theirs
from gepa.adapters.default_adapter.default_adapter import DefaultAdapter
from gepa.adapters.optimize_anything_adapter.optimize_anything_adapter import (
    BatchEvaluatorWrapper,
    OptimizeAnythingAdapter,
)
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.core.task import WIDEST, Objective
from culmen.evaluate.function import build_report
from culmen.extensions.compat import gepa_evaluators as ours
from culmen.extensions.compat.example_cases import RESERVED, plain_number
from culmen.jail import outcome, wire
from tests.differential.comparing import answer_or_error, inputs, same

TEXTS = st.text(max_size=12)
NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.floats(-9, 9).map(numpy.float64),
    st.integers(-9, 9).map(numpy.int64),
    st.integers(-9, 9).map(lambda n: Fraction(n, 7)),
    st.integers(-9, 9).map(lambda n: Decimal(n) / 4),
)
PARTS = ("system", "tool", "feedback")
NAMES = st.sampled_from(
    [
        *("scores", "log", "stdout", "stderr", "Feedback", "feedback", "error", "Input", "images"),
        *("artifacts", "metrics", "score", "refiner_prompt", "current_candidate_specific_info"),
        *(f"{part}_specific_info" for part in PARTS),
    ]
)
OBJECTIVES = st.dictionaries(
    st.sampled_from(("a", "b", "feedback", "images", "artifacts", "score", "log")),
    NUMBERS,
    max_size=3,
)
VALUES = st.one_of(TEXTS, NUMBERS, st.none(), st.lists(st.integers(), max_size=2), OBJECTIVES)


@st.composite
def side_infos(draw: st.DrawFn) -> dict[str, Any]:
    """Side information over every name with a meaning, and others."""
    info: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        if name == "scores":
            info[name] = draw(OBJECTIVES)
        elif name.endswith("_specific_info"):
            scores = draw(st.one_of(st.none(), OBJECTIVES))
            own = {"note": draw(TEXTS)} | ({} if scores is None else {"scores": scores})
            info[name] = draw(st.sampled_from((own, "a text")))
        else:
            info[name] = draw(VALUES)
    return info


CANDIDATES = st.one_of(
    TEXTS, st.dictionaries(st.sampled_from(PARTS), TEXTS, min_size=1, max_size=3)
)
PARAMETERS = st.lists(
    st.sampled_from(
        [
            *("example", "example=None", "opt_state", "opt_state=None", "threshold=0.5"),
            *("case=None", "*args", "**more", "*, example=None", "*, opt_state=None"),
            "*, k=1, **more",
        ]
    ),
    max_size=3,
)
RETURNED = st.one_of(
    NUMBERS,
    st.floats(),
    st.tuples(NUMBERS, st.one_of(st.none(), side_infos())),
    st.tuples(NUMBERS, st.lists(st.tuples(st.sampled_from("abc"), NUMBERS), max_size=2)),
)


def written_evaluator(parameters: list[str]) -> Any:
    """A function with these parameters, which calls `act` with its arguments."""
    source = f"def evaluator({', '.join(['candidate', *parameters])}):\n    return act(locals())\n"
    space: dict[str, Any] = {}
    try:
        exec(source, space)
    except SyntaxError:
        return None
    return space["evaluator"], space


def their_parts(candidate: Any) -> dict[str, str]:
    return candidate if isinstance(candidate, dict) else {ours.STRING_PART: candidate}


def their_answer(wrapped: Any, candidate: Any, example: object) -> tuple[object, Any]:
    state = theirs.OptimizationState(best_example_evals=[])
    score, _, info = wrapped(their_parts(candidate), example=example, opt_state=state)
    return score, info


@inputs(1500)
@given(
    candidate=CANDIDATES,
    parameters=PARAMETERS,
    returned=RETURNED,
    has_example=st.booleans(),
    example=VALUES,
    capture=st.booleans(),
    printed=st.lists(st.sampled_from(("out", "err", "log", "raise")), max_size=4),
    zero=st.booleans(),
)
def test_calls_and_answers(
    candidate: Any,
    parameters: list[str],
    returned: Any,
    has_example: bool,
    example: object,
    capture: bool,
    printed: list[str],
    zero: bool,
) -> None:
    made = written_evaluator(parameters)
    if made is None:
        return
    evaluator, space = made
    calls: list[dict[str, Any]] = []

    def act(arguments: dict[str, Any]) -> Any:
        calls.append({name: _shown(value) for name, value in arguments.items() if name != "act"})
        for number, kind in enumerate(printed):
            if kind == "out":
                print(number)
            elif kind == "err":
                print(number, file=__import__("sys").stderr, end="")
            elif kind == "log":
                space["log"]("logged", number, sep="-")
            else:
                raise ValueError(f"no {number}")
        return returned

    space["act"] = act
    space["log"] = theirs.log
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapper = theirs.EvaluatorWrapper(
            evaluator,
            single_instance_mode=not has_example,
            capture_stdio=capture,
            str_candidate_mode=isinstance(candidate, str),
            raise_on_exception=not zero,
        )
        package = answer_or_error(lambda: their_answer(wrapper, candidate, example))
        judge = ours.FunctionJudge(evaluator, {}, capture, zero)
        space["log"] = ours.log
        mine = answer_or_error(lambda: judge.score_and_info(candidate, has_example, example))
        refused = answer_or_error(lambda: ours.check_signature(evaluator, has_example))
    if not calls:  # with raise_on_exception=False GEPA makes every call of it a 0
        same("evaluators that cannot be called", "raised UserError", refused, parameters)
        return
    same("evaluators: arguments, scores, side information", package, mine, (parameters, returned))
    half = len(calls) // 2
    assert calls[:half] == calls[half:] and refused is None
    if not isinstance(package, str):
        check_report(candidate, package, mine)


def _shown(value: Any) -> Any:
    """An argument without the identity of a state or of nested arguments."""
    if isinstance(value, dict):
        return {name: _shown(entry) for name, entry in value.items()}
    is_state = isinstance(value, ours.OptimizationState | theirs.OptimizationState)
    return ("state", value.best_example_evals) if is_state else repr(value)


def check_report(candidate: Any, package: Any, mine: Any) -> None:
    """The score and the metrics that reach the search are those of the package."""
    score, info = package
    adapter = OptimizeAnythingAdapter(evaluator=lambda *a, **k: (0.0, None, {}))
    objectives = adapter._extract_objective_scores(their_parts(candidate), info)
    parts = candidate if isinstance(candidate, dict) else {"program": candidate}
    answer = (plain_number(mine[0]), ours.readable_facts(candidate, mine[1]))
    request = {"parts": parts, "case": None, "whole": isinstance(candidate, dict)}
    report = build_report(lambda candidate: answer, request)
    verdict = outcome.of_report(wire.encode(report), Objective())
    number = float(score)
    if abs(number) <= WIDEST:
        assert verdict.score == number, (package, verdict)
    else:  # on purpose, and in words
        assert verdict.score is None and "as the score" in verdict.feedback
    wanted = {
        f"scores.{name}" if name in RESERVED else name: float(value)
        for name, value in objectives.items()
        if math.isfinite(float(value))
    }
    assert dict(verdict.metrics) == wanted, (info, verdict)
    for name, value in info.items():  # nothing of the side information is lost to the model
        if name != "scores" and isinstance(value, str) and value.strip():
            assert value.strip() in verdict.feedback, (name, value, verdict.feedback)


@inputs(1000)
@given(
    candidate=CANDIDATES,
    form=st.sampled_from((tuple, list)),
    score=st.one_of(NUMBERS, st.floats(-9, 9).map(str), st.floats(), st.none()),
    info=st.one_of(st.none(), side_infos(), TEXTS),
    length=st.integers(0, 4),
    has_example=st.booleans(),
    takes=st.sampled_from(("", ", opt_states", ", opt_states=None", ", **more", ", k=1")),
    raises=st.booleans(),
    zero=st.booleans(),
)
def test_batch_evaluators(
    candidate: Any,
    form: Any,
    score: Any,
    info: Any,
    length: int,
    has_example: bool,
    takes: str,
    raises: bool,
    zero: bool,
) -> None:
    result = (
        score
        if length == 0
        else form((score, *([info] if length == 2 else ["output", info, 3][: length - 1])))
    )
    calls: list[Any] = []

    def act(arguments: dict[str, Any]) -> Any:
        calls.append(repr({k: v for k, v in arguments.items() if "opt" not in k and k != "more"}))
        if raises:
            raise ValueError("no service")
        return [result]

    space: dict[str, Any] = {"act": act}
    exec(f"def evaluator(pairs{takes}):\n    return act(locals())\n", space)
    wrapper = BatchEvaluatorWrapper(
        space["evaluator"],
        str_candidate_key=ours.STRING_PART if isinstance(candidate, str) else None,
        raise_on_exception=not zero,
        single_instance_mode=not has_example,
    )
    states = [theirs.OptimizationState(best_example_evals=[])]
    package = answer_or_error(
        lambda: wrapper([(their_parts(candidate), 7 if has_example else None)], opt_states=states)[
            0
        ]
    )
    judge = ours.BatchJudge(space["evaluator"], {}, zero)
    mine = answer_or_error(lambda: judge.score_and_info(candidate, has_example, 7))
    same("batch evaluators: scores, side information", package, mine, (result, takes))
    assert len(calls) == 2 and calls[0] == calls[1]
    if not isinstance(package, str):
        check_report(candidate, package, mine)


@inputs(300)
@given(
    system=TEXTS,
    question=TEXTS,
    answer=TEXTS,
    reply=TEXTS,
    extra=st.dictionaries(st.sampled_from("ab"), TEXTS, max_size=2),
)
def test_the_default_adapter(
    system: str, question: str, answer: str, reply: str, extra: dict[str, str]
) -> None:
    adapter = DefaultAdapter(model=lambda messages: reply)
    example = {"input": question, "answer": answer, "additional_context": extra}
    candidate = {"system_prompt": system}
    batch = adapter.evaluate([example], candidate, capture_traces=True)
    records = adapter.make_reflective_dataset(candidate, batch, ["system_prompt"])
    score, facts = ours.AdapterJudge(adapter, {}).judge_example(candidate, True, example)
    objectives = (batch.objective_scores or [{}])[0] or {}
    metrics = {name: value for name, value in facts.items() if name != "feedback"}
    same(
        "adapters: scores and objectives", (batch.scores[0], objectives), (score, metrics), example
    )
    for record in records["system_prompt"]:
        assert all(str(text) in facts["feedback"] for text in record.values()), (record, facts)


def test_a_signature_that_gepa_cannot_call_is_refused() -> None:
    def evaluator(candidate: str, case: object) -> float:
        return 1.0

    refused = answer_or_error(lambda: ours.check_signature(evaluator, True))
    assert refused == f"raised {UserError.__name__}"
