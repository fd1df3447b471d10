"""Checkpoints and result folders of OpenEvolve (0.4.1) as pools of candidates.

A checkpoint has `programs/*.json`, one a program, and perhaps `best_program.*`, whose suffix is
that of all programs. A result folder (`openevolve_output`) has `checkpoints/checkpoint_N`; the last
one counts. A run that ended before its first checkpoint has its best program alone, in `best`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from culmen.core.errors import UserError
from culmen.core.foreign import boundary
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.scoring import DEFAULT_FEATURES, fitness
from culmen.run.pools import Pool, PoolMember, PoolSource

PROGRAMS = "programs"
BEST = Path("best", "best_program_info.json")  # beside it the program itself
_MOST_BYTES = 1 << 24  # of a program's file


class _Program(msgspec.Struct):
    """The fields that matter of a program's file."""

    code: str = ""
    metrics: dict[str, Any] = {}


class _Archive(msgspec.Struct):
    """The field that matters of `metadata.json`."""

    feature_stats: JsonObject = {}


_Kind = TypeVar("_Kind", _Program, _Archive)


def read_pool(folder: Path) -> Pool | None:
    """The programs of a checkpoint, best first by their claims; None for any other folder.

    Raises `UserError` for a program that cannot be read.
    """
    checkpoint = _last_checkpoint(folder)
    if checkpoint is not None:
        files = sorted(path_inside(checkpoint, PROGRAMS).glob("*.json"))
    elif (folder / BEST).is_file():
        checkpoint, files = (folder / BEST).parent, [folder / BEST]
    else:
        return None
    part = f"initial_program{_program_suffix(checkpoint)}"
    features = _features(checkpoint)
    found: dict[str, PoolMember] = {}
    for file in files:
        text = _program_text(path_inside(checkpoint, file.relative_to(checkpoint)))
        code = "" if file.parent.name == PROGRAMS else _best_text(checkpoint)
        member = _read_member(text, str(file), part, features, code)
        found.setdefault(member.candidate.digest, member)  # copies on other islands are one program
    members = sorted(found.values(), key=lambda each: -(each.score or 0.0))
    members.sort(key=lambda each: each.score is None)
    source = PoolSource(f"{folder.name} of OpenEvolve", "openevolve")
    return Pool(folder.resolve().parent.name, "", "max", tuple(members), (source,))


def _last_checkpoint(folder: Path) -> Path | None:
    """The folder itself, or the last checkpoint below it."""
    if (folder / PROGRAMS).is_dir():
        return folder
    below = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    numbered = [
        (int(number), path)
        for path in below.glob("checkpoint_*")
        if (number := path.name.removeprefix("checkpoint_")).isdecimal()
        and (path / PROGRAMS).is_dir()
    ]
    return max(numbered)[1] if numbered else None


def _features(checkpoint: Path) -> Iterable[str]:
    """The feature dimensions of the run: those that its archive has measured."""
    file = path_inside(checkpoint, "metadata.json")
    if not file.is_file():
        return DEFAULT_FEATURES
    return _decoded(_program_text(file), str(file), _Archive).feature_stats or DEFAULT_FEATURES


def _program_suffix(checkpoint: Path) -> str:
    named = sorted(checkpoint.glob("best_program.*"))
    return named[0].suffix if named else ".py"


def _best_text(folder: Path) -> str:
    return "".join(
        _program_text(path_inside(folder, each.name)) for each in folder.glob("best_program.*")
    )


def _program_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError("the program's file is too large", where=str(path), fix="remove it")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot read the program: {error}"
        raise UserError(what, where=str(path), fix="remove it") from None


@boundary()
def _decoded(text: str, where: str, kind: type[_Kind]) -> _Kind:
    """The content of a file, which Python's `json` wrote: it may hold NaN."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        what = f"this is no file of OpenEvolve: {error}"
        raise UserError(what, where=where, fix="remove the file") from None


def _read_member(
    text: str, where: str, part: str, features: Iterable[str], code: str = ""
) -> PoolMember:
    """A program with its claimed score; `code` is its text, "" if the file has it."""
    program = _decoded(text, where, _Program)
    code = code or program.code
    if not code:
        what = "this is no program of OpenEvolve: it has no code"
        raise UserError(what, where=where, fix="remove the file")
    score = fitness(program.metrics, features)
    if score is None or not math.isfinite(score):
        return PoolMember({part: code}, None, 0)
    return PoolMember({part: code}, score, 1)
