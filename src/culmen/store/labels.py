"""What people say of a run: tags, and a remark.

A journal has one writer, and that is the search; these may come while it runs, or years later. So they have a small
journal of their own beside it, RUN/labels.jsonl, to which each change is appended; the last line that is whole counts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.store.address import has_run

FILE = "labels.jsonl"
_TAGS, _TAG, _REMARK = 20, 40, 4_000  # how many, and characters of one and of a remark


class Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tags and a remark; `time` is when they were given, in seconds since 1970."""

    tags: tuple[str, ...] = ()
    remark: str = ""
    time: float = 0.0


def read(run: Path) -> Labels:
    """What was said of a run last; nothing of one of which nothing was said."""
    try:
        lines = (run / FILE).read_bytes().splitlines()
    except OSError:
        return Labels()
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=Labels)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the machine stopped in the middle of a line
    return Labels()


def write(run: Path, tags: list[str], remark: str) -> Labels:
    """Say this of a run from now on. Raises `UserError` for what is no tag, and where the folder cannot be written."""
    if not has_run(run):
        raise UserError("there is no run here", where=str(run), fix="culmen status --all lists the runs")
    kept = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    wrong = next((tag for tag in kept if len(tag) > _TAG or "," in tag or not tag.isprintable()), None)
    if wrong is not None:
        raise UserError(
            f"'{wrong[:_TAG]}' is no tag", fix=f"a tag is a line of at most {_TAG} characters without commas"
        )
    if len(kept) > _TAGS or len(remark) > _REMARK:
        raise UserError("that is too much", fix=f"at most {_TAGS} tags, and {_REMARK:,} characters of a remark")
    found = Labels(kept, remark.strip(), time.time())
    try:
        with (run / FILE).open("ab") as file:
            torn = file.tell() and not _whole(run)
            file.write(b"\n" * bool(torn) + msgspec.json.encode(found) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except UnicodeEncodeError:
        raise UserError("the text holds half a character", fix="write it again") from None
    except OSError as error:
        raise UserError(
            f"cannot write: {error.strerror}", where=str(run / FILE), fix="check who owns the folder"
        ) from None
    return found


def _whole(run: Path) -> bool:
    """Whether the file ends with the end of a line."""
    with (run / FILE).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
