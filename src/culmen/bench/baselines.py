"""Level of a plain optimiser: a task's `baseline.py`, run twice and certified.

The better of two processes counts, by the task's verifier. `baseline.py` has `optimise(seed,
seconds)`, which returns the result of a candidate; `seconds` are of processor time. As a module it
is one of the two processes: python -m culmen.bench.baselines FOLDER SEED SECONDS
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.task import Task

_GRACE = 600.0  # seconds beyond twice the processor time: certifying, and a machine that is busy


class Level(msgspec.Struct, frozen=True):
    """The better certified value of two processes, in the task's direction.

    Each has `seconds` of processor time.
    """

    task: str
    direction: str
    value: float
    seconds: float
    digest: str


def baseline_level(task: Task, seconds: float, out: Path) -> Level | None:
    """The task's level, read from `out` if recorded; None without a baseline or a verifier."""
    verifier = Path(task.evaluator.verifier)
    if not task.evaluator.verifier or not (verifier.parent / "baseline.py").is_file():
        return None
    record = out / task.name / "baseline.json"
    if record.is_file():
        level = msgspec.json.decode(record.read_bytes(), type=Level)
        if (level.seconds, level.digest) == (seconds, task.digest):
            return level
    values = _run_processes(verifier.parent, verifier.stem, seconds)
    best = max(values) if task.objective.direction == "max" else min(values)
    level = Level(task.name, task.objective.direction, best, seconds, task.digest)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_bytes(msgspec.json.format(msgspec.json.encode(level)) + b"\n")
    return level


def _run_processes(folder: Path, verifier: str, seconds: float) -> list[float]:
    """Both processes side by side, one core each."""
    single = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
    command = [sys.executable, "-m", "culmen.bench.baselines", str(folder), verifier]
    running = [
        subprocess.Popen(
            [*command, str(seed), str(seconds)],
            env=os.environ | single,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in (0, 1)
    ]
    try:
        return [_process_value(process, folder, 2 * seconds + _GRACE) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _process_value(process: subprocess.Popen[str], folder: Path, limit: float) -> float:
    try:
        answer, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the baseline took more than {limit:g} s", where=str(folder / "baseline.py")
        ) from None
    if process.returncode:
        last_line = (errors.strip().splitlines() or ["no output"])[-1]
        raise UserError(
            f"the baseline failed: {last_line}",
            where=str(folder / "baseline.py"),
            fix="culmen bench --plain 0",
        )
    return float(json.loads(answer)["value"])


def main(folder: str, verifier: str, seed: str, seconds: str) -> None:
    """Optimise, certify, and print the value."""
    sys.path.insert(0, folder)
    baseline: Any = importlib.import_module("baseline")
    output = baseline.optimise(int(seed), float(seconds))
    certified: Any = importlib.import_module(verifier).certify(output)
    sys.stdout.write(json.dumps({"value": certified["score"]}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
