"""The backend `queue`: real workers, a real database, and what may happen to both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from culmen.cluster.queue_link import new_token, prepare_queue, read_queue
from culmen.core.options import BackendChoice
from culmen.core.task import Task
from culmen.evaluate.backends import make_backend, parse_backend
from culmen.store.address import parse_address
from culmen.testing.backend_kit import check_backend, check_cancel

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

TOKEN = "CULMEN_WORKER_TOKEN"


class Workers:
    """Processes of `culmen worker` on one database, ended with the block."""

    def __init__(self, url: str, place: Path) -> None:
        self.url, self.place = url, place
        self.address = parse_address(url)
        prepare_queue(self.address)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *options: str, slots: int = 2) -> subprocess.Popen[bytes]:
        token = new_token(self.address, name, None, False)
        words = [str(Path(sys.executable).with_name("culmen")), "worker", self.url, "--slots", str(slots), *options]
        log = (self.place / f"{name}.log").open("ab")
        process = subprocess.Popen(words, env={**os.environ, TOKEN: token}, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def printed(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text()

    def choice(self, run: str = "", **texts: Any) -> BackendChoice:
        chosen = parse_backend(f"queue:{self.url}")
        return BackendChoice("queue", chosen.address, wait=60.0, texts={k: str(v) for k, v in texts.items()}, run=run)

    def backend(self, task: Task, workers: int, run: str = "", **texts: Any) -> Any:
        return make_backend(self.choice(run, **texts), task, workers, on_message=print)


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(database, tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.wait()


def folder(place: Path) -> Path:
    made = place / "task"
    made.mkdir()
    return made


def test_the_queue_keeps_its_promises(workers: Workers, tmp_path: Path):
    workers.start("one")
    workers.start("two")
    asyncio.run(check_backend(lambda task, n: workers.backend(task, n), folder(tmp_path)))
    asyncio.run(check_cancel(lambda task, n: workers.backend(task, n), folder(tmp_path / "task")))
