"""uvicorn inside the event loop that is already running, on a port of the loopback and on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError

CONNECTIONS = 256  # at the same time; more are closed, so that no agent can use up the run's file descriptors
LONGEST_PATH = 107  # bytes of a Unix socket's path, by the kernel's sockaddr_un


class Listening:
    """Serves an ASGI application until `stop`; leaves the process's signals alone and logs nothing."""

    def __init__(self, app: Any, sockets: list[socket.socket]) -> None:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol

        class Bounded(H11Protocol):
            """One connection, if there are not too many."""

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                if len(self.connections) > CONNECTIONS:
                    transport.abort()

        class Server(uvicorn.Server):
            """Tells when it has started, and takes no signals: they are the caller's."""

            up = asyncio.Event()

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                self.up.set()

        config = uvicorn.Config(
            app, log_config=None, log_level=60, access_log=False, lifespan="off", ws="none", http=Bounded,
            timeout_graceful_shutdown=2, timeout_keep_alive=75, server_header=False, date_header=False,
        )  # fmt: skip
        self._server, self._sockets = Server(config), sockets
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when requests are taken."""
        self._task = asyncio.ensure_future(self._server.serve(self._sockets))
        up = asyncio.ensure_future(self._server.up.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            self._task.result()
            raise RuntimeError("the server ended before it had started")

    async def stop(self) -> None:
        """Take no more requests, end the connections, close the sockets."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for listener in self._sockets:
            listener.close()


def on_loopback(port: int) -> socket.socket:
    """A socket listening on 127.0.0.1; port 0 lets the system choose. Raises `UserError` if it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror}", fix="choose another port, or 0"
        ) from None
    return _ready(listener)


def on_path(path: Path) -> socket.socket:
    """A Unix socket listening at `path`, for this user alone. A socket that nobody serves any more is replaced."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise UserError(
            f"a socket's path may have {LONGEST_PATH} bytes at most", where=str(path), fix="use a shorter one"
        )
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _served(path):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        old = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old)
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        raise UserError(
            f"cannot listen at this path: {error.strerror}", where=str(path),
            fix="choose another path" if taken else "make its folder first",
        ) from None  # fmt: skip
    return _ready(listener)


def _ready(listener: socket.socket) -> socket.socket:
    listener.listen(256)
    listener.setblocking(False)
    return listener


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
