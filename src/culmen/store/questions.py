"""Prompts that wait for a person (`--model ask`): files in RUN/ask, between `llm.person` and whoever answers."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from culmen.core.errors import UserError

FOLDER = "ask"
_MOST = 1_000_000  # characters of an answer


class Question(msgspec.Struct, frozen=True):
    """A prompt that nobody has answered: its number (`0001`), its text, and when it was asked (seconds since 1970)."""

    number: str
    text: str
    asked: float


def waiting(run: Path) -> list[Question]:
    """The prompts that wait, the oldest first; not those that are open in an editor."""
    found: list[Question] = []
    for prompt in sorted((run / FOLDER).glob("[0-9]*.prompt.md")):
        number = prompt.name.partition(".")[0]
        if any((prompt.with_name(f"{number}.reply.{kind}")).exists() for kind in ("md", "draft")):
            continue
        try:
            text, asked = prompt.read_text(encoding="utf-8", errors="replace"), prompt.stat().st_mtime
        except FileNotFoundError:  # answered just now
            continue
        found.append(Question(number, text, asked))
    return found


def answer(run: Path, number: str, text: str) -> None:
    """Answer a prompt; an empty text is an answer, too. Raises `UserError` for one that does not wait."""
    if len(text) > _MOST:
        raise UserError("the answer is too long", fix=f"at most {_MOST:,} characters")
    if number not in {question.number for question in waiting(run)}:
        raise UserError(f"prompt {number[:20]} does not wait for an answer", where=str(run / FOLDER))
    reply = run / FOLDER / f"{number}.reply.md"
    part = reply.with_suffix(f".{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(reply)
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror}", where=str(reply), fix="check who owns the folder") from None
