"""A run as plain tables, read from its journal in one pass.

The analyses of TurboEvolve, Section 6, are made from these tables. Rewards are scores turned so
that higher is better; a gain is a candidate's reward minus that of its parent (the paper's delta).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol, get_args

import msgspec

from culmen.core.brief import Proposal
from culmen.core.errors import CulmenError, UserError
from culmen.core.evaluation import Observation, is_excused, weakest_trust
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.extensions.bench.fresh_scores import FreshScore, fresh_scores, of_candidates
from culmen.store import views
from culmen.store.address import FILE, POINTER
from culmen.store.database import RunMeta
from culmen.store.evidence import FollowedLeader

_KINDS = ("started", "done", "note")
_GRIDS = ("event", "grid")  # notes that hold the number of cells taken

Vector = tuple[float, ...]


Axis = Literal[
    "evaluations", "dollars", "seconds", "evaluation_steps", "proposal_steps", "proposals"
]
AXES: tuple[Axis, ...] = get_args(Axis)
BUDGETS: tuple[Axis, ...] = ("evaluations", "dollars", "seconds")  # axes that a budget may limit


class Moment(msgspec.Struct, frozen=True):
    """State of a run after a number of evaluations.

    `seconds` are active seconds, `dollars` known costs, `best` the score of the best candidate at
    that time (in the task's own direction, None before a first score) and `candidate` its id ("":
    none). `evaluation_steps` is the length of the longest chain of evaluations of which each began
    after the previous one had ended, so that parallel evaluations count once (POLCA, Section 5).
    `proposal_steps` is the same for requests, `proposals` the number of candidates that these
    returned.
    """

    evaluations: int
    seconds: float
    dollars: float
    best: float | None = None
    evaluation_steps: int = 0
    proposal_steps: int = 0
    proposals: int = 0
    candidate: str = ""


class ReplyCandidate(msgspec.Struct, frozen=True):
    """One candidate of a reply.

    `rank` counts from 1 in the order of the reply; `status` is that of its evaluation, or `known`
    for a content evaluated before, or `unseen` if it was never evaluated. `cell` is its place in
    the grid.
    """

    rank: int
    status: str
    reward: float | None = None
    cell: Vector | None = None


class CandidateRequest(msgspec.Struct, frozen=True):
    """One request for `k` candidates (the paper's event), after `evaluations` of the run.

    `distance` is the mean distance between the parent and the candidates shown with it, in the
    grid's features, each scaled to 0..1 by all values in the run; `inspiration` is the highest
    reward among the candidates shown. None if the journal does not record it.
    """

    evaluations: int
    k: int
    children: tuple[ReplyCandidate, ...]
    parent: float | None = None
    cell: Vector | None = None
    island: int = 0
    turn: int = 0
    next_k: int | None = None
    inspiration: float | None = None
    distance: float | None = None

    def gain(self, child: ReplyCandidate) -> float | None:
        """The child's reward minus the parent's; None if either has none."""
        return None if child.reward is None or self.parent is None else child.reward - self.parent


class Filled(msgspec.Struct, frozen=True):
    """State of one island's grid after `evaluations` of the run.

    `cells` is the number of cells taken, `quality` the mean reward of their occupants.
    """

    evaluations: int
    island: int
    cells: int
    quality: float | None


class RunRecord(msgspec.Struct, frozen=True):
    """One run as tables.

    `moments` has one row per evaluation, including failed ones and those of the final choice;
    `unpriced` is the number of calls with unknown price, `trust` the level of the weakest score.
    """

    run: str
    task: str
    direction: str
    strategy: str
    config: JsonObject
    model: str
    moments: tuple[Moment, ...] = ()
    asks: tuple[CandidateRequest, ...] = ()
    filled: tuple[Filled, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    unpriced: int = 0
    trust: str = ""
    pool: str = ""
    state: str = "finished"

    @property
    def evaluations(self) -> int:
        """Number of all evaluations, including failed ones."""
        return len(self.moments)


def read_run(run: Path | str) -> RunRecord:
    """The tables of one run.

    Raises `UserError` if there is no run, `JournalDamaged` if it cannot be read.
    """
    meta = views.run_meta(run)
    reader = RunReader(meta).read_new_events(run)
    return RunRecord(
        run=meta.id,
        task=meta.task.label,
        direction=meta.task.objective.direction,
        strategy=str(meta.strategy.get("path", "")),
        config=meta.strategy.get("config") or {},
        model=meta.model_name,
        moments=tuple(reader.moments),
        asks=tuple(reader.candidate_requests()),
        filled=tuple(reader.filled),
        barriers=tuple(reader.barriers),
        unpriced=reader.unpriced,
        trust=weakest_trust(reader.trust),
        pool=meta.pool,
        state=views.run_status(run).recorded,
    )


class RunReader:
    """Events in journal order, turned into rows; of a running run, only new events are read."""

    def __init__(self, meta: RunMeta) -> None:
        self._objective, self._leader, self._last = meta.task.objective, FollowedLeader(meta), 0
        self.moments: list[Moment] = []
        self.filled: list[Filled] = []
        self.barriers: list[Barrier] = []
        self.unpriced = 0
        self.trust: set[str] = set()
        self._dollars, self._proposals = 0.0, 0
        self._steps = {"evaluate": _Chain(), "propose": _Chain()}
        self._means: dict[str, tuple[int, float]] = {}
        self._failed: dict[str, str] = {}
        self._noted: list[tuple[int, JsonObject]] = []
        self._replies: list[tuple[int, Proposal, float | None]] = []

    def read_new_events(self, run: Path | str) -> RunReader:
        """Read the new events."""
        while page := views.log_events(run, self._last, 2000, _KINDS):
            for event in page:
                self.add_event(event)
            self._last = page[-1].seq
        return self

    def add_event(self, event: Event) -> None:
        """Count one event."""
        entry = event.entry
        if entry.effect in self._steps:
            self._steps[entry.effect].record_effect(entry.kind, entry.key)
        usage = getattr(entry.result, "usage", None)
        if entry.kind == "done" and usage is not None:
            self._dollars += usage.dollars
            self.unpriced += usage.unpriced
        self._leader.enter_entry(entry)
        if isinstance(entry.result, Observation):
            if not entry.body.get(
                "phase"
            ):  # evaluations of the final choice never enter the means of the search
                self._add_observation(entry.result)
            best, name = self._leader.best or (None, "")
            steps = (self._steps["evaluate"].length, self._steps["propose"].length, self._proposals)
            self.moments.append(
                Moment(len(self.moments) + 1, entry.elapsed, self._dollars, best, *steps, name)
            )
        elif (
            entry.kind == "done" and isinstance(entry.result, Proposal) and entry.result.candidates
        ):
            self._proposals += len(entry.result.candidates)
            self._add_reply(entry.result)
        elif entry.kind == "note" and entry.body.get("note") in _GRIDS and "cells" in entry.body:
            self._add_grid_note(entry.body)
        elif entry.kind == "note" and entry.body.get("note") == "barrier":
            self.barriers.append(barrier_from_note(entry.body, len(self.moments)))

    def candidate_requests(self) -> list[CandidateRequest]:
        """The requests as noted by the strategy or, without such notes, from the replies."""
        if self._noted:
            scale = _feature_ranges(body for _, body in self._noted)
            return [
                _request_from_note(evaluations, body, scale) for evaluations, body in self._noted
            ]
        return [self._request_from_reply(*reply) for reply in self._replies]

    def _add_observation(self, seen: Observation) -> None:
        if is_excused(seen):
            return
        if seen.score is None:
            self._failed.setdefault(seen.candidate, seen.status.value)
            return
        self.trust.add(seen.trust)
        count, mean = self._means.get(seen.candidate, (0, 0.0))
        reward = self._objective.reward(seen.score)
        self._means[seen.candidate] = (count + 1, mean + (reward - mean) / (count + 1))

    def _add_reply(self, reply: Proposal) -> None:
        parents = reply.candidates[0].parents
        _, mean = self._means.get(parents[0], (0, None)) if parents else (0, None)
        self._replies.append((len(self.moments), reply, mean))

    def _add_grid_note(self, body: JsonObject) -> None:
        island, quality = int(body.get("island", 0)), body.get("quality")
        self.filled.append(Filled(len(self.moments), island, int(body["cells"]), quality))
        if "candidates" in body and "k" in body:
            self._noted.append((len(self.moments), body))

    def _request_from_reply(
        self, evaluations: int, reply: Proposal, parent: float | None
    ) -> CandidateRequest:
        children = tuple(
            self._reply_candidate(rank, candidate.id)
            for rank, candidate in enumerate(reply.candidates, 1)
        )
        return CandidateRequest(evaluations, len(children), children, parent)

    def _reply_candidate(self, rank: int, name: str) -> ReplyCandidate:
        if name in self._failed:
            return ReplyCandidate(rank, self._failed[name])
        if name not in self._means:
            return ReplyCandidate(rank, "unseen")
        return ReplyCandidate(rank, "ok", self._means[name][1])


class _Chain:
    """The longest chain of effects of a kind, each begun after the previous one had ended."""

    def __init__(self) -> None:
        self.length = 0
        self._begun: dict[int, int] = {}

    def record_effect(self, kind: str, key: int) -> None:
        """Record the start or the end of an effect."""
        if kind == "started":
            self._begun[key] = self.length + 1
        elif kind == "done":
            self.length = max(self.length, self._begun.pop(key, self.length))


def _request_from_note(
    evaluations: int, body: JsonObject, scale: list[tuple[float, float]]
) -> CandidateRequest:
    parent, shown = body.get("parent") or {}, body.get("inspirations") or []
    rewards = [each["reward"] for each in shown if each.get("reward") is not None]
    return CandidateRequest(
        evaluations=evaluations,
        k=int(body["k"]),
        children=tuple(
            ReplyCandidate(
                int(child["rank"]) + 1,
                str(child["status"]),
                child.get("reward"),
                _parse_vector(child.get("cell")),
            )
            for child in body["candidates"]
        ),
        parent=parent.get("reward"),
        cell=_parse_vector(parent.get("cell")),
        island=int(body.get("island", 0)),
        turn=int(body.get("turn", 0)),
        next_k=body.get("next_k"),
        inspiration=max(rewards, default=None),
        distance=_mean_distance(parent, shown, scale),
    )


def _parse_vector(values: Iterable[float] | None) -> Vector | None:
    return None if values is None else tuple(float(value) for value in values)


def _feature_ranges(bodies: Iterable[JsonObject]) -> list[tuple[float, float]]:
    """Lowest and highest value of every feature in the notes."""
    rows = [
        each["features"]
        for body in bodies
        for each in (
            body.get("parent") or {},
            *(body.get("inspirations") or []),
            *body["candidates"],
        )
        if each.get("features")
    ]
    return [(min(column), max(column)) for column in zip(*rows)]


def _mean_distance(
    parent: JsonObject, shown: list[JsonObject], scale: list[tuple[float, float]]
) -> float | None:
    positions = [
        _scaled_features(each["features"], scale) for each in shown if each.get("features")
    ]
    if not positions or not parent.get("features"):
        return None
    home = _scaled_features(parent["features"], scale)
    return sum(math.dist(home, position) for position in positions) / len(positions)


def _scaled_features(features: list[float], scale: list[tuple[float, float]]) -> list[float]:
    return [
        (value - low) / (high - low) if high > low else 0.0
        for value, (low, high) in zip(features, scale)
    ]


# Runs as a comparison needs them: result, scale and budget of each.


class Measurement(msgspec.Struct, frozen=True):
    """A measurement of a program after the search.

    `value` is its score, or its gain over the initial program, `margin` half the width of the 95 %
    interval (None: unknown), `count` the number of evaluations.
    """

    value: float
    margin: float | None = None
    count: int = 1


class ComparedRun(msgspec.Struct, frozen=True):
    """One run in a comparison.

    `score` and `certified` are those of its best candidate (None: no score, no certified value);
    `strict` is None if no verifier was asked. `moments` hold the best so far after every
    evaluation. `written` is the user's text for the strategy and its settings, if known: a preset
    or a pool may mean different settings on another task.

    `program` is the id of the best candidate ("": unknown; equal ids are equal programs), with
    `margin` and `count` of its score, measured after the search if `confirmed`, on `cases` of the
    `of` cases of `split` (0: no data set). `initial_program` is the id of the initial program it
    was measured with, `initial` that program's score on the same cases, `gain` the mean difference
    between the two by case (None: not measured). `fresh` are scores of these two programs made for
    comparisons.
    """

    run: str
    task: str
    digest: str
    objective: Objective
    strategy: str
    config: JsonObject
    model: str
    seed: int
    state: str
    score: float | None
    certified: float | None
    strict: bool | None
    trust: str
    evaluations: int
    dollars: float
    unpriced: int
    seconds: float
    budget: Budget
    moments: tuple[Moment, ...] = ()
    pool: str = ""
    written: str = ""
    program: str = ""
    margin: float | None = None
    count: int = 1
    confirmed: bool = True
    split: str = ""
    cases: int = 0
    of: int = 0
    initial_program: str = ""
    initial: Measurement | None = None
    gain: Measurement | None = None
    fresh: tuple[FreshScore, ...] = ()
    deterministic: bool | None = None

    @property
    def returned_the_initial_program(self) -> bool:
        """True if the best candidate's text equals the initial program's."""
        return self.program != "" and self.program == self.initial_program

    @property
    def contender_key(self) -> str:
        """Key of the contender: strategy, settings, model and pool, independent of the task."""
        return self.written or json.dumps(
            [self.strategy, self.config, self.model, self.pool], sort_keys=True, default=str
        )


def read_compared(run: Path | str) -> ComparedRun:
    """Read one run; raises `UserError` if there is none."""
    return compared_run(views.run_status(run), views.run_meta(run), read_run(run).moments)


def compared_run(now: views.RunStatus, about: RunMeta, moments: Iterable[Moment]) -> ComparedRun:
    """The record of a run whose moments are known already."""
    best = now.best
    program, initial = programs_of(best, about.task)
    is_quiet = best is None or not best.noise.draws  # else the score holds for one draw alone
    return ComparedRun(
        run=now.run,
        task=about.task.label,
        digest=about.task.digest,
        objective=about.task.objective,
        strategy=str(about.strategy.get("path", "")),
        config=about.strategy.get("config") or {},
        model=about.model_name,
        seed=now.seed,
        state=now.recorded,
        score=None if best is None else best.score,
        certified=None if best is None else best.certified,
        strict=None if best is None else best.strict,
        trust="" if best is None else best.trust,
        evaluations=now.evaluations,
        dollars=now.usage.dollars,
        unpriced=now.usage.unpriced,
        seconds=now.elapsed_seconds,
        budget=now.budget,
        moments=tuple(moments),
        pool=about.pool,
        deterministic=about.task.deterministic if is_quiet else False,
        program=program,
        initial_program=initial,
        fresh=of_candidates(fresh_scores(Path(now.path)), (program, initial)),
        **({} if best is None else _measurement_fields(best)),
    )


def programs_of(best: RunResult | None, task: Task) -> tuple[str, str]:
    """Ids of a run's best candidate and of the initial program it is compared with.

    The latter is that of the final choice; or the best itself if it is an initial program; else the
    first initial program. "" for none.
    """
    names = [candidate.id for candidate in task.initial_candidates()]
    first = names[0] if names else ""
    if best is None or best.id in names:
        return ("", first) if best is None else (best.id, best.id)
    return best.id, first if best.initial is None else best.initial.id


def _measurement_fields(best: RunResult) -> JsonObject:
    """Fields of a `ComparedRun` on the measurement of its best candidate."""
    first = best.initial
    return {
        "margin": best.margin,
        "count": best.count,
        "confirmed": best.confirmed,
        "split": best.split,
        "cases": best.cases,
        "of": best.of,
        "initial": None if first is None else Measurement(first.score, first.margin, first.count),
        "gain": None if best.gain is None else Measurement(best.gain, best.gain_margin, best.count),
    }


def find_runs(folder_or_run: Path) -> list[Path]:
    """The run at a path, or all runs below a folder, by name.

    Raises `UserError` if there is none.
    """
    runs: list[Path] = []
    for folder, below, files in os.walk(folder_or_run):
        if FILE in files or POINTER in files:
            runs.append(Path(folder))
            below.clear()  # folders inside a run are not searched
        below[:] = sorted(name for name in below if name[0] != ".")
    if not runs:
        raise UserError("there is no run here", where=str(folder_or_run), fix="culmen status --all")
    return runs


class LeftOut(msgspec.Struct, frozen=True):
    """A run that cannot be read, and the reason."""

    run: str
    why: str


def read_all(
    runs: Sequence[Path], written: Mapping[Path, str] | None = None
) -> tuple[list[ComparedRun], list[LeftOut]]:
    """The readable runs, and those that cannot be read.

    Raises the first run's error if none can be read.
    """
    known = written or {}
    read: list[ComparedRun] = []
    left_out: list[LeftOut] = []
    first: CulmenError | None = None
    for run in runs:
        try:
            read.append(msgspec.structs.replace(read_compared(run), written=known.get(run, "")))
        except CulmenError as error:
            first = first or error
            left_out.append(
                LeftOut(str(run), error.what if isinstance(error, UserError) else str(error))
            )
    if first is not None and not read:
        raise first
    return read, left_out


_AS_NOTED = (
    "entropy",
    "grad_norm",
    "kl",
    "clip_low",
    "clip_high",
    "ratio_max",
    "gap_mean",
    "gap_max",
    "tokens",
    "tokens_per_second",
)


class Barrier(msgspec.Struct, frozen=True):
    """One barrier of a run, after `evaluations` of it.

    `measures` are its diagnostics by name, those of the update only if it was made; `skip` is the
    reason if it was not, `failures` counts failed decisions by class.
    """

    number: int
    evaluations: int
    measures: dict[str, float]
    skip: str
    alarms: tuple[str, ...]
    failures: dict[str, int]


def barrier_from_note(body: JsonObject, evaluations: int) -> Barrier:
    """A note `barrier` as a row; missing figures are left out."""
    rewards, advantages, clamped = (
        list(map(float, body.get(name) or ())) for name in ("rewards", "advantages", "clamped")
    )
    failures = {str(name): int(times) for name, times in dict(body.get("failures") or {}).items()}
    # a choice without the number of its draw from the menu
    tried = [str(e).partition(" (draw ")[0] for e in body.get("experiments") or () if e]
    measures = {name: float(body.get(name, 0)) for name in ("version", "alpha")}
    if rewards:
        failed = share_of(sum(failures.values()), rewards)
        measures |= {"reward": fmean(rewards), "reward_max": max(rewards), "failed": failed}
        measures |= {
            f"at_{end}": share_of(times, rewards) for end, times in zip(("worst", "best"), clamped)
        }
    if advantages:
        measures["advantage_max"] = max(map(abs, advantages))
    if tried:
        measures["different"] = len(set(tried)) / len(tried)
    measures |= {
        f"spread_{name}": float(value) for name, value in dict(body.get("spreads") or {}).items()
    }
    measures |= {name: float(body[name]) for name in _AS_NOTED if body.get(name) is not None}
    return Barrier(
        int(body.get("barrier", 0)),
        evaluations,
        measures,
        str(body.get("skip", "")),
        tuple(map(str, body.get("alarms") or ())),
        failures,
    )


def share_of(times: float, among: Sequence[object]) -> float:
    return times / len(among)


class Configured(Protocol):
    """A result of a strategy with settings and a model."""

    @property
    def config(self) -> JsonObject: ...

    @property
    def model(self) -> str: ...

    @property
    def pool(self) -> str: ...


def distinct_labels(firsts: Sequence[Configured], plain: Sequence[str]) -> list[str]:
    """Labels that are distinct as far as possible.

    A label that occurs several times is followed by the model and settings that differ.
    """
    facts = [{"model": r.model, **r.config, "pool": r.pool or "none"} for r in firsts]
    found = differences(facts, plain, _setting_text)
    return [f"{label} ({each})" if each else label for label, each in zip(plain, found)]


def differences(
    facts: Sequence[JsonObject], kinds: Sequence[object], text: Callable[[object], str]
) -> list[str]:
    """`NAME=VALUE, ...` of each one's facts that another one of its kind does not share."""
    found: list[str] = []
    for own, kind in zip(facts, kinds):
        alike = [other for other, its in zip(facts, kinds) if its == kind]
        differing = [n for n in own if any(other.get(n) != own[n] for other in alike)]
        found.append(", ".join(f"{name}={text(own[name])}" for name in differing))
    return found


def _setting_text(value: object) -> str:
    """A setting as text; for an object, its class and fields."""
    if isinstance(value, dict) and "object" in value:
        kind = str(value["object"]).rpartition(":")[2].lower()
        inner = ", ".join(
            f"{name}={_setting_text(each)}" for name, each in value.get("fields", {}).items()
        )
        return f"{kind}({inner})" if inner else kind
    return str(value)
