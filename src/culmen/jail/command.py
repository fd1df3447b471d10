"""A command as evaluator: it runs in a copy of a folder and prints a number.

Every run has a new process and a new copy, under a name that does not tell the version. What git
ignores (environments, data) is a link to the folder's own. With bubblewrap a run writes into its
copy and /tmp alone and has no network; without it, it runs as the user does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, ClassVar

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Scoring
from culmen.core.json import JsonObject
from culmen.jail.bubblewrap import bwrap_path

SCHEME = "command:"
PASSES, SECONDS = "exit", "seconds"
"""Metrics that are measured from outside: 1 if the command succeeds, else 0; its wall time."""
WHY = "the command that judges runs the edited files itself"

_KEPT = 4000  # characters kept of what a run printed
_WORD = r"([-+\u2212]?(?:\.?\d[\w.,:/^+-]%s|(?i:nan|inf(?:inity)?)\b))"
"""What is read as a number, or is none and no guess: a date, a time, a range, a version, NaN."""
_LONGEST = 450  # characters of a number; the largest float has 411, with commas
_THOUSANDS = r"\d{1,3}(?:,\d{3})+(?:\.\d*)?"
_NUMBER = re.compile(rf"([-+]?(?:{_THOUSANDS}|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[a-zA-Z]*")
_LEFT_OUT = ("__pycache__", ".git")  # what runs of one side may leave, and what tells its name
_RUNS = "runs"  # of the folder: what culmen writes


class Command(msgspec.Struct, frozen=True):
    """A command in a folder.

    `metric` is "" for the last number printed, a line with {} in place of the number, a regular
    expression with one group, the key of a JSON object, or `exit` or `seconds`. `edit` are the
    files that may change, relative to the folder. A run is ended after `seconds`.
    """

    words: tuple[str, ...]
    edit: tuple[str, ...]
    metric: str = ""
    folder: str = "."
    seconds: float = 600.0

    def run(self, parts: Mapping[str, str | None]) -> CommandResult:
        """Run once, in a new copy with these texts of files; None: without this file."""
        with self._fresh_copy(parts) as copy:
            begin = time.perf_counter()
            code, out, err = self._run_in(copy)
            return self._read_result(code, time.perf_counter() - begin, out, err)

    @contextlib.contextmanager
    def _fresh_copy(self, parts: Mapping[str, str | None]) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as around:
            copy = Path(around, "work")
            _copy_folder(Path(self.folder), copy)
            for name, text in parts.items():
                file = copy / name
                if text is None:
                    file.unlink(missing_ok=True)
                    continue
                file.parent.mkdir(parents=True, exist_ok=True)
                mode = file.stat().st_mode if file.exists() else None
                file.unlink(missing_ok=True)  # never through a link
                file.write_text(text, encoding="utf-8")
                if mode is not None:
                    file.chmod(mode)
            yield copy

    def _run_in(self, copy: Path) -> tuple[int | None, str, str]:
        """Exit code (None: ended after the time limit), standard output and error."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    [*_confinement(copy, Path(self.folder).resolve()), *self.words],
                    cwd=copy,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(
                    f"'{self.words[0]}' cannot be run: {error.strerror}",
                    where=shlex.join(self.words),
                    fix="correct the command; it runs in a copy of this folder",
                ) from None
            try:
                code = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it left behind, too
                process.wait()
            return code, _end_of(out), _end_of(err)

    def _read_result(self, code: int | None, seconds: float, out: str, err: str) -> CommandResult:
        fault = ""
        value = None
        if code is None:
            fault = f"it took more than {self.seconds:g} s"
        elif self.metric == PASSES:
            value = float(code == 0)
        elif code:
            lines = [line.strip() for line in (err.strip() or out.strip()).splitlines()]
            fault = ": ".join([f"it ended with exit code {code}", *lines[-1:]])
        elif self.metric == SECONDS:
            value = seconds
        else:
            value = read_metric(out, self.metric)
            fault = "" if value is not None else f"it printed no {metric_text(self.metric)}"
        said = "\n".join(text.strip() for text in (out, err) if text.strip())
        return CommandResult(value, fault, seconds, code, said[-_KEPT:])


class CommandResult(msgspec.Struct, frozen=True):
    """One run: its value, or the reason that there is none.

    Wall seconds, exit code (None: it was ended), and the end of its output.
    """

    value: float | None
    fault: str
    seconds: float
    code: int | None
    printed: str


def read_metric(text: str, metric: str) -> float | None:
    """The last number of this metric in a text; None if there is none, or the last is in doubt."""
    if not metric or "{}" in metric:
        before, _, after = (re.escape(part) for part in metric.partition("{}"))
        word = _WORD % (f"{{0,{_LONGEST}}}" if after else "*+")
        found = re.findall((before or r"(?<![\w.])") + word + after, text)
        word = found[-1].rstrip(".,:/^+-").replace("\u2212", "-") if found else ""
        number = _NUMBER.fullmatch(word) if len(word) < _LONGEST else None
        return _finite(number[1].replace(",", "")) if number else None
    if "(" in metric:
        found = [match.group(1) for match in re.finditer(metric, text, re.M)]
        return _finite(found[-1]) if found else None
    for line in (text, *reversed(text.splitlines())):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            for key in metric.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                return _finite(value)
    return None


def metric_text(metric: str) -> str:
    """The metric in words."""
    if not metric:
        return "number"
    is_line = "{}" in metric or "(" in metric
    return f"line '{metric}' with a number" if is_line else f"JSON object with a number '{metric}'"


def check_metric(metric: str) -> None:
    """Raise `UserError` for a metric that cannot be read."""
    if "{}" in metric or "(" not in metric:
        return
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise UserError(
            f"not a regular expression: {error}", where=f"--metric {metric}", fix="correct it"
        ) from None
    if groups != 1:
        raise UserError(
            f"the regular expression has {groups} groups",
            where=f"--metric {metric}",
            fix="put one pair of parentheses around the number; others begin with (?:",
        )


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with contextlib.suppress(ValueError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def _end_of(stream: IO[bytes]) -> str:
    """The last text of a temporary file."""
    # bytes of each stream that are read, from its end
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - (1 << 20)))
    return stream.read().decode("utf-8", "replace")


def _copy_folder(folder: Path, target: Path) -> None:
    """Copy the files of a folder; what git ignores becomes a link.

    Caches are left out, and `runs`, in which culmen writes, unless git has it.
    """
    kept = _git_lines(folder, "-c")
    if kept is None:
        shutil.copytree(folder, target, symlinks=True, ignore=_left_out_of(folder))
        return
    new, shared = _git_lines(folder, "-o"), _git_lines(folder, "-oi", "--directory")
    target.mkdir()
    for name in [*kept, *filter(_is_kept, new or ())]:
        source, file = folder / name, target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir() and not source.is_symlink():  # a repository of its own inside
            shutil.copytree(source, file, symlinks=True)
        elif os.path.lexists(source):
            shutil.copy2(source, file, follow_symlinks=False)
    for name in filter(_is_kept, shared or ()):
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(file):
            file.symlink_to((folder / name).resolve())


def _is_kept(name: str) -> bool:
    parts = Path(name).parts
    return parts[0] != _RUNS and not set(parts) & set(_LEFT_OUT)


def _left_out_of(folder: Path) -> Callable[[str, list[str]], list[str]]:
    """The filter of `shutil.copytree` for a folder without git."""
    return lambda place, names: [
        name for name in names if not _is_kept(Path(place, name).relative_to(folder).as_posix())
    ]


def _git_lines(folder: Path, *options: str) -> list[str] | None:
    """Files of a folder as git lists them; None outside a repository."""
    line = ["git", "ls-files", "-z", "--exclude-standard", *options]
    try:
        done = subprocess.run(line, cwd=folder, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    return [os.fsdecode(name).rstrip("/") for name in done.stdout.split(b"\0") if name]


def _confinement(copy: Path, folder: Path) -> list[str]:
    """The beginning of a command line that confines the rest to its copy; empty without bwrap."""
    if not is_confined():
        return []
    line = _bubblewrap_words()
    if folder.is_relative_to("/tmp"):  # which is replaced; links lead back into the folder
        line += ["--ro-bind", str(folder), str(folder)]
    return [*line, "--bind", str(copy), str(copy), "--chdir", str(copy), "--"]


def _bubblewrap_words() -> list[str]:
    line = [bwrap_path() or "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    return [*line, "--tmpfs", "/tmp", "--unshare-pid", "--unshare-net", "--die-with-parent"]


@cache
def is_confined() -> bool:
    """True if bubblewrap works here."""
    if bwrap_path() is None:
        return False
    line = [*_bubblewrap_words(), "--", "true"]
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


class CommandJudge:
    """Scores candidates, sets of edited files, by the command (`jail.spoken.JudgeType`)."""

    scoring: ClassVar[Scoring] = Scoring("self-reported", WHY)
    level: ClassVar[str] = "limits"
    starts_containers: ClassVar[bool] = False

    def __init__(self, words: list[str]) -> None:
        self._command = msgspec.json.decode(words[1], type=Command)

    def score(self, parts: dict[str, str]) -> JsonObject:
        """The value, or None and the command's own words."""
        result = self._command.run(parts)
        feedback = "\n".join(filter(None, (result.printed, result.fault)))
        return {
            "score": result.value,
            "feedback": feedback,
            "metrics": {"seconds": result.seconds},
        }
