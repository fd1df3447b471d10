"""Many connections over one pair of pipes: the link between culmen and a container.

Both sides are the same. Every frame is length, number and kind. A stream's data are sent only as
far as the other side has room, so a program that floods its log, or never reads, delays no other
stream and fills no memory. The container's side is not trusted: a frame that breaks these rules
ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Coroutine

_HEAD = struct.Struct("<IIc")
_CHUNK, _WINDOW = 1 << 16, 1 << 20
_DATA, _END, _TAKEN = b"d", b"e", b"a"


class RelayBroken(Exception):
    """The other side broke the protocol."""


class Relay:
    """One side of the link, reading from `source` and writing to `sink`, which it owns.

    A callback `(number, payload)` receives messages.
    """

    def __init__(self, source: int, sink: int, on_message: Callable[[int, bytes], None]) -> None:
        self._source, self._sink, self._on_message = source, sink, on_message
        self._streams: dict[int, Stream] = {}
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        for fd in (source, sink):
            os.set_blocking(fd, False)

    async def run(self) -> None:
        """Read and write until the other side has gone; raise RelayBroken."""
        writing = self.spawn_task(self._write_outgoing())
        buffer = bytearray()
        try:
            while piece := await read_available(self._source):
                buffer += piece
                while len(buffer) >= _HEAD.size:
                    size, number, kind = _HEAD.unpack_from(buffer)
                    if size > _CHUNK:
                        raise RelayBroken("a frame that is too long")
                    if len(buffer) < _HEAD.size + size:
                        break
                    payload = bytes(buffer[_HEAD.size : _HEAD.size + size])
                    del buffer[: _HEAD.size + size]
                    self._dispatch_frame(number, kind, payload)
        finally:
            writing.cancel()

    def close(self) -> None:
        """Close every stream and both pipes."""
        for stream in list(self._streams.values()):
            stream.close()
        for task in self.tasks:
            task.cancel()
        for fd in {self._source, self._sink}:
            os.close(fd)

    def send(self, number: int, payload: bytes, kind: bytes = b"m") -> None:
        """Queue a message, or a frame of another kind."""
        self._outgoing.put_nowait(_HEAD.pack(len(payload), number, kind) + payload)

    def open_stream(
        self, number: int, fd: int, *, reads: bool = True, writes: bool = True
    ) -> Stream:
        """Join a descriptor, owned from now on, to the stream of that number on the other side."""
        stream = self._streams[number] = Stream(self, number, fd, reads, writes)
        return stream

    def forget_stream(self, number: int) -> None:
        """Remove a closed stream; further data for it are dropped."""
        self._streams.pop(number, None)

    def spawn_task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """A task that ends with this relay."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _dispatch_frame(self, number: int, kind: bytes, payload: bytes) -> None:
        if kind == b"m":
            return self._on_message(number, payload)
        stream = self._streams.get(number)
        if kind not in (_DATA, _END, _TAKEN):
            raise RelayBroken("a frame of no known kind")
        if stream is not None:
            stream.take_frame(kind, payload)

    async def _write_outgoing(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                await write_all(self._sink, await self._outgoing.get())


class Stream:
    """A descriptor here, joined to one on the other side."""

    def __init__(self, relay: Relay, number: int, fd: int, reads: bool, writes: bool) -> None:
        self._relay, self.number, self._fd = relay, number, fd
        self._open, self._waiting, self._unread = True, 0, 0
        self._room = asyncio.Event()
        self._room.set()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        os.set_blocking(fd, False)
        self.feeding = relay.spawn_task(self._forward_input()) if reads else None
        self._draining = relay.spawn_task(self._write_inbox()) if writes else None

    def take_frame(self, kind: bytes, payload: bytes) -> None:
        """Handle a frame from the other side."""
        if kind == _TAKEN:
            self._waiting -= int.from_bytes(payload, "little")
            if self._waiting < _WINDOW:
                self._room.set()
            return
        self._unread += len(payload)
        if self._unread > _WINDOW + _CHUNK or (kind == _DATA and not payload):
            raise RelayBroken("more data than there was room for")
        self._inbox.put_nowait(payload if kind == _DATA else b"")

    def close(self) -> None:
        """Stop, and close the descriptor."""
        if self._open:
            self._open = False
            for task in (self.feeding, self._draining):
                if task is not None:
                    task.cancel()
            self._relay.forget_stream(self.number)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            os.close(self._fd)

    async def _forward_input(self) -> None:
        while data := await read_available(self._fd):
            self._waiting += len(data)
            if self._waiting >= _WINDOW:
                self._room.clear()
            self._relay.send(self.number, data, _DATA)
            await self._room.wait()
        self._relay.send(self.number, b"", _END)

    async def _write_inbox(self) -> None:
        broken = False
        while data := await self._inbox.get():
            try:
                await (write_all(self._fd, data) if not broken else asyncio.sleep(0))
            except OSError:
                broken = True  # the reader here has gone; the other side continues
            self._unread -= len(data)
            self._relay.send(self.number, len(data).to_bytes(4, "little"), _TAKEN)
        _shut_down_writing(self._fd)


def _shut_down_writing(fd: int) -> None:
    """Let the reader of a socket see its end; a pipe is closed with its stream."""
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as end:
            end.shutdown(socket.SHUT_WR)


async def read_available(fd: int) -> bytes:
    """Available bytes, at most a chunk; empty at the end or if the descriptor is broken."""
    while True:
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            await _wait_for_descriptor(
                fd, asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader
            )
        except OSError:
            return b""


async def write_all(fd: int, data: bytes) -> None:
    """Write all bytes; raise OSError if the reader has gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            await _wait_for_descriptor(
                fd, asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer
            )


async def _wait_for_descriptor(
    fd: int, add: Callable[[int, Callable[[], object]], object], remove: Callable[[int], object]
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        remove(fd)
