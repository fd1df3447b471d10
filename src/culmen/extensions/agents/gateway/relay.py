"""Relay in a jail without a network: 127.0.0.1:PORT leads to a Unix socket.

    python -m culmen.extensions.agents.gateway.relay SOCKET PORT -- COMMAND...

The relay runs for as long as the command. It needs only the standard library, and the file can be
run on its own. Its exit status is the command's (128 + n if signal n ended it), 125 if it cannot
listen, and 127 if there is no such command. Signals are passed on to the command; if the relay
itself is killed, the kernel kills the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading

CANNOT_LISTEN, NO_COMMAND = 125, 127
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")


def main(argv: list[str]) -> int:
    """Run the relay; return the exit status."""
    if len(argv) < 4 or argv[2] != "--" or not argv[1].isdigit():
        print("usage: relay SOCKET PORT -- COMMAND...", file=sys.stderr)  # noqa: T201 (a program of its own)
        return 2
    path, port, command = argv[0], int(argv[1]), argv[3:]
    try:
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        print(f"relay: cannot listen on 127.0.0.1:{port}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return CANNOT_LISTEN
    return _run_with_relay(
        command, threading.Thread(target=_accept_clients, args=(listener, path), daemon=True)
    )


def _run_with_relay(command: list[str], relay: threading.Thread) -> int:
    child: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # signals from before the command had started

    def pass_on(number: int, _: object) -> None:
        if child:
            child[0].send_signal(number)
        else:
            early.append(number)

    for name in PASSED_ON:
        signal.signal(getattr(signal, name), pass_on)
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    relay_id = os.getpid()

    def die_with_us() -> None:
        if prctl is not None:
            prctl(1, signal.SIGKILL, 0, 0, 0)  # prctl's number for the signal at a parent's death
            if os.getppid() != relay_id:
                os._exit(1)

    try:
        child.append(subprocess.Popen(command, preexec_fn=die_with_us))  # noqa: PLW1509 (no other thread runs yet)
    except OSError as error:
        print(f"relay: cannot run {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return NO_COMMAND
    relay.start()
    for number in early:
        child[0].send_signal(number)
    status = child[0].wait()
    return status if status >= 0 else 128 - status


def _accept_clients(listener: socket.socket, path: str) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_relay_client, args=(client, path), daemon=True).start()


def _relay_client(client: socket.socket, path: str) -> None:
    """Carry bytes both ways until both sides have ended; a half-closed connection stays open."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with client, server:
        try:
            server.connect(path)
        except OSError:
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_copy_stream, args=(server, client), daemon=True)
        back.start()
        _copy_stream(client, server)
        back.join()


def _copy_stream(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side has closed: close both
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
