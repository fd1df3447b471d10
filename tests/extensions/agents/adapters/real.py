"""Tasks and a scripted model for whole CATO runs with real agent programs.

The script is what a good agent would do, in the agent's own tools: read the task, write a
candidate, have it evaluated, write down what it learned, end.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from culmen import Budget, Study
from culmen.extensions.agents.adapters.catalog import adapter_by_name
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.sandbox.repository import run_git
from culmen.store.journal import SqlJournal
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.servers.model_script import Asked, Turn
from tests.servers.model_server import ModelServer

WANTED = tuple(filter(None, os.environ.get("CULMEN_TEST_AGENTS", "").split(",")))
SECRET = "sk-upstream-only"
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SEED = "def run():\n    return 0.25\n"
BETTER = "def run():\n    return 0.75\n"
EVALUATOR = "def score(output):\n    return {'score': 1 - abs(0.8 - output)}\n"
TASK = """
name = "aim"
goal = "run() returns a number. Come as close to 0.8 as you can."
[seed]
files = ["aim.py"]
[evaluator]
file = "evaluator.py"
form = "call"
entry = "run"
[limits]
seconds = 20
"""
MODELS = """
[providers.mine]
base_url = "{url}/v1"
key_env = "SCRIPTED_KEY"
[models.scripted-model]
provider = "mine"
model = "big"
price = {{ input = 1.0, output = 2.0 }}
"""
LEARNED = "Half-way between the seed and 1 is closer than the seed."
LAST = "I have come closer; the rest is a matter of digits."


def need(kind: str) -> None:
    """Skip a program that was not asked for; one that was asked for must be there."""
    if kind not in WANTED:
        pytest.skip(f"to drive the real program: CULMEN_TEST_AGENTS={kind}")
    assert shutil.which(adapter_by_name(kind).program), (
        f"{adapter_by_name(kind).program} is to be tested and is not installed"
    )
    need_confinement()


def diligent(asked: Asked) -> Turn:
    """The scripted model's next turn, the same on every wire.

    It learns its agent's name from the output of its tools.
    """
    if not asked.tools:
        return Turn("A title")
    found = re.search(r"You are agent `(a\d\d)`", " ".join(asked.results))
    mine = found[1] if found else "a00"
    file = f"candidates/{mine}/better.py"
    steps: list[Any] = [
        asked.shell("cat TASK.md reflections.md; env"),
        asked.write(file, BETTER),
        asked.shell(f"python3 run_experiments.py {file} --note 'a higher number'"),
        asked.shell(
            f"echo '- {mine}: {LEARNED}' >> reflections.md && echo tried 0.75 > notes/{mine}.md"
        ),
    ]
    if asked.rounds < len(steps):
        return Turn(f"Step {asked.rounds + 1}.", (steps[asked.rounds],))
    if SUBMIT in "".join(item.text for item in asked.items):  # mini-swe-agent ends by a command
        return Turn(LAST, (asked.shell(f"echo {SUBMIT}"),))
    return Turn(LAST)


@dataclass(frozen=True)
class Ran:
    """A finished run and its remains."""

    study: Study
    server: ModelServer
    agents: list[dict[str, Any]]

    def git(self, *words: str) -> str:
        """Ask the shared repository."""
        return run_git(self.study.path / "control" / "repo.git", *words).decode()


@contextmanager
def ran(tmp_path: Path, cato: Cato, faults: tuple[str, ...] = ()) -> Iterator[Ran]:
    """A run from its beginning to its end."""
    task = tmp_path / "task"
    task.mkdir()
    for name, text in {"task.toml": TASK, "aim.py": SEED, "evaluator.py": EVALUATOR}.items():
        (task / name).write_text(text)
    with ModelServer(diligent, faults) as server:
        models = tmp_path / "models.toml"
        models.write_text(MODELS.format(url=server.url))
        budget = Budget(evaluations=40, dollars=100)
        study = Study.create(
            task,
            cato,
            model="scripted-model",
            models_file=str(models),
            budget=budget,
            run_dir=tmp_path / "run",
        )
        assert study.run() == "finished"
        journal = SqlJournal.open(study.path)
        notes = [dict(event.entry.body) for event in journal.read() if event.entry.kind == "note"]
        journal.close()
        yield Ran(study, server, [note for note in notes if note.get("note") == "agent ended"])
