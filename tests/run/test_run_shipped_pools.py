"""The pools that come with culmen: real programs that score as their records state.

They are programs of the present tasks.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from culmen import tasks as taskfiles
from culmen.core.usage import Budget
from culmen.run import pools
from culmen.run.study import Study
from culmen.store import views

pytestmark = pytest.mark.extension("builtin")
NAMES = sorted(pools.shipped_pools())


class Certify:
    """Certifies every initial program once."""

    async def search(self, lab):
        await lab.gather(*(lab.evaluate(program, certify=True) for program in lab.seeds))


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_is_of_the_present_task_large_varied_and_says_where_it_comes_from(name: str):
    task, pool = taskfiles.load(taskfiles.example_path(name)), pools.load_pool(name)
    assert (
        pool.digest == task.digest and pool.direction == task.objective.direction and pool.licence
    )
    candidates = {member.candidate.id for member in pool.members}
    assert len(candidates) == len(pool.members) >= 50
    assert not any(taskfiles.surface_fault(task, member.candidate) for member in pool.members)
    assert all(
        member.source is not None and pool.sources[member.source].run for member in pool.members
    )
    assert len({member.operator for member in pool.members}) >= 10
    sign = 1 if pool.direction == "min" else -1
    assert list(pool.members) == sorted(pool.members, key=lambda member: sign * (member.score or 0))


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("name", ("circle_packing", "min_max_distance_ratio", "uncertainty_ineq"))
def test_programs_of_a_pool_are_certified_in_the_jail_as_recorded(name: str, tmp_path: Path):
    pytest.importorskip("scipy")
    pool, task = pools.load_pool(name), taskfiles.load(taskfiles.example_path(name))
    untimed = [
        member for member in pool.members if "process_time" not in "".join(member.parts.values())
    ]
    sample = {member.candidate.id: member for member in (untimed[0], untimed[-1])}
    seeded = msgspec.structs.replace(task, seeds=tuple(member.parts for member in sample.values()))
    budget = Budget(evaluations=8, final=0.0)
    Study.create(seeded, Certify(), run_dir=tmp_path / "run", budget=budget, workers=2).run(
        progress=False
    )
    seen = views.stream_observations(tmp_path / "run")
    found = {each.candidate: each.certified for each in seen if each.certified is not None}
    assert {id: member.score for id, member in sample.items()} == pytest.approx(found, rel=1e-6)


def test_the_best_packing_is_near_the_best_known():
    best = pools.load_pool("circle_packing").members[0].score
    assert best is not None and best >= 2.63
