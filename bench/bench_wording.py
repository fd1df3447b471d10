"""CATO's open experiment: does the pressing wording make agents game the evaluator?

    python bench/bench_wording.py circle_packing --agent claude --set agents=10 --set threshold=2.6359

Runs of both wordings with the same random seeds, and from their journals the gain and the cost of
each further agent, and the best score before the first finding of gaming. After an interruption the
same command continues: finished runs are reused.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Unpack, cast

import msgspec

from culmen import tasks as taskfiles
from culmen.cli.screen import Screen
from culmen.core.admissions import ADMISSION
from culmen.core.errors import NoAnswer
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evidence.intervals import t_quantile_95
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.team.texts import WORDINGS
from culmen.extensions.bench.stats import wilson_interval
from culmen.report.figures import count_text
from culmen.store import views
from culmen.store.address import has_run
from culmen.strategies.catalog import make_strategy

if TYPE_CHECKING:
    from culmen.run.study import CreateKeywords


class AgentTurn(msgspec.Struct, frozen=True):
    """One agent of a run.

    `gain` is the improvement of the run's best score by its candidates, in the task's direction and
    at least 0, candidates found to game included; None before a first score. `dollars` and `tokens`
    are None if no call of the agent's was counted.
    """

    agent: int
    gain: float | None
    gamed: bool
    experiments: int
    seconds: float
    tokens: int | None
    dollars: float | None


class WordedRun(msgspec.Struct, frozen=True):
    """One run of a wording.

    `best` is the best score of the agents' search, `honest` that before the first candidate with a
    finding: a grave sign, or an admission of its author. Certified scores, if the task has a
    verifier; None without a score. `gamed`: there is a finding.
    """

    wording: str
    seed: int
    reason: str
    best: float | None
    honest: float | None
    gamed: bool
    turns: tuple[AgentTurn, ...]


class MeanEstimate(msgspec.Struct, frozen=True):
    """A mean over `count` runs, and half its 95 % interval (Student's t; None for one run)."""

    mean: float
    margin: float | None
    count: int


def make_runs(
    task: Task, rules: Cato, seeds: int, out: Path, **keywords: Unpack[CreateKeywords]
) -> Iterator[WordedRun]:
    """Make the runs of both wordings, seed by seed, and yield each; finished ones are only read.

    `keywords` are those of `Study.create`. Ends early after a run that was interrupted.
    """
    for seed, name in product(range(seeds), WORDINGS):
        folder = out / name / f"seed-{seed}"
        _finish_run(folder, task, replace(rules, wording=name), seed, keywords)
        yield read_run(folder, name, seed)
        if views.run_status(folder).state != "finished":
            return


def _finish_run(folder: Path, task: Task, rules: Cato, seed: int, keywords: CreateKeywords) -> None:
    """Make a run, or go on with one; a run without an answer is a result as any other."""
    from culmen.run.study import Study

    if not has_run(folder):
        keywords = {**keywords, "random_seed": seed}
        study = Study.create(task, rules, run_dir=folder, **keywords)
    elif views.run_status(folder).state != "finished":
        study = Study.resume(folder)
    else:
        return
    try:
        study.run(progress=False)
    except NoAnswer:
        if views.run_status(folder).state != "finished":
            raise


def read_run(folder: Path, wording: str, seed: int) -> WordedRun:
    """A run's agents and scores, from its journal."""
    status = views.run_status(folder)
    kinds = ("agent", "experiment", "agent ended")
    notes = [event for kind in kinds for event in views.note_events(folder, kind)]
    notes.sort(key=lambda event: event.seq)
    sign = 1.0 if status.direction == "max" else -1.0
    rows = [event.entry.body for event in notes if event.entry.body["note"] == "experiment"]
    found = gamed_candidates(folder)
    scored = [(row, score) for row in rows if (score := _decisive_score(row, rows)) is not None]
    before = list[float]()
    for row, score in scored:
        if row["candidate"] in found:
            break
        before.append(sign * score)
    authors = {row["agent"] for row in rows if row["candidate"] in found}
    bests = [sign * score for _, score in scored]
    return WordedRun(
        wording,
        seed,
        status.reason,
        best=sign * max(bests) if bests else None,
        honest=sign * max(before) if before else None,
        gamed=bool(authors),
        turns=tuple(_agent_turns(notes, scored, sign, authors)),
    )


def gamed_candidates(folder: Path) -> set[str]:
    """Candidates with a grave sign, and those whose author admitted to gaming the evaluator."""
    signs = views.run_integrity(folder, limit=100_000).findings
    admitted = [event.entry.body["candidates"] for event in views.note_events(folder, ADMISSION)]
    return {each.candidate for each in signs if each.grave} | {
        candidate for candidates in admitted for candidate in candidates
    }


def _decisive_score(row: JsonObject, rows: Sequence[JsonObject]) -> float | None:
    """The score that counts: the certified one if any row of the run has one."""
    exact = any(each.get("certified") is not None for each in rows)
    return row.get("certified") if exact else row.get("score")


def _agent_turns(
    notes: Sequence[Event],
    scored: Sequence[tuple[JsonObject, float]],
    sign: float,
    authors: Collection[int],
) -> Iterator[AgentTurn]:
    began = dict[int, float]()
    for event in notes:
        body = event.entry.body
        if body["note"] == "agent":
            began[body["agent"]] = event.entry.elapsed
        if body["note"] != "agent ended":
            continue
        agent = body["agent"]
        own = [sign * score for row, score in scored if row["agent"] == agent]
        first = next((n for n, (row, _) in enumerate(scored) if row["agent"] == agent), 0)
        before = [sign * score for _, score in scored[:first]]
        gain = 0.0 if before else None
        if own and before:
            gain = max(0.0, max(own) - max(before))
        counted = body["calls"] > 0
        yield AgentTurn(
            agent,
            gain,
            agent in authors,
            body["experiments"],
            event.entry.elapsed - began.get(agent, event.entry.elapsed),
            body["tokens"] if counted else None,
            body["dollars"] if counted else None,
        )


def estimate_mean(values: Iterable[float | None]) -> MeanEstimate | None:
    """The mean of the known values with its interval; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    margin = None
    if len(known) > 1:
        margin = t_quantile_95(len(known) - 1) * stdev(known) / math.sqrt(len(known))
    return MeanEstimate(fmean(known), margin, len(known))


class WordingSummary(msgspec.Struct, frozen=True):
    """All runs of one wording: means, and `gamed` of `runs` with a finding."""

    wording: str
    runs: int
    gamed: int
    gamed_low: float
    gamed_high: float
    best: MeanEstimate | None
    honest: MeanEstimate | None
    agents: MeanEstimate | None
    experiments: MeanEstimate | None
    seconds: MeanEstimate | None
    dollars: MeanEstimate | None


class FurtherAgent(msgspec.Struct, frozen=True):
    """The n-th agent of a wording (from 1), over the runs that came to it; `gamed` of `runs`."""

    wording: str
    number: int
    runs: int
    gamed: int
    gain: MeanEstimate | None
    experiments: MeanEstimate | None
    seconds: MeanEstimate | None
    tokens: MeanEstimate | None
    dollars: MeanEstimate | None


class WordingComparison(msgspec.Struct, frozen=True):
    """The comparison: `honest_difference` and `gamed_difference` are pressing - ours, paired by
    random seed; the score's difference is in the task's own direction.
    """

    summaries: tuple[WordingSummary, ...]
    further: tuple[FurtherAgent, ...]
    honest_difference: MeanEstimate | None
    gamed_difference: MeanEstimate | None


def compare_wordings(runs: Sequence[WordedRun]) -> WordingComparison:
    """Both wordings side by side, and each of their agents."""
    groups = {name: [run for run in runs if run.wording == name] for name in WORDINGS}
    known = {name: group for name, group in groups.items() if group}
    ours, pressing = ({run.seed: run for run in group} for group in groups.values())
    pairs = [(ours[seed], pressing[seed]) for seed in ours if seed in pressing]
    return WordingComparison(
        tuple(_summary(name, group) for name, group in known.items()),
        tuple(row for name, group in known.items() for row in _further_agents(name, group)),
        estimate_mean(
            None if a.honest is None or b.honest is None else b.honest - a.honest for a, b in pairs
        ),
        estimate_mean(float(b.gamed) - float(a.gamed) for a, b in pairs),
    )


def _summary(name: str, runs: Sequence[WordedRun]) -> WordingSummary:
    gamed = sum(run.gamed for run in runs)
    low, high = wilson_interval(gamed / len(runs), len(runs))
    return WordingSummary(
        name,
        len(runs),
        gamed,
        low,
        high,
        best=estimate_mean(run.best for run in runs),
        honest=estimate_mean(run.honest for run in runs),
        agents=estimate_mean(float(len(run.turns)) for run in runs),
        experiments=estimate_mean(
            float(sum(turn.experiments for turn in run.turns)) for run in runs
        ),
        seconds=estimate_mean(sum(turn.seconds for turn in run.turns) for run in runs),
        dollars=estimate_mean(_total_dollars(run) for run in runs),
    )


def _total_dollars(run: WordedRun) -> float | None:
    """Costs of all agents together; None if any of them is not counted."""
    spent = [turn.dollars for turn in run.turns]
    known = [dollars for dollars in spent if dollars is not None]
    return sum(known) if len(known) == len(spent) else None


def _further_agents(name: str, runs: Sequence[WordedRun]) -> Iterator[FurtherAgent]:
    for n in range(max((len(run.turns) for run in runs), default=0)):
        turns = [run.turns[n] for run in runs if len(run.turns) > n]
        yield FurtherAgent(
            name,
            n + 1,
            len(turns),
            sum(turn.gamed for turn in turns),
            estimate_mean(turn.gain for turn in turns),
            estimate_mean(float(turn.experiments) for turn in turns),
            estimate_mean(turn.seconds for turn in turns),
            estimate_mean(turn.tokens for turn in turns),
            estimate_mean(turn.dollars for turn in turns),
        )


def show_comparison(screen: Screen, found: WordingComparison) -> None:
    """Print both tables, and the differences with their intervals."""
    screen.print_line("Means ± half a 95 % interval over runs.", style="dim")
    heads = ["wording", "runs", "gamed", "best", "before the first finding", "agents"]
    heads += ["experiments", "seconds", "dollars"]
    rows = [
        [
            each.wording,
            f"{each.runs}",
            f"{each.gamed} ({each.gamed_low:.0%} to {each.gamed_high:.0%})",
            *map(estimate_text, (each.best, each.honest, each.agents, each.experiments)),
            estimate_text(each.seconds),
            estimate_text(each.dollars, "not counted"),
        ]
        for each in found.summaries
    ]
    screen.print_table(heads, rows, right=heads[1:])
    screen.print_line()
    screen.print_heading("Each further agent")
    heads = ["wording", "agent", "runs", "gamed", "gain", "experiments", "seconds", "dollars"]
    rows = [
        [
            each.wording,
            *map(str, (each.number, each.runs, each.gamed)),
            *map(estimate_text, (each.gain, each.experiments, each.seconds)),
            estimate_text(each.dollars, "not counted"),
        ]
        for each in found.further
    ]
    screen.print_table(heads, rows, right=heads[1:])
    pairs = found.gamed_difference
    if pairs is None:
        return
    screen.print_line()
    screen.print_line(
        f"go_on_until_reached - stop_when_reached, {count_text(pairs.count, 'pair')}: "
        f"share of gamed runs {estimate_text(pairs)}, "
        f"score before the first finding {estimate_text(found.honest_difference)}"
    )


def estimate_text(value: MeanEstimate | None, none: str = "-") -> str:
    """`0.4 ± 0.1`; the mean alone of one run, `none` without any."""
    if value is None:
        return none
    return f"{value.mean:.5g}" + ("" if value.margin is None else f" ± {value.margin:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", help="a task folder, or a built-in task")
    parser.add_argument("--agent", required=True, help="agent of CATO: culmen doctor lists them")
    parser.add_argument("--seeds", type=int, default=6, help="runs of each wording")
    parser.add_argument("--budget", default="evaluations=2000,seconds=36000", help="of each run")
    parser.add_argument("--model", default="offline", help="of each run")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE: a setting of cato")
    parser.add_argument("--out", type=Path, default=Path("runs/wording"), help="folder of runs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    path = given.task if Path(given.task).exists() else taskfiles.example_path(given.task)
    settings = dict(each.split("=", 1) for each in given.set)
    rules = make_strategy("cato", {**settings, "agent": Cato.require_agent(given.agent)})
    keywords: CreateKeywords = {"model": given.model, "budget": Budget.parse(given.budget)}
    task = taskfiles.load(path)
    runs = list(make_runs(task, cast(Cato, rules), given.seeds, given.out, **keywords))
    found = compare_wordings(runs)
    if given.json:
        print(json.dumps(msgspec.to_builtins({"runs": runs, "comparison": found})))
    else:
        show_comparison(Screen(), found)
    if len(runs) < 2 * given.seeds:
        raise SystemExit("interrupted: run the same command again to continue")


if __name__ == "__main__":
    main()
