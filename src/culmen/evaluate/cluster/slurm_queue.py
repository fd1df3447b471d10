"""What Slurm says about jobs, asked with its own commands: `squeue` works without accounting, which many clusters lack.

Words are Slurm's: states and reasons as `squeue` prints them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

ACTIVE = {
    "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
    "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT",
}  # fmt: skip
GONE = "GONE"  # our word: Slurm has forgotten the job, so it has ended
_LOSSES = {
    "NODE_FAIL": "node_died",
    "BOOT_FAIL": "node_died",
    "TIMEOUT": "time_limit",
    "PREEMPTED": "preempted",
    "CANCELLED": "job_cancelled",
    "OUT_OF_MEMORY": "worker_out_of_memory",
}
_HOPELESS = {
    "PartitionTimeLimit": "the partition does not allow jobs of so many minutes",
    "PartitionNodeLimit": "the partition has no node with what a job asks for",
    "PartitionConfig": "the partition has no node with what a job asks for",
    "BadConstraints": "no node has what a job asks for",
    "InvalidAccount": "the account is not valid",
    "AccountNotAllowed": "the account may not use the partition",
    "InvalidQOS": "the quality of service is not valid",
    "QOSNotAllowed": "the quality of service may not be used there",
}
_SECONDS = 60.0  # for a command; Slurm's own time-outs are shorter


class Job(NamedTuple):
    """One of our jobs as Slurm has it. `reason` says why it waits, or why it ended."""

    state: str
    reason: str = ""
    node: str = ""

    @property
    def over(self) -> bool:
        return self.state not in ACTIVE

    @property
    def loss(self) -> str:
        """What an evaluation is lost to whose job came to this."""
        return _LOSSES.get(self.state, "worker_died")


def listed(name: str) -> dict[str, Job] | None:
    """This user's jobs with that name, by id, also those that ended a while ago; None if Slurm does not answer."""
    words = ["squeue", "-h", "-u", str(os.getuid()), "-n", name, "--states=all", "-o", "%i|%T|%r|%N"]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    rows = (line.split("|") for line in done.stdout.splitlines())
    return {row[0]: Job(row[1], row[2], row[3]) for row in rows if len(row) == 4}


def cancel(jobs: Iterable[str]) -> None:
    """End these jobs, those that still wait included."""
    numbers = list(jobs)
    if numbers:
        _scancel(*numbers)


def cancel_all(name: str) -> None:
    """End all of this user's jobs with that name."""
    _scancel("-u", str(os.getuid()), "-n", name)


def _scancel(*words: str) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # workers that nobody reaches stop by themselves
        subprocess.run(["scancel", *words], check=False, capture_output=True, timeout=_SECONDS)


def refusal(error: BaseException) -> str:
    """What `sbatch` said when it refused, without its prefixes."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in str(error).splitlines()]
    said = [line.removeprefix("Batch job submission failed: ") for line in lines if line]
    return "; ".join(dict.fromkeys(said)) or type(error).__name__


def hopeless(jobs: Mapping[str, Job]) -> str:
    """Why none of these jobs will ever start, however long one waits; "" if one might."""
    reasons = {job.reason for job in jobs.values() if job.state == "PENDING"}
    if not jobs or len(reasons) != 1 or any(job.state != "PENDING" for job in jobs.values()):
        return ""
    reason = reasons.pop()
    return f"{_HOPELESS[reason]} ({reason})" if reason in _HOPELESS else ""


def summary(jobs: Mapping[str, Job]) -> str:
    """How the jobs stand, for a person: `3 of 8 jobs run, 5 pending (Priority)`."""
    waiting = [job for job in jobs.values() if job.state in ("PENDING", "CONFIGURING")]
    reasons = Counter(_short(job.reason) for job in waiting if job.reason not in ("", "None"))
    why = f" ({', '.join(reason for reason, _ in reasons.most_common(3))})" if reasons else ""
    number = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    if len(waiting) == len(jobs):
        return f"{number} pending{why}"
    runs = f"{len(jobs) - len(waiting)} of {number} run"
    return f"{runs}, {len(waiting)} pending{why}" if waiting else runs


def _short(reason: str) -> str:
    """Without the lists of nodes that some reasons end in."""
    return reason.partition(":")[0].strip()
