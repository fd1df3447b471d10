"""Sending a message to a run, with what is known of the run: a mistake is said at once, not found by nobody later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from culmen.core.errors import UserError
from culmen.store import inbox, views
from culmen.store.inbox import Message


class Sent(NamedTuple):
    """The message, and whether a process runs the search: if not, it is taken in when the run is resumed."""

    message: Message
    live: bool


def stop(run: Path, *, pause: bool = False) -> Sent:
    """End the search now and make the final choice; with `pause`, end the process only, so that it can be resumed."""
    if not _live(run):
        raise UserError(f"nobody runs '{run.name}' just now", where=str(run), fix=f"culmen resume {run}")
    return Sent(inbox.leave(run, "pause" if pause else "stop"), True)


def hint(run: Path, text: str) -> Sent:
    """Give the models that propose a hint; every later request carries it."""
    live = _open(run)
    return Sent(inbox.leave(run, "hint", text), live)


def candidate(run: Path, parts: Mapping[str, str]) -> Sent:
    """Have a candidate evaluated. A task of one text takes any one; otherwise its parts must have the seed's names."""
    live = _open(run)
    return Sent(inbox.leave(run, "candidate", parts=_named(run, dict(parts))), live)


def _live(run: Path) -> bool:
    return views.status(run).state == "running"


def _open(run: Path) -> bool:
    """Whether the run goes on; raises `UserError` if it has finished."""
    state = views.status(run).state
    if state == "finished":
        raise UserError(f"the run '{run.name}' has finished", where=str(run), fix=f"culmen fork {run}")
    return state == "running"


def _named(run: Path, parts: dict[str, str]) -> dict[str, str]:
    seeds = views.meta(run).task.seeds
    names = list(seeds[0]) if seeds else list(parts)
    if len(names) == 1 and len(parts) == 1:
        return {names[0]: next(iter(parts.values()))}
    if set(names) != set(parts):
        raise UserError(
            f"the candidate has the parts {', '.join(sorted(parts)) or 'none'}",
            where=str(run),
            fix=f"give exactly {', '.join(names)}",
        )
    return {name: parts[name] for name in names}
