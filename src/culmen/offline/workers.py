"""Performs `edit` effects in worker processes: parsing and optimiser steps never block the event loop.

A worker (`python -m culmen.offline.workers`) reads requests and writes results as frames: four bytes, the length
(big-endian), and a MessagePack body.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from random import Random
from typing import Any, BinaryIO

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.event import EditRequest, Edits
from culmen.offline.edits import TOOLS

_RESULTS = msgspec.msgpack.Decoder(Edits)
_REQUESTS = msgspec.msgpack.Encoder()


class EditWorkers:
    """Up to `workers` processes, started when first needed, one request at a time each.

    A worker that takes longer than `seconds` is killed (fault `timeout`); one that dies is replaced and the request
    repeated once (then fault `crashed`). No tool or text makes it raise.
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
        body = _REQUESTS.encode(request)
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
        """A worker in a session of its own, so that Ctrl-C in a terminal does not reach it."""
        command = (sys.executable, "-P", "-m", "culmen.offline.workers")
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
    return _RESULTS.decode(await worker.stdout.readexactly(size))


def kmeans(candidates: tuple[Candidate, ...], options: dict[str, Any], rng: Random) -> Edits:
    """Clusters of `vectors` (rows of one length) for k = `k`: data `labels`, one in 0..k-1 per row.

    Fewer clusters where fewer rows differ. Fault `no_sklearn` where the package is missing.
    """
    try:
        from sklearn.cluster import KMeans  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Edits(fault="no_sklearn")
    import numpy as np

    points = np.asarray(options["vectors"], dtype=np.float64)
    k = min(int(options["k"]), len(np.unique(points, axis=0)))
    model = KMeans(n_clusters=k, n_init=10, random_state=rng.getrandbits(31))  # pyright: ignore[reportArgumentType]
    return Edits(data={"labels": [int(label) for label in model.fit_predict(points)]})


_TOOLS = TOOLS | {"kmeans": kmeans}


def perform(request: EditRequest) -> Edits:
    """Run one tool; an unknown name is a fault of the result."""
    tool = _TOOLS.get(request.tool)
    if tool is None:
        return Edits(fault="unknown_tool")
    return tool(request.candidates, request.options, Random(request.seed))


def serve(requests: BinaryIO, results: BinaryIO) -> None:
    """Answer requests in their order."""
    decoder, encoder = msgspec.msgpack.Decoder(EditRequest), msgspec.msgpack.Encoder()
    while len(head := requests.read(4)) == 4:
        body = encoder.encode(perform(decoder.decode(requests.read(int.from_bytes(head, "big")))))
        results.write(len(body).to_bytes(4, "big") + body)
        results.flush()


def main() -> None:
    """Serve on stdin and stdout, at low priority; output of libraries goes to stderr."""
    os.nice(5)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
