"""Past evaluations of a search: found again by content, and added to requests to models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import ne
from typing import Any, TypeVar

import msgspec

from culmen.core.brief import UNREAD, Attempt, Brief, Exhibit, Measured, Proposal
from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import Observation, is_excused
from culmen.core.event import Effect, EvaluateRequest, request_mark
from culmen.core.ports import ObservationStore
from culmen.core.task import Task
from culmen.engine.loop import Future
from culmen.evidence.account import Account
from culmen.evidence.intervals import chance_margin, t_quantile_95

V = TypeVar("V")


class EvaluationCache:
    """Results of evaluations that need not be made twice, found by their request.

    `futures` holds those of unfinished effects, by key.
    """

    def __init__(
        self, task: Task, observations: ObservationStore, futures: Mapping[int, Future[Any]]
    ) -> None:
        self._is_evaluated_once, self._observations, self._futures = (
            task.is_evaluated_once,
            observations,
            futures,
        )
        self._seeds = {candidate.id: candidate for candidate in task.starting_candidates()}
        # keys of the evaluations that need not be made twice, by mark
        self._keys: dict[int, int] = {}

    @property
    def keys(self) -> dict[int, int]:
        """Keys of the evaluations that need not be made twice, by mark."""
        return self._keys

    def restore_keys(self, keys: dict[int, int]) -> None:
        """Take the keys of a checkpoint."""
        self._keys = keys

    def record_request(self, effect: Effect) -> None:
        """Record that this effect was requested."""
        if self._is_evaluated_once and isinstance(effect.request, EvaluateRequest):
            self._keys[key_of(effect.mark)] = effect.key

    def record_delivery(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Record that this evaluation finished."""
        self._observations.keep(mark, candidate, observation)

    def remembered_future(self, request: EvaluateRequest) -> Future[Observation] | None:
        """The future of an evaluation that need not be made twice, else None."""
        asked = request_mark(request)
        key = self._keys.get(key_of(asked))
        if key is None or key in self._futures:
            return None if key is None else self._futures[key]
        future = Future[Observation]()
        future.resolve(self._observations.observation(request.candidate.id, asked))
        return future

    def recall_candidate(self, id: str) -> Candidate:
        """The evaluated candidate with this id."""
        return self._seeds.get(id) or self._observations.candidate(id)


class MemoryStore:
    """An observation store in memory, for runs without a journal (simulation, rehearsal)."""

    def __init__(self) -> None:
        self._candidates: dict[str, Candidate] = {}
        self._observations: dict[str, Observation] = {}

    def keep(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Record that an evaluation with this mark was delivered."""
        self._candidates.setdefault(candidate.id, candidate)
        self._observations.setdefault(mark, observation)

    def candidate(self, id: str) -> Candidate:
        """The candidate with this id."""
        return self._candidates[id]

    def observation(self, candidate: str, mark: str) -> Observation:
        """The first observation under this mark."""
        return self._observations[mark]


# Knowledge of candidates for new requests: the precision of each mean reward, and the earlier
# attempts on each.
#
# Fed in journal order, so that a resumed or replayed search asks with the same words. Bounded:
# old entries are forgotten, except a mean and its count.

SHOWN = 6  # attempts shown of one parent
_KEPT = 20_000  # parents, failures and metrics remembered
_WORDS = 240  # characters of an attempt's description


class PromptHistory:
    """Completes briefs with past results: fed every observation and every answer of a model."""

    def __init__(self, task: Task, record: Account) -> None:
        self._task, self._record = task, record
        # of a parent: (child's id or "", its description)
        self._attempts: dict[int, tuple[tuple[str, str], ...]] = {}
        self._faults: dict[int, str] = {}
        self._metrics: dict[int, dict[str, float]] = {}
        self._unread: dict[str, str] = {}  # of a role's latest answer: why it could not be read

    def add_observation(self, candidate: Candidate, observation: Observation) -> None:
        """Enter one evaluation; a failure that is not the candidate's fault is left out."""
        if is_excused(observation):
            return
        if observation.ok:
            numbers = [(name, x) for name, x in observation.metrics.items() if math.isfinite(x)]
            # numbers shown of an inspiration
            _put_bounded(self._metrics, key_of(candidate.id), dict(numbers[:12]))
        else:
            _put_bounded(self._faults, key_of(candidate.id), describe_failure(observation))

    def add_answer(self, brief: Brief, answer: Proposal) -> None:
        """Enter a model's answer: its candidates are attempts on the brief's parent.

        A change that gave no candidate is one, too. The next request of its role gives the
        reason why a reply could not be read.
        """
        self._unread[brief.role] = answer.detail
        if brief.parent is None:
            return
        fresh = [
            (child.id, describe_change(brief.parent, child, answer)) for child in answer.candidates
        ]
        if not fresh and answer.fault in _VAIN:
            fresh = [
                ("", f"{_single_line(answer.hypothesis, _WORDS)} ({_VAIN[answer.fault]})".strip())
            ]
        if fresh:
            key, again = key_of(brief.parent.id), {child for child, _ in fresh if child}
            before = (each for each in self._attempts.pop(key, ()) if each[0] not in again)
            _put_bounded(self._attempts, key, (*before, *fresh)[-SHOWN:])

    def complete_brief(self, brief: Brief) -> Brief:
        """The brief, completed by past results of its parent and its inspirations."""
        exhibits = tuple(self._complete_exhibit(exhibit) for exhibit in brief.inspirations)
        detail = self._unread.get(brief.role, "")
        unread = (Attempt(detail, fault=UNREAD),) if detail else ()
        if brief.parent is None:
            return msgspec.structs.replace(brief, inspirations=exhibits, attempts=unread)
        reward, measured = self._mean_and_precision(brief.parent.id, brief.reward, brief.measured)
        attempts = tuple(
            self._build_attempt(*each) for each in self._attempts.get(key_of(brief.parent.id), ())
        )
        return msgspec.structs.replace(
            brief,
            reward=reward,
            measured=measured,
            attempts=(*attempts, *unread),
            inspirations=exhibits,
        )

    def _complete_exhibit(self, exhibit: Exhibit) -> Exhibit:
        reward, measured = self._mean_and_precision(
            exhibit.candidate.id, exhibit.reward, exhibit.measured
        )
        metrics = exhibit.metrics or self._metrics.get(key_of(exhibit.candidate.id), {})
        return msgspec.structs.replace(exhibit, reward=reward, measured=measured, metrics=metrics)

    def _build_attempt(self, child: str, what: str) -> Attempt:
        if not child:
            return Attempt(what, fault="no candidate")
        reward, measured = self._mean_and_precision(child, None, _UNSAID)
        failed = measured.failures and (reward is None or measured.failures > 1)
        return Attempt(
            what, reward, measured, self._faults.get(key_of(child), "") if failed else ""
        )

    def _mean_and_precision(
        self, id: str, otherwise: float | None, known: Measured
    ) -> tuple[float | None, Measured]:
        """Mean reward over all evaluations with a score, and its precision.

        A strategy that stated the precision of its own number keeps it, unless chance decides
        between pass and fail: then the interval is never narrower than that of this many trials.
        """
        reward, measured = self._stated_precision(id, otherwise, known)
        if reward is None:
            return reward, measured
        least = chance_margin(self._record, reward, measured.count)
        margin = max(least, measured.margin or 0.0) or measured.margin
        return reward, msgspec.structs.replace(measured, margin=margin)

    def _stated_precision(
        self, id: str, otherwise: float | None, known: Measured
    ) -> tuple[float | None, Measured]:
        if known is not _UNSAID and known != _UNSAID:
            return otherwise, known
        counts = self._record.outcome_summary(id)
        if counts is None:
            return otherwise, _UNSAID
        count, failures, mean = counts
        if not count:
            return otherwise, Measured(0, failures)
        return mean, Measured(count, failures, self._pooled_margin(count))

    def _pooled_margin(self, count: int) -> float | None:
        """Half width of the interval, from the spread within candidates, pooled over all of them.

        Two evaluations of one candidate are too few.
        """
        if self._task.is_evaluated_once and count >= len(self._task.split("train")):
            return 0.0
        degrees, squares = self._record.degrees, self._record.squares
        if not degrees:
            return None
        return t_quantile_95(degrees) * math.sqrt(max(squares, 0.0) / degrees / count)


_UNSAID = Measured()
_VAIN = {
    "diff_mismatch": "the edits did not fit the text",
    "outside_blocks": "the change lay outside what may be edited",
    "too_long": "the text became too long",
    "unreadable": "the reply could not be read",
    "unchanged": "nothing was changed",
    "duplicate": "a candidate that is known already",
}


def describe_change(parent: Candidate, child: Candidate, answer: Proposal) -> str:
    """A child's change, in the author's words, else by the lines added and removed."""
    description = child.origin.note or (answer.hypothesis if len(answer.candidates) == 1 else "")
    return _single_line(description, _WORDS) or _describe_diff(parent.text, child.text)


def describe_failure(observation: Observation) -> str:
    """The reason that an evaluation gave no score, in a line.

    Status, reason, and the last line of its feedback.
    """
    lines = [line for line in observation.feedback.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return _single_line(
        " ".join(
            filter(
                None,
                (observation.status.value, observation.reason and f"({observation.reason})", last),
            )
        ),
        160,  # characters of the reason of its failure
    )


def _describe_diff(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    begin = _common_prefix_length(
        old, new
    )  # lines alike at both ends, mostly nearly all: they cancel out
    were, are = old[begin:], new[begin:]
    if end := _common_prefix_length(were[::-1], are[::-1]):
        were, are = were[:-end], are[:-end]
    gone, come = _surplus_lines(were, are), _surplus_lines(are, were)
    first = _first_three_lines(new, come) or _first_three_lines(old, gone)
    counts = [sum(map(int, lines.values())) for lines in (come, gone)]
    return _single_line("{} lines in, {} out: {}".format(*counts, "; ".join(first)), _WORDS)


def _common_prefix_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Number of equal lines at the beginning."""
    return [*map(ne, old, new), True].index(True)


def _surplus_lines(lines: Sequence[str], others: Sequence[str]) -> dict[str, int]:
    """Occurrences of each line beyond those among the others."""
    left: dict[str, int] = {}
    for line in lines:
        left[line] = left.get(line, 0) + 1
    for line in others:
        if line in left:
            left[line] -= 1
    return {line: times for line, times in left.items() if times > 0}


def _first_three_lines(lines: Sequence[str], among: Mapping[str, int]) -> list[str]:
    """The first three of these lines that are not blank."""
    return [line.strip() for line in lines if line in among and line.strip()][:3] if among else []


def _single_line(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def _put_bounded(table: dict[int, V], key: int, value: V) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > _KEPT:
        del table[next(iter(table))]
