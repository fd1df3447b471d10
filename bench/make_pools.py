"""Makes the pools of programs that come with culmen, from finished runs of the built-in mathematical tasks.

    culmen bench turboevolve --untimed --plain 0 --seeds 3 --budget evaluations=800 --out RUNS
    python bench/make_pools.py RUNS            # writes src/culmen/tasks/pools/TASK.json for every task found

Of each run the best candidates are looked at; of all, the best and those that differ most from them are certified by
the exact verifier, twice, with different random seeds and `SECONDS` for an evaluation. Kept is what gave the
same certified value both times: that value is the score which the pool states.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

import culmen.tasks
from culmen.core.ports import Lab
from culmen.core.usage import Budget
from culmen.evaluate import taskfiles
from culmen.run import pools
from culmen.run.pools import Pool, PoolMember
from culmen.store import views
from culmen.study import Study

OUT = Path(culmen.tasks.__path__[0]) / "pools"
LICENCE = "Apache-2.0"
OF_EACH, BEST, APART = 30, 8, 16  # candidates of a run looked at; certified: the best, and others that differ
SECONDS = 12.0
ALIKE = 1e-9  # relative difference of two certified values that are taken for the same
MOST_BYTES = 200_000


@dataclass(frozen=True)
class Certify:
    """Certifies every initial program once."""

    async def search(self, lab: Lab) -> None:
        await lab.gather(*(lab.evaluate(program, certify=True) for program in lab.seeds))


def found(folder: Path) -> dict[str, list[Path]]:
    """Finished runs below the folder, by the name of a built-in task."""
    runs = defaultdict[str, list[Path]](list)
    for run in sorted(path.parent for path in folder.rglob("journal.db") if not path.parent.name.startswith(".")):
        meta = views.run_meta(run)
        if views.run_status(run).state == "finished" and meta.task.digest == _builtin_digest(meta.task.name):
            runs[meta.task.name].append(run)
    return runs


def _builtin_digest(name: str) -> str:
    return taskfiles.load(taskfiles.example_path(name)).digest


def chosen(pool: Pool) -> list[PoolMember]:
    """The best of a pool, and of the rest those that differ most from them."""
    best, rest = pool.members[:BEST], {member.candidate.id: member for member in pool.members[BEST:]}
    others = pools.farthest_candidates([m.candidate for m in best], [m.candidate for m in rest.values()], APART)
    return [*best, *(rest[other.id] for other in others)]


def certified(task: str, members: list[PoolMember], seed: int) -> dict[str, float]:
    """The certified value of each member that has one, by its id."""
    plain = taskfiles.load(taskfiles.example_path(task))
    limits = msgspec.structs.replace(plain.limits, seconds=SECONDS)
    seeded = msgspec.structs.replace(plain, seeds=tuple(m.parts for m in members), limits=limits)
    with tempfile.TemporaryDirectory() as folder:
        budget = Budget(evaluations=len(members), final=0.0)
        Study.create(seeded, Certify(), budget=budget, random_seed=seed, workers=2, run_dir=f"{folder}/run").run(
            progress=False
        )
        seen = views.stream_observations(Path(folder) / "run")
        return {each.candidate: each.certified for each in seen if each.certified is not None}


def made(task: str, runs: list[Path]) -> Pool:
    """The pool of one task, best first."""
    whole = pools.build_pool(runs, best=OF_EACH, licence=LICENCE)
    members = chosen(whole)
    first, second = (certified(task, members, seed) for seed in (1, 2))
    sign = 1.0 if whole.direction == "max" else -1.0
    kept = [
        msgspec.structs.replace(member, score=min(values, key=lambda value: sign * value), count=2)
        for member, values in _both(members, first, second)
        if abs(values[0] - values[1]) <= ALIKE * abs(values[0])
    ]
    kept.sort(key=lambda member: -sign * (member.score or 0.0))
    used = sorted({member.source for member in kept if member.source is not None})
    moved = [msgspec.structs.replace(m, source=None if m.source is None else used.index(m.source)) for m in kept]
    return msgspec.structs.replace(whole, members=tuple(moved), sources=tuple(whole.sources[i] for i in used))


def _both(
    members: list[PoolMember], first: dict[str, float], second: dict[str, float]
) -> Iterator[tuple[PoolMember, tuple[float, float]]]:
    for member in members:
        name = member.candidate.id
        if name in first and name in second:
            yield member, (first[name], second[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder with finished runs")
    parser.add_argument("--tasks", default="", help="only these, with commas")
    given = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    for task, runs in found(given.runs).items():
        if given.tasks and task not in given.tasks.split(","):
            continue
        pool, file = made(task, runs), OUT / f"{task}.json"
        if not pool.members:
            sys.exit(f"{task}: nothing was certified twice alike")
        pools.save_pool(pool, file)
        size = file.stat().st_size
        print(f"{task}: {len(pool.members)} programs of {len(runs)} runs, best {pool.members[0].score}, {size} bytes")
        if size > MOST_BYTES:
            sys.exit(f"{file} is larger than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
