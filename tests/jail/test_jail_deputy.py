"""Calls that the fork-server makes for a child whose filter refuses them.

They act inside the child's work folder, nowhere else.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culmen.jail.deputy import Deputy
from culmen.jail.seccomp import SyscallFilter
from tests.jail.children import outcome

pytestmark = pytest.mark.jail
Asks = Callable[[], Any]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work folder with a file and ways out.

    One link is to a file outside, one to the folder above.
    """
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    (tmp_path / "outside").write_text("outside")
    for path in (folder / "mine", tmp_path / "outside"):
        path.chmod(0o600)
        os.utime(path, (1000, 1000))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "up").symlink_to(tmp_path)
    return folder


def ask(work: Path, calls: Asks, *, streams: bool = False, answered: bool = True) -> Any:
    """The result of `calls` in a child with the filter, its questions answered here."""
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            here.close()
            os.chdir(work)
            rules = SyscallFilter(apart=True, streams=streams)
            listener = rules.install_questions()
            socket.send_fds(there, [b"D"], [listener] if listener >= 0 else [])
            os.close(listener)
            rules.install(asks=listener >= 0)
            there.sendall(json.dumps(calls()).encode())
        finally:
            os._exit(0)
    there.close()
    listeners = socket.recv_fds(here, 1, 1)[1]
    if not listeners:
        os.waitpid(pid, 0)
        pytest.skip("another filter of this machine already answers questions")
    deputy = Deputy(listeners[0], str(work))
    if not answered:
        deputy.close()
    poll = select.poll()
    poll.register(here, select.POLLIN)
    if answered:
        poll.register(deputy.listener, select.POLLIN)
    while here.fileno() not in (ready := dict(poll.poll(30_000))):
        assert ready, "neither a question nor an answer"
        deputy.answer_syscall()
    said = here.recv(1 << 16)
    os.waitpid(pid, 0)
    if answered:
        deputy.close()
    return json.loads(said)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_modes_and_times_change_inside_the_work_folder(work: Path) -> None:
    def calls() -> list[str]:
        with open("mine") as file:
            return [
                outcome(lambda: os.chmod("mine", 0o640)),
                outcome(lambda: os.fchmod(file.fileno(), 0o644)),
                outcome(lambda: os.utime("mine", (5, 7))),
                outcome(lambda: os.chmod(work / "mine", 0o751)),
            ]

    assert ask(work, calls) == ["", "", "", ""]
    assert mode(work / "mine") == 0o751
    assert ((work / "mine").stat().st_atime, (work / "mine").stat().st_mtime) == (5, 7)


@pytest.mark.parametrize(
    "path", ["../outside", "link", "up/outside", "/etc/hostname", "../work/../outside", ".."]
)
def test_no_way_leads_out(work: Path, path: str) -> None:
    def calls() -> list[str]:
        return [outcome(lambda: os.chmod(path, 0o777)), outcome(lambda: os.utime(path, (9, 9)))]

    before = os.stat(work / path).st_mode, os.stat(work / path).st_mtime
    refused = ask(work, calls)
    assert set(refused) <= {"EPERM", "ELOOP", "ENOENT"} and "" not in refused
    assert (os.stat(work / path).st_mode, os.stat(work / path).st_mtime) == before
    assert mode(work.parent / "outside") == 0o600


def test_a_descriptor_from_outside_is_no_way_in(work: Path) -> None:
    outside = os.open(work.parent / "outside", os.O_RDWR)
    assert ask(work, lambda: outcome(lambda: os.fchmod(outside, 0o777))) == "EPERM"
    os.close(outside)
    assert mode(work.parent / "outside") == 0o600


def test_a_folder_whose_name_begins_like_the_work_folder_is_another(work: Path) -> None:
    other = work.parent / "work-of-others"
    other.mkdir(mode=0o700)
    assert ask(work, lambda: outcome(lambda: os.chmod(other, 0o777))) == "EPERM"
    assert mode(other) == 0o700


def test_no_file_gets_the_rights_of_its_owner_at_execution(work: Path) -> None:
    assert ask(work, lambda: outcome(lambda: os.chmod("mine", 0o6755))) == ""
    assert mode(work / "mine") == 0o755


@pytest.mark.parametrize(
    ("path", "error"), [("absent", "ENOENT"), ("mine/x", "ENOTDIR"), ("", "ENOENT")]
)
def test_errors_are_those_of_the_call(work: Path, path: str, error: str) -> None:
    assert ask(work, lambda: outcome(lambda: os.chmod(path, 0o600))) == error


def test_without_an_answer_a_call_fails_and_nothing_waits(work: Path) -> None:
    assert ask(work, lambda: outcome(lambda: os.chmod("mine", 0o777)), answered=False) == "ENOSYS"
    assert mode(work / "mine") == 0o600


def serve(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_a_socket_inside_the_work_folder_is_connected_and_none_outside(work: Path) -> None:
    def connect(path: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
            said = outcome(lambda: mine.connect(path))
            return said or mine.recv(5).decode()

    with serve(work / "s") as inside, serve(work.parent / "s"):
        pid = os.fork()
        if pid == 0:
            inside.accept()[0].sendall(b"hello")
            os._exit(0)
        said = ask(
            work,
            lambda: [connect(path) for path in ("s", "../s", "up/s", "\0abstract", "mine")],
            streams=True,
        )
        os.waitpid(pid, 0)
    assert said == ["hello", "EPERM", "EPERM", "EPERM", "ECONNREFUSED"]
