"""Verbs and options that had another name before: the command line to type instead.

This version answers them with one sentence; a later one will not know them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

VERBS = {
    **dict.fromkeys(
        [
            "watch",
            "stop",
            "tell",
            "fork",
            "export",
            "track",
            "replay",
            "recover",
            "archive",
            "vacuum",
            "db",
            "pool",
            "advisor",
        ],
        "runs",
    ),
    **dict.fromkeys(["mine", "nightly", "tools"], "skill"),
    **dict.fromkeys(["analyze", "score", "power"], "compare"),
    "bench": "compare --suite",
    "reproduce": "paper",
    **dict.fromkeys(["explain", "lineage", "log", "diff"], "show"),
}
"""Verbs by name, and the group that has them today, or the verb whose view they are."""

SETTINGS = {
    "--embedder": "embedder",
    "--templates": "templates",
    "--integrity": "integrity",
    "--prior": "prior",
    "--pool-share": "pool_share",
    "--allow-failing": "allow_failing",
    "--proxy": "proxy",
    "--ray-address": "backend.address",
    "--backend-set": "backend.",
}
"""Options of the verbs that search, and the name that `--set` gives them today."""

_SEARCHING = (["run"], ["resume"], ["prompt"], ["runs", "fork"])
_FLAG = "--allow-failing"  # the only one without a value


def current_words(words: Sequence[str]) -> list[str]:
    """The words of a command line by today's names; the same words if nothing has moved."""
    verb, rest = words[0], list(words[1:])
    group = VERBS.get(verb)
    if verb == "bench":
        return ["compare", "--suite", *rest]
    found = _view_words(verb, rest) if group == "show" else [*([group] if group else []), *words]
    searches = any(found[: len(each)] == each for each in _SEARCHING)
    return list(_words_with_settings(found)) if searches else found


def describe_move(words: Sequence[str], today: Sequence[str]) -> tuple[str, str]:
    """A sentence that names the move, and the command to type, with all of its arguments."""
    if words[0] in VERBS:
        what = f"'culmen {words[0]}' has another name now"
    else:
        moved = [word.partition("=")[0] for word in words if word.partition("=")[0] in SETTINGS]
        what = f"{', '.join(dict.fromkeys(moved))} is a setting now: --set NAME=VALUE"
    return what, f"culmen {shlex.join(today)}"


def _view_words(view: str, rest: Sequence[str]) -> list[str]:
    """The words of `show` for one of the verbs that are its views today."""
    count = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    names, options = rest[:count], rest[count:]
    if view == "log" and "--follow" in options:
        return ["runs", "watch", *names]
    if view == "diff":
        run, first, second = names[:1], names[1:2] or ["seed"], names[2:]
        return ["show", *run, *second, "--diff", *first, *options]
    return ["show", *names, f"--{view}", *options]


def _words_with_settings(words: Sequence[str]) -> Iterator[str]:
    """The words with today's `--set` in place of the options that became settings."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = SETTINGS.get(option)
        if name is None:
            yield word
            continue
        value = "on" if option == _FLAG else value if equals else next(rest, "VALUE")
        pairs = value.split(",") if name.endswith(".") else [f"={value}"]
        for pair in pairs:
            yield from ("--set", f"{name}{pair}")
