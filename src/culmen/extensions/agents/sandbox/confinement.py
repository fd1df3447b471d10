"""Confinement of agents: the method that works on this machine, and the command lines.

The method is found by a trial, not by a search for programs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from culmen.core.errors import IsolationError
from culmen.extensions.agents.sandbox import worktree
from culmen.extensions.agents.sandbox.layout import VIEW, Layout
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.jail import bubblewrap

FIX = (
    "install bubblewrap (Debian and Ubuntu: apt install bubblewrap); Ubuntu 24.04 also needs "
    "an AppArmor profile that "
    "allows it user namespaces; in Docker add --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined "
    "--cap-add SYS_ADMIN; or let agents run as you: --set sandbox=none"
)


@dataclass(frozen=True)
class ConfinementMethod:
    """A method of confinement.

    `name` and `proc` are the `method` and `proc` of `Confinement`; `isolation` is the name shown to
    people: jailed | restricted | none.
    """

    name: str
    proc: bool
    isolation: str


def choose_method(settings: SandboxSettings) -> ConfinementMethod:
    """The strongest method that holds.

    Raises IsolationError if there is none and the settings do not waive it.
    """
    if settings.sandbox != "auto":
        return ConfinementMethod("", True, "restricted" if settings.sandbox == "agent" else "none")
    failures: dict[str, str] = {}
    for name in ("uid", "user") if os.geteuid() == 0 else ("user",):
        for proc in (True, False):
            method = ConfinementMethod(name, proc, "jailed")
            failures[f"{name}, {'own' if proc else 'no'} /proc"] = failure = probe_method(method)
            if not failure:
                return method
    reasons = "; ".join(f"{name}: {text}" for name, text in failures.items())
    raise IsolationError("agents cannot be confined on this machine", where=reasons, fix=FIX)


def probe_method(method: ConfinementMethod) -> str:
    """Run a probe that tries to escape; return the method's failures, "" if there is none."""
    if bubblewrap.bwrap_path() is None:
        return "bubblewrap is not installed"
    with (
        tempfile.TemporaryDirectory(prefix="culmen-probe-") as folder,
        socket.create_server(("127.0.0.1", 0)) as port,
    ):
        layout = Layout(Path(folder) / "run")
        confinement = Confinement(layout, 0, SandboxSettings(), method.name, method.proc)
        layout.create_folders()
        layout.view.mkdir()
        prepare_folders(confinement)
        (layout.tree_folder(0) / ".culmen").mkdir(parents=True)
        worktree.set_tree_owner(layout.work_folder(0), confinement.owner)
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        secret.chmod(0o644)
        targets = {
            "secret": str(secret),
            "view": f"{confinement.tree}/.culmen",
            "port": port.getsockname()[1],
        }
        probe = [sys.executable, "-I", "-S", str(SCRIPTS / "probe.py"), json.dumps(targets)]
        return ", ".join(_probe_failures(confinement, probe))


def _probe_failures(confinement: Confinement, probe: Iterable[str]) -> list[str]:
    try:
        done = subprocess.run(
            confined_command(confinement, probe),
            env=agent_environment(confinement, {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30.0,
            check=False,
            cwd="/",
        )
        if done.returncode != 0:
            return [done.stderr.strip()[-300:] or "it ended early"]
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [f"{type(error).__name__}: {error}"]


def prepare_folders(confinement: Confinement) -> None:
    """Create the folders that a confinement needs beside its tree; existing ones are kept.

    They lie side by side in a folder that no agent can write, so none can be replaced by a link.
    """
    layout, agent = confinement.layout, confinement.agent
    for folder in (
        layout.home_folder(agent),
        layout.temporary_folder(agent),
        layout.shared_memory_folder(agent),
    ):
        folder.mkdir(parents=True, exist_ok=True)
    os.chmod(layout.work_folder(agent), 0o700)


# The world of an agent's processes: namespaces of their own in which only its work tree and HOME
# can be written.

TREE, HOME, GATEWAY = "/repo", "/home/agent", "/run/culmen/gateway"
SCRIPTS = Path(__file__).parent / "scripts"
MARK = "CULMEN_AGENT"  # variable that names a process's session, so that strays can be found
PORT = 4180  # port of the relay in the network namespace of a session
_ETC_ONLINE = ("resolv.conf", "hosts", "ssl", "ca-certificates", "pki", "gai.conf", "host.conf")
_FIRST_UID, _UIDS = 46_000, 19_000


@dataclass(frozen=True)
class Confinement:
    """Confinement of one session.

    method   "uid" (as root: a host uid of its own), "user" (a user namespace of its own), "" (none)
    proc     True if a fresh /proc can be mounted
    place    path of the work tree as the agent sees it
    view     True if the run's view is mounted in the work tree
    shown    further files and folders: (path here, path as the agent sees it, True if writable)
    path     folders that come first on PATH
    """

    layout: Layout
    agent: int
    settings: SandboxSettings
    method: str
    proc: bool = True
    visible: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False
    socket: Path | None = None
    place: str = TREE
    view: bool = True
    shown: tuple[tuple[str, str, bool], ...] = ()
    path: tuple[str, ...] = ()

    @property
    def tree(self) -> str:
        """The work tree's path as the agent sees it."""
        return self.place if self.method else str(self.layout.tree_folder(self.agent).resolve())

    @property
    def home(self) -> str:
        """HOME as the agent sees it."""
        return HOME if self.method else str(self.layout.home_folder(self.agent).resolve())

    @property
    def owner(self) -> int | None:
        """The user that owns the agent's files; None for the current user."""
        return uid_of(self.layout.run, self.agent) if self.method == "uid" else None

    @property
    def mark(self) -> str:
        """Value of MARK in the environment of the agent's processes."""
        return session_mark(self.layout.run, self.agent)


def session_mark(run: Path, agent: int) -> str:
    """Name of one session, unique on this machine."""
    return f"{zlib.crc32(os.fsencode(run.resolve())):08x}-{agent}"


def uid_of(run: Path, agent: int) -> int:
    """A host uid for one agent that no person has.

    The kernel counts processes by uid, so agents with their own cannot starve one another.
    """
    return _FIRST_UID + (zlib.crc32(os.fsencode(run.resolve())) + agent) % _UIDS


def agent_environment(
    confinement: Confinement, extra: Mapping[str, str], path: Iterable[str] = ()
) -> dict[str, str]:
    """The complete environment of an agent's process."""
    own = [*confinement.path, *path]
    folders = [*own, os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": ":".join(dict.fromkeys(folders)),
        "HOME": confinement.home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp"
        if confinement.method
        else str(confinement.layout.temporary_folder(confinement.agent).resolve()),
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
        MARK: confinement.mark,
    }


def confined_command(
    confinement: Confinement, argv: Iterable[str], relay_port: int = 0
) -> list[str]:
    """The complete command line that runs `argv` in the confinement.

    With `relay_port` its model calls are led to the gateway.
    """
    inner = list(argv)
    if relay_port and confinement.socket is not None:
        where = GATEWAY if confinement.method else str(confinement.socket)
        relay = str(bubblewrap.PACKAGE / "extensions" / "agents" / "gateway" / "relay.py")
        inner = [sys.executable, "-I", "-S", relay, where, str(relay_port), "--", *inner]
    limits = {
        "uid": confinement.owner,
        # unconfined, the limit would count all processes of the user
        "processes": confinement.settings.processes if confinement.method else 0,
        "file_mb": confinement.settings.file_mb,
        "die": not confinement.method,
    }
    inner = [sys.executable, "-I", "-S", str(SCRIPTS / "launch.py"), json.dumps(limits), *inner]
    return [*_bubblewrap_command(confinement), "--", *inner] if confinement.method else inner


def _namespace_options(confinement: Confinement) -> list[str]:
    line = ["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc"]
    line += ["--unshare-uts", "--hostname", "agent", "--cap-drop", "ALL"]
    line += [] if confinement.network else ["--unshare-net"]
    if confinement.method == "user":
        return [*line, "--unshare-user", "--uid", "1000", "--gid", "1000"]
    return [*line, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def _bubblewrap_command(confinement: Confinement) -> list[str]:
    line = [bubblewrap.bwrap_path() or "bwrap", *_namespace_options(confinement)]
    line += [
        *bubblewrap.system_arguments(),
        "--dev",
        "/dev",
        *(["--proc", "/proc"] if confinement.proc else []),
    ]
    for name in _ETC_ONLINE if confinement.network else ("ssl", "ca-certificates", "pki"):
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for folder, mount_point in (
        (confinement.layout.temporary_folder, "/tmp"),
        (confinement.layout.shared_memory_folder, "/dev/shm"),
    ):
        line += ["--bind", str(folder(confinement.agent)), mount_point]
    shown = (*bubblewrap.python_folders(), *confinement.visible)
    line += bubblewrap.read_only_arguments(shown)
    line += _mask_options(confinement.hidden, shown)
    created: set[str] = set()
    line += bubblewrap.parent_arguments(f"{HOME}/x", created)
    line += bubblewrap.parent_arguments(confinement.tree, created)
    line += [
        "--bind",
        str(confinement.layout.home_folder(confinement.agent)),
        HOME,
        "--bind",
        str(confinement.layout.tree_folder(confinement.agent)),
        confinement.tree,
    ]
    if confinement.view:
        line += ["--ro-bind", str(confinement.layout.view), f"{confinement.tree}/{VIEW}"]
    for path, mount_point, writable in confinement.shown:
        if not mount_point.startswith(f"{HOME}/"):
            line += bubblewrap.parent_arguments(mount_point, created)
        line += ["--bind" if writable else "--ro-bind", path, mount_point]
    if confinement.socket is not None:
        line += [
            *bubblewrap.parent_arguments(GATEWAY, set()),
            "--bind",
            str(confinement.socket),
            GATEWAY,
        ]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", confinement.tree]


def _mask_options(hidden: Iterable[str], shown: Iterable[str]) -> list[str]:
    """Options that cover hidden paths inside visible folders (a project that is its own venv)."""
    line: list[str] = []
    covered = [bubblewrap.HIDDEN + "/"]
    bases = [os.path.realpath(path).rstrip("/") + "/" for path in (*shown, "/usr")]
    for path in sorted({os.path.realpath(path) for path in hidden}):
        if not any(path.startswith(base) for base in bases) or path.startswith(tuple(covered)):
            continue  # nothing exists or can be created below a cover
        if os.path.isdir(path) and not any(
            base.startswith(path.rstrip("/") + "/") for base in bases
        ):
            line += ["--tmpfs", path, "--remount-ro", path]
            covered.append(path.rstrip("/") + "/")
        elif os.path.isfile(path):
            line += ["--ro-bind", os.devnull, path]
    return line


def port_of(base_url: str) -> int:
    """The port in the address of a relay; 0 if there is none."""
    return int(base_url.rpartition(":")[2]) if base_url else 0


def free_port() -> int:
    """A free port of this machine's loopback, for a relay that is not confined."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
