"""Scores of given programs on a task, in its own jail."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.evaluate.backends import SettlingBackend
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, load


class ProgramScores(msgspec.Struct, frozen=True):
    """Scores of one program: means by split, means of the metrics over all cases, and failure.

    The failure is "" if there was none.
    """

    name: str
    scores: dict[str, float]
    metrics: dict[str, float]
    seconds: float
    failure: str = ""


def measure_programs(
    task: Task, programs: Mapping[str, Mapping[str, str]], seeds: int = 3, workers: int = 1
) -> list[ProgramScores]:
    """Scores of every program (parts by name) on every case with `seeds` random seeds.

    In the order given. `workers` evaluations run at once: one if scores depend on time. Raises
    TaskError and IsolationError as `LocalBackend.start` does.
    """
    return asyncio.run(_measure_in_jail(task, programs, seeds, workers))


async def _measure_in_jail(
    task: Task, programs: Mapping[str, Mapping[str, str]], seeds: int, workers: int
) -> list[ProgramScores]:
    backend = SettlingBackend(LocalBackend(task, workers), task)
    jobs = [(case, seed) for case in task.cases or (None,) for seed in range(seeds)]
    try:
        await backend.start()
        rows = []
        for name, parts in programs.items():
            candidate = Candidate.of(dict(parts))
            observations = await asyncio.gather(
                *(backend.evaluate(candidate, case, seed) for case, seed in jobs)
            )
            rows.append(_scored_program(task, name, observations))
        return rows
    finally:
        await backend.close()


def _scored_program(task: Task, name: str, observations: Sequence[Observation]) -> ProgramScores:
    split = {case.id: case.split for case in task.cases}
    failed = next((observation for observation in observations if observation.score is None), None)
    scores: dict[str, list[float]] = {}
    metrics: dict[str, list[float]] = {}
    for observation in observations:
        if observation.score is not None:
            scores.setdefault(split.get(observation.case, "score"), []).append(observation.score)
        for key, value in observation.metrics.items():
            metrics.setdefault(key, []).append(value)
    return ProgramScores(
        name=name,
        scores={key: fmean(values) for key, values in scores.items()},
        metrics={key: fmean(values) for key, values in metrics.items()},
        seconds=fmean(observation.seconds for observation in observations),
        failure=f"{failed.reason}: {failed.feedback.strip()[-300:]}" if failed else "",
    )


def scores_table(rows: Iterable[ProgramScores]) -> str:
    """The rows as a table in Markdown."""
    listed = list(rows)
    splits = list(dict.fromkeys(key for row in listed for key in row.scores))
    extras = list(dict.fromkeys(key for row in listed for key in row.metrics))
    lines = [["program", *splits, *extras, "seconds"]]
    lines.append(["---"] * len(lines[0]))
    for row in listed:
        if row.failure:
            lines.append([f"`{row.name}`", f"failed: {' '.join(row.failure.split())}"])
            continue
        shown = [f"{row.scores[key]:.4f}" for key in splits] + [
            f"{row.metrics[key]:.4g}" for key in extras
        ]
        lines.append([f"`{row.name}`", *shown, f"{row.seconds:.2f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(
    file: str,
    bindings: Mapping[str, str],
    variants: Mapping[str, Mapping[str, str]] | None = None,
    seeds: int = 3,
) -> None:
    """Print the scores of the initial program, and of those in the file named as a built-in task.

    `bindings` are lines that make a program of the file's text, by name (`"run = greedy"`);
    `variants` are parts that replace the initial program's.
    """
    parser = argparse.ArgumentParser(description="Measure the baselines of this task.")
    parser.add_argument("--seeds", type=int, default=seeds, help="random seeds for every case")
    options = parser.parse_args()
    task, text = load(example_path(Path(file).stem)), Path(file).read_text(encoding="utf-8")
    seed, part = task.seeds[0], task.evaluator.module
    programs: dict[str, dict[str, str]] = {"seed": seed}
    programs |= {name: {**seed, part: f"{text}\n\n{line}\n"} for name, line in bindings.items()}
    programs |= {name: {**seed, **parts} for name, parts in (variants or {}).items()}
    print(scores_table(measure_programs(task, programs, options.seeds)))
