"""Which way agents can be confined on this machine: found out by trying, not by looking for a program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from culmen.agents.sandbox import sandbox, worktree
from culmen.agents.sandbox.layout import Layout
from culmen.agents.sandbox.settings import Settings
from culmen.core.errors import IsolationError
from culmen.evaluate.jail import bubblewrap

FIX = (
    "install bubblewrap (Debian and Ubuntu: apt install bubblewrap); Ubuntu 24.04 also needs an AppArmor profile that "
    "allows it user namespaces; in Docker add --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--cap-add SYS_ADMIN; or let agents run as you: --set sandbox=none"
)
_SECONDS = 30.0


@dataclass(frozen=True)
class Way:
    """`name` and `proc` as in `sandbox.Cage`; `isolation` is what people are told: jailed | restricted | none."""

    name: str
    proc: bool
    isolation: str


def choose(settings: Settings) -> Way:
    """The strongest way that holds. Raises IsolationError if there is none and the settings do not waive it."""
    if settings.sandbox != "auto":
        return Way("", True, "restricted" if settings.sandbox == "agent" else "none")
    why: dict[str, str] = {}
    for name in ("uid", "user") if os.geteuid() == 0 else ("user",):
        for proc in (True, False):
            way = Way(name, proc, "jailed")
            why[f"{name}, {'own' if proc else 'no'} /proc"] = fault = attempt(way)
            if not fault:
                return way
    reasons = "; ".join(f"{name}: {text}" for name, text in why.items())
    raise IsolationError("agents cannot be confined on this machine", where=reasons, fix=FIX)


def attempt(way: Way) -> str:
    """Send a small program in that tries to get out; why this way will not do, "" if it will."""
    if bubblewrap.program() is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory(prefix="culmen-probe-") as folder, socket.create_server(("127.0.0.1", 0)) as port:
        layout = Layout(Path(folder) / "run")
        cage = sandbox.Cage(layout, 0, Settings(), way.name, way.proc)
        layout.make()
        layout.view.mkdir()
        prepare(cage)
        (layout.tree(0) / ".culmen").mkdir(parents=True)
        worktree.give(layout.work(0), cage.owner)
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        secret.chmod(0o644)
        targets = {"secret": str(secret), "view": f"{cage.tree}/.culmen", "port": port.getsockname()[1]}
        probe = [sys.executable, "-I", "-S", str(sandbox.SCRIPTS / "probe.py"), json.dumps(targets)]
        try:
            done = subprocess.run(
                sandbox.command(cage, probe), env=sandbox.environment(cage, {}), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/",
            )  # fmt: skip
            broken = (
                json.loads(done.stdout) if done.returncode == 0 else [done.stderr.strip()[-300:] or "it ended early"]
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            broken = [f"{type(error).__name__}: {error}"]
    return ", ".join(broken)


def prepare(cage: sandbox.Cage) -> None:
    """The folders a cage needs beside its tree; those of an earlier try are kept.

    They lie side by side in a folder that no agent can write, so none can be swapped for a link.
    """
    layout, agent = cage.layout, cage.agent
    for folder in (layout.home(agent), layout.temporary(agent), layout.shared(agent)):
        folder.mkdir(parents=True, exist_ok=True)
    os.chmod(layout.work(agent), 0o700)
