"""Server-sent events: one look at a run's files a few times a second, shared by all who watch it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

INTERVAL = 0.4  # seconds between two looks
_BEAT = 15.0  # seconds of silence after which a comment shows that the line is still there


class Tail:
    """Watches something while anybody listens: `look` says what it looks like, `tell` what to send when that changed.

    Both are called on a thread, so that a slow disk holds nobody up.
    """

    def __init__(self, look: Callable[[], object], tell: Callable[[], dict[str, Any]]) -> None:
        self._look, self._tell = look, tell
        self._listeners: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    async def stream(self) -> AsyncIterator[str]:
        """Events for one listener: the state now, then each change."""
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        queue.put_nowait(await self._event())
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), _BEAT)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._listeners.discard(queue)

    async def _watch(self) -> None:
        seen = await asyncio.to_thread(self._look)
        while self._listeners:
            await asyncio.sleep(INTERVAL)
            now = await asyncio.to_thread(self._look)
            if now == seen:
                continue
            seen = now
            event = await self._event()
            for queue in self._listeners:
                if queue.full():  # a slow listener needs only the newest
                    queue.get_nowait()
                queue.put_nowait(event)

    async def _event(self) -> str:
        return f"data: {json.dumps(await asyncio.to_thread(self._tell))}\n\n"
