"""Account of a run: the observations of every candidate, as sufficient statistics.

Fed one finished evaluation at a time, in journal order, by the engine while a run lives and by
readers from its journal afterwards; both get the same numbers. Evaluations of the final choice are
kept apart from the search: `choice` evaluations helped to choose, `final` ones did not.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import CULPRITS, LEVELS, Observation, Status, culprit_of, weakest_trust
from culmen.core.result import MODELLED
from culmen.core.spread import spread_of, sum_floats
from culmen.core.task import Task
from culmen.evidence.failures import CulpritJudge, FailureRates
from culmen.evidence.noise import DriftWatch, NoiseLaw
from culmen.evidence.pedigree import StepLaw, ValueModel

Floats = NDArray[np.float64]

SEARCH, CHOICE, FINAL = "", "choice", "final"
"""Purposes of an evaluation: phases, in the journal's words."""

# pairs of candidate and case whose repeats are watched, to separate noise from cases
_PAIRS = 50_000
_VALUES = 1_000  # distinct scores counted, to recognise few-valued scores
_TRUST: tuple[str, ...] = ("", *LEVELS)
_ROW = np.dtype(
    [
        ("key", "<u8"),
        ("count", "<u4"),
        ("failures", "<u4"),
        ("early", "<u4"),  # of the failures, those before the first score
        ("mean", "<f8"),
        ("squares", "<f8"),
        ("certified", "<f8"),  # nan: none
        ("refused", "?"),
        ("repaired", "?"),
        ("barred", "?"),
        ("trust", "u1"),
        ("size", "<u4"),
    ]
)
_ROOM = 64  # rows that an account begins with


Sizes = Callable[[list[str]], list[int]]
"""Lengths of candidates in characters, by id."""


class Fact(NamedTuple):
    """One finished evaluation of a candidate.

    `reward` is higher-is-better (None: failed), `vouched` the certified reward if a verifier
    accepted the output; `asked` is True if one was asked. `culprit` and `kind` describe a failure
    (`core.evaluation`). `size` is the candidate's length in characters, `seconds` the wall time;
    `metrics` are kept if the task has several objectives. `order` counts the evaluations of the
    final choice from 1. `drew`: it drew random numbers.
    """

    candidate: str
    parents: tuple[str, ...]
    case: str
    reward: float | None
    purpose: str = SEARCH
    lost: bool = False
    culprit: str = ""
    kind: str = ""
    barred: bool = False
    asked: bool = False
    strict: bool | None = None
    vouched: float | None = None
    trust: str = ""
    tolerance: str = ""
    seconds: float = 0.0
    size: int = 0
    metrics: Mapping[str, float] = {}
    order: int = 0
    drew: bool = False

    @property
    def is_excused(self) -> bool:
        """True if it failed by no fault of the candidate."""
        return self.lost or (self.reward is None and self.culprit in CULPRITS[1:])


def fact_of(task: Task, candidate: Candidate, observation: Observation, purpose: str) -> Fact:
    """The fact of an observation."""
    certified = observation.certified
    return Fact(
        candidate.id,
        tuple(candidate.parents),
        observation.case,
        task.reward(observation),
        purpose,
        observation.status is Status.LOST,
        culprit_of(observation),
        "" if observation.ok else observation.failure_kind,
        observation.bars_candidate,
        observation.strict is not None,
        observation.strict,
        None if certified is None else task.objective.reward(certified),
        observation.trust,
        observation.artifacts.get("tolerance", ""),
        observation.seconds,
        sum(map(len, candidate.parts.values())),
        observation.metrics if task.objective.metrics and observation.ok else {},
        drew=bool(observation.drew),
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """Statistics of one candidate in the search.

    `count` scored evaluations with `mean` and sum of squared deviations `squares`; `failures` that
    count against it. `certified` is the worst certified reward (None: none), `refused`: a verifier
    did not accept an output, `repaired`: one did not pass unchanged, `barred`: rejected for its
    integrity. `order` counts candidates by their first evaluation; `size` is its length in
    characters.
    """

    id: str
    order: int
    count: int = 0
    failures: int = 0
    mean: float = 0.0
    squares: float = 0.0
    certified: float | None = None
    refused: bool = False
    barred: bool = False
    trust: str = ""
    size: int = 0
    repaired: bool = False

    @property
    def strict(self) -> bool | None:
        """True if every output passed the verifier unchanged; None if no verifier was asked."""
        return None if self.certified is None and not self.refused else not self.repaired


class LoadedTallies(NamedTuple):
    """Stored statistics of all candidates in the order of first evaluations, as arrays.

    `keys` are by `key_of`, `means` and `certified` rewards (nan: none), `trust` places in `LEVELS`
    (-1: none).
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.uint32]
    failures: NDArray[np.uint32]
    means: Floats
    squares: Floats
    certified: Floats
    refused: NDArray[np.bool_]
    barred: NDArray[np.bool_]
    trust: NDArray[np.int8]
    repaired: NDArray[np.bool_]


class PooledNoise(NamedTuple):
    """Spread of rewards over the whole search.

    `within` is the variance within candidates over all cases (None: unknown), `centre` and
    `between` mean and variance of the candidates' true rewards. `repeats` and `squares` are degrees
    of freedom and sum of squares of repeated evaluations of one candidate on one case: noise alone.
    `agreement` is the chance that two unrelated scores of the run are equal. `failed` is the share
    of repeated evaluations that failed, `failing` the variance that such failures add to one
    evaluation.
    """

    within: float | None
    centre: float = 0.0
    between: float = 0.0
    repeats: int = 0
    squares: float = 0.0
    agreement: float = 0.0
    failed: float = 0.0
    failing: float = 0.0


class CandidateTable:
    """Statistics of all candidates: a packed row for each, in the order of first evaluations."""

    def __init__(self, judge: CulpritJudge) -> None:
        self.judge = judge
        self.slowest = 0.0  # seconds of the longest evaluation that gave a score
        self.degrees, self.squares = 0, 0.0  # of rewards within candidates, pooled
        self.top: float | None = None  # highest reward of a single evaluation
        self.bars = 0  # candidates barred after their first evaluation
        self.numbers: dict[int, int] = {}
        self._rows = np.zeros(_ROOM, _ROW)
        self._parents = array("q")
        self.measure: Sizes | None = None  # for facts without sizes

    def __len__(self) -> int:
        return len(self.numbers)

    def bar_candidate(self, candidate: str) -> None:
        """Exclude a candidate that was rejected for its integrity from being the best."""
        number = self.numbers.get(key_of(candidate))
        if number is not None and not self._rows[number]["barred"]:
            self._rows[number]["barred"] = True
            self.bars += 1

    def _enter_candidate(self, fact: Fact) -> int:
        key = key_of(fact.candidate)
        number = self.numbers.get(key)
        if number is not None:
            return number
        number = self.numbers[key] = len(self.numbers)
        if number >= len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[number]["key"], self._rows[number]["size"] = key, fact.size
        self._rows[number]["certified"] = math.nan
        known = (self.numbers.get(key_of(parent), -1) for parent in fact.parents)
        self._parents.append(next((above for above in known if above >= 0), -1))
        return number

    def measure_sizes(self, numbers: list[int]) -> None:
        """Fill in missing lengths of these candidates."""
        unknown = [number for number in numbers if not self._rows[number]["size"]]
        if self.measure is not None and unknown:
            for number, size in zip(
                unknown, self.measure([self.id_at(number) for number in unknown])
            ):
                self._rows[number]["size"] = size

    def _update_certified(self, number: int, fact: Fact) -> None:
        row = self._rows[number]
        row["repaired"] |= not fact.strict
        if fact.vouched is None:
            row["refused"] = True
        elif not row["certified"] <= fact.vouched:
            row["certified"] = fact.vouched

    def _add_score(self, number: int, fact: Fact) -> None:
        """Welford's update of mean and sum of squared deviations."""
        assert fact.reward is not None
        row, reward = self._rows[number], fact.reward
        self.slowest = max(self.slowest, fact.seconds)
        self.top = reward if self.top is None else max(self.top, reward)
        count, mean = int(row["count"]) + 1, float(row["mean"])
        delta = reward - mean
        mean += delta / count
        added = delta * (reward - mean)
        if count == 1:
            row["early"] = row["failures"]
        row["count"], row["mean"], row["squares"] = count, mean, float(row["squares"]) + added
        self.degrees, self.squares = self.degrees + (count > 1), self.squares + added
        known = _TRUST[int(row["trust"])]
        if fact.trust != known or not known:
            row["trust"] = _TRUST.index(
                weakest_trust((fact.trust, known) if known else (fact.trust,))
            )

    @property
    def rows(self) -> NDArray[np.void]:
        """A packed row for each candidate, in the order of their first evaluation."""
        return self._rows[: len(self.numbers)]

    def tally(self, candidate: str) -> Tally | None:
        """Statistics of a candidate; None if it was never evaluated."""
        number = self.numbers.get(key_of(candidate))
        return None if number is None else self.tally_at(number)

    def tally_at(self, number: int) -> Tally:
        """Statistics of the candidate with the `number`-th first evaluation, from 0."""
        key, count, failures, _, mean, squares, certified, *rest = self._rows[number].item()
        refused, repaired, barred, trust, size = rest
        return Tally(
            f"{key:012x}",
            number,
            count,
            failures - self.judge.excuses_by_number().get(number, 0),
            mean,
            squares,
            None if math.isnan(certified) else certified,
            refused,
            barred,
            _TRUST[int(trust)],
            size,
            repaired,
        )

    def tallies(self) -> Iterator[Tally]:
        """Statistics of each candidate, in the order of their first evaluation."""
        return map(self.tally_at, range(len(self)))

    def counted_failures(self) -> NDArray[np.int64]:
        """Failures of each candidate that count against it.

        A candidate that scored before it was rejected for its integrity has none: chance had no
        part in it.
        """
        rows = self.rows
        failures = rows["failures"].astype(np.int64)
        for number, times in self.judge.excuses_by_number().items():
            failures[number] -= times
        failures[rows["barred"] & (rows["count"] > 0)] = 0
        return failures

    def id_at(self, number: int) -> str:
        """Id of the candidate with the `number`-th first evaluation, from 0."""
        return f"{int(self._rows[number]['key']):012x}"

    def outcome_summary(self, candidate: str) -> tuple[int, int, float] | None:
        """(scores, failures, mean reward) of a candidate; None if it was never evaluated."""
        tally = self.tally(candidate)
        return None if tally is None else (tally.count, tally.failures, tally.mean)

    def without_external_failures(self, facts: Iterable[Fact]) -> list[Fact]:
        """These evaluations without failures of an outage or of a kind that is the evaluator's."""
        judge = self.judge
        return [
            fact
            for fact in facts
            if fact.reward is not None
            or not (fact.order in judge.excused_later or judge.is_external(fact.kind))
        ]

    def _load_rows(self, tallies: LoadedTallies) -> None:
        self._rows, keys = _rows_of(tallies), tallies.keys.tolist()
        self.numbers = dict(zip(keys, range(len(keys))))
        self._parents = array("q", [-1]) * len(keys)

    def parent_of(self, number: int) -> int:
        """Number of a candidate's first known parent, -1 for none."""
        return self._parents[number]


class RepeatWatch:
    """Repeats of one candidate on one case: noise apart from cases, and signs of exactness."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, str], tuple[int, int, float]] = {}
        self.repeats, self.squares = 0, 0.0
        self.by_candidate: dict[int, tuple[int, float]] = {}  # repeats and squares
        self.values: dict[float, int] = {}
        self._equal_repeats = 0  # number of equal repeats of a value that no other candidate has,
        self._equal_candidates: set[int] = set()  # and their candidates, at most `EXACT_CANDIDATES`
        # scores of equal repeats, fine and coarse ones, at most as many of each
        self._equal_scores: tuple[set[float], set[float]] = set(), set()
        self.is_flaky = False  # a candidate failed and scored on the same case
        self.has_drawn = False  # a scored evaluation drew random numbers

    def watch_repeat(self, number: int, fact: Fact) -> None:
        """Note a repeat of one candidate on one case.

        Pairs beyond the first `_PAIRS` are not watched.
        """
        pair = number, fact.case
        seen = self._pairs.get(pair)
        if seen is None and len(self._pairs) >= _PAIRS:
            return
        count, failures, mean = seen or (0, 0, 0.0)
        if fact.reward is None:
            failures += not fact.barred
        else:
            reward = fact.reward
            if count:
                added = (reward - mean) ** 2 * count / (count + 1)
                repeats, squares = self.by_candidate.get(number, (0, 0.0))
                self.by_candidate[number] = repeats + 1, squares + added
                self.repeats, self.squares = self.repeats + 1, self.squares + added
                if reward == mean:
                    self._note_equal_score(reward)
                if reward == mean and self.values.get(reward) == 1:
                    self._equal_repeats += 1
                    if len(self._equal_candidates) < EXACT_CANDIDATES:
                        self._equal_candidates.add(number)
            elif len(self.values) < _VALUES or reward in self.values:
                self.values[reward] = self.values.get(reward, 0) + 1
            count, mean = count + 1, mean + (reward - mean) / (count + 1)
        self.is_flaky = self.is_flaky or bool(count and failures)
        self._pairs[pair] = count, failures, mean

    def _note_equal_score(self, reward: float) -> None:
        if all(len(each) < EXACT_CANDIDATES for each in self._equal_scores):
            self._equal_scores[0 if is_fine(reward) else 1].add(reward)
        elif not self._equal_scores[0] and is_fine(reward):
            self._equal_scores[0].add(reward)

    @property
    def has_differed(self) -> bool:
        """True if equal repeats prove nothing: some differed, failed, or drew random numbers."""
        return bool(self.squares) or self.is_flaky or self.has_drawn

    def are_exact(self, has_few_values: bool) -> bool | None:
        """True if repeats are shown to give equal scores, False if some differed.

        None if the repeats so far could not show a difference. Two programs with equal repeats of
        different scores, one of them fine, are proof: noise would not meet that score again. A
        repeat of a coarse score is evidence if no other candidate had it, and all repeats together
        are once their agreement was unlikely; if scores have few values, as pass or fail, they
        never are.
        """
        if self.has_differed:
            return False
        fine, coarse = self._equal_scores
        if fine and len(fine) + len(coarse) >= EXACT_CANDIDATES:
            return True
        is_unlikely = self._equal_repeats >= EXACT_REPEATS and not self.may_agree_by_luck
        is_unlikely = is_unlikely and len(self._equal_candidates) >= EXACT_CANDIDATES
        return True if is_unlikely and not has_few_values else None

    @property
    def agreement(self) -> float:
        """Chance that two unrelated scores of the run are equal."""
        return agreement_of(self.values)

    @property
    def may_agree_by_luck(self) -> bool:
        """True unless unrelated scores would hardly be equal in as many repeats."""
        return self.agreement**self.repeats > UNLIKELY


def agreement_of(values: Mapping[float, int]) -> float:
    """Chance that two of these values, by their numbers, are equal (Simpson's index)."""
    total = sum(map(int, values.values()))
    return sum(int(many**2) for many in values.values()) / total**2 if total else 1.0


class ModelFeed:
    """Evaluations kept for the value model: 20 bytes for each of the first `MODELLED`."""

    def __init__(self) -> None:
        self._who, self._where = array("l"), array("l")
        self._rewards = array("d")  # nan: failed
        self._drawn: int | None = None  # place of the first one that drew random numbers
        self._cases: dict[str, int] = {}
        self.model: ValueModel | None = None
        self._fed = 0
        self.is_live = False  # True if a strategy decides by the model: it is kept up to date

    def store_evaluation(self, number: int, fact: Fact) -> None:
        """Keep one evaluation for the value model."""
        if self.is_live or len(self._who) <= MODELLED:
            if fact.drew and fact.reward is not None and self._drawn is None:
                self._drawn = len(self._who)
            self._who.append(number)
            self._where.append(self._cases.setdefault(fact.case, len(self._cases)))
            self._rewards.append(math.nan if fact.reward is None else fact.reward)

    def set_model(self, model: ValueModel | None) -> None:
        """Replace the model; a new one has seen nothing yet."""
        self.model, self._fed = model, 0

    def feed_model(self, table: CandidateTable) -> None:
        """Enter the evaluations that the model has not seen."""
        assert self.model is not None, "a model to feed"
        cases = list(self._cases)
        for at in range(self._fed, len(self._who)):
            number = self._who[at]
            name, reward = table.id_at(number), self._rewards[at]
            above = table.parent_of(number)
            self.model.add_candidate(name, () if above < 0 else (table.id_at(above),))
            case, drew = cases[self._where[at]], at == self._drawn
            self.model.observe(name, None if math.isnan(reward) else reward, case, drew)
        self._fed = len(self._who)


class RepeatReadings(CandidateTable):
    """Readings of a run: exact, on one draw, or noisy."""

    task: Task
    repeated: RepeatWatch

    @property
    def is_flaky(self) -> bool:
        """True if a candidate failed and scored on the same case."""
        return self.repeated.is_flaky

    @property
    def is_exact(self) -> bool | None:
        """True if repeats are declared or shown to give equal scores, False if some differed.

        Also False if an evaluation drew random numbers, whatever is declared. None if the repeats
        so far could not show a difference (`RepeatWatch.are_exact`): those on one draw never do.
        """
        declared, shown = self.task.deterministic, self.repeated.are_exact(self.has_few_values)
        if self.repeated.has_drawn:
            return False
        if declared is None:
            return None if shown and self.task.same_draws else shown
        return declared

    @property
    def has_few_values(self) -> bool:
        """True if scores are pass or fail, or a pass rate of few steps.

        That is at most `FEW_VALUES` different ones that lie at the ends of the scale, were made on
        a data set, or are coarse and within the scale's ends and shared by several candidates.
        """
        values = self.repeated.values
        if len(values) > FEW_VALUES:
            return False
        low, high = self.task.objective.reward_range
        ends = [set(pair) for pair in (*PASS_FAIL, (low, high))]
        negated = {-value for value in values}  # of scores that are minimised
        if self.task.cases or any(values.keys() <= end or negated <= end for end in ends):
            return True
        scale = (low, high) if math.isfinite(high - low) else PASS_FAIL[0]
        is_inside = all(scale[0] <= abs(each) <= scale[1] for each in values)
        is_shared = sum(map(int, values.values())) > len(values)
        return is_shared and is_inside and not any(map(is_fine, values))

    @property
    def is_settled(self) -> bool:
        """True if repeating an evaluation could teach nothing: exact, or all are on one draw."""
        return self.task.is_evaluated_once or self.is_exact is True

    @property
    def is_on_one_draw(self) -> bool:
        """True if all evaluations on a case have one random seed and others may score otherwise."""
        return self.task.is_evaluated_once and self.is_exact is not True


class NoiseReadings(RepeatReadings):
    """Noise and drift of the whole run, the final choice included."""

    made: int
    drift: DriftWatch
    looks: dict[str, list[Fact]]
    fresh: dict[str, list[Fact]]

    @property
    def largest_drift(self) -> float:
        """Most by which drift may have changed rewards in the course of the run; 0 if none seen."""
        line = self.drift.line
        return 0.0 if line is None else line.largest_change(self.made)

    @property
    def drift_of_scores(self) -> float:
        """Change of scores through drift in the course of the run; 0 if none was seen."""
        line = self.drift.line
        return 0.0 if line is None else self.task.objective.score(line.slope * self.made)

    @property
    def score_span(self) -> float:
        """Distance between the declared bounds of the score, else of the few values seen.

        0 if more than `FEW_VALUES` were seen.
        """
        low, high = self.task.objective.bounds
        if low is not None and high is not None:
            return high - low
        later = (fact.reward for fact in facts_after_search(self))
        values = {*self.repeated.values, *(reward for reward in later if reward is not None)}
        return max(values) - min(values) if 0 < len(values) <= FEW_VALUES else 0.0

    def noise_laws(self, levels: Sequence[float], without: str = "") -> tuple[NoiseLaw, NoiseLaw]:
        """Laws of a candidate's spread over all evaluations, and of repeats on one case.

        Learnt within reach of the rewards `levels`; fresh evaluations of the candidate `without`
        are left out.
        """
        rows = self.rows[self.rows["count"] > 1]
        searched = np.column_stack([rows["mean"], rows["squares"], rows["count"] - 1.0])
        if not self.task.cases:
            law = NoiseLaw(self._with_later(searched, without), levels)
            return law, law
        watched = self.repeated.by_candidate
        repeats = np.array(
            [(self.rows[number]["mean"], each[1], each[0]) for number, each in watched.items()]
        )
        alike = self._with_later(repeats.reshape(-1, 3), without)
        return NoiseLaw(searched, levels), NoiseLaw(alike, levels)

    def _with_later(self, spreads: Floats, without: str) -> Floats:
        """These spreads and those of repeats on one case in the final choice."""
        groups = [*self.looks.values()]
        groups += [seen for name, seen in self.fresh.items() if name != without]
        later: list[tuple[float, float, float]] = []
        for seen in groups:
            parts = [spread_of(each) for each in rewards_by_case(seen) if len(each) > 1]
            if parts:
                degrees = sum_floats(part[2] for part in parts)
                later.append(
                    (
                        fmean(part[0] for part in parts),
                        math.fsum(part[1] for part in parts),
                        degrees,
                    )
                )
        return np.vstack([spreads, np.array(later).reshape(-1, 3)])


class Account(NoiseReadings):
    """All that a run has observed: candidates, repeats, the final choice and the value model."""

    def __init__(self, task: Task, prior: StepLaw | None = None) -> None:
        self.initial_ids = tuple(each.id for each in task.initial_candidates())
        super().__init__(CulpritJudge(map(key_of, self.initial_ids)))
        self.task, self.prior = task, prior
        self.evaluations = 0  # of the search, excused failures excluded
        self.failed: dict[str, int] = {}  # failed evaluations of the whole run, by certain culprit
        self.made = 0  # evaluations of the whole run,
        self.further = 0  # and those made to examine others
        self.looks: dict[str, list[Fact]] = {}  # of the choice, by candidate
        self.fresh: dict[str, list[Fact]] = {}  # made after the choice
        self.repeated, self._feed, self.drift = RepeatWatch(), ModelFeed(), DriftWatch()
        self._kept: tuple[object, PooledNoise] = (None, PooledNoise(None))

    @property
    def state(self) -> tuple[int, ...]:
        """Numbers that differ whenever the evidence does."""
        return self.made, self.judge.excused_failures, self.bars

    # -- feeding

    def observe(self, fact: Fact) -> None:
        """Count one finished evaluation."""
        self.made += 1
        self.repeated.has_drawn |= fact.drew and fact.reward is not None
        if fact.reward is None and fact.culprit:
            self.failed[fact.culprit] = self.failed.get(fact.culprit, 0) + 1
        if fact.barred:
            self.bar_candidate(fact.candidate)
        key = key_of(fact.candidate)
        if fact.reward is not None and key in self.judge.initial_keys:
            self.drift.observe(key, fact.case, self.made, fact.reward)
        if fact.purpose != SEARCH:
            if not fact.is_excused:
                self._keep_later(fact)
            return
        if fact.is_excused:
            return
        number = self._enter_candidate(fact)
        self.evaluations += 1
        self._feed.store_evaluation(number, fact)
        row = self._rows[number]
        row["barred"] |= fact.barred
        if fact.asked and fact.reward is not None:
            self._update_certified(number, fact)
        if fact.reward is None:
            row["failures"] += 1
        else:
            self._add_score(number, fact)
        self.repeated.watch_repeat(number, fact)
        kind = fact.kind if fact.reward is None else ""
        self.judge.observe(number, key_of(fact.candidate), kind, fact.culprit, self.rows)
        if self._feed.is_live and self._feed.model is not None:
            self._feed.feed_model(self)

    def _keep_later(self, fact: Fact) -> None:
        kept = self.fresh if fact.purpose == FINAL else self.looks
        number = self.numbers.get(key_of(fact.candidate), -1)
        kind = fact.kind if fact.reward is None else ""
        order = self.judge.observe_later(number, key_of(fact.candidate), kind, fact.culprit)
        kept.setdefault(fact.candidate, []).append(fact._replace(order=order))

    def load_tallies(self, tallies: LoadedTallies) -> None:
        """Take the sums of a search too long for the value model, in place of its evaluations."""
        self._load_rows(tallies)
        scored = self.rows["count"] > 0
        self.evaluations = int(self.rows["count"].sum() + self.rows["failures"].sum())
        self.degrees = int(self.rows["count"].sum() - scored.sum())
        self.squares = float(self.rows["squares"].sum())
        self.made = self.evaluations
        self.judge.load_counts(int(self.rows["failures"].sum()), self.evaluations)
        if not self.task.cases:
            self.repeated.repeats, self.repeated.squares = self.degrees, self.squares
            self.repeated.is_flaky = bool((scored & (self.rows["failures"] > 0)).any())

    # -- reading

    def pooled_noise(self) -> PooledNoise:
        """Pooled within-candidate variance, and the spread between candidates that remains."""
        if self._kept[0] != self.state:
            scored, exact = self.rows["count"] > 0, self.task.is_evaluated_once
            lost = float(self.counted_failures()[scored].sum())
            floor = self.floor if lost else 0.0
            noise = _pool_noise(self.rows[scored], lost, exact, self.repeated, floor)
            self._kept = self.state, noise
        return self._kept[1]

    def noise_at(self, level: float, laws: tuple[NoiseLaw, NoiseLaw]) -> PooledNoise:
        """The pooled noise with the spreads of evaluations whose expected reward is `level`."""
        noise, (within, alike) = self.pooled_noise(), laws
        if within.degrees:
            noise = noise._replace(within=within.variance_at(level))
        variance, degrees = alike.estimate_at(level)
        many = max(1, round(degrees))
        if not variance:
            return noise._replace(squares=0.0)
        return noise._replace(repeats=many, squares=many * variance)

    @property
    def floor(self) -> float:
        """Reward of a failed evaluation: the declared lowest reward, if any.

        Otherwise a low value of this task, never one outlier: that of the value model or, of a long
        search, the lower of the initial program's mean and the 5 % quantile of the means.
        """
        declared = self.task.objective.floor
        if declared is not None:
            return declared
        model = self.value_model()
        if model is not None:
            return model.floor
        initial = map(self.tally, self.initial_ids)
        return _low_mean(self.rows, [each.mean for each in initial if each and each.count])

    # -- the value model

    @property
    def lowest_mean(self) -> float | None:
        """The lowest mean reward of a candidate; None without a score."""
        means = self.rows["mean"][self.rows["count"] > 0]
        return float(means.min()) if len(means) else None

    def value_model(self, longest: int | None = MODELLED) -> ValueModel | None:
        """The value model of the search so far; None if the search is longer than `longest`.

        With `longest` None it is kept up to date from now on, however long the search becomes.
        """
        self._feed.is_live = self._feed.is_live or longest is None
        if longest is not None and self.evaluations > longest:
            if not self._feed.is_live:
                self._feed.set_model(None)  # it holds much memory
            return None
        if self._feed.model is None:
            task, failing = self.task, FailureRates(self.judge, self)
            floor, exact = task.objective.floor, declared_exact(task)
            self._feed.set_model(ValueModel(floor, exact, self.prior, failing))
        self._feed.feed_model(self)
        return self._feed.model


def is_fine(reward: float) -> bool:
    """True if a reward has more digits than grades, counts and pass rates have.

    It is no fraction with a denominator of up to 1000, as a pass rate over a thousand tests is; one
    in a thousand numbers drawn at random is as near to one as arithmetic is exact.
    """
    near = Fraction(reward).limit_denominator(1000)
    return abs(reward - near) > 1e-12 * max(1.0, abs(reward))


def declared_exact(task: Task) -> bool | None:
    """The declaration that repeats give equal scores, for models of a search.

    With one draw for all they do, whatever the evaluator draws.
    """
    return True if task.is_evaluated_once else task.deterministic


def rewards_by_case(seen: Iterable[Fact]) -> list[list[float]]:
    """Rewards of evaluations that scored, one list a case."""
    grouped: dict[str, list[float]] = {}
    for fact in seen:
        if fact.reward is not None:
            grouped.setdefault(fact.case, []).append(fact.reward)
    return list(grouped.values())


def facts_after_search(account: NoiseReadings) -> Iterator[Fact]:
    """All evaluations of the final choice, by candidate."""
    for kept in (account.looks, account.fresh):
        for seen in kept.values():
            yield from seen


def _low_mean(rows: NDArray[np.void], initial: Sequence[float]) -> float:
    """The lower of these means of initial programs and the 5 % quantile of all; 0 without any."""
    means = np.sort(rows["mean"][rows["count"] > 0])
    return min([float(means[int(0.05 * len(means))]), *initial]) if len(means) else 0.0


def _rows_of(tallies: LoadedTallies) -> NDArray[np.void]:
    """Packed rows with these statistics."""
    size = len(tallies.keys)
    rows = np.zeros(max(size, _ROOM), _ROW)
    for name, column in (
        ("key", tallies.keys),
        ("count", tallies.counts),
        ("failures", tallies.failures),
        ("mean", tallies.means),
        ("squares", tallies.squares),
        ("certified", tallies.certified),
        ("refused", tallies.refused),
        ("barred", tallies.barred),
        ("trust", tallies.trust + 1),
        ("repaired", tallies.repaired),
    ):
        rows[name][:size] = column
    return rows


def _pool_noise(
    seen: NDArray[np.void], lost: float, exact: bool, repeated: RepeatWatch, floor: float
) -> PooledNoise:
    """Spread of rewards by the rows of scored candidates and their `lost` evaluations."""
    counts, means = seen["count"].astype(float), seen["mean"]
    degrees, squares = float((counts - 1).sum()), float(seen["squares"].sum())
    within = squares / degrees if degrees else (0.0 if exact else None)
    if not len(counts):
        return PooledNoise(within)
    centre = float(means.mean())
    spread = float(((means - centre) ** 2).sum()) / max(1, len(means) - 1)
    sampling = (within or 0.0) * float((1 / counts).mean())
    share = lost / (lost + degrees + 2)
    return PooledNoise(
        within,
        centre,
        max(spread - sampling, spread * 0.05),
        repeated.repeats,
        repeated.squares,
        repeated.agreement,
        share,
        share * (1 - share) * (centre - floor) ** 2 if lost else 0.0,
    )


EXACT_REPEATS = 3
"""Equal repeats after which scores may be assumed to be exact."""

EXACT_CANDIDATES = 2
"""Least number of candidates with such repeats.

The initial program may be exact although others are not.
"""

FEW_VALUES = 4
"""Distinct scores up to which a score may be few-valued: equal repeats then prove nothing."""

PASS_FAIL = ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0))
"""Usual scores of fail and pass."""

UNLIKELY = 0.05
"""Chance that all equal repeats agree by luck, below which they are evidence."""
