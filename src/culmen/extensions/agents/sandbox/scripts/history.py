#!/usr/bin/env python3
"""Query all experiments so far, by all agents.

    history                                all rows, oldest first
    history --top 5                        the five best
    history --last 10                      the ten latest
    history --filter "score>2.5" --filter "status=ok" --filter "note~spiral"
    history --fields n,score,note          only these fields
    history --diff ID ID                   differences between two candidates
    history --show ID                      the text of a candidate

Filters compare a field of the row (or metrics.NAME) by = != < > <= >= or ~ (regular expression). ID
is a candidate's id or a ticket. The rows are those of past_experiments.jsonl; candidates lie in
.culmen/programs/ID/.
"""

import argparse
import difflib
import json
import os
import re
import sys

VIEW = os.path.dirname(os.path.abspath(__file__))
CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(<=|>=|!=|=|<|>|~)\s*(.*)")


def history_rows():
    with open(os.path.join(VIEW, "past_experiments.jsonl")) as file:
        for text in file:
            try:
                yield json.loads(text)
            except ValueError:  # being written
                return


def field_value(row, field):
    if field.startswith("metrics."):
        return row["metrics"].get(field[8:])
    return row.get(field)


def row_filter(text):
    """A filter as a function of a row."""
    match = CONDITION.fullmatch(text.strip())
    if not match:
        sys.exit(f"not a filter: {text}")
    field, sign, wanted = match.groups()
    compare = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
    }

    def holds(row):
        value = field_value(row, field)
        if sign == "~":
            return re.search(wanted, str(value)) is not None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return compare[sign](float(value), float(wanted))
            except ValueError:
                return sign == "!="
        if value is None and sign not in ("=", "!="):
            return False
        return compare[sign]("" if value is None else str(value), wanted)

    return holds


def ranking_value(row):
    """Value by which rows are ranked: the certified score if there is one, else the score."""
    score = row.get("certified") if row.get("certified") is not None else row.get("score")
    return None if score is None else score * SIGN


def direction_sign():
    with open(os.path.join(VIEW, "about.json")) as file:
        return -1 if json.load(file).get("direction") == "min" else 1


def candidate_parts(name):
    """The texts of a candidate, by id or ticket."""
    folder = os.path.join(VIEW, "programs", name)
    if not os.path.isdir(folder):
        candidates = [row["candidate"] for row in history_rows() if row["ticket"] == name]
        if not candidates:
            sys.exit(f"there is no candidate {name}")
        folder = os.path.join(VIEW, "programs", candidates[0])
    texts = {}
    for here, _, files in os.walk(folder):
        for file in files:
            path = os.path.join(here, file)
            with open(path) as opened:
                texts[os.path.relpath(path, folder)] = opened.read()
    return texts


def print_diff(a, b):
    old, new = candidate_parts(a), candidate_parts(b)
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, "").splitlines(), new.get(name, "").splitlines()
        for text in difflib.unified_diff(before, after, f"{a}/{name}", f"{b}/{name}", lineterm=""):
            print(text)


def main():
    parser = argparse.ArgumentParser(
        prog="history", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--filter", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--top", type=int, metavar="K")
    parser.add_argument("--last", type=int, metavar="K")
    parser.add_argument("--fields", metavar="A,B")
    parser.add_argument("--diff", nargs=2, metavar="ID")
    parser.add_argument("--show", metavar="ID")
    options = parser.parse_args()
    if options.diff:
        return print_diff(*options.diff)
    if options.show:
        for name, text in sorted(candidate_parts(options.show).items()):
            print(text if len(candidate_parts(options.show)) == 1 else f"=== {name} ===\n{text}")
        return None
    conditions = [row_filter(text) for text in options.filter]
    rows = [row for row in history_rows() if all(holds(row) for holds in conditions)]
    if options.top is not None:
        scored = [
            (level, row)
            for row in rows
            if row["status"] == "ok" and (level := ranking_value(row)) is not None
        ]
        rows = [row for _, row in sorted(scored, key=lambda pair: -pair[0])][: options.top]
    if options.last is not None:
        rows = rows[-options.last :] if options.last > 0 else []
    fields = [name for name in (options.fields or "").split(",") if name]
    for row in rows:
        print(json.dumps({name: field_value(row, name) for name in fields} if fields else row))
    return None


if __name__ == "__main__":
    SIGN = direction_sign()
    try:
        main()
    except BrokenPipeError:  # a reader that has seen enough, like head
        os._exit(0)
