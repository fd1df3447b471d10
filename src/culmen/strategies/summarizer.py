"""POLCA's Summarizer (Appendix B): contrasted successes and failures in a model's words.

Its output is the guidance c_history.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated

from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.core.task import Objective
from culmen.strategies.memory.priorities import Quantile, interpolated_quantile
from culmen.strategies.settings import About, check

if TYPE_CHECKING:
    from culmen.strategies.memory.queue import PriorityQueue, Trace


@dataclass(frozen=True)
class Summarizer:
    """Requests for summaries to the model behind the role `summarizer`.

    Slots: goal, success (the definition of a success, in words), level (the threshold) and pairs.
    All numbers are scores in the task's own direction.

    A pair is {id, mean score, count, failures, program, success, failure}; success and failure are
    None or {case, score, status, metrics, input, feedback} and the evaluator's texts by name
    (output, conversation, ...).
    """

    programs: Annotated[int, About("programs shown per summary", least=1)] = 10
    chars: Annotated[int, About("characters shown per summary, about", least=1000)] = 16_000
    every: Annotated[
        int, About("new programs for which a summary serves; 0: one for each iteration", least=0)
    ] = 10

    def __post_init__(self) -> None:
        check(self)

    @property
    def price(self) -> str:
        """Cost of one summary, in words."""
        tokens = _token_count_text(self.chars + 1500)
        return f"a summary, one call with up to about {tokens} tokens of prompt"

    @property
    def cost(self) -> str:
        """Cost of summaries and their frequency, in words."""
        return (
            f"{self.price}, "
            f"{f'for every {self.every} new programs' if self.every else 'in every iteration'}"
        )

    async def summarize(self, lab: Lab, queue: PriorityQueue, tau: Tau) -> str:
        """c_history (Algorithm 3, line 3); "" without evaluations or without a usable reply."""
        objective = lab.task.objective
        level = success_threshold(tau, objective, queue.rewards.sorted_values())
        cases = {case.id: case for case in lab.task.cases}
        pairs = contrast_pairs(queue, level, self.programs, self.chars, cases, lab.rng, objective)
        if not pairs:
            return ""
        score = objective.score(level)
        success = f"a score {'above' if objective.direction == 'max' else 'below'} {score:.6g}"
        reply = await lab.write(
            "summarizer", goal=lab.task.goal, level=score, success=success, pairs=pairs
        )
        return extract_guidance(reply.text)


class RunningSummary:
    """Current summary (c_history) of one search, shared by all loops.

    It is written anew after `every` more programs in the memory; until the first `every` it is "".
    """

    def __init__(self, summarizer: Summarizer | None, tau: Tau) -> None:
        self._summarizer, self._tau = summarizer, tau
        self._text, self._size = "", 0

    async def read(self, lab: Lab, queue: PriorityQueue) -> str:
        """The current summary, written anew if it is due, unchanged if the model returned none."""
        rule = self._summarizer
        if rule is None or (rule.every and len(queue) - self._size < rule.every):
            return self._text
        self._size = len(queue)
        self._text = await rule.summarize(lab, queue, self._tau) or self._text
        return self._text


def _token_count_text(chars: int) -> str:
    return f"{round(chars / 3 / 1000):,},000"  # a token is taken as three bytes, as budgets do


def extract_guidance(reply: str) -> str:
    """The text between <summary> tags; without tags, all except the reasoning.

    An unclosed tag runs to the end of the reply.
    """
    match = re.search(r"<summary>(.*?)(?:</summary>|\Z)", reply, re.DOTALL | re.IGNORECASE)
    if match:
        return match[1].strip()
    return re.sub(
        r"<reasoning>.*?(?:</reasoning>|\Z)", "", reply, flags=re.DOTALL | re.IGNORECASE
    ).strip()


Tau = float | Quantile | None


def success_threshold(tau: Tau, objective: Objective, rewards: Sequence[float]) -> float:
    """The reward above which an observation is a success.

    `rewards` are those seen so far, lowest first. A number is a score in the task's own unit and
    direction. None means 0.5 if scores are declared to lie in 0..1 and the median otherwise. A
    quantile that falls on the highest reward seen moves down to the next lower one, so that there
    is a contrast.
    """
    if tau is None:
        tau = 0.5 if objective.bounds == (0.0, 1.0) else Quantile(0.5)
    if not isinstance(tau, Quantile):
        return objective.reward(tau)
    if not rewards:
        return 0.0
    level = interpolated_quantile(rewards, tau.q)
    lower = bisect_left(rewards, rewards[-1])  # number of rewards below the highest
    return rewards[lower - 1] if level >= rewards[-1] and lower else level


def split_by_success(traces: Sequence[Trace], level: float) -> tuple[list[Trace], list[Trace]]:
    """Successes (reward > level) and failures (reward <= level, or no reward at all)."""
    good = [trace for trace in traces if trace.reward is not None and trace.reward > level]
    bad = [trace for trace in traces if trace.reward is None or trace.reward <= level]
    return good, bad


def contrast_pairs(
    queue: PriorityQueue,
    level: float,
    programs: int,
    chars: int,
    cases: Mapping[str, Case],
    rng: Random,
    objective: Objective,
) -> list[JsonObject]:
    """Up to `programs` members with one success and one failure each, drawn at random.

    They have about `chars` characters in all. A program with only one kind of trajectory gives that
    one and None for the other. If the memory holds more programs than fit, half of the places go to
    the best by mean and half are drawn at random from the rest.
    """
    chosen = queue.sample_rows(programs, rng)
    pairs: list[JsonObject] = []
    for row in chosen:
        share = chars // len(chosen)
        candidate = queue.candidates[row]
        good, bad = split_by_success(queue.traces.traces_of(candidate.id), level)
        summary = queue.statistics.entry_summary(candidate.id)
        mean = None if summary.mean is None else objective.score(summary.mean)
        pair: JsonObject = {"id": candidate.id, "mean score": mean, "count": summary.observations}
        pair["failures"] = summary.failures
        pair["program"] = shorten_middle(candidate.text, share // 2)
        for name, traces in (("success", good), ("failure", bad)):
            pair[name] = (
                _trace_data(rng.choice(traces), cases, share // 4, objective) if traces else None
            )
        pairs.append(pair)
    return pairs


def shorten_middle(text: str, chars: int) -> str:
    """The text, its middle left out if it is longer than `chars`."""
    if len(text) <= chars:
        return text
    kept_chars = max(chars - 20, 0)
    head = kept_chars * 2 // 3
    tail = kept_chars - head
    return f"{text[:head]}\n[... left out ...]\n{text[len(text) - tail :]}"


def _trace_data(
    trace: Trace, cases: Mapping[str, Case], chars: int, objective: Objective
) -> JsonObject:
    score = None if trace.reward is None else objective.score(trace.reward)
    plain: JsonObject = {"case": trace.case, "score": score, "status": trace.status}
    share = chars // (2 + len(trace.texts))
    if trace.metrics:
        plain["metrics"] = dict(sorted(trace.metrics.items())[:12])  # shown of one observation
    if trace.case in cases:
        plain["input"] = shorten_middle(
            json.dumps(cases[trace.case].input, default=str, ensure_ascii=False), share
        )
    plain |= {name: shorten_middle(text, share) for name, text in trace.texts}
    plain["feedback"] = shorten_middle(trace.feedback, share)
    return plain
