"""Labels of a run: tags and a remark of people, beside its journal.

They may change while the search runs, or years later: each change is appended to RUN/labels.jsonl,
and the last complete line counts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.store.address import has_run

LABELS = "labels.jsonl"
_TAGS, _TAG, _REMARK = 20, 40, 4_000  # number of tags, characters of a tag and of a remark


class Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tags and a remark; `time` is their time of writing (Unix seconds)."""

    tags: tuple[str, ...] = ()
    remark: str = ""
    time: float = 0.0


def read_labels(run: Path) -> Labels:
    """The latest labels of a run; empty for a run without any."""
    try:
        lines = (run / LABELS).read_bytes().splitlines()
    except OSError:
        return Labels()
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=Labels)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # the machine stopped in the middle of a line
    return Labels()


def replace_labels(run: Path, tags: list[str], remark: str) -> Labels:
    """Replace the labels of a run.

    Raises `UserError` for an invalid tag, for too many or too long ones, and if the folder cannot
    be written.
    """
    if not has_run(run):
        raise UserError(
            "there is no run here", where=str(run), fix="culmen status --all lists the runs"
        )
    kept = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    wrong = next(
        (tag for tag in kept if len(tag) > _TAG or "," in tag or not tag.isprintable()), None
    )
    if wrong is not None:
        raise UserError(
            f"'{wrong[:_TAG]}' is not a tag",
            fix=f"a tag is a line of at most {_TAG} characters without commas",
        )
    if len(kept) > _TAGS or len(remark) > _REMARK:
        raise UserError(
            "that is too much", fix=f"at most {_TAGS} tags, and {_REMARK:,} characters of a remark"
        )
    labels = Labels(kept, remark.strip(), time.time())
    try:
        with (run / LABELS).open("ab") as file:
            torn = file.tell() and not _ends_with_newline(run)
            file.write(b"\n" * bool(torn) + msgspec.json.encode(labels) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except UnicodeEncodeError:
        raise UserError("the text holds half a character", fix="write it again") from None
    except OSError as error:
        raise UserError(
            f"cannot write: {error.strerror}",
            where=str(run / LABELS),
            fix="check who owns the folder",
        ) from None
    return labels


def _ends_with_newline(run: Path) -> bool:
    """True if the file ends with a line feed."""
    with (run / LABELS).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
