"""Verbs that search: run, resume, fork."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.options import ForkFlags, PlaceFlags, ProgressFlags, SearchFlags
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Direction, Goal, Proxy, Run, SeedProgram, verb

if TYPE_CHECKING:
    from culmen.observe.watch import Watch

PANEL = "Search"

Task = Annotated[
    Path, typer.Argument(metavar="TASK", help="A task folder, its task.toml, an OpenEvolve folder, or an evaluator.py.")
]
NotHere = Annotated[str | None, typer.Option("--budget", hidden=True)]
Carry = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Begin with the run's N best candidates, too.",
        show_default="0; with +N for runs that cannot be retraced up to 50",
    ),
]
Pool = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Candidates to start from, beside the task's initial program: culmen pool."),
]
PoolShare = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, metavar="SHARE", help="Most of the evaluations that may go into looking at the pool."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (run, resume, fork):
        verb(app, PANEL)(function)


def run(
    screen: Screen,
    task: Task,
    flags: SearchFlags,
    place: PlaceFlags,
    progress: ProgressFlags,
    pool: Pool = None,
    pool_share: PoolShare = 0.25,
    goal: Goal = None,
    direction: Direction = None,
    seed_program: SeedProgram = None,
    proxy: Proxy = None,
) -> Answer:
    """Search for a better text, within a budget.

    Ctrl-C stops cleanly, a second one at once; culmen resume goes on from there.
    """
    from culmen.cli import options, session
    from culmen.run import inputs
    from culmen.run.options import RunObjects
    from culmen.study import Study

    loaded = inputs.folder_task(task, seed_program, goal or "", direction or "", proxy or "")
    strategy, chosen = options.of_run(loaded, flags, place)
    if pool is not None:
        from culmen.run import pools

        most = pools.allowance(loaded, chosen.budget.evaluations, pool_share)
        loaded = pools.seeded(loaded, pools.load(pool), most)
    tracks = session.trackers(progress.track)

    def create(watch: Watch) -> Study:
        return Study.make(loaded, strategy, chosen, RunObjects(observers=(watch, *tracks)), flags.run_dir, flags.db)

    return session.search(screen, create, progress.quiet, (*loaded.notes, *session.beforehand(loaded)), tracks)


def resume(
    screen: Screen,
    place: PlaceFlags,
    progress: ProgressFlags,
    run: Run = None,
    budget: NotHere = None,
) -> Answer:
    """Go on with a run that was interrupted, from where its journal ends.

    A run that has spent its budget goes on with: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import options, runs, session
    from culmen.store import views
    from culmen.study import Study

    path, tracks = runs.adopt(run), session.trackers(progress.track)
    if budget is not None:
        raise session.unchangeable(path, budget)
    given = options.of_session(views.meta(path), place)

    def create(watch: Watch) -> Study:
        return Study.resume(path, observers=(watch, *tracks), **given)

    return session.over(screen, path) or session.search(screen, create, progress.quiet, tracks=tracks)


def fork(
    screen: Screen,
    flags: ForkFlags,
    place: PlaceFlags,
    progress: ProgressFlags,
    run: Run = None,
    carry: Carry = None,
) -> Answer:
    """Start a new run from an old one: same task and settings but for those given, nothing finished paid twice.

    Whatever the new run asks for that the old one has already done is answered from the old journal.
    To go on where a budget has ended: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import options, runs, session
    from culmen.run import fork as forks
    from culmen.run.options import RunObjects
    from culmen.store import views
    from culmen.study import Study

    parent = runs.find(run)
    meta, budget = views.meta(parent), None
    if flags.budget:
        budget, carry = forks.settle(meta, views.status(parent).evaluations, flags.budget, carry)
    strategy, chosen = options.of_fork(meta, flags, place, budget or meta.budget)
    tracks = session.trackers(progress.track)

    def create(watch: Watch) -> Study:
        objects = RunObjects(observers=(watch, *tracks))
        return Study.branch(parent, strategy, chosen, objects, flags.run_dir, flags.db, carry or 0, flags.seed)

    return session.search(screen, create, progress.quiet, forks.notes(parent.name, carry or 0), tracks)
