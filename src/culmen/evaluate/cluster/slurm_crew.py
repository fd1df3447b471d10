"""The jobs of a Slurm session and the workers that they become: submitted, admitted, watched, replaced.

A job that ends is submitted again; what its worker held is lost there, to be tried elsewhere. Nobody waits without end:
jobs that Slurm will never start, workers that always die early, and a queue longer than `wait` end the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from culmen.core.errors import IsolationError, Unavailable, UserError
from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster import slurm_queue as queue
from culmen.evaluate.cluster.parcel import Answer, Terms
from culmen.evaluate.cluster.slurm_asking import Asking
from culmen.evaluate.cluster.slurm_queue import Job
from culmen.evaluate.cluster.slurm_worker import LAPSE
from culmen.evaluate.cluster.spool import Spool
from culmen.evaluate.jail import levels

_STILLBORN = 3  # workers in a row that end before they begin
_LONGEST_DELAY = 300.0  # seconds between tries of jobs that Slurm refuses, or that end at once, while others work
_SOONEST, _LATEST = 1.0, 15.0  # seconds between two looks at the queue; longer where nothing changes
_BEGIN_SECONDS = 300.0  # for a job that runs to become a worker: packages may come from a slow file system
_HOPELESS_LOOKS = 3  # that a reason must stand: a queue in motion passes through some
_SELDOM = 30.0  # seconds between two messages about a queue from which some jobs have come


class Crew:
    """`wanted` jobs at once. `lose` is told which evaluations came to nothing, and why; `tell` how the queue stands."""

    def __init__(
        self, spool: Spool, asking: Asking, wanted: int, wait: float,
        lose: Callable[[Iterable[str], str], None], tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._spool, self._asking, self._wanted, self._wait = spool, asking, max(1, wanted), wait
        self._lose, self._tell = lose, tell
        self._jobs: dict[str, list[str]] = {}  # the workers that a job became: one, unless Slurm started it again
        self._states: dict[str, Job] = {}
        self._running: dict[str, float] = {}  # since when jobs run that are no workers yet
        self._left: set[str] = set()
        self._count = self._stillborn = self._hopeless = 0
        self._alone = self._told_at = time.monotonic()
        self._not_before, self._delay, self._refused = 0.0, 1.0, ""
        self._told = ""
        self.pause = _SOONEST

    @property
    def strangers(self) -> list[str]:
        """Workers that have begun and are not admitted yet."""
        known = {worker for workers in self._jobs.values() for worker in workers}
        return [w for w in self._spool.names("workers") if w not in known and w.partition(".")[0] in self._jobs]

    def admit(self, worker: str) -> None:
        """Let a worker take evaluations; one that its job was before is gone."""
        workers = self._jobs[worker.partition(".")[0]]
        for old in workers:
            self._lose(self._spool.expel(old), "job_restarted")
        workers.append(worker)
        self._stillborn = 0
        self._spool.admit(worker)

    def departed(self) -> bool:
        """Whether a worker has left since this was asked last: its job is over, or soon will be."""
        present = set(self._spool.names("workers"))
        away = {worker for workers in self._jobs.values() for worker in workers[-1:] if worker not in present}
        news, self._left = bool(away - self._left), away
        if news:
            self.pause = _SOONEST
        return news

    def demand(self, greeting: bytes, agreed: Terms) -> None:
        """Raise what a worker says that a person must put right, or that its node is less isolated than the run."""
        answer = parcels.load(greeting, Answer)
        if answer.error is not None:
            raise parcels.raised(answer.error)
        if levels.rank(answer.level) > levels.rank(agreed.level):
            raise IsolationError(
                f"a node has isolation level {answer.level}, the run began with {agreed.level}",
                where="a job that started later",
                fix=levels.FIX,
            )

    async def begin(self) -> None:
        """Submit all jobs. Raises `UserError` with Slurm's own words where it refuses the first."""
        await self._submit()
        await self._fill()

    async def _submit(self) -> None:
        self._count += 1
        job = f"w{self._count}"
        self._jobs[job] = []
        try:
            await self._asking.ask("submit", job)
        except BaseException:
            del self._jobs[job]
            raise

    async def _fill(self) -> None:
        """As many jobs as wanted. What Slurm refuses now it may take later."""
        while len(self._jobs) < self._wanted and time.monotonic() >= self._not_before:
            try:
                await self._submit()
            except Unavailable:
                raise
            except UserError as error:
                if error.what != self._refused:
                    self._tell(f"Slurm has {len(self._jobs)} of {self._wanted} jobs. {error.what}.")
                self._refused = error.what
                self._put_off()
            else:
                self._refused = ""

    def _put_off(self) -> None:
        self._delay = min(_LONGEST_DELAY, self._delay * 2)
        self._not_before = time.monotonic() + self._delay

    async def look(self) -> None:
        """How the jobs stand now. Raises `UserError` where they never will, `Unavailable` where none came in time."""
        said = (await self._asking.ask("look"))["jobs"]
        told = {job: (Job(*words[:3]), words[3]) for job, words in (said or {}).items()}
        changed = said is not None and self._states != (states := {job: now for job, (now, _) in told.items()})
        self.pause = _SOONEST if changed else min(self.pause * 1.5, _LATEST)
        if changed:
            self._states = states
        for job in list(self._jobs):
            now, words = told.get(job, (None, ""))
            if now is not None and now.over:
                self._ended(job, now, words)
            elif self._silent(job, now):
                await self._asking.ask("cancel", job)
                self._ended(job, Job("SILENT"), "")
        self._report(said is None)
        self._judge()
        await self._fill()

    def _silent(self, job: str, now: Job | None) -> bool:
        """Whether its worker has no pulse any more, or it runs and never becomes one."""
        workers = self._jobs[job]
        if workers or now is None or now.state != "RUNNING":
            self._running.pop(job, None)
            return any(self._spool.silent(f"pulses/{worker}") > LAPSE for worker in workers[-1:])
        return time.monotonic() - self._running.setdefault(job, time.monotonic()) > _BEGIN_SECONDS

    def _ended(self, job: str, now: Job, words: str) -> None:
        workers = self._jobs.pop(job)
        self._states.pop(job, None)
        self._running.pop(job, None)
        for worker in workers:
            self._lose(self._spool.expel(worker), now.loss)
        if workers:
            self._delay = 1.0
            return
        self._stillborn += 1
        if any(self._jobs.values()):
            self._put_off()  # a node is broken, others work
        elif self._stillborn >= _STILLBORN:
            raise self._unborn(now, words)

    def _unborn(self, now: Job, words: str) -> Unavailable:
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        said = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))] or lines
        last = said[-1:] or [f"the last one said nothing in {self._spool.root}"]
        state = f"{now.state}{f' on {now.node}' if now.node else ''}"
        fix = "see that nodes have the same culmen and Python, and write to that folder (--backend-set folder=PATH)"
        if now.state == "CANCELLED":
            last, fix = ["somebody cancelled them"], "culmen resume, when they may run"
        return Unavailable(f"jobs end before they begin: {state}: {last[0]}", where="Slurm", fix=fix)

    def _judge(self) -> None:
        if any(self._jobs.values()) or self._running:
            self._alone, self._hopeless = time.monotonic(), 0
            return
        why = queue.hopeless(self._states)
        self._hopeless = self._hopeless + 1 if why else 0
        if why:
            self.pause = _SOONEST
        if self._hopeless >= _HOPELESS_LOOKS:
            fix = "ask for what the cluster has: --backend-set minutes=,cpu=,memory=,custom.NAME=,partition=; see sinfo"
            raise UserError(f"Slurm will never start these jobs: {why}", where="--backend slurm", fix=fix)
        if time.monotonic() - self._alone > self._wait:
            stands = self._refused or (queue.summary(self._states) if self._states else "no jobs")
            fix = "culmen resume, later; or ask for less, or wait longer: --backend-set wait=SECONDS"
            raise Unavailable(f"no worker for {self._wait:g} s: {stands}", where="Slurm", fix=fix)

    def _report(self, silent: bool) -> None:
        """Say how the queue stands, when that is news: always while nobody works, else seldom."""
        working, now = any(self._jobs.values()), time.monotonic()
        waits = any(job.state in ("PENDING", "CONFIGURING") for job in self._states.values())
        text = "Slurm does not answer." if silent else self._stands(working, waits)
        if not text or text == self._told or (working and waits and now - self._told_at < _SELDOM):
            return
        self._told, self._told_at = text, now
        self._tell(text)

    def _stands(self, working: bool, waits: bool) -> str:
        if not self._states or (not waits and not self._told):
            return ""
        if waits:
            return f"{'Slurm' if working else 'Waiting for Slurm'}: {queue.summary(self._states)}."
        return f"Slurm: {queue.summary(self._states)}." if working else self._told
