"""The program of a Slurm job: evaluates jobs from a shared folder until it is stopped.

    parcel-SHA  terms  pulse  stop
    jobs/NUMBER  held/WORKER/NUMBER  done/NUMBER  cancel/NUMBER
    workers/WORKER  pulses/WORKER  gone/WORKER/NUMBER
    asks/KEY  replies/KEY: questions of an evaluator to models, and the replies

Jobs are files; a worker takes one by renaming it. Files appear whole: they are written elsewhere
and renamed. Clocks of different machines are never compared; a live side keeps changing its pulse,
and the other watches it. A worker can take jobs only while the driver keeps its folder in held/:
made at its admission, moved away when it counts as gone. So no unwatched worker ever takes a job.

Before its time is up a worker takes no new job and ends after its last answer. When Slurm ends it
earlier (cancelled, preempted, over its limit) all processes of the job get a SIGTERM, candidates
too: their results then count as lost, not as failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import time
from pathlib import Path

from culmen.cluster import messages
from culmen.cluster.messages import NodeReply
from culmen.cluster.node import NodeEvaluator
from culmen.core.evaluation import Status

LAPSE = 60.0  # seconds without a pulse after which the other side counts as dead
BEAT = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_SETTLE = 0.25  # seconds within which the signal that ended a candidate also reaches this process
_FOLDERS = (
    "jobs",
    "held",
    "done",
    "cancel",
    "workers",
    "pulses",
    "gone",
    "drafts",
    "logs",
    "asks",
    "replies",
)
_STALE = 7 * 86400.0  # seconds without a pulse after which a folder is abandoned


class Spool:
    """One run's folder, private to its user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pulses: dict[str, tuple[str, float]] = {}

    def create_spool(self) -> None:
        """Create the folder and its subfolders."""
        self.root.mkdir(parents=True, mode=0o700)
        for name in _FOLDERS:
            (self.root / name).mkdir(mode=0o700)

    def remove_abandoned(self) -> None:
        """Remove abandoned folders beside this one, by the file system's clock."""
        now = (self.root / "pulse").stat().st_mtime
        for pulse in self.root.parent.glob("*/pulse"):
            ours = (
                re.fullmatch(r"[0-9a-f]{16}", pulse.parent.name)
                and (pulse.parent / "held").is_dir()
            )
            with contextlib.suppress(OSError):
                if ours and now - pulse.stat().st_mtime > _STALE:
                    shutil.rmtree(pulse.parent, ignore_errors=True)

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file whole."""
        draft = (
            self.root / "drafts" / f"{os.uname().nodename}-{os.getpid()}-{path.replace('/', '-')}"
        )
        draft.write_bytes(content)
        draft.rename(self.root / path)

    def read_file(self, path: str) -> bytes | None:
        """A file's content, None if it does not exist."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        try:
            return sorted(os.listdir(self.root / folder))
        except OSError:
            return []

    def claim_job(self, number: str, worker: str) -> bytes | None:
        """Take a job; return its content, None if another worker was faster."""
        held = f"held/{worker}/{number}"
        with contextlib.suppress(OSError):
            (self.root / "jobs" / number).rename(self.root / held)
        return self.read_file(
            held
        )  # a rename repeated by the network file system may report failure though it succeeded

    def admit_worker(self, worker: str) -> None:
        """Admit a worker."""
        (self.root / "held" / worker).mkdir(mode=0o700)

    def is_admitted(self, worker: str) -> bool:
        """True if a worker is admitted."""
        return (self.root / "held" / worker).is_dir()

    def expel_worker(self, worker: str) -> list[str]:
        """Remove a worker; return the jobs that it held without an answer."""
        with contextlib.suppress(OSError):
            (self.root / "held" / worker).rename(self.root / "gone" / worker)
        self.remove_file(f"workers/{worker}")
        return self.list_names(f"gone/{worker}")

    def remove_file(self, path: str) -> bool:
        """Remove a file; return True if it existed."""
        try:
            (self.root / path).unlink()
        except OSError:
            return False
        return True

    def change_pulse(self, path: str) -> None:
        """Change a pulse."""
        self.write_file(path, f"{time.monotonic()}".encode())

    def seconds_silent(self, path: str) -> float:
        """Seconds since a pulse was last seen to change."""
        now, pulse = time.monotonic(), (self.read_file(path) or b"").decode()
        old, since = self._pulses.get(path, ("", now))
        if pulse != old or path not in self._pulses:
            self._pulses[path] = (pulse, now)
            return 0.0
        return now - since


def serve_jobs(folder: str, job: str, slots: int, life: float) -> None:
    """Evaluate up to `slots` at once, until the driver or Slurm ends the job.

    Returns when the driver has stopped or lost its pulse, or on Slurm's signal. `life` is the
    number of seconds in which new work is taken. A job that Slurm starts again is another worker.
    """
    asyncio.run(_Worker(Spool(Path(folder)), f"{job}.{secrets.token_hex(3)}", slots, life).serve())


class _Worker:
    def __init__(self, spool: Spool, name: str, slots: int, life: float) -> None:
        self._spool, self._name, self._slots = spool, name, slots
        self._node = NodeEvaluator()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._until = time.monotonic() + life
        self._admitted = self._ending = False

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.current_task()
        assert serving is not None
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate, serving)
        beating = asyncio.create_task(self._keep_pulse())
        try:
            await self._start_node()
            await self._take_jobs()
            await self._give_back()
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            self._spool.remove_file(f"workers/{self._name}")
            beating.cancel()
            await self._node.close()

    def _on_terminate(self, serving: asyncio.Task[None]) -> None:
        self._ending = True
        if not self._admitted:
            serving.cancel()

    async def _start_node(self) -> None:
        spool = self._spool
        named = [name for name in spool.list_names(".") if name.startswith("parcel-")]
        parcel, terms = spool.read_file(named[0]), spool.read_file("terms")
        assert parcel is not None and terms is not None
        greeting = await self._node.begin(parcel, named[0].removeprefix("parcel-"), terms)
        spool.write_file(f"workers/{self._name}", greeting)

    async def _keep_pulse(self) -> None:
        while True:
            self._spool.change_pulse(f"pulses/{self._name}")
            await asyncio.sleep(BEAT)

    async def _take_jobs(self) -> None:
        pause, looked = _FIRST_PAUSE, 0.0
        while not self._ending:
            last = time.monotonic() > self._until
            if last and not self._tasks:
                return
            if not self._admitted or time.monotonic() - looked > BEAT:
                looked = time.monotonic()
                if self._is_dismissed():
                    return
            for number in self._spool.list_names("cancel"):
                if number in self._tasks:
                    self._node.cancel(number)
            self._exchange_questions()
            busy = (self._admitted and not last and self._claim_jobs()) or bool(self._tasks)
            pause = _FIRST_PAUSE if busy else min(pause * 1.5, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    def _exchange_questions(self) -> None:
        """Pass on the questions of evaluators, and deliver the replies."""
        for key, question in self._node.questions_now():
            self._spool.write_file(f"asks/{key}", question)
        for key in self._spool.list_names("replies") if self._node.replies else ():
            reply = self._spool.read_file(f"replies/{key}") if key in self._node.replies else None
            if reply is not None:
                self._spool.remove_file(f"replies/{key}")
                self._node.deliver_reply(key, reply)

    def _is_dismissed(self) -> bool:
        """True if the driver has stopped, is dead, or has removed this worker."""
        admitted, spool = self._spool.is_admitted(self._name), self._spool
        if self._admitted and not admitted:
            return True
        self._admitted = admitted
        return spool.read_file("stop") is not None or spool.seconds_silent("pulse") > LAPSE

    def _claim_jobs(self) -> bool:
        """Take jobs for the free slots."""
        taken = False
        for number in self._spool.list_names("jobs"):
            if len(self._tasks) >= self._slots:
                break
            content = self._spool.claim_job(number, self._name)
            if content is not None:
                taken = True
                task = self._tasks[number] = asyncio.create_task(
                    self._evaluate_claimed(number, content)
                )
                task.add_done_callback(lambda _, n=number: self._tasks.pop(n, None))
        return taken

    async def _evaluate_claimed(self, number: str, content: bytes) -> None:
        seconds, _, job = content.partition(b"\n")
        answer = await self._node.evaluate(number, job, float(seconds))
        if self._is_doubtful(messages.load_struct(answer, NodeReply)):
            await asyncio.sleep(_SETTLE)
        if self._ending:
            answer = messages.dump_struct(NodeReply(lost="job_ended"))
        self._spool.write_file(f"done/{number}", answer)
        self._spool.remove_file(f"held/{self._name}/{number}")

    def _is_doubtful(self, answer: NodeReply) -> bool:
        """True if a signal to the whole job may have caused this result."""
        seen = answer.observation
        return seen is not None and (seen.status is not Status.OK or self._node.shares_processes)

    async def _give_back(self) -> None:
        """Return all jobs still held as lost, to be repeated elsewhere."""
        for number in list(self._tasks):
            self._node.cancel(number)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
