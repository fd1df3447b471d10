"""Has answered what evaluators ask models (`asking`), while they judge; their time stands still meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket

from culmen.core.asking import asker
from culmen.evaluate.jail import wire
from culmen.evaluate.jail.asking import LIMIT
from culmen.evaluate.jail.fork_server import read_frame, write_frame


async def conversed(channel: socket.socket, limit: int, alarm: asyncio.Timeout) -> tuple[str, bytes]:
    """The frame that ends an evaluation, of at most `limit` bytes; until it comes, questions are answered, and the
    alarm is put off by the time that takes.

    Raises as `read_frame` does, and what `core.asking.Asker` raises: the process then waits for ever.
    """
    questions = _Questions(channel, alarm)
    try:
        while True:
            kind, payload = await questions.frame(max(limit, LIMIT))
            if kind != "M":
                break
            questions.put(payload)
        if len(payload) > limit:
            raise wire.TooLarge
        await questions.rest()  # of threads, whose replies would be taken for the next request
        return kind, payload
    finally:
        await questions.end()


class _Questions:
    """Those in flight of one evaluation."""

    def __init__(self, channel: socket.socket, alarm: asyncio.Timeout) -> None:
        self._channel, self._alarm, self._left = channel, alarm, 0.0
        self._running: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()

    async def frame(self, limit: int) -> tuple[str, bytes]:
        """The next frame; the error of a question as soon as it fails."""
        reading = asyncio.ensure_future(read_frame(self._channel, limit))
        try:
            while not reading.done():
                await asyncio.wait({reading, *self._running}, return_when="FIRST_COMPLETED")
                self._collect()
            return reading.result()
        finally:
            reading.cancel()

    def put(self, payload: bytes) -> None:
        """Begin to have a question answered."""
        when, now = self._alarm.when(), asyncio.get_running_loop().time()
        if not self._running and when is not None:
            self._left = when - now
            self._alarm.reschedule(None)
        self._running.add(asyncio.create_task(self._answer(json.loads(payload))))

    async def rest(self) -> None:
        """Wait for those in flight."""
        while self._running:
            await asyncio.wait(self._running)
            self._collect()

    async def end(self) -> None:
        """Give up those in flight."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _collect(self) -> None:
        done = {task for task in self._running if task.done()}
        self._running -= done
        for task in done:
            task.result()
        if done and not self._running and self._alarm.when() is None and not self._alarm.expired():
            self._alarm.reschedule(asyncio.get_running_loop().time() + max(0.0, self._left))

    async def _answer(self, question: dict[str, object]) -> None:
        reply = await asker().ask(question)
        found = json.dumps({"number": question["number"], "reply": reply}).encode()
        async with self._writing:
            await write_frame(self._channel, "N", found)
