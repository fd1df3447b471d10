"""The first process of a container: starts the fork-server, carries its children's data.

It has no key and no network. It is root with only the rights to give each child another user, to
end it and to remove its files. A child is never root.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from dataclasses import asdict
from importlib.util import find_spec

from culmen.core.json import JsonObject
from culmen.extensions.containers.relay import Relay, Stream
from culmen.jail import bubblewrap, wire, zygote
from culmen.jail.confine import WORK, JailPolicy

CODE_FOLDER = f"{WORK}/.culmen"  # folder of culmen's modules and `setup.json`, filled by the host
JOBS = f"{WORK}/jobs"
_OUTSIDE = {"proc", "sys", "dev", "run", WORK.lstrip("/")}


def main() -> None:
    """Entry point: the host's frames arrive on descriptor 0, this side's leave by 1."""
    with open(f"{CODE_FOLDER}/setup.json") as file:
        setup: JsonObject = json.load(file)
    setup["packages"] += [
        name for name in setup.pop("optional") if find_spec(name.partition(".")[0])
    ]
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    os.environ.clear()
    os.environ.update({**setup["environment"], **own})  # variables of the image win
    os.mkdir(JOBS, 0o711)
    control, hello = _fork_server(setup)
    asyncio.run(_Server(control).serve(hello))


def _fork_server(setup: JsonObject) -> tuple[socket.socket, bytes]:
    """The strongest fork-server that starts here, and its first message."""
    why, hello = "", b""
    for level in setup["levels"]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            zygote.serve_control_socket(theirs)
            os._exit(0)
        theirs.close()
        ours.send(json.dumps(_with_policy(setup, level)).encode())
        hello = ours.recv(wire.PACKET_BYTES)
        answer: JsonObject = json.loads(hello or b'{"error": "the fork-server ended at once"}')
        if "error" not in answer or answer["error"].startswith(
            ("ImportError", "ModuleNotFoundError")
        ):
            return ours, json.dumps({**answer, "inner": level, "why": why}).encode()
        why = answer["error"]
        ours.close()
        os.waitpid(pid, 0)
    return ours, hello


def _with_policy(setup: JsonObject, level: str) -> JsonObject:
    shut, visible = tuple(setup["shut"]), tuple(setup["visible"])
    tops = (CODE_FOLDER, *(f"/{name}" for name in sorted(os.listdir("/")) if name not in _OUTSIDE))
    listed, free = bubblewrap.paths_around_hidden(tops, visible, shut) if shut else ((), tops)
    policy = JailPolicy(
        level=level,
        switch="uid",
        first_uid=setup["first_uid"],
        readable=(*tops, *visible, *shut),
        shut=shut,
        spared=tuple(
            path for path in visible if any(path.startswith(f"{folder}/") for folder in shut)
        ),
        unshut=free,
        listed=listed,
        search=level == "restricted"
        and bool(visible or shut),  # mounted files may be closed to others
        scratch=JOBS,
        environment=dict(os.environ),
    )
    return {
        "packages": setup["packages"],
        "policy": asdict(policy),
        "listable": [],
        "readable": [*tops, *visible, *shut],
    }


class _Server:
    """Carries data between the host and the fork-server's children."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._relay = Relay(0, 1, self._on_host_message)
        self._streams: dict[int, tuple[Stream, Stream]] = {}
        self._lines: dict[int, socket.socket] = {}

    async def serve(self, hello: bytes) -> None:
        """Serve until the host or the fork-server has gone.

        The container, with all its processes, ends with this one.
        """
        loop = asyncio.get_running_loop()
        self._relay.send(0, hello)
        loop.add_reader(self._control, self._on_child_report)
        await self._relay.run()
        os._exit(0)

    def _on_host_message(self, number: int, payload: bytes) -> None:
        message: JsonObject = json.loads(payload)
        if message["op"] == "run":
            self._start_child(number, message.pop("line"), message)
        else:
            self._control.send(payload)

    def _start_child(self, number: int, line: int, message: JsonObject) -> None:
        mine, theirs = socket.socketpair()
        log, printed = os.pipe()
        ends = [self._take_line_end(line)] if line else []
        socket.send_fds(
            self._control,
            [json.dumps(message).encode()],
            [theirs.fileno(), printed, *map(socket.socket.fileno, ends)],
        )
        theirs.close()
        os.close(printed)
        for end in ends:
            end.close()
        self._streams[number] = (
            self._relay.open_stream(2 * number, mine.detach()),
            self._relay.open_stream(2 * number + 1, log, writes=False),
        )

    def _take_line_end(self, number: int) -> socket.socket:
        """One end of the line that joins two children; the second caller gets the other."""
        if number in self._lines:
            return self._lines.pop(number)
        here, self._lines[number] = socket.socketpair()
        return here

    def _on_child_report(self) -> None:
        data = self._control.recv(wire.PACKET_BYTES)
        if not data:
            os.kill(os.getpid(), signal.SIGKILL) if os.getpid() != 1 else os._exit(1)
        self._relay.spawn_task(self._forward_report(json.loads(data)["id"], data))

    async def _forward_report(self, number: int, report: bytes) -> None:
        streams = self._streams.pop(number, ())
        feeding = {stream.feeding for stream in streams if stream.feeding is not None}
        if feeding:
            # for the data that a child sent before its end
            await asyncio.wait(feeding, timeout=1.0)
        self._relay.send(number, report)
        for stream in streams:
            stream.close()
