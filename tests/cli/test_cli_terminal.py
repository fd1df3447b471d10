"""A real (pseudo) terminal: progress in place, Ctrl-C once and twice, resume to the end."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import sys
import termios
import threading
import time
from pathlib import Path

import msgspec
import pytest

from culmen.cli.screen import Screen
from culmen.cli.start import _print_clock
from culmen.report.displays import PlainDisplay, SilentDisplay, progress_svg
from culmen.report.figures import number_text
from culmen.report.watch import Watch
from culmen.store import views
from culmen.store.views import ProgressPoint, RunStatus

from .conftest import EVALUATOR, TOML, Place

CTRL_C = b"\x03"
PATIENCE = 60.0  # seconds until something that must appear is given up on
SLOW = "import time\n\n\ndef run():\n    time.sleep({seconds})\n    return 3.0\n"
NOISY = TOML.replace("deterministic = true\n", "")


class Terminal:
    """A command on a terminal of 80 columns.

    `seen` is everything it wrote, escape sequences included.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.seen = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="xterm-256color", HOME=str(folder))
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                os.environ.pop(name, None)
            os.execv(sys.executable, [sys.executable, "-m", "culmen.cli.main", *arguments])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))

    def type(self, keys: bytes) -> None:
        """Type into it."""
        os.write(self._fd, keys)

    def until(self, pattern: str) -> str:
        """Read until the pattern has appeared in the output; returns all of it."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"'{pattern}' never appeared in:\n{self.seen}"
            assert self._read(), f"ended before '{pattern}' appeared:\n{self.seen}"
        return self.seen

    def end(self) -> int:
        """Read to its end; the exit code."""
        while self._read():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], PATIENCE)
        assert ready, f"silent for {PATIENCE} s:\n{self.seen}"
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # how Linux says that the other end of a terminal is gone
            return False
        self.seen += piece.decode("utf-8", "replace")
        return bool(piece)

    @property
    def text(self) -> str:
        """The output without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)


@pytest.mark.slow
def test_progress_then_ctrl_c_then_resume_to_the_end(place: Place) -> None:
    place.task("slow", seed=SLOW.format(seconds=0.3), toml=NOISY)
    terminal = Terminal(
        place.root,
        "run",
        "slow",
        "--budget",
        "evaluations=30",
        "--run-dir",
        "runs/a",
        "--seed",
        "1",
    )
    terminal.until(r"[1-9][0-9]*/30 evaluations")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again stops at once")
    assert terminal.end() == 130
    text = terminal.text
    assert "at most      30 evaluations (3 for the final choice), $0" in text
    assert "running" in text and "%" in text
    assert "interrupted after " in " ".join(text.split())
    assert "culmen resume a" in text
    assert "Traceback" not in text
    assert [line for line in re.split(r"[\r\n]+", text) if len(line) > 80] == []
    stopped = place.here("status", "a", "--json").document
    assert stopped["state"] == "interrupted"
    assert stopped["evaluations"] < 30

    resumed = Terminal(place.root, "resume", "a")
    assert resumed.end() == 0
    assert "better than the initial program: initial -16" in " ".join(resumed.text.split())
    after = place.here("status", "a", "--json").document
    assert after["state"] == "finished"
    assert stopped["evaluations"] < after["evaluations"] <= 30
    replayed = place.here("runs", "replay", "a", "--json").document
    assert replayed.get("matches") is True, replayed


def test_ctrl_c_ends_other_verbs_with_a_word(place: Place) -> None:
    place.task("slowest", seed=SLOW.format(seconds=20), toml=NOISY)
    terminal = Terminal(place.root, "check", "slowest")
    terminal.until("trying 1 initial program")
    terminal.type(CTRL_C)
    assert terminal.end() == 130, terminal.text
    assert "Error: interrupted" in terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_second_ctrl_c_stops_at_once_and_loses_nothing(place: Place) -> None:
    place.task("slower", seed=SLOW.format(seconds=6), toml=NOISY)
    budget = ("--budget", "evaluations=2", "--workers", "2", "--run-dir", "runs/b")
    terminal = Terminal(place.root, "run", "slower", *budget)
    terminal.until("2 running")
    terminal.type(CTRL_C)
    terminal.until("Ctrl-C again stops at once")
    terminal.type(CTRL_C)
    terminal.until("Stopping at once")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text
    stopped = place.here("status", "b", "--json").document
    assert (stopped["state"], stopped["evaluations"]) == ("interrupted", 0)

    resumed = place.culmen("resume", "b", "--json")
    assert (resumed.code, resumed.document["state"], resumed.document["evaluations"]) == (
        0,
        "finished",
        2,
    )
    replayed = place.here("runs", "replay", "b", "--json").document
    assert replayed.get("matches") is True, replayed


def test_quiet_shows_only_the_result(place: Place) -> None:
    place.task("peak")
    terminal = Terminal(
        place.root, "run", "peak", "--budget", "evaluations=3", "--run-dir", "runs/q", "--quiet"
    )
    assert terminal.end() == 0
    assert "initial " in terminal.text and "next: culmen runs fork q --budget" in terminal.text
    assert "%" not in terminal.text


def test_control_characters_of_candidates_do_not_reach_the_terminal(place: Place) -> None:
    place.task(
        "sly", evaluator=EVALUATOR.replace("f'got {output}'", "chr(27) + ']0;owned' + chr(7)")
    )
    assert (
        place.here("run", "sly", "--budget", "evaluations=2", "--run-dir", "runs/s", "--json").code
        == 0
    )
    terminal = Terminal(place.root, "show", "s", "seed")
    assert terminal.end() == 0
    assert "\\x1b]0;owned\\x07" in terminal.text
    assert "\x1b]0;" not in terminal.seen


def test_columns_that_do_not_fit_follow_below_and_no_word_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    columns = ["name", "first number", "second number", "remark"]
    Screen().print_table(
        columns,
        [["alpha", "1.23456789", "2.3456789", "several words in a row"]],
        right=columns[1:3],
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name   first number" and lines[2] == "alpha    1.23456789"
    assert lines[3].split() == ["name", "second", "number", "remark"]
    assert max(map(len, lines)) <= 30
    words = [word for line in lines for word in line.split()]
    assert {"several", "words", "row"} <= set(words)


@pytest.mark.slow
def test_marks_of_the_writing_direction_are_neutral_in_show_and_check(place: Place) -> None:
    marks = "\u202e\u2066\u2069\u200f"
    seed = f"def run():\n    # admin {marks} begin\n    print('said {marks}')\n    return 3.0\n"
    place.task("peak", seed=seed, evaluator=EVALUATOR.replace("got {output}", f"got {marks}"))
    assert place.here("run", "peak", "--budget", "evaluations=1", "--run-dir", "run").code == 0
    for words in (("show", "run"), ("check", "peak"), ("best", "run"), ("show", "run", "--log")):
        terminal = Terminal(place.root, *words)
        assert terminal.end() in (0, 1)
        assert not set(marks) & set(terminal.seen), words
        is_whole = words[0] in ("show", "check") and "--log" not in words
        assert not is_whole or "\\u202e" in terminal.seen, terminal.text


def test_a_best_that_falls_is_said_to_have_been_measured_again(done: Place) -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    now = views.run_status(done.root / "runs/first")
    assert now.best is not None
    worse = msgspec.structs.replace(now.best, score=now.best.score - 0.25, certified=None)
    display.on_improvement(now, now.best, None)
    display.close()
    display.write_status_line(msgspec.structs.replace(now, best=worse))
    first, second = stream.getvalue().splitlines()
    assert "was" not in first
    assert f"(was {number_text(now.best.value)}: measured again, it is less)" in second
    falling = [ProgressPoint(n, n, "a", 1.0 / n, n) for n in (1, 2)]
    assert "measured again and scored less" in progress_svg(falling, 2, "max")
    assert "measured again" not in progress_svg(falling, 2, "min")


def test_the_clock_goes_on_while_no_evaluation_ends(
    done: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, too: an evaluation may take hours."""
    seen: list[RunStatus] = []

    class Display(SilentDisplay):
        every = 1.0

        def draw(self, now: RunStatus) -> None:
            seen.append(now)

    watch = Watch(Display()).for_run(done.root / "runs/first")
    watch.see([])
    for age in (0.0, 0.0, 60.0):
        watch._look_at -= age
        watch._update_display(last=False)
    assert seen[0] is seen[1] and seen[2] is not seen[1]

    class Minutes(threading.Event):
        left = 2

        def wait(self, timeout: float | None = None) -> bool:
            self.left -= 1
            return self.left < 0

    _print_clock(Screen(), Minutes())
    assert capsys.readouterr().err.count("evaluating") == 2
