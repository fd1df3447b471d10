"""Folders of Harbor tasks and skills for tests, and rollouts in them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.extensions.skills.rollouts.form import RolloutBackend, read_skill_folder

T = TypeVar("T")
ANSWER = "the answer is 42"
HEAD = "---\nname: worker\ndescription: How to work.\n---\n"
# the agent does what the skill's script says, in the working directory
PUPPET = """import os, subprocess, sys
print("works by", sys.argv[1], flush=True)
done = subprocess.run(["bash", sys.argv[1] + "/scripts/work.sh"], capture_output=True, text=True)
print(done.stdout, done.stderr)
"""
TEST = """#!/bin/bash
cd /app
git status > /dev/null 2>&1
[ -x tool ] && echo "a tool is there"
python3 -c "import json, random" || exit 1
if python3 -m pytest -q -p no:cacheprovider /tests/test_answer.py; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
PYTEST = """from pathlib import Path

def test_answer():
    assert Path("/app/answer.txt").read_text() == Path("/tests/expected.txt").read_text()
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def harbor_task(more: Mapping[str, str] | None = None, **settings: str) -> dict[str, str]:
    """The files of one task: answer.txt must say what only the tests know."""
    plain = '[metadata.culmen]\nenvironment = "plain"\nsplit = "train"\n'
    return {
        "task.toml": f'version = "1.0"\n{plain}{settings.get("toml", "")}',
        "instruction.md": "Write the answer to answer.txt.\n",
        "environment/Dockerfile": "FROM debian\nWORKDIR /app\nCOPY hint.txt .\n",
        "environment/hint.txt": "42\n",
        "tests/test.sh": settings.get("test", TEST),
        "tests/test_answer.py": PYTEST,
        "tests/expected.txt": ANSWER,
        **(more or {}),
    }


def skill_task(
    folder: Path, script: str = "true\n", agent: str = "", skill: str = "", **settings: str
) -> Task:
    """A folder with a skill that has a script, an agent that runs it, and one task."""
    agent = agent or f"cmd: {sys.executable} {{folder}}/puppet.py {{skill}}"
    files = {
        "task.toml": f"goal = 'work'\n[skill]\nagent = \"{agent}\"\n{skill}",
        "puppet.py": PUPPET,
        "skill/SKILL.md": f"{HEAD}Run scripts/work.sh.\n",
        "skill/scripts/work.sh": script,
        **{f"tasks/one/{name}": text for name, text in harbor_task(**settings).items()},
    }
    return read_skill_folder(write(folder, files))


def rolled_out(task: Task, *scripts: str, workers: int = 2) -> list[Observation]:
    """One rollout for each script of the skill, on the task's only case."""
    seed = task.seeds[0]
    candidates = [
        Candidate.of({**seed, "scripts/work.sh": script})
        for script in scripts or (seed["scripts/work.sh"],)
    ]

    async def play() -> list[Observation]:
        backend = RolloutBackend(task, workers)
        try:
            await backend.start()
            return await asyncio.gather(
                *(backend.evaluate(one, task.cases[0], 3) for one in candidates)
            )
        finally:
            await backend.close()

    return run(play())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end."""
    return asyncio.run(work)
