"""Contrastive sampling for POLCA's Summarizer (Appendix B): per program one success and one failure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from culmen.core.evaluation import Case
from culmen.core.task import Objective
from culmen.memory.quantile import Quantile, quantile

if TYPE_CHECKING:
    from culmen.memory.queue import PriorityQueue
    from culmen.memory.traces import Trace

Tau = float | Quantile | None


def threshold(tau: Tau, objective: Objective, rewards: Sequence[float]) -> float:
    """The reward above which an observation is a success; `rewards` are those seen so far, lowest first.

    A number is a score in the task's own unit and direction. None means 0.5 where scores are declared to lie in 0..1
    and the median otherwise. A quantile that falls on the highest reward seen moves down to the next lower one, so
    that there is something to contrast.
    """
    if tau is None:
        tau = 0.5 if objective.bounds == (0.0, 1.0) else Quantile(0.5)
    if not isinstance(tau, Quantile):
        return objective.reward(tau)
    if not rewards:
        return 0.0
    level = quantile(rewards, tau.q)
    lower = bisect_left(rewards, rewards[-1])  # how many lie below the highest
    return rewards[lower - 1] if level >= rewards[-1] and lower else level


def split(traces: Sequence[Trace], level: float) -> tuple[list[Trace], list[Trace]]:
    """Successes (reward > level) and failures (reward <= level, or no reward at all)."""
    good = [trace for trace in traces if trace.reward is not None and trace.reward > level]
    bad = [trace for trace in traces if trace.reward is None or trace.reward <= level]
    return good, bad


def contrast(
    queue: PriorityQueue, level: float, programs: int, chars: int, cases: Mapping[str, Case], rng: Random
) -> list[dict[str, Any]]:
    """Up to `programs` members, each with one success and one failure drawn at random, about `chars` characters in all.

    A program with only one kind of trajectory gives that one and None for the other. Where the memory holds more
    programs than fit, half of the places go to the best by mean and half are drawn at random from the rest.
    """
    chosen = queue.sample(programs, rng)
    share = chars // max(len(chosen), 1)
    pairs: list[dict[str, Any]] = []
    for row in chosen:
        candidate = queue.candidates[row]
        good, bad = split(queue.traces.of(candidate.id), level)
        pair: dict[str, Any] = queue.statistics.as_dict(candidate.id)
        pair["program"] = clip(candidate.text, share // 2)
        for name, traces in (("success", good), ("failure", bad)):
            pair[name] = _plain(rng.choice(traces), cases, share // 4) if traces else None
        pairs.append(pair)
    return pairs


def clip(text: str, chars: int) -> str:
    """The text, its middle left out if it is longer than `chars`."""
    if len(text) <= chars:
        return text
    head = max(chars - 20, 0) * 2 // 3
    tail = max(chars - 20, 0) - head
    return f"{text[:head]}\n[... left out ...]\n{text[len(text) - tail :]}"


def _plain(trace: Trace, cases: Mapping[str, Case], chars: int) -> dict[str, Any]:
    plain: dict[str, Any] = {"case": trace.case, "reward": trace.reward, "status": trace.status}
    if trace.case in cases:
        plain["input"] = clip(json.dumps(cases[trace.case].input, default=str, ensure_ascii=False), chars // 2)
    plain["feedback"] = clip(trace.feedback, chars // 2)
    return plain
