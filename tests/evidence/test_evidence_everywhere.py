"""Every surface names the best that the engine names, at any moment of a run."""

from dataclasses import replace

import msgspec
import pytest
from bench.truth.worlds import FAMILY, FrontWorld

from culmen.cli.pages import result_pairs
from culmen.core.brief import Proposal
from culmen.core.event import Entry
from culmen.core.usage import Budget
from culmen.engine.search import Search
from culmen.extensions.baselines.map_elites import MapElites
from culmen.extensions.bench.records import read_run
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from culmen.report.summary import summarize_run
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.virtual import simulate

STRATEGIES = {"pedigree": PedigreeSearch(), "best_of_n": BestOfN(), "map_elites": MapElites()}
WORLDS = {
    name: FAMILY[name]
    for name in (
        "smooth",
        "smooth, noise 2 steps",
        "0/1 scores",
        "data set",
        "broken children",
        "flaky",
        "twins",
        "losses over decades",
        "Student noise",
        "right answers",
    )
} | {"front": FrontWorld()}
EVALUATIONS = 60
STOPS = {"max": ((1, 15), (3, 80)), "min": ((2, 40), (4, 110))}  # seeds and results until then


def run_to(folder, world, strategy, seed, results, direction="max"):
    """The search as it was after `results` results, its journal in the folder."""
    world = replace(world, number=seed) if hasattr(world, "number") else world
    task = world.task()
    if direction == "min" and not task.objective.metrics:
        task = msgspec.structs.replace(
            task, objective=msgspec.structs.replace(task.objective, direction="min")
        )
    meta = RunMeta(
        "run",
        task,
        {"path": "x:X", "config": {}},
        models={},
        budget=Budget(evaluations=EVALUATIONS),
    )
    budget = Budget(evaluations=EVALUATIONS, calls=40 * EVALUATIONS)
    seeds = Proposal(candidates=tuple(c for c in task.initial_candidates()))
    with SqlJournal.create(folder, meta) as journal:
        journal.append(
            [Entry("note", effect="candidates", body={"note": "candidates"}, result=seeds)]
        )
        done = simulate(
            strategy, task, world, budget, seed=seed, workers=2, journal=journal, kill_after=results
        )
    return done.search


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("direction", STOPS)
def test_an_interrupted_run_has_one_best_everywhere(tmp_path, world, strategy, direction):
    for seed, results in STOPS[direction]:
        folder = tmp_path / f"run-{seed}"
        search = run_to(folder, WORLDS[world], STRATEGIES[strategy], seed, results, direction)
        verdict, best = search.result_so_far, views.run_status(folder).best
        assert (verdict is None) == (best is None)
        if verdict is None or best is None:
            continue
        assert msgspec.json.encode(best) == msgspec.json.encode(verdict)
        assert views.candidate_rows(folder, "best", limit=1)[0].id == verdict.id
        page = overview_page(Digest(folder), {})
        assert page["best"]["id"] == verdict.id
        assert page["summary"]["lines"][:2] == list(summarize_run(folder).lines[:2])
        assert verdict.id in result_pairs(views.run_status(folder), folder)[0][1]


@pytest.mark.parametrize("world", ["smooth, noise 2 steps", "flaky", "data set"])
def test_the_leader_along_a_run_is_the_engines_at_every_checkpoint(tmp_path, world):
    folder, made = tmp_path / "run", WORLDS[world]
    run_to(folder, made, STRATEGIES["pedigree"], 5, 10_000)
    points = views.leader_course(folder, views.run_meta(folder))
    assert len(points) > 20
    task = replace(made, number=5).task()
    search = Search(
        STRATEGIES["pedigree"], task, Budget(evaluations=EVALUATIONS, calls=40 * EVALUATIONS), 5, 2
    )
    search.start()
    leaders: dict[int, str | None] = {}
    with SqlJournal.open(folder, write=False) as journal:
        for event in journal.read():
            if event.entry.kind == "done":
                search.feed(event.entry)
                leaders[event.seq] = search.evidence.leader()
    assert [leaders[point.seq] for point in points] == [point.candidate for point in points]
    assert read_run(folder).moments[-1].evaluations >= points[-1].evaluations
