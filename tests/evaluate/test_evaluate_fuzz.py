"""Input from others is parsed as data, whatever it is.

The wire, the proxy's protocol, task files. A few seconds of
examples each time; CULMEN_FUZZ=100 multiplies them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.core.task import Task
from culmen.extensions.compat.openevolve.proxy import session
from culmen.extensions.compat.openevolve.proxy.connection import ReplyKind, TypedReader, TypedWriter
from culmen.extensions.compat.openevolve.proxy.operations import Operation
from culmen.jail import scorer, wire
from culmen.tasks import schema
from culmen.tasks.loading import load

TIMES = int(os.environ.get("CULMEN_FUZZ", "1"))


def examples(count: int) -> settings:
    return settings(max_examples=count * TIMES, deadline=None)


# -- the wire ------------------------------------------------------------------------------

MARKS = sorted(
    {*wire.ValueReader.marks, *TypedReader.marks, "own", "random", "call", "no such mark"}
)
NUMBERS = st.integers(-3, 40) | st.sampled_from(
    [2**31, 2**63, 2**64, -(2**70), 10**400, 1e308, 0.5]
)
WORDS = st.sampled_from(
    [*wire.DTYPES, "nan", "inf", "set", "frozenset", "|O", "<U4", "object", "\ud800", "", "x"]
)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=6)
DOCUMENT = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$", "v", "a", "b"]), inner, max_size=3)
        | st.fixed_dictionaries(
            {"$": st.sampled_from(MARKS), "v": inner | st.lists(inner, max_size=4)}
        )
    ),
    max_leaves=12,
)
ARRAY = st.fixed_dictionaries(
    {
        "$": st.just("array"),
        "v": st.tuples(WORDS, st.lists(NUMBERS, max_size=3), NUMBERS, NUMBERS).map(list),
    }
)


def packed(document: Any, tail: bytes) -> bytes:
    text = json.dumps(document).encode()
    return struct.pack("<I", len(text)) + text + tail


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound message with some bytes cut, changed or put in."""
    value = draw(
        st.recursive(
            SCALARS | st.binary(max_size=9), lambda x: st.lists(x, max_size=3), max_leaves=6
        )
    )
    with contextlib.suppress(wire.WireError):
        data = bytearray(TypedWriter().encode(value))
        for at, byte, keep in draw(
            st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=2), st.integers(0, 1)))
        ):
            data[at : at + 1 - keep] = byte
        return bytes(data)
    return b""


MESSAGE = (
    st.builds(packed, DOCUMENT | ARRAY | st.lists(ARRAY, max_size=3), st.binary(max_size=48))
    | damaged()
)


@examples(400)
@given(MESSAGE, st.sampled_from([wire.ValueReader, TypedReader]))
def test_a_message_is_plain_data_or_refused(data: bytes, reader: type[wire.ValueReader]) -> None:
    try:
        value = reader().decode(data)
    except wire.WireError:
        return
    writer = wire.ValueWriter if reader is wire.ValueReader else TypedWriter
    with contextlib.suppress(wire.WireError):  # a whole number may be longer than is written
        again = writer().encode(value)
        assert writer().encode(reader().decode(again))


@examples(100)
@given(st.binary(max_size=40), st.integers(0, 64))
def test_frames_are_read_or_refused(data: bytes, limit: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        with contextlib.suppress(EOFError, wire.TooLarge):
            _, payload = wire.receive(ours, limit)
            assert len(payload) <= limit


# -- what a hostile program answers
# ------------------------------------------------------------------------------

JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "trace", "text", "args", "module", "class", "number", "about", "names"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)
PAYLOAD = MESSAGE | JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30)
KINDS = st.sampled_from([*map(str, ReplyKind), *map(str, Operation), "?", "\0", "\xff"])
FRAMES = st.lists(st.tuples(KINDS, PAYLOAD), max_size=4)


def answered(sock: socket.socket, frames: list[tuple[str, bytes]]) -> None:
    """A program that answers the first request with these frames, then ends."""
    with sock, contextlib.suppress(OSError, EOFError):
        wire.receive(sock, 1 << 20)
        sock.sendall(b"".join(wire.frame_bytes(kind, payload) for kind, payload in frames))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


@examples(150)
@given(FRAMES)
def test_whatever_a_program_answers_its_scorer_gets_a_value_or_one_of_two_errors(
    frames: list[tuple[str, bytes]],
) -> None:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=answered, args=(theirs, frames))
    thread.start()
    with ours:
        with contextlib.suppress(scorer.CandidateError, scorer.CandidateGone):
            scorer.CandidateProgram(ours, 1 << 16).named(None, 1)
    thread.join()


class Door:
    """A folder in which an evaluator finds its program: one that sends `frames` and ends."""

    def __init__(self, folder: str, learn: bool) -> None:
        self.folder, self.frames = folder, list[tuple[str, bytes]]()
        Path(folder, session.SETTINGS).write_text(json.dumps({"accept": [], "learn": learn}))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(folder, session.SOCKET)))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                answered(sock, self.frames)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(scope="module", params=[True, False], ids=["trial", "search"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    with tempfile.TemporaryDirectory() as folder:
        made = Door(folder, request.param)
        yield made
        made.close()


@examples(150)
@given(frames=FRAMES, wanted=st.sampled_from(["module", "attribute", "item"]))
@example(
    [("R", packed({"$": "array", "v": ["<f2", [0], 0, 0]}, b""))], "module"
)  # no mapping, and no such index
@example(
    [
        (
            "R",
            packed(
                {
                    "number": {"$": "float", "v": "inf"},
                    "doc": "",
                    "all": [],
                    "names": {},
                    "about": {},
                },
                b"",
            ),
        )
    ],
    "module",
)
def test_whatever_a_program_answers_its_evaluator_gets_a_value_or_is_told(
    door: Door, frames: list[tuple[str, bytes]], wanted: str
) -> None:
    door.frames = frames
    at = session.ProxySession(door.folder)
    try:
        if wanted == "module":
            at.import_part("program", "main.py")
        elif wanted == "attribute":
            at.ask(Operation.GET_ATTRIBUTE, 0, "run", key="run")
        else:
            next(at.objects.stand_in_for(1, "iterator", 0, "run()"), None)
    except (session.CrossingRefused, session.ProgramGone):
        pass
    except BaseException as error:  # noqa: BLE001 - raised by the program, and marked as such; not by what read its answer
        told = [*getattr(error, "__notes__", []), str(error)]
        assert any(each.startswith(("in the program:", "the program sent")) for each in told), error
    finally:
        at._main.sock.close()


# -- task files ------------------------------------------------------------------------------

_PATHS = [
    "main.py",
    "evaluator.py",
    "cases.jsonl",
    "..",
    "/",
    "",
    "\0",
    "a/../../b",
    "*",
    "[",
    "**/*",
    "x" * 300,
    "/dev",
]
_TEXTS = st.sampled_from([*_PATHS, "max", "call", "legacy"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
VALUE = st.recursive(
    st.booleans() | NUMBERS.filter(lambda n: abs(n) < 2**63) | st.floats() | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*_PATHS, "a", "parts"]), inner, max_size=3)
    ),
    max_leaves=5,
)
SECTION = {name: st.sampled_from(kind.__struct_fields__) for name, kind in schema.SECTIONS.items()}
TABLE = st.dictionaries(
    st.sampled_from(schema.TaskTable.__struct_fields__), VALUE, max_size=3
) | st.one_of(
    *(
        st.dictionaries(st.just(name), st.dictionaries(keys, VALUE, max_size=3))
        for name, keys in SECTION.items()
    )
)


def toml(value: Any) -> str:
    """The value as TOML has it in one line."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{toml(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).replace("\\u007f", "\\u007F")


FILE = TABLE.map(
    lambda table: "\n".join(f"{key} = {toml(value)}" for key, value in table.items()).encode()
) | st.binary(max_size=60)
SOURCES = st.sampled_from(
    [
        b"def evaluate(program):\n    return 1.0\n",
        b"",
        b"\0",
        b"\xff",
        b"def score(o):\n",
        b"x = " + b"(" * 300,
        b"-" * 20000 + b"1",
        b"x = " + b"[" * 150 + b"]" * 150,
        b"x" + b".y" * 5000,
        b"# -*- coding: no -*-\n",
    ]
)
CASES = JSON.map(lambda value: json.dumps(value).encode()) | st.sampled_from(
    [b'{"id": "a", "input": 1}', b"[" * 9000, b"\xff"]
)


@examples(200)
@given(FILE, SOURCES | st.binary(max_size=40), st.lists(CASES, max_size=3))
def test_a_task_folder_of_somebody_else_is_a_task_or_an_error_that_says_where(
    text: bytes, evaluator: bytes, cases: list[bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "task.toml").write_bytes(text)
        Path(folder, "evaluator.py").write_bytes(evaluator)
        Path(folder, "cases.jsonl").write_bytes(b"\n".join(cases))
        Path(folder, "main.py").write_text("def run():\n    return 1\n")
        try:
            assert isinstance(load(folder), Task)
        except UserError as error:
            assert error.what and error.where
