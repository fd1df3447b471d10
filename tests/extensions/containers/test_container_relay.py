"""The pipes into a container: bytes arrive whole and in order.

Data that no honest side sends end the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.extensions.containers.relay import Relay, RelayBroken


async def _echoed(texts: list[bytes]) -> list[bytes]:
    """Each text through a stream of its own to the other side and back, all at once."""
    there, back = os.pipe(), os.pipe()
    near = Relay(back[0], there[1], lambda *_: None)
    far = Relay(there[0], back[1], lambda *_: None)
    running = [asyncio.create_task(side.run()) for side in (near, far)]
    ends = []
    for number, _ in enumerate(texts):
        mine, ours = socket.socketpair()
        theirs, other = socket.socketpair()
        near.open_stream(number, ours.detach())
        far.open_stream(number, theirs.detach())
        ends.append((mine, other))
        mine.setblocking(False)
        other.setblocking(False)
    loop = asyncio.get_running_loop()

    async def whole(end: socket.socket) -> bytes:
        got = b""
        while piece := await loop.sock_recv(end, 1 << 16):
            got += piece
        return got

    async def one(mine: socket.socket, other: socket.socket, text: bytes) -> bytes:
        async def away() -> None:
            await loop.sock_sendall(mine, text)
            mine.shutdown(socket.SHUT_WR)

        async def home() -> None:
            await loop.sock_sendall(other, await whole(other))
            other.shutdown(socket.SHUT_WR)

        _, _, got = await asyncio.gather(away(), home(), whole(mine))
        return got

    try:
        return list(
            await asyncio.gather(
                *(one(mine, other, text) for (mine, other), text in zip(ends, texts))
            )
        )
    finally:
        for task in running:
            task.cancel()
        near.close()
        far.close()
        for pair in ends:
            for end in pair:
                end.close()


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=4))
@settings(max_examples=15)
def test_streams_arrive_whole_whatever_their_size(sizes: list[int]) -> None:
    texts = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert asyncio.run(_echoed(texts)) == texts


@pytest.mark.parametrize(
    "frames",
    [
        struct.pack("<IIc", 1 << 20, 0, b"d"),
        struct.pack("<IIc", 0, 0, b"?"),
        struct.pack("<IIc", 0, 7, b"d"),
        (struct.pack("<IIc", 1 << 16, 7, b"d") + bytes(1 << 16)) * 40,
    ],
    ids=["too long", "unknown kind", "empty data", "beyond its window"],
)
def test_what_no_honest_side_sends_ends_the_connection(frames: bytes) -> None:
    async def work() -> None:
        source, sink = os.pipe(), os.pipe()
        relay = Relay(source[0], sink[1], lambda *_: None)
        ours, theirs = socket.socketpair()  # `theirs` is never read
        relay.open_stream(7, ours.detach())

        def feed() -> None:
            try:
                os.write(source[1], frames[: 1 << 16])
                for at in range(1 << 16, len(frames), 1 << 16):
                    os.write(source[1], frames[at : at + (1 << 16)])
            except OSError:
                pass
            os.close(source[1])

        feeding = asyncio.create_task(asyncio.to_thread(feed))
        try:
            with pytest.raises(RelayBroken):
                await relay.run()
        finally:
            relay.close()
            theirs.close()
            os.close(sink[0])
            await feeding

    asyncio.run(work())
