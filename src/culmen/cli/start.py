"""Verbs that come before a run: demo, new, check.

The fourth, audit, is in the extension of that name.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli import look
from culmen.cli.screen import Answer, Screen
from culmen.cli.search import TaskPath, run_study
from culmen.cli.verbs import (
    AskedModels,
    CommandFlags,
    Direction,
    ModelsFile,
    Proxy,
    SeedProgram,
    SkillPath,
    TasksFolder,
    asking_backend,
    option_words,
)
from culmen.core.errors import UserError
from culmen.core.evaluation import MEANINGS
from culmen.core.json import JsonObject
from culmen.core.options import DEFAULT_STRATEGY
from culmen.core.usage import Budget
from culmen.report.figures import (
    clock_text,
    count_text,
    duration_text,
    escape_controls,
    join_nonempty,
    number_text,
)
from culmen.store import views

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.evaluate.check import SeedReport, TaskReport
    from culmen.report.watch import Watch
    from culmen.run.request import RunRequest
    from culmen.run.study import Study

FINDINGS = 1
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def demo(
    screen: Screen,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0, help="Seconds at most, final choice included.", show_default="until it is done"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 2,
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to write the run to.", show_default="runs/..."),
    ] = None,
    strategy: Annotated[str, typer.Option(help="pedigree or polca.")] = DEFAULT_STRATEGY,
) -> Answer:
    """Watch a real search: circle packing, offline, in about a minute."""
    if strategy not in SETTINGS:
        fix = f"culmen new DIR --example circle_packing, then culmen run DIR --strategy {strategy}"
        raise UserError(f"there is no demo of '{strategy}'", where="--strategy", fix=fix)
    return demonstrate_search(screen, strategy, seed, seconds, workers, run_dir)


def new(
    screen: Screen,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A new or empty folder.")
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="Copy this built-in task instead of the short one.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Of the program: python, c, cpp, rust, go or javascript.", show_default="python"
        ),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="List the built-in tasks and write nothing.")
    ] = False,
) -> Answer:
    """Write a task to start from: three short commented files.

    Edit them, then: culmen check DIR, culmen run DIR.
    """
    from culmen import tasks as taskfiles

    if examples:
        return _list_examples(taskfiles.examples())
    if directory is None:
        raise UserError(
            "no folder named", where="culmen new", fix="culmen new DIR, or culmen new --examples"
        )
    written = taskfiles.write_new(directory, example, language)
    place = shlex.quote(str(directory))
    commands = [f"culmen check {place}", f"culmen run {place}"]
    data = {
        "task": str(directory.resolve()),
        "files": [str(path) for path in written],
        "next": commands,
    }

    def show(screen: Screen) -> None:
        screen.print_line(f"Wrote a task into {directory}:")
        for line in _listed_files([path.relative_to(directory) for path in written]):
            screen.print_line(f"  {line}")
        screen.print_next_steps((commands[0], "see whether it works"), (commands[1], "search"))

    return Answer(data, show)


def _listed_files(files: list[Path]) -> list[str]:
    """The files' names; of a folder with many, their number."""
    below = Counter(file.parts[0] for file in files if len(file.parts) > 1)
    # more files of a folder are not listed one by one
    many = [name for name, count in below.items() if count > 12]
    single = [str(file) for file in files if file.parts[0] not in many]
    return [*single, *(f"{name}/ ({below[name]} files)" for name in many)]


def _list_examples(listed: list[tuple[str, str]]) -> Answer:
    def show(screen: Screen) -> None:
        screen.print_table(["name", "what it asks for"], listed)
        screen.print_next_steps(("culmen new DIR --example NAME", "copy one"))

    return Answer({"examples": [{"name": name, "goal": line} for name, line in listed]}, show)


def check(
    screen: Screen,
    flags: CommandFlags,
    task: TaskPath = None,
    skill: SkillPath = None,
    tasks: TasksFolder = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make one rollout with this agent.")
    ] = None,
    times: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Evaluations with the same random seed, and as many with others.",
            show_default="5; 1 rollout",
        ),
    ] = None,
    cases: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cases evaluated at least once; of more, a sample.",
            show_default="500; of rollouts 1",
        ),
    ] = None,
    require: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Refuse weaker isolation than this.")
    ] = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Use this level and no other.")
    ] = None,
    direction: Direction = None,
    seed_program: SeedProgram = None,
    proxy: Proxy = None,
    model: AskedModels = None,
    models: ModelsFile = None,
) -> Answer:
    """Evaluate the initial program, and report faults of the task.

    It is run on every case. Reports score, how far it can be trusted, noise, time, determinism and
    the isolation level in force. Of a skill or tools it makes one rollout. Exit code 1 if something
    is wrong.
    """
    from culmen.evaluate.check import check_task
    from culmen.jail.forms import find_form
    from culmen.run.assemble import run_blocking
    from culmen.run.forecast import remember_check
    from culmen.run.request import RunRequest, TaskChoice

    request = RunRequest(
        seed_program=seed_program,  # pyright: ignore[reportArgumentType]
        skill=skill,
        tasks=tasks,
        agent=agent,
        direction=direction,
        proxy=proxy,
    )
    loaded = TaskChoice(request, task=flags.find_task(task, direction or "")).task_to_check()
    form = find_form(loaded.evaluator.form)
    is_rollout = form is not None and bool(form.backend)  # of a paid agent, one is enough
    times, cases = times or (1 if is_rollout else 5), cases or (1 if is_rollout else 500)
    backend = asking_backend(loaded, 1, model, models, require, isolation)
    with _check_progress_line(screen, loaded, times, cases) as advance:
        report = run_blocking(check_task(loaded, backend, times, advance, cases))
    remember_check(loaded, report.observations)
    place = _task_words(task, request, flags)
    common = {"--direction": direction, "--model": model, "--models": models}
    options = {**common, "--require": require, "--isolation": isolation}
    programs = option_words({"--seed-program": seed_program})
    next_steps = [(f"culmen run {programs}{option_words(options)}{place}", "search")]
    if not is_rollout:
        programs = option_words({"--program": (seed_program or [None])[0]})
        audit = f"culmen audit {programs}{option_words(options)}{place}"
        next_steps.insert(0, (audit, "what could be gamed"))
    data = {**msgspec.to_builtins(report), "fit": report.fit}
    for seed in data["seeds"]:
        del seed["observations"]  # they add nothing to the summary
    return Answer(
        data,
        lambda screen: _show_report(screen, loaded, next_steps, report, place),
        0 if report.fit else FINDINGS,
    )


@contextlib.contextmanager
def _check_progress_line(
    screen: Screen, task: Task, times: int, cases: int
) -> Iterator[Callable[[int, int, float], None] | None]:
    """A function to call after every evaluation of a check.

    It draws a moving line on a terminal, and prints a few lines elsewhere.
    """
    if screen.as_json:
        yield None
        return
    if not screen.is_live:
        in_lines, over = _plain_progress(screen, _first_line(task, times, cases)), threading.Event()
        threading.Thread(target=_print_clock, args=(screen, over), daemon=True).start()
        try:
            yield in_lines
        finally:
            over.set()
        return
    from rich import progress as bars

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=screen.err, transient=True) as bar:
        line = bar.add_task(_first_line(task, times, cases))

        def advance(done: int, total: int, seconds: float) -> None:
            bar.update(
                line,
                description=(
                    f"evaluation {min(done + 1, total)} of "
                    f"{total}{_time_left(done, total, seconds)}"
                ),
            )

        yield advance


def _print_clock(screen: Screen, over: threading.Event) -> None:
    """A line a minute, since an evaluation may take hours."""
    began = time.monotonic()
    while not over.wait(60.0):
        screen.err.print(f"{clock_text(time.monotonic() - began)}  evaluating")


def _plain_progress(screen: Screen, first_line: str) -> Callable[[int, int, float], None]:
    """Progress for a pipe or a file: a first line, and one with the time left if that is long."""
    screen.err.print(first_line, markup=False, soft_wrap=True)
    shown = False

    def advance(done: int, total: int, seconds: float) -> None:
        nonlocal shown
        rest = _time_left(done, total, seconds)
        if rest and not shown:
            shown = True
            screen.err.print(
                f"evaluation {done} of {total} is done{rest}", markup=False, soft_wrap=True
            )

    return advance


def _first_line(task: Task, times: int, most: int) -> str:
    """`trying 1 initial program in 9 evaluations; an evaluation is cut off after 30 s`."""
    from culmen.evaluate.check import planned_evaluations
    from culmen.evaluate.findings import tried_cases

    programs = count_text(len(task.seeds), "initial program")
    trial = (
        " with and without a proxy"
        if task.evaluator.form == "legacy" and task.evaluator.proxy != "never"
        else ""
    )
    evaluations = count_text(planned_evaluations(task, times, most), "evaluation")
    tried, every = tried_cases(task, most), len(task.cases)
    share = f"each of the {every:,}" if tried == every else f"{tried:,} of {every:,}"
    cases = f", {share} cases at least once" if every > 1 and task.seeds else ""
    limit = duration_text(task.limits.seconds)
    return (
        f"trying {programs}{trial} in {evaluations}{cases}; an evaluation is cut off after {limit}"
    )


def _time_left(done: int, total: int, seconds: float) -> str:
    """Time per evaluation and in all, in words; "" for quick evaluations.

    For example ` (20 s each, about 2 min to go; --times and --cases limit them)`.
    """
    # of longer evaluations the remaining time is shown
    if seconds < 5.0 or done >= total:
        return ""
    return (
        f" ({duration_text(seconds)} each, about {duration_text(seconds * (total - done))} to go; "
        "--times and --cases limit them)"
    )


def _task_words(path: Path | None, request: RunRequest, flags: CommandFlags) -> str:
    """The task on a command line: its path, a command, or the options of a skill and its tasks."""
    if flags.command is not None:
        return flags.task_words(path)
    given = {"--skill": request.skill, "--tasks": request.tasks, "--agent": request.agent}
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    return shlex.join([*([] if path is None else [str(path)]), *words])


def _show_report(
    screen: Screen,
    task: Task,
    next_steps: Sequence[tuple[str, str]],
    report: TaskReport,
    place: str,
) -> None:
    splits = join_nonempty(
        f"{len(task.split(name))} {name}" for name in ("train", "val", "test") if task.split(name)
    )
    screen.print_heading(
        report.task, f"{task.evaluator.form} evaluator, {task.objective.direction}imise"
    )
    screen.print_pairs(
        (
            "programs",
            count_text(len(task.seeds), "initial program")
            if task.seeds
            else "none: a model writes the first program",
        ),
        ("cases", splits),
        ("isolation", report.isolation),
        ("trust", f"{report.trust}: {MEANINGS[report.trust]}" if report.trust else ""),
        ("", report.why),
        ("tried", count_text(report.evaluations, "evaluation")),
        ("repeatable", _repeatable_text(report)),
        ("traces", _traces_text(task, report)),
    )
    for seed in report.seeds:
        screen.print_line()
        _show_program(screen, seed)
    if report.findings:
        screen.print_line()
    for finding in report.findings:
        fix = finding.fix.replace("TASK", place)
        screen.print_finding(finding.level, finding.what, fix, _STYLES[finding.level])
    screen.print_line()
    if report.fit:
        screen.print_line("This task can be searched.", style="green")
        screen.print_next_steps(*next_steps)
    else:
        screen.print_line("This task cannot be searched yet.", style="red")


def _traces_text(task: Task, report: TaskReport) -> str:
    from culmen.report.figures import describe_traces

    drew, left = dict.fromkeys(report.draws, 1), dict.fromkeys(report.leaves, 1)
    return describe_traces(drew, left, task.evaluator.keeps_state)


def _repeatable_text(report: TaskReport) -> str:
    if report.repeatable is None:
        cached = any(call.usage.cache_hits for o in report.observations for call in o.asked)
        return "unknown: models' replies came from the cache" if cached else ""
    if not report.repeatable:
        causes = [seed.cause for seed in report.seeds if seed.cause]
        what = f"with the {causes[0]}" if causes else "even with the same random seed"
        return f"no: results change {what}"
    if report.draws and report.seed_free:
        return "yes so far, but random numbers are drawn"
    return "yes, whatever the random seed" if report.seed_free else "yes, with the same random seed"


def _show_program(screen: Screen, seed: SeedReport) -> None:
    statuses = join_nonempty(f"{value} {name}" for name, value in seed.statuses.items())
    screen.print_pairs(
        ("program", seed.candidate),
        ("score", "none" if seed.mean is None else f"{number_text(seed.mean)} (mean)"),
        ("noise", _noise_text(seed)),
        ("between cases", "" if seed.case_spread is None else f"{seed.case_spread:.3g}"),
        ("time", f"{seed.seconds:.3g} s median, {seed.slowest:.3g} s at most"),
        ("outcomes", statuses),
        ("failure", escape_controls(seed.failure)),
        # lines shown of an evaluation's output
        ("printed", escape_controls("\n".join(seed.printed.strip().splitlines()[:10]))),
    )


def _noise_text(seed: SeedReport) -> str:
    if seed.noise is None:
        return ""
    if not seed.noise and not seed.seed_noise:
        return "none"
    texts = [f"{seed.noise:.3g} with the same random seed"]
    if seed.seed_noise is not None:
        texts.append(f"{seed.seed_noise:.3g} between random seeds")
    return join_nonempty(texts) + " (standard deviations)"


# `culmen demo`: a real search on a built-in task, with nothing to install, no key and no network.

TASK = "circle_packing"
SETTINGS = {  # one lane and one child at a time: the proposer evaluates side by side
    "pedigree": {"most": "1", "lanes": "1"},
    "polca": {"explore": "1", "epsilon": "0.03", "lanes": "1"},
}
EVALUATIONS = 280  # the only limit, so that a slow machine has the same result for a seed

_WELCOME = (
    "Packs 26 circles into a square by rewriting a small program, offline: no language model, "
    "no key, no network.\n"
    "Candidates run in a jail; every result is journaled, so Ctrl-C and culmen resume lose "
    "nothing.\n"
    "The sum of their radii is the score: the start has 0.96, the best packing known 2.636.\n"
)


def demonstrate_search(
    screen: Screen,
    strategy: str,
    seed: int,
    seconds: float | None,
    workers: int,
    run_dir: Path | None,
) -> Answer:
    """Search with the offline proposer for at most `seconds`; its document has the changes, too."""
    from culmen import tasks as taskfiles
    from culmen.run.study import Study
    from culmen.strategies import catalog

    if not screen.as_json:
        screen.err.print(_WELCOME, style="dim", markup=False)

    def create(watch: Watch) -> Study:
        return Study.create(
            taskfiles.load(taskfiles.example_path(TASK)),
            catalog.make_strategy(strategy, SETTINGS[strategy]),
            budget=Budget(evaluations=EVALUATIONS, seconds=seconds),
            random_seed=seed,
            workers=workers,
            run_dir=run_dir,
            observers=(watch,),
        )

    answer = run_study(screen, create, quiet=False)
    path = Path(answer.data["path"])
    best = views.best_result(path)
    if best is None:
        return answer
    initial = views.initial_program(path)
    first, last = (views.candidate_detail(path, name) for name in (initial, best.id))
    data: JsonObject = {
        **answer.data,
        "seed_score": first.row.mean,
        "diff": "\n".join(look.diff_lines(first, last)),
    }
    return msgspec.structs.replace(answer, data=data)
