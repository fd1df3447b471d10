"""What people send to a run: files in RUN/inbox, taken into the journal by the process that owns the run.

A journal has one writer, so nobody else may append to it. A message is one file, complete from the moment it has its
name; its owner journals it (`stop` or `tell`, with the message's id) and then removes the file. One that is found again
after a crash between the two is known by its id. For a run in a database, messages are rows there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from culmen.core.errors import UserError
from culmen.store.address import pointer
from culmen.store.codec import decode, encode

FOLDER = "inbox"
HINT_CHARS, PART_CHARS = 4_000, 400_000

Kind = Literal["stop", "pause", "hint", "candidate"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """stop: end the search now and make the final choice · pause: end the process as Ctrl-C does, to be resumed ·
    hint: `text` for the models that propose · candidate: `parts` to be evaluated. `id` orders messages by time."""

    id: str
    kind: Kind
    text: str = ""
    parts: dict[str, str] = {}


def leave(run: Path, kind: Kind, text: str = "", parts: dict[str, str] | None = None) -> Message:
    """Put a message into a run's inbox, durably. Raises `UserError` for one that is empty or too long."""
    _check(kind, text, parts or {})
    message = Message(f"{time.time_ns():020d}-{secrets.token_hex(4)}", kind, text.strip(), parts or {})
    if (address := pointer(run)) is not None:
        _postgres().send(address, message.id, encode(message))
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
            f"the message cannot be left: {error.strerror}", where=str(folder), fix="check the folder's permissions"
        ) from None
    return message


def waiting(run: Path) -> list[Message]:
    """Messages that nobody took yet, oldest first; files that are none are left alone."""
    if (address := pointer(run)) is not None:
        return [decode(raw, Message) for raw in _postgres().sent(address)]
    try:
        names = sorted(entry.name for entry in os.scandir(run / FOLDER) if entry.name.endswith(".json"))
    except FileNotFoundError:
        return []
    found: list[Message] = []
    for name in names:
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            found.append(msgspec.json.decode((run / FOLDER / name).read_bytes(), type=Message))
    return found


def remove(run: Path, message: str) -> None:
    """Forget a message that was journaled."""
    if (address := pointer(run)) is not None:
        _postgres().forget(address, message)
        return
    with contextlib.suppress(FileNotFoundError):
        (run / FOLDER / f"{message}.json").unlink()


def _postgres() -> Any:
    from culmen.store import postgres

    return postgres


def _check(kind: Kind, text: str, parts: dict[str, str]) -> None:
    if kind == "hint" and not text.strip():
        raise UserError("the hint is empty", fix="say in a sentence what to try or to leave")
    if kind == "hint" and len(text) > HINT_CHARS:
        raise UserError(f"the hint has {len(text):,} characters", fix=f"at most {HINT_CHARS:,}")
    if kind == "candidate" and not any(part.strip() for part in parts.values()):
        raise UserError("the candidate is empty", fix="give its text")
    for name, told in {"the message": text, **(parts or {})}.items():
        try:
            f"{name}{told}".encode()
        except UnicodeEncodeError as error:
            what = f"{error.object[error.start]!r} in '{name if name.isprintable() else ascii(name)}' is no character"
            raise UserError(what, where="a lone surrogate", fix="send text that can be written as UTF-8") from None
    long = [name for name, part in parts.items() if len(part) > PART_CHARS]
    if long:
        raise UserError(f"'{long[0]}' has more than {PART_CHARS:,} characters", fix="a shorter text")
