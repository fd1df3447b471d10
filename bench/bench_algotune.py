"""AlgoTune's tasks with `metric = "speedup"`: can their figures be trusted?

    python bench/bench_algotune.py CHECKOUT itself [--load 4] [--repeats 3]
    python bench/bench_algotune.py CHECKOUT solvers [--timeout 120]

`itself` scores each task's reference against itself, which should give 1.00 +- .05, with so many
busy processes beside. `solvers` scores the programs in CHECKOUT/results (MODEL/TASK/solver.py), and
compares with CHECKOUT/published_speedups.json by Spearman's correlation; programs without a score
are listed with the reason. Tasks are imported first, into --tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
from collections import Counter
from pathlib import Path
from statistics import median

from culmen.compat.algotune import import_task, task_files
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.evaluate.taskfiles.loading import load

SPREAD = 0.05
MISSING = re.compile(r"No module named '([\w.]+)'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("what", choices=("itself", "solvers"))
    parser.add_argument("--tasks", type=Path, default=Path("algotune"))
    parser.add_argument("--milliseconds", type=float, default=100.0)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    files = task_files(asked.checkout, asked.only)
    for name, file in files.items():
        if not (asked.tasks / name / "task.toml").is_file():
            print(import_task(file, asked.tasks / name, asked.milliseconds), flush=True)
    busy = [multiprocessing.Process(target=_stay_busy, daemon=True) for _ in range(asked.load)]
    for process in busy:
        process.start()
    print(f"load {asked.load} of this script; of the machine {os.getloadavg()[0]:.1f} before")
    loaded = {name: load(asked.tasks / name) for name in files}
    if asked.what == "itself":
        asyncio.run(measure_references(loaded, asked.repeats))
    else:
        asyncio.run(measure_solvers(loaded, asked.checkout))
    for process in busy:
        process.kill()


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
    print(f"single evaluations: {within} of {len(every)}, from {min(every):.3f} to {max(every):.3f}")


async def measure_solvers(tasks: dict[str, Task], checkout: Path) -> None:
    """Every recorded program: its speed-up beside the published one."""
    published = json.loads((checkout / "published_speedups.json").read_text())
    pairs: list[tuple[float, float]] = []
    reasons: Counter[str] = Counter()
    count = 0
    for folder in sorted((checkout / "results").glob("*/*")):
        if folder.name not in tasks or not (folder / "solver.py").is_file():
            continue
        count += 1
        parts = {p.name: p.read_text(errors="replace") for p in sorted(folder.glob("*.py*"))}
        parts = {"solver.py": parts.pop("solver.py"), **parts}
        found = (await evaluate(tasks[folder.name], parts, range(1)))[0]
        reason = verdict(found)
        reasons[reason] += 1
        known = known_speedup(published[folder.name], folder.parent.name)
        if found.score is not None and known is not None:
            pairs.append((found.score, known))
        shown = "" if found.score is None else f"{found.score:8.3f}"
        print(f"{folder.name:32} {folder.parent.name:22} {shown:>8} {known}  {reason}", flush=True)
    lost = sum(number for reason, number in reasons.items() if reason.startswith("lost"))
    print(f"{count} programs, a verdict on {count - lost}; {dict(reasons)}")
    print(f"Spearman of measured and published: {spearman(pairs):.3f} of {len(pairs)} programs")


def verdict(found: Observation) -> str:
    """In a few words what became of a program."""
    if found.score is not None:
        return "scored"
    if missing := MISSING.search(found.feedback):
        return f"needs {missing[1]}"
    return f"{found.status.value}: {found.reason}"


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
    from scipy.stats import spearmanr

    return float(spearmanr(*zip(*pairs, strict=True)).statistic)


if __name__ == "__main__":
    main()
