"""OpenSSH's server on the loopback: an ordinary process with keys of its own, and a client that knows it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


def missing() -> str:
    """ "" where a server can be started, else why not."""
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "OpenSSH is not installed"
    if os.geteuid() == 0:  # sshd wants it, whatever its configuration
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return ""


class SshServer:
    """Names for the client: `good`, `stranger` (a key that is refused), `unknown` (a host without a known key),
    `closed` (a port where nothing listens), `silent` (one that never answers), `bare` (an account without culmen).

    `path` is PATH with a client that knows these names, `offline` with one that reaches none of them; `home` is the
    account's.
    """

    def __init__(self, place: Path) -> None:
        assert SSHD is not None
        self.home, self._place = place / "home", place
        self.home.mkdir()
        for name in ("host", "user", "other"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        (place / "authorized").write_bytes((place / "user.pub").read_bytes())
        self._silent = socket.create_server(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            self._closed = closed.getsockname()[1]
        venv = Path(sys.executable).parent
        self._ports = {
            "good": self._start("good", f"{venv}:/usr/bin:/bin"),
            "bare": self._start("bare", "/usr/bin:/bin"),
        }
        self.path = self._write_client()

    def _start(self, name: str, path: str) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        lines = (
            f"ListenAddress 127.0.0.1:{port}", f"HostKey {self._place}/host", "PidFile none", "StrictModes no",
            f"AuthorizedKeysFile {self._place}/authorized", "PasswordAuthentication no", "UsePAM no",
            "KbdInteractiveAuthentication no", "PermitRootLogin yes", f"SetEnv HOME={self.home} PATH={path}",
        )  # fmt: skip
        config = self._place / f"{name}.sshd"
        config.write_text("\n".join(lines) + "\n")
        with (self._place / f"{name}.log").open("ab") as log:
            server = subprocess.Popen([SSHD or "", "-D", "-e", "-f", config], stderr=log, cwd="/")
        self._servers = [*getattr(self, "_servers", []), server]
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return port
            except OSError:
                assert server.poll() is None and time.monotonic() < until, (self._place / f"{name}.log").read_text()
                time.sleep(0.02)

    def _write_client(self) -> str:
        good, silent = self._ports["good"], self._silent.getsockname()[1]
        ports = {"stranger": good, "unknown": good, "closed": self._closed, "silent": silent, **self._ports}
        text, keys = "", dict.fromkeys(ports, "user") | {"stranger": "other"}
        for name, port in ports.items():
            known = "/dev/null" if name == "unknown" else self._place / "known"
            text += (
                f"Host {name}\n HostName 127.0.0.1\n Port {port}\n IdentityFile {self._place}/{keys[name]}\n"
                f" UserKnownHostsFile {known}\n"
            )
        text += f"Host *\n User {getpass.getuser()}\n IdentitiesOnly yes\n GlobalKnownHostsFile /dev/null\n"
        (self._place / "config").write_text(text)
        key = (self._place / "host.pub").read_text().rpartition(" ")[0]
        known = (f"[127.0.0.1]:{port} {key}\n" for port in self._ports.values())
        (self._place / "known").write_text("".join(known))
        self.wait_for_answers(1)
        self.offline = self._write_program("offline", f"-o Port={self._closed}")
        return self._write_program("online", "")

    def _write_program(self, name: str, options: str) -> str:
        client = self._place / name / "ssh"
        client.parent.mkdir()
        usual = f"-F {self._place}/config -o ConnectTimeout=$(cat {self._place}/seconds)"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {usual} {options} "$@"\n')
        client.chmod(0o755)
        return f"{client.parent}:{os.environ['PATH']}"

    def wait_for_answers(self, seconds: int) -> None:
        """How long the client waits for a host."""
        (self._place / "seconds").write_text(str(seconds))

    def close(self) -> None:
        for server in self._servers:
            server.terminate()
            server.wait(60)
        self._silent.close()


@contextmanager
def ssh_server() -> Iterator[SshServer]:
    place = Path(tempfile.mkdtemp(prefix="culmen-ssh-"))
    running = SshServer(place)
    try:
        yield running
    finally:
        running.close()
        shutil.rmtree(place)
