"""Prompts that a person answers, in an editor on a real terminal or by files.

A replay asks nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.store import sidecar

from .conftest import Place
from .test_cli_attend import wait
from .test_cli_terminal import Terminal

ANSWER = "```python\ndef run():\n    return 7.0 - 0.1 * {n}\n```"
EDITOR = """#!/bin/sh
echo asked >> {log}
n=$(wc -l < {log})
cat >> "$1" <<END
{answer}
END
"""


def test_prompts_open_in_the_editor_and_a_replay_asks_nothing(place: Place, monkeypatch) -> None:
    place.task("peak")
    log, editor = place.root / "asked.txt", place.root / "editor.sh"
    editor.write_text(EDITOR.format(log=log, answer=ANSWER.format(n="$n").replace("`", "\\`")))
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    budget = "evaluations=8,calls=9"
    terminal = Terminal(
        place.root, "run", "peak", "--model", "ask", "--budget", budget, "--run-dir", "runs/a"
    )
    assert terminal.end() == 0, terminal.text
    asked = log.read_text().count("asked")
    assert 1 <= asked <= 9
    assert "return 7.0 - 0.1" in place.here("best", "runs/a").out
    assert place.here("runs", "replay", "runs/a").code == 0
    assert log.read_text().count("asked") == asked


def test_without_a_terminal_answers_are_files(place: Place) -> None:
    place.task("peak")
    folder, ended = place.root / "runs" / "b" / "ask", threading.Event()

    def answer() -> None:
        while not ended.is_set():
            for prompt in folder.glob("*.prompt.md"):
                reply = Path(str(prompt).replace("prompt", "reply"))
                if not reply.exists():
                    part = reply.with_suffix(".part")
                    part.write_text(ANSWER.format(n=int(prompt.name[:4])))
                    os.replace(part, reply)
            time.sleep(0.05)

    person = threading.Thread(target=answer)
    person.start()
    try:
        done = place.culmen(
            "run",
            "peak",
            "--model",
            "ask",
            "--budget",
            "evaluations=8,calls=9",
            "--run-dir",
            "runs/b",
        )
    finally:
        ended.set()
        person.join()
    assert done.code == 0, done.err
    assert "return 7.0 - 0.1" in place.here("best", "runs/b").out
    before = len(list(folder.glob("*.answered.md")))
    assert before and not list(folder.glob("*.prompt.md"))  # all were answered


def started(place: Place, *words: str) -> subprocess.Popen[bytes]:
    """The verb in a process that goes on."""
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    env = {**os.environ, "HOME": str(place.root)}
    return subprocess.Popen(
        [sys.executable, "-m", "culmen.cli.main", *words], cwd=place.root, env=env, **quiet
    )


@pytest.mark.slow
def test_a_run_cut_off_before_the_answer_takes_it_when_it_goes_on(place: Place) -> None:
    """A reply given in this run never answers another run, either."""
    place.task("peak")
    folder, other = place.root / "runs" / "c" / "ask", place.root / "runs" / "d" / "ask"
    words = ("run", "peak", "--model", "ask", "--strategy", "best_of_n", "--workers", "1")
    process = started(
        place, *words, "--run-dir", "runs/c", "--budget", "evaluations=3,calls=2"
    )  # one is cut off
    wait(lambda: list(folder.glob("*.prompt.md")), "it never asked")
    process.kill()
    process.wait()
    (prompt,) = folder.glob("*.prompt.md")
    (folder / "0001.reply.md").write_text(ANSWER.format(n=3))
    assert place.culmen("resume", "runs/c").code == 0
    assert [path.name for path in folder.glob("*.answered.md")] == [
        "0001.answered.md"
    ] and not prompt.exists()
    assert "return 7.0 - 0.1 * 3" in place.here("best", "runs/c").out
    second = started(place, *words, "--run-dir", "runs/d", "--budget", "evaluations=3,calls=1")
    wait((other / "0001.prompt.md").exists, "the very same prompt was not asked anew")
    assert [
        (each.number, each.text) for each in sidecar.waiting_questions(place.root / "runs" / "d")
    ] == [("0001", (folder / "0001.answered.md").read_text())]
    with pytest.raises(UserError, match="does not wait"):
        sidecar.answer_question(place.root / "runs" / "d", "0002", "x")
    with pytest.raises(UserError, match="does not wait"):
        sidecar.answer_question(place.root / "runs" / "d", "../../c/ask/0001", "x")
    sidecar.answer_question(place.root / "runs" / "d", "0001", ANSWER.format(n=2))
    assert second.wait(60) == 0
    assert "return 7.0 - 0.1 * 2" in place.here("best", "runs/d").out
