"""A socket in front of a server's, which can swallow the answer to one COMMIT.

The commit happens, and its client does not hear of it.
"""

import contextlib
import socket
import threading


class Relay:
    """A relay that listens in `folder` as PostgreSQL would.

    Call `swallow` before the commit whose answer is to be lost.
    """

    def __init__(self, folder, server):
        self._server, self._swallow = str(server / ".s.PGSQL.5432"), threading.Event()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self.swallowed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self):
        self._swallow.set()

    def close(self):
        self._listening.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(self._server)
                mute = threading.Event()
                for pair in ((client, upstream, mute, True), (upstream, client, mute, False)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, mute, upwards):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if upwards and self._swallow.is_set() and b"COMMIT" in data:
                    self._swallow.clear()
                    mute.set()
                if not upwards and mute.is_set():
                    self.swallowed += b"COMMIT" in data
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
