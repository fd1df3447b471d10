"""A Harbor task folder: instruction.md, task.toml, environment/, tests/test.sh.

The candidate is a script. It runs in a fresh container of the task's image; then tests/ is copied
in and tests/test.sh writes the reward to /logs/verifier. By the format, both share that container,
so scores are self-reported. solution/ is not read. `compat.harbor_task` reads task.toml.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Scoring
from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.core.task import Evaluator, Limits, Surface, Task, limit_fault
from culmen.extensions.compat import harbor_task
from culmen.extensions.compat.harbor_task import HarborSettings
from culmen.extensions.containers.engine import Box, find_image, stand_ins
from culmen.jail.fork_server import JailFailed
from culmen.tasks import reading

SCHEME = "harbor:"
EVALUATOR = ""
READS_TASK_TOML = True
SCRIPT = "solve.sh"
WHY = "Harbor's verifier runs in the container that the candidate had before it"
_STUB = "#!/bin/bash\n# does what the instruction says\n"
_KEPT = 4000  # characters kept of the output of solution and tests


def can_read_folder(folder: Path) -> bool:
    """True if the folder has Harbor's files."""
    return (folder / "instruction.md").is_file() and (folder / "tests" / "test.sh").is_file()


def read_folder(folder: Path, goal: str = "") -> Task:
    """The task of such a folder; raise `TaskError` if it cannot be read."""
    file = folder / "task.toml"
    try:
        table: JsonObject = tomllib.loads(text_inside(folder, file.name))
        settings = harbor_task.read_settings(folder, table)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise TaskError(
            f"not a task.toml of Harbor: {error}", where=str(file), fix="correct it"
        ) from None
    _refuse_gaps(settings, file)
    evaluator = _container_evaluator(folder, settings)
    notes = [evaluator[1], f"Harbor's format: {WHY}", *_world_notes(settings)]
    if not harbor_task.names_reward_json(folder / "tests"):
        notes.append("reward.json beside reward.txt counts only if tests/ names it: not so here")
    solve, verify = settings.agent_limit, settings.verifier_seconds
    memory = {} if settings.memory_mb is None else {"memory_mb": settings.memory_mb}
    for name, value in {**memory, "processes": settings.cpus or 1}.items():
        if fault := limit_fault(name, value):
            fix = "write a positive number"
            raise TaskError(f"memory_mb or cpus {fault}", where=f"{file} (environment)", fix=fix)
    task = Task(
        name=settings.name,
        goal=goal or text_inside(folder, "instruction.md").strip(),
        seeds=({SCRIPT: _STUB},),
        evaluator=evaluator[0],
        surface=Surface(language="shell"),
        limits=Limits(seconds=solve, scorer_seconds=solve + verify + 120, **memory),
        notes=tuple(filter(None, notes)),
        root=str(folder),
    )
    return reading.with_digest(task)


def _refuse_gaps(settings: HarborSettings, file: Path) -> None:
    """Raise `TaskError` if the task asks for something that it cannot have."""
    gaps = list(settings.gaps)
    if harbor_task.LISTED in (settings.agent_network, settings.verifier_network):
        gaps.append("a network of listed hosts only")
    if settings.agent_network != settings.verifier_network:
        gaps.append("networks of agent and verifier that differ, in one container")
    if gaps:
        raise TaskError(
            f"the task needs {', '.join(gaps)}",
            where=str(file),
            fix="use a task of one step and one container that has what it needs",
        )


def _container_evaluator(folder: Path, settings: HarborSettings) -> tuple[Evaluator, str]:
    """The evaluator, and the note on its files."""
    file = folder / "task.toml"
    image = settings.docker_image or f"localhost/harbor-{folder.name.lower()}"
    setting = {
        "solve": settings.agent_limit,
        "verify": settings.verifier_seconds,
        "memory_mb": settings.memory_mb or 0,
        "cpus": settings.cpus or 0.0,
        "network": settings.agent_network == harbor_task.PUBLIC,
        "workdir": settings.workdir,
        "variables": settings.variables,
        "verifier_variables": settings.verifier_variables,
    }
    files, note = reading.evaluator_files(file, (folder / "solution").rglob("*"))
    evaluator = Evaluator(
        form="call",
        path=str(file),
        entry="",
        program=(f"{SCHEME}{image}", str(folder), json.dumps(setting)),
        packages=(),
        files=files,
        digest=reading.evaluator_digest(files),
        image=image,
    )
    return evaluator, note


def _world_notes(settings: HarborSettings) -> Iterator[str]:
    """One line for each thing in which the task's world is not what a reader may expect."""
    if settings.agent_network == harbor_task.PUBLIC:
        default = "" if settings.says_network else " (Harbor's default)"
        yield f'its container has a network{default}; network_mode = "no-network" closes it'
    else:
        yield "its container has no network: tests that download something give no reward"
    if settings.agent_seconds is None:
        yield f"the agent has no time limit: scripts end after {harbor_task.LONGEST_SECONDS:g} s"
    if settings.storage_mb is not None:
        yield "without effect in the task: environment.storage_mb"
    if settings.ignored:
        yield f"without effect in the task: {', '.join(settings.ignored)}"


class HarborJudge:
    """Runs a candidate and the task's tests in one container.

    `score` has the signature of a Python scorer.
    """

    scoring: ClassVar[Scoring] = Scoring("self-reported", WHY)
    level: ClassVar[str] = "container"
    starts_containers: ClassVar[bool] = True

    def __init__(self, words: list[str]) -> None:
        name, self._folder = words[0].removeprefix(SCHEME), words[1]
        self._settings: JsonObject = json.loads(words[2])
        try:
            self._image = find_image(name)
        except JailFailed as error:
            built = f"{os.path.join(self._folder, 'environment')}"
            raise OSError(f"{error}; or build it: podman build -t {name} {built}") from None

    def score(self, parts: dict[str, str]) -> JsonObject:
        """The reward of a candidate, or None and the reason."""
        own = self._settings
        workdir = own["workdir"] or self._image.workdir or "/"
        limits = (own["memory_mb"], 0, own["network"])
        box = Box(self._image, (), workdir, *limits, cpus=own["cpus"], rights=["FSETID"])
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
        own, tests = self._settings, os.path.join(self._folder, "tests")
        folders = "mkdir -p /solution /logs/verifier /logs/agent"
        answer = _run_script(
            box, f"{folders}; cat > /solution/{SCRIPT} && echo ready", parts[SCRIPT]
        )
        if not answer.endswith("ready\n"):
            raise UserError(f"nothing can be run in the container: {answer[-_KEPT:]}")
        script = _shell_command(f"/solution/{SCRIPT}")
        solved = _run_script(box, f"exec {script}", seconds=own["solve"], env=own["variables"])
        _run_script(box, "kill -9 -1")  # leftover processes; this shell and the first one stay
        _run_script(box, "rm -rf /tests /logs/verifier; mkdir -p /logs/verifier")
        box.copy_in(tests, "/tests")
        env = {**own["variables"], **own["verifier_variables"]}
        script = _shell_command("/tests/test.sh")
        tested = _run_script(box, f"exec {script}", seconds=own["verify"], env=env)
        output = f"{solved[-_KEPT:]}\n{tested[-_KEPT:]}".strip()
        named, number = (_read_file(box, f"/logs/verifier/reward.{end}") for end in ("json", "txt"))
        return _judge_rewards(named, number, Path(tests), output)


def _judge_rewards(
    named: bytes | None, number: bytes | None, tests: Path, output: str
) -> JsonObject:
    """Score, metrics and feedback of the reward files; without a reward, the reason."""
    try:
        if named is None and number is None:
            raise ValueError("the tests wrote no reward")
        rewards = harbor_task.parse_rewards(named, number, harbor_task.names_reward_json(tests))
    except ValueError as error:
        return {"score": None, "feedback": f"{error}\n{output}"}
    return {"score": harbor_task.score_of(rewards), "metrics": rewards, "feedback": output}


def _read_file(box: Box, path: str) -> bytes | None:
    """The bytes of a file in a container, None if there is none."""
    ran = _run_script(box, f"[ -e {path} ] && echo there && cat {path}")
    found, _, text = ran.partition("\n")
    return text.encode() if found == "there" else None


def _run_script(
    box: Box,
    script: str,
    stdin: str = "",
    seconds: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> str:
    """The output of a script in a container; raise TimeoutExpired after `seconds`."""
    variables = env or {}
    line = box.command(["/bin/sh", "-c", f"{{ {script}\n}} 2>&1"], variables, True)
    ran = subprocess.run(
        line,
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        env={**os.environ, **stand_ins(variables)},
    )
    return ran.stdout or ran.stderr  # of podman itself


def _shell_command(script: str) -> str:
    return f"$(command -v bash || echo /bin/sh) {script}"
