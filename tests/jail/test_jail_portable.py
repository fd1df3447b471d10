"""A system without Linux's own calls, as a Mac is, shown on Linux by taking them away.

In a mount namespace there is no /proc, and every Python lacks the calls, by a `sitecustomize`
laid over its packages. What only a Mac has, as sandbox-exec, is not shown by this.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from culmen.core.errors import IsolationError
from culmen.core.evaluation import Status
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.local import LocalBackend
from culmen.jail.portable import PortableJail, sandbox_profile
from tests.evaluate.conftest import Ground, wait_until

pytestmark = pytest.mark.jail
SITE = """
import ctypes, fcntl, os, resource, socket
for module, names in ((os, "pipe2 pidfd_open sched_getaffinity sched_setaffinity"), (socket, "SOCK_SEQPACKET"),
                      (fcntl, "F_SETSIG"), (resource, "RLIMIT_MSGQUEUE prlimit")):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
_old = ctypes.CDLL.__getattr__
def _getattr(self, name):
    if name in ("prctl", "unshare", "setns", "mount", "umount2", "syscall", "capset", "inotify_init1"):
        raise AttributeError(name)
    return _old(self, name)
ctypes.CDLL.__getattr__ = _getattr
"""
WITHOUT = """
mount -t overlay none -o lowerdir={patch}:{site} {site} || exit 99
mount -t tmpfs none /proc && mount -t tmpfs none /sys || exit 99
exec "$@"
"""
SCORE = "def score(output):\n    return output if isinstance(output, (int, float)) else 0.0\n"
TASK = 'goal = "a large number"\n[seed]\nfiles = ["program.py"]\n[limits]\nseconds = 5\n'
FUNCTION = """
import culmen
def score(text):
    space = {}
    exec(text, space)
    if space["x"] > 5: raise ValueError("too much")
    return space["x"]
if __name__ == "__main__":
    study = culmen.optimize("x = 1.0", score, budget=4, progress=False, run_dir="f")
    print(study.best.score, study.status.isolation)
"""


@pytest.fixture
def without(tmp_path: Path):
    """Runs a Python command line on a system without Linux's calls."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting over /proc needs root")
    patch = tmp_path / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(SITE)
    script = WITHOUT.format(patch=patch, site=sysconfig.get_path("purelib"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, *words]
        return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)

    if run(
        "-c", "import os; assert not hasattr(os, 'pipe2') and not os.listdir('/proc')"
    ).returncode:
        pytest.skip("no overlay can be mounted here")
    return run


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK)
    (folder / "program.py").write_text("def run():\n    x = 1.0\n    return x\n")
    (folder / "evaluator.py").write_text(SCORE)
    return folder


@pytest.mark.slow
def test_doctor_check_run_and_functions_work_without_linux(
    without, task: Path, tmp_path: Path
) -> None:
    culmen = ("-m", "culmen.cli.main")
    report = json.loads(without(*culmen, "doctor", "--json").stdout)
    assert report["level"] == "portable" and set(report["levels"]) == {
        "container",
        "seatbelt",
        "portable",
    }
    assert report["levels"]["portable"]["probes"]["time limit"] == "PASS"
    checked = without(*culmen, "check", str(task), "--times", "2", "--json")
    found = json.loads(checked.stdout)
    assert (found["isolation"], found["trust"]) == ("portable", "self-reported"), checked.stderr
    ran = without(
        *culmen, "run", str(task), "--budget", "evaluations=3", "--run-dir", "r", "--quiet"
    )
    assert ran.returncode == 0, ran.stderr
    refused = without(*culmen, "check", str(task), "--require", "restricted")
    assert refused.returncode == 5 and "--isolation container" in refused.stderr
    (tmp_path / "function.py").write_text(FUNCTION)
    called = without("function.py")
    assert called.returncode == 0 and called.stdout.split()[-1] == "portable", (
        called.stdout + called.stderr
    )


def test_windows_is_told_of_wsl() -> None:
    code = "import sys; sys.platform = 'win32'; import culmen"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "on Windows use WSL" in ran.stderr


def test_limits_hold_for_a_portable_child_and_its_group_ends_with_it(ground) -> None:
    arena: Ground = ground(
        SCORE, "portable", limits=Limits(seconds=1.0, memory_mb=256, processes=64), packages=()
    )
    spin, hog, fine = arena.evaluate(
        "def run():\n    while True: pass",
        "import time\ndef run():\n    x = bytearray(1 << 29); time.sleep(5); return 9",
        "def run(): return 2",
    )
    assert spin.status is Status.TIMEOUT and hog.score is None and fine.score == 2.0
    assert fine.trust == "self-reported"
    nap = f"{600 + time.time() % 1:.9f}"
    arena.one(
        f"import os\ndef run():\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '{nap}'])\n    return 1"
    )
    said = lambda: subprocess.run(["pgrep", "-f", nap], capture_output=True, check=False).stdout  # noqa: E731
    assert wait_until(lambda: not said())


def test_sandbox_exec_is_asked_for_on_a_mac_only_and_its_profile_names_the_folders(
    tmp_path: Path,
) -> None:
    task = Task("t", evaluator=Evaluator(path=str(tmp_path / "evaluator.py")), limits=Limits())
    (tmp_path / "evaluator.py").write_text(SCORE)

    async def start() -> None:
        backend = LocalBackend(task, 1, level="seatbelt")
        await backend.start()

    with pytest.raises(IsolationError, match="seatbelt"):
        asyncio.run(start())
    text = sandbox_profile(str(tmp_path), ('/a "quoted" place',))
    assert text.count("(") == text.count(")") and '(subpath "/a \\"quoted\\" place")' in text
    assert "network" not in text and "(deny default)" in text


def test_a_process_that_cannot_be_started_is_a_lost_evaluation() -> None:
    def fails(*_: object) -> int:
        raise OSError("no more processes")

    async def work() -> str:
        jail = PortableJail(begin=fails)
        await jail.start()
        ours, theirs = socket.socketpair()
        _, end = jail.submit(
            theirs, 1, slot=0, seed=0, seconds=1.0, memory_mb=1, processes=1, files_mb=1
        )
        ours.close()
        theirs.close()
        return (await end).end

    assert asyncio.run(work()) == "jail_error"
