"""Effects of each objective on a policy late in training, on a toy.

The toy's scores come closer and closer together.

The policy is the tiny language model of `policy=tiny`, trained with the same code as in a search;
the toy is `tests.extensions.train.toy_advisor`: a reply is a few words, most replies are invalid at
first, and score differences shrink to the level of the noise. Needs the extra `train`. One process
per run and core.

    python bench/bench_objectives.py [--seeds 5] [--rate 0.01] [--plot docs/img/objectives.png] [--csv rows.csv]
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.extensions.train.toy_advisor import Toy, examined, policy, rehearse

from culmen.core.errors import missing_extra
from culmen.extensions.train import OBJECTIVES
from culmen.extensions.train.engine import Rules
from culmen.extensions.train.objectives import AdvantageRule

FLIPPED = "random sign"
ARMS = (*(name for name in OBJECTIVES if name != "none"), "none", FLIPPED)
LATE = 50  # barriers at the end that count as late
FRESH = 256  # replies of the final policy


@dataclass(frozen=True)
class Course:
    """One policy trained from scratch.

    It has a row for every barrier, and the figures of its fresh replies in the end.
    """

    arm: str
    seed: int
    rows: tuple[dict[str, Any], ...]
    final: dict[str, float]


def course(arm: str, seed: int, rate: float, toy: Toy) -> Course:
    """Train once.

    `random sign` takes the advantages of the phase-adaptive mix and gives each a sign by chance.
    """
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    objective: Any = "phase_adaptive" if arm == FLIPPED else arm
    engine = policy(seed)
    rows = tuple(
        rehearse(
            engine, toy, AdvantageRule(objective, k=4), Rules(rate=rate), seed, flip=arm == FLIPPED
        )
    )
    return Course(arm, seed, rows, examined(engine, toy, FRESH))


def main() -> None:
    """Train every arm with every seed, print the table, draw the plot."""
    options, toy = _options(), Toy()
    jobs = [(arm, seed, options.rate, toy) for arm in ARMS for seed in range(options.seeds)]
    begun, load = time.perf_counter(), os.getloadavg()[0]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        courses = list(pool.map(course, *zip(*jobs, strict=True)))
    spent = time.perf_counter() - begun
    print(
        f"rate {options.rate:g}, {options.seeds} seeds, {toy}; {spent:.0f} s, load before {load:.1f}\n"
    )
    print(
        "| | valid, first → last tenth | quality, first → last tenth | of 256 fresh replies | different |",
        end="",
    )
    print(
        f" entropy, start → middle → end | gradient norm, last {LATE}: median | largest | skipped |"
    )
    print("|---" * 9 + "|")
    for arm in ARMS:
        print(line(arm, [each for each in courses if each.arm == arm]))
    if options.csv:
        write(courses, options.csv)
    if options.plot:
        draw(courses, options.plot, options.rate)


def line(arm: str, courses: Sequence[Course]) -> str:
    """One row of the table: means over seeds; the largest gradient norm is that of any seed."""
    tenth = len(courses[0].rows) // 10

    def span(name: str) -> str:
        first, last = (
            fmean(row[name] for each in courses for row in cut(each, tenth))
            for cut in (_first, _last)
        )
        return f"{first:.2f} → {last:.2f}"

    entropies = [_known(each, "entropy") for each in courses]
    norms = [
        [row["grad_norm"] for row in each.rows[-LATE:] if "grad_norm" in row] for each in courses
    ]
    late = [norm for each in norms for norm in each]
    shape = " → ".join(
        f"{fmean(e[at] for e in entropies):.2f}" for at in (0, len(entropies[0]) // 2, -1)
    )
    cells = [
        arm,
        span("valid"),
        span("quality"),
        f"{fmean(each.final['quality'] for each in courses):.3f}",
        f"{fmean(each.final['different'] for each in courses):.0f}",
        shape if all(entropies) and entropies[0][0] == entropies[0][0] else "-",
        f"{median(late):.2f}" if late else "-",
        f"{max(late):.2f}" if late else "-",
        f"{fmean(sum(bool(row['skip']) for row in each.rows) for each in courses):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _first(course: Course, count: int) -> Sequence[dict[str, Any]]:
    return course.rows[:count]


def _last(course: Course, count: int) -> Sequence[dict[str, Any]]:
    return course.rows[-count:]


def _known(course: Course, name: str) -> list[float]:
    """A series over barriers; a barrier without an update has the value before it."""
    values: list[float] = []
    for row in course.rows:
        values.append(row.get(name, values[-1] if values else float("nan")))
    return values


def write(courses: Sequence[Course], path: Path) -> None:
    """All barriers of all runs."""
    rows = [
        {"arm": c.arm, "seed": c.seed, "barrier": n, **row}
        for c in courses
        for n, row in enumerate(c.rows)
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def draw(courses: Sequence[Course], path: Path, rate: float) -> None:
    """Gradient norm before clipping and entropy, barrier by barrier.

    Medians over seeds, bands from least to most.
    """
    from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]

    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    figure.suptitle(
        f"tiny policy on the toy, learning rate {rate:g}: median of seeds, from least to most",
        fontsize=10,
    )
    panels: Any = figure.subplots(1, 2)
    titles = {"grad_norm": "gradient norm before clipping", "entropy": "entropy per token, nats"}
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        for arm in ARMS:
            series = [_known(each, name) for each in courses if each.arm == arm]
            if arm == "none":
                continue
            columns = list(zip(*series, strict=True))
            (drawn,) = panel.plot([median(c) for c in columns], label=arm, linewidth=1.1)
            low, high = [min(c) for c in columns], [max(c) for c in columns]
            panel.fill_between(
                range(len(columns)), low, high, alpha=0.12, color=drawn.get_color(), linewidth=0
            )
        panel.set(xlabel="barrier", ylabel=title)
    panels[0].set_yscale("log")
    panels[0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"\nwrote {path}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--rate", type=float, default=0.01, help="learning rate; 0.01 is that of policy=tiny"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    if options.plot:
        for package, extra in (("torch", "train"), ("matplotlib", "plots")):
            if find_spec(package) is None:
                raise missing_extra("this bench with --plot", package, extra, "--plot")
    return options


if __name__ == "__main__":
    main()
