"""A noisy task whose true scores are known: bins wasted on items that arrive at random.

Smaller is better. The initial program wastes 14.6 % of the bins, one evaluation deviates by 5.2, a
sensible program wastes 9.2, and a silly one, with a bin for every item, 312 (means of 2,000 draws).
"""

from __future__ import annotations

import runpy
from pathlib import Path
from statistics import fmean

TOML = """\
name = "packing"
goal = \"\"\"
Pack items that arrive at random into as few bins as possible. plan() returns how much full bins are
preferred, the part of a bin that stays empty, and the share of the items sorted together. The score is
the share of bins wasted, in per cent.
\"\"\"

[seed]
files = ["packing.py"]

[evaluator]
file = "evaluator.py"
form = "call"
entry = "plan"

[objective]
direction = "min"

[limits]
seconds = 20
memory_mb = 512
"""
INITIAL = """\
FULL = 1.0
RESERVE = 0.03
TOGETHER = 0.2


def plan():
    return [FULL, RESERVE, TOGETHER]
"""
EVALUATOR = """\
import random

ITEMS, SMALLEST, LARGEST = 26, 0.03, 0.46


def score(output, seed):
    return waste([float(each) for each in output], seed)


def waste(plan, seed):
    full, reserve, together = plan
    draw = random.Random(seed)
    items = [draw.uniform(SMALLEST, LARGEST) for _ in range(ITEMS)]
    size = int(1 + ITEMS * max(0.0, min(1.0, together)))
    gaps = []
    for first in range(0, ITEMS, size):
        for item in sorted(items[first : first + size], reverse=True):
            fitting = [gap for gap in gaps if gap >= item + max(0.0, reserve)]
            if fitting:
                gap = max(fitting, key=lambda each: full * (1 - each))
                gaps[gaps.index(gap)] -= item
            else:
                gaps.append(1 - item)
    return 100 * (len(gaps) / sum(items) - 1)
"""


def write_packing(folder: Path) -> Path:
    """Write the task folder."""
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TOML)
    (folder / "packing.py").write_text(INITIAL)
    (folder / "evaluator.py").write_text(EVALUATOR)
    return folder


def true_waste(folder: Path, program: str, draws: int = 2000) -> float:
    """Mean score of a program over random seeds that no run has."""
    place = folder / "candidate.py"
    place.write_text(program)
    plan = runpy.run_path(str(place))["plan"]()
    waste = runpy.run_path(str(folder / "evaluator.py"))["waste"]
    return fmean(waste([float(each) for each in plan], f"apart/{draw}") for draw in range(draws))
