"""The pieces: wire format, filter program, process trees, probes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.errors import IsolationError, UserError
from culmen.extensions.compat.openevolve.proxy import connection
from culmen.extensions.containers.jail import _zipped_code
from culmen.jail import disk, probes, procfs, wire
from culmen.jail import probes as levels
from culmen.jail.evaluation import candidate_seed
from culmen.jail.fork_server import OutputLog
from culmen.jail.runner import entry_arguments
from culmen.jail.seccomp import SyscallFilter
from culmen.jail.tree import TreeWatch
from tests.evaluate.conftest import need

TEXT = st.characters(exclude_categories=["Cs"])
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.binary()
    | st.text(TEXT)
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(TEXT) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_survive_the_wire(value: Any) -> None:
    assert wire.decode(wire.encode(value)) == value


@given(
    st.sampled_from(
        ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u1", "?", "c16", "c8", ">f8", ">i4"]
    ),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_arrays_survive_the_wire(kind: str, shape: list[int]) -> None:
    array = numpy.arange(math.prod(shape)).reshape(shape).astype(kind)
    back = wire.decode(wire.encode({"a": array, "b": [array.T]}))
    assert numpy.array_equal(back["a"], array) and numpy.array_equal(back["b"][0], array.T)
    back["a"][...] = 0  # an evaluator may work in place


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_a_wire_error(junk: bytes) -> None:
    for data in (junk, struct.pack("<I", len(junk)) + junk, struct.pack("<I", 0) + junk):
        try:
            wire.decode(data)
        except wire.WireError:
            continue


def document(text: str, tail: bytes = b"") -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode() + tail


@pytest.mark.parametrize(
    "data",
    [
        document("[" * 100_000 + "]" * 100_000),
        document("[" * 500 + "]" * 500),
        document("1" * 10_000),
        document("NaN"),
        document('"\\ud800"'),
        document('{"$":"object"}'),
        document('{"$":["array"],"v":1}'),
        document('{"$":"float","v":"1"}'),
        document('{"$":"array","v":["|O",[1],0,8]}', b"\0" * 8),
        document('{"$":"array","v":["<f8",[1000000000],0,8]}', b"\0" * 8),
        document('{"$":"array","v":["<f8",[2,-1],0,8]}', b"\0" * 8),
        document('{"$":"array","v":["<f8",[1],8,8]}', b"\0" * 8),
        document('{"$":"array","v":["<f8",[1.0],0,8]}', b"\0" * 8),
        document('{"$":"dict","v":[[{},1]]}'),
        document("1e999"),
        document('{"$":"complex","v":["nan",0.0]}'),
        document('{"$":"bytes","v":[0,9]}', b"\0" * 8),
        document('{"$":"bytes","v":["0",1]}', b"\0" * 8),
        document('[{"$":"bytes","v":[0,8]},{"$":"bytes","v":[0,8]}]', b"\0" * 8),
        document(
            '[{"$":"array","v":["<f8",[1],0,8]},{"$":"array","v":["<f8",[1],0,8]}]', b"\0" * 8
        ),
        document('{"$":"array","v":["|b1",[2],0,2]}', b"\1\2"),
    ],
)
def test_hostile_documents_are_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data)


@pytest.mark.parametrize("key", [lambda n: n * ((1 << 61) - 1), lambda n: (n * ((1 << 61) - 1), 0)])
def test_keys_that_all_have_one_hash_are_no_table(key: Callable[[int], Any]) -> None:
    """34,000 of them would take ten seconds to put into a dictionary."""
    keys = json.dumps([[key(n), 0] for n in range(34_000)])
    document = f'{{"{wire._MARK}": "dict", "v": {keys}}}'.encode()
    with pytest.raises(wire.WireError, match="same hash"):
        wire.decode(struct.pack("<I", len(document)) + document)
    few = {n * ((1 << 61) - 1): n for n in range(50)}
    assert wire.decode(wire.encode(few)) == few


@pytest.mark.parametrize(
    "text",
    [
        '["<f8","nan"]',
        '["<f8",[1.0,2.0]]',
        '["<f8",{"$":"bytes","v":[0,3]}]',
        '["|O",1]',
        '["<i1",300]',
    ],
)
def test_only_a_number_makes_a_scalar(text: str) -> None:
    with pytest.raises(wire.WireError):
        connection.TypedReader().decode(document(f'{{"$":"scalar","v":{text}}}', b"nan\0\0\0\0\0"))


def test_a_scalar_that_overflows_is_no_finite_number() -> None:
    reader = connection.TypedReader()
    assert (
        numpy.isinf(reader.decode(document('{"$":"scalar","v":["<f4",1e300]}')))
        and reader.has_nonfinite
    )


def test_the_candidates_seed_says_nothing_of_the_evaluators() -> None:
    assert len({candidate_seed(seed) for seed in range(50)} - set(range(50))) == 50
    assert candidate_seed(7) == candidate_seed(7)


class Text(str):
    def __str__(self) -> str:
        return "a lie"


class Number(float):
    def __float__(self) -> float:
        return 100.0

    def __repr__(self) -> str:
        return "100.0"


class Array(numpy.ndarray):
    def tobytes(self, order: Any = "C") -> bytes:
        return b"\1" * 24


def test_objects_travel_as_the_value_underneath() -> None:
    lies = [Text("x"), Number(0.5), numpy.zeros(3).view(Array)]
    text, number, array = wire.decode(wire.encode(lies))
    assert (text, number) == ("x", 0.5) and not array.any()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        lambda: 0,
        1 << 5000,
        "\ud800",
        [object()],
        numpy.array(["2020"], "M8"),
        type,
        ...,
    ],
)
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.encode(value)


def test_endless_structures_are_refused() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(wire.WireError):
        wire.encode(knot)


def test_frames_have_a_limit() -> None:
    left, right = socket.socketpair()
    with left, right:
        wire.send(left, "R", b"x" * 100)
        assert wire.receive(right, 100) == ("R", b"x" * 100)
        wire.send(left, "R", b"x" * 101)
        with pytest.raises(wire.TooLarge):
            wire.receive(right, 100)


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        (lambda x: x, {"a": 1}, ([{"a": 1}], {})),
        (lambda a: a, {"a": 1}, ([], {"a": 1})),
        (lambda a, b: 0, {"a": 1, "b": 2}, ([], {"a": 1, "b": 2})),
        (lambda a, b: 0, [1, 2], ([1, 2], {})),
        (lambda a: 0, [1, 2], ([[1, 2]], {})),
        (lambda a: 0, "text", (["text"], {})),
    ],
)
def test_how_an_entry_gets_its_case(entry: Any, value: Any, expected: Any) -> None:
    assert entry_arguments(entry, True, value) == expected
    assert entry_arguments(entry, False, value) == ([], {})


NUMBERS = {
    "x86_64": dict(
        ptrace=101,
        read=0,
        clone=56,
        clone3=435,
        socket=41,
        socketpair=53,
        connect=42,
        kill=62,
        shmget=29,
        ioctl=16,
        fcntl=72,
        prctl=157,
        seccomp=317,
        chmod=90,
        fchmodat2=452,
        utimensat=280,
        chown=92,
        fsetxattr=190,
        prlimit64=302,
        setpriority=141,
        openat=257,
        open=2,
        openat2=437,
        truncate=76,
        ftruncate=77,
        sendmsg=46,
        sendmmsg=307,
        setsockopt=54,
        fallocate=285,
    ),
    "aarch64": dict(
        ptrace=117,
        read=63,
        clone=220,
        clone3=435,
        socket=198,
        socketpair=199,
        connect=203,
        kill=129,
        shmget=194,
        ioctl=29,
        fcntl=25,
        prctl=167,
        seccomp=277,
        fchmod=52,
        fchmodat2=452,
        utimensat=88,
        fchown=55,
        fsetxattr=7,
        sendmsg=211,
        sendmmsg=269,
        prlimit64=261,
        setpriority=140,
        openat=56,
        openat2=437,
        truncate=45,
        ftruncate=46,
        setsockopt=208,
        fallocate=47,
    ),
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ASK, REFUSE, MISSING, DONE, UNSUPPORTED = (
    0x7FFF0000,
    0x7FC00000,
    0x50001,
    0x50026,
    0x50000,
    0x5005F,
)


def decisions(machine: str, made: SyscallFilter, *, asks: bool = True) -> Callable[..., int]:
    codes = [
        made.assemble(machine, pid=77, asks=asks),
        *([made.assemble_questions(machine)] if asks else []),
    ]

    def decide(name: str, *args: int) -> int:
        answers = {interpret(code, NUMBERS[machine][name], AUDIT[machine], args) for code in codes}
        order = (REFUSE, MISSING, DONE, UNSUPPORTED, ASK, ALLOW)  # the kernel's
        return next(answer for answer in order if answer in answers)

    return decide


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_decides_as_its_table_says(machine: str) -> None:
    decide = decisions(machine, SyscallFilter(apart=True, own_signals=True))
    assert decide("sendmsg", 5) == decide("sendmmsg", 5) == REFUSE
    assert decisions(machine, SyscallFilter(apart=True, messages=True))("sendmsg", 5) == ALLOW
    assert decisions(machine, SyscallFilter(), asks=False)("sendmsg", 5) == ALLOW
    assert (
        decide("read", 3) == ALLOW and decide("ptrace", 16) == REFUSE and decide("shmget") == REFUSE
    )
    assert (
        decide("clone", 17) == ALLOW
        and decide("clone", 0x10000000 | 17) == REFUSE
        and decide("clone3") == MISSING
    )
    assert (
        decide("kill", 77, 9) == ALLOW
        and decide("kill", 78, 0) == REFUSE
        and decide("kill", 2**32 - 1) == REFUSE
    )
    assert (
        decide("fcntl", 0, 8)
        == decide("fcntl", 0, 10)
        == decide("fcntl", 0, 15)
        == decide("fcntl", 0, 1024)
        == REFUSE
    )
    assert decide("fcntl", 0, 1) == ALLOW and decide("prctl", 38) == ALLOW
    assert (
        decide("ioctl", 0, 0x5412)
        == decide("ioctl", 0, 0x40086602)
        == decide("ioctl", 0, 0x8901)
        == REFUSE
    )
    assert (
        decide("ioctl", 0, 0x5401)
        == decide("ioctl", 0, 0x40049409)
        == decide("ioctl", 0, 0x4020940D)
        == ALLOW
    )
    assert decide("prctl", 22, 2) == REFUSE and decide("seccomp", 1, 8) == REFUSE
    mine = SyscallFilter().assemble(machine)
    assert interpret(mine, NUMBERS[machine]["kill"], AUDIT[machine], (1,)) == ALLOW


@pytest.mark.parametrize("machine", NUMBERS)
def test_buffers_in_the_kernel_keep_their_sizes_and_files_their_ends(machine: str) -> None:
    size, keep, punch = 1031, 1, 2
    for level in (SyscallFilter(), SyscallFilter(apart=True)):
        decide = decisions(machine, level, asks=False)
        assert {decide("setsockopt", 3, 1, option) for option in (7, 8, 32, 33)} == {DONE}
        assert decide("setsockopt", 3, 1, 2) == ALLOW
        assert decide("fcntl", 3, size, 1 << 20) == REFUSE and decide("fcntl", 3, size + 1) == ALLOW
        beyond = decide("fallocate", 3, keep, 0, 1)
        assert beyond == (UNSUPPORTED if level.apart else ALLOW)
        assert (
            decide("fallocate", 3, 0, 0, 1) == decide("fallocate", 3, keep | punch, 0, 1) == ALLOW
        )


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux alone")
def test_files_count_together_with_those_that_are_removed_and_open(tmp_path: Path) -> None:
    part = b"x" * (1 << 20)
    (tmp_path / "a").write_bytes(part)
    assert not disk.is_overfull(str(tmp_path), [os.getpid()], 2)
    with (tmp_path / "b").open("wb") as file:
        file.write(part + part)
        file.flush()
        os.fsync(file.fileno())
        os.remove(tmp_path / "b")
        assert disk.is_overfull(str(tmp_path), [os.getpid()], 2)
    assert not disk.is_overfull(str(tmp_path), [os.getpid()], 2)
    for number in range(disk.file_limit(2)):
        (tmp_path / str(number)).touch()
    assert disk.is_overfull(str(tmp_path), [], 2)
    assert not disk.FreeSpace.of(str(tmp_path)).has_lost(1 << 60, 1 << 60)


@pytest.mark.parametrize("machine", NUMBERS)
def test_every_other_set_of_numbers_is_refused(machine: str) -> None:
    code = SyscallFilter(apart=True).assemble(machine)
    for audit in (
        0x40000003,
        0x40000028,
        *(a for m, a in AUDIT.items() if m != machine),
    ):  # i386, arm, the other one
        assert interpret(code, NUMBERS[machine]["read"], audit, ()) == REFUSE
    if machine == "x86_64":
        assert interpret(code, 0x40000000, AUDIT[machine], ()) == REFUSE  # x32


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_knows_which_sockets_lead_nowhere(machine: str) -> None:
    stream, datagram, raw, packets, flags = 1, 2, 3, 5, 0o2004000
    plain, apart = (decisions(machine, SyscallFilter(apart=way), asks=way) for way in (False, True))
    beside = decisions(machine, SyscallFilter(apart=True, streams=True))
    assert (
        plain("socket", 1, datagram) == ALLOW
        and plain("socket", 2, 1) == plain("socket", 16, 3) == REFUSE
    )
    assert {apart("socket", family, stream) for family in (1, 2, 10, 16, 40)} == {REFUSE}
    assert apart("connect", 3) == REFUSE and plain("connect", 3) == ALLOW
    assert beside("socket", 1, stream | flags) == ALLOW and beside("connect", 3) == ASK
    assert (
        {beside("socket", 1, kind) for kind in (datagram, raw, packets)}
        == {beside("socket", 2, 1)}
        == {REFUSE}
    )
    assert (
        decisions(machine, SyscallFilter(apart=True, streams=True), asks=False)("connect", 3)
        == REFUSE
    )
    for decide in (apart, beside):
        assert decide("socketpair", 1, stream | flags) == decide("socketpair", 1, packets) == ALLOW
        assert decide("socketpair", 1, datagram | flags) == decide("socketpair", 1, raw) == REFUSE
        assert decide("socketpair", 30, stream) == REFUSE


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_asks_before_a_file_changes_its_mode(machine: str) -> None:
    apart = SyscallFilter(apart=True)
    ask, refuse = decisions(machine, apart), decisions(machine, apart, asks=False)
    alone = decisions(machine, SyscallFilter(), asks=False)
    for name in {"chmod", "fchmod", "fchmodat2", "utimensat"} & NUMBERS[machine].keys():
        assert (ask(name), refuse(name), alone(name)) == (ASK, REFUSE, ALLOW)
    for name in {"chown", "fchown", "fsetxattr"} & NUMBERS[machine].keys():
        assert (ask(name), alone(name)) == (REFUSE, ALLOW)
    assert ask("prlimit64", 0) == ALLOW and ask("prlimit64", 1) == REFUSE
    assert (
        ask("setpriority", 0, 0) == ALLOW
        and ask("setpriority", 0, 5) == ask("setpriority", 2, 0) == REFUSE
    )


@pytest.mark.parametrize("machine", NUMBERS)
def test_old_kernels_let_nobody_cut_off_a_file_he_may_not_write(machine: str) -> None:
    """Before ABI 3 Landlock has no right for that; the files of a user are his own."""
    old, new = (
        decisions(machine, SyscallFilter(apart=True, own_truncation=True)),
        decisions(machine, SyscallFilter(apart=True)),
    )
    read, write, both, neither, cut = 0, 1, 2, 3, 0x200
    assert old("truncate") == REFUSE and new("truncate") == ALLOW and old("ftruncate", 3) == ALLOW
    assert old("openat2") == MISSING
    for way, before in ((0, ()), (1, (0,))):
        name = ("open", "openat")[way]
        if name in NUMBERS[machine]:
            assert {old(name, *before, 0, how | cut) for how in (read, neither)} == {REFUSE}
            assert {old(name, *before, 0, how) for how in (write | cut, both | cut, read)} == {
                ALLOW
            }


def interpret(code: bytes, number: int, audit: int, args: tuple[int, ...]) -> int:
    """A classic BPF machine, as far as filters use it."""
    data = struct.pack("<iIQ6Q", number, audit, 0, *(args + (0,) * 6)[:6])
    program = [struct.unpack_from("HBBI", code, at) for at in range(0, len(code), 8)]
    place, register = 0, 0
    while True:
        operation, yes, no, value = program[place]
        place += 1
        if operation == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return value
        elif operation == 0x54:
            register &= value
        else:
            held = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[
                operation
            ]
            place += yes if held else no


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(OSError):
        SyscallFilter().assemble("vax")


def test_census_sees_this_process() -> None:
    pid = os.getpid()
    assert pid in procfs.child_pids(os.getppid())
    assert procfs.descendants_kb(pid, 1) > 1000
    with contextlib.ExitStack() as opened:
        before = TreeWatch(pid).look(1 << 40).kilobytes  # beyond a limit, the tree would be stopped
        for _ in range(40):
            for end in socket.socketpair():
                opened.enter_context(end)
        assert (
            TreeWatch(pid).look(1 << 40).kilobytes - before > 40 * 2 * 200
        )  # as if their queues were full
    assert procfs.thread_count() >= 1 and procfs.data_bytes() > 1 << 20
    # in a process that has no children of other tests
    code = "import os; from culmen.jail.tree import TreeWatch; print(TreeWatch(os.getpid()).look(1).threads)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == b"1\n"
    )


def test_logs_are_cut_not_lost() -> None:
    async def work(size: int) -> str:
        log = OutputLog(1000)
        writer = await asyncio.create_subprocess_exec(
            "head", "-c", str(size), "/dev/zero", stdout=log.write
        )
        log.close_write_end()
        await writer.wait()
        text = log.close()
        assert log.close() == text
        return text

    assert len(asyncio.run(work(500))) == 500
    assert asyncio.run(work(500_000)).endswith("[cut: the log was longer]")


@given(st.text(), st.integers(40, 100))
def test_clean_text_is_safe_and_bounded(text: str, limit: int) -> None:
    kept = wire.storable_text(text + "\ud800\0", limit)
    kept.encode("utf-8")
    assert "\0" not in kept and len(kept) <= limit


def test_levels_are_ordered() -> None:
    assert [levels.level_rank(name) for name in levels.LEVELS] == list(range(len(levels.LEVELS)))
    with pytest.raises(UserError) as unknown:
        levels.level_rank("foo")
    assert unknown.value.exit_code == UserError.exit_code
    levels.require_level("namespaces", "restricted", {})
    with pytest.raises(IsolationError, match="apt install bubblewrap"):
        levels.require_level("limits", "restricted", {"restricted": "no Landlock"})


@pytest.mark.jail
def test_the_doctor_finds_every_probe_held_at_namespaces() -> None:
    need("namespaces")
    report = probes.isolation_report()
    assert report["level"] == "namespaces"
    assert set(report["levels"]["namespaces"]["probes"].values()) == {probes.PASS}


@pytest.mark.jail
@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="no process 1 to be had"
)
def test_process_1_of_a_container_finds_the_level_that_the_doctor_names() -> None:
    need("namespaces")
    code = "from culmen.jail import probes; print(probes.isolation_report()['level'])"
    line = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["namespaces"]


@pytest.mark.jail
def test_the_doctor_says_what_the_weaker_levels_lose() -> None:
    need("restricted")
    weak = {
        name
        for name, held in asyncio.run(probes.probe_level("restricted")).items()
        if held != probes.PASS
    }
    weaker = {
        name
        for name, held in asyncio.run(probes.probe_level("limits")).items()
        if held != probes.PASS
    }
    assert weak == set()
    assert weaker > {"total file limit", "TCP", "reading files of the user"}
    assert not weaker & {"time limit", "memory limit", "process limit", "file size limit"}


def test_the_code_for_a_container_is_complete(tmp_path: Path) -> None:
    with zipfile.ZipFile(
        io.BytesIO(
            _zipped_code(
                {}, ("culmen.jail", "culmen.extensions.containers", "culmen.extensions.compat")
            )
        )
    ) as archive:
        archive.extractall(tmp_path)
    modules = (
        "culmen.extensions.containers.server",
        "culmen.extensions.compat.openevolve.evaluator_process",
        "culmen.extensions.compat.openevolve.proxy.candidate_process",
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(modules)}"
    subprocess.run([sys.executable, "-I", "-B", "-S", "-c", code], check=True)


MEASURED = """
import resource, sys
from culmen.extensions.timing import timed

if sys.argv[1] == "kept":
    timed.keep_memory()
def run():
    return [bytearray(900_000) for _ in range(3)]
run(), run()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
run()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_timed_program_keeps_the_memory_that_it_freed():
    faults = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", MEASURED, how], check=True, capture_output=True
            ).stdout
        )
        for how in ("given back", "kept")
    }
    assert faults["given back"] > 500  # each run fetches its 2.7 MB anew
    assert faults["kept"] < 50
