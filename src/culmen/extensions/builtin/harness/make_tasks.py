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
timeout_sec = 300.0

[verifier]
timeout_sec = 60.0
"""
TEST = """#!/bin/bash
[ "$(tr -d '[:space:]' < /app/answer.txt)" = "$(cat /tests/expected.txt)" ]
echo $((! $?)) > /logs/verifier/reward.txt
"""


def write_tasks(folder, count=10):
    """Write `count` folders of tasks below a folder."""
    for number in range(count):
        task, rng = Path(folder) / f"hours-{number + 1:02d}", random.Random(f"hours/{number}")
        shutil.rmtree(task, ignore_errors=True)
        days = {day: rng.randint(1, 9) for day in ("Monday", "Tuesday", "Thursday", "Friday")}
        files = {
            "task.toml": TASK.format(split=("train", "train", "train", "val", "test")[number % 5]),
            "instruction.md": "How many hours were worked in the week of hours.txt? Write the number to answer.txt.\n",
            "environment/hours.txt": "".join(f"On {day} we worked {hours} hours.\n" for day, hours in days.items()),
            "tests/test.sh": TEST,
            "tests/expected.txt": f"{sum(days.values())}\n",
        }
        for name, text in files.items():
            file = task / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    write_tasks(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
