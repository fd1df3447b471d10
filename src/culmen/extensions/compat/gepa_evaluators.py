"""GEPA's evaluators, batch evaluators and adapters as evaluators of culmen.

Arguments, return values and side information follow gepa 0.1.4, which
`tests/differential/gepa` compares. Everything here runs in the process of the evaluation.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.compat.example_cases import (
    RESERVED,
    Asked,
    metrics_and_lines,
    plain_number,
    shortened_text,
)
from culmen.jail.plain import metric_or_type

Parts = str | Mapping[str, str]

STRING_PART = "current_candidate"
"""GEPA's name of the one part of a candidate that is a plain text."""

DIFFERENCES = (
    "GEPA: an evaluator that raises is a failed evaluation, or 0 with raise_on_exception=False; "
    "there it ends the run",
    "GEPA: a score of NaN, infinity or beyond 1e100, and one beside words that say that the "
    "evaluation failed, is no score",
    "GEPA: the budget is a hard limit; there an iteration that has begun is finished",
    "GEPA: best_idx is the candidate of the final choice, not always that of the largest mean",
    "GEPA: a reply without a whole fenced block is a fault; there all of it is the new text",
)
"""Differences on purpose of every run, compared with 0.1.4."""

_SPECIFIC = "_specific_info"  # suffix of the name of a part's own side information


@dataclass
class OptimizationState:
    """GEPA's history of an example's best evaluations, always empty here.

    Evaluations are independent of one another, so that a resumed run equals one never stopped.
    """

    best_example_evals: list[JsonObject] = field(default_factory=list)


class LogContext:
    """The texts that one call of an evaluator logs, from all its threads."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def write(self, text: str) -> None:
        """Add a text."""
        self._texts.append(text)

    def drain(self) -> str:
        """All texts so far, which are forgotten."""
        texts, self._texts = self._texts, []
        return "".join(texts)


_THREAD = threading.local()


def log(*values: object, sep: str = " ", end: str = "\n") -> None:
    """Record values for the model to read, like `print`; GEPA's `oa.log`."""
    context: LogContext | None = getattr(_THREAD, "context", None)
    if context is None:
        warnings.warn("log() was called outside of an evaluator: the text is lost", stacklevel=2)
        return
    context.write(sep.join(map(str, values)) + end)


def get_log_context() -> LogContext:
    """The log of the evaluator's call that this thread performs; RuntimeError outside of one."""
    context: LogContext | None = getattr(_THREAD, "context", None)
    if context is None:
        raise RuntimeError("get_log_context() was called outside of an evaluator")
    return context


def set_log_context(context: LogContext | None) -> None:
    """Let `log` in this thread write there, also that of GEPA's package if it is loaded."""
    _THREAD.context = context
    package: Any = sys.modules.get("gepa.optimize_anything")
    if package is not None:
        package.set_log_context(context)


def check_signature(evaluator: Callable[..., object], has_examples: bool) -> None:
    """Raise `UserError` for an evaluator that cannot be called as GEPA calls it."""
    given = {"opt_state": None, **({"example": None} if has_examples else {})}
    try:
        signature = inspect.signature(evaluator)
        signature.bind(None, **_accepted_arguments(signature, given))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the evaluator cannot be called as GEPA calls it: {error}",
            where="evaluator=",
            fix="call its parameters candidate and example; all others need a default",
        ) from None


def _accepted_arguments(
    signature: inspect.Signature, given: Mapping[str, object]
) -> Mapping[str, object]:
    """The arguments that a function has parameters for, by name."""
    parameters = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


class FunctionJudge(Asked[Parts]):
    """An evaluator of `optimize_anything`: one candidate, one example.

    Its log and, with `capture`, its printed output are side information. With `zero_on_error`,
    an exception is the score 0.
    """

    differences = DIFFERENCES

    def __init__(
        self,
        fn: Callable[..., object],
        examples: Mapping[str, object],
        capture: bool = False,
        zero_on_error: bool = False,
    ) -> None:
        super().__init__(fn, examples)
        self.capture, self.zero_on_error = capture, zero_on_error
        self.signature = inspect.signature(fn)

    def judge_example(
        self, candidate: Parts, has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        score, info = self.score_and_info(candidate, has_example, example)
        return plain_number(score), readable_facts(candidate, info)

    def score_and_info(
        self, candidate: Parts, has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        """The score as the evaluator returned it, and the side information."""
        given = {"opt_state": OptimizationState(), **({"example": example} if has_example else {})}
        arguments = _accepted_arguments(self.signature, given)
        printed = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(_active_log())
            if self.capture:
                stack.enter_context(contextlib.redirect_stdout(printed["stdout"]))
                stack.enter_context(contextlib.redirect_stderr(printed["stderr"]))
            try:
                result = self.fn(candidate, **arguments)
            except Exception as error:
                if not self.zero_on_error:
                    raise
                result = 0.0, {"error": str(error)}
        captured = {name: stream.getvalue() for name, stream in printed.items()}
        score, info = _split_result(result)
        return score, _with_captured(info, {"log": context.drain(), **captured})


class BatchJudge(Asked[Parts]):
    """A batch evaluator, called with one pair: culmen decides one evaluation at a time."""

    differences = DIFFERENCES

    def __init__(
        self,
        fn: Callable[..., Iterable[object]],
        examples: Mapping[str, object],
        zero_on_error: bool = False,
    ) -> None:
        super().__init__(fn, examples)
        self.batch_evaluator, self.zero_on_error = fn, zero_on_error
        self.signature = inspect.signature(fn)

    def judge_example(
        self, candidate: Parts, has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        score, info = self.score_and_info(candidate, has_example, example)
        return score, readable_facts(candidate, info)

    def score_and_info(
        self, candidate: Parts, has_example: bool, example: object
    ) -> tuple[float, JsonObject]:
        """The score and the side information of the pair."""
        given = {"opt_states": [OptimizationState()]}
        arguments = _accepted_arguments(self.signature, given)
        pairs = [(candidate, example if has_example else None)]
        try:
            results = list(self.batch_evaluator(pairs, **arguments))
        except Exception as error:
            if not self.zero_on_error:
                raise
            return 0.0, {"error": str(error), "_gepa_transient_failure": True}
        if len(results) != 1:
            raise TypeError(
                f"batch_evaluator returned {len(results)} results for 1 pair: one a pair is "
                "expected"
            )
        return _split_batch_result(results[0])


class AdapterJudge(Asked[Mapping[str, str]]):
    """A `GEPAAdapter`: `evaluate` on one example, and its reflective data set as feedback."""

    differences = DIFFERENCES

    def __init__(self, adapter: Any, examples: Mapping[str, object]) -> None:
        super().__init__(adapter.evaluate, examples)
        self.adapter = adapter

    def judge_example(
        self, candidate: Mapping[str, str], has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        batch = self.adapter.evaluate([example], candidate, capture_traces=True)
        if len(batch.scores) != 1:
            raise TypeError(
                f"the adapter's evaluate returned {len(batch.scores)} scores for 1 example"
            )
        scores = (batch.objective_scores or [None])[0]
        facts, lines = metrics_and_lines(scores or {})
        lines.append(self._reflection_text(candidate, batch))
        feedback = shortened_text("\n".join(filter(None, lines)))
        return plain_number(batch.scores[0]), {**facts, "feedback": feedback}

    def _reflection_text(self, candidate: Mapping[str, str], batch: object) -> str:
        """The reflective data set of all parts; a failure to make it takes no score away."""
        try:
            records = self.adapter.make_reflective_dataset(candidate, batch, list(candidate))
        except Exception as error:  # noqa: BLE001 - as in GEPA, where reflection fails, not the score
            return f"make_reflective_dataset failed: {type(error).__name__}: {error}"
        return "\n".join(
            f"## {part}\n{info_text(record)}"
            for part, part_records in records.items()
            for record in part_records
        )


@contextlib.contextmanager
def _active_log() -> Iterator[LogContext]:
    """A log of its own for a call, as long as it lasts."""
    context = LogContext()
    set_log_context(context)
    try:
        yield context
    finally:
        set_log_context(None)


def _split_result(result: object) -> tuple[object, JsonObject]:
    """Score and side information of an evaluator's result."""
    if not isinstance(result, tuple):
        return result, {}
    if len(result) != 2:
        raise TypeError(
            f"the evaluator returned a tuple of {len(result)}: a score or (score, side_info) is "
            "expected"
        )
    score, info = result
    if info is None:
        return score, {}
    return score, {"feedback": info} if isinstance(info, str) else dict(info)


def _split_batch_result(result: Any) -> tuple[float, JsonObject]:
    """Score and side information of a pair: a score, (score, info) or (score, output, info)."""
    if not isinstance(result, list | tuple):
        return float(result), {}
    score: Any = result[0]
    info: object = result[2] if len(result) > 2 else result[1] if len(result) > 1 else None
    if info is not None and not isinstance(info, dict):
        raise TypeError(
            f"batch_evaluator returned side_info of type {type(info).__name__}: a dict or None is "
            "expected"
        )
    return float(score), dict(info or {})


def _with_captured(info: JsonObject, captured: Mapping[str, str]) -> JsonObject:
    """Side information with captured texts; the evaluator's own keep their names."""
    return info | {
        f"_gepa_{name}" if name in info else name: text for name, text in captured.items() if text
    }


def objective_scores(candidate: Parts, info: Mapping[str, Any]) -> JsonObject:
    """The scores of side information by name, those of a part as `part::name`."""
    scores: JsonObject = dict(info.get("scores", {}))
    for part in candidate if isinstance(candidate, Mapping) else (STRING_PART,):
        specific = info.get(part + _SPECIFIC)
        if isinstance(specific, dict) and "scores" in specific:
            own: Mapping[object, object] = dict(specific["scores"])
            scores |= {f"{part}::{name}": value for name, value in own.items()}
    return scores


def readable_facts(candidate: Parts, info: Mapping[str, object]) -> JsonObject:
    """Side information as metrics (numbers) and texts by name.

    Scores alone are metrics. A text that would be read as a number, or whose name has another
    meaning, is a line of `feedback`.
    """
    facts, lines = metrics_and_lines(objective_scores(candidate, info))
    for name, value in info.items():
        if name == "scores":
            continue
        text = shortened_text(info_text(value))
        is_number = isinstance(metric_or_type(text), int | float)
        if is_number or str(name) in facts or (str(name) in RESERVED and name != "feedback"):
            lines.append(f"{name}: {text}")
        elif name == "feedback":
            lines.append(text)
        else:
            facts[str(name)] = text
    return {**facts, "feedback": "\n".join(lines)} if lines else facts


def info_text(value: object) -> str:
    """A value of any type as text: mappings line by line."""
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {info_text(entry)}" for key, entry in value.items())
    return value if isinstance(value, str) else repr(value)
