"""`culmen check`: tries a task out and prints what was found."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.cli import trying
from culmen.cli.screen import Answer, Screen
from culmen.core.evaluation import MEANINGS
from culmen.observe.figures import clean, count, joined, number

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.evaluate.check import SeedReport, TaskReport

FINDINGS = 1
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def answer(screen: Screen, task: Task, path: Path, runs: int, require: str | None) -> Answer:
    """Check the task, which was found at `path`."""
    from culmen.evaluate.check import check
    from culmen.evaluate.local import LocalBackend

    with trying.progress(screen, task, runs) as told:
        report = asyncio.run(check(task, LocalBackend(task, workers=1, require=require), runs, told))
    data = {**msgspec.to_builtins(report), "fit": report.fit}
    for seed in data["seeds"]:
        del seed["observations"]  # one by one they say no more than the summary
    return Answer(data, lambda screen: _show(screen, task, path, report), 0 if report.fit else FINDINGS)


def _show(screen: Screen, task: Task, path: Path, report: TaskReport) -> None:
    splits = joined(f"{len(task.split(name))} {name}" for name in ("train", "val", "test") if task.split(name))
    screen.heading(report.task, f"{task.evaluator.form} evaluator, {task.objective.direction}imise")
    screen.pairs(
        ("seeds", str(len(task.seeds) or "none: a model writes the first")),
        ("cases", splits),
        ("isolation", report.isolation),
        ("trust", f"{report.trust}: {MEANINGS[report.trust]}" if report.trust else ""),
        ("", report.why),
        ("tried", count(report.evaluations, "evaluation")),
        ("repeatable", _repeatable(report)),
    )
    for seed in report.seeds:
        screen.line()
        _seed(screen, seed)
    if report.findings:
        screen.line()
    for finding in report.findings:
        screen.finding(finding.level, finding.what, finding.fix, _STYLES[finding.level])
    screen.line()
    if report.fit:
        screen.line("This task can be searched.", style="green")
        place = shlex.quote(str(path))
        screen.next_steps((f"culmen audit {place}", "what could be gamed"), (f"culmen run {place}", "search"))
    else:
        screen.line("This task cannot be searched yet.", style="red")


def _repeatable(report: TaskReport) -> str:
    if report.repeatable is None:
        return ""
    if not report.repeatable:
        return "no: results change even with the same random seed"
    return "yes, whatever the random seed" if report.seed_free else "yes, with the same random seed"


def _seed(screen: Screen, seed: SeedReport) -> None:
    statuses = joined(f"{value} {name}" for name, value in seed.statuses.items())
    screen.pairs(
        ("seed", seed.candidate),
        ("score", "none" if seed.mean is None else f"{number(seed.mean)} (mean)"),
        ("noise", _noise(seed)),
        ("between cases", "" if seed.case_spread is None else f"{seed.case_spread:.3g}"),
        ("time", f"{seed.seconds:.3g} s median, {seed.slowest:.3g} s at most"),
        ("outcomes", statuses),
        ("failure", clean(seed.failure)),
    )


def _noise(seed: SeedReport) -> str:
    if seed.noise is None:
        return ""
    if not seed.noise and not seed.seed_noise:
        return "none"
    texts = [f"{seed.noise:.3g} with the same random seed"]
    if seed.seed_noise is not None:
        texts.append(f"{seed.seed_noise:.3g} between random seeds")
    return joined(texts) + " (standard deviations)"
