#!/usr/bin/env python3
"""Have candidates evaluated by culmen, and look at everything that was tried so far.

    python run_experiments.py FILE... [--note TEXT] [--parents ID,ID]   evaluate; many files run
    side by side
    python run_experiments.py --no-wait FILE...                         only ask; prints tickets
    python run_experiments.py --wait TICKET...                          results of tickets
    python run_experiments.py --best                                    the best row so far
    python run_experiments.py --history [--help]                        query everything tried so
    far
    python run_experiments.py --report TEXT                             tell culmen something: a
    weakness of the
                                                                        evaluator, what cannot be
                                                                        improved and why
    python run_experiments.py --finish TEXT                             your work is done; TEXT says
    why

FILE is a candidate below candidates/, or a folder of parts. One JSON row is printed for each, in
the order given. The exit code is 3 if any was turned away.
"""

import argparse
import json
import os
import runpy
import secrets
import sys
import time

VIEW = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(VIEW)
AT_ONCE, NOTE = 200, 4000  # experiments of one request, characters of a note
FIRST, LAST = 0.002, 0.1  # seconds between looks for a result, at first and at most


def agent_name():
    with open(os.path.join(TREE, ".agent")) as file:
        return file.read().strip()


def tree_path(path):
    """A path relative to the tree, as requests have it."""
    full = os.path.abspath(path)
    if not os.path.lexists(full) and os.path.lexists(os.path.join(TREE, path)):
        full = os.path.join(TREE, path)
    return os.path.relpath(
        os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)), TREE
    )


def queue_request(request):
    """Put a request into the queue; returns the ticket."""
    queue = os.path.join(TREE, "queue")
    os.makedirs(queue, exist_ok=True)
    name = f"{time.time_ns():x}-{secrets.token_hex(3)}"
    with open(os.path.join(queue, f".{name}"), "w") as file:
        json.dump(request, file)
    os.rename(os.path.join(queue, f".{name}"), os.path.join(queue, f"{name}.json"))
    return f"{agent_name()}-{name}"


def request_experiments(paths, note="", parents=()):
    """Ask for experiments, which are taken together; returns their tickets."""
    ticket = queue_request({"paths": paths, "note": note[:NOTE], "parents": parents})
    return [f"{ticket}.{n}" for n in range(len(paths))]


def wait_for_result(ticket):
    """The row that answers a ticket, as text; waits for it."""
    path, pause = os.path.join(VIEW, "results", f"{ticket}.json"), FIRST
    while True:
        try:
            with open(path) as file:
                return file.read().strip()
        except FileNotFoundError:
            time.sleep(pause)
            pause = min(pause * 1.04, LAST)


def print_results(tickets):
    """Print the rows in order; returns the exit code."""
    code = 0
    for ticket in tickets:
        row = wait_for_result(ticket)
        print(row, flush=True)
        if json.loads(row).get("status") == "refused":
            code = 3
    return code


def run_history(words):
    sys.argv = ["history", *words]
    runpy.run_path(os.path.join(VIEW, "history"), run_name="__main__")
    return 0


def main():
    words = sys.argv[1:]
    if "--history" in words:
        words.remove("--history")
        return run_history(words)
    if "--best" in words:
        return run_history(["--top", "1"])
    parser = argparse.ArgumentParser(
        prog="run_experiments.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--note", default="", help="what you try and why; kept in the history")
    parser.add_argument(
        "--parents", default="", help="candidate ids this one was made from, with commas"
    )
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--wait", nargs="+", default=[], metavar="TICKET")
    parser.add_argument("--report", metavar="TEXT")
    parser.add_argument("--finish", metavar="TEXT")
    options = parser.parse_args(words)
    if options.wait:
        return print_results(options.wait)
    if options.report is not None or options.finish is not None:
        kind = "report" if options.report is not None else "finish"
        queue_request({kind: getattr(options, kind)})
        print(json.dumps({kind: "passed on"}))
        return 0
    if not options.files:
        parser.error("which files?")
    paths = [tree_path(path) for path in options.files]
    parents, code = [name for name in options.parents.split(",") if name], 0
    for start in range(0, len(paths), AT_ONCE):
        tickets = request_experiments(paths[start : start + AT_ONCE], options.note, parents)
        if options.no_wait:
            print("\n".join(tickets), flush=True)
        else:
            code = max(code, print_results(tickets))
    return code


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    if code:
        sys.exit(code)
