"""Pools, threads and transactions that a fork does not carry over are named; others are not."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.fork_hazards import find_fork_hazards
from culmen.evaluate.function import FunctionBackend
from culmen.evaluate.integrity.guard import IntegrityBackend

SHORT = Limits(seconds=1, memory_mb=512)
POOL: Executor = ThreadPoolExecutor(2)
LOG = logging.getLogger("hazards")


@pytest.fixture(params=[ThreadPoolExecutor, ProcessPoolExecutor, ThreadPool])
def running_pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(2) as pool:
        ask_pool(pool, "-1")
        yield pool


def ask_pool(pool: Any, text: str) -> float:
    if isinstance(pool, ThreadPool):
        return float(pool.apply(abs, (int(text),)))
    return float(pool.submit(abs, int(text)).result())


def test_work_for_a_running_pool_is_never_done_and_check_names_the_pool(running_pool: Any) -> None:
    def evaluate(text: str) -> float:
        return ask_pool(running_pool, text)

    report = culmen.check("7", evaluate, times=2, limits=SHORT)
    assert [o.reason for o in report.observations] == ["timeout"]
    (finding,) = (each for each in report.findings if "running before culmen forked" in each.what)
    kind = type(running_pool).__name__
    assert finding.level == "warning" and finding.what.startswith(f"a {kind} in running_pool was")
    assert "inside the function" in finding.fix and "culmen new" in finding.fix


def test_a_pool_that_has_not_started_works_and_is_not_named() -> None:
    def evaluate(text: str) -> float:
        return ask_pool(POOL, text)

    report = culmen.check("7", evaluate, times=2, limits=SHORT)
    assert [o.score for o in report.observations] == [7.0] * 3
    assert not any("forked" in each.what for each in report.findings)


class Judge:
    """An evaluator that holds its pool in an attribute."""

    def __init__(self, pool: Any) -> None:
        self.tools = {"pool": pool}

    def __call__(self, text: str) -> float:
        return 1.0

    def rate(self, text: str, scale: float = 1.0) -> float:
        return scale


def with_default(text: str, pool: Any = None) -> float:
    return 1.0


def test_pools_are_found_where_functions_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def helper(text: str) -> float:
        return ask_pool(POOL, text)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(abs, -1).result()
        monkeypatch.setattr(with_default, "__defaults__", (pool,))
        judge = Judge(pool)
        found: list[Callable[..., object]] = [
            judge,
            judge.rate,
            partial(judge.rate, scale=2.0),
            lambda text: judge.rate(text),
            with_default,
        ]
        for fn in found:
            (note,) = find_fork_hazards(fn)
            assert "a ThreadPoolExecutor in" in note.what, note
        assert find_fork_hazards(lambda text: helper(text)) == ()
        monkeypatch.setitem(globals(), "POOL", pool)
        (note,) = find_fork_hazards(lambda text: helper(text))
        assert note.what.startswith("a ThreadPoolExecutor in POOL was")
    assert find_fork_hazards(judge) == ()  # it was shut down: it refuses work at once


def test_a_thread_is_named_if_the_function_would_wait_for_it() -> None:
    asked: queue.Queue[str | None] = queue.Queue()
    answers: queue.Queue[float] = queue.Queue()

    def serve() -> None:
        while (text := asked.get()) is not None:
            LOG.info("asked %s", text)
            answers.put(float(text))

    thread = threading.Thread(target=serve, name="server")
    thread.start()
    try:

        def evaluate(text: str) -> float:
            asked.put(text)
            return answers.get()

        report = culmen.check("7", evaluate, times=2, limits=SHORT)
        assert [o.reason for o in report.observations] == ["timeout"]
        (finding,) = (each for each in report.findings if "forked" in each.what)
        assert finding.what.startswith("the thread 'server' (which uses a")
        (note,) = find_fork_hazards(lambda text: float(thread.is_alive()))
        assert note.what.startswith("the thread 'server' (thread)")
        assert find_fork_hazards(lambda text: LOG.info("rated %s", text)) == ()
    finally:
        asked.put(None)
        thread.join()


def test_a_loop_that_runs_in_a_thread_is_named() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop")
    thread.start()
    try:

        async def rate(text: str) -> float:
            return float(text)

        (note,) = find_fork_hazards(
            lambda text: asyncio.run_coroutine_threadsafe(rate(text), loop).result()
        )
        assert note.what.startswith("the thread 'loop' (which uses loop)")
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_open_transaction_is_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "facts.db")
    connection.execute("CREATE TABLE facts (value INTEGER)")

    def evaluate(_: str) -> float:
        return float(connection.execute("SELECT count(*) FROM facts").fetchone()[0])

    connection.execute("INSERT INTO facts VALUES (1)")
    (note,) = find_fork_hazards(evaluate)
    assert "connection to SQLite" in note.what and "commit" in note.fix
    connection.commit()
    assert find_fork_hazards(evaluate) == ()
    connection.close()


def test_a_connection_of_another_thread_is_named_as_in_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    with sqlite3.connect(path) as refused, sqlite3.connect(path, check_same_thread=False) as free:

        async def cell(connection: sqlite3.Connection) -> Any:
            return culmen.check(
                "7", lambda _: connection.execute("SELECT 1").fetchone()[0], times=2
            )

        report = asyncio.run(cell(refused))
        assert not report.fit and "created in a thread" in report.observations[0].feedback
        (finding,) = (each for each in report.findings if "the connection connection" in each.what)
        assert "check_same_thread=False" in finding.fix
        report = asyncio.run(cell(free))
        assert report.fit and not any("connection" in each.what for each in report.findings)
    refused.close()
    free.close()


def test_notes_pass_through_other_backends_and_are_sent_when_a_run_begins(tmp_path: Path) -> None:
    task = Task("f", evaluator=Evaluator(form="function"), limits=SHORT)
    told: list[str] = []

    class Listener:
        def see(self, events: Any) -> None: ...

        def told(self, text: str) -> None:
            told.append(text)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(abs, -1).result()

        def evaluate(text: str) -> float:
            return 1.0 if pool else 0.0

        async def notes() -> tuple[Any, ...]:
            backend = IntegrityBackend(FunctionBackend(task, evaluate, 1), task)
            await backend.start()
            try:
                assert (await backend.evaluate(Candidate.of({"text": "7"}), None, 0)).ok
                return backend.notes
            finally:
                await backend.close()

        (note,) = asyncio.run(notes())
        culmen.optimize(
            "def run():\n    return 7\n",
            evaluate,
            model="offline",
            budget=2,
            progress=False,
            run_dir=tmp_path / "run",
            observers=(Listener(),),
        )
    assert note.what.startswith("a ThreadPoolExecutor in pool was")
    assert f"{note.what}; {note.fix}" in told
