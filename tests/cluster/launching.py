"""A queue with a role for its workers, and looks at processes, for tests that launch workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from culmen.cli.main import main
from culmen.cluster.queue_link import prepare_queue, read_queue
from culmen.cluster.queue_schema import ROLE, worker_grants
from culmen.core.errors import Unavailable
from culmen.core.options import BackendChoice
from culmen.evaluate.backends import make_backend, parse_backend
from culmen.store.address import parse_address
from culmen.testing.backend_kit import candidate, kit_task

WORKER_PASSWORD = "worker's pass$word"


class LaunchQueue:
    """A queue with the printed grants for its workers, and the verbs on it."""

    def __init__(self, server: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self._server, self._capsys = server.new_database(), server, capsys
        self.address = parse_address(self.url)
        prepare_queue(self.address)
        database = self.address.url.partition("?")[0].rpartition("/")[2]
        grants = worker_grants(database).replace("'...'", f"'{WORKER_PASSWORD.replace(chr(39), chr(39) * 2)}'")
        with server.connect(database) as connection:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
                grants = grants.partition(";")[2]  # roles are the whole server's
            connection.execute(grants)

    def call(self, *words: str, code: int = 0) -> Any:
        """The document of `culmen queue`."""
        verb, *rest = words
        assert main(["queue", verb, self.url, *rest, "--json"]) == code
        return json.loads(self._capsys.readouterr().out)

    def launch(self, *words: str, code: int = 0) -> list[dict[str, str]]:
        return self.call("launch", *words, "--slots", "2", code=code)["workers"]

    def stop(self, *names: str, code: int = 0) -> list[str]:
        return [each["state"] for each in self.call("stop", *names, code=code)["workers"]]

    def names(self) -> list[str]:
        return [each["name"] for each in read_queue(self.address)["workers"]]

    def worker(self, name: str) -> dict[str, Any]:
        return next(each for each in read_queue(self.address)["workers"] if each["name"] == name)

    def scores(self, place: Path, count: int) -> list[float | None]:
        """Of programs whose score is minus their number."""
        place.mkdir()
        task = kit_task(place)
        choice = BackendChoice("queue", parse_backend(f"queue:{self.url}").address, wait=60.0)
        programs = [candidate(f"def run(x):\n    return 2 * x + {n}\n") for n in range(count)]

        async def work() -> list[float | None]:
            backend = make_backend(choice, task, 4)
            try:
                await backend.start()
                seen = await asyncio.gather(*(backend.evaluate(each, task.cases[0], 1) for each in programs))
                return [each.score for each in seen]
            except Unavailable as error:
                raise AssertionError(read_queue(self.address)["findings"]) from error
            finally:
                await backend.close()

        return asyncio.run(work())

    def tls_url(self, root: Path, host: str = "localhost") -> str:
        """For workers, over TLS."""
        database = self.address.url.partition("?")[0].rpartition("/")[2]
        return f"postgresql://{ROLE}@{host}:{self._server.port}/{database}?sslmode=verify-full&sslrootcert={root}"


@contextmanager
def launch_queue(server: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[LaunchQueue]:
    """A queue whose launched workers are stopped in the end."""
    made = LaunchQueue(server, capsys)
    yield made
    main(["queue", "stop", made.url])


def runs(process: int) -> bool:
    """False for one that has ended, and may wait for its parent."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except OSError:
        return False


def processes(text: str) -> list[int]:
    """Processes with a text in their command line."""
    found = list[int]()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(file.parent.name)] if text.encode() in file.read_bytes() else []
        except OSError:
            continue
    return found


def wait_until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
