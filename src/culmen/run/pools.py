"""Pools: files of candidates to start a search from, made of runs or received from others.

    pool = build(["runs/one", "runs/two"], best=20, licence="CC-BY-4.0")
    save(pool, "circles.json")
    task = seeded(task, load("circles.json"))  # then culmen.Study.create(task, "turboevolve", ...)

A pool from elsewhere is not trusted: its texts must keep to the task's surface, they run in the
same jail as every candidate, and its scores are claims. A strategy may begin with them
(`turboevolve(pool_scores=given)`); no result depends on them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.extensions import all_parts
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.core.task import Task

FORMAT = "culmen-pool-1"
MOST_BYTES = 256 * 2**20
_SEED = re.compile("seed-[0-9]+(-untimed)?")
SHARE = 0.25  # share of the evaluations for a pool's candidates, at most


class PoolSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that candidates came from.

    Its name, strategy, models by role, random seed and version of culmen. A run that a comparison
    named `seed-3` goes by `STRATEGY/seed-3`.
    """

    run: str
    strategy: str = ""
    models: dict[str, str] = {}
    seed: int = 0
    culmen: str = ""


class PoolMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate with its claimed score.

    The mean over `count` evaluations (or a certified value); `source` is its index in `sources`.
    """

    parts: dict[str, str]
    score: float | None = None
    count: int = 0
    operator: str = ""
    model: str = ""
    source: int | None = None

    @property
    def candidate(self) -> Candidate:
        """The candidate; its id follows from its content."""
        return Candidate.of(self.parts)


class Pool(msgspec.Struct, frozen=True):
    """Candidates for one task, best first by their claims.

    `task` is the task's name, `digest` its digest. `version` counts the editions of a pool that is
    published under one name.
    """

    task: str
    digest: str
    direction: Literal["max", "min"]
    members: tuple[PoolMember, ...]
    sources: tuple[PoolSource, ...] = ()
    licence: str = ""
    format: str = FORMAT
    version: int = 1


def build_pool(runs: Sequence[str | Path], best: int = 50, licence: str = "") -> Pool:
    """The best candidates of runs of one task, `best` of each at most, without failed ones."""
    from culmen.store import views

    pools: list[Pool] = []
    for run in runs:
        folder = views.find_run(run)
        meta = views.run_meta(folder)
        rows = views.candidate_rows(folder, order="best", limit=best, failed=False)
        members = tuple(
            PoolMember(
                views.candidate_detail(folder, row.id, observations=0, children=0).parts,
                row.mean if row.certified is None else row.certified,
                row.count,
                row.operator,
                row.model,
                0,
            )
            for row in rows
            if row.mean is not None and not row.barred
        )
        path = str(meta.strategy.get("path", ""))
        source = PoolSource(
            _source_run_name(folder, meta.id, path), path, meta.models, meta.seed, meta.culmen
        )
        task = meta.task
        pools.append(
            Pool(task.name, task.digest, task.objective.direction, members, (source,), licence)
        )
    return merge_pools(pools, licence)


def _source_run_name(folder: Path, name: str, path: str) -> str:
    """The name of a run.

    In a comparison every strategy has a `seed-3`, so the strategy's name is put before it.
    """
    from culmen.strategies.catalog import strategy_name

    if not _SEED.fullmatch(name):
        return name
    strategy = strategy_name(path)
    return f"{folder.parent.name if folder.parent.name.startswith(strategy) else strategy}/{name}"


def merge_pools(pools: Sequence[Pool], licence: str = "") -> Pool:
    """One pool of several for the same task.

    Of equal contents the one with more claimed evaluations is kept.
    """
    if not pools:
        raise UserError(
            "no pool and no run named", where="culmen runs pool", fix="name at least one"
        )
    first = pools[0]
    for other in pools[1:]:
        if (other.digest, other.direction) != (first.digest, first.direction):
            raise UserError(
                f"these are not of one task: '{first.task}' and '{other.task}'",
                where="task digest",
                fix="make one pool per task; a task whose evaluator changed is another task",
            )
    return Pool(
        first.task,
        first.digest,
        first.direction,
        _join_members(pools),
        tuple(source for pool in pools for source in pool.sources),
        licence or _common_licence(pools),
    )


def without_best(pool: Pool, share: float) -> Pool:
    """The pool without this share of its candidates, the best by its claims.

    TurboEvolve, Section 4.3.
    """
    return msgspec.structs.replace(pool, members=pool.members[round(share * len(pool.members)) :])


def shipped_pools() -> dict[str, Path]:
    """The pools that come with culmen, by the name of their built-in task."""
    roots = [Path(package.__path__[0]) for package in all_parts("examples").values()]
    return {file.stem: file for root in roots for file in sorted((root / "pools").glob("*.json"))}


def pool_file(path: str | Path) -> Path:
    """A pool's file: the path, or the shipped pool of the built-in task of this name.

    The path of another program's folder of results is unchanged.
    """
    file = Path(path).expanduser()
    is_pool = file.is_file() or _foreign_pool(file) is not None
    return file if is_pool else shipped_pools().get(str(path), file)


def _foreign_pool(file: Path) -> Pool | None:
    """The pool of another program's results at this place; None if it holds none."""
    readers = all_parts("pools").values() if file.exists() else ()
    return next((pool for read in readers if (pool := read(file)) is not None), None)


@boundary()
def load_pool(path: str | Path) -> Pool:
    """A pool from its file or name (see `pool_file`), or from another program's folder.

    Raises `UserError` for an invalid pool.
    """
    file = pool_file(path)
    foreign = _foreign_pool(file)
    if foreign is not None:
        return foreign
    if file.is_dir():
        raise UserError(
            "this folder is no pool",
            where=file,
            fix="name a file of culmen runs pool build RUN, or another program's folder of results",
        )
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UserError(
                "the pool is too large",
                where=file,
                fix=f"at most {MOST_BYTES >> 20} MB are read",
            )
        pool = msgspec.json.decode(file.read_bytes(), type=Pool)
    except OSError as error:
        fix = (
            "check the path; pools that come with culmen go by their task's name: "
            f"{', '.join(shipped_pools())}"
        )
        raise UserError(f"cannot read the pool: {error.strerror}", where=file, fix=fix) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"this is no pool: {error}", where=file, fix="make one: culmen runs pool build RUN"
        ) from None
    if pool.format != FORMAT:
        raise UserError(
            f"unknown pool format '{pool.format}'", where=file, fix="use a newer culmen"
        )
    return pool


def pool_label(path: str | Path) -> str:
    """A run's label for its pool: the file's name and the first digits of its digest.

    Raises as `load_pool` does.
    """
    pool, file = load_pool(path), pool_file(path)
    content = file.read_bytes() if file.is_file() else msgspec.json.encode(pool)
    return f"{file.name} {hashlib.sha256(content).hexdigest()[:8]}"


def save_pool(pool: Pool, path: str | Path) -> None:
    """Write the file atomically."""
    file = Path(path).expanduser()
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(pool), indent=1) + b"\n")
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"cannot write the pool: {error.strerror}", where=file, fix="name another place"
        ) from None


def with_carried_pool(task: Task, pool: Pool, most: int | None = None) -> Task:
    """The task with the pool's candidates as carried ones, and their claimed scores.

    Its notes name the candidates left out. All are evaluated by the search before anything else,
    unless the strategy is set otherwise. If more than `most` fit, the `most` that differ most
    are taken (`apart`): the claims of the file cannot choose. Raises `UserError` if no candidate
    fits the task.
    """
    from culmen.tasks import surface_fault

    own = {c.digest for c in task.starting_candidates()}
    fitting, stated, faults = dict[str, Candidate](), dict[str, float](), Counter[str]()
    for member in pool.members:
        fault, candidate = surface_fault(task, member.candidate), member.candidate
        if fault:
            faults[fault] += 1
        elif candidate.digest not in own:
            fitting.setdefault(candidate.digest, candidate)
            if member.score is not None and not task.objective.score_fault(member.score):
                stated.setdefault(candidate.id, member.score)
    if not fitting and faults:
        raise UserError(
            f"no candidate of the pool fits the task: {_fault_counts_text(faults)}",
            where=f"pool for task '{pool.task}'",
            fix="culmen runs pool show FILE says what it was made for",
        )
    found = list(fitting.values())
    taken = (
        found
        if most is None or len(found) <= most
        else farthest_candidates(list(task.starting_candidates()), found, most)
    )
    notes = [f"carried from the pool, besides the initial program: {len(taken)}"]
    if len(taken) < len(found):
        notes.append(
            f"of {len(found)} candidates of the pool that fit, these differ most; --set pool_share "
            "takes more"
        )
    if pool.digest != task.digest:
        notes.append(f"the pool was made for another task or another version of it ('{pool.task}')")
    if faults:
        notes.append(
            f"{faults.total()} candidates of the pool do not fit the task: "
            f"{_fault_counts_text(faults)}"
        )
    carried = (*task.carried, *(candidate.parts for candidate in taken))
    stated = {c.id: stated[c.id] for c in taken if c.id in stated}
    return msgspec.structs.replace(
        task, carried=carried, stated=stated, notes=(*task.notes, *notes)
    )


def carried_allowance(task: Task, evaluations: int | None, share: float = SHARE) -> int | None:
    """Largest number carried from a pool; None: unlimited, without a budget of evaluations.

    Looking at each takes at most this share of the evaluations; at least one.
    """
    if evaluations is None:
        return None
    return max(1, int(share * evaluations / max(1, len(task.split("train")))))


def farthest_candidates(
    known: Sequence[Candidate], found: Sequence[Candidate], most: int
) -> list[Candidate]:
    """`most` of the candidates found, each the farthest from those known and taken before it.

    Greedy k-centre, in the order taken; by the hashing embedder, so that it is free and depends on
    the texts alone.
    """
    import numpy as np

    from culmen.models.embed import HashingEmbedder

    vectors = HashingEmbedder().embed([candidate.text for candidate in (*known, *found)])
    new = vectors[len(known) :]
    gaps = np.full(len(found), np.inf)
    for vector in vectors[: len(known)]:
        gaps = np.minimum(gaps, np.linalg.norm(new - vector, axis=1))
    taken: list[int] = []
    for _ in range(min(most, len(found))):
        taken.append(int(gaps.argmax()))
        gaps = np.minimum(gaps, np.linalg.norm(new - new[taken[-1]], axis=1))
        gaps[taken] = -1.0
    return [found[i] for i in taken]


def _join_members(pools: Sequence[Pool]) -> tuple[PoolMember, ...]:
    best: dict[str, PoolMember] = {}
    offset = 0
    for pool in pools:
        for member in pool.members:
            source = None if member.source is None else member.source + offset
            moved, key = msgspec.structs.replace(member, source=source), member.candidate.digest
            if key not in best or best[key].count < moved.count:
                best[key] = moved
        offset += len(pool.sources)
    sign = -1.0 if pools[0].direction == "max" else 1.0
    return tuple(sorted(best.values(), key=lambda m: (m.score is None, sign * (m.score or 0.0))))


def _common_licence(pools: Sequence[Pool]) -> str:
    found = list(dict.fromkeys(pool.licence for pool in pools))
    if len(found) > 1:
        shown = ", ".join(name or "none stated" for name in found)
        raise UserError(
            f"the pools have different licences: {shown}",
            where="licence",
            fix="state one with --licence",
        )
    return found[0]


def _fault_counts_text(faults: Counter[str]) -> str:
    return ", ".join(
        f"{count} {fault.replace('_', ' ')}" for fault, count in sorted(faults.items())
    )


def pool_summary(pool: Pool) -> JsonObject:
    """Plain data about a pool, without the texts."""
    rows = [
        {
            "id": member.candidate.id,
            "claimed_score": member.score,
            "count": member.count,
            "operator": member.operator,
            "model": member.model,
            "run": _member_run(pool, member.source),
            "characters": sum(map(len, member.parts.values())),
        }
        for member in pool.members
    ]
    about = {
        "task": pool.task,
        "digest": pool.digest,
        "direction": pool.direction,
        "licence": pool.licence,
        "version": pool.version,
    }
    return about | {"sources": msgspec.to_builtins(pool.sources), "candidates": rows}


def _member_run(pool: Pool, source: int | None) -> str:
    return (
        pool.sources[source].run if source is not None and 0 <= source < len(pool.sources) else ""
    )
