"""The first page of the help, and the version.

The modules of the verbs, and those that draw their help, take ten times as long to import.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence

from culmen.core import VERSION

ABOUT = "Improve any text - a program, a prompt, a configuration - against any evaluator."
VERBS = {  # by panel: what each of the verbs' own help begins with
    "Start": {
        "demo": "Watch a real search: circle packing, offline, in about a minute.",
        "new": "Write a task to start from: three short commented files.",
        "check": "Evaluate the initial program, and report faults of the task.",
        "audit": "Find ways to game a task, or signs of gaming in a run.",
    },
    "Search": {
        "run": "Search for a better text, within a budget.",
        "resume": "Go on with an interrupted run, from where its journal ends.",
        "prompt": "Improve a prompt over labelled cases: from a table to a result.",
    },
    "Look at a run": {
        "status": "Show the state of a run: best, budget used, isolation.",
        "best": "Print the best candidate, or the front and one of its members.",
        "story": "Show the few steps that made the gain, and the attempts in vain.",
        "report": "Write the dashboard's pages as one HTML file.",
        "ui": "Show runs in a browser, live.",
        "compare": "Compare strategies: which is better, and how surely.",
    },
    "About": {
        "doctor": "Show what this machine has: isolation, keys, extras, agents.",
        "docs": "Show a page of the documentation, or list them.",
        "help": "Show the help of a verb, all verbs (--all) or all settings.",
    },
}
"""Verbs on the first page of the help; `culmen help --all` has all of them."""

_OPTIONS = {
    "--version": "Print the version.",
    "--install-completion": "Complete verbs and options in this shell.",
    "-h, --help": "Show this page; after a verb, its options.",
}
_NAMES = [name for verbs in VERBS.values() for name in verbs]
_INDENT, _WIDEST = 2, 100  # columns


def is_answered_here(words: Sequence[str]) -> bool:
    """True for `culmen`, `culmen --help` and `culmen --version`."""
    pages = ([], ["--help"], ["-h"], ["--version"])
    return list(words) in pages and "_CULMEN_COMPLETE" not in os.environ


def answer(words: Sequence[str]) -> str:
    """The version, or the first page of the help in the columns of the terminal."""
    if list(words) == ["--version"]:
        return f"culmen {VERSION}\n"
    columns = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = ["Usage: culmen VERB [OPTIONS]", "", *textwrap.wrap(ABOUT, columns)]
    for panel, entries in {**VERBS, "Options": _OPTIONS}.items():
        longest = max(map(len, _OPTIONS if entries is _OPTIONS else _NAMES))
        indent = " " * (longest + 2 * _INDENT)
        lines += ["", panel]
        for name, text in entries.items():
            head = f"{' ' * _INDENT}{name}".ljust(len(indent))
            lines += textwrap.wrap(text, columns, initial_indent=head, subsequent_indent=indent)
    return "\n".join([*lines, "", "Start with: culmen demo. All verbs: culmen help --all", ""])
