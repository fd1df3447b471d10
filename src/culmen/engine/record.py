"""Score statistics of every candidate, for the final choice, and lookup of past evaluations.

Candidates are ranked by the posterior mean of the value model (`evidence.pedigree`), which knows relatives, cases and
noise, so one lucky sample never wins. Searches too long for it are ranked by a shrunken mean (empirical Bayes,
normal-normal): a mean over few noisy observations is pulled towards the mean of all candidates.
"""

from __future__ import annotations

import heapq
import math
import struct
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

import msgspec

from culmen.core.brief import Attempt, Brief, Exhibit, Measured, Proposal
from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import LEVELS, Observation, Status, weakest
from culmen.core.event import Effect, EvaluateRequest, mark
from culmen.core.ports import ObservationStore
from culmen.core.task import Task
from culmen.engine.loop import Future
from culmen.evidence.pedigree import ValueModel
from culmen.memory.front import FrontModel

_ROW = struct.Struct("<QIIdddBB")  # id, count, failures, mean, m2, certified (NaN: none), flags, trust
_COUNTS = struct.Struct("<8xIId")  # of these count, failures, mean
_EMPTY = bytes(_ROW.size)
_REFUSED, _BARRED = 1, 2
_TRUST: tuple[str, ...] = ("", *LEVELS)
LOOKS = 3  # equal repeats after which scores are taken for exact
_MODELLED = 50_000  # evaluations up to which the value model is made
_PAIRS = 50_000  # candidates with cases whose repeats are watched, to tell noise from cases


@dataclass(slots=True)
class CandidateTally:
    """Rewards of one candidate at one moment: count, mean, sum of squared deviations (Welford), failures."""

    id: str
    order: int
    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    failures: int = 0
    certified: float | None = None  # the worst reward that the verifier certified
    refused: bool = False  # the verifier was asked and did not accept an output
    barred: bool = False  # rejected for its integrity
    trust: str = ""  # of the weakest observation

    def add(self, reward: float) -> None:
        """One more scored observation."""
        self.count += 1
        delta = reward - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (reward - self.mean)

    def vouch(self, certified: float | None) -> None:
        """Count one answer of the verifier; None: not accepted."""
        self.refused = self.refused or certified is None
        if certified is not None:
            self.certified = certified if self.certified is None else min(self.certified, certified)


@dataclass(slots=True)
class RewardNoise:
    """Variance within candidates, over all cases (None: cannot tell), mean and variance of the candidates' true
    rewards, and the least reward seen.

    `repeats` and `squares` are degrees of freedom and sum of squares of repeated evaluations of one candidate on one
    case: what is noise and nothing else. `failing` is the variance that failures of candidates which also scored add to
    one evaluation, and `failed` the share of evaluations that are such failures.
    """

    within: float | None
    centre: float
    between: float
    least: float = 0.0
    repeats: int = 0
    squares: float = 0.0
    failing: float = 0.0
    failed: float = 0.0


class Scoreboard:
    """All tallies of a search, fed in journal order: a packed row of 42 bytes for each candidate, and where it stands;
    of the first `_MODELLED` evaluations 16 bytes each, for the value model.

    What the final choice evaluates is no part of it: that may be of other cases, and must stay apart from the search.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.evaluations = 0
        self.slowest = 0.0  # seconds of the longest evaluation that gave a score
        self.degrees, self.squares = 0, 0.0  # of the spread of rewards within candidates, pooled
        self.top: float | None = None  # the highest reward of a single evaluation
        goals = task.objective
        self.front = FrontModel(goals.metrics, goals.constraints, task.deterministic) if goals.metrics else None
        self.flaky = False  # without cases: a candidate failed one time and scored another
        self._places: dict[int, int] = {}
        self._rows = bytearray()
        self._least = math.inf
        self._pairs: dict[tuple[int, str], tuple[int, float]] = {}  # by candidate and case: rewards, their mean
        self._repeats, self._squares = 0, 0.0
        self._parents, self._who, self._where = array("q"), array("l"), array("l")
        self._rewards = array("d")  # nan: failed
        self._cases: dict[str, int] = {}
        self._model: tuple[int, ValueModel] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def tally(self, candidate: str) -> CandidateTally | None:
        """Statistics of the candidate with this id; None if there are none."""
        place = self._places.get(key_of(candidate))
        return None if place is None else _tally(place, _ROW.unpack_from(self._rows, place * _ROW.size))

    def counts(self, candidate: str) -> tuple[int, int, float] | None:
        """Scores of the candidate with this id, its failures and the mean of its rewards; None if there are none."""
        place = self._places.get(key_of(candidate))
        return None if place is None else _COUNTS.unpack_from(self._rows, place * _ROW.size)

    def tallies(self) -> Iterator[CandidateTally]:
        """Statistics of each candidate, in the order of their first evaluation."""
        return (_tally(place, row) for place, row in enumerate(self._known()))

    def see(self, candidate: Candidate, observation: Observation) -> None:
        """Count one observation; lost ones count for nothing."""
        if observation.status is Status.LOST:
            return
        self.evaluations += 1
        if self.front is not None:
            self.front.observe(candidate, observation)
        tally = self.tally(candidate.id) or self._enter(candidate)
        tally.barred = tally.barred or observation.barred
        reward = self.task.reward(observation)
        self._keep(tally.order, observation.case, reward)
        if reward is not None and observation.strict is not None:
            tally.vouch(None if observation.certified is None else self.task.worth(observation))
        if reward is None:
            tally.failures += 1
        else:
            self.slowest = max(self.slowest, observation.seconds)
            before = tally.m2
            tally.add(reward)
            self.degrees, self.squares = self.degrees + (tally.count > 1), self.squares + tally.m2 - before
            self._least, self.top = min(self._least, reward), reward if self.top is None else max(self.top, reward)
            self._pair(tally.order, observation.case, reward)
            if observation.trust != tally.trust or not tally.trust:
                tally.trust = weakest((observation.trust, tally.trust) if tally.trust else (observation.trust,))
        self.flaky = self.flaky or bool(tally.count and tally.failures and not self.task.cases)
        _ROW.pack_into(self._rows, tally.order * _ROW.size, *_row(tally))

    def bar(self, candidate: str) -> None:
        """A finalist was rejected for its integrity: it can never be the best."""
        tally = self.tally(candidate)
        if tally is not None:
            tally.barred = True
            if self.front is not None:
                self.front.bar(candidate)
            _ROW.pack_into(self._rows, tally.order * _ROW.size, *_row(tally))

    @property
    def exact(self) -> bool:
        """Whether repeats were made, never differed and never failed in part, on a task without cases."""
        return self.degrees >= LOOKS and not (self.squares or self.flaky or self.task.cases)

    def noise(self) -> RewardNoise:
        """Pooled within-candidate variance, and the spread between candidates that remains after it."""
        number = degrees = 0
        means = squares = shares = 0.0
        failures = 0
        for _, count, failed, mean, m2, *_ in self._known():
            if count:
                failures += failed
                number, degrees = number + 1, degrees + count - 1
                means, squares, shares = means + mean, squares + m2, shares + 1 / count
        within = squares / degrees if degrees else (0.0 if self.task.deterministic else None)
        if not number:
            return RewardNoise(within, 0.0, 0.0)
        repeats = (self._repeats, self._squares) if self.task.cases else (degrees, squares)
        centre = means / number
        spread = sum((mean - centre) ** 2 for _, count, _, mean, *_ in self._known() if count) / max(1, number - 1)
        sampling = (within or 0.0) * shares / number
        found = RewardNoise(within, centre, max(spread - sampling, spread * 0.05), self._least, *repeats)
        found.failed = share = failures / (failures + degrees + 2)
        found.failing = share * (1 - share) * (centre - self.floor(found)) ** 2 if failures else 0.0
        return found

    def ranking(self, most: int, among: Collection[str] | None = None) -> list[CandidateTally]:
        """The best `most` of the candidates (or of those `among` them) that ever scored: best first by certified value
        where there is one, else by posterior mean.

        Those whose output a verifier did not accept come last; fewer failures, then age, break ties. None that was
        rejected for its integrity is among them.
        """
        noise = self.noise()
        scored = (t for t in self.tallies() if t.count and not t.barred and (among is None or t.id in among))
        return heapq.nsmallest(most, scored, key=lambda t: (t.refused, -self.belief(t, noise)[0], t.failures, t.order))

    def floor(self, noise: RewardNoise) -> float:
        """What a failed evaluation counts as: the lowest reward there is, declared, else seen."""
        declared = self.task.objective.floor
        return noise.least if declared is None else declared

    def belief(self, tally: CandidateTally, noise: RewardNoise) -> tuple[float, float]:
        """Posterior mean of the candidate's reward, failures at the floor, and the variance of this estimate."""
        model = self.model()
        if model is not None and tally.certified is None and tally.count:
            value = model.value(tally.id)
            if math.isfinite(value.mean):
                return value.mean, value.sd**2
        variance = noise.between
        if noise.within:
            variance = 1 / (1 / noise.between + tally.count / noise.within) if noise.between > 0 else 0.0
        return self._judged(tally, noise), variance if noise.within != 0 else 0.0

    def _pair(self, place: int, case: str, reward: float) -> None:
        """Note a repeat of one candidate on one case; pairs beyond the first `_PAIRS` are not watched."""
        seen = self._pairs.get((place, case))
        if not case or (seen is None and len(self._pairs) >= _PAIRS):
            return
        count, mean = seen or (0, 0.0)
        self._repeats += count > 0
        self._squares += (reward - mean) ** 2 * count / (count + 1)
        self._pairs[place, case] = count + 1, mean + (reward - mean) / (count + 1)

    def _known(self) -> Iterator[Any]:
        """A snapshot of the rows."""
        return _ROW.iter_unpack(bytes(self._rows))

    def _enter(self, candidate: Candidate) -> CandidateTally:
        tally = CandidateTally(candidate.id, len(self._places))
        above = -1
        for parent in candidate.parents:
            if (above := self._places.get(key_of(parent), -1)) >= 0:
                break
        self._parents.append(above)
        self._places[key_of(candidate.id)] = tally.order
        self._rows += _EMPTY
        return tally

    def _keep(self, place: int, case: str, reward: float | None) -> None:
        """Keep one evaluation for the value model."""
        if len(self._who) <= _MODELLED:
            self._who.append(place)
            self._where.append(self._cases.setdefault(case, len(self._cases)))
            self._rewards.append(math.nan if reward is None else reward)

    def model(self) -> ValueModel | None:
        """The value model of the search so far; None where it would tell nothing more (scores are exact and there is
        one case at most), or the search is too long for it."""
        if len(self._who) > _MODELLED:
            return None
        if self._model is None or self._model[0] != self.evaluations:
            self._model = self.evaluations, self._modelled()
        found = self._model[1]
        return None if found.noiseless else found

    def _modelled(self) -> ValueModel:
        model = ValueModel(self.task.objective.floor, self.task.deterministic)
        names, cases = [f"{row[0]:012x}" for row in self._known()], list(self._cases)
        for name, parent in zip(names, self._parents):
            model.add(name, () if parent < 0 else (names[parent],))
        for place, case, reward in zip(self._who, self._where, self._rewards):
            model.observe(names[place], None if math.isnan(reward) else reward, cases[case])
        return model

    def _judged(self, tally: CandidateTally, noise: RewardNoise) -> float:
        value = tally.mean if tally.certified is None else tally.certified
        if tally.certified is None and noise.within and noise.between > 0:
            weight = noise.between / (noise.between + noise.within / tally.count)
            value = noise.centre + weight * (tally.mean - noise.centre)
        if not tally.failures:
            return value
        floor = self.floor(noise)
        share = tally.failures / (tally.failures + tally.count)
        return value + share * (min(floor, value) - value)


def _row(tally: CandidateTally) -> tuple[int | float, ...]:
    certified = math.nan if tally.certified is None else tally.certified
    flags = _REFUSED * tally.refused + _BARRED * tally.barred
    trust, name = _TRUST.index(tally.trust), key_of(tally.id)
    return name, tally.count, tally.failures, tally.mean, tally.m2, certified, flags, trust


def _tally(order: int, row: tuple[Any, ...]) -> CandidateTally:
    name, count, failures, mean, m2, certified, flags, trust = row
    vouched = None if math.isnan(certified) else certified
    refused, barred = bool(flags & _REFUSED), bool(flags & _BARRED)
    return CandidateTally(
        f"{name:012x}", order, count, mean, m2, failures, vouched, refused, barred, _TRUST[int(trust)]
    )


class Memo:
    """Finds past evaluations. `futures` holds those of unfinished effects, by key."""

    def __init__(self, task: Task, observations: ObservationStore, futures: Mapping[int, Future[Any]]) -> None:
        self._deterministic, self._observations, self._futures = task.deterministic, observations, futures
        self._seeds = {candidate.id: candidate for candidate in task.candidates()}
        self._keys: dict[int, int] = {}  # of the evaluations that need not be made twice, by mark

    def issued(self, effect: Effect) -> None:
        """Record that this effect was requested."""
        if self._deterministic and isinstance(effect.request, EvaluateRequest):
            self._keys[key_of(effect.mark)] = effect.key

    def delivered(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Record that this evaluation finished."""
        self._observations.keep(mark, candidate, observation)

    def future(self, request: EvaluateRequest) -> Future[Any] | None:
        """The future of a deterministic evaluation that was requested before, else None."""
        asked = mark(request)
        key = self._keys.get(key_of(asked))
        if key is None or key in self._futures:
            return None if key is None else self._futures[key]
        future = Future[Any]()
        future.resolve(self._observations.observation(request.candidate.id, asked))
        return future

    def find(self, id: str) -> Candidate:
        """A candidate that was evaluated."""
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


# What a search knows of its candidates when it asks for more: how well each is measured, and what was tried on it.
#
# Fed in journal order, so that a resumed or replayed search asks with the same words. Bounded: what was met long ago is
# forgotten, a mean and its count excepted.

SHOWN = 6  # attempts told of one parent
_KEPT = 20_000  # parents, failures and metrics remembered
_WORDS = 240  # characters of what an attempt was
_REASON = 160  # characters of why it failed
_METRICS = 12  # numbers told of an inspiration

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 97.5 % of Student's t, 1 to 10 degrees of freedom


class Past:
    """Fills briefs with what is known (`informed`); `seen` and `asked` are told of every result."""

    def __init__(self, task: Task, record: Scoreboard) -> None:
        self._task, self._record = task, record
        self._attempts: dict[int, tuple[tuple[str, str], ...]] = {}  # of a parent: (child's id or "", what it was)
        self._faults: dict[int, str] = {}
        self._metrics: dict[int, dict[str, float]] = {}

    def seen(self, candidate: Candidate, observation: Observation) -> None:
        """One evaluation; a lost one says nothing."""
        if observation.status is Status.LOST:
            return
        if observation.ok:
            numbers = [(name, x) for name, x in observation.metrics.items() if math.isfinite(x)]
            _keep(self._metrics, key_of(candidate.id), dict(numbers[:_METRICS]))
        else:
            _keep(self._faults, key_of(candidate.id), reason(observation))

    def asked(self, brief: Brief, answer: Proposal) -> None:
        """A model's answer: its candidates are attempts on the brief's parent, and so is a change that came to none."""
        if brief.parent is None:
            return
        fresh = [(child.id, change(brief.parent, child, answer)) for child in answer.candidates]
        if not fresh and answer.fault in _VAIN:
            fresh = [("", f"{_line(answer.hypothesis, _WORDS)} ({_VAIN[answer.fault]})".strip())]
        if fresh:
            key, again = key_of(brief.parent.id), {child for child, _ in fresh if child}
            before = (each for each in self._attempts.pop(key, ()) if each[0] not in again)
            _keep(self._attempts, key, (*before, *fresh)[-SHOWN:])

    def informed(self, brief: Brief) -> Brief:
        """The brief with what is known of its parent and its inspirations."""
        exhibits = tuple(self._exhibit(exhibit) for exhibit in brief.inspirations)
        if brief.parent is None:
            return msgspec.structs.replace(brief, inspirations=exhibits)
        reward, measured = self._measured(brief.parent.id, brief.reward, brief.measured)
        attempts = tuple(self._attempt(*each) for each in self._attempts.get(key_of(brief.parent.id), ()))
        return msgspec.structs.replace(
            brief, reward=reward, measured=measured, attempts=attempts, inspirations=exhibits
        )

    def _exhibit(self, exhibit: Exhibit) -> Exhibit:
        reward, measured = self._measured(exhibit.candidate.id, exhibit.reward, exhibit.measured)
        metrics = exhibit.metrics or self._metrics.get(key_of(exhibit.candidate.id), {})
        return msgspec.structs.replace(exhibit, reward=reward, measured=measured, metrics=metrics)

    def _attempt(self, child: str, what: str) -> Attempt:
        if not child:
            return Attempt(what, fault="no candidate")
        reward, measured = self._measured(child, None, _UNSAID)
        failed = measured.failures and (reward is None or measured.failures > 1)
        return Attempt(what, reward, measured, self._faults.get(key_of(child), "") if failed else "")

    def _measured(self, id: str, otherwise: float | None, known: Measured) -> tuple[float | None, Measured]:
        """Mean reward over all evaluations with a score, and how well it is known; a strategy that has said how well
        it knows its own number keeps it."""
        if known is not _UNSAID and known != _UNSAID:
            return otherwise, known
        counts = self._record.counts(id)
        if counts is None:
            return otherwise, _UNSAID
        count, failures, mean = counts
        if not count:
            return otherwise, Measured(0, failures)
        return mean, Measured(count, failures, self._margin(count))

    def _margin(self, count: int) -> float | None:
        """From the spread within candidates, pooled over all of them: two evaluations of one say too little."""
        if self._task.deterministic and count >= len(self._task.split("train")):
            return 0.0
        degrees, squares = self._record.degrees, self._record.squares
        if not degrees:
            return None
        quantile = _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.4 / degrees
        return quantile * math.sqrt(max(squares, 0.0) / degrees / count)


_UNSAID = Measured()
_VAIN = {
    "diff_mismatch": "the edits did not fit the text",
    "outside_blocks": "the change lay outside what may be edited",
    "too_long": "the text became too long",
    "unchanged": "nothing was changed",
    "duplicate": "a candidate that is known already",
}


def change(parent: Candidate, child: Candidate, answer: Proposal) -> str:
    """What a child changes, in the words that came with it, else by the lines that came and went."""
    said = child.origin.note or (answer.hypothesis if len(answer.candidates) == 1 else "")
    return _line(said, _WORDS) or _lines(parent.text, child.text)


def reason(observation: Observation) -> str:
    """Why an evaluation gave no score, in a line: status, reason, and the last line of its feedback."""
    lines = [line for line in observation.feedback.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return _line(
        " ".join(filter(None, (observation.status.value, observation.reason and f"({observation.reason})", last))),
        _REASON,
    )


def _lines(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    begin = _alike(old, new)  # lines alike at both ends, mostly nearly all: they cancel out
    were, are = old[begin:], new[begin:]
    if end := _alike(were[::-1], are[::-1]):
        were, are = were[:-end], are[:-end]
    gone, come = _surplus(were, are), _surplus(are, were)
    first = _three(new, come) or _three(old, gone)
    return _line(f"{sum(come.values())} lines in, {sum(gone.values())} out: {'; '.join(first)}", _WORDS)


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are the same from the first one on."""
    return [*map(ne, old, new), True].index(True)


def _surplus(lines: Sequence[str], others: Sequence[str]) -> dict[str, int]:
    """How often each line is there beyond its times among the others."""
    left: dict[str, int] = {}
    for line in lines:
        left[line] = left.get(line, 0) + 1
    for line in others:
        if line in left:
            left[line] -= 1
    return {line: times for line, times in left.items() if times > 0}


def _three(lines: Sequence[str], among: Mapping[str, int]) -> list[str]:
    """The first three of these lines that are not blank."""
    return [line.strip() for line in lines if line in among and line.strip()][:3] if among else []


def _line(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def _keep(where: dict[int, Any], key: int, value: Sequence[Any] | dict[str, float] | str) -> None:
    where.pop(key, None)
    where[key] = value
    if len(where) > _KEPT:
        del where[next(iter(where))]
