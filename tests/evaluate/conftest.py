"""Real backends on real processes, one event loop per group of tests."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.jail import procfs
from culmen.evaluate.jail.fork_server import MARK, Jail, JailFailed
from culmen.evaluate.local import LocalBackend

FAKE_KEY = "sk-fake-0123456789"
LIMITS = Limits(seconds=1.5, memory_mb=256, processes=24, files_mb=16, output_kb=256, scorer_seconds=10.0)


@cache
def available(level: str) -> str:
    """ "" if a jail of this level starts here, else why not."""

    async def attempt() -> str:
        jail = Jail(level)
        try:
            await jail.start()
            return ""
        except JailFailed as error:
            return str(error)
        finally:
            await jail.close()

    return asyncio.run(attempt())


def need(level: str) -> None:
    """Skip where the machine lacks the mechanism."""
    why = available(level)
    if why:
        pytest.skip(f"level {level} cannot be had here: {why}")


class Ground:
    """A backend with its loop, and things around it that candidates must not touch."""

    def __init__(self, task: Task, level: str, workers: int = 2) -> None:
        self.task = task
        self.runner = asyncio.Runner()
        self.backend = LocalBackend(task, workers, level=level)
        self.level = self.runner.run(self.backend.start())

    def evaluate(self, *programs: str | dict[str, str], case: Case | None = None, seed: int = 1) -> list[Observation]:
        """All programs at once."""

        async def work() -> list[Observation]:
            candidates = [Candidate.of({"program.py": p} if isinstance(p, str) else p) for p in programs]
            return list(await asyncio.gather(*(self.backend.evaluate(c, case, seed) for c in candidates)))

        return self.runner.run(work())

    def one(self, program: str | dict[str, str], case: Case | None = None, seed: int = 1) -> Observation:
        """One program."""
        return self.evaluate(program, case=case, seed=seed)[0]

    def processes(self) -> list[int]:
        """Everything that descends from the fork-server, without itself and its wrapper."""
        jail = self.backend._jail
        if jail is None or jail._process is None:
            return []
        keep = {jail._process.pid}
        if self.level == "namespaces":  # bubblewrap first, the fork-server is its child
            keep |= set(procfs.children(jail._process.pid))
        return [pid for pid in procfs.marked(f"{MARK}={os.path.basename(jail.scratch)}") if pid not in keep]

    def close(self) -> None:
        self.runner.run(self.backend.close())
        self.runner.close()


class Grounds:
    """Makes grounds from an evaluator's source text; `shared` ones are kept for the same source and settings."""

    def __init__(self, folders: pytest.TempPathFactory, *, shared: bool) -> None:
        self.folders, self.shared = folders, shared
        self.made: dict[str, Ground] = {}

    def __call__(
        self, source: str, level: str = "namespaces", limits: Limits = LIMITS, workers: int = 2,
        beside: dict[str, str] | None = None, seeds: tuple[dict[str, str], ...] = (), **evaluator: Any,
    ) -> Ground:  # fmt: skip
        need(level)
        key = repr((source, level, limits, workers, beside, seeds, evaluator, None if self.shared else len(self.made)))
        if key not in self.made:
            folder = self.folders.mktemp("ground")
            for name, text in {"evaluator.py": source, **(beside or {})}.items():
                (folder / name).write_text(text)
            spec = Evaluator(path=str(folder / "evaluator.py"), digest="d" * 8, **evaluator)
            self.made[key] = Ground(Task("test", evaluator=spec, seeds=seeds, limits=limits), level, workers)
        return self.made[key]

    def close(self) -> None:
        for ground in self.made.values():
            ground.close()


@pytest.fixture
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Fresh backends, for tests that break them."""
    grounds = Grounds(tmp_path_factory, shared=False)
    yield grounds
    grounds.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Backends that serve the whole module: starting one takes longer than most tests."""
    grounds = Grounds(tmp_path_factory, shared=True)
    yield grounds
    grounds.close()


class Surroundings:
    """A run folder, a task folder with a hidden answer, listeners, a bystander process with a key."""

    def __init__(self, folder: Path, source: str) -> None:
        self.run_folder, self.task_folder = folder / "run", folder / "task"
        for each in (self.run_folder, self.task_folder):
            each.mkdir()
            each.chmod(0o777)
        (self.run_folder / "journal").write_text("precious")
        (self.task_folder / "seed.py").write_text("def honest(): pass")
        self.evaluator = self.task_folder / "evaluator.py"
        self.evaluator.write_text(source)
        for path in (self.run_folder / "journal", self.task_folder / "seed.py", self.evaluator):
            path.chmod(0o666)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.name = f"culmen-test-{os.getpid()}-{id(self)}"
        self.abstract.bind("\0" + self.name)
        self.abstract.listen()
        self.sockets = tempfile.TemporaryDirectory(prefix="culmen-s-")  # a path of a socket must be short
        os.chmod(self.sockets.name, 0o777)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(f"{self.sockets.name}/stream")
        self.unix.listen()
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(f"{self.sockets.name}/datagram")
        for path in (self.unix.getsockname(), self.datagrams.getsockname()):
            os.chmod(path, 0o777)
        self.listeners = {
            "tcp": self.tcp, "abstract": self.abstract, "unix": self.unix, "udp": self.udp, "datagram": self.datagrams
        }  # fmt: skip
        for listener in self.listeners.values():
            listener.setblocking(False)
        self.victim = subprocess.Popen(["/bin/sleep", "600"], env={"OPENAI_API_KEY": FAKE_KEY})
        self.before = self.state()

    def target(self) -> dict[str, Any]:
        """All that an attacker could wish to know."""
        return {
            "values": [3.0, 1.0, 2.0], "orchestrator": os.getpid(), "victim": self.victim.pid,
            "tcp": self.tcp.getsockname()[1], "udp": self.udp.getsockname()[1], "abstract": self.name,
            "unix": self.unix.getsockname(), "unix_datagram": self.datagrams.getsockname(),
            "run_folder": str(self.run_folder), "task_folder": str(self.task_folder), "hint": "hidden-answer",
            "processes": LIMITS.processes, "files_mb": LIMITS.files_mb,
        }  # fmt: skip

    def state(self) -> dict[str, tuple[str, int, int, int]]:
        """Every file: what is in it, its mode, its owner and when it was changed; folders without their times."""
        found = {}
        for path in (self.run_folder, self.task_folder, *self.run_folder.rglob("*"), *self.task_folder.rglob("*")):
            if path.suffix != ".pyc" and path.name != "__pycache__":
                info, plain = path.stat(), path.is_file()
                text = path.read_text() if plain else ""
                found[str(path)] = (text, info.st_mode, info.st_uid, info.st_mtime_ns if plain else 0)
        return found

    def visited(self) -> list[str]:
        """Listeners that somebody reached."""
        reached = []
        for name, listener in self.listeners.items():
            try:
                listener.recv(100) if listener.type == socket.SOCK_DGRAM else listener.accept()
                reached.append(name)
            except BlockingIOError:
                pass
        return reached

    def untouched(self) -> None:
        """Assert that nothing changed and nobody called."""
        assert self.state() == self.before
        assert self.visited() == []
        assert self.victim.poll() is None

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self.listeners.values():
            listener.close()
        self.sockets.cleanup()


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll; the deadline is only there to fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return true()


def texts(observation: Observation) -> str:
    """Everything an observation says."""
    return json.dumps([observation.feedback, observation.artifacts, observation.metrics])
