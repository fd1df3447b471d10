"""Copies of a run for other programs: every event as JSON lines, observations as CSV, the best candidates as files."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.parse import quote

import msgspec

from culmen.core.errors import UserError
from culmen.store import views
from culmen.store.codec import text_bytes
from culmen.store.database import reading
from culmen.store.journal import SqlJournal

Format = Literal["jsonl", "csv", "files"]


def export(run: Path | str, format: Format, out: Path | str, *, count: int = 10) -> int:
    """Write the run to `out` and return how many events, observations or candidates were written.

    jsonl: one event a line, texts whole · csv: one observation a line · files: the `count` best candidates, each in a
    folder of its own with `about.json`. For jsonl and csv `out` is a file, or `-` for standard output.
    """
    writers = {"jsonl": _jsonl, "csv": _csv}
    if format == "files":
        return _files(Path(run), Path(out), count)
    if format not in writers:
        raise UserError(f"unknown format '{format}'", where="--format", fix="use jsonl, csv or files")
    with _opened(out) as file:
        return writers[format](Path(run), file)


@contextmanager
def _opened(out: Path | str) -> Iterator[IO[str]]:
    if str(out) == "-":
        yield sys.stdout
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file


def _jsonl(run: Path, file: IO[str]) -> int:
    count = 0
    for events, page in SqlJournal.open(run).lines():
        count += events
        file.write(page.decode("ascii"))
    return count


def _csv(run: Path, file: IO[str]) -> int:
    from sqlalchemy import select

    from culmen.store.schema import candidate, observation

    origin = (candidate.c.operator, candidate.c.model, candidate.c.parents)
    query = select(observation, *origin).outerjoin(candidate, candidate.c.id == observation.c.candidate)
    count = 0
    with reading(run) as connection:
        rows = connection.execution_options(yield_per=1000).execute(query.order_by(observation.c.seq))
        writer = csv.writer(file)
        writer.writerow(rows.keys())
        for row in rows:
            count += 1
            writer.writerow(row)
    return count


def _files(run: Path, out: Path, count: int) -> int:
    rows = views.candidates(run, "best", limit=count)
    for place, row in enumerate(rows, 1):
        detail = views.candidate(run, row.id, observations=0)
        folder = out / f"{place:0{len(str(count))}d}-{row.id}"
        for name, text in detail.parts.items():
            path = folder / _inside(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text_bytes(text))
        about: dict[str, Any] = {**msgspec.to_builtins(row), "origin": msgspec.to_builtins(detail.candidate.origin)}
        (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return len(rows)


def _inside(name: str) -> PurePosixPath:
    """A relative path for a part: its name, or, where that would leave the folder or hide `about.json`, quoted."""
    path = PurePosixPath(name)
    safe = path.parts and not path.is_absolute() and ".." not in path.parts and "\x00" not in name
    if safe and str(path) != "about.json" and name.isprintable():
        return path
    return PurePosixPath("part-" + quote(text_bytes(name), safe=""))
