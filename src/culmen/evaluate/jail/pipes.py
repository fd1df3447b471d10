"""Frames and logs on the event loop."""

from __future__ import annotations

import asyncio
import os
import socket

from culmen.evaluate.jail import wire

_CHUNK = 1 << 18
_BREATH_SECONDS = 0.01  # a candidate that floods its log costs us at most one chunk per breath


async def read_frame(channel: socket.socket, limit: int) -> tuple[str, bytes]:
    """One frame from a non-blocking socket. Raises EOFError when the other side is gone, TooLarge above `limit`."""
    kind, length = wire.parse_header(await _exactly(channel, wire.HEADER_SIZE), limit)
    return kind, await _exactly(channel, length)


async def write_frame(channel: socket.socket, kind: str, payload: bytes) -> None:
    """One frame to a non-blocking socket. Raises EOFError when the other side is gone."""
    try:
        await asyncio.get_running_loop().sock_sendall(channel, wire.frame(kind, payload))
    except OSError as error:
        raise EOFError from error


async def _exactly(channel: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        try:
            piece = await loop.sock_recv(channel, min(size - len(data), _CHUNK))
        except OSError as error:
            raise EOFError from error
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


class Log:
    """The read end of a candidate's stdout and stderr: keeps the first `limit` bytes, drains the rest slowly."""

    def __init__(self, limit: int) -> None:
        self.limit, self.kept, self.dropped = limit, bytearray(), 0
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._read, self._drain)

    def handed_over(self) -> None:
        """Close our copy of the write end."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def _drain(self) -> None:
        try:
            piece = os.read(self._read, _CHUNK)
        except BlockingIOError:
            return
        room = self.limit - len(self.kept)
        self.kept += piece[:room]
        self.dropped += max(0, len(piece) - room)
        if not piece or self.dropped:
            self._loop.remove_reader(self._read)
        if piece and self.dropped:
            self._timer = self._loop.call_later(_BREATH_SECONDS, self._drain_again)

    def _drain_again(self) -> None:
        self._loop.add_reader(self._read, self._drain)

    def close(self) -> str:
        """Stop reading; the text kept, with a note if something was cut. Further calls give the same text."""
        if self._read < 0:
            return self._text()
        if self._timer is not None:
            self._timer.cancel()
        if not self.dropped:
            self._drain()
        self._loop.remove_reader(self._read)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._read)
        self._read = -1
        self.handed_over()
        return self._text()

    def _text(self) -> str:
        return clean(self.kept.decode("utf-8", "replace")) + ("\n[cut: the log was longer]" if self.dropped else "")


def clean(text: str, limit: int = 20_000) -> str:
    """Text that every database and terminal takes, at most `limit` characters, cut in the middle."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(text) <= limit:
        return text
    half = (limit - 20) // 2
    return f"{text[:half]}\n[... cut ...]\n{text[-half:]}"
