"""Evaluations in Slurm jobs.

Each job is a worker with one jail that gets evaluations through a shared folder; Slurm would add
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
import re
import secrets
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from culmen.core.errors import IsolationError, Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import NodeReply, NodeTerms
from culmen.extensions.cluster.remote import (
    NODE_SLOTS,
    Lost,
    QuestionHandler,
    answer_without_backend,
)
from culmen.extensions.cluster.slurm_worker import BEAT, LAPSE, PREFIX, Spool, serve_jobs
from culmen.jail import probes

WAIT_SECONDS = 3600.0  # for a first worker: queues are long
_PAUSE, _WORKING_PAUSE, _RESTING_PAUSE = 0.02, 0.1, 1.0  # seconds between looks into the folder
_LAST_PART = 0.25  # largest share of a job's time in which nothing new is begun
_STILLBORN = 3  # workers in a row that end before they begin
_LONGEST_DELAY = 300.0  # seconds between tries of jobs that are refused while others work
_SOONEST, _LATEST = 1.0, 15.0  # seconds between queries of the queue; longer if nothing changes
_BEGIN_SECONDS = 300.0  # for a running job's worker to start: packages may be on slow file systems
_HOPELESS_LOOKS = 3  # queries in a row that must show a reason: some are transient
_SELDOM = 30.0  # seconds between two messages about the queue while some jobs run
_COMMAND_SECONDS = 120.0  # for a command of Slurm's; its own time-outs are shorter
_END_SECONDS = 60.0  # for all jobs to end; Slurm kills after 30
_UNLISTED_SECONDS = 30.0  # seconds that Slurm may take to list a new job

_KEPT = re.compile(
    "(PATH|HOME|LANG|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|USER|LOGNAME|SHELL)$"
    "|SLURM_CONF|MODULE"
)
_COMMAND_HEAD = re.compile("(sbatch: |error: |Batch job submission failed: )*")
_HABITS = ("ACCOUNT", "PARTITION", "QOS", "CONSTRAINT", "RESERVATION", "WCKEY")
# Waits for the end of its input, so of the driver; then ends all jobs and removes the folder.
_GUARD = """
folder=$1 name=$2 user=$(id -u)
left() { [ "$name" ] && squeue -h -u "$user" -n "$name" || ls "$folder/workers"; }
cat > /dev/null
touch "$folder/stop"
[ "$name" ] && scancel -u "$user" -n "$name"
tries=0; while [ $tries -lt 150 ] && [ -n "$(left)" ]; do sleep 0.3; tries=$((tries + 1)); done
rm -rf "$folder"
"""

_ENDED = re.compile(
    "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT"
    "|GONE"
)
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


@dataclass
class SlurmJob:
    """A job, its last state and since when it has it, and its worker if it is admitted.

    The worker gets new evaluations until the time `until`.
    """

    id: str
    since: float
    state: JobState
    worker: str = ""
    until: float = 0.0

    def note_state(self, listed: JobState | None) -> None:
        """Note the state in the list; an old job that Slurm does not list any more is gone."""
        if listed is None and time.monotonic() - self.since > _UNLISTED_SECONDS:
            listed = JobState("GONE")
        if listed is not None:
            self.since = self.since if listed.state == self.state.state else time.monotonic()
            self.state = listed


class JobQueue:
    """Submits, lists and cancels the jobs of one session: by submitit, `squeue` and `scancel`.

    A guard process ends all jobs and removes the folder when this process ends for any reason.
    """

    def __init__(self, folder: Path, choice: BackendChoice, slots: int) -> None:
        self._folder, self._name = folder, folder.name
        self._real = choice.texts.get("cluster", "slurm") == "slurm"
        self._environment = command_environment(choice.texts)
        self._options = submitit_options(choice, slots, self._name)
        self._executor: Any = None
        self._guard: asyncio.subprocess.Process | None = None
        self._submitted: dict[str, Any] = {}  # submitit's jobs by id

    async def open(self) -> None:
        """Set up submitit; raise `UserError` for options that it does not accept."""
        words = ("/bin/sh", "-c", _GUARD, "culmen-guard", str(self._folder))
        self._guard = await self._start_process(*words, self._name if self._real else "")
        with _refusals_as_user_errors():
            self._executor = _make_executor(self._real, f"{self._folder}/logs", self._environment)
            local = {"timeout_min": self._options["time"]}
            self._executor.update_parameters(**(self._options if self._real else local))

    async def submit(self) -> str:
        """Submit one more job and return its id.

        Raises `UserError` with Slurm's message, `Unavailable` if Slurm does not answer.
        """
        submission = asyncio.to_thread(self._executor.submit, serve_jobs, str(self._folder))
        try:
            with _refusals_as_user_errors():
                job = await asyncio.wait_for(submission, _COMMAND_SECONDS)
        except TimeoutError:
            what, fix = "sbatch does not answer", "culmen resume"
            raise Unavailable(what, where="Slurm", fix=fix) from None
        self._submitted[str(job.job_id)] = job
        return str(job.job_id)

    async def states(self) -> dict[str, JobState] | None:
        """The states of all jobs that Slurm lists, by id; None if it does not answer."""
        if not self._real:
            return {
                number: JobState("COMPLETED" if job.done() else "RUNNING")
                for number, job in self._submitted.items()
            }
        user = ("-h", "-u", str(os.getuid()), "-n", self._name)
        printed = await self._run_command("squeue", *user, "--states=all", "-o", "%i|%T|%r|%N")
        rows = (line.split("|") for line in (printed or "").splitlines())
        listed = {row[0]: JobState(*row[1:]) for row in rows if len(row) == 4}
        return None if printed is None else listed

    async def cancel(self, number: str) -> None:
        """End this job, also if it is still pending."""
        if self._real:
            await self._run_command("scancel", number)
        elif not self._submitted[number].done():
            self._submitted[number].cancel(check=False)

    def last_words(self, number: str) -> str:
        """The last line of this job's standard error, or of Slurm's there."""
        with contextlib.suppress(OSError):
            text = (self._submitted[number].stderr() or "")[-800:]
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            ours = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))]
            return (ours or lines or [""])[-1]
        return ""

    async def _start_process(self, *words: str) -> asyncio.subprocess.Process:
        """A process that Ctrl-C does not reach."""
        streams: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}
        return await asyncio.create_subprocess_exec(
            *words, **streams, env=self._environment, start_new_session=True
        )

    async def _run_command(self, *words: str) -> str | None:
        """Output of one of Slurm's commands, None if it fails."""
        try:
            command = await self._start_process(*words)
            printed, _ = await asyncio.wait_for(command.communicate(), _COMMAND_SECONDS)
        except (OSError, TimeoutError):
            return None
        return printed.decode() if command.returncode == 0 else None

    async def close(self) -> None:
        """End all jobs, wait for their end, and remove the folder."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            try:
                await asyncio.wait_for(self._guard.wait(), _END_SECONDS)
                while not self._real and not all(job.done() for job in self._submitted.values()):
                    await asyncio.sleep(0.1)
            except TimeoutError:
                self._guard.kill()
                await self._guard.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def command_environment(texts: Mapping[str, str]) -> dict[str, str]:
    """Environment of Slurm's commands, and so of the jobs.

    A fixed list without keys, and the user's SBATCH_ variables, which win over the batch script,
    except those that the backend's settings override.
    """
    habits = [f"SBATCH_{name}" for name in _HABITS if name.lower() not in texts]
    return {n: v for n, v in os.environ.items() if _KEPT.match(n) or n in habits}


def submitit_options(choice: BackendChoice, slots: int, name: str) -> JsonObject:
    """submitit's options for one job with this number of slots."""
    needs, cores = choice.needs, max(1, math.ceil(choice.needs.cpu * slots))
    options: JsonObject = {"job_name": name, "time": choice.minutes, "cpus_per_task": cores}
    if needs.gpu:
        options["gpus_per_node"] = math.ceil(needs.gpu * slots)
    if needs.memory:
        options["mem"] = f"{math.ceil(needs.memory * slots / 2**20)}M"
    if needs.custom:
        numbers = {kind: math.ceil(n * slots) for kind, n in needs.custom.items()}
        options["gres"] = ",".join(f"{kind}:{number}" for kind, number in numbers.items())
    options |= {key: v for key, v in choice.texts.items() if key not in ("cluster", "folder")}
    options["srun_args"] = [f"--cpus-per-task={cores}"]  # since 22.05 a step does not inherit it
    # submitit has Slurm signal all processes of a job before its end; this signal is ignored
    return options | {"additional_parameters": {"no_requeue": True, "signal": "URG@1"}}


def _make_executor(real: bool, folder: str, visible: Mapping[str, str]) -> Any:
    import submitit  # pyright: ignore[reportMissingImports]

    pairs = [f"{name}={value}" for name, value in visible.items()]

    class CleanSlurmExecutor(submitit.SlurmExecutor):
        """Submits with these variables alone, since a job inherits the environment of `sbatch`.

        It runs in a session of its own, so that Ctrl-C does not interrupt it.
        """

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            sbatch = super()._make_submission_command(submission_file_path)
            return ["setsid", "--wait", "env", "-i", *pairs, *sbatch]

    return CleanSlurmExecutor(folder) if real else submitit.LocalExecutor(folder)


@contextlib.contextmanager
def _refusals_as_user_errors() -> Iterator[None]:
    """Convert errors of submitit and `sbatch` to a `UserError`."""
    try:
        yield
    except TimeoutError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        lines = [_COMMAND_HEAD.sub("", line).strip() for line in str(error).splitlines()]
        what = "; ".join(dict.fromkeys(filter(None, lines))) or type(error).__name__
        fix = (
            "request resources that the cluster has, with --set backend.NAME=N; then culmen resume"
        )
        raise UserError(f"Slurm refuses: {what}", where="--backend slurm", fix=fix) from None


class WorkerPool:
    """Keeps `choice.jobs` jobs in the queue, and admits and watches their workers.

    `on_lost` gets a worker that is gone and the reason, `on_message` the state of the queue.
    """

    def __init__(
        self,
        spool: Spool,
        queue: JobQueue,
        choice: BackendChoice,
        on_lost: Callable[[str, str], None],
        on_message: Callable[[str], None],
    ) -> None:
        self._spool, self._queue = spool, queue
        self._wanted, self._wait = max(1, choice.jobs), choice.wait or WAIT_SECONDS
        self._on_lost, self._on_message = on_lost, on_message
        self._jobs: dict[str, SlurmJob] = {}
        self._known: set[str] = set()  # all workers ever admitted
        self._present: set[str] = set()
        self._stillborn = self._hopeless = 0
        self._alone = self._last_message_at = time.monotonic()
        self._not_before, self._delay, self._refused = 0.0, 1.0, ""
        self._last_message = ""
        self.pause = _SOONEST  # seconds until the next query of the queue
        self.news = asyncio.Event()  # a worker has left: its job has ended, or soon will

    @property
    def _states(self) -> list[JobState]:
        return [job.state for job in self._jobs.values()]

    @property
    def _workers(self) -> list[str]:
        return [job.worker for job in self._jobs.values() if job.worker]

    @property
    def serving(self) -> list[SlurmJob]:
        """The jobs whose workers are admitted and had not left at the last `look`."""
        return [job for job in self._jobs.values() if job.worker in self._present]

    def look(self) -> list[str]:
        """Note the workers that have come and left; return those to be admitted."""
        names = self._spool.list_names("workers")
        if names is None:
            return []
        if self._present.intersection(self._workers).difference(names):
            self.pause = _SOONEST
            self.news.set()
        self._present = set(names)
        return [n for n in names if n not in self._known and n.partition(".")[0] in self._jobs]

    def admit(self, worker: str, until: float) -> None:
        """Admit a worker; an earlier worker of the same job is removed."""
        job = self._jobs[worker.partition(".")[0]]
        if job.worker:
            self._on_lost(job.worker, "job_restarted")
        job.worker, job.until, self._stillborn = worker, until, 0
        self._known.add(worker)
        (self._spool.root / "in" / worker).mkdir(mode=0o700)

    async def submit_missing_jobs(self) -> None:
        """Submit missing jobs; refused ones are submitted again later.

        Raises `UserError` with Slurm's message if it refuses the session's first job.
        """
        while len(self._jobs) < self._wanted and time.monotonic() >= self._not_before:
            try:
                number = await self._queue.submit()
            except UserError as error:
                if isinstance(error, Unavailable) or not self._not_before:
                    raise
                count = f"{len(self._jobs)} of {self._wanted}"
                if error.what != self._refused:
                    self._on_message(f"Slurm has {count} jobs. {error.what}.")
                self._refused = error.what
                self._put_off()
            else:
                self._jobs[number] = SlurmJob(number, time.monotonic(), JobState("PENDING"))
                self._refused, self._not_before = "", time.monotonic()

    def _put_off(self) -> None:
        self._delay = min(_LONGEST_DELAY, self._delay * 2)
        self._not_before = time.monotonic() + self._delay

    async def check_queue(self) -> None:
        """Read the queue and act on it.

        Raises `UserError` if jobs will never start, `Unavailable` if none started in time.
        """
        listed, before = await self._queue.states(), self._states
        for job in list(self._jobs.values()):
            if listed is not None:
                job.note_state(listed.get(job.id))
            if _ENDED.match(job.state.state):
                self._end_job(job)
            elif self._is_silent(job):
                await self._queue.cancel(job.id)
                job.state = JobState("SILENT")
                self._end_job(job)
        self.pause = _SOONEST if before != self._states else min(self.pause * 1.5, _LATEST)
        self._report_queue(listed is None)
        self._raise_if_stuck()
        await self.submit_missing_jobs()

    def _is_silent(self, job: SlurmJob) -> bool:
        """True if a job's worker lost its beat, or the job runs without a worker for too long."""
        if job.worker:
            return self._spool.seconds_silent(f"workers/{job.worker}") > LAPSE
        return job.state.state == "RUNNING" and time.monotonic() - job.since > _BEGIN_SECONDS

    def _end_job(self, job: SlurmJob) -> None:
        del self._jobs[job.id]
        if job.worker:
            self._on_lost(job.worker, _LOSSES.get(job.state.state, "worker_died"))
            self._delay = 1.0
            return
        self._stillborn += 1
        if self._workers:
            self._put_off()  # one node is broken, others work
        elif self._stillborn >= _STILLBORN:
            raise self._stillborn_error(job)

    def _stillborn_error(self, job: SlurmJob) -> Unavailable:
        state, _, node = job.state
        last = self._queue.last_words(job.id) or f"the last one wrote nothing to {self._spool.root}"
        fix = (
            "install the same culmen and Python on all nodes, and make sure that they can write to "
            "that folder (--set backend.folder=PATH)"
        )
        if state == "CANCELLED":
            last, fix = "they were cancelled", "culmen resume, when they may run"
        what = f"jobs end before they begin: {state}{f' on {node}' if node else ''}: {last}"
        return Unavailable(what, where="Slurm", fix=fix)

    def _raise_if_stuck(self) -> None:
        if self._workers or any(job.state == "RUNNING" for job in self._states):
            self._alone, self._hopeless = time.monotonic(), 0
            return
        why = hopeless_reason(self._states)
        self._hopeless = self._hopeless + 1 if why else 0
        if why:
            self.pause = _SOONEST
        if self._hopeless >= _HOPELESS_LOOKS:
            what = f"Slurm will never start these jobs: {why}"
            fix = (
                "request resources that the cluster has: --set backend.NAME=N "
                "minutes=,cpu=,memory=,custom.NAME=,partition=; see sinfo"
            )
            raise UserError(what, where="--backend slurm", fix=fix)
        if time.monotonic() - self._alone > self._wait:
            what = f"no worker for {self._wait:g} s: {self._refused or queue_summary(self._states)}"
            fix = (
                "culmen resume, later; or request less, or wait longer: --set backend.wait=SECONDS"
            )
            raise Unavailable(what, where="Slurm", fix=fix)

    def _report_queue(self, silent: bool) -> None:
        """Report changes of the queue: always while no worker runs, else rarely."""
        working, waits = bool(self._workers), any(map(_is_waiting, self._states))
        text = f"{'Slurm' if working else 'Waiting for Slurm'}: {queue_summary(self._states)}."
        if silent:
            text = "Slurm does not answer."
        elif not waits and not (working and self._last_message):
            return
        now = time.monotonic()
        seldom = working and waits and now - self._last_message_at < _SELDOM
        if text != self._last_message and not seldom:
            self._last_message, self._last_message_at = text, now
            self._on_message(text)


def _is_waiting(job: JobState) -> bool:
    return job.state in ("PENDING", "CONFIGURING")


def hopeless_reason(jobs: Iterable[JobState]) -> str:
    """The reason that none of these jobs will ever start; "" if one might."""
    reasons = {job.reason if job.state == "PENDING" else "" for job in jobs}
    reason = reasons.pop() if len(reasons) == 1 else ""
    return f"{_HOPELESS[reason]} ({reason})" if reason in _HOPELESS else ""


def queue_summary(jobs: list[JobState]) -> str:
    """The state of the jobs as a message: `3 of 8 jobs run, 5 pending (Priority)`."""
    waiting = [job.reason.partition(":")[0].strip() for job in jobs if _is_waiting(job)]
    reasons = Counter(reason for reason in waiting if reason not in ("", "None"))
    why = f" ({', '.join(reason for reason, _ in reasons.most_common(3))})" if reasons else ""
    number = "1 job" if len(jobs) == 1 else f"{len(jobs) or 'no'} jobs"
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
        self._spool = Spool(Path(home).expanduser().resolve() / f"{PREFIX}{secrets.token_hex(4)}")
        self._queue = JobQueue(self._spool.root, choice, self._slots)
        self._pool = WorkerPool(
            self._spool, self._queue, choice, self._lose_worker, self._on_message
        )
        self._life = math.inf
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._unassigned: dict[str, bytes] = {}
        self._holders: dict[str, str] = {}  # the workers of assigned evaluations
        self._tasks: set[asyncio.Task[None]] = set()
        self._trouble: UserError | None = None
        self._arrived = asyncio.Event()

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Submit the jobs and wait for the first worker.

        Raises `UserError` with Slurm's message if it refuses the jobs, `Unavailable` if none
        starts.
        """
        real = self._choice.texts.get("cluster", "slurm") == "slurm"
        if real and shutil.which("sbatch") is None:
            fix = "run culmen on a login node of the cluster, or use --backend ray"
            raise UserError("there is no sbatch on this machine", where="--backend slurm", fix=fix)
        self._life = self._working_seconds()
        self._lay_out(parcel, name)
        first = self._waiting["first"] = asyncio.get_running_loop().create_future()
        self._start_task(self._serve_workers(first))
        await self._queue.open()
        await self._pool.submit_missing_jobs()
        self._start_task(self._watch_queue())
        try:
            return await first
        finally:
            del self._waiting["first"]

    def _lay_out(self, parcel: bytes, name: str) -> None:
        try:
            self._spool.create_spool()
            self._spool.write_file(f"parcel-{name}", parcel)
            self._write_beat_and_terms()
            self._spool.remove_abandoned()
        except OSError as error:
            what, where = f"cannot write: {error}", str(self._spool.root.parent)
            fix = "name a folder that all nodes see: --set backend.folder=PATH"
            raise UserError(what, where=where, fix=fix) from None

    def _working_seconds(self) -> float:
        """Seconds of a job in which its worker gets new evaluations."""
        life, seconds = 60.0 * self._choice.minutes or math.inf, self._agreed_terms.seconds
        if life < seconds:
            self._on_message(
                f"Note: one evaluation may take {seconds:.0f} s, and a job ends after {life:.0f} s "
                f"(--set backend.minutes={self._choice.minutes}): its unfinished "
                "evaluations are repeated."
            )
        return life - min(seconds, _LAST_PART * life) if life < math.inf else life

    def _write_beat_and_terms(self) -> None:
        terms = msgspec.structs.replace(self._agreed_terms, workers=self._slots)
        self._spool.write_beat("driver", messages.dump_struct(terms))

    @property
    def _agreed_terms(self) -> NodeTerms:
        return messages.load_struct(self.terms, NodeTerms)

    def room(self) -> int:
        """See `remote.Carrier`."""
        return self._slots * self._choice.jobs

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        if self._trouble is not None:
            raise self._trouble
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._unassigned[number] = f"{seconds}\n".encode() + job
        self._arrived.set()
        try:
            return await future
        finally:
            del self._waiting[number]
            self._unassigned.pop(number, None)
            self._spool.remove_file(f"in/{self._holders.pop(number, '')}/{number}")

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._end_on_trouble(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_on_trouble(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this work; its errors end the session."""
        try:
            await work
        except UserError as error:
            self._trouble = self._trouble or error
        except OSError as error:
            what, where = f"cannot write: {error}", str(self._spool.root)
            fix = "check that it exists and has free space; then culmen resume"
            self._trouble = Unavailable(what, where=where, fix=fix)
        if self._trouble is not None:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(self._trouble)

    async def _serve_workers(self, first: asyncio.Future[bytes]) -> None:
        """Keep the beat, admit workers, assign evaluations, collect answers.

        Never blocks: to workers a missing beat means that the driver has ended.
        """
        beaten, pause = -math.inf, _PAUSE
        while self._trouble is None:
            if time.monotonic() - beaten > BEAT:
                beaten = time.monotonic()
                self._write_beat_and_terms()
            for worker in self._pool.look():
                self._admit_worker(worker, first)
            news = self._collect_answers()
            self._assign_evaluations()
            longest = _WORKING_PAUSE if self._waiting else _RESTING_PAUSE
            pause = _PAUSE if news or self._unassigned else min(pause * 1.5, longest)
            await _wait_for_event(self._arrived, pause)

    async def _watch_queue(self) -> None:
        """Check the queue at intervals, and at once after a worker left."""
        while self._trouble is None:
            await self._pool.check_queue()
            await _wait_for_event(self._pool.news, self._pool.pause)

    def _admit_worker(self, worker: str, first: asyncio.Future[bytes]) -> None:
        """The first worker's greeting sets the run's terms; later workers must match them."""
        beat = self._spool.read_beat(f"workers/{worker}")
        if beat is None or (first.done() and not self._agreed_terms.level):
            return
        age, greeting = beat
        if first.done():
            check_greeting(greeting, self._agreed_terms)
        self._pool.admit(worker, time.monotonic() + self._life - age)
        if not first.done():
            first.set_result(greeting)

    def _assign_evaluations(self) -> None:
        """Give evaluations to the workers with the fewest; dismiss those whose time is up."""
        loads, usable = Counter(self._holders.values()), list[str]()
        for job in self._pool.serving:
            if time.monotonic() < job.until:
                usable.append(job.worker)
            elif not loads[job.worker]:
                self._dismiss_worker(job.worker)
        while self._unassigned and usable:
            worker = min(usable, key=lambda each: loads[each])
            if loads[worker] >= self._slots:
                return
            number = next(iter(self._unassigned))
            self._spool.write_file(f"in/{worker}/{number}", self._unassigned[number])
            del self._unassigned[number]
            self._holders[number] = worker
            loads[worker] += 1

    def _collect_answers(self) -> bool:
        """Take answers, and questions of evaluators; True if there are any."""
        names = self._spool.list_names("out") or []
        for name in names:
            content = self._spool.read_file(f"out/{name}")
            if content is None:
                continue
            self._spool.remove_file(f"out/{name}")
            future = self._waiting.get(name)
            if messages.ASKED in name:
                self._start_task(self._reply_to_question(name, content))
            elif future is not None and not future.done():
                future.set_result(content)
        return bool(names)

    async def _reply_to_question(self, key: str, question: bytes) -> None:
        reply = await self.answer_question(key, question)
        holder = self._holders.get(key.rpartition(messages.ASKED)[0])
        if holder is not None:
            self._spool.write_file(f"in/{holder}/{key}", reply)

    def _lose_worker(self, worker: str, reason: str) -> None:
        """Mark this worker's evaluations as lost, except those already answered."""
        self._collect_answers()
        self._dismiss_worker(worker)
        for number, holder in self._holders.items():
            future = self._waiting[number]
            if holder == worker and not future.done():
                future.set_exception(Lost(reason))

    def _dismiss_worker(self, worker: str) -> None:
        shutil.rmtree(self._spool.root / "in" / worker, ignore_errors=True)
        self._spool.remove_file(f"workers/{worker}")

    async def close(self) -> None:
        """See `remote.Carrier`."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._spool.root.exists():
            await self._queue.close()


async def _wait_for_event(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    event.clear()


def check_greeting(greeting: bytes, agreed: NodeTerms) -> None:
    """Raise a user error from a worker, or for a node that is less isolated than the run."""
    answer = messages.load_struct(greeting, NodeReply)
    if answer.error is not None:
        raise messages.error_from_reply(answer.error)
    if probes.level_rank(answer.level) > probes.level_rank(agreed.level):
        what = f"a node has isolation level {answer.level}, the run began with {agreed.level}"
        raise IsolationError(what, where="a job that started later", fix=probes.FIX)
