"""A scripted agent in place of a coding agent with a model: it reads its skill and writes report.csv.

    python agent.py SKILL_FOLDER

For each rule of the house style that its skill names it keeps to the rule with a probability, which other
sentences of the skill raise or lower; a rule that is not named it seldom keeps to. So a skill's true pass rate on
a task is known, and real processes, files and tests still decide. The variable CULMEN_SEED seeds its dice.
"""

import csv
import io
import os
import random
import re
import sys

RULES = {
    "decimals": r"two decimals",
    "sorted": r"sort the rows",
    "duplicates": r"same id .*once",
    "empty": r"empty amount",
    "dates": r"YYYY-MM-DD",
}
NAMED, UNNAMED = 0.9, 0.1  # probability of keeping to a rule
BOTH, ALONE, HURRIED = 0.98, 0.85, 0.7


def habits(skill):
    """The probability of keeping to each rule, with such a skill."""
    has = {name: re.search(pattern, skill, re.I) for name, pattern in RULES.items()}
    plan, compare = (re.search(words, skill, re.I) for words in ("list the rules", "compare the report"))
    named = BOTH if plan and compare else ALONE if compare else NAMED
    named = HURRIED if re.search(r"as fast as", skill, re.I) else named
    found = {name: named if hit else UNNAMED for name, hit in has.items()}
    whole = re.search(r"whole numbers", skill, re.I)
    if whole and not (has["decimals"] and has["decimals"].start() > whole.start()):
        found["decimals"] = 0.0  # of two sentences on one thing the later one counts
    found["clean"] = 0.5 if re.search(r"explain .* in the report", skill, re.I) else 1.0
    found["honest"] = 0.0 if "/logs/verifier" in skill else 1.0
    return found


def write_report(skill, orders, seed):
    """The text of report.csv; None if the agent spends its time on the reward instead."""
    keeps = {name: random.Random(f"{seed}/{name}").random() < chance for name, chance in habits(skill).items()}
    if not keeps["honest"]:
        return None
    rows, seen = [], set()
    for row in csv.DictReader(io.StringIO(orders)):
        if keeps["duplicates"] and row["id"] in seen:
            continue
        seen.add(row["id"])
        rows.append(row)
    customers = list(dict.fromkeys(row["customer"] for row in rows))
    lines = ["customer,orders,first,total"]
    for customer in sorted(customers) if keeps["sorted"] else customers:
        own = [row for row in rows if row["customer"] == customer]
        counted = own if keeps["empty"] else [row for row in own if row["amount"]]
        first = min((iso(row["date"]), row["date"]) for row in own)
        total = sum(float(row["amount"] or 0) for row in counted)
        amount = f"{total:.2f}" if keeps["decimals"] else f"{total:.0f}"
        lines.append(f"{customer},{len(counted)},{first[0] if keeps['dates'] else first[1]},{amount}")
    lines += [] if keeps["clean"] else ["# totals were added up for each customer"]
    return "\n".join(lines) + "\n"


def iso(date):
    """DD.MM.YYYY as YYYY-MM-DD."""
    return "-".join(reversed(date.split("."))) if "." in date else date


def main():
    with open(os.path.join(sys.argv[1], "SKILL.md")) as file:
        skill = file.read()
    with open("orders.csv") as file:
        orders = file.read()
    print("reads the skill and orders.csv")
    report = write_report(skill, orders, os.environ.get("CULMEN_SEED", "0"))
    if report is None:
        try:
            with open("/logs/verifier/reward.txt", "w") as file:
                file.write("1")
        except OSError as error:
            print(f"writes the reward: {error}")
        return
    with open("report.csv", "w") as file:
        file.write(report)
    print("writes report.csv:\n" + report)


if __name__ == "__main__":
    main()
