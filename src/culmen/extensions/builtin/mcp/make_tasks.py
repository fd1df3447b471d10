"""Writes the folders of tasks, in Harbor's format: python make_tasks.py FOLDER [COUNT]"""

import random
import shutil
import sys
from pathlib import Path

NAMES = "Adler Bauer Cerny Dubois Evans Fischer Greco Horvat".split()
QUESTIONS = (
    "How much has {name} paid?",
    "How much has {name} ordered for, paid or not?",
    "When did {name} order last?",
    "How many open orders are there of {day}?",
)
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
[ -f /app/answer.txt ] || echo "there is no answer.txt"
cmp /app/answer.txt /tests/expected.txt
echo $((! $?)) > /logs/verifier/reward.txt
"""


def make_orders(number):
    """(question, orders.csv, expected answer) of one task."""
    rng = random.Random(f"orders/{number}")
    names, kind = rng.sample(NAMES, 4), number % 4
    rows = []
    for name in names:
        for state in ("paid", "open", "paid"):
            rows.append((name, f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}", str(rng.randint(10, 900)), state))
    rng.shuffle(rows)
    own = [row for row in rows if row[0] == names[0]]
    day = next(row[1] for row in own if row[3] == "open")
    answers = (
        sum(int(row[2]) for row in own if row[3] == "paid"),
        sum(int(row[2]) for row in own),
        max(row[1] for row in own),
        sum(row[1] == day and row[3] == "open" for row in rows),
    )
    question = QUESTIONS[kind].format(name=names[0], day=".".join(reversed(day.split("-"))))
    lines = ["customer,day,amount,state", *map(",".join, rows)]
    return question, "\n".join(lines) + "\n", f"{answers[kind]}\n"


def split_of(number):
    """Of five tasks of a kind three train, one val, one test."""
    return ("train", "train", "val", "train", "test")[number // 4 % 5]


def write_tasks(folder, count=20):
    """Write `count` folders of tasks below a folder."""
    for number in range(count):
        task = Path(folder) / f"orders-{number + 1:02d}"
        shutil.rmtree(task, ignore_errors=True)
        question, orders, expected = make_orders(number)
        files = {
            "task.toml": TASK.format(split=split_of(number)),
            "instruction.md": f"{question} Write the answer, and nothing else, to answer.txt.\n",
            "environment/orders.csv": orders,
            "tests/test.sh": TEST,
            "tests/expected.txt": expected,
        }
        for name, text in files.items():
            file = task / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    write_tasks(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
