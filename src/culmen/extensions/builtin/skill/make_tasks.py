"""Writes the folders of tasks, in Harbor's format: python make_tasks.py FOLDER [COUNT]"""

import random
import shutil
import sys
from pathlib import Path

NAMES = "Adler Bauer Cerny Dubois Evans Fischer Greco Horvat".split()
INSTRUCTION = """orders.csv lists orders: id, customer, date, amount. Write report.csv with the columns

    customer,orders,first,total

and one row for each customer: the number of orders, the date of the first one, the total amount. Keep to the
house style of our reports.
"""
TASK = """version = "1.0"

[metadata]
category = "office"

[metadata.culmen]
environment = "plain"  # python3 of this machine is all that it needs
split = "{split}"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 60.0
"""
DOCKERFILE = """FROM python:3.12-slim
WORKDIR /app
COPY orders.csv .
"""
TEST = """#!/bin/bash
python3 /tests/check.py /app/report.csv > /logs/verifier/reward.txt
"""
CHECK = '''"""Prints 1 if a report is right, else 0, and on standard error what is wrong with it."""

import sys
from pathlib import Path


def faults(report, expected):
    """Sentences on a report; empty if it is right."""
    lines, wanted = report.splitlines(), expected.splitlines()
    found = [] if not any(line.startswith("#") for line in lines) else ["the report has lines that are no rows"]
    rows, right = ([line.split(",") for line in text[1:] if line.count(",") == 3] for text in (lines, wanted))
    if [row[0] for row in rows] != [row[0] for row in right]:
        found.append("the rows are not sorted by customer")
    known = {row[0]: row for row in right}
    for name, orders, first, total in rows:
        if name not in known:
            return [*found, f"{name} is no customer"]
        if len(total.partition(".")[2]) != 2:
            found.append(f"{name}: the total {total} does not have two decimals")
        if first.count("-") != 2:
            found.append(f"{name}: the date {first} is not written YYYY-MM-DD")
        if int(orders) > int(known[name][1]):
            found.append(f"{name}: {orders} orders, some with the same id twice")
        if int(orders) < int(known[name][1]):
            found.append(f"{name}: {orders} orders, those with an empty amount are missing")
    return list(dict.fromkeys(found)) or ([] if lines == wanted else ["the report differs from the right one"])


if __name__ == "__main__":
    path = Path(sys.argv[1])
    text = path.read_text() if path.is_file() and not path.is_symlink() else ""
    wrong = faults(text, Path(__file__).with_name("expected.csv").read_text()) if text else ["there is no report.csv"]
    print(*wrong, sep="\\n", file=sys.stderr)
    print(int(not wrong))
'''


def make_orders(number):
    """(orders.csv, expected.csv) of one task; which rules matter differs from task to task."""
    rng = random.Random(f"orders/{number}")
    unsorted, twice, empty, dated = (rng.random() < 0.6 for _ in range(4))
    customers = sorted(rng.sample(NAMES, 4))
    rows = []
    for place, customer in enumerate(customers):
        for _ in range(rng.randint(2, 3)):
            day = f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.2026"
            rows.append([str(100 + len(rows)), customer, day, f"{rng.randint(100, 9900) / 100:.2f}"])
        if empty and place % 2:
            rows[-1][3] = ""
    rows = [[name, who, day if dated else "-".join(reversed(day.split("."))), amount] for name, who, day, amount in rows]
    expected = ["customer,orders,first,total"]
    for customer in customers:
        own = [row for row in rows if row[1] == customer]
        first = min("-".join(reversed(row[2].split("."))) if dated else row[2] for row in own)
        expected.append(f"{customer},{len(own)},{first},{sum(float(row[3] or 0) for row in own):.2f}")
    if twice:
        rows += [rows[0], rows[-1]]
    if unsorted:
        rows.reverse()
    lines = ["id,customer,date,amount", *map(",".join, rows)]
    return "\n".join(lines) + "\n", "\n".join(expected) + "\n"


def split_of(number):
    """Three of five tasks train, one val, one test."""
    return ("train", "train", "train", "val", "test")[number % 5]


def write_tasks(folder, count=15):
    """Write `count` folders of tasks below a folder."""
    for number in range(count):
        task = Path(folder) / f"orders-{number + 1:02d}"
        shutil.rmtree(task, ignore_errors=True)
        orders, expected = make_orders(number)
        files = {
            "task.toml": TASK.format(split=split_of(number)),
            "instruction.md": INSTRUCTION,
            "environment/Dockerfile": DOCKERFILE,
            "environment/orders.csv": orders,
            "tests/test.sh": TEST,
            "tests/check.py": CHECK,
            "tests/expected.csv": expected,
        }
        for name, text in files.items():
            file = task / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    write_tasks(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15)
