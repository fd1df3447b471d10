"""`culmen audit`: what could be gamed in a task, or what in a run looks as if it was."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli import suspicions
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb
from culmen.core.errors import UserError
from culmen.observe.figures import clean, count, duration, joined

if TYPE_CHECKING:
    from culmen.audit.report import Outcome, Report
    from culmen.core.task import Task

PANEL = "Start"
FINDINGS = 1
_STYLES = {"gamed": "bold red", "effect": "bold red", "look": "yellow", "held": "green", "skipped": "dim"}


def add_to(app: typer.Typer) -> None:
    """Declare the verb."""
    verb(app, PANEL)(audit)


def audit(
    screen: Screen,
    path: Annotated[
        str | None,
        typer.Argument(metavar="TASK|RUN", help="A task, to attack its evaluator; or a run, to look for signs."),
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Attack with this program instead of the seed.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ATTACK", help="This attack alone. Repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Begin no further attack after this time.")] = 300.0,
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 2,
    require: Annotated[str | None, typer.Option(metavar="LEVEL", help="Refuse weaker isolation than this.")] = None,
) -> Answer:
    """What could be gamed in a task, before anything is spent; or what in a run looks as if it was.

    A task's evaluator is attacked with programs made from the seed, on a copy of its folder. Exit code 1 if something
    pays, or if a run has grave signs.
    """
    if _is_task(path):
        return of_task(screen, Path(str(path)), program, only or (), seconds, workers, require)
    return suspicions.of_run(path)


def _is_task(path: str | None) -> bool:
    """Whether a path is a task rather than a run, or the name of one."""
    from culmen.store.address import has_run

    return path is not None and Path(path).exists() and not has_run(Path(path))


def of_task(
    screen: Screen,
    path: Path,
    program: Path | None,
    only: Sequence[str],
    seconds: float,
    workers: int,
    require: str | None,
) -> Answer:
    """Attack the evaluator of the task at `path`."""
    from culmen.audit import audit as attack
    from culmen.evaluate.local import LocalBackend

    task, parts = _with_program(path, program)

    def tell(text: str) -> None:
        if screen.live:
            screen.err.print(f"trying: {text}", style="dim")

    def make(task: Task) -> LocalBackend:
        return LocalBackend(task, workers, require=require)

    try:
        report = asyncio.run(attack(task, make, parts=parts, only=only, seconds=seconds, tell=tell))
    except UserError as error:
        error.fix = error.fix.replace("TASK", str(path))
        raise
    data = {"kind": "task", "path": str(path.resolve()), **msgspec.to_builtins(report), "gamed": report.gamed}
    return Answer(data, lambda screen: show_task(screen, report, path), FINDINGS if report.gamed else 0)


def _with_program(path: Path, program: Path | None) -> tuple[Task, dict[str, str] | None]:
    """The task, and the parts to attack with (None: its first seed)."""
    from culmen.evaluate import taskfiles

    if program is None:
        return taskfiles.load(path, goal="audit"), None
    if not program.is_file():
        raise UserError(f"there is no program '{program}'", where="--program", fix="check the path")
    text = program.read_text(encoding="utf-8", errors="replace")
    task = taskfiles.load(path, goal="audit")
    if not task.seeds:
        return taskfiles.load(path, goal="audit", seeds=[{program.name: text}]), {program.name: text}
    seed = task.seeds[0]
    return task, {**seed, task.evaluator.module or next(iter(seed)): text}


def show_task(screen: Screen, report: Report, path: Path) -> None:
    """The report for people."""
    honest = report.honest
    screen.heading(report.task, f"{report.form} evaluator, {report.direction}imise")
    screen.pairs(
        ("program", honest.candidate),
        (
            "score",
            f"{honest.score!r}, {report.trust}"
            + (f", certified {honest.certified!r}" * (honest.certified is not None)),
        ),
        ("isolation", report.isolation),
        ("tried", f"{count(report.evaluations, 'evaluation')} in {duration(report.seconds)}"),
    )
    for note in report.notes:
        screen.note(note)
    told = report.of("gamed", "effect", "look")
    if told:
        screen.line()
        _table(screen, told)
    alike: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in told:
        key = (outcome.result, outcome.fix, *(f"{place.file}:{place.line}" for place in outcome.places))
        alike.setdefault(key, []).append(outcome)
    for outcomes in alike.values():
        screen.line()
        _outcomes(screen, outcomes)
    screen.line()
    _rest(screen, report)
    screen.line()
    screen.line(_summary(report), style="red" if report.gamed else "green")
    if not report.gamed:
        screen.next_steps((f"culmen run {shlex.quote(str(path))}", "search"))


def _table(screen: Screen, told: Sequence[Outcome]) -> None:
    """Honest and false scores side by side, and where to look."""
    rows = [
        (
            outcome.result, outcome.title, *("" if v is None else f"{v:.10g}" for v in _numbers(outcome)),
            ", ".join(f"{place.file}:{place.line}" for place in outcome.places),
        )
        for outcome in told
    ]  # fmt: skip
    screen.table(["result", "attack", "honest", "scored", "certified", "line"], rows, right="honest scored certified")


def _numbers(outcome: Outcome) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if outcome.scored is None else (outcome.honest, outcome.scored, outcome.certified)


def _outcomes(screen: Screen, outcomes: Sequence[Outcome]) -> None:
    """Attacks that are stopped by the same change."""
    first = outcomes[0]
    screen.finding(first.result, joined(outcome.title for outcome in outcomes), "", _STYLES[first.result])
    rows = [("shows", outcome.shows) for outcome in outcomes]
    rows += [("evidence", outcome.evidence) for outcome in outcomes]
    for place in first.places:
        mark = " (proven)" if place.proven else ""
        rows.append(("change", f"{place.file}:{place.line}{mark}  {place.text}"))
        rows.append(("", place.why))
    screen.pairs(*((f"  {label}", clean(text)) for label, text in rows), ("  do", first.fix))


def _rest(screen: Screen, report: Report) -> None:
    held = [outcome.title.lower() for outcome in report.of("held")]
    skipped: dict[str, list[str]] = {}
    for outcome in report.of("skipped"):
        skipped.setdefault(outcome.evidence, []).append(outcome.title.lower())
    rows = [("held", f"{len(held)}: {joined(held)}")] if held else []
    rows += [("skipped", f"{len(titles)}: {joined(titles)} ({why})") for why, titles in skipped.items()]
    screen.pairs(*rows)


def _summary(report: Report) -> str:
    paid, effects, look = (len(report.of(each)) for each in ("gamed", "effect", "look"))
    false = sum(outcome.false for outcome in report.outcomes)
    tried = len(report.outcomes) - len(report.of("skipped"))
    if not report.gamed:
        more = f"; {look} worth a look" if look else ""
        return f"None of {tried} attacks paid{more}."
    certified = f", {false} of them certified" if report.honest.certified is not None else ""
    texts = [
        f"{count(paid, 'attack')} of {tried} paid{certified}" if paid else "",
        f"{count(effects, 'side effect')}" if effects else "",
    ]
    return f"{joined(texts)}. Change the lines above, or raise the level of the score: docs/audit.md."
