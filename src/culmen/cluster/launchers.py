"""Places where workers of a queue are started: accounts reached by SSH, and sandboxes.

Both run one shell script in the place. It comes over standard input, and with it the token and the
password: no list of processes has them, and no file. A worker's folder there holds the number of
its process and its log.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple, Protocol

from culmen.core.errors import UserError
from culmen.core.options import parse_amount
from culmen.core.ports import SandboxProvider, SandboxSpec

_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
_SSH_FAILED = 255
_SCRIPT_SECONDS = 60.0
_HOST = re.compile(r"[^-\s]\S*")
_MARK = "culmen-launch:"  # before what a script reports: login shells may print more
_REFUSALS = (
    ("Host key verification failed", "log in once by hand, and look at its key: ssh {host}"),
    ("Permission denied", "let a key log in without a question: ssh-copy-id {host}, or ssh-add"),
)


@dataclass(frozen=True)
class WorkerOrder:
    """A worker to be started: its command, its secret variables, a root certificate or b""."""

    argv: Sequence[str]
    secrets: Mapping[str, str]
    root: bytes = b""


class WorkerLook(NamedTuple):
    """A worker seen from its place: True if it has ended, and its last words."""

    has_ended: bool
    words: str


class NothingStarted(UserError):
    """The place was not reached, or refused: there is nothing to stop."""


class Launcher(Protocol):
    """A place for workers. A worker has a label, which nothing else has there.

    `place` names it in the queue's table; `launch.find_launcher` gives it again. All raise
    `UserError`, or `TimeoutError` if the place does not answer.
    """

    place: str

    def start(self, label: str, order: WorkerOrder) -> None:
        """Start a worker that goes on by itself."""
        ...

    def look(self, label: str) -> WorkerLook:
        """Look at a worker; one that is not there has ended."""
        ...

    def stop(self, label: str) -> None:
        """Let a worker give back what it has, and end it; no-op if it is not there."""
        ...


_FOLDER = 'umask 077; folder="${HOME:-/tmp}/.cache/culmen/workers/%s"'
_ALIVE = """
started() { { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 1
    set -- ${line##*) }; [ "$1" != Z ] && echo "${20}"; }
alive() { { read -r pid start < "$folder/process"; } 2>/dev/null || return 1
    [ -n "$start" ] && [ "$(started "$pid")" = "$start" ]; }
"""
_START = """
command -v %(program)s >/dev/null || { echo "%(mark)s missing"; exit 0; }
mkdir -p "$folder" && cd "$folder" || exit 1
trap '' HUP
(umask 022; cd /; exec %(command)s) </dev/null >log 2>&1 &  # jails need readable folders
echo "$! $(started $!)" > process && echo "%(mark)s started"
"""
_LOOK = """
alive && state=runs || state=ended
echo "%s $state"
{ tail -c 2000 "$folder/log"; } 2>/dev/null
"""
_STOP = """
if alive; then
    kill -TERM "$pid"; turns=0
    while alive && [ $turns -lt 100 ]; do sleep 0.2; turns=$((turns + 1)); done
    if alive; then kill -KILL "$pid"; fi
fi
rm -rf "$folder" && echo "%s stopped"
"""


class ShellLauncher:
    """A launcher in places that run a shell script; `_run_script` is the way there."""

    place: str

    def start(self, label: str, order: WorkerOrder) -> None:
        """Start a worker in the background of the place."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in order.secrets.items()]
        if order.root:
            text = shlex.quote(order.root.decode())
            lines += ['mkdir -p "$folder"', f'printf %s {text} > "$folder/root.crt"']
            lines += ['export PGSSLROOTCERT="$folder/root.crt"']
        program, command = shlex.quote(order.argv[0]), shlex.join(order.argv)
        script = _START % {"program": program, "command": command, "mark": _MARK}
        report = self._report(label, "\n".join(lines) + script)
        if report.startswith("missing"):
            install = f"pip install 'culmen[postgres]=={version('culmen')}' there"
            fix = f"{install}, or name it with --program"
            raise UserError(f"there is no program '{order.argv[0]}'", where=self.place, fix=fix)

    def look(self, label: str) -> WorkerLook:
        """Look at a worker's process and log."""
        state, _, log = self._report(label, _LOOK % _MARK).partition("\n")
        return WorkerLook(state != "runs", log.strip())

    def stop(self, label: str) -> None:
        """End a worker, and remove its folder."""
        self._report(label, _STOP % _MARK)

    def _report(self, label: str, script: str) -> str:
        """The part of a script's output that is its report."""
        # in braces: a script that was cut off on its way does nothing
        whole = f"{{\n{_FOLDER % label}{_ALIVE}{script}exit 0\n}}\n"
        output, errors = self._run_script(label, whole)
        _, mark, report = output.partition(_MARK)
        if not mark:
            what = f"the shell there failed: {errors.strip()[-500:]}"
            fix = "it needs a POSIX shell, a /proc, and a HOME or /tmp that can be written"
            raise UserError(what, where=self.place, fix=fix)
        return report.strip(" ")

    def _run_script(self, label: str, script: str) -> tuple[str, str]:
        """Standard output and error of a script that a shell ran in the place."""
        raise NotImplementedError


class SshLauncher(ShellLauncher):
    """An account reached by the system's `ssh`, as the user's configuration has it."""

    def __init__(self, host: str, settings: Mapping[str, str]) -> None:
        if not _HOST.fullmatch(host):
            raise UserError(f"'{host}' is no host", where="--on", fix="write ssh:HOST")
        if settings:
            fix = "write it into ~/.ssh/config"
            raise UserError(f"ssh has no setting '{min(settings)}'", where="--set", fix=fix)
        self.place, self._host = f"ssh:{host}", host

    def _run_script(self, label: str, script: str) -> tuple[str, str]:
        try:
            ran = subprocess.run(
                [*_SSH, "--", self._host, "sh"],
                input=script.encode(),
                capture_output=True,
                timeout=_SCRIPT_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            fix = "install OpenSSH's client"
            raise NothingStarted("there is no program ssh", where=self.place, fix=fix) from None
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no answer within {_SCRIPT_SECONDS:.0f} s") from None
        output, errors = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
        if ran.returncode == _SSH_FAILED and _MARK not in output:
            usual = f"make this work: ssh -o BatchMode=yes {self._host} true"
            fixes = (fix.format(host=self._host) for sign, fix in _REFUSALS if sign in errors)
            last = errors.strip().rpartition("\n")[2].strip()
            raise NothingStarted(f"ssh failed: {last}", where=self.place, fix=next(fixes, usual))
        return output, errors


class SandboxLauncher(ShellLauncher):
    """Sandboxes of a provider, one for each worker."""

    def __init__(
        self, kind: str, provider: SandboxProvider, image: str, settings: Mapping[str, str]
    ) -> None:
        self.place, self._provider, self._image = f"{kind}:{provider.place}", provider, image
        sizes = {name: parse_amount(name, settings[name], "--set") for name in _sizes(settings)}
        self._memory_mb, self._cpus = int(sizes.get("memory", 0) / 2**20), sizes.get("cpu", 0.0)
        self._settings = {name: settings[name] for name in settings if name not in sizes}

    def start(self, label: str, order: WorkerOrder) -> None:
        """Make a sandbox, and start the worker in it."""
        sizes = (self._memory_mb, self._cpus)
        self._provider.create(SandboxSpec(label, self._image, *sizes, True, self._settings))
        super().start(label, order)

    def look(self, label: str) -> WorkerLook:
        """Look at a worker; its sandbox may have ended, too."""
        try:
            return super().look(label)
        except UserError as error:
            return WorkerLook(True, error.what)

    def stop(self, label: str) -> None:
        """End a worker, and delete its sandbox."""
        with contextlib.suppress(UserError, TimeoutError):  # it goes with its sandbox
            super().stop(label)
        self._provider.find(label).delete()

    def _run_script(self, label: str, script: str) -> tuple[str, str]:
        sandbox = self._provider.find(label)
        ran = sandbox.run(["/bin/sh"], stdin=script.encode(), seconds=_SCRIPT_SECONDS)
        return ran.output.decode(errors="replace"), ran.errors.decode(errors="replace")


def _sizes(settings: Mapping[str, str]) -> list[str]:
    return [name for name in ("cpu", "memory") if name in settings]
