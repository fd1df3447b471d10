"""A person answers the prompts: in an editor on a real terminal, or by files; a replay asks nothing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .conftest import Place
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
    terminal = Terminal(place.root, "run", "peak", "--model", "ask", "--budget", budget, "--run-dir", "runs/a")
    assert terminal.end() == 0, terminal.text
    asked = log.read_text().count("asked")
    assert 1 <= asked <= 9
    assert "return 7.0 - 0.1" in place.culmen("best", "runs/a").out
    assert place.culmen("replay", "runs/a").code == 0
    assert log.read_text().count("asked") == asked


def test_without_a_terminal_answers_are_files(place: Place) -> None:
    place.task("peak")
    folder, ended = place.root / "culmen-ask", threading.Event()

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
        done = place.culmen("run", "peak", "--model", "ask", "--budget", "evaluations=8,calls=9", "--run-dir", "runs/b")
    finally:
        ended.set()
        person.join()
    assert done.code == 0, done.err
    assert "return 7.0 - 0.1" in place.culmen("best", "runs/b").out
