"""Files, connections, libraries of the user's process, in a Python function's processes."""

from __future__ import annotations

import asyncio
import csv
import logging
import mmap
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.function import FunctionBackend
from culmen.jail import descriptors

TASK = Task("f", evaluator=Evaluator(form="function"), limits=Limits(seconds=5, memory_mb=512))
LINUX = sys.platform == "linux"


def evaluate_all(fn: Callable[[str], Any], texts: list[str], workers: int = 1) -> list[Observation]:
    """The observations of these texts, in a session as `culmen.check` has one."""

    async def work() -> list[Observation]:
        backend = FunctionBackend(TASK, fn, workers)
        await backend.start()
        try:
            waiting = (backend.evaluate(Candidate.of({"text": text}), None, 0) for text in texts)
            return list(await asyncio.gather(*waiting))
        finally:
            await backend.close()

    with descriptors.user_session():
        return asyncio.run(work())


def scores(observations: list[Observation]) -> list[float | None]:
    assert [o.status.value for o in observations] == ["ok"] * len(observations), observations
    return [o.score for o in observations]


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[logging.Handler]:
    handler = logging.FileHandler(tmp_path / "run.log")
    logging.getLogger("inherited").addHandler(handler)
    logging.getLogger("inherited").setLevel(logging.INFO)
    yield handler
    logging.getLogger("inherited").removeHandler(handler)
    handler.close()


def test_a_log_file_gets_a_line_of_each_evaluation(log_file: Any) -> None:
    def evaluate(text: str) -> float:
        logging.getLogger("inherited").info("trying %s", text)
        return 1.0

    report = culmen.check("7", evaluate, times=2)
    assert report.fit and [o.score for o in report.observations] == [1.0] * 3, report
    assert Path(log_file.baseFilename).read_text() == "trying 7\n" * 3


@pytest.mark.parametrize("workers", [1, 4])
def test_logs_of_several_processes_have_all_lines(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "run.log"
    with open(path, "w", newline="") as log:
        table = csv.writer(log, lineterminator="\n")
        table.writerow(["begin"])  # in the buffer when the processes are forked

        def evaluate(text: str) -> float:
            table.writerow([text])  # never flushed by the function
            print("seen", text)
            return 1.0

        texts = [f"{number:03}" for number in range(20)]
        observations = evaluate_all(evaluate, texts, workers)
        assert scores(observations) == [1.0] * 20
        assert [o.artifacts["log"] for o in observations] == [f"seen {text}\n" for text in texts]
    lines = path.read_text().splitlines()
    assert lines[0] == "begin" and sorted(lines[1:]) == texts


@pytest.mark.skipif(not LINUX, reason="elsewhere processes share positions in files")
def test_a_file_that_is_read_is_read_by_each_process_from_one_place(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(200)))
    with open(path, "rb", buffering=0) as data:
        assert data.seek(50) == 50

        def evaluate(_: str) -> float:
            return float(data.read(1)[0])

        found = sorted(score or 0.0 for score in scores(evaluate_all(evaluate, ["7"] * 3)))
        assert found == [50.0] * 3  # a position in a file is state: every call finds the first one
        data.seek(50)
        apart = Limits(seconds=5, memory_mb=512, calls=1)  # each call has its own process
        report = culmen.check("7", evaluate, times=2, limits=apart)
        assert [o.score for o in report.observations] == [50.0] * 3


@pytest.mark.parametrize("workers", [1, 4])
def test_many_files_and_a_map_are_read(tmp_path: Path, workers: int) -> None:
    files = []
    for number in range(8):
        path = tmp_path / f"{number}.txt"
        path.write_text("x" * (100 + number))
        files.append(open(path, "rb"))  # noqa: SIM115 - closed below
    shown = mmap.mmap(files[0].fileno(), 0, prot=mmap.PROT_READ)
    try:

        def evaluate(text: str) -> float:
            sizes = [len(os.pread(each.fileno(), 1000, 0)) for each in files]
            return float(sum(sizes) + len(shown[:]) + int(text))

        texts = [str(number) for number in range(8)]
        expected = [828.0 + 100 + number for number in range(8)]
        assert scores(evaluate_all(evaluate, texts, workers)) == expected
    finally:
        shown.close()
        for each in files:
            each.close()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_connection_to_sqlite_reads_and_writes(tmp_path: Path, workers: int, mode: str) -> None:
    path = tmp_path / "data.db"
    connection = sqlite3.connect(path, timeout=30)
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("CREATE TABLE facts (value INTEGER)")
    connection.executemany("INSERT INTO facts VALUES (?)", [(1,), (2,)])
    connection.commit()

    def read(_: str) -> float:
        return float(connection.execute("SELECT sum(value) FROM facts").fetchone()[0])

    def write(text: str) -> float:
        with connection:
            connection.execute("INSERT INTO facts VALUES (?)", (int(text),))
        return 1.0

    assert scores(evaluate_all(read, ["7"] * 8, workers)) == [3.0] * 8
    assert scores(evaluate_all(write, ["10"] * 40, workers)) == [1.0] * 40
    assert connection.execute("SELECT count(*), sum(value) FROM facts").fetchone() == (42, 403)
    connection.close()
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other.close()


def test_pipes_and_sockets_opened_before_work() -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as engine,
    ):
        assert engine.stdin is not None and engine.stdout is not None
        ask, answer = engine.stdin, engine.stdout

        def evaluate(text: str) -> float:
            theirs.sendall(text.encode())
            ask.write(text.encode())
            return float(answer.read(1))

        assert scores(evaluate_all(evaluate, ["7", "8"])) == [7.0, 8.0]
        assert ours.recv(2) in (b"78", b"87")
        ask.close()


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_descriptors_opened_in_the_session_are_not_in_the_process() -> None:
    late: list[int] = []

    def evaluate(_: str) -> tuple[float, str]:
        return 1.0, " ".join(os.readlink(f"/proc/self/fd/{number}") for number in late)

    async def work() -> Observation:
        backend = FunctionBackend(TASK, evaluate, 1)
        late.extend((*os.pipe(), os.memfd_create("late")))
        await backend.start()
        try:
            return await backend.evaluate(Candidate.of({"text": "7"}), None, 0)
        finally:
            await backend.close()

    with descriptors.user_session():
        observation = asyncio.run(work())
    for number in late:
        os.close(number)
    assert observation.feedback == "/dev/null /dev/null /dev/null"


def test_a_process_with_many_files_open_may_open_more() -> None:
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:

        def evaluate(_: str) -> float:
            return float(len([open(os.devnull) for _ in range(100)]))

        assert scores(evaluate_all(evaluate, ["7"])) == [100.0]
    finally:
        for number in opened:
            os.close(number)


TWO_BACKENDS = """
import asyncio, os, signal, sys
from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.function import FunctionBackend

TASK = Task("f", evaluator=Evaluator(form="function"), limits=Limits(seconds=5, memory_mb=512))


def evaluate(text):
    return float(os.getpid()), str(os.getppid())


async def main():
    first, second = FunctionBackend(TASK, evaluate, 1), FunctionBackend(TASK, evaluate, 1)
    pids = []
    for backend in (first, second):
        await backend.start()
    for backend in (first, second, first):
        observation = await backend.evaluate(Candidate.of({"text": "7"}), None, 0)
        assert observation.ok, observation
        pids += [int(observation.score), int(observation.feedback)]
        if len(pids) == 2:  # the server of the first is replaced, while the other lives
            os.kill(pids[1], signal.SIGKILL)
            while first._jail.is_alive:
                await asyncio.sleep(0.01)
    print(*pids[2:], flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
"""


@pytest.mark.skipif(not LINUX, reason="elsewhere there is no server")
def test_servers_of_several_backends_end_with_the_process() -> None:
    script = [sys.executable, "-c", TWO_BACKENDS]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(set(pids)) == 4 and all(map(is_running, pids))
        process.kill()
    while any(map(is_running, pids)):  # the limit of the test's time ends it otherwise
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of policies, since Python 3.14
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_the_policy_of_uvloop_works(is_coroutine: bool) -> None:
    uvloop = pytest.importorskip("uvloop")

    def evaluate(text: str) -> float:
        return float(text) + len(subprocess.run(["echo", "7"], stdout=-1, check=True).stdout)

    async def evaluate_later(text: str) -> float:
        program = await asyncio.create_subprocess_exec("echo", "7", stdout=-1)
        return float(text) + len((await program.communicate())[0])

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        report = culmen.check("7", evaluate_later if is_coroutine else evaluate, times=3)
    finally:
        asyncio.set_event_loop_policy(None)
    assert [o.score for o in report.observations] == [9.0] * 5, report


def test_an_evaluator_may_hold_a_namespace_of_executed_text_and_classes_of_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    names: dict[str, Any] = {"kinds": [numpy.ndarray, memoryview, Hidden()]}
    exec("def score(text):\n    return float(text)\n", names)
    assert scores(evaluate_all(lambda text: names["score"](text), ["7", "8"])) == [7.0, 8.0]


class Hidden:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("the walk runs no code of the evaluator's")
