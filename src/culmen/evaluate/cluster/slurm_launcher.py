"""Submits and cancels jobs through submitit, in a process of its own that knows no key: what it submits inherits its
environment. One JSON document a line in and out; when its standard input ends, whoever closed it, it cancels every job,
waits until they are gone and removes the run's folder."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from culmen.evaluate.cluster import slurm_queue as queue
from culmen.evaluate.cluster.slurm_queue import Job
from culmen.evaluate.cluster.slurm_worker import serve

_LEAVING = 45.0  # seconds for jobs to end once they are cancelled: Slurm kills after 30, if they do not end themselves
_NOTHING = "URG@1"  # submitit has Slurm signal all processes of a job before its end; this one, nobody hears
_DELAY = 30.0  # seconds that Slurm may take to forget a job, or to list one that was just submitted


class Launcher:
    """`setup` is what `SlurmCarrier` says: folder, name, cluster, slots, minutes, life, needs and texts."""

    def __init__(self, setup: dict[str, Any]) -> None:
        import submitit  # pyright: ignore[reportMissingImports]

        self._setup, self._jobs = setup, dict[str, Any]()
        self._since: dict[str, float] = {}
        self._real = setup["cluster"] == "slurm"
        self._executor: Any = submitit.AutoExecutor(folder=f"{setup['folder']}/logs", cluster=setup["cluster"])
        self._executor.update_parameters(**parameters(setup))

    def submit(self, worker: str) -> dict[str, Any]:
        """One more worker."""
        setup = self._setup
        self._jobs[worker] = job = self._executor.submit(serve, setup["folder"], worker, setup["slots"], setup["life"])
        self._since[worker] = time.monotonic()
        return {"id": str(job.job_id)}

    def look(self) -> dict[str, Any]:
        """How the jobs stand, by worker: state, reason, node, and the last words of those that are over. `jobs` is
        None where Slurm does not answer."""
        found = self._states()
        if found is None:
            return {"jobs": None}
        over = [worker for worker, job in found.items() if job.over]
        told = {worker: [*job, self._words(worker) if job.over else ""] for worker, job in found.items()}
        for worker in over:
            del self._jobs[worker]
        return {"jobs": told}

    def _states(self) -> dict[str, Job] | None:
        if not self._real:
            return {worker: Job("COMPLETED" if job.done() else "RUNNING") for worker, job in self._jobs.items()}
        listed = queue.listed(self._setup["name"])
        if listed is None:
            return None
        return {worker: listed.get(str(job.job_id)) or self._missing(worker) for worker, job in self._jobs.items()}

    def _missing(self, worker: str) -> Job:
        return Job(queue.GONE if time.monotonic() - self._since[worker] > _DELAY else "PENDING")

    def _words(self, worker: str) -> str:
        with contextlib.suppress(OSError):
            return (self._jobs[worker].stderr() or "")[-800:]
        return ""

    def cancel(self, *workers: str) -> dict[str, Any]:
        """End these jobs."""
        jobs = [self._jobs[worker] for worker in workers if worker in self._jobs]
        if self._real:
            queue.cancel(str(job.job_id) for job in jobs)
        for job in [] if self._real else jobs:
            if not job.done():
                job.cancel(check=False)
        return {}

    def end(self) -> None:
        """End all jobs, and remove the folder when they have ended."""
        if self._real:
            queue.cancel_all(self._setup["name"])
        else:
            self.cancel(*self._jobs)
        ends = time.monotonic() + _LEAVING
        while self._jobs and time.monotonic() < ends:
            if self.look()["jobs"] is None:
                break
            time.sleep(0.1 if not self._real else 0.3)
        shutil.rmtree(Path(self._setup["folder"]), ignore_errors=True)


def parameters(setup: dict[str, Any]) -> dict[str, Any]:
    """What submitit is told of one job."""
    needs, slots = setup["needs"], setup["slots"]
    cores = max(1, math.ceil(needs["cpu"] * slots))
    found: dict[str, Any] = {"name": setup["name"], "timeout_min": setup["minutes"], "cpus_per_task": cores}
    if needs["gpu"]:
        found["gpus_per_node"] = math.ceil(needs["gpu"] * slots)
    if needs["memory"]:
        found["mem_gb"] = math.ceil(needs["memory"] * slots / 2**20) / 1024  # both mean powers of two
    if setup["cluster"] == "slurm":
        found |= {f"slurm_{name}": value for name, value in setup["texts"].items()}
        found["slurm_srun_args"] = [f"--cpus-per-task={cores}"]  # since 22.05 a step does not inherit it
        found["slurm_additional_parameters"] = {"no_requeue": True, "signal": _NOTHING}
        if needs["custom"]:
            found["slurm_gres"] = ",".join(f"{name}:{math.ceil(n * slots)}" for name, n in needs["custom"].items())
    return found


def main() -> None:
    """Serve requests until standard input ends."""
    launcher: Launcher | None = None
    try:
        for line in sys.stdin:
            request, answer = json.loads(line), dict[str, Any]()
            try:
                if launcher is None:
                    launcher = Launcher(request)
                else:
                    answer = getattr(launcher, request["do"])(*request.get("with", ()))
            except Exception as error:  # noqa: BLE001 - a process boundary: whatever sbatch says goes to the driver
                answer = {"error": queue.refusal(error)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        if launcher is not None:
            launcher.end()


if __name__ == "__main__":
    main()
