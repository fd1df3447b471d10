"""Checks for evaluation backends, on real processes.

    asyncio.run(check_backend(MyBackend, folder))  # MyBackend(task, workers) makes one
    asyncio.run(check_cancel(MyBackend, folder))  # for backends with processes on this machine

`folder` is empty and lasts as long as the check. The backend is started once, gets candidates that
are right, wrong, slow, greedy and curious, and is closed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.ports import Backend
from culmen.core.task import Task
from culmen.evaluate.integrity.guard import EvaluatorChanged
from culmen.jail.probes import LEVELS
from culmen.tasks import load

KEY, SECRET = "CULMEN_KIT_API_KEY", "sk-kit-5f2a"
TOML = """
name = "kit"
goal = "Return twice the input."
cases = "cases.jsonl"
[seed]
files = ["program.py"]
[evaluator]
file = "evaluator.py"
verify = "verify.py"
packages = []
[limits]
seconds = 4
memory_mb = 256
"""
PROGRAM = "def run(x):\n    return 2 * x\n"
EVALUATOR = """
import os
from pathlib import Path


def score(output, case):
    print("judging")
    told = Path(__file__).with_name("offset.txt").read_text()
    leaks = sum("sk-kit" in value for value in os.environ.values())
    return {"score": -abs(float(output) - case.info) + float(told), "leaks": float(leaks)}
"""
VERIFY = """
from culmen.evaluate.certify import certificate


def certify(output, case):
    return certificate(-abs(output - case.info), "exact")
"""
CASES = '{"id": "one", "input": 1, "info": 2.0}\n{"id": "two", "input": 2.5, "info": 5.0}\n'
ENVIRONMENT = (
    "import os\n\ndef run(x):\n    return float(any('sk-kit' in v for v in os.environ.values())) + "
    "2 * x\n"
)
WRONG = {
    "def run(x):\n    raise ValueError(x)\n": {Status.ERROR},
    "def run(x):\n    return float('nan')\n": {Status.INVALID},
    "def run(x):\n    return 'a word'\n": {Status.INVALID},
    "def run(x):\n    while True: pass\n": {Status.TIMEOUT},
    "def run(x):\n    return bytearray(4 << 30)\n": {Status.REJECTED, Status.ERROR},
    "import os\n\ndef run(x):\n    os._exit(3)\n": {Status.ERROR},
    "def run(x:\n": {Status.ERROR},
}


def kit_task(folder: Path) -> Task:
    """The task that the check uses, written into `folder`."""
    files = {
        "task.toml": TOML,
        "program.py": PROGRAM,
        "evaluator.py": EVALUATOR,
        "verify.py": VERIFY,
        "cases.jsonl": CASES,
        "offset.txt": "0.0",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return load(folder)


def candidate(program: str) -> Candidate:
    """A candidate of that task."""
    return Candidate.of({"program.py": program})


async def check_backend(make: Callable[[Task, int], Backend], folder: Path) -> None:
    """Check a backend; AssertionError names the requirement that failed."""
    task = kit_task(folder)
    os.environ[KEY] = SECRET
    backend = make(task, 3)
    try:
        level = await backend.start()
        assert level in LEVELS, f"start() must return a level, not {level!r}"
        await _check_scores(backend, task)
        await _check_failures(backend, task)
        await _check_keys(backend, task)
        await _check_certificates(backend, task)
        await _check_seal(backend, task, folder)
    finally:
        os.environ.pop(KEY, None)
        await backend.close()
    await backend.close()  # closing twice is allowed


async def _check_scores(backend: Backend, task: Task) -> None:
    programs = [candidate(f"def run(x):\n    return 2 * x + {n}\n") for n in range(12)]
    requests = [
        (program, case, seed) for seed, program in enumerate(programs) for case in task.cases
    ]
    observations = await asyncio.gather(*(backend.evaluate(*request) for request in requests))
    for (program, case, seed), observation in zip(requests, observations, strict=True):
        assert observation.status is Status.OK and observation.score == -float(seed), (
            f"a correct program was not scored: {observation}"
        )
        assert (observation.candidate, observation.case, observation.seed) == (
            program.id,
            case.id,
            seed,
        ), "an observation of another evaluation"
        assert observation.evaluator == task.evaluator.digest, (
            "the observation does not name its evaluator"
        )
        assert observation.seconds >= 0.0


async def _check_failures(backend: Backend, task: Task) -> None:
    observations = await asyncio.gather(
        *(backend.evaluate(candidate(text), task.cases[0], 1) for text in WRONG)
    )
    for (text, statuses), observation in zip(WRONG.items(), observations, strict=True):
        assert observation.status in statuses and observation.score is None, (
            f"{text!r} came to {observation}"
        )


async def _check_keys(backend: Backend, task: Task) -> None:
    observation = await backend.evaluate(candidate(ENVIRONMENT), task.cases[0], 1)
    assert observation.score == 0.0, (
        f"a key of the driver is in the candidate's environment: {observation}"
    )
    assert observation.metrics.get("leaks") == 0.0, (
        "a key of the driver is in the evaluator's environment"
    )


async def _check_certificates(backend: Backend, task: Task) -> None:
    observation: Observation = await backend.evaluate(
        candidate(PROGRAM), task.cases[1], 1, certify=True
    )
    assert observation.strict is True and observation.certified == 0.0, (
        f"the verifier was not asked: {observation}"
    )
    await backend.renew()
    assert (await backend.evaluate(candidate(PROGRAM), task.cases[0], 2)).ok, (
        "no score after renew()"
    )


async def _check_seal(backend: Backend, task: Task, folder: Path) -> None:
    (folder / "evaluator.py").write_text(EVALUATOR.replace("-abs", "abs"))
    case: Case = task.cases[0]
    try:
        observation = await backend.evaluate(candidate(PROGRAM), case, 3)
    except EvaluatorChanged:
        return
    raise AssertionError(f"the evaluator was changed, and the backend went on: {observation}")


SLEEPER = """
import ctypes
import time


def run(x):
    ctypes.CDLL(None).prctl(15, b"{name}")  # what this process is called in /proc
    time.sleep(600)
    return x
"""


def processes_called(name: str) -> list[int]:
    """Processes of this machine with this name."""
    pids: list[int] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if comm == name:
            pids.append(int(pid))
    return pids


async def wait_for_condition(
    condition: Callable[[], bool], what: str, patience: float = 90.0
) -> None:
    """Wait until a condition holds."""
    for _ in range(int(patience / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never came true: {what}")


async def check_cancel(make: Callable[[Task, int], Backend], folder: Path) -> None:
    """Check that a cancelled evaluation ends, and that close() ends those that run."""
    task = kit_task(folder)
    task = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, seconds=600.0))
    names = [f"kit{secrets.token_hex(5)}" for _ in range(2)]
    backend = make(task, 2)
    await backend.start()
    try:
        running = [
            asyncio.create_task(
                backend.evaluate(candidate(SLEEPER.replace("{name}", name)), task.cases[0], 1)
            )
            for name in names
        ]
        await wait_for_condition(lambda: all(map(processes_called, names)), "both candidates run")
        running[0].cancel()
        await wait_for_condition(
            lambda: not processes_called(names[0]), "the cancelled evaluation has ended"
        )
        assert processes_called(names[1]), "another evaluation than the cancelled one was ended"
        running[1].cancel()
    finally:
        await backend.close()
    await wait_for_condition(lambda: not processes_called(names[1]), "nothing runs after close()")
    await asyncio.gather(*running, return_exceptions=True)
