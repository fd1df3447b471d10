"""Isolation levels, and the one in force: programs that try to escape from a started jail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError, IsolationError, UserError
from culmen.core.evaluation import Case
from culmen.core.extensions import part_addresses
from culmen.core.json import JsonObject
from culmen.core.task import Evaluator, Limits, Task
from culmen.jail import bubblewrap, kernel, portable, spoken, wire
from culmen.jail.evaluation import JailedEvaluation
from culmen.jail.fork_server import Jail, JailFailed
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.portable import PortableJail
from culmen.jail.scorer_pool import ScorerPool

# strongest first
LEVELS = ("namespaces", "container", "restricted", "seatbelt", "limits", "portable", "none")

LOSSES = {
    "namespaces": "nothing that the probes check",
    "container": "no multiprocessing locks; files are limited in total by looking at them",
    "restricted": (
        "no namespaces: no multiprocessing locks, a shared process count; files are limited in "
        "total by looking at them"
    ),
    "limits": (
        "files, network, processes and signals are open to candidates; only limits of time, "
        "memory and counts hold"
    ),
    "seatbelt": "macOS's sandbox-exec, not tested yet: scores are self-reported",
    "portable": (
        "as at level limits, and a process that leaves its group survives; limits that the system "
        "lacks do not hold"
    ),
    "none": "everything: candidates run with your rights",
}

FIX = (
    "install bubblewrap (Debian and Ubuntu: apt install bubblewrap); Ubuntu 24.04 also needs "
    "an AppArmor profile that allows it user namespaces; in Docker add --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN; or "
    "lower --require; or name an image and use podman or docker: --isolation container"
)
if not kernel.LINUX:
    FIX = (
        'install podman or docker, name an image in task.toml ([evaluator] image = "..."), use '
        "--isolation container"
    )

PASS, NOT_ENFORCED = "PASS", "NOT ENFORCED"
_LIMITS = Limits(seconds=10.0, memory_mb=256, processes=16, files_mb=8)
_PROGRAM = Candidate.of(
    {"probe": (Path(__file__).parent / "probe_program.py").read_text(encoding="utf-8")}
)
T = TypeVar("T")


def level_rank(level: str) -> int:
    """Rank of a level, 0 for the strongest; raise UserError for an unknown name."""
    if level not in LEVELS:
        raise UserError(
            f"there is no isolation level {level!r}", fix=f"use one of {', '.join(LEVELS)}"
        )
    return LEVELS.index(level)


def known_level(level: str) -> str:
    """The level of this name; raise UserError if there is none."""
    return LEVELS[level_rank(level)]


def separates_processes(level: str) -> bool:
    """True if a candidate at this level cannot access other processes and their files."""
    return level_rank(level) <= level_rank("restricted")


def require_level(level: str, require: str | None, why: dict[str, str]) -> None:
    """Raise IsolationError if `level` is below `require`.

    `why` maps each stronger level to the reason that it failed.
    """
    if require is not None and level_rank(level) > level_rank(require):
        reasons = "; ".join(f"{name}: {text}" for name, text in why.items())
        raise IsolationError(
            f"isolation level {require} is required, {level} is in force", where=reasons, fix=FIX
        )


class Targets(msgspec.Struct):
    """Decoys on this machine that a candidate must not reach; `values` locates them."""

    values: JsonObject


@contextlib.asynccontextmanager
async def probe_targets(*, victim: bool) -> AsyncIterator[Targets]:
    """Harmless decoys, removed at the end.

    A secret file, listening sockets and (with `victim`) a process holding a key.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="culmen-probe-")))
        folder.chmod(0o777)
        (folder / "secret").write_text("secret")
        (folder / "secret").chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        named = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        named.bind(str(folder / "s"))
        (folder / "s").chmod(0o777)
        abstract = f"culmen-probe-{secrets.token_hex(8)}"
        if kernel.LINUX:
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind("\0" + abstract)
            unix.listen()
        key, pid = f"key-{secrets.token_hex(8)}", os.getpid()
        if victim:
            process = subprocess.Popen(["/bin/sleep", "600"], env={"PROBE_KEY": key})
            stack.callback(process.wait)
            stack.callback(process.kill)
            pid = process.pid
        yield Targets(
            {
                "secret": str(folder / "secret"),
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                "abstract": abstract,
                "unix": str(folder / "s"),
                "key": key,
                "victim": pid,
                "memory_mb": _LIMITS.memory_mb,
                "processes": _LIMITS.processes,
                "files_mb": _LIMITS.files_mb,
                "shm_key": secrets.randbelow(1 << 30) + 1,
                "nap": f"{600 + secrets.randbelow(10**9) / 1e9:.9f}",
            }
        )


async def verify_jail(jail: Jail) -> None:
    """Run the fast subset of probes; raise JailFailed if the started jail does not confine."""
    async with probe_targets(victim=False) as targets:
        results = await _run_probe(jail, "quick", targets)
    broken = [name for name, held in results.items() if not held]
    if broken and jail.level not in ("limits", "portable"):
        raise JailFailed(f"not enforced: {', '.join(broken)}")


async def _run_probe(jail: Jail, entry: str, targets: Targets, limits: Limits = _LIMITS) -> Any:
    """The answer of an entry of the probe program, whose text is trusted."""
    evaluator = Evaluator(entry=entry, module="probe")
    task = Task("probe", evaluator=evaluator, limits=limits)
    with JailedEvaluation(task, jail, _PROGRAM, Case("probe", targets.values), 0) as run:
        result = await run.perform(0, ScorerPool(evaluator, limits))
    if isinstance(result, EvaluationOutcome):
        raise JailFailed(f"{result.reason}: {result.feedback}".strip())
    return wire.decode(result)


async def probe_level(level: str, image: str = "") -> dict[str, str]:
    """All probes at one level: name -> PASS or NOT ENFORCED.

    Raises JailFailed if the level is not available, by the same probes as at every start.
    """
    if level == "container":
        jail: Jail = spoken.container_level().ContainerJail(image, _LIMITS, 1)
    else:
        jail = plain_jail(level)
    try:
        await jail.start()
        await verify_jail(jail)
        async with probe_targets(victim=True) as targets:
            results = await _run_probe(jail, "run", targets)
            results["time limit"] = await _enforces_time_limit(jail, targets)
            results["total file limit"] = await _enforces_file_limit(jail, targets)
            with contextlib.suppress(JailFailed):
                await _run_probe(jail, "linger", targets)
            results["daemons left behind"] = not _kill_leftover_daemon(targets.values["nap"])
            results["shared memory left behind"] = not _remove_leftover_segment(
                targets.values["shm_key"]
            )
    finally:
        await jail.close()
    return {name: PASS if held else NOT_ENFORCED for name, held in results.items()}


async def _enforces_time_limit(jail: Jail, targets: Targets) -> bool:
    try:
        await _run_probe(jail, "spin", targets, Limits(seconds=0.2))
    except JailFailed as error:
        return str(error).startswith("timeout")
    return False


async def _enforces_file_limit(jail: Jail, targets: Targets) -> bool:
    try:
        return bool(await _run_probe(jail, "fill_disk", targets))
    except JailFailed as error:
        return str(error).startswith("files_limit")


def _kill_leftover_daemon(nap: str) -> bool:
    for name in filter(str.isdigit, os.listdir("/proc") if kernel.LINUX else ()):
        with contextlib.suppress(OSError):
            if nap.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                os.kill(int(name), 9)
                return True
    return False


def _remove_leftover_segment(key: int) -> bool:
    """True if a System V segment of this key is left in the machine's namespace; remove it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
            if int(line.split()[0]) == key:
                subprocess.run(["ipcrm", "-M", str(key)], check=False, capture_output=True)
                return True
    return False


def tried_levels(image: str = "") -> list[str]:
    """The possible levels of this system, strongest first; container only with an image."""
    known = [
        name for name in LEVELS[:-1] if name != "container" or (image and part_addresses("jails"))
    ]
    if kernel.LINUX:
        return [name for name in known if name not in portable.LEVELS]
    return [name for name in known if name in (*portable.LEVELS, "container")]


def plain_jail(
    level: str,
    packages: tuple[str, ...] = (),
    visible: tuple[str, ...] = (),
    shut: tuple[str, ...] = (),
) -> Jail:
    """A jail by this machine's own mechanisms, not yet started."""
    kind = PortableJail if level in portable.LEVELS else Jail
    return kind(level, packages, visible, shut)


async def _probe_all_levels(image: str) -> JsonObject:
    report: JsonObject = {}
    for level in tried_levels("an image"):
        try:
            report[level] = {
                "works": True,
                "loses": LOSSES[level],
                "probes": await probe_level(level, image),
            }
        except (JailFailed, CulmenError) as error:
            report[level] = {"works": False, "why": str(error), "probes": {}}
    return report


def isolation_report(image: str = "") -> JsonObject:
    """The report for `doctor`.

    Python, kernel, mechanisms present, the level in force, and every probe at every level. The
    container level is probed only with an `image`, and is never the level in force, since no task
    has requested it.
    """
    tried = _run_in_thread(_probe_all_levels(image))
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "mechanisms": {
            "bubblewrap": bubblewrap.bwrap_path() or "",
            "containers": next(filter(None, map(shutil.which, ("podman", "docker"))), ""),
            "landlock": kernel.landlock_version(),
            "seccomp": Path("/proc/sys/kernel/seccomp").is_dir(),
            "cgroup2": Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        },
        "level": next(
            (name for name in tried if name != "container" and tried[name]["works"]), LEVELS[-1]
        ),
        "levels": tried,
        "fix": FIX,
    }


def _run_in_thread(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end, even if this thread already runs a loop."""
    box: list[T | BaseException] = []

    def body() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread
            box.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]
