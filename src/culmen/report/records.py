"""A run as plain tables, read from its journal in one pass: what the analyses of TurboEvolve,
Section 6, are made from.

Rewards are scores turned so that higher is better; a gain is a candidate's reward minus that of the
parent it was asked to improve (the paper's delta).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol, get_args

import msgspec

from culmen.core.brief import Proposal
from culmen.core.errors import CulmenError, UserError
from culmen.core.evaluation import Observation, is_excused, weakest
from culmen.core.event import Event
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.store import views
from culmen.store.address import FILE, POINTER
from culmen.store.database import RunMeta
from culmen.store.evidence import FollowedLeader
from culmen.store.scores import FreshScore, fresh_scores, of_candidates

_PAGE = 2000
_KINDS = ("started", "done", "note")
_GRIDS = ("event", "grid")  # notes that tell how many cells are taken

Vector = tuple[float, ...]


Axis = Literal[
    "evaluations", "dollars", "seconds", "evaluation_steps", "proposal_steps", "proposals"
]
AXES: tuple[Axis, ...] = get_args(Axis)
BUDGETS: tuple[Axis, ...] = ("evaluations", "dollars", "seconds")  # axes that a budget may limit


class Moment(msgspec.Struct, frozen=True):
    """A run after so many evaluations: active seconds, known dollars, and the score of the
    candidate that was best then (in the task's own direction, None while nothing had scored).

    `evaluation_steps` counts evaluations that ran side by side once: the most that followed one
    another, each begun when the one before had ended (POLCA, Section 5). `proposal_steps` does so
    for requests, `proposals` counts the candidates that these brought. `candidate` is the one that
    was best ("": none).
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
    """One candidate of a reply. `rank` counts from 1 in the order of the reply; `status` is that of
    its evaluation, or `known` for a content that had been evaluated before, or `unseen` if it never
    was. `cell` is its place in the grid.
    """

    rank: int
    status: str
    reward: float | None = None
    cell: Vector | None = None


class CandidateRequest(msgspec.Struct, frozen=True):
    """One request for candidates (the paper's event), after `evaluations` of the run.

    `k` candidates were asked for. `distance` is how far the parent was from the candidates shown
    beside it, on average over those, in the grid's features, each scaled to 0..1 by all values that
    the run has seen; `inspiration` is the highest reward among those shown. None where the journal
    does not tell.
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
    """The state of one island's grid after `evaluations` of the run: cells taken, mean reward of
    their occupants.
    """

    evaluations: int
    island: int
    cells: int
    quality: float | None


class RunRecord(msgspec.Struct, frozen=True):
    """One run. `moments` has one row per evaluation, those included that failed or were made for
    the final choice; `unpriced` counts the calls whose price is unknown, `trust` is the level of
    the weakest score."""

    run: str
    task: str
    direction: str
    strategy: str
    config: dict[str, Any]
    model: str
    moments: tuple[Moment, ...] = ()
    asks: tuple[CandidateRequest, ...] = ()
    filled: tuple[Filled, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    unpriced: int = 0
    trust: str = ""
    pool: str = ""

    @property
    def evaluations(self) -> int:
        """All that were made, also those that failed."""
        return len(self.moments)


def read_run(run: Path | str) -> RunRecord:
    """The tables of one run; raises `UserError` where there is none, `JournalDamaged` where it
    cannot be read.
    """
    meta = views.meta(run)
    reader = RunReader(meta).follow(run)
    return RunRecord(
        run=meta.id,
        task=meta.task.name,
        direction=meta.task.objective.direction,
        strategy=str(meta.strategy.get("path", "")),
        config=meta.strategy.get("config") or {},
        model=meta.model_name,
        moments=tuple(reader.moments),
        asks=tuple(reader.asks()),
        filled=tuple(reader.filled),
        barriers=tuple(reader.barriers),
        unpriced=reader.unpriced,
        trust=weakest(reader.trust),
        pool=meta.pool,
    )


class RunReader:
    """Events in their order, turned into rows; of a run that goes on only what is new is read
    again.
    """

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
        self._noted: list[tuple[int, dict[str, Any]]] = []
        self._replies: list[tuple[int, Proposal, float | None]] = []

    def follow(self, run: Path | str) -> RunReader:
        """Count what is new."""
        while page := views.log(run, self._last, _PAGE, _KINDS):
            for event in page:
                self.see(event)
            self._last = page[-1].seq
        return self

    def see(self, event: Event) -> None:
        """Count one event."""
        entry = event.entry
        if entry.effect in self._steps:
            self._steps[entry.effect].see(entry.kind, entry.key)
        usage = getattr(entry.result, "usage", None)
        if entry.kind == "done" and usage is not None:
            self._dollars += usage.dollars
            self.unpriced += usage.unpriced
        self._leader.see(entry)
        if isinstance(entry.result, Observation):
            if not entry.body.get(
                "phase"
            ):  # the final choice's are never mixed into the means of the search
                self._observe(entry.result)
            best, name = self._leader.best or (None, "")
            steps = (self._steps["evaluate"].length, self._steps["propose"].length, self._proposals)
            self.moments.append(
                Moment(len(self.moments) + 1, entry.elapsed, self._dollars, best, *steps, name)
            )
        elif (
            entry.kind == "done" and isinstance(entry.result, Proposal) and entry.result.candidates
        ):
            self._proposals += len(entry.result.candidates)
            self._reply(entry.result)
        elif entry.kind == "note" and entry.body.get("note") in _GRIDS and "cells" in entry.body:
            self._note(entry.body)
        elif entry.kind == "note" and entry.body.get("note") == "barrier":
            self.barriers.append(barrier(entry.body, len(self.moments)))

    def asks(self) -> list[CandidateRequest]:
        """The requests as the strategy noted them; without such notes, as the replies in the
        journal tell them.
        """
        if self._noted:
            scale = _scale(body for _, body in self._noted)
            return [_noted(evaluations, body, scale) for evaluations, body in self._noted]
        return [self._plain(*reply) for reply in self._replies]

    def _observe(self, seen: Observation) -> None:
        if is_excused(seen):
            return
        if seen.score is None:
            self._failed.setdefault(seen.candidate, seen.status.value)
            return
        self.trust.add(seen.trust)
        count, mean = self._means.get(seen.candidate, (0, 0.0))
        reward = self._objective.reward(seen.score)
        self._means[seen.candidate] = (count + 1, mean + (reward - mean) / (count + 1))

    def _reply(self, reply: Proposal) -> None:
        parents = reply.candidates[0].parents
        _, mean = self._means.get(parents[0], (0, None)) if parents else (0, None)
        self._replies.append((len(self.moments), reply, mean))

    def _note(self, body: dict[str, Any]) -> None:
        island, quality = int(body.get("island", 0)), body.get("quality")
        self.filled.append(Filled(len(self.moments), island, int(body["cells"]), quality))
        if "candidates" in body and "k" in body:
            self._noted.append((len(self.moments), body))

    def _plain(self, evaluations: int, reply: Proposal, parent: float | None) -> CandidateRequest:
        children = tuple(
            self._child(rank, candidate.id) for rank, candidate in enumerate(reply.candidates, 1)
        )
        return CandidateRequest(evaluations, len(children), children, parent)

    def _child(self, rank: int, name: str) -> ReplyCandidate:
        if name in self._failed:
            return ReplyCandidate(rank, self._failed[name])
        if name not in self._means:
            return ReplyCandidate(rank, "unseen")
        return ReplyCandidate(rank, "ok", self._means[name][1])


class _Chain:
    """The longest chain of effects of a kind, of which each began when the one before it had
    ended.
    """

    def __init__(self) -> None:
        self.length = 0
        self._begun: dict[int, int] = {}

    def see(self, kind: str, key: int) -> None:
        """An effect began, or ended."""
        if kind == "started":
            self._begun[key] = self.length + 1
        elif kind == "done":
            self.length = max(self.length, self._begun.pop(key, self.length))


def _noted(
    evaluations: int, body: dict[str, Any], scale: list[tuple[float, float]]
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
                _vector(child.get("cell")),
            )
            for child in body["candidates"]
        ),
        parent=parent.get("reward"),
        cell=_vector(parent.get("cell")),
        island=int(body.get("island", 0)),
        turn=int(body.get("turn", 0)),
        next_k=body.get("next_k"),
        inspiration=max(rewards, default=None),
        distance=_mean_distance(parent, shown, scale),
    )


def _vector(values: Any) -> Vector | None:
    return None if values is None else tuple(float(value) for value in values)


def _scale(bodies: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Lowest and highest value of every feature that the notes hold."""
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
    parent: dict[str, Any], shown: list[dict[str, Any]], scale: list[tuple[float, float]]
) -> Any:
    places = [_scaled(each["features"], scale) for each in shown if each.get("features")]
    if not places or not parent.get("features"):
        return None
    home = _scaled(parent["features"], scale)
    return sum(math.dist(home, place) for place in places) / len(places)


def _scaled(features: list[float], scale: list[tuple[float, float]]) -> list[float]:
    return [
        (value - low) / (high - low) if high > low else 0.0
        for value, (low, high) in zip(features, scale)
    ]


# Runs as a comparison needs them: what each came to, on what scale, under which budget.


class Measurement(msgspec.Struct, frozen=True):
    """What was measured of a program after the search: its score, or its gain over the initial
    program.

    `margin` is half the width of the 95 % interval (None: not known), `count` the evaluations.
    """

    value: float
    margin: float | None = None
    count: int = 1


class ComparedRun(msgspec.Struct, frozen=True):
    """One run. `score` and `certified` are those of its best (None: nothing scored, nothing vouched
    for); `strict` is None where no verifier was asked. `moments` tell the best so far after every
    evaluation. `written` is how the strategy was asked for with settings, where that is known: a
    preset or a pool may mean others on another task.

    `program` is the id of its best ("": not known; equal ids are equal programs), with `margin` and
    `count` of its score, measured after the search if `confirmed`, on `cases` of the `of` cases of
    `split` (0: no data set). `initial_program` is the id of the initial program it was measured
    beside, `initial` that one's score on the same cases, `gain` how much better the best is, case
    by case (None: not measured). `fresh` are the scores of these two programs that were made for
    comparisons."""

    run: str
    task: str
    digest: str
    objective: Objective
    strategy: str
    config: dict[str, Any]
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
        """Whether its best is, letter by letter, what the search began with."""
        return self.program != "" and self.program == self.initial_program

    @property
    def contender(self) -> str:
        """What is compared: strategy, settings, model and pool, whatever the task."""
        return self.written or json.dumps(
            [self.strategy, self.config, self.model, self.pool], sort_keys=True, default=str
        )


def read_compared(run: Path | str) -> ComparedRun:
    """Read one run; raises `UserError` where there is none."""
    return compared_run(views.status(run), views.meta(run), read_run(run).moments)


def compared_run(now: views.RunStatus, about: RunMeta, moments: Iterable[Moment]) -> ComparedRun:
    """The same for a run whose best so far is known already."""
    best = now.best
    program, initial = programs_of(best, about.task)
    return ComparedRun(
        run=now.run,
        task=now.task,
        digest=about.task.digest,
        objective=about.task.objective,
        strategy=str(about.strategy.get("path", "")),
        config=about.strategy.get("config") or {},
        model=about.model_name,
        seed=now.seed,
        state=now.state,
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
        deterministic=about.task.deterministic,
        program=program,
        initial_program=initial,
        fresh=of_candidates(fresh_scores(Path(now.path)), (program, initial)),
        **({} if best is None else _measured(best)),
    )


def programs_of(best: RunResult | None, task: Task) -> tuple[str, str]:
    """Ids of a run's best and of the initial program that it is compared with: that of its final
    choice, itself where it is one of several, else the first; "" for none."""
    names = [candidate.id for candidate in task.candidates()]
    first = names[0] if names else ""
    if best is None or best.id in names:
        return ("", first) if best is None else (best.id, best.id)
    return best.id, first if best.initial is None else best.initial.id


def _measured(best: RunResult) -> dict[str, Any]:
    """The fields of a `ComparedRun` that say how its best was measured."""
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


def find_runs(place: Path) -> list[Path]:
    """The run at a place, or all below a folder, by name; raises `UserError` where there is
    none.
    """
    found: list[Path] = []
    for folder, below, files in os.walk(place):
        if FILE in files or POINTER in files:
            found.append(Path(folder))
            below.clear()  # what a run keeps is its own
        below[:] = sorted(name for name in below if name[0] != ".")
    if not found:
        raise UserError("there is no run here", where=str(place), fix="culmen status --all")
    return found


class LeftOut(msgspec.Struct, frozen=True):
    """A run that cannot be read, and why."""

    run: str
    why: str


def read_all(
    runs: Sequence[Path], written: Mapping[Path, str] | None = None
) -> tuple[list[ComparedRun], list[LeftOut]]:
    """Some runs, and those among them that cannot be read; raises the first one's error where none
    can.
    """
    known = written or {}
    found: list[ComparedRun] = []
    left_out: list[LeftOut] = []
    first: CulmenError | None = None
    for run in runs:
        try:
            found.append(msgspec.structs.replace(read_compared(run), written=known.get(run, "")))
        except CulmenError as error:
            first = first or error
            left_out.append(
                LeftOut(str(run), error.what if isinstance(error, UserError) else str(error))
            )
    if first is not None and not found:
        raise first
    return found, left_out


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
    """One barrier of a run, after `evaluations` of it. `measures` are its diagnostics by name,
    those of the update only where there was one; `skip` says why there was none, `failures` counts
    decisions that failed, by class."""

    number: int
    evaluations: int
    measures: dict[str, float]
    skip: str
    alarms: tuple[str, ...]
    failures: dict[str, int]


def barrier(body: Mapping[str, Any], evaluations: int) -> Barrier:
    """A note `barrier` as a row; figures that it lacks are left out."""
    rewards, advantages = _numbers(body.get("rewards")), _numbers(body.get("advantages"))
    failures = {str(name): int(times) for name, times in dict(body.get("failures") or {}).items()}
    clamped, tried = (
        _numbers(body.get("clamped")),
        [_kind(line) for line in body.get("experiments") or () if line],
    )
    measures: dict[str, float] = {
        "version": float(body.get("version", 0)),
        "alpha": float(body.get("alpha", 0.0)),
    }
    if rewards:
        measures |= {
            "reward": fmean(rewards),
            "reward_max": max(rewards),
            "failed": share_of(sum(failures.values()), rewards),
        }
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


def _kind(experiment: Any) -> str:
    """A choice without the number that tells one draw from the menu from another."""
    return str(experiment).partition(" (draw ")[0]


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values or ()]


def share_of(times: float, among: Sequence[Any]) -> float:
    return times / len(among)


class Configured(Protocol):
    """Whatever was made by a strategy with settings and a model."""

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def model(self) -> str: ...

    @property
    def pool(self) -> str: ...


def told_apart(firsts: Sequence[Configured], plain: Sequence[str]) -> list[str]:
    """Plain labels; behind those that occur several times the model and settings in which they
    differ.
    """
    labels: list[str] = []
    for label, record in zip(plain, firsts):
        alike = [other for other, name in zip(firsts, plain) if name == label]
        facts = {"model": record.model, **record.config, "pool": record.pool or "none"}
        kinds = [
            {"model": other.model, **other.config, "pool": other.pool or "none"} for other in alike
        ]
        differing = [
            name for name in facts if any(other.get(name) != facts[name] for other in kinds)
        ]
        told = ", ".join(f"{name}={_short(facts[name])}" for name in differing)
        labels.append(f"{label} ({told})" if told else label)
    return labels


def _short(value: object) -> str:
    """A setting as text; of an object only its fields."""
    if isinstance(value, dict) and "object" in value:
        kind = str(value["object"]).rpartition(":")[2].lower()
        inner = ", ".join(
            f"{name}={_short(each)}" for name, each in value.get("fields", {}).items()
        )
        return f"{kind}({inner})" if inner else kind
    return str(value)
