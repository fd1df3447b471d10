"""Performs `edit` effects in worker processes, so that parsing never blocks the event loop.

A worker (`python -m culmen.models.offline.tools`) reads requests and writes results as frames:
four bytes, the length (big-endian), and a MessagePack body. Nothing of the tools is imported here.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec

from culmen.core.event import EditRequest, Edits
from culmen.core.foreign import UNREADABLE

_RESULTS = msgspec.msgpack.Decoder(Edits)
_REQUESTS = msgspec.msgpack.Encoder()


class EditWorkers:
    """Up to `workers` processes, started when first needed, each for one request at a time.

    A worker that takes longer than `seconds` is killed (fault `timeout`); one that dies is replaced
    and the request repeated once (then fault `crashed`). No tool or text raises an error here.
    """

    def __init__(self, workers: int = 1, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[Process] = []
        self._all: set[Process] = set()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the worker processes."""
        return tuple(sorted(worker.pid for worker in self._all))

    async def perform(self, request: EditRequest) -> Edits:
        """The tool's result, or `Edits` with a fault."""
        try:
            body = _REQUESTS.encode(request)
        except (UnicodeEncodeError, OverflowError):  # half a sign; a number beyond 64 bits
            return Edits(fault=UNREADABLE)
        frame = len(body).to_bytes(4, "big") + body
        async with self._slots:
            for _ in range(2):
                worker = self._idle.pop() if self._idle else await self._start_worker()
                try:
                    reply = await asyncio.wait_for(_ask_worker(worker, frame), self.seconds)
                except TimeoutError:
                    await self._end_worker(worker)
                    return Edits(fault="timeout")
                except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                    await self._end_worker(worker)
                    continue
                except asyncio.CancelledError:
                    await self._end_worker(worker)
                    raise
                self._idle.append(worker)
                return reply
        return Edits(fault="crashed")

    async def close(self) -> None:
        """End all workers; a later `perform` starts new ones."""
        for worker in list(self._all):
            await self._end_worker(worker)

    async def _start_worker(self) -> Process:
        """A worker in a session of its own, so that Ctrl-C in a terminal does not reach it."""
        command = (sys.executable, "-P", "-m", "culmen.models.offline.tools")
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._all.add(worker)
        return worker

    async def _end_worker(self, worker: Process) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        self._all.discard(worker)
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def _ask_worker(worker: Process, frame: bytes) -> Edits:
    assert worker.stdin is not None and worker.stdout is not None  # both are pipes
    worker.stdin.write(frame)
    await worker.stdin.drain()
    size = int.from_bytes(await worker.stdout.readexactly(4), "big")
    return _RESULTS.decode(await worker.stdout.readexactly(size))
