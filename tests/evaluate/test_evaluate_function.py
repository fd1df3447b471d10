"""Python callables as evaluators."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.function import FunctionBackend, takes_case
from culmen.evaluate.jail.scorer import Invalid

TASK = Task("f", evaluator=Evaluator(form="function"), limits=Limits(seconds=1.5, memory_mb=512, processes=16))


@pytest.fixture
def call() -> Iterator[Callable[..., list[Observation]]]:
    with asyncio.Runner() as runner:

        def run(fn: Callable[..., Any], *texts: str | dict[str, str], case: Case | None = None) -> list[Observation]:
            async def work() -> list[Observation]:
                backend = FunctionBackend(TASK, fn, 2)
                assert await backend.start() == "limits"
                try:
                    candidates = [Candidate.of({"text": t} if isinstance(t, str) else t) for t in texts]
                    return list(await asyncio.gather(*(backend.evaluate(c, case, 3) for c in candidates)))
                finally:
                    await backend.close()

            return runner.run(work())

        yield run


def test_results_of_every_shape(call: Callable[..., list[Observation]]) -> None:
    shapes = {
        "number": 2,
        "pair": (3.0, {"feedback": "good", "size": 7, "note": "x"}),
        "text": (4.0, "fine"),
        "dict": {"score": 5.0, "loss": 0.5},
        "combined": {"combined_score": 6.0, "artifacts": {"plot": "..."}},
    }
    number, pair, text, plain, combined = call(lambda name: shapes[name], *shapes)
    assert [o.score for o in (number, pair, text, plain, combined)] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert pair.metrics == {"size": 7.0} and pair.feedback == "good\nnote: x"
    assert text.feedback == "fine" and plain.metrics == {"loss": 0.5} and combined.artifacts == {"plot": "..."}
    assert not number.verified


def test_closures_cases_and_parts(call: Callable[..., list[Observation]]) -> None:
    factor = [10]

    def fn(candidate: Any, case: Case) -> float:
        return factor[0] * (len(candidate) + case.info)

    (observation,) = call(fn, {"a": "x", "b": "y"}, case=Case("1", None, info=3))
    assert (observation.score, observation.case) == (50.0, "1")


def test_failures_end_one_evaluation_only(call: Callable[..., list[Observation]]) -> None:
    def fn(text: str) -> Any:
        if text == "hang":
            while True:
                pass
        if text == "die":
            os._exit(1)
        if text == "hoard":
            return len(bytearray(1 << 33))
        if text == "refuse":
            raise Invalid("not this one")
        return {"nan": float("nan"), "word": "high", "flag": True, "none": None}.get(text, 1 / (len(text) - 5))

    names = ["hang", "die", "hoard", "refuse", "nan", "word", "flag", "none", "raise", "fine 1"]
    observations = call(fn, *names)
    assert [o.reason for o in observations] == [
        "timeout", "no_output", "memory_limit", "invalid", "score_nan", "score_not_a_number", "score_not_a_number",
        "score_missing", "exception", "",
    ]  # fmt: skip
    assert observations[-1].score == 1.0 and "ZeroDivisionError" in observations[-2].feedback


def test_coroutine_functions_and_prints(call: Callable[..., list[Observation]]) -> None:
    async def fn(text: str) -> float:
        await asyncio.sleep(0)
        print("seen", text)
        return 1.0

    (observation,) = call(fn, "a")
    assert observation.score == 1.0 and observation.artifacts == {"log": "seen a\n"}


def test_descriptors_of_the_process_stay_closed(call: Callable[..., list[Observation]]) -> None:
    read, write = os.pipe()
    try:
        (observation,) = call(lambda text: (1.0, str(sorted(map(int, os.listdir("/proc/self/fd"))))), "a")
        assert observation.feedback == "[0, 1, 2, 3, 4]"  # 4 is the listing itself
    finally:
        os.close(read)
        os.close(write)


def test_no_stronger_level_can_be_required() -> None:
    with pytest.raises(IsolationError):
        asyncio.run(FunctionBackend(TASK, len, 1, "restricted").start())


def test_which_functions_take_a_case() -> None:
    assert takes_case(lambda a, b: 0) and takes_case(lambda a, case=None: 0) and takes_case(lambda a, example=None: 0)
    assert (
        not takes_case(lambda a: 0)
        and not takes_case(lambda a, verbose=False: 0)
        and not takes_case(lambda a, *, b=1: 0)
    )
    assert Status.OK == "ok"
