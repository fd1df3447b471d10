"""Performs `edit` effects in worker processes: parsing and optimiser steps never hold up the event loop."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec

from culmen.core.event import EditRequest, Edits

_DECODER = msgspec.msgpack.Decoder(Edits)
_ENCODER = msgspec.msgpack.Encoder()


class EditWorkers:
    """Up to `workers` processes, started when first needed, each asked one thing at a time.

    A worker that takes longer than `seconds` is killed (fault `timeout`); one that dies is replaced and asked once
    more (then fault `crashed`). Nothing here raises because of a tool or a text.
    """

    def __init__(self, workers: int = 1, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[Process] = []
        self._all: set[Process] = set()

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the worker processes."""
        return tuple(sorted(worker.pid for worker in self._all))

    async def perform(self, request: EditRequest) -> Edits:
        """The tool's result, or `Edits` with a fault."""
        body = _ENCODER.encode(request)
        frame = len(body).to_bytes(4, "big") + body
        async with self._slots:
            for _ in range(2):
                worker = self._idle.pop() if self._idle else await self._start()
                try:
                    reply = await asyncio.wait_for(_ask(worker, frame), self.seconds)
                except TimeoutError:
                    await self._end(worker)
                    return Edits(fault="timeout")
                except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                    await self._end(worker)
                    continue
                except asyncio.CancelledError:
                    await self._end(worker)
                    raise
                self._idle.append(worker)
                return reply
        return Edits(fault="crashed")

    async def close(self) -> None:
        """End all workers; a later `perform` starts new ones."""
        for worker in list(self._all):
            await self._end(worker)

    async def _start(self) -> Process:
        """A worker in a session of its own, so that Ctrl-C in a terminal is not its business."""
        command = (sys.executable, "-P", "-m", "culmen.offline.edits.worker")
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._all.add(worker)
        return worker

    async def _end(self, worker: Process) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        self._all.discard(worker)
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def _ask(worker: Process, frame: bytes) -> Edits:
    assert worker.stdin is not None and worker.stdout is not None  # both are pipes
    worker.stdin.write(frame)
    await worker.stdin.drain()
    size = int.from_bytes(await worker.stdout.readexactly(4), "big")
    return _DECODER.decode(await worker.stdout.readexactly(size))
