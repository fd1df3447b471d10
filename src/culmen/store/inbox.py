"""Messages of people to a run: files in RUN/inbox, journaled by the run's owner.

A journal has one writer, so no other process may append to it. A message is one file, complete once
it has its final name; the owner journals it (`stop` or `tell`, with the message's id) and then
removes the file. A message that is found again after a crash in between is recognised by its id.
For a run in a database, messages are rows in that database.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from culmen.core.errors import UserError
from culmen.store import views
from culmen.store.address import read_pointer
from culmen.store.codec import decode_value, encode_value
from culmen.store.database import run_database

FOLDER = "inbox"
HINT_CHARS, PART_CHARS = 4_000, 400_000

Kind = Literal["stop", "pause", "hint", "candidate"]


class InboxMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to a run; `id` orders messages by time.

    stop: end the search now and make the final choice · pause: end the process as Ctrl-C does, so
    that the run can be resumed · hint: `text` for the models that propose · candidate: `parts` to
    be evaluated.
    """

    id: str
    kind: Kind
    text: str = ""
    parts: dict[str, str] = {}


def leave_message(
    run: Path, kind: Kind, text: str = "", parts: dict[str, str] | None = None
) -> InboxMessage:
    """Put a message into a run's inbox, durably.

    Raises `UserError` for a message that is empty, too long or not valid Unicode, and if it cannot
    be written.
    """
    _check_message(kind, text, parts or {})
    message = InboxMessage(
        f"{time.time_ns():020d}-{secrets.token_hex(4)}", kind, text.strip(), parts or {}
    )
    if (address := read_pointer(run)) is not None:
        run_database(address).insert_message(message.id, encode_value(message))
        return message
    folder = run / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        part = folder / f".{message.id}"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(message))
            file.flush()
            os.fsync(file.fileno())
        part.rename(folder / f"{message.id}.json")
    except OSError as error:
        raise UserError(
            f"the message cannot be left: {error.strerror}",
            where=folder,
            fix="check the folder's permissions",
        ) from None
    return message


def waiting_messages(run: Path) -> list[InboxMessage]:
    """Messages not yet journaled, oldest first; other files in the inbox are ignored."""
    if (address := read_pointer(run)) is not None:
        bodies = run_database(address).message_bodies()
        return [decode_value(raw, InboxMessage) for raw in bodies]
    try:
        names = sorted(
            entry.name for entry in os.scandir(run / FOLDER) if entry.name.endswith(".json")
        )
    except FileNotFoundError:
        return []
    messages: list[InboxMessage] = []
    for name in names:
        with contextlib.suppress(msgspec.MsgspecError, OSError, RecursionError):
            messages.append(
                msgspec.json.decode((run / FOLDER / name).read_bytes(), type=InboxMessage)
            )
    return messages


def remove_message(run: Path, message: str) -> None:
    """Remove a message that was journaled."""
    if (address := read_pointer(run)) is not None:
        run_database(address).delete_message(message)
        return
    with contextlib.suppress(FileNotFoundError):
        (run / FOLDER / f"{message}.json").unlink()


def _check_message(kind: Kind, text: str, parts: dict[str, str]) -> None:
    if kind == "hint" and not text.strip():
        raise UserError("the hint is empty", fix="say in a sentence what to try or to leave")
    if kind == "hint" and len(text) > HINT_CHARS:
        raise UserError(f"the hint has {len(text):,} characters", fix=f"at most {HINT_CHARS:,}")
    if kind == "candidate" and not any(part.strip() for part in parts.values()):
        raise UserError("the candidate is empty", fix="give its text")
    for name, content in {"the message": text, **(parts or {})}.items():
        try:
            f"{name}{content}".encode()
        except UnicodeEncodeError as error:
            what = (
                f"{error.object[error.start]!r} in '{name if name.isprintable() else ascii(name)}' "
                "is not a character"
            )
            raise UserError(
                what, where="a lone surrogate", fix="send text that can be written as UTF-8"
            ) from None
    long = [name for name, part in parts.items() if len(part) > PART_CHARS]
    if long:
        raise UserError(
            f"'{long[0]}' has more than {PART_CHARS:,} characters", fix="a shorter text"
        )


# Sending a message with checks against the run's state, so that a mistake is reported at once.


class Sent(NamedTuple):
    """A message that was sent.

    `live`: a process runs the search; otherwise the message takes effect when the run is resumed.
    """

    message: InboxMessage
    live: bool


def send_stop(run: Path, *, pause: bool = False) -> Sent:
    """End the search now and make the final choice; with `pause`, end the process only.

    A paused run can be resumed. Raises `UserError` if no process runs the search.
    """
    if not _is_live(run):
        raise UserError(
            f"no process runs '{run.name}' just now", where=run, fix=f"culmen resume {run}"
        )
    return Sent(leave_message(run, "pause" if pause else "stop"), True)


def send_hint(run: Path, text: str) -> Sent:
    """Send the models that propose a hint, which every later request carries."""
    live = _require_unfinished(run)
    return Sent(leave_message(run, "hint", text), live)


def send_candidate(run: Path, parts: Mapping[str, str]) -> Sent:
    """Have a candidate evaluated.

    For a task of one part, the part may have any name; otherwise the parts must have the names of
    the initial program's.
    """
    live = _require_unfinished(run)
    return Sent(leave_message(run, "candidate", parts=_named_parts(run, dict(parts))), live)


def _is_live(run: Path) -> bool:
    return views.run_status(run).state == "running"


def _require_unfinished(run: Path) -> bool:
    """True if a process runs the search; raises `UserError` if the run has finished."""
    now = views.run_status(run)
    if now.is_finished:
        raise UserError(
            f"the run '{run.name}' has finished", where=run, fix=f"culmen runs fork {run}"
        )
    return now.state == "running"


def _named_parts(run: Path, parts: dict[str, str]) -> dict[str, str]:
    task = views.run_meta(run).task
    if task.surface.skills:  # whose parts may come and go
        return parts
    seeds = task.seeds
    names = list(seeds[0]) if seeds else list(parts)
    if len(names) == 1 and len(parts) == 1:
        return {names[0]: next(iter(parts.values()))}
    if set(names) != set(parts):
        raise UserError(
            f"the candidate has the parts {', '.join(sorted(parts)) or 'none'}",
            where=run,
            fix=f"give exactly {', '.join(names)}",
        )
    return {name: parts[name] for name in names}
