#!/usr/bin/env python3
"""Request evaluations of candidates from culmen, and query all experiments so far.

    python run_experiments.py FILE... [OPTIONS]     evaluate the files in parallel
        --note TEXT                                 what you try and why
        --parents ID,ID                             candidates from which these were made
    python run_experiments.py --no-wait FILE...     only send the request; prints tickets
    python run_experiments.py --wait TICKET...      wait for the results of tickets
    python run_experiments.py --best                the best row so far
    python run_experiments.py --history [--help]    query all experiments so far
    python run_experiments.py --report TEXT         report to culmen: a weakness of the evaluator,
                                                    or a limit of the candidates and its reason
    python run_experiments.py --finish TEXT         end your work; TEXT is your last message

FILE is a candidate below candidates/, or a folder of parts. One JSON row is printed for each, in
the order of the files. The exit code is 3 if any request was refused.
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
FIRST, LAST = 0.002, 0.1  # seconds between reads of a result: first and longest


def agent_name():
    with open(os.path.join(TREE, ".agent")) as file:
        return file.read().strip()


def tree_path(path):
    """The path relative to the tree, the form that requests use."""
    full = os.path.abspath(path)
    if not os.path.lexists(full) and os.path.lexists(os.path.join(TREE, path)):
        full = os.path.join(TREE, path)
    return os.path.relpath(
        os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)), TREE
    )


def queue_request(request):
    """Put a request into the queue; return its ticket."""
    queue = os.path.join(TREE, "queue")
    os.makedirs(queue, exist_ok=True)
    name = f"{time.time_ns():x}-{secrets.token_hex(3)}"
    with open(os.path.join(queue, f".{name}"), "w") as file:
        json.dump(request, file)
    os.rename(os.path.join(queue, f".{name}"), os.path.join(queue, f"{name}.json"))
    return f"{agent_name()}-{name}"


def request_experiments(paths, note="", parents=()):
    """Request experiments, which are evaluated together; return their tickets."""
    ticket = queue_request({"paths": paths, "note": note[:NOTE], "parents": parents})
    return [f"{ticket}.{n}" for n in range(len(paths))]


def wait_for_result(ticket):
    """Wait for the row that answers a ticket; return its text."""
    path, pause = os.path.join(VIEW, "results", f"{ticket}.json"), FIRST
    while True:
        try:
            with open(path) as file:
                return file.read().strip()
        except FileNotFoundError:
            time.sleep(pause)
            pause = min(pause * 1.04, LAST)


def print_results(tickets):
    """Print the rows in order; return the exit code."""
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


def argument_parser():
    parser = argparse.ArgumentParser(
        prog="run_experiments.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--note", default="", help="what you try and why; kept in the history")
    parser.add_argument(
        "--parents",
        default="",
        help="ids of the candidates from which these were made, separated by commas",
    )
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--wait", nargs="+", default=[], metavar="TICKET")
    parser.add_argument("--report", metavar="TEXT")
    parser.add_argument("--finish", metavar="TEXT")
    return parser


def main():
    words = sys.argv[1:]
    if "--history" in words:
        words.remove("--history")
        return run_history(words)
    if "--best" in words:
        return run_history(["--top", "1"])
    parser = argument_parser()
    options = parser.parse_args(words)
    if options.wait:
        return print_results(options.wait)
    if options.report is not None or options.finish is not None:
        kind = "report" if options.report is not None else "finish"
        queue_request({kind: getattr(options, kind)})
        print(json.dumps({kind: "passed on"}))
        return 0
    if not options.files:
        parser.error("no file is named")
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
