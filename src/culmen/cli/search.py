"""Verbs that search (run, resume, fork), and their output before, during and after."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from culmen.cli.options import ForkFlags, PlaceFlags, ProgressFlags, RunFlags
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Direction, Goal, Proxy, Run, SeedProgram, find_run, find_run_to_write
from culmen.core.errors import UserError
from culmen.observe.figures import (
    clean,
    count,
    dollars,
    duration,
    joined,
    number,
    run_name,
    short_path,
)

if TYPE_CHECKING:
    from culmen.core.ports import Strategy
    from culmen.core.task import Task as SearchTask
    from culmen.core.usage import Budget
    from culmen.observe.trackers import Tracking
    from culmen.observe.watch import Display, Watch
    from culmen.store.database import RunMeta
    from culmen.study import Study

TaskPath = Annotated[
    Path,
    typer.Argument(
        metavar="TASK",
        help=(
            "A task folder, also OpenEvolve's or ShinkaEvolve's, its task.toml, or an evaluator.py."
        ),
    ),
]
HiddenBudget = Annotated[str | None, typer.Option("--budget", hidden=True)]
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
    typer.Option(
        metavar="FILE",
        help=(
            "Candidates to start from, beside the task's initial program: culmen pool, or its name."
        ),
    ),
]
PoolShare = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="Share of the evaluations that the pool may use at most.",
    ),
]


def run(
    screen: Screen,
    task: TaskPath,
    flags: RunFlags,
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
    from culmen.cli import options
    from culmen.run import inputs
    from culmen.run.options import RunObjects, changed
    from culmen.study import Study

    loaded = inputs.folder_task(task, seed_program, goal or "", direction or "", proxy or "")
    strategy, chosen = options.of_run(loaded, flags, place)
    if pool is not None:
        from culmen.run import pools

        most = pools.allowance(loaded, chosen.budget.evaluations, pool_share)
        loaded = pools.seeded(loaded, pools.load(pool), most)
        chosen = changed(chosen, pool=pools.label(pool))
    tracks = _trackers(progress.track)

    def create(watch: Watch) -> Study:
        return Study.make(
            loaded,
            strategy,
            chosen,
            RunObjects(observers=(watch, *tracks)),
            flags.run_dir,
            flags.db,
        )

    return run_study(
        screen,
        create,
        progress.quiet,
        (*loaded.notes, *_note_on_proxy(loaded)),
        tracks,
        _asks(chosen.model),
    )


def resume(
    screen: Screen,
    place: PlaceFlags,
    progress: ProgressFlags,
    run: Run = None,
    budget: HiddenBudget = None,
) -> Answer:
    """Go on with a run that was interrupted, from where its journal ends.

    A run that has spent its budget goes on with: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import options
    from culmen.store import views
    from culmen.study import Study

    path, tracks = find_run_to_write(run), _trackers(progress.track)
    if budget is not None:
        raise _budget_error(path, budget)
    given = options.of_session(views.meta(path), place)

    def create(watch: Watch) -> Study:
        return Study.resume(path, observers=(watch, *tracks), **given)

    return _finished(screen, path) or run_study(
        screen,
        create,
        progress.quiet,
        tracks=tracks,
        asks=_asks(given.get("model") or views.meta(path).model),
    )


def fork(
    screen: Screen,
    flags: ForkFlags,
    place: PlaceFlags,
    progress: ProgressFlags,
    run: Run = None,
    carry: Carry = None,
) -> Answer:
    """Start a new run from an old one, with the same task and settings unless given.

    Nothing is paid for twice: requests that the old run has finished are answered from its journal.

    To go on where a budget has ended: culmen fork RUN --budget evaluations=+100
    """
    from culmen.cli import options
    from culmen.run import fork as forks
    from culmen.run.options import RunObjects
    from culmen.store import views
    from culmen.study import Study

    parent = find_run(run)
    meta, budget = views.meta(parent), None
    if flags.budget:
        budget, carry = forks.settle(meta, views.status(parent).evaluations, flags.budget, carry)
    strategy, chosen = options.of_fork(meta, flags, place, budget or meta.budget)
    tracks = _trackers(progress.track)

    def create(watch: Watch) -> Study:
        objects = RunObjects(observers=(watch, *tracks))
        return Study.branch(
            parent, strategy, chosen, objects, flags.run_dir, flags.db, carry or 0, flags.seed
        )

    return run_study(
        screen,
        create,
        progress.quiet,
        forks.notes(parent.name, carry or 0),
        tracks,
        _asks(chosen.model),
    )


def _trackers(wanted: Sequence[str] | None) -> Sequence[Tracking]:
    """The observers named by `--track`; raises `UserError` for an unknown one."""
    if not wanted:
        return ()
    from culmen.observe import tracker_backends as known

    return known.trackers(wanted)


def run_study(
    screen: Screen,
    make: Callable[[Watch], Study],
    quiet: bool,
    notes: Sequence[str] = (),
    tracks: Sequence[Tracking] = (),
    asks: bool = False,
) -> Answer:
    """Run the study of `make` to its end or an interrupt, with progress and trackers."""
    from culmen.cli import pages
    from culmen.observe.watch import Watch
    from culmen.store import views

    logging.getLogger("asyncio").setLevel(
        logging.ERROR
    )  # its warnings are about its own book-keeping
    watch = Watch(make_display(screen, quiet, asks))
    study = make(watch)
    if not screen.as_json and not quiet:
        _announce(screen, study, notes)
    try:
        with watch.of(study.path), contextlib.ExitStack() as stack:
            for each in tracks:
                stack.enter_context(each.of(study.path, watch.told))
            study.run(progress=False)  # `watch` shows it
    except UserError as error:
        run = run_name(study.path)
        error.fix = (
            re.sub(r"(culmen \w+) RUN\b", rf"\g<1> {run}", error.fix) or f"culmen resume {run}"
        )
        raise
    except KeyboardInterrupt:  # before the search had begun, or while it was taken down
        pass
    now = views.status(study.path)
    data = {
        **pages.document(now, study.path),
        "at_most": limits_data(study.meta),
        "likely": likely_data(study.meta),
    }
    return Answer(data, lambda screen: pages.end(screen, now, study.path), pages.exit_code(now))


def _note_on_proxy(task: SearchTask) -> list[str]:
    """Note on the evaluations before the search, for tasks that need some."""
    if task.evaluator.form != "legacy" or task.evaluator.proxy == "never" or not task.seeds:
        return []
    return [
        "the initial program is scored with and without a proxy first, to see how far scores "
        "can be trusted"
    ]


def _finished(screen: Screen, path: Path) -> Answer | None:
    """The end of a finished run, for `resume`; None if there is something left to do."""
    from culmen.cli import pages
    from culmen.store import views

    now = views.status(path)
    if now.state != "finished":
        return None
    if not screen.as_json:
        screen.note("this run is finished: there is nothing left to do in it")
    data = {**pages.document(now, path), "at_most": limits_data(views.meta(path))}
    return Answer(data, lambda screen: pages.end(screen, now, path), pages.exit_code(now))


def _budget_error(path: Path, budget: str) -> UserError:
    """The error of `resume --budget`."""
    wanted = budget if "=+" in budget else budget.replace("=", "=+")
    return UserError(
        "a run keeps the budget it was made with: to resume is to replay it",
        where=f"--budget {budget}",
        fix=f"culmen fork {run_name(path)} --budget {wanted}",
    )


def _announce(screen: Screen, study: Study, notes: Sequence[str]) -> None:
    """Print the plan of the run and notes to standard error."""
    screen.pairs(*_preflight(study.meta), ("run", short_path(study.path)), err=True)
    for note in notes:
        screen.note(note)


def make_display(screen: Screen, quiet: bool, asks: bool = False) -> Display:
    """Display of progress: live on a terminal, else plain lines; silent if quiet or --json."""
    from culmen.observe.displays import PlainDisplay, SilentDisplay, TerminalDisplay

    if quiet or screen.as_json:
        return SilentDisplay(None if screen.as_json else sys.stderr)
    alone = screen.live and not asks  # a person's editor has the terminal to itself
    return TerminalDisplay(screen.err) if alone else PlainDisplay()


def _asks(model: object) -> bool:
    """True if a person is among the models."""
    return "ask" in re.findall(r"[\w./-]+", str(model))


MILLION = 1_000_000


class ModelPrices(msgspec.Struct, frozen=True):
    """Names and prices of the models that a run may ask.

    `known` holds dollars per million tokens (input, output) by model.
    """

    names: tuple[str, ...] = ()
    known: dict[str, tuple[float, float]] = {}

    @property
    def unknown(self) -> list[str]:
        """Models without a known price."""
        return [name for name in self.names if name not in self.known]

    @property
    def dearest(self) -> float | None:
        """Most dollars a single token can cost; None if any price is unknown."""
        return (
            None
            if self.unknown
            else max((max(pair) for pair in self.known.values()), default=0.0) / MILLION
        )


def _prices(meta: RunMeta) -> ModelPrices:
    """The models that a run may ask, with prices; UserError for models that cannot be read."""
    model = meta.model
    if model in (None, "offline"):
        return ModelPrices()
    if not isinstance(model, str | dict) or ":" in str(model).partition("/")[0]:
        return ModelPrices((str(model),))
    from culmen.llm.call import Tokens
    from culmen.llm.roles import ModelBook

    names: list[str] = []
    known: dict[str, tuple[float, float]] = {}
    for entry in ModelBook(meta.models_file).roles(model).models():
        names.append(entry.name)
        ask, reply = (
            entry.price_list.dollars(t) for t in (Tokens(input=MILLION), Tokens(output=MILLION))
        )
        if ask is not None and reply is not None:
            known[entry.name] = (ask, reply)
    return ModelPrices(tuple(dict.fromkeys(names)), known)


def _most_dollars(budget: Budget, known: ModelPrices) -> float | None:
    """The most dollars a run can cost; None if nothing limits them."""
    if not known.names:
        return 0.0
    limits = [] if budget.dollars is None else [budget.dollars]
    if budget.tokens is not None and known.dearest is not None:
        limits.append(budget.tokens * known.dearest)
    return min(limits) if limits else None


def limits_data(meta: RunMeta) -> dict[str, Any]:
    """The limits for `--json`: those of the budget, and dollars (null: not limited)."""
    known = _prices(meta)
    limits = {
        name: value
        for name, value in msgspec.structs.asdict(meta.budget).items()
        if value is not None
    }
    limits.pop("final", None)  # a share of the evaluations, no limit of its own
    return {**limits, "dollars": _most_dollars(meta.budget, known), "price_unknown": known.unknown}


def _preflight(meta: RunMeta) -> list[tuple[str, str]]:
    """(label, value) pairs in display order."""
    known = _prices(meta)
    goal = meta.task.objective
    workers = (
        count(meta.workers, "worker")
        if meta.workers
        else "as many workers as the cluster has room for"
    )
    target = "" if goal.target is None else f", target {number(goal.target)}"
    return [
        (
            "task",
            f"{clean(meta.task.name)}  "
            f"({'maximise' if goal.direction == 'max' else 'minimise'}{target})",
        ),
        ("strategy", _strategy(meta)),
        ("agents", _agents(meta)),
        (
            "model",
            joined(
                [
                    "offline: syntax-tree edits, no language model" if meta.offline else "",
                    *known.names,
                ]
            ),
        ),
        ("evaluator", _asking(meta)),
        ("besides", _asides(meta, known)),
        ("embedder", meta.embedder),
        ("templates", ", ".join(sorted(meta.templates))),
        ("at most", _limits(meta, known)),
        ("likely", _likely(meta)),
        (
            "until",
            ""
            if meta.stop_at is None
            else f"a candidate is known to score {number(float(meta.stop_at))}",
        ),
        ("random seed", f"{meta.seed}, {workers}"),
    ]


def _asking(meta: RunMeta) -> str:
    """Requests of the evaluator to models, in words; "" for a task without any."""
    roles, evaluations = meta.task.evaluator.options.get("roles", ()), meta.budget.evaluations
    if not roles:
        return ""
    least = "" if evaluations is None else f"at least {count(evaluations, 'call')} in all; "
    return (
        f"asks models as {', '.join(roles)}, {least}culmen check measures what one evaluation costs"
    )


def _agents(meta: RunMeta) -> str:
    """The agents at work, in words; "" for strategies without agents."""
    strategy = _revived(meta)
    if strategy is None or not strategy.crew or not strategy.writes or not meta.offline:
        return "" if strategy is None else strategy.crew
    return (
        f"{strategy.crew}; its model calls, if any, are its own and not counted "
        "(with --model NAME they go through culmen)"
    )


def _asides(meta: RunMeta, known: ModelPrices) -> str:
    """Requests to models besides those for candidates, in words."""
    strategy = _revived(meta)
    if strategy is None or meta.offline or not strategy.asides:
        return ""
    told = _most_dollars(meta.budget, known) is None  # the limits give the rates then
    return joined([strategy.asides, "" if told else _rates(known)], "; ")


def _revived(meta: RunMeta) -> Strategy | None:
    """The strategy; None for an object whose state cannot be serialised."""
    from culmen.core.ports import Strategy, complete
    from culmen.strategies import catalog

    config = meta.strategy.get("config")
    return (
        None
        if config is None
        else complete(Strategy, catalog.revive(str(meta.strategy["path"]), config))
    )


def _strategy(meta: RunMeta) -> str:
    """Name and non-default settings."""
    from culmen.strategies import catalog

    path = str(meta.strategy.get("path", ""))
    name = catalog.NAMES.get(path, path.rpartition(":")[2])
    strategy = _revived(meta)
    if strategy is None:
        return name
    changed = []
    for field in catalog.describe(path)["fields"]:
        value = catalog.shown(getattr(strategy, field["name"]))
        if value != field["default"]:
            changed.append(f"{field['name']}={value}")
    return joined([name, *changed], "  ")


def _limits(meta: RunMeta, known: ModelPrices) -> str:
    from culmen.engine.ledger import final_share

    budget = meta.budget
    parts: list[str] = []
    if budget.evaluations is not None:
        kept = final_share(budget, meta.task)
        parts.append(
            count(budget.evaluations, "evaluation")
            + (f" ({kept} for the final choice)" if kept else "")
        )
    if budget.seconds is not None:
        parts.append(duration(budget.seconds))
    if known.names:
        parts.append("any number of calls" if budget.calls is None else count(budget.calls, "call"))
        if budget.tokens is not None:
            parts.append(count(budget.tokens, "token"))
    strategy = _revived(meta)
    counted = known.names or strategy is None or not strategy.writes
    parts.append(_money(budget, known) if counted else "what the agents spend is not counted")
    return ", ".join(parts)


def likely_data(meta: RunMeta) -> dict[str, list[float]] | None:
    """Expected calls, tokens and dollars, each [from, to]; None without an estimate.

    Dollars are absent if prices are unknown. Calls: one for every third evaluation up to one for
    each; prompts: from the length of the first one to three times that; replies: from the initial
    program's length to twice that and a thousand tokens.
    """
    seeds, model = tuple(meta.task.candidates()), meta.model
    budget = meta.budget
    most = min((each for each in (budget.calls, budget.evaluations) if each is not None), default=0)
    if not all((seeds, most, not meta.offline, not _asks(model), isinstance(model, str | dict))):
        return None
    if ":" in str(model).partition("/")[0]:  # an object's class: only Python knows it
        return None
    from culmen.core.brief import Brief
    from culmen.core.event import ProposeRequest
    from culmen.llm import make_gateway
    from culmen.llm.call import Tokens
    from culmen.llm.roles import ModelBook

    spec = ModelBook(meta.models_file).roles(model).pick("proposer", 0)
    if spec is None:
        return None
    gateway = make_gateway(meta.task, model, meta.models_file, templates=meta.templates)
    first = gateway.estimate(ProposeRequest(Brief(parent=seeds[0]), 0)).input_tokens
    reply = len(seeds[0].text.encode()) // 3
    few, many = max(1, most // 3), most
    low, high = (
        Tokens(few * first, few * reply),
        Tokens(many * first * 3, many * (2 * reply + 1_000)),
    )
    prices = [spec.price_list.dollars(each) for each in (low, high)]
    limits = [budget.tokens or math.inf, budget.dollars or math.inf]
    told: dict[str, list[float]] = {"calls": [few, many]}
    told["tokens"] = [min(each.input + each.output, limits[0]) for each in (low, high)]
    if None not in prices:
        told["dollars"] = [min(price or 0.0, limits[1]) for price in prices]
    return told


def _likely(meta: RunMeta) -> str:
    """`likely_data` in words, "" without an estimate."""
    told = likely_data(meta)
    if told is None:
        return ""
    parts = [f"{told[name][0]:,.0f} to {told[name][1]:,.0f} {name}" for name in ("calls", "tokens")]
    return ", ".join(
        [*parts, *([" to ".join(map(dollars, told["dollars"]))] if "dollars" in told else [])]
    )


def _money(budget: Budget, known: ModelPrices) -> str:
    most = _most_dollars(budget, known)
    if known.unknown:
        note = f"price unknown of {', '.join(known.unknown)}"
        return note if most is None else f"{dollars(most)} ({note})"
    if most is not None:
        return dollars(most)
    return f"dollars not limited ({_rates(known)})"


def _rates(known: ModelPrices) -> str:
    return ", ".join(
        f"{dollars(a)} in, {dollars(b)} out per million tokens" for a, b in known.known.values()
    )
