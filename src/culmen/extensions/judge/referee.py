"""The referee: an edit before and after, run in turn until the verdict is clear.

A session is a folder of judgements. Its rate of false gains is spent: the n-th ask has the share
1 / (n (n + 1)), so that all asks together have the whole, however many there are.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import secrets
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from culmen.core import VERSION
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.judge import verify
from culmen.jail.command import PASSES, Command, CommandResult

NO_JOURNAL = {"origin": "", "hash": "", "rows": []}
"""Of a judgement, whose pairs are chained themselves."""
SESSION = Path("runs/judge")  # folder of the judgements, by number
_MOST_REPEATS = 8  # of the pairs seen, after which nothing is foretold
_TRIES = 3  # failures of the unedited side, before any success, after which there is no verdict

Texts = Mapping[str, str | None]
"""Texts of the edited files by name; None: the file is not there."""
Tell = Callable[[int, float | None, float | None], None]
"""Called after every pair, with its number, and the values before and after."""


class JudgeRequest(msgspec.Struct, frozen=True):
    """The terms of a judgement.

    `gain` is the smallest gain that matters, as a number or `N%` of the value before ("": 1 %, of
    pass or fail 0.05). `error` is the rate of false gains of the whole session, `pairs` the most
    pairs of runs.
    """

    direction: str = "max"
    gain: str = ""
    error: float = 0.01
    pairs: int = 60


def texts_before(against: str | None, edit: Sequence[str]) -> dict[str, str | None]:
    """Texts of the files in a folder, or at a revision of the git repository here (HEAD)."""
    if against is not None and Path(against).is_dir():
        return texts_in(Path(against), edit)
    revision = against or "HEAD"
    if (
        _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        is None
    ):
        raise UserError(
            f"there is no revision '{revision}' of a git repository here, and no such folder",
            where="--against",
            fix="give a folder with the files before the edit",
        )
    return {name: _git("show", "--end-of-options", f"{revision}:./{name}") for name in edit}


def texts_in(folder: Path, edit: Sequence[str]) -> dict[str, str | None]:
    """Texts of the files in a folder."""
    found: dict[str, str | None] = {}
    for name in edit:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise UserError(
                f"'{name}' lies outside the folder", where="--edit", fix="name files inside"
            )
        try:
            found[name] = (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            found[name] = None
        except (OSError, ValueError) as error:
            raise UserError(
                f"the file cannot be read: {error}", where=f"--edit {name}", fix="name text files"
            ) from None
    return found


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None


def open_judgement(folder: Path) -> Path:
    """A new file for the next judgement of a session; it counts even if it is interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(f.stem) for f in folder.glob("*.json") if f.stem.isdigit()), default=0)
    while True:
        try:
            os.close(
                os.open(folder / f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            )
        except FileExistsError:
            number += 1
        else:
            return folder / f"{number}.json"


def check_session(folder: Path, error: float) -> None:
    """Raise `UserError` if the asks of a session so far share another rate of error."""
    for file in sorted(folder.glob("*.json")):
        text = file.read_text(encoding="utf-8")
        known = json.loads(text)["comparisons"][0]["bar"]["error"] if text else error
        if known != error:
            raise UserError(
                f"all asks of this session share the rate of error {known:g}",
                where=f"--error {error:g}, {folder}",
                fix="leave --error out, or begin another session: move the folder away",
            )


def make_bar(
    asked: JudgeRequest, command: Command, before: Texts, after: Texts, ask: int
) -> JsonObject:
    """Everything that is fixed before the first run."""
    passes = command.metric == PASSES
    gain = asked.gain or ("0.05" if passes else "1%")
    try:
        size = float(gain.removesuffix("%")) / (100.0 if gain.endswith("%") else 1.0)
    except ValueError:
        size = math.nan
    if not 0.0 < size < math.inf or (passes and gain.endswith("%")):
        raise UserError(
            f"'{gain}' is not a gain", where="--gain", fix="give for instance 0.5, or 2%"
        )
    folder = Path(command.folder).resolve()
    named = sorted(
        word
        for word in command.words
        if (folder / word).is_file() and (folder / word).resolve().is_relative_to(folder)
    )
    return {
        "direction": asked.direction,
        "gain": size,
        "relative": gain.endswith("%"),
        "passes": passes,
        "exact": False,
        "error": asked.error,
        "ask": ask,
        "alpha": asked.error / (ask * (ask + 1)),
        "pairs": asked.pairs,
        "seed": secrets.randbelow(1 << 32),
        "command": verify.digest([*command.words, command.metric]),
        "files": {name: verify.digest((folder / name).read_bytes().hex()) for name in named},
        "edit": {name: [verify.digest(before[name]), verify.digest(after[name])] for name in after},
        "versions": {"culmen": VERSION, "python": platform.python_version()},
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def compare(
    bar: JsonObject, command: Command, before: Texts, after: Texts, tell: Tell
) -> JsonObject:
    """Run both sides in pairs of random order until there is a verdict.

    Raises `UserError` if the command fails without the edit.
    """
    pairs: list[JsonObject] = []
    verdict, failure = "", ""
    while not verdict:
        swapped = verify.is_swapped(bar["seed"], len(pairs))
        sides = {"before": before, "after": after}
        names = reversed(sides) if swapped else iter(sides)
        results = {name: command.run(sides[name]) for name in names}
        pairs.append({**{name: each.value for name, each in results.items()}, "swapped": swapped})
        if len(pairs) <= _TRIES and all(pair["before"] is None for pair in pairs):
            _check_before(command, results["before"], len(pairs) == _TRIES)
        failure = _failure_text(results["after"]) or failure
        verdict = verify.verdict(bar, pairs)
        tell(len(pairs), pairs[-1]["before"], pairs[-1]["after"])
    return {
        "bar": bar,
        "pairs": pairs,
        "links": verify.chain(bar, pairs),
        "verdict": verdict,
        "interval": verify.interval(bar, pairs),
        "failure": failure,
    }


def _check_before(command: Command, result: CommandResult, is_last: bool) -> None:
    """Raise `UserError` if the unedited side has failed often enough, or prints no number."""
    if is_last or result.code == 0:
        raise UserError(
            f"the command fails without the edit: {_failure_text(result)}",
            where=shlex.join(command.words),
            fix="correct the command, or say where its number is: --metric",
        )


def _failure_text(result: CommandResult) -> str:
    return "\n".join(filter(None, (result.fault, result.printed))) if result.fault else ""


def pairs_to_go(comparison: JsonObject) -> int | None:
    """Further pairs until a verdict if they are like those seen; None if very many."""
    bar, pairs = comparison["bar"], comparison["pairs"]
    open_bar = {**bar, "pairs": math.inf}
    for eighths in range(9, 8 * _MOST_REPEATS):
        count = math.ceil(len(pairs) * eighths / 8)
        if verify.verdict(open_bar, (pairs * _MOST_REPEATS)[:count]):
            return count - len(pairs)
    return None


def seal_document(kind: str, comparisons: Sequence[JsonObject], journal: JsonObject) -> JsonObject:
    """A receipt of comparisons; its verdict is that of the first that is not better."""
    told = [each["verdict"] for each in comparisons]
    verdict = next((each for each in told if each != verify.BETTER), verify.BETTER)
    content = {"kind": kind, "verdict": verdict, "comparisons": comparisons, "journal": journal}
    return {**content, "seal": verify.digest(content)}


def write_document(document: JsonObject, file: Path) -> None:
    """Write a document in one piece."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    new.replace(file)
