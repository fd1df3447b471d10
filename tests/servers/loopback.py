"""The common part of this package's servers: HTTP on the loopback.

Each connection has a thread.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackHTTP(ThreadingHTTPServer):
    """An HTTP server with a thread for each connection, which nothing that clients do can stop."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are part of the game."""


class Loopback:
    """A server at `url` within its `with`; `handler` handles the connections.

    The attribute `served` of the handler is this server.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._http = LoopbackHTTP(("127.0.0.1", 0), type("Handler", (handler,), {"served": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def ending(self) -> None:
        """Called before it stops, to release everything that waits."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
