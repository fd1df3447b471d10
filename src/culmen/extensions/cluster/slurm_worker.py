"""The program of a Slurm job: evaluates what the driver puts into its mailbox.

    driver  parcel-SHA  stop     of the driver: its beat and the terms, the task, the end
    workers/WORKER               of the worker: its beat and its greeting
    in/WORKER/NUMBER out/NUMBER  an evaluation, cancelled when it is removed, and the answer
    out/KEY in/WORKER/KEY        a question of its evaluator to a model, and the reply

Files appear whole: they are written elsewhere and renamed. Clocks of different machines are never
compared; a live side keeps changing its beat, and the other watches it. The driver makes a mailbox
when it admits a worker and removes it when the worker counts as gone. It alone hands out
evaluations, so no unwatched worker ever has one.

When Slurm ends a job (cancelled, preempted, over its limit) all its processes get a SIGTERM,
candidates too: their results then count as lost, not as failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import time
from pathlib import Path

from culmen.core.evaluation import Status
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import NodeReply
from culmen.extensions.cluster.node import NodeEvaluator

PREFIX = "culmen-"  # of the folder of a session, and of its jobs
LAPSE = 60.0  # seconds without a beat after which the other side counts as dead
BEAT = 2.0  # seconds between two beats
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_STALE = 7 * 86400.0  # seconds without a beat after which a folder is abandoned


class Spool:
    """One session's folder, private to its user."""

    def __init__(self, root: Path) -> None:
        self.root, self._born = root, time.monotonic()
        self._beats: dict[str, tuple[bytes, float]] = {}

    def create_spool(self) -> None:
        """Create the folder and its subfolders."""
        self.root.mkdir(parents=True, mode=0o700)
        for name in ("drafts", "in", "logs", "out", "workers"):
            (self.root / name).mkdir(mode=0o700)

    def remove_abandoned(self) -> None:
        """Remove abandoned folders beside this one, by the file system's clock."""
        now = (self.root / "driver").stat().st_mtime
        for beat in self.root.parent.glob(f"{PREFIX}*/driver"):
            with contextlib.suppress(OSError):
                abandoned = now - beat.stat().st_mtime > _STALE
                if abandoned and (beat.parent / "drafts").is_dir():
                    shutil.rmtree(beat.parent, ignore_errors=True)

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file whole."""
        draft = f"{os.uname().nodename}-{os.getpid()}-{path.replace('/', '-')}"
        (self.root / "drafts" / draft).write_bytes(content)
        (self.root / "drafts" / draft).rename(self.root / path)

    def read_file(self, path: str) -> bytes | None:
        """A file's content, None if it does not exist."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(OSError):
            (self.root / path).unlink()

    def list_names(self, folder: str) -> list[str] | None:
        """The names in a folder, sorted; None if it cannot be read."""
        try:
            return sorted(os.listdir(self.root / folder))
        except OSError:
            return None

    def write_beat(self, path: str, content: bytes) -> None:
        """Write a file below its beat: the age of this object in seconds."""
        self.write_file(path, f"{time.monotonic() - self._born}\n".encode() + content)

    def read_beat(self, path: str) -> tuple[float, bytes] | None:
        """A beat and the content below it, None if the file does not exist."""
        beat, _, content = (self.read_file(path) or b"").partition(b"\n")
        return (float(beat), content) if beat else None

    def seconds_silent(self, path: str) -> float:
        """Seconds since a beat was last seen to change."""
        now, beat = time.monotonic(), (self.read_file(path) or b"").partition(b"\n")[0]
        old, since = self._beats.get(path, (b"", now))
        self._beats[path] = (beat or old, now if beat and beat != old else since)
        return now - self._beats[path][1]


def serve_jobs(folder: str) -> None:
    """Evaluate until the driver has stopped or lost its beat, or Slurm ends the job.

    The worker's name begins with its job; one of a job that Slurm starts again is another worker.
    """
    import submitit  # pyright: ignore[reportMissingImports]

    name = f"{submitit.JobEnvironment().job_id}.{secrets.token_hex(3)}"
    asyncio.run(_Worker(Spool(Path(folder)), name).serve())


class _Worker:
    def __init__(self, spool: Spool, name: str) -> None:
        self._spool, self._name, self._node = spool, name, NodeEvaluator()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._admitted = self._ending = False

    async def serve(self) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate, serving)
        try:
            await self._serve_mailbox(await self._start_node())
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            self._spool.remove_file(f"workers/{self._name}")
            for number in self._tasks:
                self._node.cancel(number)
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._node.close()

    def _on_terminate(self, serving: asyncio.Task[None]) -> None:
        if not self._ending:
            self._ending = True
            self._spool.remove_file(f"workers/{self._name}")  # no more work
            serving.cancel()

    async def _start_node(self) -> bytes:
        named = [n for n in self._spool.list_names(".") or () if n.startswith("parcel-")]
        parcel, beat = self._spool.read_file(named[0]), self._spool.read_beat("driver")
        assert parcel is not None and beat is not None
        greeting = await self._node.begin(parcel, named[0].removeprefix("parcel-"), beat[1])
        if messages.load_struct(greeting, NodeReply).error is not None:
            await asyncio.sleep(BEAT)  # the end of the job may have caused it
        return greeting

    async def _serve_mailbox(self, greeting: bytes) -> None:
        pause, beaten = _FIRST_PAUSE, float("-inf")
        while not self._ending:
            if time.monotonic() - beaten > BEAT:
                beaten = time.monotonic()
                if self._is_dismissed():
                    return
                self._spool.write_beat(f"workers/{self._name}", greeting)
            names = self._spool.list_names(f"in/{self._name}")
            if names is not None:
                self._take_mail(names)
            for key, question in self._node.questions_now():
                self._spool.write_file(f"out/{key}", question)
            pause = _FIRST_PAUSE if self._tasks else min(pause * 1.5, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    def _is_dismissed(self) -> bool:
        """True if the driver has stopped, is dead, or has removed this worker."""
        admitted, spool = (self._spool.root / "in" / self._name).is_dir(), self._spool
        if self._admitted and not admitted:
            return True
        self._admitted = admitted
        return spool.read_file("stop") is not None or spool.seconds_silent("driver") > LAPSE

    def _take_mail(self, names: list[str]) -> None:
        """Begin new evaluations, cancel those without a file, deliver replies."""
        for number in self._tasks.keys() - set(names):
            self._node.cancel(number)
        for name in names:
            path = f"in/{self._name}/{name}"
            content = None if name in self._tasks else self._spool.read_file(path)
            if content is None:
                continue
            if messages.ASKED in name:
                self._spool.remove_file(path)
                self._node.deliver_reply(name, content)
            else:
                self._tasks[name] = asyncio.create_task(self._evaluate(name, content))

    async def _evaluate(self, number: str, content: bytes) -> None:
        seconds, _, job = content.partition(b"\n")
        try:
            answer = await self._node.evaluate(number, job, float(seconds))
            if self._is_doubtful(messages.load_struct(answer, NodeReply)):
                # the signal that ended a candidate may reach this process, too
                await asyncio.sleep(0.25)
            if self._ending:
                answer = messages.dump_struct(NodeReply(lost="job_ended"))
            self._spool.write_file(f"out/{number}", answer)
            self._spool.remove_file(f"in/{self._name}/{number}")
        finally:
            del self._tasks[number]

    def _is_doubtful(self, answer: NodeReply) -> bool:
        """True if a signal to the whole job may have caused this result."""
        seen = answer.observation
        return seen is not None and (seen.status is not Status.OK or self._node.shares_processes)
