"""Answers that report their own failure, read where no run reads them."""

from __future__ import annotations

import asyncio

from culmen.core.evaluation import REFUSED, Observation
from culmen.core.task import Task
from culmen.evaluate.backends import SettlingBackend
from culmen.evaluate.function import FunctionBackend

TASK = Task("numbers", goal="be long", seeds=({"text": "abc"}, {"text": ""}))


def judge(text: str) -> dict[str, object]:
    if text:
        return {"score": float(len(text))}
    return {"score": 0.0, "status": "judge_unavailable", "feedback": "start the judge server"}


async def observe_programs() -> list[Observation]:
    backend = SettlingBackend(FunctionBackend(TASK, judge, 1), TASK)
    try:
        await backend.start()
        return [await backend.evaluate(each, None, 0) for each in TASK.initial_candidates()]
    finally:
        await backend.close()


def test_a_zero_with_words_of_failure_is_no_score_and_a_plain_score_is_one() -> None:
    plain, refused = asyncio.run(observe_programs())
    assert (plain.score, plain.ok) == (3.0, True)
    assert refused.score is None and refused.reason == REFUSED
    assert refused.culprit == "provider" and "start the judge server" in refused.feedback
