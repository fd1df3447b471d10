"""The file queue: requests, traps, and the end of floods."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.extensions.agents.sandbox import intake
from culmen.extensions.agents.sandbox.intake import RequestQueue, parse_request, printable_text
from culmen.extensions.agents.sandbox.safe import IntakeRefused
from culmen.extensions.agents.sandbox.settings import (
    BATCH,
    CANDIDATE_BYTES,
    CANDIDATE_FILES,
    NOTE_CHARS,
    PENDING,
    RECORDED,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("queue", "candidates/a03"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    (tmp_path / "tree" / "candidates/a03/x.py").write_text("x = 1\n")
    (tmp_path / "outside.py").write_text("secret")
    return tmp_path / "tree"


def ask(tree: Path, name: str, **request: Any) -> None:
    (tree / "queue" / f"{name}.json").write_text(json.dumps(request))


def look(tree: Path, *known: str, part: str = "main.py") -> intake.QueueScan:
    return RequestQueue(tree, 3, part).scan_requests(known.__contains__)


def only(tree: Path, path: str) -> tuple[str, dict[str, str]]:
    """The result of one request for a path: the fault and the parts."""
    ask(tree, "r", path=path)
    (one,) = look(tree).experiments
    assert one.ticket == "a03-r"
    return one.fault, one.parts


def test_queue_takes_a_file_and_a_folder(tree: Path) -> None:
    assert only(tree, "candidates/a03/x.py") == ("", {"main.py": "x = 1\n"})
    assert only(tree, "./candidates//a03/./x.py") == ("", {"main.py": "x = 1\n"})
    (tree / "candidates/a03/both/deep").mkdir(parents=True)
    (tree / "candidates/a03/both/one.py").write_text("1")
    (tree / "candidates/a03/both/deep/two.py").write_text("é")
    assert only(tree, "candidates/a03/both") == ("", {"one.py": "1", "deep/two.py": "é"})
    ask(tree, "r", path="candidates/a03/x.py")
    assert look(tree, part="").experiments[0].parts == {"x.py": "x = 1\n"}


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("candidates/a03/no.py", "missing"),
        ("TASK.md", "outside_candidates"),
        ("candidates", "outside_candidates"),
        ("/etc/passwd", "outside_candidates"),
        ("candidates/../../outside.py", "outside_candidates"),
        ("candidates/a03/\n.py", "bad_name"),
        ("candidates/a03/.git/config", "bad_name"),
        ("candidates/a03/x.py/y", "not_a_folder"),
        ("candidates/" + "d/" * 20 + "x", "bad_name"),
        ("candidates/a03/" + "n" * 300, "bad_name"),
    ],
)
def test_queue_refuses_paths(tree: Path, path: str, fault: str) -> None:
    assert only(tree, path) == (fault, {})


def test_queue_follows_no_link(tree: Path, tmp_path: Path) -> None:
    own = tree / "candidates/a03"
    (own / "link.py").symlink_to(tmp_path / "outside.py")
    (own / "up").symlink_to(tmp_path)
    (own / "hard.py").hardlink_to(tmp_path / "outside.py")
    (own / "loop").symlink_to("loop")
    assert only(tree, "candidates/a03/link.py") == ("link", {})
    assert only(tree, "candidates/a03/up/outside.py") == ("not_a_folder", {})
    assert only(tree, "candidates/a03/hard.py") == ("hard_link", {})
    assert only(tree, "candidates/a03/loop") == ("link", {})
    (own / "mixed").mkdir()
    (own / "mixed/ok.py").write_text("1")
    (own / "mixed/link.py").symlink_to(tmp_path / "outside.py")
    assert only(tree, "candidates/a03/mixed") == ("not_a_file", {})


def test_queue_hangs_on_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tree / "candidates/a03"
    os.mkfifo(own / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(own)  # a socket's path must be short
        listener.bind("socket")
    assert only(tree, "candidates/a03/fifo") == ("not_a_file", {})
    assert only(tree, "candidates/a03/socket") == ("not_a_file", {})
    (tree / "queue/r.json").unlink()
    os.mkfifo(tree / "queue/r.json")
    assert look(tree).experiments[0].fault == "not_a_file"


def test_queue_bounds_sizes(tree: Path) -> None:
    own = tree / "candidates/a03"
    with (own / "huge.py").open("wb") as file:
        file.truncate(1 << 40)
    (own / "most.py").write_text("x" * CANDIDATE_BYTES)
    (own / "more.py").write_text("x" * (CANDIDATE_BYTES + 1))
    assert only(tree, "candidates/a03/huge.py")[0] == "too_large"
    assert only(tree, "candidates/a03/more.py")[0] == "too_large"
    assert only(tree, "candidates/a03/most.py")[0] == ""
    (own / "halves").mkdir()
    for name in ("a", "b"):
        (own / "halves" / name).write_text("x" * (CANDIDATE_BYTES // 2 + 1))
    assert only(tree, "candidates/a03/halves")[0] == "too_large"
    (own / "many").mkdir()
    for n in range(CANDIDATE_FILES + 1):
        (own / "many" / str(n)).write_text("")
    assert only(tree, "candidates/a03/many")[0] == "too_many_files"
    (own / "none").mkdir()
    assert only(tree, "candidates/a03/none")[0] == "empty"


def test_queue_wants_text(tree: Path) -> None:
    own = tree / "candidates/a03"
    (own / "latin.py").write_bytes(b"\xe9")
    (own / "null.py").write_bytes(b"a\0b")
    assert only(tree, "candidates/a03/latin.py")[0] == "not_text"
    assert only(tree, "candidates/a03/null.py")[0] == "not_text"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"12",
        b"{}",
        b'{"path": 3}',
        b'{"path": "a", "report": "b"}',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"x": ' + b"[" * 50_000,
        b'{"parents": "abc", "path": "x"}',
        json.dumps({"paths": ["x"] * 257}).encode(),
        b'{"path": "a", "paths": ["b"]}',
        b'{"paths": []}',
        b'{"paths": [1]}',
    ],
)
def test_queue_garbage_is_on_record(tree: Path, data: bytes) -> None:
    (tree / "queue/r.json").write_bytes(data)
    (one,) = look(tree).experiments
    assert one.fault in ("garbage", "bad_request") and not one.parts


def test_queue_several_together(tree: Path) -> None:
    ask(
        tree,
        "r",
        paths=["candidates/a03/x.py", "TASK.md", "x" * 1001, "candidates/a03/x.py"],
        note="all",
    )
    batch = look(tree)
    assert [one.ticket for one in batch.experiments] == ["a03-r.0", "a03-r.1", "a03-r.2", "a03-r.3"]
    assert [one.fault for one in batch.experiments] == ["", "outside_candidates", "bad_name", ""]
    assert {one.note for one in batch.experiments} == {"all"}
    assert look(tree, *(f"a03-r.{n}" for n in range(4))).experiments == []


def test_queue_reports_and_finish(tree: Path) -> None:
    ask(tree, "1", report="weak \x1b[31mspot\x07")
    ask(tree, "2", path="candidates/a03/x.py")
    ask(tree, "3", finish="enough")
    ask(tree, "4", path="candidates/a03/x.py")
    batch = look(tree)
    assert batch.reports == ["weak [31mspot"] and batch.finish == "enough"
    assert [one.ticket for one in batch.experiments] == ["a03-2"]
    assert batch.taken == ["1.json", "2.json", "3.json"]


def test_queue_same_name_is_the_same_request(tree: Path) -> None:
    ask(tree, "r", path="candidates/a03/x.py")
    batch = look(tree, "a03-r")
    assert batch.experiments == [] and batch.taken == ["r.json"] and batch.refused == {}


def test_queue_flood_is_bounded_and_answered(tree: Path) -> None:
    for n in range(3 * PENDING):
        ask(tree, f"{n:05d}", path="candidates/a03/x.py")
    queue = RequestQueue(tree, 3, "main.py")
    batch = queue.scan_requests(lambda _: False)
    assert [one.ticket for one in batch.experiments] == [f"a03-{n:05d}" for n in range(BATCH)]
    assert len(batch.refused) == 2 * PENDING and set(batch.refused.values()) == {"queue_full"}
    queue.remove_requests(batch.taken)
    assert len(list((tree / "queue").iterdir())) == PENDING - BATCH
    assert queue.scan_requests(lambda _: False).refused == {}


def test_queue_patience_turns_nothing_away(tree: Path) -> None:
    for n in range(PENDING + 10):
        ask(tree, f"{n:05d}", path="candidates/a03/x.py")
    assert (
        RequestQueue(tree, 3, "main.py").scan_requests(lambda _: False, patient=True).refused == {}
    )


def test_queue_endless_garbage_and_reports_are_turned_away(tree: Path) -> None:
    queue, on_record, refused = RequestQueue(tree, 3, "main.py"), 0, 0
    for turn in range(1 + (RECORDED + 50) // BATCH):
        for n in range(BATCH):
            (tree / f"queue/{turn}-{n}.json").write_text("garbage")
        batch = queue.scan_requests(lambda _: False)
        on_record, refused = on_record + len(batch.experiments), refused + len(batch.refused)
        queue.remove_requests(batch.taken)
    assert on_record == RECORDED and refused > 0
    for n in range(RECORDED + 5):
        ask(tree, f"{n:05d}", report="again")
    batch = queue.scan_requests(lambda _: False)
    assert len(batch.reports) == RECORDED and len(batch.refused) == 5


def test_queue_clears_what_is_no_request(tree: Path, tmp_path: Path) -> None:
    queue = tree / "queue"
    for name in ("notes.txt", "x y.json", "ü.json", ".hidden"):
        (queue / name).write_text("{}")
    (queue / "folder").mkdir()
    (queue / "full").mkdir()
    (queue / "full/x").write_text("")
    (queue / "out.txt").symlink_to(tmp_path / "outside.py")
    assert look(tree).taken == []
    assert sorted(path.name for path in queue.iterdir()) == [".hidden", "full"]
    assert (tmp_path / "outside.py").read_text() == "secret"


def test_queue_swapped_for_a_link_is_empty(tree: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tree / "queue").rename(elsewhere)
    (elsewhere / "r.json").write_text('{"path": "candidates/a03/x.py"}')
    (elsewhere / "junk").write_text("")
    (tree / "queue").symlink_to(elsewhere)
    queue = RequestQueue(tree, 3, "main.py")
    assert queue.scan_requests(lambda _: False).taken == []
    queue.remove_requests(["r.json"])
    assert len(list(elsewhere.iterdir())) == 2
    (tree / "queue").unlink()
    assert queue.scan_requests(lambda _: False).taken == []


@given(st.binary(max_size=400))
def test_queue_parse_any_bytes(data: bytes) -> None:
    try:
        request = parse_request(data)
    except IntakeRefused as refused:
        assert str(refused) in ("garbage", "bad_request")
    else:
        assert (
            bool(request.path)
            + bool(request.paths)
            + (request.report is not None)
            + (request.finish is not None)
            == 1
        )


@settings(max_examples=200)
@given(
    st.fixed_dictionaries(
        {"path": st.text(min_size=1, max_size=50)},
        optional={
            "note": st.text(max_size=6000),
            "parents": st.lists(st.text(), max_size=40),
            "other": st.integers(),
        },
    )
)
def test_queue_parse_any_request(request_: dict[str, Any]) -> None:
    try:
        data = json.dumps(request_).encode()
    except UnicodeEncodeError:
        return
    try:
        request = parse_request(data)
    except IntakeRefused:
        return
    assert len(request.note) <= NOTE_CHARS and len(request.parents) <= 16
    assert msgspec.json.decode(msgspec.json.encode(request)) is not None  # can be stored


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(0, 100))
def test_queue_printable_texts_can_be_stored_and_shown(text: str, most: int) -> None:
    shown = printable_text(text, most)
    shown.encode("utf-8")
    assert len(shown) <= most
    assert not any(
        (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in shown
    )
