"""Writes the folders of tasks, in Harbor's format: python make_tasks.py FOLDER [COUNT]"""

import random
import shutil
import sys
from pathlib import Path

TASK = """version = "1.0"

[metadata.culmen]
environment = "plain"  # python3 of this machine is all that it needs
split = "{split}"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 60.0
"""
TEST = """#!/bin/bash
python3 /tests/check.py /app/prices.txt > /logs/verifier/reward.txt
"""
CHECK = '''"""Prints how close prices are to those that were paid: 1 / (1 + 5 e) for a mean relative error e of at most 1."""

import sys
from pathlib import Path

path = Path(sys.argv[1])
try:
    found = [float(line) for line in path.read_text().split()] if not path.is_symlink() else []
except (OSError, ValueError):
    found = []
right = [float(line) for line in Path(__file__).with_name("expected.txt").read_text().split()]
if len(found) != len(right):
    print("there are not as many prices as parcels", file=sys.stderr)
    print(0)
else:
    error = sum(min(1, abs(one - other) / other) for one, other in zip(found, right)) / len(right)
    print(f"mean relative error {error:.3f}", file=sys.stderr)
    print(1 / (1 + 5 * error))
'''


def make_parcels(number):
    """(parcels.csv, expected prices) of one task."""
    rng = random.Random(f"parcels/{number}")
    rows = [(round(rng.uniform(0.2, 20), 1), rng.randint(5, 900)) for _ in range(4)]
    prices = [4.2 + 0.8 * kilos + 0.004 * kilometres for kilos, kilometres in rows]
    lines = ["kilos,kilometres", *(f"{kilos},{kilometres}" for kilos, kilometres in rows)]
    return "\n".join(lines) + "\n", "".join(f"{price:.2f}\n" for price in prices)


def write_tasks(folder, count=10):
    """Write `count` folders of tasks below a folder."""
    for number in range(count):
        task = Path(folder) / f"parcels-{number + 1:02d}"
        shutil.rmtree(task, ignore_errors=True)
        parcels, expected = make_parcels(number)
        files = {
            "task.toml": TASK.format(split=("train", "train", "train", "val", "test")[number % 5]),
            "instruction.md": "parcels.csv lists parcels. Write what each of them costs to send to prices.txt, one a line.\n",
            "environment/parcels.csv": parcels,
            "tests/test.sh": TEST,
            "tests/check.py": CHECK,
            "tests/expected.txt": expected,
        }
        for name, text in files.items():
            file = task / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    write_tasks(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
