"""Separate hosts on this machine: each with its own network, name, processes and folders.

The folders are /tmp, /dev/shm and home. What they share is the file system below, read as
installed software is; everything that a program writes stays on its host. A host ends with all
its processes when it is closed, and when the test process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NET = "10.77.0"
REPOSITORY = Path(__file__).resolve().parents[3]
_TOOLS = ("ip", "unshare", "nsenter", "mount")

# The first process of a host: it buries the dead and ends with its standard input.
_INIT = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while os.read(0, 4096):
    pass
"""


class Host:
    """One machine.

    `address` is its only one beside the loopback; `root` is its file system seen from here.
    """

    def __init__(self, name: str, address: str = "") -> None:
        self.name, self.address = name, address
        flags = [
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
        ]
        self._holder = subprocess.Popen(
            ["unshare", *flags, "sh", "-c", _prepared(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self.up = self._holder.stdout.readline() == b"up\n"
        self.pid = _children(self._holder.pid)[0] if self.up else 0
        self.root = Path(f"/proc/{self.pid}/root")

    def command(self, *words: str, **more: str) -> list[str]:
        """The words that run `words` on this host, with nothing of our environment but `more`."""
        inside = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
        }
        inside |= {"PYTHONPATH": str(REPOSITORY / "src"), "PYTHONDONTWRITEBYTECODE": "1", **more}
        pairs = [f"{name}={value}" for name, value in inside.items()]
        return [
            "nsenter",
            "-t",
            str(self.pid),
            "-n",
            "-u",
            "-i",
            "-m",
            "-p",
            "-w/tmp",
            "env",
            "-i",
            *pairs,
            *words,
        ]

    def popen(
        self, *words: str, more: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        return subprocess.Popen(self.command(*words, **(more or {})), **options)

    def run(self, *words: str, more: dict[str, str] | None = None, seconds: float = 120.0) -> str:
        """The output of a command on this host.

        Raises RuntimeError with its output so far where it failed.
        """
        done = subprocess.run(
            self.command(*words, **(more or {})),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"{self.name}: {shlex.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def listening(self) -> set[tuple[str, str]]:
        """Programs that listen by TCP on this host: (name of the process, address)."""
        names: dict[str, str] = {}
        for pid, name in self.processes().items():
            with contextlib.suppress(OSError):
                files = self.root / "proc" / str(pid) / "fd"
                names |= {os.readlink(files / each): name for each in os.listdir(files)}
        tables = [
            (self.root / f"proc/1/net/{name}").read_text().splitlines()[1:]
            for name in ("tcp", "tcp6")
        ]
        open_ports = [
            words for lines in tables for words in map(str.split, lines) if words[3] == "0A"
        ]
        return {
            (names.get(f"socket:[{words[9]}]", "?"), _address(words[1])) for words in open_ports
        }

    def processes(self) -> dict[int, str]:
        """Processes on it besides its first one: names by process id there.

        The dead are left out.
        """
        found: dict[int, str] = {}
        for pid in filter(str.isdigit, os.listdir(self.root / "proc")):
            with contextlib.suppress(OSError):
                stat = (self.root / "proc" / pid / "stat").read_text()
                name, _, rest = stat.partition("(")[2].rpartition(")")
                if pid != "1" and rest.split()[0] != "Z":
                    found[int(pid)] = name
        return found

    def kill(self, pid: int) -> None:
        """At once, by its process id there."""
        self.run("kill", "-9", str(pid))

    def close(self) -> None:
        """As if the power went."""
        self._holder.kill()
        self._holder.wait()
        for pipe in (self._holder.stdin, self._holder.stdout):
            if pipe is not None:
                pipe.close()


class Network:
    """Hosts at one switch, which has no way out.

    `plug` and `unplug` are a cable: no packet reports that it was pulled.
    """

    def __init__(self) -> None:
        self._switch = Host("switch")
        self.hosts: dict[str, Host] = {}
        self._on_switch("link", "add", "br0", "type", "bridge")
        self._on_switch("link", "set", "br0", "up")

    def add(self, name: str) -> Host:
        """Another host."""
        host = Host(name, f"{NET}.{len(self.hosts) + 1}")
        self.hosts[name] = host
        port = f"to-{name}"
        self._on_switch(
            "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)
        )
        self._on_switch("link", "set", port, "master", "br0", "up")
        for words in (
            ["addr", "add", f"{host.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            host.run("ip", *words)
        host.run("ip", "link", "set", "lo", "up")
        return host

    def unplug(self, *names: str) -> None:
        for name in names:
            self._on_switch("link", "set", f"to-{name}", "down")

    def plug(self, *names: str) -> None:
        for name in names:
            self._on_switch("link", "set", f"to-{name}", "up")

    def close(self) -> None:
        for host in (*self.hosts.values(), self._switch):
            host.close()

    def _on_switch(self, *words: str) -> None:
        # The outside's process ids name the hosts' namespaces, so only the network is entered.
        asked = ["nsenter", "-t", str(self._switch.pid), "-n", "ip", *words]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"switch: {shlex.join(words)}: {done.stderr}")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Raises `Unable` where this machine does not let us."""
    lacking = why_not()
    if lacking:
        raise Unable(lacking)
    made = Network()
    try:
        yield made
    finally:
        made.close()


class Unable(Exception):
    """The reason why there can be no hosts here."""


def why_not() -> str:
    """The missing tool or right for separate hosts; empty if nothing is missing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "only root may make network namespaces that evaluations can be jailed in"
    tried: list[Host] = []
    try:
        tried = [Host("probe"), Host("probe2")]
        if not all(host.up for host in tried):
            return "this machine does not permit namespaces"
        words = [
            "link",
            "add",
            "probe",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(tried[1].pid),
        ]
        done = subprocess.run(
            ["nsenter", "-t", str(tried[0].pid), "-n", "ip", *words],
            capture_output=True,
            check=False,
        )
        bridge = [
            "nsenter",
            "-t",
            str(tried[0].pid),
            "-n",
            "ip",
            "link",
            "add",
            "br0",
            "type",
            "bridge",
        ]
        bridged = subprocess.run(bridge, capture_output=True, check=False)
        told = (done.stderr + bridged.stderr).decode().strip()
        return (
            f"this machine does not permit virtual networks: {told}"
            if done.returncode + bridged.returncode
            else ""
        )
    finally:
        for host in tried:
            host.close()


def _prepared(name: str) -> str:
    """A shell's words: own name, own /tmp and /dev/shm.

    Installed software below them is put back in its place.
    """
    kept = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, REPOSITORY)}
    below = sorted(shlex.quote(str(p)) for p in kept if p.is_relative_to("/tmp"))
    lines = ["set -e", f"echo {name} > /proc/sys/kernel/hostname", "mount --make-rprivate /"]
    lines += ["mount --rbind /tmp /mnt"]
    lines += [
        "mount -t tmpfs -o mode=1777 tmpfs /tmp",
        "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        "mkdir /tmp/home",
    ]
    lines += [
        f"mkdir -p {path} && mount --rbind {path.replace('/tmp', '/mnt', 1)} {path}"
        for path in below
    ]
    lines += ["umount -l /mnt"]
    lines.append(f"exec {shlex.quote(sys.executable)} -c {shlex.quote(_INIT)}")
    return "\n".join(lines)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _address(text: str) -> str:
    import ipaddress

    raw = bytes.fromhex(text.partition(":")[0])
    address = ipaddress.ip_address(b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4)))
    return str(getattr(address, "ipv4_mapped", None) or address)
