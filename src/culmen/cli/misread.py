"""Words that were not understood: what was probably meant, as the command to type instead."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

_OTHER_WORDS = {  # what other programs, and people, call these verbs
    "check": ("eval", "evaluate", "test", "validate", "try"),
    "best": ("result", "results", "winner"),
    "fork": ("extend", "branch"),
    "log": ("logs", "events", "history", "tail"),
    "new": ("init", "create"),
    "resume": ("continue", "restart"),
    "run": ("evolve", "optimize", "optimise", "search", "start", "train"),
    "status --all": ("list", "ls", "runs", "ps"),
    "stop": ("kill", "cancel", "pause"),
    "ui": ("dashboard", "serve", "web", "gui", "visualize"),
    "vacuum": ("clean", "gc"),
}
_VERBS = {word: verb for verb, words in _OTHER_WORDS.items() for word in words}
_TASKS = ("task.toml", "evaluator.py")


def meant(given: list[str]) -> list[str]:
    """The arguments, with `help VERB`, `version` and `-V` as the options that they stand for."""
    if given[0] == "help":
        return [*given[1:], "--help"]
    return ["--version", *given[1:]] if given[0] in ("version", "-V") else given


def what(error: Any) -> str:
    """What click says, without its list of options that may have been meant."""
    return error.format_message().replace("\n", " ").partition(" (Possible options:")[0]


def fix(error: Any, command: str) -> str:
    """What to type instead; `command` is what was understood up to there."""
    wrong = getattr(error, "option_name", None)
    if near := getattr(error, "possibilities", None):
        option = next(iter(difflib.get_close_matches(wrong or "", near, n=1)), "")
        return f"did you mean {option}? all options: {command} --help" if option else f"{command} --help"
    words = error.format_message().split("'")
    if words[0] == "No such command " and words[1].lower() in _VERBS:
        return f"culmen {_VERBS[words[1].lower()]}; all verbs: culmen --help"
    if words[0] == "Missing argument " and words[1] == "TASK":
        here = any(Path(name).is_file() for name in _TASKS)
        return f"{command} ." if here else f"{command} FOLDER, or write a task to start from: culmen new mytask"
    return f"{command} --help"
