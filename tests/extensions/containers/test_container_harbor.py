"""A folder in Harbor's format: the script in a container of the task's image.

The task's own tests come after it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load
from tests.evaluate.conftest import wait_until
from tests.extensions.containers.test_container_jail import orphans

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
TOML = """
version = "1.0"
[metadata]
difficulty = "easy"
[verifier]
timeout_sec = 20.0
[agent]
timeout_sec = 5.0
[environment]
docker_image = "{image}"
cpus = 1
memory_mb = 256
network_mode = "no-network"
"""
TEST = """#!/bin/bash
[ -e /solution-ran ] && echo found it
count=$(cat /app.txt 2>/dev/null | awk '{n += $1} END {print n + 0}')
echo "{\\"reward\\": $count}" > /logs/verifier/reward.json
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "solution").mkdir()
    (tmp_path / "instruction.md").write_text("Write numbers into /app.txt; their sum counts.\n")
    (tmp_path / "tests" / "test.sh").write_text(TEST)
    (tmp_path / "solution" / "solve.sh").write_text("echo secret > /app.txt\n")
    (tmp_path / "task.toml").write_text(TOML.format(image="localhost/nothing"))
    return tmp_path


def scores(path: Path, *scripts: str) -> list[Observation]:
    async def work() -> list[Observation]:
        backend = LocalBackend(load(path), 1)
        try:
            assert await backend.start() == "container"
            return [
                await backend.evaluate(Candidate.of({"solve.sh": text}), None, 1)
                for text in scripts
            ]
        finally:
            await backend.close()

    return asyncio.run(work())


def test_a_folder_is_read_as_it_is_and_its_solution_is_not(folder: Path) -> None:
    task = load(folder)
    assert task.goal.startswith("Write numbers") and "secret" not in str(task.seeds)
    assert (
        not any("solution" in name for name in task.evaluator.files)
        and "tests/test.sh" in task.evaluator.files
    )
    assert task.limits.seconds == 5.0 and any(
        "self-reported" in n or "verifier" in n for n in task.notes
    )
    (folder / "environment").mkdir()
    (folder / "environment" / "docker-compose.yaml").write_text("")
    with pytest.raises(TaskError, match="several containers"):
        load(folder)


@pytest.mark.slow
def test_the_reward_of_its_own_tests_is_the_score(podman: str, folder: Path) -> None:
    with pytest.raises(TaskError, match="podman build -t localhost/nothing"):
        scores(folder, "")
    (folder / "task.toml").write_text(TOML.format(image=podman))
    good, none, hung, forged = scores(
        folder,
        "echo 3 > /app.txt\necho 4 >> /app.txt\n: > /solution-ran\n[ -e /tests ] && echo 9 >> /app.txt\n",
        "",
        "sleep 600",
        "mkdir -p /logs/verifier\necho 99 > /logs/verifier/reward.txt\n"
        "(while :; do echo '{\"reward\": 99}' > /logs/verifier/reward.json; done) &\n",
    )
    assert good.score == 7.0 and good.trust == "self-reported" and "found it" in good.feedback, (
        good.feedback
    )
    assert none.score == 0.0 and hung.status is Status.INVALID and "time limit" in hung.feedback
    assert forged.score == 0.0
    assert wait_until(lambda: not orphans())
