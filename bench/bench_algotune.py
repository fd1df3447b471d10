"""AlgoTune's tasks with `metric = "speedup"`: can their figures be trusted?

    python bench/bench_algotune.py CHECKOUT itself [--load 4] [--repeats 3]
    python bench/bench_algotune.py CHECKOUT loads [--loads 0 4 12] [--milliseconds 2]
    python bench/bench_algotune.py CHECKOUT solvers [--milliseconds 30] [--timeout 60]

`itself` scores each task's reference against itself, which should give 1.00 +- .05, with --load
busy processes beside. `loads` scores each reference, and each recorded program that starts threads
or processes, beside each of these numbers of busy processes: within .05 of its first figure, or
refused. `solvers` scores the programs in CHECKOUT/results (MODEL/TASK/solver.py), and
compares with CHECKOUT/published_speedups.json by Spearman's correlation; programs without a score
are listed with the reason, and what a program imports must be installed beside culmen. Outcomes
are kept in --out, and a second call goes on from there. Tasks are imported first, into --tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.importers.algotune import import_task, task_files
from culmen.tasks.loading import load

SPREAD = 0.05
RAISED = re.compile(r"^[\w.]*?(\w+(?:Error|Exception)): ", re.M)
STARTS_THREADS = re.compile(r"Thread\(|ThreadPoolExecutor\(|multiprocessing\.Process\(|\bprange\(")
MISSING = re.compile(r"No module named '([\w.]+)'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("what", choices=("itself", "loads", "solvers"))
    parser.add_argument("--tasks", type=Path, default=Path("algotune"))
    parser.add_argument("--milliseconds", type=float, default=100.0)
    parser.add_argument("--models", nargs="*", default=[], help="folders of CHECKOUT/results")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one evaluation")
    parser.add_argument("--out", type=Path, default=Path("algotune_solvers.jsonl"))
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 4, 12])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    files = task_files(asked.checkout, asked.only)
    for name, file in files.items():
        if not (asked.tasks / name / "task.toml").is_file():
            print(import_task(file, asked.tasks / name, asked.milliseconds), flush=True)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    loaded = {name: limited(load(asked.tasks / name), asked.timeout) for name in files}
    if asked.what == "loads":
        asyncio.run(measure_loads(loaded, asked.checkout, asked.loads))
    elif asked.what == "itself":
        with beside(asked.load):
            asyncio.run(measure_references(loaded, asked.repeats))
    else:
        with beside(asked.load):
            asyncio.run(measure_solvers(loaded, asked.checkout, asked.models, asked.out))


@contextlib.contextmanager
def beside(count: int) -> Iterator[None]:
    """So many busy processes meanwhile."""
    busy = [multiprocessing.Process(target=_stay_busy, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def limited(task: Task, seconds: float) -> Task:
    """The task with another time limit of an evaluation."""
    limits = msgspec.structs.replace(task.limits, seconds=seconds)
    return msgspec.structs.replace(task, limits=limits)


def _stay_busy() -> None:
    while True:
        sum(range(10000))


async def evaluate(task: Task, parts: dict[str, str], seeds: range) -> list[Observation]:
    """One evaluation of each seed on the first training case."""
    backend = LocalBackend(task, 1)
    try:
        await backend.start()
        candidate = Candidate.of(parts)
        return [await backend.evaluate(candidate, task.cases[0], seed) for seed in seeds]
    finally:
        await backend.close()


async def measure_references(tasks: dict[str, Task], repeats: int) -> None:
    """Each initial program, which is the reference: its scores, and how many are near 1."""
    near, every = 0, []
    for name, task in tasks.items():
        found = await evaluate(task, dict(task.seeds[0]), range(repeats))
        scores = [each.score for each in found if each.score is not None]
        every += scores
        middle = median(scores) if scores else float("nan")
        near += abs(middle - 1) <= SPREAD
        shares = [each.metrics.get("others_share", 0.0) for each in found]
        why = "" if scores else f"{found[0].status.value}: {found[0].feedback[-200:]!r}"
        print(
            f"{name:34} {middle:6.3f}  of {' '.join(f'{each:.3f}' for each in scores):20}"
            f"  others {100 * max(shares):3.0f} %  {max(e.seconds for e in found):5.1f} s {why}",
            flush=True,
        )
    within = sum(abs(each - 1) <= SPREAD for each in every)
    print(f"within {SPREAD} of 1: {near} of {len(tasks)} tasks by the median of {repeats}")
    print(
        f"single evaluations: {within} of {len(every)}, from {min(every):.3f} to {max(every):.3f}"
    )


async def measure_loads(tasks: dict[str, Task], checkout: Path, loads: list[int]) -> None:
    """A line for each program: its score beside each load, or the word of the refusal."""
    counted = Counter[str]()
    for name, task in tasks.items():
        backend = LocalBackend(task, 1)
        await backend.start()
        try:
            programs = {"reference": dict(task.seeds[0])} | threaded(checkout, name)
            for program, parts in programs.items():
                found = []
                for count in loads:
                    with beside(count):
                        candidate = Candidate.of(parts)
                        found.append(await backend.evaluate(candidate, task.cases[0], 0))
                words = [agreement(found[0].score, each) for each in found]
                kind = "reference" if program == "reference" else "threads"
                counted.update(
                    f"{kind}, load {count}: {word.split()[-1]}"
                    for count, word in zip(loads, words, strict=True)
                )
                print(
                    f"{name:32} {program:18} {'  '.join(f'{each:14}' for each in words)}",
                    flush=True,
                )
        finally:
            await backend.close()
    for what, number in sorted(counted.items()):
        print(f"{number:4} {what}")


def threaded(checkout: Path, name: str) -> dict[str, dict[str, str]]:
    """Recorded programs of a task that start threads or processes, by their model."""
    found = {}
    for file in sorted((checkout / "results").glob(f"*/{name}/solver.py")):
        if STARTS_THREADS.search(file.read_text(errors="replace")):
            found[file.parents[1].name] = {"solver.py": file.read_text(errors="replace")}
    return found


def agreement(first: float | None, found: Observation) -> str:
    """The score and whether it is near the first one; without a score the reason."""
    if found.score is None:
        return found.reason
    if first is None:
        return f"{found.score:.3f} alone"
    return f"{found.score:.3f} {'near' if abs(found.score - first) <= SPREAD else 'OFF'}"


class Outcome(msgspec.Struct, omit_defaults=True):
    """The outcome of one recorded program; `score` is None if it has none."""

    task: str
    model: str
    verdict: str
    score: float | None = None
    published: float | None = None
    error: float = 0.0
    others_share: float = 0.0
    seconds: float = 0.0
    feedback: str = ""


async def measure_solvers(
    tasks: dict[str, Task], checkout: Path, models: list[str], kept: Path
) -> None:
    """Every recorded program: its speed-up beside the published one; `kept` is continued."""
    published = json.loads((checkout / "published_speedups.json").read_text())
    lines = kept.read_bytes().splitlines() if kept.is_file() else []
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    done = {(each.task, each.model) for each in outcomes}
    for name, task in tasks.items():
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            for folder in sorted((checkout / "results").glob(f"*/{name}")):
                model = folder.parent.name
                if (name, model) in done or (models and model not in models):
                    continue
                if not (folder / "solver.py").is_file():
                    continue
                outcome = await measure_solver(backend, task, folder, published[name])
                outcomes.append(outcome)
                with kept.open("ab") as file:
                    file.write(msgspec.json.encode(outcome) + b"\n")
                print(outcome_line(outcome), flush=True)
        finally:
            await backend.close()
    print_summary([each for each in outcomes if each.task in tasks])


async def measure_solver(
    backend: LocalBackend, task: Task, folder: Path, known: dict[str, dict[str, str]]
) -> Outcome:
    """The outcome of the program in a folder, on the first training case."""
    parts = {p.name: p.read_text(errors="replace") for p in sorted(folder.glob("*.py*"))}
    parts = {"solver.py": parts.pop("solver.py"), **parts}
    found = await backend.evaluate(Candidate.of(parts), task.cases[0], 0)
    return Outcome(
        folder.name,
        folder.parent.name,
        verdict(found),
        found.score,
        known_speedup(known, folder.parent.name),
        found.metrics.get("speedup_error", 0.0),
        found.metrics.get("others_share", 0.0),
        found.seconds,
        "" if found.score is not None else found.feedback[-600:],
    )


def outcome_line(each: Outcome) -> str:
    """One line for people."""
    shown = "" if each.score is None else f"{each.score:8.3f}"
    return f"{each.task:32} {each.model:22} {shown:>8} {each.published or '-':>8} {each.seconds:5.1f} s  {each.verdict}"


def print_summary(outcomes: list[Outcome]) -> None:
    """Verdicts, and Spearman's correlation of each task and of all programs together."""
    reasons = Counter(each.verdict for each in outcomes)
    lost = sum(each.verdict.startswith(("lost", "needs")) for each in outcomes)
    share = 100 * (len(outcomes) - lost) / max(1, len(outcomes))
    print(f"{len(outcomes)} programs, a verdict on {len(outcomes) - lost} ({share:.1f} %):")
    for reason, number in reasons.most_common():
        print(f"  {number:4} {reason}")
    refused = [each for each in outcomes if each.score is None and is_own_fault(each)]
    unpublished = sum(each.published is None for each in refused)
    print(f"failures of their own: {len(refused)}, of these {unpublished} without a published one")
    every: list[tuple[float, float]] = []
    for name in sorted({each.task for each in outcomes}):
        pairs = [
            (each.score, each.published)
            for each in outcomes
            if each.task == name and each.score is not None and each.published is not None
        ]
        every += pairs
        ends = [known for _, known in pairs] or [1.0]
        shown = f"published {min(ends):8.3f} to {max(ends):8.3f}"
        print(f"  {name:34} {spearman(pairs):6.2f} of {len(pairs):2} programs, {shown}")
    print(f"Spearman of measured and published, all: {spearman(every):.3f} of {len(every)}")
    near = sum(abs(math.log(a / b)) < math.log(1.25) for a, b in every)
    print(f"within a factor of 1.25 of the published one: {near} of {len(every)}")


def is_own_fault(outcome: Outcome) -> bool:
    """True unless the machine, culmen or a missing package is why there is no score."""
    return not outcome.verdict.startswith(("lost", "needs"))


def verdict(found: Observation) -> str:
    """In a few words what became of a program."""
    if found.score is not None:
        return "scored"
    if missing := MISSING.search(found.feedback):
        return f"needs {missing[1]}"
    if "Unable to avoid copy" in found.feedback:
        return "needs numpy<2"
    if found.status is Status.INVALID:
        words = ("too slow", "bad output")
        return next((each for each in words if each in found.feedback), "refused by is_solution")
    raised = RAISED.findall(found.feedback)
    return f"{found.status.value}: {raised[-1] if raised else found.reason}"


def known_speedup(table: dict[str, dict[str, str]], model: str) -> float | None:
    """The published figure of a model, whose name is written in several ways."""
    wanted = _letters(model)
    for name, entry in table.items():
        plain = re.sub(r"(20\d{6}|preview)", "", name)
        if _letters(plain) in (wanted, ALIASES.get(wanted)) and entry["final_speedup"] != "N/A":
            return float(entry["final_speedup"])
    return None


ALIASES = {"r1": "deepseekreasoner", "claudeopus41": "claudeopus41", "claudeopus4": "claudeopus4"}


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub("(?i)preview", "", name).lower())


def spearman(pairs: list[tuple[float, float]]) -> float:
    """Spearman's rank correlation."""
    import numpy
    from scipy.stats import rankdata

    if len(pairs) < 3:
        return float("nan")
    first, second = (rankdata(column) for column in zip(*pairs, strict=True))
    if len(set(first)) < 2 or len(set(second)) < 2:
        return float("nan")
    return float(numpy.corrcoef(first, second)[0, 1])


if __name__ == "__main__":
    main()
