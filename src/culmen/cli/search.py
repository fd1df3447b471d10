"""Verbs that search (run, resume, fork), and their output before, during and after."""

from __future__ import annotations

import contextlib
import logging
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from culmen.cli.options import (
    ForkFlags,
    PlaceFlags,
    ProgressFlags,
    RunFlags,
    SearchFlags,
    request_from_flags,
    run_folder,
)
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import (
    CommandFlags,
    Direction,
    Goal,
    Run,
    SeedProgram,
    SkillPath,
    TasksFolder,
    find_run,
    find_run_to_write,
)
from culmen.core.errors import NoAnswer, Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.report.figures import (
    count_text,
    dollars_text,
    duration_text,
    escape_controls,
    join_nonempty,
    number_text,
    run_name,
    short_path,
)
from culmen.report.forecast import forecast_data, forecast_text

if TYPE_CHECKING:
    from culmen.core.ports import Strategy
    from culmen.core.task import Task as SearchTask
    from culmen.core.usage import Budget
    from culmen.report.forecast import RunForecast
    from culmen.report.watch import Display, RunTracker, Watch
    from culmen.run.plan import RunPlan
    from culmen.run.study import Study
    from culmen.store.database import RunMeta

TaskPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="TASK",
        help=(
            "A task folder, also OpenEvolve's or ShinkaEvolve's, its task.toml, or an evaluator.py."
        ),
    ),
]
PlaceSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="backend.NAME=VALUE",
        help="A setting of the backend. Repeatable. See: culmen help settings.",
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
        help="Candidates to start from, too: culmen docs strategies/turboevolve.",
    ),
]


def run(
    screen: Screen,
    flags: RunFlags,
    place: PlaceFlags,
    progress: ProgressFlags,
    command: CommandFlags,
    task: TaskPath = None,
    skill: SkillPath = None,
    tasks: TasksFolder = None,
    pool: Pool = None,
    goal: Goal = None,
    direction: Direction = None,
    seed_program: SeedProgram = None,
) -> Answer:
    """Search for a better text, within a budget.

    Ctrl-C stops cleanly, a second one at once; culmen resume goes on from there.
    """
    from culmen.run.plan import requested_run

    request = request_from_flags(
        flags,
        place,
        skill=skill,
        tasks=tasks,
        pool=pool,
        goal=goal,
        direction=direction,
        seed_program=seed_program,
    )
    plan = requested_run(command.find_task(task, direction or "", goal or ""), request)
    notes = (*plan.task.notes, *_note_on_proxy(plan.task))
    return run_plan(screen, plan, flags, progress, notes)


def resume(
    screen: Screen,
    place: PlaceFlags,
    progress: ProgressFlags,
    run: Run = None,
    settings: PlaceSettings = None,
    budget: HiddenBudget = None,
) -> Answer:
    """Go on with an interrupted run, from where its journal ends.

    A run that has spent its budget goes on with: culmen runs fork RUN --budget evaluations=+100
    """
    from culmen.run.request import session_keywords
    from culmen.run.study import Study
    from culmen.store import views

    path, tracks = find_run_to_write(run), _named_trackers(progress.track)
    if budget is not None:
        raise _budget_error(path, budget)
    if fixed := [text for text in settings or () if not text.startswith("backend.")]:
        raise _settings_error(path, fixed)
    meta = views.run_meta(path)
    given = session_keywords(meta, request_from_flags(place, settings=settings))

    def create(watch: Watch) -> Study:
        return Study.resume(path, observers=(watch, *tracks), **given)

    return _finished_answer(screen, path) or run_study(
        screen,
        create,
        progress.quiet,
        tracks=tracks,
        asks=meta.asks_person,
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

    To go on where a budget has ended: culmen runs fork RUN --budget evaluations=+100
    """
    from culmen.run.fork import fork_notes
    from culmen.run.plan import requested_fork

    parent = find_run(run)
    plan = requested_fork(parent, request_from_flags(flags, place, carry=carry))
    return run_plan(screen, plan, flags, progress, fork_notes(parent.name, plan.carried))


def run_plan(
    screen: Screen,
    plan: RunPlan,
    flags: SearchFlags,
    progress: ProgressFlags,
    notes: Sequence[str],
) -> Answer:
    """Create a planned run and search to its end or an interrupt."""
    from culmen.run.study import Study

    tracks, folder = _named_trackers(progress.track), run_folder(flags)

    def create(watch: Watch) -> Study:
        watched = replace(plan.objects, observers=(watch, *tracks))
        return Study.from_plan(replace(plan, objects=watched), folder, flags.db)

    asks = plan.options.asks_person
    return run_study(screen, create, progress.quiet, notes, tracks, asks)


def _named_trackers(wanted: Sequence[str] | None) -> Sequence[RunTracker]:
    """The observers named by `--track`; raises `UserError` for an unknown one."""
    if not wanted:
        return ()
    from culmen.report.watch import make_trackers

    return make_trackers(wanted)


def run_study(
    screen: Screen,
    make: Callable[[Watch], Study],
    quiet: bool,
    notes: Sequence[str] = (),
    tracks: Sequence[RunTracker] = (),
    asks: bool = False,
) -> Answer:
    """Run the study of `make` to its end or an interrupt, with progress and trackers."""
    from culmen.cli import pages
    from culmen.report.watch import Watch

    logging.getLogger("asyncio").setLevel(
        logging.ERROR
    )  # its warnings are about its own book-keeping
    watch = Watch(make_display(screen, quiet, asks))
    study = make(watch)
    likely = study.forecast
    watch.correct_forecast(likely)
    if not screen.as_json and not quiet:
        _announce_run(screen, study, notes, likely)
    ended_with = None
    try:
        with watch.for_run(study.path), contextlib.ExitStack() as stack:
            for each in tracks:
                stack.enter_context(each.for_run(study.path, watch.told))
            study.run(progress=False)  # `watch` shows it
    except UserError as error:
        if not study.path.exists():  # a run that could not begin is removed
            raise
        # of a finished search, the end of the run says it, beside what it cost
        if not isinstance(error, NoAnswer) or not study.status.is_finished:
            error.fix = _next_step(error, run_name(study.path))
            raise
    except KeyboardInterrupt:
        pass
    except SystemExit as end:  # SIGTERM
        ended_with = end.code
    told = None if likely is None else forecast_data(likely)
    more = {"at_most": limits_data(study.meta), "likely": told}
    return pages.end_answer(study.path, more, ended_with if isinstance(ended_with, int) else None)


def _next_step(error: UserError, run: str) -> str:
    """The error's next step, in the words of this run."""
    resume = f"culmen resume {run}"
    fix = re.sub(r"(culmen (?:runs )?\w+) RUN\b", rf"\g<1> {run}", error.fix)
    if isinstance(error, Unavailable | NoAnswer) and fix and "culmen resume" not in fix:
        return f"{fix}; then {resume}"  # raised where it is not known to be a run's
    return fix or resume


def _note_on_proxy(task: SearchTask) -> list[str]:
    """Note on the evaluations before the search, for tasks that need some."""
    if task.evaluator.form != "legacy" or task.evaluator.proxy == "never" or not task.seeds:
        return []
    return [
        "the initial program is scored with and without a proxy first, to see how far scores "
        "can be trusted"
    ]


def _finished_answer(screen: Screen, path: Path) -> Answer | None:
    """The end of a finished run, for `resume`; None if there is something left to do."""
    from culmen.cli import pages
    from culmen.store import views

    now = views.run_status(path)
    if not now.is_finished:
        return None
    answer = pages.end_answer(path, {"at_most": limits_data(views.run_meta(path))})
    if not screen.as_json:
        forks = (each for each in answer.data["also"] if each.startswith("culmen runs fork"))
        more = next(forks, "")
        note = "this run is finished: there is nothing left to do in it"
        screen.print_note(f"{note}; to go on: {more}" if more else note)
    return answer


def _budget_error(path: Path, budget: str) -> UserError:
    """The error of `resume --budget`."""
    wanted = budget if "=+" in budget else budget.replace("=", "=+")
    return UserError(
        "a run keeps the budget it was made with: to resume is to replay it",
        where=f"--budget {budget}",
        fix=f"culmen runs fork {run_name(path)} --budget {wanted}",
    )


def _settings_error(path: Path, settings: Sequence[str]) -> UserError:
    """The error of `resume --set`, for settings that are not the backend's."""
    given = " ".join(f"--set {shlex.quote(text)}" for text in settings)
    return UserError(
        "a run keeps the settings it was made with: to resume is to replay it",
        where=given,
        fix=f"culmen runs fork {run_name(path)} {given}",
    )


def _announce_run(
    screen: Screen, study: Study, notes: Sequence[str], likely: RunForecast | None
) -> None:
    """Print the plan of the run and notes to standard error."""
    screen.print_pairs(
        *_preflight_pairs(study.meta, likely), ("run", short_path(study.path)), err=True
    )
    for note in notes:
        screen.print_note(note)


def make_display(screen: Screen, quiet: bool, asks: bool = False) -> Display:
    """Display of progress: live on a terminal, else plain lines; silent if quiet or --json."""
    from culmen.report.displays import PlainDisplay, SilentDisplay, TerminalDisplay

    if quiet or screen.as_json:
        return SilentDisplay(None if screen.as_json else sys.stderr)
    alone = screen.is_live and not asks  # a person's editor has the terminal to itself
    return TerminalDisplay(screen.err) if alone else PlainDisplay()


MILLION = 1_000_000


class ModelPrices(msgspec.Struct, frozen=True):
    """Names and prices of the models that a run may ask.

    `known` holds dollars per million tokens (input, output) by model, `bank` the dollars of all
    recorded programs together (None: some have no price), `advice` says how to get newer prices.
    """

    names: tuple[str, ...] = ()
    known: dict[str, tuple[float, float]] = {}
    bank: float | None = 0.0
    programs: int = 0
    advice: str = ""

    @property
    def unpriced_models(self) -> list[str]:
        """Models without a known price."""
        unpriced = [name for name in self.names if name not in self.known]
        return unpriced + ["the bank"] * (self.bank is None)

    @property
    def highest_token_price(self) -> float | None:
        """Most dollars a single token can cost; None if any price is unknown."""
        return (
            None
            if self.unpriced_models
            else max((max(pair) for pair in self.known.values()), default=0.0) / MILLION
        )


def _model_prices(meta: RunMeta) -> ModelPrices:
    """The models that a run may ask, with prices; UserError for models that cannot be read."""
    if meta.asks_no_model:
        return ModelPrices()
    if meta.has_own_model:
        return ModelPrices((str(meta.model),))
    from culmen.models.call import Tokens
    from culmen.models.roles import ModelBook

    entries = ModelBook(meta.models_file).parse_roles(meta.model).without_banks().all_models()
    known: dict[str, tuple[float, float]] = {}
    advice = ""
    for entry in entries:
        tokens = Tokens(MILLION), Tokens(0, MILLION)
        ask, reply = map(entry.price_list.dollars_for, tokens)
        if ask is not None and reply is not None:
            known[entry.name] = (ask, reply)
        else:
            advice = advice or entry.price_list.advice
    prices = [program.price for program in meta.bank]
    total = None if None in prices else sum(filter(None, prices))
    names = tuple(dict.fromkeys(entry.name for entry in entries))
    return ModelPrices(names, known, total, len(prices), advice)


def _bank_text(meta: RunMeta) -> str:
    """The recorded models, in words; "" without any."""
    if not meta.bank:
        return ""
    models = {program.model for program in meta.bank}
    folders = ", ".join(sorted({short_path(Path(program.folder)) for program in meta.bank}))
    return (
        f"bank {folders}: {count_text(len(meta.bank), 'program')} that "
        f"{count_text(len(models), 'model')} wrote, drawn at random, no request to a model"
    )


def _most_dollars(budget: Budget, known: ModelPrices) -> float | None:
    """The most dollars a run can cost; None if nothing limits them."""
    if not known.names and not known.programs:
        return 0.0
    limits = [] if budget.dollars is None else [budget.dollars]
    if not known.names and known.bank is not None:
        limits.append(known.bank)
    if budget.tokens is not None and known.highest_token_price is not None:
        limits.append(budget.tokens * known.highest_token_price)
    return min(limits) if limits else None


def limits_data(meta: RunMeta) -> JsonObject:
    """The limits for `--json`: those of the budget, and dollars (null: not limited)."""
    known = _model_prices(meta)
    limits = {
        name: value
        for name, value in msgspec.structs.asdict(meta.budget).items()
        if value is not None and name != "final"  # a share of the evaluations, no limit of its own
    }
    return {
        **limits,
        "dollars": _most_dollars(meta.budget, known),
        "price_unknown": known.unpriced_models,
    }


def _preflight_pairs(meta: RunMeta, likely: RunForecast | None) -> list[tuple[str, str]]:
    """(label, value) pairs in display order."""
    known = _model_prices(meta)
    goal = meta.task.objective
    workers = (
        count_text(meta.workers, "worker")
        if meta.workers
        else "as many workers as the cluster has room for"
    )
    target = "" if goal.target is None else f", target {number_text(goal.target)}"
    return [
        (
            "task",
            f"{escape_controls(meta.task.name)}  "
            f"({'maximise' if goal.direction == 'max' else 'minimise'}{target})",
        ),
        ("strategy", _strategy_text(meta)),
        ("agents", _agents_at_work_text(meta)),
        (
            "model",
            join_nonempty(
                [
                    "offline: syntax-tree edits, no language model"
                    if meta.searches_offline
                    else "",
                    *known.names,
                    _bank_text(meta),
                ]
            ),
        ),
        ("evaluator", _evaluator_requests_text(meta)),
        ("besides", _other_requests_text(meta, known)),
        ("embedder", meta.embedder),
        ("templates", ", ".join(sorted(meta.templates))),
        ("at most", _limits_text(meta, known)),
        ("likely", "" if likely is None else forecast_text(likely)),
        (
            "until",
            ""
            if meta.stop_at is None
            else f"a candidate is known to score {number_text(float(meta.stop_at))}",
        ),
        ("random seed", f"{meta.seed}, {workers}"),
    ]


def _evaluator_requests_text(meta: RunMeta) -> str:
    """Requests of the evaluator to models, in words; "" for a task without any."""
    roles = meta.task.evaluator.options.get("roles", ())
    if not roles:
        return ""
    measured = "culmen check measures what one evaluation costs" if meta.task.root else ""
    return join_nonempty([f"asks models as {', '.join(roles)}", measured])


def _agents_at_work_text(meta: RunMeta) -> str:
    """The agents at work, in words; "" for strategies without agents."""
    strategy = _revived_strategy(meta)
    if strategy is None or not (_pays_by_itself(strategy) and meta.searches_offline):
        return "" if strategy is None else strategy.crew
    return (
        f"{strategy.crew}; its model calls, if any, are its own and not counted "
        "(with --model NAME they go through culmen)"
    )


def _pays_by_itself(strategy: Strategy) -> bool:
    """True if programs with spending of their own are at work, in the strategy or an arm of it."""
    from culmen.core.ports import Strategy, with_protocol_defaults

    parts = (with_protocol_defaults(Strategy, part) for part in strategy.parts)
    return strategy.writes or any(part.writes for part in parts)


def _other_requests_text(meta: RunMeta, known: ModelPrices) -> str:
    """Requests to models besides those for candidates, in words."""
    strategy = _revived_strategy(meta)
    only_bank = meta.bank and not known.names
    if strategy is None or meta.searches_offline or only_bank or not strategy.asides:
        return ""
    told = _most_dollars(meta.budget, known) is None  # the limits give the rates then
    return join_nonempty([strategy.asides, "" if told else _token_rates_text(known)], "; ")


def _revived_strategy(meta: RunMeta) -> Strategy | None:
    """The strategy; None for an object whose state cannot be serialised."""
    from culmen.core.ports import Strategy, with_protocol_defaults
    from culmen.strategies import catalog

    config = meta.strategy.get("config")
    return (
        None
        if config is None
        else with_protocol_defaults(
            Strategy, catalog.revive_object(str(meta.strategy["path"]), config)
        )
    )


def _strategy_text(meta: RunMeta) -> str:
    """Name and non-default settings."""
    from culmen.strategies import catalog

    path = str(meta.strategy.get("path", ""))
    name = catalog.strategy_name(path)
    config = meta.strategy.get("config")
    if config is None:
        return name
    changed = catalog.changed_settings(catalog.revive_object(path, config))
    return join_nonempty([name, *changed], "  ")


def _limits_text(meta: RunMeta, known: ModelPrices) -> str:
    from culmen.engine.ledger import final_share

    budget = meta.budget
    parts: list[str] = []
    if budget.evaluations is not None:
        kept = final_share(budget, meta.task)
        parts.append(
            count_text(budget.evaluations, "evaluation")
            + (f" ({kept} for the final choice)" if kept else "")
        )
    if budget.seconds is not None:
        parts.append(duration_text(budget.seconds))
    if known.programs and not known.names:
        parts.append(count_text(min(known.programs, budget.calls or known.programs), "program"))
    if known.names:
        parts.append(
            "any number of calls" if budget.calls is None else count_text(budget.calls, "call")
        )
        if budget.tokens is not None:
            parts.append(count_text(budget.tokens, "token"))
    strategy = _revived_strategy(meta)
    counted = known.names or known.programs or strategy is None or not _pays_by_itself(strategy)
    parts.append(
        _dollar_limit_text(budget, known) if counted else "what the agents spend is not counted"
    )
    return ", ".join(parts)


def _dollar_limit_text(budget: Budget, known: ModelPrices) -> str:
    most = _most_dollars(budget, known)
    if known.unpriced_models:
        note = f"price unknown of {', '.join(known.unpriced_models)}{known.advice}"
        return note if most is None else f"{dollars_text(most)} ({note})"
    if most is not None:
        return dollars_text(most)
    return f"dollars not limited ({_token_rates_text(known)})"


def _token_rates_text(known: ModelPrices) -> str:
    return ", ".join(
        f"{dollars_text(a)} in, {dollars_text(b)} out per million tokens"
        for a, b in known.known.values()
    )
