"""Verbs that search: run, resume, fork."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Direction, Goal, Proxy, Run, SeedProgram, verb
from culmen.cli.where import Backend, BackendSet, RayAddress

if TYPE_CHECKING:
    from culmen.observe.watch import Watch

PANEL = "Search"

Task = Annotated[
    Path, typer.Argument(metavar="TASK", help="A task folder, its task.toml, an OpenEvolve folder, or an evaluator.py.")
]
Agent = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Search with agents (strategy cato): offline, builtin, claude, cmd:... See: doctor."
    ),
]
Strategy = Annotated[str | None, typer.Option(help="See: culmen strategies.", show_default="polca")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the strategy. Repeatable.")
]
Model = Annotated[
    list[str] | None,
    typer.Option(metavar="[ROLE=]MODEL", help="Model, for one role or for all. Repeatable.", show_default="offline"),
]
Models = Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices (TOML or YAML).")]
_LIMITS = "Hard limits: evaluations, seconds, calls, tokens, dollars, final."
Budget = Annotated[str | None, typer.Option(metavar="NAME=N,...", help=_LIMITS)]
Further = Annotated[
    str | None, typer.Option("--budget", metavar="NAME=N,...", help=f"{_LIMITS} NAME=+N is N more than the run had.")
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
Seed = Annotated[int | None, typer.Option(help="Of all random choices.", show_default="0")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Evaluations at once.", show_default="one per core; on Ray, its room")
]
RunDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run lies.", show_default="runs/TASK-TIME")]
Db = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Keep the journal in PostgreSQL: postgresql+psycopg://user@host/database[#NAME]."),
]
Require = Annotated[
    str | None, typer.Option(metavar="LEVEL", help="Refuse weaker isolation: namespaces, restricted, limits.")
]
Embedder = Annotated[
    str | None, typer.Option(metavar="NAME", help="hashing, local:MODEL or PROVIDER/MODEL.", show_default="hashing")
]
Pool = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Candidates to start from, beside the task's seed: culmen pool.")
]
PoolShare = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, metavar="SHARE", help="Most of the evaluations that may go into looking at the pool."
    ),
]
Integrity = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="What to do about signs of gaming: warn, reject or stop.", show_default="warn"),
]
StopAt = Annotated[
    str | None,
    typer.Option(metavar="SCORE", help="End once a candidate is known to score as much; or: target, the task's own."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[:PLACE]", help="Also tell tensorboard, mlflow, wandb or otel. Repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (run, resume, fork):
        verb(app, PANEL)(function)


def run(
    screen: Screen,
    task: Task,
    strategy: Strategy = None,
    settings: Settings = None,
    model: Model = None,
    models: Models = None,
    budget: Budget = None,
    seed: Seed = None,
    workers: Workers = None,
    run_dir: RunDir = None,
    db: Db = None,
    require: Require = None,
    backend: Backend = None,
    ray_address: RayAddress = None,
    backend_set: BackendSet = None,
    embedder: Embedder = None,
    integrity: Integrity = None,
    stop_at: StopAt = None,
    pool: Pool = None,
    pool_share: PoolShare = 0.25,
    goal: Goal = None,
    direction: Direction = None,
    seed_program: SeedProgram = None,
    proxy: Proxy = None,
    agent: Agent = None,
    track: Track = None,
    quiet: Quiet = False,
) -> Answer:
    """Search for a better text, within a budget.

    Ctrl-C stops cleanly, a second one at once; culmen resume goes on from there.
    """
    from culmen.cli import options, session, where
    from culmen.run import inputs
    from culmen.study import Study

    loaded = inputs.folder_task(task, seed_program, goal or "", direction or "", proxy or "")
    given = options.Given(
        strategy, settings, model, models, budget, seed, workers, require, embedder, integrity, agent, stop_at
    )
    chosen = options.settle(loaded, given) | where.chosen(loaded, backend, ray_address, backend_set)
    if pool is not None:
        from culmen.run import pool as pools

        most = pools.allowance(loaded, chosen["budget"].evaluations, pool_share)
        loaded = pools.seeded(loaded, pools.load(pool), most)

    tracks = session.trackers(track)

    def create(watch: Watch) -> Study:
        return Study.create(loaded, run_dir=run_dir, db=db, observers=(watch, *tracks), **chosen)

    return session.search(screen, create, quiet, (*loaded.notes, *session.beforehand(loaded)), tracks)


def resume(
    screen: Screen,
    run: Run = None,
    require: Require = None,
    backend: Backend = None,
    ray_address: RayAddress = None,
    backend_set: BackendSet = None,
    track: Track = None,
    budget: NotHere = None,
    quiet: Quiet = False,
) -> Answer:
    """Go on with a run that was interrupted, from where its journal ends.

    A run that has spent its budget goes on with: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import runs, session, where
    from culmen.store import views
    from culmen.study import Study

    parts: dict[str, Any] = {} if require is None else {"require": require}
    path, tracks = runs.adopt(run), session.trackers(track)
    if budget is not None:
        raise session.unchangeable(path, budget)
    parts |= where.changed(views.meta(path), backend, ray_address, backend_set)

    def create(watch: Watch) -> Study:
        return Study.resume(path, observers=(watch, *tracks), **parts)

    return session.over(screen, path) or session.search(screen, create, quiet, tracks=tracks)


def fork(
    screen: Screen,
    run: Run = None,
    strategy: Strategy = None,
    settings: Settings = None,
    model: Model = None,
    models: Models = None,
    budget: Further = None,
    seed: Seed = None,
    workers: Workers = None,
    run_dir: RunDir = None,
    db: Db = None,
    require: Require = None,
    backend: Backend = None,
    ray_address: RayAddress = None,
    backend_set: BackendSet = None,
    embedder: Embedder = None,
    integrity: Integrity = None,
    stop_at: StopAt = None,
    agent: Agent = None,
    track: Track = None,
    carry: Carry = None,
    quiet: Quiet = False,
) -> Answer:
    """Start a new run from an old one: same task and settings but for those given, nothing finished paid twice.

    Whatever the new run asks for that the old one has already done is answered from the old journal.
    To go on where a budget has ended: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import options, runs, session, where
    from culmen.run import fork as onward
    from culmen.store import views
    from culmen.study import Study

    parent = runs.find(run)
    given = options.Given(
        strategy, settings, model, models, budget, seed, workers, require, embedder, integrity, agent, stop_at
    )
    meta = views.meta(parent)
    changes = options.changes(meta, given) | where.changed(meta, backend, ray_address, backend_set)
    if budget:
        changes["budget"], carry = onward.settle(meta, views.status(parent).evaluations, budget, carry)
    notes = onward.notes(parent.name, carry or 0)

    tracks = session.trackers(track)

    def create(watch: Watch) -> Study:
        return Study.fork(parent, run_dir=run_dir, carry=carry or 0, db=db, observers=(watch, *tracks), **changes)

    return session.search(screen, create, quiet, notes, tracks)
