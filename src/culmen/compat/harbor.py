"""A Harbor task folder: instruction.md, task.toml, environment/, tests/test.sh.

The candidate is a script. It runs in a fresh container of the task's image; then tests/ is copied
in and tests/test.sh writes the reward to /logs/verifier. By the format, both share that container,
so scores are self-reported. solution/ is not read. Layout and keys: harborframework.com/docs/tasks.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tomllib
from pathlib import Path
from typing import ClassVar

from culmen.core.errors import TaskError
from culmen.core.evaluation import Scoring
from culmen.core.json import JsonObject
from culmen.core.task import Evaluator, Limits, Surface, Task
from culmen.evaluate.taskfiles import reading

SCHEME = "harbor:"
EVALUATOR = ""
READS_TASK_TOML = True
SCRIPT = "solve.sh"
WHY = "Harbor's verifier runs in the container that the candidate had before it"
_STUB = "#!/bin/bash\n# does what the instruction says\n"
_SECONDS = 600.0  # if the task has no time limit
_KEPT = 4000  # characters kept of the output of solution and tests
_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")


def can_read_folder(folder: Path) -> bool:
    """True if the folder has Harbor's files."""
    return (folder / "instruction.md").is_file() and (folder / "tests" / "test.sh").is_file()


def read_folder(folder: Path, goal: str = "") -> Task:
    """The task of such a folder; raise `TaskError` if it cannot be read."""
    file = folder / "task.toml"
    try:
        table: JsonObject = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(
            f"not a task.toml of Harbor: {error}", where=str(file), fix="correct it"
        ) from None
    if "steps" in table or (folder / "environment" / "docker-compose.yaml").is_file():
        fix = "use a task of one step and one container"
        raise TaskError(
            "tasks of several steps or containers are not run", where=str(file), fix=fix
        )
    environment: JsonObject = table.get("environment", {})
    solve, verify = (
        float(table.get(name, {}).get("timeout_sec", _SECONDS)) for name in ("agent", "verifier")
    )
    image = environment.get("docker_image") or f"localhost/harbor-{folder.name.lower()}"
    memory = int(environment.get("memory_mb", 2048))
    words = (
        f"{SCHEME}{image}",
        str(folder),
        str(solve),
        str(verify),
        str(memory),
        str(math.ceil(environment.get("cpus", 1))),
    )
    files, note = reading.evaluator_files(file, (folder / "solution").rglob("*"))
    evaluator = Evaluator(
        form="call",
        path=str(file),
        entry="",
        program=words,
        packages=(),
        files=files,
        digest=reading.evaluator_digest(files),
        image=image,
    )
    network = "its container has no network: tests that download something give no reward"
    task = Task(
        name=str(table.get("task", {}).get("name", folder.name)).rpartition("/")[2],
        goal=goal or (folder / "instruction.md").read_text(encoding="utf-8").strip(),
        seeds=({SCRIPT: _STUB},),
        evaluator=evaluator,
        surface=Surface(language="shell"),
        limits=Limits(seconds=solve, memory_mb=memory, scorer_seconds=solve + verify + 120),
        notes=tuple(filter(None, (note, f"Harbor's format: {WHY}; {network}"))),
        root=str(folder),
    )
    return reading.with_digest(task)


class HarborJudge:
    """Runs a candidate and the task's tests in one container.

    `score` has the signature of a Python scorer.
    """

    scoring: ClassVar[Scoring] = Scoring("self-reported", WHY)
    level: ClassVar[str] = "container"
    starts_containers: ClassVar[bool] = True

    def __init__(self, words: list[str]) -> None:
        from culmen.evaluate.jail import container

        self._image, self._folder = words[0].removeprefix(SCHEME), words[1]
        self._solve, self._verify, self._memory, self._cpus = (float(word) for word in words[2:])
        try:
            self._program = container.find_container_program(self._image)
        except container.JailFailed as error:
            built = f"{os.path.join(self._folder, 'environment')}"
            raise OSError(f"{error}; or build it: podman build -t {self._image} {built}") from None

    def score(self, parts: dict[str, str]) -> JsonObject:
        """The reward of a candidate, or None and the reason."""
        from culmen.evaluate.jail import container

        container.remove_orphaned_containers()
        name = container.new_name()
        lock = container.claim_container(self._program, name)
        try:
            self._run_container_engine(
                "run",
                "--detach",
                *self._container_options(),
                "--name",
                name,
                self._image,
                "-c",
                "while :; do sleep 1000; done",
            )
            return self._run_and_test(name, parts)
        except subprocess.TimeoutExpired:
            return {"score": None, "feedback": "the task's time limit was exceeded"}
        finally:
            container.release_container(self._program, name, lock)

    def _container_options(self) -> list[str]:
        line = [
            "--rm",
            "--pull",
            "never",
            "--network",
            "none",
            "--entrypoint",
            "/bin/sh",
            "--cap-drop",
            "ALL",
        ]
        line += [word for right in _RIGHTS for word in ("--cap-add", right)]
        line += [
            "--security-opt",
            "no-new-privileges",
            "--pids-limit",
            "1024",
            "--ulimit",
            "nofile=4096:4096",
        ]
        line += [
            "--ulimit",
            "nproc=1024:1024",
            "--memory",
            f"{int(self._memory)}m",
            "--cpu-period",
            "100000",
        ]
        return [*line, "--cpu-quota", str(int(100_000 * self._cpus))]

    def _run_and_test(self, name: str, parts: dict[str, str]) -> JsonObject:
        self._exec_in_container(
            name,
            f"mkdir -p /solution /logs/verifier /logs/agent; cat > /solution/{SCRIPT}",
            parts[SCRIPT],
        )
        solved = self._exec_in_container(
            name, f"exec {_shell_command(f'/solution/{SCRIPT}')}", seconds=self._solve
        )
        self._exec_in_container(
            name, "kill -9 -1"
        )  # its leftover processes; this shell and the first process stay
        self._exec_in_container(name, "rm -rf /tests /logs/verifier; mkdir -p /logs/verifier")
        self._run_container_engine("cp", os.path.join(self._folder, "tests"), f"{name}:/tests")
        tested = self._exec_in_container(
            name, f"exec {_shell_command('/tests/test.sh')}", seconds=self._verify
        )
        reward = self._exec_in_container(
            name, "cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt"
        )
        output = f"{solved.stdout[-_KEPT:]}\n{tested.stdout[-_KEPT:]}".strip()
        return {**_parse_reward(reward.stdout), "feedback": output}

    def _exec_in_container(
        self, name: str, line: str, text: str = "", seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        words = (
            self._program,
            "exec",
            "--interactive",
            name,
            "/bin/sh",
            "-c",
            f"{{ {line}\n}} 2>&1",
        )
        return subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )

    def _run_container_engine(self, *words: str) -> None:
        ran = subprocess.run((self._program, *words), capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(
                f"{words[0]}: {ran.stderr.strip()}"
            )  # the evaluator's fault, not the candidate's


def _shell_command(script: str) -> str:
    return f"$(command -v bash || echo /bin/sh) {script}"


def _parse_reward(text: str) -> JsonObject:
    """The reward that the tests wrote.

    A number, or an object of numbers with `reward` or a single key.
    """
    try:
        reward = json.loads(text)
    except ValueError:
        return {"score": None}
    if isinstance(reward, dict):
        return {
            "score": reward.get(
                "reward", next(iter(reward.values())) if len(reward) == 1 else None
            ),
            "metrics": reward,
        }
    return {"score": reward}
