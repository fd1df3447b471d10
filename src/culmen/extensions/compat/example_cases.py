"""Functions and examples of another package as an evaluator and cases of culmen.

`gepa`, `dspy` and `trace` supply their candidates' parts and a function as `Asked`;
`culmen.optimize` does the rest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from culmen.core.evaluation import Case
from culmen.core.json import JsonObject

# characters of a text that a model reads of one evaluation: more costs tokens and adds little
SHOWN = 8_000
RESERVED = ("feedback", "images", "artifacts")  # names with a meaning in an answer to culmen


CandidateT = TypeVar("CandidateT", contravariant=True)
"""A candidate as its evaluator receives it: texts by name, or the one text of a program."""


class Asked(ABC, Generic[CandidateT]):
    """An evaluator that calls `fn` on a candidate and one of the `examples`.

    `differences` from the other package are sentences, notes of the task. With `is_text` the
    candidate's one text is given without its name.

    Examples never leave this process and may be of any type. The object has the code and the name
    of `fn`, so that a changed function is a changed evaluator for a run's journal.
    """

    differences: tuple[str, ...] = ()
    is_text = False

    def __init__(self, fn: Callable[..., object], examples: Mapping[str, object]) -> None:
        self.fn, self.examples = fn, examples
        self.__code__ = getattr(fn, "__code__", None) or getattr(
            type(fn).__call__, "__code__", None
        )
        self.__qualname__ = getattr(fn, "__qualname__", type(fn).__qualname__)

    def __call__(self, candidate: CandidateT, case: Case | None) -> tuple[object, JsonObject]:
        """The score, and metrics (numbers), `feedback` and further texts by name."""
        parts = cast("Mapping[str, CandidateT]", candidate)
        given = next(iter(parts.values())) if self.is_text else candidate
        example = None if case is None else self.examples[case.id]
        return self.judge_example(given, case is not None, example)

    @abstractmethod
    def judge_example(
        self, candidate: CandidateT, has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        """The score, metrics and texts for the example itself, if one is `given`."""


def cases_of(
    train: Iterable[object] | None, val: Iterable[object] | None
) -> tuple[list[Case], JsonObject]:
    """Cases of the splits train and val, and the examples by the ids of their cases."""
    cases, examples = list[Case](), JsonObject()
    for split, split_examples in (("train", train), ("val", val)):
        for number, example in enumerate(split_examples or ()):
            name = f"{split}-{number}"
            cases.append(Case(name, plain_example(example), split=split))
            examples[name] = example
    return cases, examples


def plain_example(example: object) -> object:
    """The example as plain data, or as a text if it cannot be converted."""
    try:
        return msgspec.to_builtins(example)
    except (TypeError, ValueError, RecursionError):
        return shortened_text(repr(example))


def shortened_text(text: str) -> str:
    """The beginning and the end of a long text."""
    half = SHOWN // 2
    return (
        text
        if len(text) <= SHOWN
        else f"{text[:half]}\n... {len(text) - SHOWN} characters left out ...\n{text[-half:]}"
    )


def plain_number(value: Any) -> object:
    """A number of any library as a float; anything else unchanged."""
    if isinstance(value, str | bytes | bytearray):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return value


def metrics_and_lines(scores: Mapping[str, object]) -> tuple[JsonObject, list[str]]:
    """Scores as metrics; lines for those that are no finite number."""
    metrics: JsonObject = {}
    lines: list[str] = []
    for name, value in scores.items():
        number = plain_number(value)
        if isinstance(number, float) and math.isfinite(number):
            metrics[f"scores.{name}" if name in RESERVED else str(name)] = number
        else:
            lines.append(f"scores.{name}: {value!r}")
    return metrics, lines
