"""Makes the pools of programs that come with culmen, and certifies them again.

    python bench/bench_baselines.py --seconds 600 --out CONSTRUCTIONS     # long searches
    culmen compare --suite turboevolve --untimed --seeds 3 --budget evaluations=800 --out RUNS
    python bench/make_pools.py --constructions CONSTRUCTIONS --runs RUNS  # writes the pools
    python bench/make_pools.py --add --piece NAME --constructions CONSTRUCTIONS  # adds those with the piece, or these
    python bench/make_pools.py --check                                    # certifies the present pools

A pool has programs of three origins, each named in its record: put together from the pieces in
bench/pool_programs; the same around a construction that a long search found (one file
`TASK*.json` each); and found by runs of the offline proposer (without `--runs` those of the
present pool). Every program is certified by the task's exact verifier in the jail, within the
task's limits; the best are taken, and of the rest those that differ most from them. These are
certified once more, with another random seed and the matrix routines of another processor: kept are
programs that give the same value.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent / "pool_programs"))

from compose import compose_program
from recipes import task_recipes

import culmen.extensions.builtin
from culmen import __version__
from culmen import tasks as taskfiles
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.jail.fork_server import ENVIRONMENT
from culmen.run import pools
from culmen.run.pools import Pool, PoolMember, PoolSource
from culmen.run.study import Study
from culmen.store import views

OUT = Path(culmen.extensions.builtin.__path__[0]) / "pools"
LICENCE = "Apache-2.0"
OF_EACH = 30  # candidates of a run looked at
TRIED, KEPT, BEST, FROM_RUNS = (
    76,
    60,
    16,
    14,
)  # programs certified again, and kept; of them the best; at most those of runs
ALIKE = 1e-9  # relative difference of two certified values that are taken for the same
MOST_BYTES = 250_000
PIECES = PoolSource("bench/pool_programs", culmen=__version__)
OTHER_PROCESSOR = {"OPENBLAS_CORETYPE": "Nehalem"}


@dataclass(frozen=True)
class Certify:
    """Certifies every initial program once."""

    async def search(self, lab: Lab) -> None:
        await lab.gather(*(lab.evaluate(program, certify=True) for program in lab.seeds))


def certified_values(task: Task, members: Sequence[PoolMember], seed: int) -> dict[str, float]:
    """The certified value of each member that has one, by its id."""
    seeded = msgspec.structs.replace(task, seeds=tuple(member.parts for member in members))
    with tempfile.TemporaryDirectory() as folder:
        budget = Budget(evaluations=2 * len(members) + 8, final=0.0)  # room for all at once
        options = {"budget": budget, "random_seed": seed, "workers": 2}
        Study.create(seeded, Certify(), run_dir=f"{folder}/run", **options).run(progress=False)
        seen = views.stream_observations(Path(folder) / "run")
        return {each.candidate: each.certified for each in seen if each.certified is not None}


def with_certified_scores(task: Task, members: Sequence[PoolMember], seed: int) -> list[PoolMember]:
    """The members that are certified, with the certified value as their score, best first."""
    found = certified_values(task, members, seed)
    sign = 1.0 if task.objective.direction == "max" else -1.0
    scored = [
        msgspec.structs.replace(member, score=found[member.candidate.id], count=1)
        for member in members
        if member.candidate.id in found
    ]
    return sorted(scored, key=lambda member: -sign * member.score)


def certified_again(task: Task, members: Sequence[PoolMember]) -> list[PoolMember]:
    """The members that get the same value with the matrix routines of another processor."""
    ENVIRONMENT.update(OTHER_PROCESSOR)
    try:
        found = certified_values(task, members, 2)
    finally:
        for name in OTHER_PROCESSOR:
            del ENVIRONMENT[name]
    same = [m for m in members if is_alike(found.get(m.candidate.id), m.score)]
    return [msgspec.structs.replace(member, count=2) for member in same]


def is_alike(value: float | None, other: float) -> bool:
    """True if two certified values differ by rounding at most."""
    return value is not None and abs(value - other) <= ALIKE * abs(other)


def composed_members(task: Task, constructions: Path | None) -> list[PoolMember]:
    """Programs from the pieces; `source` 0: the pieces alone, 1: around a construction."""
    files = sorted(constructions.glob(f"{task.name}*.json")) if constructions else []
    known = [flat_numbers(json.loads(file.read_text())) for file in files]
    if task.name == "circle_packing":  # the centers; the radii follow from them
        known = [numbers[:52] for numbers in known]
    found = dict[str, PoolMember]()
    for recipe in task_recipes(task.name, known):
        parts = compose_program(task, recipe)
        source = int("NUMBERS" in recipe.constants)
        member = PoolMember(parts, operator=recipe.label, source=source)
        found.setdefault(member.candidate.id, member)
    return list(found.values())


def flat_numbers(output: object) -> list[float]:
    """The numbers of a nested list, in order."""
    if isinstance(output, list):
        return list(chain.from_iterable(map(flat_numbers, output)))
    return [float(output)]


def run_pool(task: Task, folder: Path | None) -> Pool:
    """Programs that runs found: of a folder with runs, or those in the present pool."""
    if folder is None:
        present = pools.load_pool(task.name)
        taken = [m for m in present.members if m.source is not None]
        own = [m for m in taken if present.sources[m.source].strategy]
        return msgspec.structs.replace(present, members=tuple(own))
    runs = [file.parent for file in sorted(folder.rglob("journal.db"))]
    done = [run for run in runs if views.run_status(run).state == "finished"]
    fitting = [run for run in done if views.run_meta(run).task.digest == task.digest]
    return pools.build_pool(fitting, best=OF_EACH, licence=LICENCE)


def varied(members: list[PoolMember], best: int, most: int) -> list[PoolMember]:
    """The best of some members, and of the rest those that differ most from them."""
    head, rest = members[:best], {m.candidate.id: m for m in members[best:]}
    known = [member.candidate for member in head]
    others = pools.farthest_candidates(known, [m.candidate for m in rest.values()], most - best)
    return [*head, *(rest[other.id] for other in others)]


def made_pool(task: Task, constructions: Path | None, runs: Path | None, version: int) -> Pool:
    """The pool of one task, best first."""
    old = run_pool(task, runs)
    offline = with_certified_scores(task, varied(list(old.members), 4, FROM_RUNS), 1)
    composed = with_certified_scores(task, composed_members(task, constructions), 1)
    chosen = varied(composed, BEST, TRIED - len(offline))
    sources = [*old.sources, PIECES]
    if constructions:
        optimiser = "bench/pool_programs around the result of a long optimisation"
        sources.append(PoolSource(optimiser, culmen=__version__))
    moved = [msgspec.structs.replace(m, source=len(old.sources) + m.source) for m in chosen]
    sign = -1.0 if task.objective.direction == "max" else 1.0
    members = certified_again(task, [*offline, *moved])
    members = sorted(members, key=lambda member: sign * member.score)
    members = varied(members, BEST, KEPT) if len(members) > KEPT else members
    members.sort(key=lambda member: sign * member.score)
    used = sorted({member.source for member in members})
    members = [msgspec.structs.replace(m, source=used.index(m.source)) for m in members]
    kept = tuple(sources[i] for i in used)
    direction = task.objective.direction
    pool = Pool(task.name, task.digest, direction, tuple(members), kept, LICENCE)
    return msgspec.structs.replace(pool, version=version)


def longer_pool(task: Task, constructions: Path | None, piece: str) -> Pool:
    """The present pool with programs around constructions or with a piece, certified as all are."""
    old = pools.load_pool(task.name)
    known = {member.candidate.id for member in old.members}
    composed = composed_members(task, constructions)
    made = [m for m in composed if m.source or (piece and piece in m.operator)]
    fresh = [m for m in made if m.candidate.id not in known]
    fresh = certified_again(task, with_certified_scores(task, fresh, 1))
    around = PoolSource(
        "bench/pool_programs around the result of a long optimisation", culmen=__version__
    )
    sources = (*old.sources, *(each for each in (PIECES, around) if each not in old.sources))
    at = sources.index(PIECES), sources.index(around)
    placed = [msgspec.structs.replace(m, source=at[m.source]) for m in fresh]
    sign = -1.0 if task.objective.direction == "max" else 1.0
    members = sorted([*old.members, *placed], key=lambda member: sign * member.score)
    return msgspec.structs.replace(
        old, members=tuple(members), sources=sources, version=old.version + 1
    )


def check_pool(task: Task) -> int:
    """Certify a pool again; the number of its programs without the value that it states."""
    pool = pools.load_pool(task.name)
    now = certified_values(task, pool.members, 3)
    wrong = 0
    for member in pool.members:
        value = now.get(member.candidate.id)
        if not is_alike(value, member.score):
            wrong += 1
            print(f"{task.name} {member.candidate.id}: {value}, recorded {member.score}")
    same = "the same task" if pool.digest == task.digest else "ANOTHER VERSION OF THE TASK"
    print(
        f"{task.name} version {pool.version}: {len(pool.members) - wrong} of {len(pool.members)} "
        f"programs certified as recorded, best {pool.members[0].score}; {same}",
        flush=True,
    )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only certify the pools again")
    parser.add_argument("--add", action="store_true", help="keep the present pool, add to it")
    parser.add_argument("--piece", default="", help="with --add: programs with this piece, too")
    parser.add_argument("--constructions", type=Path, help="folder with TASK*.json, an output each")
    parser.add_argument("--runs", type=Path, help="folder with finished runs")
    parser.add_argument("--tasks", default="", help="only these, with commas")
    given = parser.parse_args()
    names = given.tasks.split(",") if given.tasks else list(pools.shipped_pools())
    wrong = defaultdict[str, int](int)
    for name in names:
        task = taskfiles.load(taskfiles.example_path(name))
        if given.check:
            wrong[name] = check_pool(task)
            continue
        version = pools.load_pool(name).version + 1
        if given.add:
            pool = longer_pool(task, given.constructions, given.piece)
        else:
            pool = made_pool(task, given.constructions, given.runs, version)
        file = OUT / f"{name}.json"
        pools.save_pool(pool, file)
        size = file.stat().st_size
        print(
            f"{name} version {version}: {len(pool.members)} programs, best {pool.members[0].score}, {size} bytes",
            flush=True,
        )
        if size > MOST_BYTES:
            sys.exit(f"{file} is larger than {MOST_BYTES} bytes")
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
