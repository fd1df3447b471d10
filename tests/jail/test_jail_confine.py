"""A forked child before it reads a candidate.

Its descriptors, limits and surroundings, and what it may touch.
"""

from __future__ import annotations

import json
import os
import random
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culmen.jail import confine, kernel, procfs
from culmen.jail.confine import ForkRequest, JailPolicy
from tests.jail.children import in_child, outcome

PLAIN = JailPolicy("limits")
MB = 1 << 20


def request(**given: Any) -> ForkRequest:
    fields = {
        "id": 1,
        "slot": 0,
        "seed": 5,
        "seconds": 2.0,
        "memory_mb": 256,
        "processes": 7,
        "files_mb": 3,
    }
    return ForkRequest(**{**fields, **given})


def arranged(log: Path, crossed: bool, line: bool, look: Callable[[], Any]) -> Any:
    """The value of `look` in a child after its descriptors were arranged.

    It leaves by the channel.
    """
    (here, there), (near, far) = socket.socketpair(), socket.socketpair()
    written = os.open(log, os.O_RDWR | os.O_CREAT)
    pid = os.fork()
    if pid == 0:
        try:
            given = [written, there.fileno(), far.fileno()]
            if crossed:  # the log where the channel belongs, the channel where the line does, the line at the log's
                parked = [os.dup2(fd, 100 + place) for place, fd in enumerate(given)]
                given = [
                    os.dup2(fd, place)
                    for fd, place in zip(parked, (confine.CHANNEL, confine.LINE, 1))
                ]
            confine.arrange_descriptors(given[1], given[0], given[2] if line else -1)
            os.write(confine.CHANNEL, json.dumps(look()).encode())
        finally:
            os._exit(0)
    for each in (there, far):
        each.close()
    os.close(written)
    with here, near:
        said, beside = here.recv(1000), near.recv(1000)
    os.waitpid(pid, 0)
    return json.loads(said), beside.decode()


def is_open(fd: int) -> bool:
    return not outcome(lambda: os.fstat(fd))


@pytest.mark.parametrize("crossed", [False, True], ids=["apart", "in each other's place"])
@pytest.mark.parametrize("line", [False, True], ids=["alone", "with a line"])
def test_descriptors_stand_in_their_places_and_all_others_are_closed(
    tmp_path: Path, crossed: bool, line: bool
) -> None:
    def look() -> dict[str, Any]:
        os.write(1, b"out ")
        os.write(2, b"error")
        if line:
            os.write(confine.LINE, b"other")
        return {"input": os.read(0, 1).decode(), "open": [fd for fd in range(200) if is_open(fd)]}

    said, beside = arranged(tmp_path / "log", crossed, line, look)
    assert said == {
        "input": "",
        "open": [0, 1, 2, confine.CHANNEL, *([confine.LINE] if line else [])],
    }
    assert (tmp_path / "log").read_text() == "out error" and beside == ("other" if line else "")


@pytest.mark.parametrize("hard", [True, False], ids=["for ever", "until it raises them"])
def test_limits_are_those_of_the_request(hard: bool) -> None:
    policy = JailPolicy("limits", switch="user", baseline=10 * MB)

    def work() -> dict[str, list[int]]:
        confine.set_limits(policy, request(), hard=hard)
        names = ("CORE", "CPU", "DATA", "AS", "FSIZE", "NOFILE", "NPROC", "STACK")
        return {
            name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in names
        }

    found = in_child(work)
    cpu = 2 * (os.cpu_count() or 1) + 1
    assert {name: soft for name, (soft, _) in found.items()} == {
        "CORE": 0,
        "CPU": cpu,
        "DATA": 266 * MB,
        "AS": 1290 * MB,
        "FSIZE": 3 * MB,
        "NOFILE": 256,
        "NPROC": 7,
        "STACK": 8 * MB,
    }
    assert {name for name, (soft, top) in found.items() if soft == top} == (
        set(found) if hard else set()
    ) | ({name for name, (soft, top) in found.items() if soft == top == 0})


def test_processes_of_a_shared_user_are_added_to_the_childs() -> None:
    def work() -> list[int]:
        running = procfs.processes_of(os.getuid(), 0.0)
        confine.set_limits(PLAIN, request(processes=50))
        return [running, resource.getrlimit(resource.RLIMIT_NPROC)[0]]

    running, limit = in_child(work)
    assert running > 0 and abs(limit - running - 50) < running  # others come and go meanwhile


def test_a_limit_is_never_above_the_one_that_holds_already() -> None:
    taken = set(map(int, os.listdir("/proc/self/fd")))
    low = max([n for n in range(1024) if n not in taken][:32]) + 1  # room for some more

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, low))
        confine.set_limits(PLAIN, request())
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    assert in_child(work) == low


@pytest.mark.parametrize(("level", "temporary"), [("namespaces", "/tmp"), ("restricted", "")])
def test_surroundings_are_the_same_whoever_asks(tmp_path: Path, level: str, temporary: str) -> None:
    policy = JailPolicy(level, environment={"GIVEN": "1"})

    def work() -> dict[str, Any]:
        os.environ["LEAK"] = "secret"
        os.umask(0o077)
        confine.set_surroundings(policy, request(work=str(tmp_path)))
        return {
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "umask": os.umask(0),
            "drawn": random.random(),
        }

    said = in_child(work)
    assert in_child(work)["drawn"] == said["drawn"]
    assert said["env"] == {
        "GIVEN": "1",
        "HOME": str(tmp_path),
        "TMPDIR": temporary or str(tmp_path),
    }
    assert (said["cwd"], said["umask"]) == (str(tmp_path), 0o022)


def test_numpy_draws_from_the_seed_too(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")

    def drawn(seed: int) -> float:
        def work() -> float:
            confine.set_surroundings(PLAIN, request(work=str(tmp_path), seed=seed))
            return float(numpy.random.random())

        return in_child(work)

    # numbers that seeding with 9 would give are not its stream
    assert drawn(9) == drawn(9) not in (drawn(10), numpy.random.RandomState(9).random_sample())


@pytest.mark.jail
@pytest.mark.skipif(not kernel.landlock_version(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("blind", [False, True], ids=["sees", "blind"])
def test_a_confined_child_has_its_work_folder_and_what_it_may_read(
    tmp_path: Path, blind: bool
) -> None:
    """The whole confinement at level restricted: a session of its own, Landlock, the filter."""
    for name in ("work", "shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note").write_text(name)
    shown, work = str(tmp_path / "shown"), str(tmp_path / "work")
    policy = JailPolicy("restricted", readable=(shown, "/usr", "/lib"), unshut=("/usr", "/lib"))
    look = {
        "own": lambda: Path("note").write_text("changed"),
        "shown": (tmp_path / "shown" / "note").read_text,
        "write": lambda: (tmp_path / "shown" / "note").write_text("changed"),
        "hidden": (tmp_path / "hidden" / "note").read_text,
        "socket": lambda: socket.socket().close(),
        "trace": lambda: kernel.unshare(kernel.CLONE_NEWUSER),
    }
    here, there = socket.socketpair()

    def work_in_child() -> dict[str, Any]:
        os.dup2(there.fileno(), confine.HANDOVER)
        confinement = confine.ChildConfinement(policy)
        confinement.prepare(request(work=work, blind=blind))
        os.dup2(confinement.ruleset, confine.RULES)
        confinement.confine()
        return {
            **{name: outcome(call) for name, call in look.items()},
            "leader": os.getsid(0) == os.getpid(),
        }

    with here, there:
        said = in_child(work_in_child)
    assert said == {
        "own": "",
        "shown": "EACCES" if blind else "",
        "write": "EACCES",
        "hidden": "EACCES",
        "socket": "EPERM",
        "trace": "EPERM",
        "leader": True,
    }
