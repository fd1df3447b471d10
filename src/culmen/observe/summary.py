"""The three lines that a run begins with wherever it is shown: what came out, what was used, what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from culmen.observe.diagnosis import Finding, diagnose
from culmen.observe.figures import count, dollars, duration, joined, measured, number, result_line
from culmen.observe.names import run_name, short_path
from culmen.store import views
from culmen.store.views import Front, RunStatus


class RunSummary(msgspec.Struct, frozen=True):
    """`result`, `used` and `next` are the three lines; `findings` what ails the run, with one thing to try each."""

    result: str
    used: str
    next: str
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[str, str, str]:
        """The three lines."""
        return self.result, self.used, self.next

    def __str__(self) -> str:
        told = (f"{finding.what}; try: {finding.do}" for finding in self.findings)
        return "\n".join([*self.lines, *told])


def summarize(run: Path, now: RunStatus | None = None, name: str = "") -> RunSummary:
    """The summary of a run as it stands; `name` is what commands call it ("": what works in this folder)."""
    now = now or views.status(run)
    name = name or run_name(run)
    found = tuple(msgspec.structs.replace(f, do=_named(f.do, name, now)) for f in diagnose(now, run))
    command, why = _advised(now, name, found) or next_steps(now, run, name)[0]
    return RunSummary(result(now, run), used(now), f"next: {command}  ({why})", found)


def _advised(now: RunStatus, run: str, found: tuple[Finding, ...]) -> tuple[str, str] | None:
    """The command that what ails a finished run calls for, where there is one."""
    topics, more = {finding.topic for finding in found}, now.budget.again(now.reason)
    if now.state != "finished" or not more:
        return None
    if topics & {"within_noise", "fallen"}:
        return f"culmen fork {run} --budget {more},final=0.3", "measure longer: the result is not sure yet"
    if topics & {"stalled", "failing", "nothing_accepted"}:
        return f"culmen fork {run} --model NAME --budget {more}", "go on with another model"
    return None


def result(now: RunStatus, run: Path) -> str:
    """`initial 0.44 ± 0.09 → best 0.52 ± 0.04: +0.08, within noise`; of a search that goes on, what it believes."""
    best = now.best
    if best is None:
        failed = joined(f"{many:,} {status}" for status, many in now.statuses.items() if status != "ok")
        return "nothing has scored" + (f": {failed}" if failed else " yet")
    if (found := views.front(run)) is not None:
        return front_line(found)
    if said := result_line(best, now.direction):
        return said
    first = next(iter(views.candidates(run, "old", operator="seed", limit=1)), None)
    before = "" if first is None or first.mean is None else f"initial {measured(first.mean, first.margin)} → "
    if first is not None and first.id == best.id:
        return f"nothing better than the initial program yet ({number(best.score)})"
    doubt = "" if best.confirmed else ", not confirmed by fresh evaluations" + " yet" * (now.state != "finished")
    return f"{before}best {measured(best.score, best.margin)}{doubt}"


def front_line(found: Front) -> str:
    """`front of 6, confirmed: accuracy 0.81 to 0.95, latency 3 to 20; hypervolume 12.5`."""
    spans = [
        f"{goal.name} " + " to ".join(dict.fromkeys([number(min(values)), number(max(values))]))
        for goal in found.objectives
        if (values := [member.metrics[goal.name] for member in found.members])
    ]
    sure = "confirmed" if found.confirmed else "not confirmed by fresh evaluations"
    broken = "" if all(member.feasible for member in found.members) else "; none holds every constraint"
    return f"front of {len(found.members)}, {sure}: {joined(spans)}; hypervolume {number(found.hypervolume)}{broken}"


def used(now: RunStatus) -> str:
    """Evaluations, calls, money and time."""
    usage = now.usage
    calls = tokens = money = ""
    if usage.calls:
        calls = count(usage.calls, "call")
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        money = dollars(usage.dollars) + (
            f" and {count(usage.unpriced, 'call')} of unknown price" * bool(usage.unpriced)
        )
    return joined(["used " + count(now.evaluations, "evaluation"), calls, tokens, money, duration(now.elapsed_seconds)])


def next_steps(now: RunStatus, path: Path, name: str = "") -> list[tuple[str, str]]:
    """Commands worth typing now, the first one first, each with what it is for."""
    run, first = name or run_name(path), bool(views.meta(path).task.seeds)
    if now.state == "running":
        return [(f"culmen watch {run}", "follow it"), *_results(now, run, first)]
    steps = [] if now.state == "finished" else [(f"culmen resume {run}", "go on")]
    if now.findings:
        steps.append((f"culmen audit {run}", "what looks like gaming"))
    if now.best is None:
        return [*steps, *_unscored(now, path, run)]
    if now.reason == "integrity":
        steps.append((f"culmen fork {run} --integrity reject", "go on without such candidates"))
    steps += _results(now, run, first)
    if now.state == "finished" and (more := now.budget.again(now.reason)):
        steps.append((f"culmen fork {run} --budget {more}", "go on with more"))
    return steps


def _results(now: RunStatus, run: str, first: bool) -> list[tuple[str, str]]:
    if now.best is None:
        return []
    changed = [(f"culmen diff {run} seed best", "what changed")] if first else []
    return [(f"culmen best {run}", "print the best"), *changed]


def _unscored(now: RunStatus, path: Path, run: str) -> list[tuple[str, str]]:
    """Where nothing has scored: try the task alone, where it lies in a folder."""
    root = views.meta(path).task.root
    folder = [(f"culmen check {shlex.quote(short_path(root))}", "why it fails")] if root and now.evaluations else []
    return [*folder, (f"culmen log {run}", "what happened")]


def _named(text: str, run: str, now: RunStatus) -> str:
    best = now.best.id if now.best is not None else "ID"
    return text.replace("RUN", run).replace(f"show {run} ID", f"show {run} {best}")
