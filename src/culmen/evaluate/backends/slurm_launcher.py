"""Submits and cancels jobs through submitit, in a process of its own that knows no key: what it submits inherits its
environment. One JSON document a line in and out; when its standard input ends, it cancels every job and leaves."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from culmen.evaluate.backends.slurm_worker import serve


class Launcher:
    """`setup` is what `SlurmCarrier` says: folder, cluster, slots, minutes, needs and texts."""

    def __init__(self, setup: dict[str, Any]) -> None:
        import submitit  # pyright: ignore[reportMissingImports]

        self._setup, self._jobs = setup, dict[str, Any]()
        self._executor: Any = submitit.AutoExecutor(folder=f"{setup['folder']}/logs", cluster=setup["cluster"])
        self._executor.update_parameters(**parameters(setup))

    def submit(self, worker: str) -> dict[str, Any]:
        """One more worker."""
        job = self._jobs[worker] = self._executor.submit(serve, self._setup["folder"], worker, self._setup["slots"])
        return {"id": str(job.job_id)}

    def states(self) -> dict[str, Any]:
        """How the jobs stand, by worker; the last words of those that are over."""
        over = {worker: job for worker, job in self._jobs.items() if job.done()}
        words = {worker: (job.stderr() or "")[-800:] for worker, job in over.items()}
        return {"over": words, "states": {worker: job.state for worker, job in self._jobs.items()}}

    def cancel(self) -> dict[str, Any]:
        """End all jobs."""
        for job in self._jobs.values():
            if not job.done():
                job.cancel(check=False)
        return {}


def parameters(setup: dict[str, Any]) -> dict[str, Any]:
    """What submitit is told of one job."""
    needs, slots = setup["needs"], setup["slots"]
    found: dict[str, Any] = {
        "name": "culmen",
        "timeout_min": setup["minutes"],
        "cpus_per_task": max(1, math.ceil(needs["cpu"] * slots)),
        "gpus_per_node": math.ceil(needs["gpu"] * slots),
    }
    if needs["memory"]:
        found["mem_gb"] = needs["memory"] * slots / 10**9
    if setup["cluster"] == "slurm":
        found |= {f"slurm_{name}": value for name, value in setup["texts"].items()}
        if needs["custom"]:
            found["slurm_gres"] = ",".join(f"{name}:{math.ceil(n * slots)}" for name, n in needs["custom"].items())
    return found


def main() -> None:
    """Serve requests until standard input ends."""
    launcher = Launcher(json.loads(sys.stdin.readline()))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(launcher, request["do"])(*request.get("with", ()))
            except Exception as error:  # noqa: BLE001 - a process boundary: whatever sbatch says goes to the driver
                answer = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        launcher.cancel()


if __name__ == "__main__":
    main()
