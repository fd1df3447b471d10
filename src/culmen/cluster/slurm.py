"""Evaluations in Slurm jobs.

Each job is a worker with one jail that takes evaluations from a shared folder. Slurm would add
seconds to a job per evaluation, so a job serves many. Slurm decides on the place and time of jobs;
submitit writes and submits them. A job that ends (time limit, preemption, a node that dies) is
submitted again, and its worker's evaluations are repeated elsewhere. All waits are bounded: jobs
that Slurm will never start, workers that always die early, and a wait longer than `wait` end the
session.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from culmen.cluster import messages
from culmen.cluster.messages import NodeReply, NodeTerms
from culmen.cluster.remote import NODE_SLOTS, Lost, QuestionHandler, answer_without_backend
from culmen.cluster.slurm_worker import BEAT, LAPSE, Spool, serve_jobs
from culmen.core.errors import IsolationError, Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice
from culmen.evaluate.jail import probes

WAIT_SECONDS = 3600.0  # for a first worker: queues are long
_PAUSE = 0.05
_LAST_PART = 0.25  # largest share of a job's time in which nothing new is begun
_STILLBORN = 3  # workers in a row that end before they begin
# seconds between tries of jobs that Slurm refuses, or that end at once, while others work
_LONGEST_DELAY = 300.0
_SOONEST, _LATEST = 1.0, 15.0  # seconds between queries of the queue; longer if nothing changes
# for the worker of a running job to start: packages may be on a slow file system
_BEGIN_SECONDS = 300.0
_HOPELESS_LOOKS = 3  # seconds that a reason must persist: some are transient
_SELDOM = 30.0  # seconds between two messages about the queue while some jobs run
_COMMAND_SECONDS = 120.0  # for a command of Slurm's; its own time-outs are shorter
_END_SECONDS = 60.0  # for all jobs to end; Slurm kills after 30
_UNLISTED_SECONDS = 30.0  # seconds that Slurm may take to list a new job
# submitit has Slurm signal all processes of a job before its end; this signal is ignored
_NO_SIGNAL = "URG@1"

_KEPT = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "USER",
    "LOGNAME",
    "SHELL",
)
_PREFIXES = ("SLURM_CONF", "MODULE")
# SBATCH_...: win over the batch script
_HABITS = ("ACCOUNT", "PARTITION", "QOS", "CONSTRAINT", "RESERVATION", "WCKEY")
# Waits for the end of its input, so of the driver; then ends all jobs and removes the folder.
_GUARD = (
    "\n"
    "folder=$1 name=$2 cluster=$3 user=$(id -u)\n"
    'left() { case $cluster in slurm) squeue -h -u "$user" -n "$name" ;; *) ls '
    '"$folder/workers" ;; esac; }\n'
    "cat > /dev/null\n"
    'touch "$folder/stop"\n'
    '[ "$cluster" = slurm ] && scancel -u "$user" -n "$name"\n'
    'tries=0; while [ $tries -lt 150 ] && [ -n "$(left)" ]; do sleep 0.3; tries=$((tries + '
    "1)); done\n"
    'rm -rf "$folder"\n'
)

_ACTIVE = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
}
_LOSSES = {
    "NODE_FAIL": "node_died",
    "BOOT_FAIL": "node_died",
    "TIMEOUT": "time_limit",
    "PREEMPTED": "preempted",
    "CANCELLED": "job_cancelled",
    "OUT_OF_MEMORY": "worker_out_of_memory",
}
_HOPELESS = {
    "PartitionTimeLimit": "the partition does not allow jobs of this length",
    "PartitionNodeLimit": "the partition has no node with the resources of a job",
    "PartitionConfig": "the partition has no node with the resources of a job",
    "BadConstraints": "no node has the resources of a job",
    "InvalidAccount": "the account is not valid",
    "AccountNotAllowed": "the account may not use the partition",
    "InvalidQOS": "the quality of service is not valid",
    "QOSNotAllowed": "the quality of service may not be used there",
}


class JobState(NamedTuple):
    """A job's state and node as `squeue` prints them; `reason` is that of its wait or end."""

    state: str
    reason: str = ""
    node: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in _ACTIVE

    @property
    def loss_reason(self) -> str:
        """The reason for losing an evaluation whose job ended in this state."""
        return _LOSSES.get(self.state, "worker_died")


class SubmittedJob(Protocol):
    """The members of submitit's `Job` that a queue uses."""

    @property
    def job_id(self) -> str: ...

    def done(self) -> bool: ...

    def cancel(self, check: bool = True) -> None: ...

    def stderr(self) -> str | None: ...


class JobExecutor(Protocol):
    """The members of submitit's `Executor` that a queue uses."""

    def update_parameters(self, **options: object) -> None: ...

    def submit(self, function: Callable[..., object], /, *arguments: object) -> SubmittedJob: ...


class JobQueue:
    """Submits, lists and cancels the jobs of one session.

    By submitit, by `squeue`, which works without accounting, and by `scancel`. A guard process ends
    all jobs and removes the folder when this process ends for any reason.
    """

    def __init__(self, folder: Path, choice: BackendChoice, slots: int, life: float) -> None:
        self._folder, self._choice, self._slots, self._life = folder, choice, slots, life
        self._name = f"culmen-{folder.name[:8]}"
        self._real = choice.texts.get("cluster", "slurm") == "slurm"
        self._environment = command_environment(choice.texts)
        self._executor: JobExecutor | None = None
        self._guard: asyncio.subprocess.Process | None = None
        # submitit's job of a worker, and when it was submitted
        self._jobs: dict[str, tuple[SubmittedJob, float]] = {}

    async def open(self) -> None:
        """Set up submitit; raise `UserError` for options that it does not accept."""
        self._guard = await self._start_guard(asyncio.subprocess.PIPE)
        with _refusals_as_user_errors():
            options = submitit_options(self._choice, self._slots, self._name)
            self._executor = _make_executor(self._real, f"{self._folder}/logs", self._environment)
            self._executor.update_parameters(
                **(options if self._real else {"timeout_min": options["time"]})
            )

    async def _start_guard(self, stdin: int) -> asyncio.subprocess.Process:
        kind = "slurm" if self._real else "local"
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _GUARD,
            "culmen-guard",
            str(self._folder),
            self._name,
            kind,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )

    async def submit(self, worker: str) -> None:
        """Submit one more job.

        Raises `UserError` with Slurm's message, `Unavailable` if Slurm does not answer.
        """
        arguments = (str(self._folder), worker, self._slots, self._life)
        assert self._executor is not None
        try:
            with _refusals_as_user_errors():
                job = await asyncio.wait_for(
                    asyncio.to_thread(self._executor.submit, serve_jobs, *arguments),
                    _COMMAND_SECONDS,
                )
        except TimeoutError:
            raise Unavailable(
                "sbatch does not answer", where="Slurm", fix="culmen resume"
            ) from None
        self._jobs[worker] = (job, time.monotonic())

    async def states(self) -> dict[str, JobState] | None:
        """The states of all jobs by worker; None if Slurm does not answer."""
        if not self._real:
            return {
                w: JobState("COMPLETED" if job.done() else "RUNNING")
                for w, (job, _) in self._jobs.items()
            }
        printed = await asyncio.to_thread(
            self._run_slurm_command,
            "squeue",
            "-h",
            "-u",
            str(os.getuid()),
            "-n",
            self._name,
            "--states=all",
            "-o",
            "%i|%T|%r|%N",
        )
        if printed is None:
            return None
        rows = (line.split("|") for line in printed.splitlines())
        listed = {row[0]: JobState(row[1], row[2], row[3]) for row in rows if len(row) == 4}
        now, states = time.monotonic(), dict[str, JobState]()
        for worker, (job, since) in self._jobs.items():
            unlisted = JobState(
                "GONE" if now - since > _UNLISTED_SECONDS else "PENDING"
            )  # Slurm forgets ended jobs
            states[worker] = listed.get(str(job.job_id), unlisted)
        return states

    async def cancel(self, worker: str) -> None:
        """End this job, also if it is still pending."""
        job = self._jobs[worker][0]
        if self._real:
            await asyncio.to_thread(self._run_slurm_command, "scancel", str(job.job_id))
        elif not job.done():
            job.cancel(check=False)

    def forget(self, worker: str) -> str:
        """Note that this job ended; return the end of its standard error."""
        job, _ = self._jobs.pop(worker)
        with contextlib.suppress(OSError):
            return (job.stderr() or "")[-800:]
        return ""

    def _run_slurm_command(self, *words: str) -> str | None:
        """Output of one of Slurm's commands, None if it fails."""
        try:
            done = subprocess.run(
                words,
                check=False,
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    async def close(self) -> None:
        """End all jobs, wait for their end, and remove the folder."""
        guard, self._guard = self._guard, None
        if guard is None or guard.returncode is not None:
            guard = await self._start_guard(subprocess.DEVNULL)
        elif guard.stdin is not None:
            guard.stdin.close()
        try:
            await asyncio.wait_for(guard.wait(), _END_SECONDS)
            while not self._real and not all(job.done() for job, _ in self._jobs.values()):
                await asyncio.sleep(0.1)
        except TimeoutError:
            guard.kill()
            await guard.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def command_environment(texts: Mapping[str, str]) -> dict[str, str]:
    """Environment of Slurm's commands, and so of the jobs.

    A fixed list without keys, and the user's SBATCH_ variables that the backend's settings do not
    override.
    """
    habits = [f"SBATCH_{name}" for name in _HABITS if name.lower() not in texts]
    return {
        n: v for n, v in os.environ.items() if n in _KEPT or n in habits or n.startswith(_PREFIXES)
    }


def submitit_options(choice: BackendChoice, slots: int, name: str) -> JsonObject:
    """submitit's options for one job with this number of slots."""
    needs, cores = choice.needs, max(1, math.ceil(choice.needs.cpu * slots))
    options: JsonObject = {"job_name": name, "time": choice.minutes, "cpus_per_task": cores}
    if needs.gpu:
        options["gpus_per_node"] = math.ceil(needs.gpu * slots)
    if needs.memory:
        options["mem"] = f"{math.ceil(needs.memory * slots / 2**20)}M"
    if needs.custom:
        options["gres"] = ",".join(
            f"{kind}:{math.ceil(n * slots)}" for kind, n in needs.custom.items()
        )
    options |= {
        key: value for key, value in choice.texts.items() if key not in ("cluster", "folder")
    }
    options["srun_args"] = [f"--cpus-per-task={cores}"]  # since 22.05 a step does not inherit it
    return options | {"additional_parameters": {"no_requeue": True, "signal": _NO_SIGNAL}}


def _make_executor(real: bool, folder: str, visible: Mapping[str, str]) -> JobExecutor:
    import submitit  # pyright: ignore[reportMissingImports]

    class CleanSlurmExecutor(submitit.SlurmExecutor):
        """Submits with these variables alone, since a job inherits the environment of `sbatch`.

        It runs in a session of its own, so that Ctrl-C does not interrupt it.
        """

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            pairs = [f"{name}={value}" for name, value in visible.items()]
            return [
                "setsid",
                "--wait",
                "env",
                "-i",
                *pairs,
                *super()._make_submission_command(submission_file_path),
            ]

    return CleanSlurmExecutor(folder) if real else submitit.LocalExecutor(folder)


@contextlib.contextmanager
def _refusals_as_user_errors() -> Iterator[None]:
    """Convert errors of submitit and `sbatch` to a `UserError`."""
    try:
        yield
    except TimeoutError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        lines = [
            line.removeprefix("sbatch: ").removeprefix("error: ").strip()
            for line in str(error).splitlines()
        ]
        refusals = [line.removeprefix("Batch job submission failed: ") for line in lines if line]
        what = "; ".join(dict.fromkeys(refusals)) or type(error).__name__
        fix = "request resources that the cluster has, with --backend-set; then culmen resume"
        raise UserError(f"Slurm refuses: {what}", where="--backend slurm", fix=fix) from None


class SlurmJobs:
    """Keeps `wanted` jobs in the queue, and tracks their workers.

    One callback gets lost evaluations and the reason, the other the state of the queue.
    """

    def __init__(
        self,
        spool: Spool,
        queue: JobQueue,
        wanted: int,
        wait: float,
        on_lost: Callable[[Iterable[str], str], None],
        on_message: Callable[[str], None],
    ) -> None:
        self._spool, self._queue, self._wanted, self._wait = spool, queue, max(1, wanted), wait
        self._on_lost, self._on_message = on_lost, on_message
        # the workers of a job: one, unless Slurm restarted it
        self._jobs: dict[str, list[str]] = {}
        self._states: dict[str, JobState] = {}
        self._running: dict[str, float] = {}  # since when jobs run that have no worker yet
        self._left: set[str] = set()
        self._count = self._stillborn = self._hopeless = 0
        self._alone = self._last_message_at = time.monotonic()
        self._not_before, self._delay, self._refused = 0.0, 1.0, ""
        self._last_message = ""
        self.pause = _SOONEST

    @property
    def unadmitted_workers(self) -> list[str]:
        """Workers that have started and are not admitted yet."""
        known = {worker for workers in self._jobs.values() for worker in workers}
        return [
            w
            for w in self._spool.list_names("workers")
            if w not in known and w.partition(".")[0] in self._jobs
        ]

    def admit(self, worker: str) -> None:
        """Admit a worker; an earlier worker of the same job is removed."""
        workers = self._jobs[worker.partition(".")[0]]
        for old in workers:
            self._on_lost(self._spool.expel_worker(old), "job_restarted")
        workers.append(worker)
        self._stillborn = 0
        self._spool.admit_worker(worker)

    def notice_departures(self) -> bool:
        """True if a worker has left since the last call: its job has ended, or soon will."""
        present = set(self._spool.list_names("workers"))
        away = {
            worker
            for workers in self._jobs.values()
            for worker in workers[-1:]
            if worker not in present
        }
        news, self._left = bool(away - self._left), away
        if news:
            self.pause = _SOONEST
        return news

    async def submit_all(self) -> None:
        """Submit all jobs; raise `UserError` with Slurm's message if it refuses the first."""
        await self._submit_job()
        await self._submit_missing_jobs()

    async def _submit_job(self) -> None:
        self._count += 1
        job = f"w{self._count}"
        self._jobs[job] = []  # before it is submitted: its worker may be quick
        try:
            await self._queue.submit(job)
        except BaseException:
            del self._jobs[job]
            raise

    async def _submit_missing_jobs(self) -> None:
        """Submit missing jobs; refused ones are submitted again later."""
        while len(self._jobs) < self._wanted and time.monotonic() >= self._not_before:
            try:
                await self._submit_job()
            except Unavailable:
                raise
            except UserError as error:
                if error.what != self._refused:
                    self._on_message(
                        f"Slurm has {len(self._jobs)} of {self._wanted} jobs. {error.what}."
                    )
                self._refused = error.what
                self._put_off()
            else:
                self._refused = ""

    def _put_off(self) -> None:
        self._delay = min(_LONGEST_DELAY, self._delay * 2)
        self._not_before = time.monotonic() + self._delay

    async def check_queue(self) -> None:
        """Read the queue and act on it.

        Raises `UserError` if jobs will never start, `Unavailable` if none started in time.
        """
        states = await self._queue.states()
        changed = states is not None and self._states != states
        self.pause = _SOONEST if changed else min(self.pause * 1.5, _LATEST)
        if states is not None:
            self._states = states
        for job in list(self._jobs):
            now = states.get(job) if states is not None else None
            if now is not None and now.is_over:
                self._end_job(job, now)
            elif self._is_silent(job, now):
                await self._queue.cancel(job)
                self._end_job(job, JobState("SILENT"))
        self._report_queue(states is None)
        self._raise_if_stuck()
        await self._submit_missing_jobs()

    def _is_silent(self, job: str, now: JobState | None) -> bool:
        """True if a job's worker lost its pulse, or the job runs without a worker for too long."""
        workers = self._jobs[job]
        if workers or now is None or now.state != "RUNNING":
            self._running.pop(job, None)
            return any(
                self._spool.seconds_silent(f"pulses/{worker}") > LAPSE for worker in workers[-1:]
            )
        return time.monotonic() - self._running.setdefault(job, time.monotonic()) > _BEGIN_SECONDS

    def _end_job(self, job: str, now: JobState) -> None:
        workers, stderr = self._jobs.pop(job), self._queue.forget(job)
        self._states.pop(job, None)
        self._running.pop(job, None)
        for worker in workers:
            self._on_lost(self._spool.expel_worker(worker), now.loss_reason)
        if workers:
            self._delay = 1.0
            return
        self._stillborn += 1
        if any(self._jobs.values()):
            self._put_off()  # one node is broken, others work
        elif self._stillborn >= _STILLBORN:
            raise self._stillborn_error(now, stderr)

    def _stillborn_error(self, now: JobState, stderr: str) -> Unavailable:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        output = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))] or lines
        last = output[-1:] or [f"the last one wrote nothing to {self._spool.root}"]
        state = f"{now.state}{f' on {now.node}' if now.node else ''}"
        fix = (
            "install the same culmen and Python on all nodes, and make sure that they can write to "
            "that folder (--backend-set folder=PATH)"
        )
        if now.state == "CANCELLED":
            last, fix = ["they were cancelled"], "culmen resume, when they may run"
        return Unavailable(
            f"jobs end before they begin: {state}: {last[0]}", where="Slurm", fix=fix
        )

    def _raise_if_stuck(self) -> None:
        if any(self._jobs.values()) or self._running:
            self._alone, self._hopeless = time.monotonic(), 0
            return
        why = hopeless_reason(self._states)
        self._hopeless = self._hopeless + 1 if why else 0
        if why:
            self.pause = _SOONEST
        if self._hopeless >= _HOPELESS_LOOKS:
            fix = (
                "request resources that the cluster has: --backend-set "
                "minutes=,cpu=,memory=,custom.NAME=,partition=; see sinfo"
            )
            raise UserError(
                f"Slurm will never start these jobs: {why}", where="--backend slurm", fix=fix
            )
        if time.monotonic() - self._alone > self._wait:
            state = self._refused or (queue_summary(self._states) if self._states else "no jobs")
            fix = (
                "culmen resume, later; or request less, or wait longer: --backend-set wait=SECONDS"
            )
            raise Unavailable(f"no worker for {self._wait:g} s: {state}", where="Slurm", fix=fix)

    def _report_queue(self, silent: bool) -> None:
        """Report changes of the queue: always while no worker runs, else rarely."""
        working, now = any(self._jobs.values()), time.monotonic()
        waits = any(job.state in ("PENDING", "CONFIGURING") for job in self._states.values())
        text = "Slurm does not answer."
        if not silent:
            prefix = "Waiting for Slurm" if waits and not working else "Slurm"
            news = self._states and (waits or (working and self._last_message))
            text = f"{prefix}: {queue_summary(self._states)}." if news else ""
        if (
            not text
            or text == self._last_message
            or (working and waits and now - self._last_message_at < _SELDOM)
        ):
            return
        self._last_message, self._last_message_at = text, now
        self._on_message(text)


def hopeless_reason(jobs: Mapping[str, JobState]) -> str:
    """The reason that none of these jobs will ever start; "" if one might."""
    reasons = {job.reason for job in jobs.values() if job.state == "PENDING"}
    if not jobs or len(reasons) != 1 or any(job.state != "PENDING" for job in jobs.values()):
        return ""
    reason = reasons.pop()
    return f"{_HOPELESS[reason]} ({reason})" if reason in _HOPELESS else ""


def queue_summary(jobs: Mapping[str, JobState]) -> str:
    """The state of the jobs as a message: `3 of 8 jobs run, 5 pending (Priority)`."""
    waiting = [job for job in jobs.values() if job.state in ("PENDING", "CONFIGURING")]
    reasons = Counter(
        job.reason.partition(":")[0].strip() for job in waiting if job.reason not in ("", "None")
    )
    why = f" ({', '.join(reason for reason, _ in reasons.most_common(3))})" if reasons else ""
    number = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    if len(waiting) == len(jobs):
        return f"{number} pending{why}"
    runs = f"{len(jobs) - len(waiting)} of {number} run"
    return f"{runs}, {len(waiting)} pending{why}" if waiting else runs


class SlurmCarrier:
    """See `remote.Carrier`; `workers` is the number of evaluations at once, over all jobs."""

    def __init__(
        self, choice: BackendChoice, workers: int, on_message: Callable[[str], None] | None = None
    ) -> None:
        self.retries, self.terms = choice.retries, b""
        self.answer_question: QuestionHandler = answer_without_backend
        self._choice, self._on_message = choice, on_message or (lambda _: None)
        self._slots = min(NODE_SLOTS, choice.slots or math.ceil(workers / max(1, choice.jobs)))
        home = choice.texts.get("folder") or str(Path.home() / ".cache/culmen/slurm")
        self._spool = Spool(Path(home).expanduser().resolve() / secrets.token_hex(8))
        self._queue: JobQueue | None = None
        self._jobs: SlurmJobs | None = None
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._replying: set[asyncio.Task[None]] = set()
        self._first: asyncio.Future[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: UserError | None = None
        self._news = asyncio.Event()

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Submit the jobs and wait for the first worker.

        Raises `UserError` with Slurm's message if it refuses the jobs, `Unavailable` if none
        starts.
        """
        choice = self._choice
        if choice.texts.get("cluster", "slurm") == "slurm" and shutil.which("sbatch") is None:
            fix = "run culmen on a login node of the cluster, or use --backend ray"
            raise UserError("there is no sbatch on this machine", where="--backend slurm", fix=fix)
        self._lay_out(parcel, name)
        self._queue = JobQueue(self._spool.root, choice, self._slots, self._working_seconds())
        jobs = SlurmJobs(
            self._spool,
            self._queue,
            choice.jobs,
            choice.wait or WAIT_SECONDS,
            self._mark_lost,
            self._on_message,
        )
        self._jobs, self._first = jobs, asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._serve_workers(jobs, self._first)))
        await self._queue.open()
        await jobs.submit_all()
        self._tasks.append(asyncio.create_task(self._watch_queue(jobs)))
        return await self._wait_for(self._first)

    def _lay_out(self, parcel: bytes, name: str) -> None:
        try:
            self._spool.create_spool()
            self._spool.write_file(f"parcel-{name}", parcel)
            self._write_pulse_and_terms()
            self._spool.remove_abandoned()
        except OSError as error:
            fix = "name a folder that all nodes see: --backend-set folder=PATH"
            raise UserError(
                f"cannot write: {error}", where=str(self._spool.root.parent), fix=fix
            ) from None

    def _working_seconds(self) -> float:
        """Seconds of a job in which its worker takes new evaluations."""
        life, seconds = 60.0 * self._choice.minutes or math.inf, self._agreed_terms.seconds
        if life < seconds:
            self._on_message(
                f"Note: one evaluation may take {seconds:.0f} s, and a job ends after {life:.0f} s "
                f"(--backend-set minutes={self._choice.minutes}): its unfinished "
                "evaluations are repeated."
            )
        return life - min(seconds, _LAST_PART * life) if life < math.inf else life

    def _write_pulse_and_terms(self) -> None:
        self._spool.change_pulse("pulse")
        self._spool.write_file(
            "terms",
            messages.dump_struct(msgspec.structs.replace(self._agreed_terms, workers=self._slots)),
        )

    @property
    def _agreed_terms(self) -> NodeTerms:
        return messages.load_struct(self.terms, NodeTerms)

    def room(self) -> int:
        """See `remote.Carrier`."""
        return self._slots * self._choice.jobs

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._raise_trouble()
        self._spool.write_file(f"jobs/{number}", f"{seconds}\n".encode() + job)
        try:
            return await self._wait_for(future)
        except Lost:
            raise
        except BaseException:
            if not self._spool.remove_file(f"jobs/{number}") and self._spool.root.exists():
                self._spool.write_file(f"cancel/{number}", b"")
            raise
        finally:
            self._waiting.pop(number, None)

    async def _wait_for(self, future: asyncio.Future[bytes]) -> bytes:
        while not future.done():
            self._raise_trouble()
            await asyncio.wait({future}, timeout=BEAT)
        return future.result()

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    async def _serve_workers(self, jobs: SlurmJobs, first: asyncio.Future[bytes]) -> None:
        """Keep the pulse, collect answers, admit workers.

        Never blocks: to workers a missing pulse means that the driver has ended.
        """
        beaten, pause = 0.0, _PAUSE
        try:
            while self._trouble is None:
                if time.monotonic() - beaten > BEAT:
                    beaten = time.monotonic()
                    self._write_pulse_and_terms()
                self._answer_questions()
                news = self._collect_answers() + self._admit_workers(jobs, first)
                if jobs.notice_departures():
                    self._news.set()
                pause = _PAUSE if news or self._waiting else min(pause * 1.5, 1.0)
                await asyncio.sleep(pause)
        except UserError as error:
            self._trouble = error
        except OSError as error:
            fix = "check that it exists and has free space; then culmen resume"
            self._trouble = Unavailable(
                f"cannot write: {error}", where=str(self._spool.root), fix=fix
            )

    async def _watch_queue(self, jobs: SlurmJobs) -> None:
        """Check the queue at intervals, and at once after a worker left."""
        while self._trouble is None:
            try:
                await jobs.check_queue()
            except UserError as error:
                self._trouble = error
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), jobs.pause)
            self._news.clear()

    def _admit_workers(self, jobs: SlurmJobs, first: asyncio.Future[bytes]) -> int:
        """The first worker's greeting sets the run's terms; later workers must match them."""
        admitted = 0
        for worker in jobs.unadmitted_workers:
            greeting = self._spool.read_file(f"workers/{worker}")
            if greeting is None or (first.done() and not self._agreed_terms.level):
                continue
            if first.done():
                check_greeting(greeting, self._agreed_terms)
            jobs.admit(worker)
            admitted += 1
            if not first.done():
                first.set_result(greeting)
        return admitted

    def _answer_questions(self) -> None:
        """Answer the questions of evaluators."""
        for key in self._spool.list_names("asks") if self._waiting else ():
            question = self._spool.read_file(f"asks/{key}")
            if question is not None and self._spool.remove_file(f"asks/{key}"):
                task = asyncio.create_task(self._reply_to_question(key, question))
                self._replying.add(task)
                task.add_done_callback(self._replying.discard)

    async def _reply_to_question(self, key: str, question: bytes) -> None:
        reply = await self.answer_question(key, question)
        if self._spool.root.exists():
            self._spool.write_file(f"replies/{key}", reply)

    def _collect_answers(self) -> int:
        numbers = self._spool.list_names("done")
        for number in numbers:
            answer = self._spool.read_file(f"done/{number}")
            self._spool.remove_file(f"done/{number}")
            self._spool.remove_file(f"cancel/{number}")
            future = self._waiting.get(number)
            if answer is not None and future is not None and not future.done():
                future.set_result(answer)
        return len(numbers)

    def _mark_lost(self, numbers: Iterable[str], reason: str) -> None:
        """Mark these evaluations as lost, except those already answered."""
        self._collect_answers()
        for number in numbers:
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_exception(Lost(reason))

    async def close(self) -> None:
        """See `remote.Carrier`."""
        tasks = [*self._tasks, *self._replying]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []
        if self._spool.root.exists() and self._queue is not None:
            await self._queue.close()


def check_greeting(greeting: bytes, agreed: NodeTerms) -> None:
    """Raise a user error from a worker, or for a node that is less isolated than the run."""
    answer = messages.load_struct(greeting, NodeReply)
    if answer.error is not None:
        raise messages.error_from_reply(answer.error)
    if probes.level_rank(answer.level) > probes.level_rank(agreed.level):
        raise IsolationError(
            f"a node has isolation level {answer.level}, the run began with {agreed.level}",
            where="a job that started later",
            fix=probes.FIX,
        )
