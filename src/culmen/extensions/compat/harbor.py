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

from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Scoring
from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.core.task import (
    LONGEST_SECONDS,
    Evaluator,
    Limits,
    Surface,
    Task,
    checked_seconds,
    limit_fault,
)
from culmen.jail.container_engine import Box, find_image
from culmen.jail.fork_server import JailFailed
from culmen.tasks import reading

SCHEME = "harbor:"
EVALUATOR = ""
READS_TASK_TOML = True
SCRIPT = "solve.sh"
WHY = "Harbor's verifier runs in the container that the candidate had before it"
_STUB = "#!/bin/bash\n# does what the instruction says\n"
_SECONDS = 600.0  # of a task without a time limit
_KEPT = 4000  # characters kept of the output of solution and tests


def can_read_folder(folder: Path) -> bool:
    """True if the folder has Harbor's files."""
    return (folder / "instruction.md").is_file() and (folder / "tests" / "test.sh").is_file()


def read_folder(folder: Path, goal: str = "") -> Task:
    """The task of such a folder; raise `TaskError` if it cannot be read."""
    file = folder / "task.toml"
    try:
        table: JsonObject = tomllib.loads(text_inside(folder, file.name))
    except (OSError, ValueError) as error:
        raise TaskError(
            f"not a task.toml of Harbor: {error}", where=str(file), fix="correct it"
        ) from None
    if "steps" in table or (folder / "environment" / "docker-compose.yaml").is_file():
        fix = "use a task of one step and one container"
        raise TaskError(
            "tasks of several steps or containers are not run", where=str(file), fix=fix
        )
    environment: JsonObject = _inner_table(table, "environment", file)
    solve, verify = (_time_limit(table, name, file) for name in ("agent", "verifier"))
    image = environment.get("docker_image") or f"localhost/harbor-{folder.name.lower()}"
    memory, cpus = environment.get("memory_mb", 2048), environment.get("cpus", 1)
    if fault := limit_fault("memory_mb", memory) or limit_fault("processes", cpus):
        where = f"{file} (environment)"
        raise TaskError(f"memory_mb or cpus {fault}", where=where, fix="write a positive number")
    words = (
        f"{SCHEME}{image}",
        str(folder),
        str(solve),
        str(verify),
        str(int(memory)),
        str(math.ceil(cpus)),
    )
    judged = min(solve + verify + 120, LONGEST_SECONDS)
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
        name=str(_inner_table(table, "task", file).get("name", folder.name)).rpartition("/")[2],
        goal=goal or text_inside(folder, "instruction.md").strip(),
        seeds=({SCRIPT: _STUB},),
        evaluator=evaluator,
        surface=Surface(language="shell"),
        limits=Limits(seconds=solve, memory_mb=int(memory), scorer_seconds=judged),
        notes=tuple(filter(None, (note, f"Harbor's format: {WHY}; {network}"))),
        root=str(folder),
    )
    return reading.with_digest(task)


def _inner_table(table: JsonObject, name: str, file: Path) -> JsonObject:
    """A table of a task.toml, empty if it is not there. Raises `TaskError` if it is none."""
    inner = table.get(name, {})
    if not isinstance(inner, dict):
        raise TaskError(f"[{name}] is no table", where=str(file), fix="correct it")
    return inner


def _time_limit(table: JsonObject, name: str, file: Path) -> float:
    seconds = _inner_table(table, name, file).get("timeout_sec", _SECONDS)
    return checked_seconds(seconds, f"{file} ({name}.timeout_sec)")


class HarborJudge:
    """Runs a candidate and the task's tests in one container.

    `score` has the signature of a Python scorer.
    """

    scoring: ClassVar[Scoring] = Scoring("self-reported", WHY)
    level: ClassVar[str] = "container"
    starts_containers: ClassVar[bool] = True

    def __init__(self, words: list[str]) -> None:
        name, self._folder = words[0].removeprefix(SCHEME), words[1]
        self._solve, self._verify, self._memory, self._cpus = (float(word) for word in words[2:])
        try:
            self._image = find_image(name)
        except JailFailed as error:
            built = f"{os.path.join(self._folder, 'environment')}"
            raise OSError(f"{error}; or build it: podman build -t {name} {built}") from None

    def score(self, parts: dict[str, str]) -> JsonObject:
        """The reward of a candidate, or None and the reason."""
        workdir, memory = self._image.workdir or "/", int(self._memory)
        box = Box(self._image, (), workdir, memory, 0, False, cpus=self._cpus, rights=["FSETID"])
        try:
            box.start()
            return self._run_and_test(box, parts)
        except UserError as error:
            raise SystemExit(error.what) from None  # the evaluator's fault, not the candidate's
        except subprocess.TimeoutExpired:
            return {"score": None, "feedback": "the task's time limit was exceeded"}
        finally:
            box.delete()

    def _run_and_test(self, box: Box, parts: dict[str, str]) -> JsonObject:
        folders = "mkdir -p /solution /logs/verifier /logs/agent"
        _run_script(box, f"{folders}; cat > /solution/{SCRIPT}", parts[SCRIPT])
        script = _shell_command(f"/solution/{SCRIPT}")
        solved = _run_script(box, f"exec {script}", seconds=self._solve)
        _run_script(box, "kill -9 -1")  # leftover processes; this shell and the first one stay
        _run_script(box, "rm -rf /tests /logs/verifier; mkdir -p /logs/verifier")
        box.copy_in(os.path.join(self._folder, "tests"), "/tests")
        script = _shell_command("/tests/test.sh")
        tested = _run_script(box, f"exec {script}", seconds=self._verify)
        shown = "cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt"
        reward = _run_script(box, shown)
        output = f"{solved[-_KEPT:]}\n{tested[-_KEPT:]}".strip()
        return {**_parse_reward(reward), "feedback": output}


def _run_script(box: Box, script: str, stdin: str = "", seconds: float = 60.0) -> str:
    """The output of a script in a container; raise TimeoutExpired after `seconds`."""
    line = box.command(["/bin/sh", "-c", f"{{ {script}\n}} 2>&1"], (), True)
    ran = subprocess.run(
        line,
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
    return ran.stdout


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
