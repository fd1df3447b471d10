"""The evaluator of one node: the task unpacked, one fork-server and its judges, as `LocalBackend` has them.

Carriers bring it a parcel and then jobs, all as bytes. It opens no journal and is sent no key.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, UserError
from culmen.core.evaluation import Case, Status
from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster.parcel import Answer, Job, Terms
from culmen.evaluate.jail import levels
from culmen.evaluate.local import LocalBackend

_PREFIX = "culmen-node-"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_OURS = re.compile(r"RAY_|SLURM_|SUBMITIT_")


class NodeEvaluator:
    """One task on one node. `begin` comes first; every answer is bytes (`parcel.Answer`)."""

    def __init__(self) -> None:
        self._backend: LocalBackend | None = None
        self._cases: dict[str, Case] = {}
        self._epoch = 0
        self._running: dict[str, asyncio.Task[Answer]] = {}
        self._folder, self._lock = _own_folder()
        self._renewing = asyncio.Lock()
        self._rested = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """How long there has been nothing to do, since it began."""
        return 0.0 if self._running or self._backend is None else time.monotonic() - self._rested

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        """Unpack, check, and start the jail; the level in force and how far scores can be trusted, or a mistake."""
        forget_secrets()
        agreed = parcels.load(terms, Terms)
        try:
            task = await asyncio.to_thread(parcels.unpack, parcel, name, self._folder)
            backend = LocalBackend(task, agreed.workers, agreed.require, scoring=agreed.scoring)
            level = await backend.start()
            self._rested = time.monotonic()
            self._backend, self._cases = backend, {case.id: case for case in task.cases}
            if agreed.level and levels.rank(level) > levels.rank(agreed.level):
                raise IsolationError(
                    f"this node has isolation level {level}, the run began with {agreed.level}",
                    where="a node that joined later",
                    fix=levels.FIX,
                )
            answer = Answer(level=level, scoring=backend.scoring)
        except UserError as error:
            answer = parcels.failure(error)
        return parcels.dump(answer)

    @property
    def shares_processes(self) -> bool:
        """Whether the evaluator runs beside the candidate, where what ends one process can change a score."""
        return self._backend is not None and self._backend.task.evaluator.form == "legacy"

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        """One evaluation within so many seconds; one that is cancelled, or too late, is lost."""
        task = self._running[number] = asyncio.create_task(self._evaluate(parcels.load(job, Job)))
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                return parcels.dump(Answer(lost="deadline"))
            return parcels.dump(Answer(lost="cancelled") if task.cancelled() else task.result())
        finally:
            task.cancel()
            self._running.pop(number, None)
            self._rested = time.monotonic()

    async def _evaluate(self, job: Job) -> Answer:
        backend = self._backend
        if backend is None:
            return Answer(lost="no_evaluator")
        await self._renew(backend, job.epoch)
        candidate, case = Candidate.of(job.parts), self._cases.get(job.case or "")
        if candidate.id != job.id or (job.case and case is None):
            return Answer(lost="damaged")
        try:
            seen = await backend.evaluate(candidate, case, job.seed, certify=job.certify)
        except UserError as error:
            return parcels.failure(error)
        if seen.status is Status.LOST:
            seen = msgspec.structs.replace(seen, feedback=f"{seen.feedback}\non node {os.uname().nodename}".strip())
        return Answer(observation=seen)

    async def _renew(self, backend: LocalBackend, epoch: int) -> None:
        async with self._renewing:
            if epoch > self._epoch:
                await backend.renew()
                self._epoch = epoch

    def cancel(self, number: str) -> None:
        """End an evaluation; its processes end at once."""
        if number in self._running:
            self._running[number].cancel()

    async def close(self) -> None:
        """End every process and remove every file."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._backend is not None:
            await self._backend.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def forget_secrets() -> None:
    """Drop what looks like a key from this process's environment: nothing here asks for one."""
    for name in [n for n in os.environ if _SECRET.search(n) and not _OURS.match(n)]:
        del os.environ[name]


def _own_folder() -> tuple[Path, int]:
    """A new private folder, held by a lock; folders whose owner is dead are removed."""
    place = Path(tempfile.gettempdir())
    for old in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(old / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(lock)
    draft = Path(tempfile.mkdtemp(prefix="culmen-draft-"))
    draft.chmod(0o711)
    lock = os.open(draft / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = draft.with_name(_PREFIX + secrets.token_hex(8))  # under this name others look at it
    draft.rename(folder)
    return folder, lock
