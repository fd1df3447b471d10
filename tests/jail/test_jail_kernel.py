"""Calls of the kernel on real processes: Landlock, capabilities, the end with a pipe."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from culmen.jail import kernel
from tests.jail.children import in_child, outcome

landlock = pytest.mark.skipif(not kernel.landlock_version(), reason="this kernel has no Landlock")
linux = pytest.mark.skipif(not kernel.LINUX, reason="Linux alone")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders `open`, `kept` and `closed`, each with a file `note`."""
    for name in ("open", "kept", "closed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note").write_text(name)
    return tmp_path


def rights(folder: Path) -> dict[str, str]:
    """The outcomes of reading, listing and writing in the folder."""
    return {
        "read": outcome((folder / "note").read_text),
        "list": outcome(lambda: os.listdir(folder)),
        "write": outcome(lambda: (folder / "note").write_text("changed")),
        "make": outcome(lambda: (folder / "new").write_text("")),
    }


@landlock
@pytest.mark.jail
def test_only_what_is_named_can_be_read_and_less_of_it_written(folders: Path) -> None:
    def work() -> list[dict[str, str]]:
        kernel.restrict_paths([str(folders / "kept")], [str(folders / "open")])
        return [rights(folders / name) for name in ("open", "kept", "closed")]

    everything, reading, nothing = in_child(work)
    assert set(everything.values()) == {""}
    assert reading == {"read": "", "list": "", "write": "EACCES", "make": "EACCES"}
    assert set(nothing.values()) == {"EACCES"}


@landlock
@pytest.mark.jail
def test_a_folder_can_be_listed_without_its_files_being_read(folders: Path) -> None:
    def work() -> dict[str, str]:
        kernel.restrict_paths([], [], [str(folders / "kept")])
        return rights(folders / "kept")

    assert in_child(work) == {"read": "EACCES", "list": "", "write": "EACCES", "make": "EACCES"}


@landlock
@pytest.mark.jail
def test_a_second_layer_only_takes_away(folders: Path) -> None:
    def work() -> list[dict[str, str]]:
        kernel.restrict_paths([], [str(folders / "open")])
        kernel.restrict_paths([str(folders)], [str(folders)])
        return [rights(folders / "open"), rights(folders / "closed")]

    still, never = in_child(work)
    assert set(still.values()) == {""} and set(never.values()) == {"EACCES"}


@landlock
@pytest.mark.jail
def test_a_path_that_does_not_exist_gives_no_right_and_a_file_is_as_good_as_a_folder(
    folders: Path,
) -> None:
    def work() -> list[str]:
        kernel.restrict_paths([str(folders / "absent"), str(folders / "kept" / "note")], [])
        (kept, closed) = (folders / "kept" / "note", folders / "closed" / "note")
        return [outcome(kept.read_text), outcome(closed.read_text)]

    assert in_child(work) == ["", "EACCES"]


@linux
def test_a_failed_call_names_itself_and_its_error() -> None:
    with pytest.raises(OSError, match="unshare") as caught:
        kernel.unshare(0x1)  # no namespace has this flag
    assert caught.value.errno == errno.EINVAL
    assert kernel.checked_result(7, "call") == 7


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has capabilities to give up")
@pytest.mark.parametrize("kept", [(), (kernel.CAP_DAC_READ_SEARCH,)], ids=["none", "search"])
def test_no_other_capability_is_left(kept: tuple[int, ...]) -> None:
    def work() -> dict[str, int]:
        kernel.perform(kernel.capability_steps(*kept))
        lines = dict(
            line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines()
        )
        return {name: int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}

    bits = sum(1 << number for number in kept)
    assert set(in_child(work).values()) == {bits}


@pytest.mark.parametrize("early", [False, True], ids=["later", "before it looks"])
def test_a_process_dies_with_the_other_end_of_its_pipe(early: bool) -> None:
    reading, writing = os.pipe()
    started, tell = os.pipe()
    if early:
        os.close(writing)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # it must not outlive a test that fails
        if not early:
            os.close(writing)
        kernel.die_with_pipe(reading)
        os.write(tell, b"alive")
        while True:
            signal.pause()
    os.close(tell)
    alive = os.read(started, 5)
    if not early:
        assert alive == b"alive" and os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.close(writing)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == (1 if early else -signal.SIGKILL)
    os.close(reading)
    os.close(started)
