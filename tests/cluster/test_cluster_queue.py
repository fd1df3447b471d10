"""The backend `queue`: real workers, a real database, and what may happen to both."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

import culmen
from culmen.cli.main import main
from culmen.cluster.queue_link import ask_queue, connection_text, new_token, prepare_queue, read_queue
from culmen.core.candidate import Candidate
from culmen.core.options import BackendChoice
from culmen.core.task import Task
from culmen.evaluate.backends import make_backend, parse_backend
from culmen.evaluate.jail import probes
from culmen.store.address import parse_address
from culmen.testing.backend_kit import candidate, check_backend, check_cancel, kit_task, wait_for_condition
from tests.postgres import PASSWORD

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

TOKEN = "CULMEN_WORKER_TOKEN"
CULMEN = str(Path(sys.executable).with_name("culmen"))


class Workers:
    """Processes of `culmen worker` on one database, ended with the block."""

    def __init__(self, url: str, place: Path) -> None:
        self.url, self.place = url, place
        self.address = parse_address(url)
        prepare_queue(self.address)
        self.named: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str, slots: int = 2) -> subprocess.Popen[bytes]:
        token = new_token(self.address, name, None, False)
        words = [CULMEN, "worker", self.url, "--slots", str(slots), *options]
        with (self.place / f"{name}.log").open("ab") as log:
            self.named[name] = subprocess.Popen(words, env={**os.environ, TOKEN: token}, stdout=log, stderr=log)
        return self.named[name]

    def start_liar(self, name: str, shift: float) -> None:
        token = new_token(self.address, name, None, False)
        program = Path(__file__).with_name("queue_liar.py")
        words = [sys.executable, str(program), connection_text(self.address), token, str(shift)]
        self.named[name] = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    async def wait_for_liar(self, name: str) -> None:
        def greets() -> bool:
            return any(each["name"] == name and each["processes"] for each in read_queue(self.address)["workers"])

        await wait_for_condition(greets, "the liar takes part")

    def end(self) -> None:
        for process in self.named.values():
            process.kill()
            process.wait()

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
    made.end()


@pytest.fixture(scope="module")
def standing(postgres_server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A worker for all tests that leave it alone."""
    made = Workers(postgres_server.new_database(), tmp_path_factory.mktemp("standing"))
    made.start("one", slots=4)
    yield made
    made.end()


def folder(place: Path) -> Path:
    made = place / "task"
    made.mkdir()
    return made


def test_the_queue_keeps_its_promises(standing: Workers, tmp_path: Path):
    asyncio.run(check_backend(lambda task, n: standing.backend(task, n), folder(tmp_path)))
    asyncio.run(check_cancel(lambda task, n: standing.backend(task, n), folder(tmp_path / "task")))


def programs(count: int) -> list[Candidate]:
    """Candidates whose score is minus their number."""
    return [candidate(f"def run(x):\n    return 2 * x + {n}\n") for n in range(count)]


async def scores(backend: Any, task: Task, wanted: list[Candidate]) -> list[float | None]:
    seen = await asyncio.gather(*(backend.evaluate(each, task.cases[0], 1) for each in wanted))
    return [each.score for each in seen]


def test_workers_that_die_a_database_that_restarts_and_one_that_lies(workers: Workers, tmp_path: Path, postgres_server):
    """Nothing is lost, repeated in the result or scored wrong; the liar is named, and shut out."""
    task = kit_task(folder(tmp_path))
    task = msgspec.structs.replace(task, deterministic=True)
    count = 40
    for name in ("one", "two", "three"):
        workers.start(name)
    chance = random.Random(1)

    async def disturb(backend: Any) -> None:
        for turn in range(3):
            await asyncio.sleep(0.7)
            name = chance.choice(("one", "two", "three"))
            victim = workers.named[name]
            victim.send_signal(chance.choice((signal.SIGKILL, signal.SIGTERM)))
            if turn == 1:
                postgres_server.crash()
                postgres_server.start()
            victim.wait()
            workers.start(name)

    async def work() -> list[float | None]:
        backend = workers.backend(task, 16, "chaos", share=1, lease=2)
        await backend.start()
        workers.start_liar("mallory", shift=1000.0)
        await workers.wait_for_liar("mallory")
        disturbing = asyncio.create_task(disturb(backend))
        try:
            found = await scores(backend, task, programs(count))
            await disturbing
            await wait_for_condition(lambda: any(named in text for text in texts()), "the liar is named")
            return found
        finally:
            await backend.close()

    named = "worker mallory gets nothing more of this run"

    def texts() -> list[str]:
        return [each["text"] for each in read_queue(workers.address)["findings"]]

    assert asyncio.run(work()) == [-float(n) for n in range(count)]
    found = texts()
    assert not any("worker one" in text or "worker two" in text or "worker three" in text for text in found), found


def test_results_of_a_liar_that_the_search_has_used_are_made_again(workers: Workers, tmp_path: Path):
    """With a small share the search sees false scores; when the liar is found out, each of them is named."""
    task = msgspec.structs.replace(kit_task(folder(tmp_path)), deterministic=True)
    for name in ("one", "two"):
        workers.start(name)

    async def work() -> list[float | None]:
        backend = workers.backend(task, 8, "few", share=0.4, lease=2)
        await backend.start()
        workers.start_liar("mallory", shift=1000.0)
        await workers.wait_for_liar("mallory")
        try:
            found = await scores(backend, task, programs(60))
            await wait_for_condition(lambda: any("differ, of" in each for each in texts()), "they were made again")
            return found
        finally:
            await backend.close()

    def texts() -> list[str]:
        return [each["text"] for each in read_queue(workers.address)["findings"]]

    wrong = sum(score != -n for n, score in enumerate(asyncio.run(work())))
    report = next(text for text in texts() if "differ, of" in text)
    assert wrong and f"{wrong} results of worker mallory" in report and f"{wrong} differ" in report, report


def test_what_a_crash_lost_is_written_again(workers: Workers, tmp_path: Path):
    """The last commits of a server that crashes are gone: here a mark and its finding, with the connections."""
    task = msgspec.structs.replace(kit_task(folder(tmp_path)), deterministic=True)
    for name in ("one", "two"):
        workers.start(name)

    def written() -> tuple[int, int]:
        rows = ask_queue(
            workers.address,
            "SELECT (SELECT count(*) FROM culmen_queue.mark), (SELECT count(*) FROM culmen_queue.finding)",
        )
        return rows[0]

    def cut_connections() -> None:
        ask_queue(
            workers.address,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )

    async def work() -> None:
        backend = workers.backend(task, 8, "lossy", share=1, lease=2)
        await backend.start()
        workers.start_liar("mallory", shift=1000.0)
        await workers.wait_for_liar("mallory")
        try:
            await scores(backend, task, programs(40))
            await wait_for_condition(lambda: written() == (1, 1), "the liar is named")
            ask_queue(workers.address, "DELETE FROM culmen_queue.mark")
            ask_queue(workers.address, "DELETE FROM culmen_queue.finding")
            cut_connections()
            await wait_for_condition(lambda: written() == (1, 1), "it is named again")
            cut_connections()
            for number in (41, 42):  # answered over the next connection, the second after all was written again
                await scores(backend, task, programs(number)[-1:])
            assert written() == (1, 1)
        finally:
            await backend.close()

    asyncio.run(work())


DRIVER = """
import asyncio, sys
from pathlib import Path
from culmen.testing.backend_kit import kit_task
from culmen.evaluate.backends import make_backend
from culmen.core.options import BackendChoice
from culmen.store.address import parse_address
from tests.cluster.test_cluster_queue import programs, scores

async def main():
    choice = BackendChoice("queue", parse_address(sys.argv[1]).url, wait=60.0, run="resumed")
    task = kit_task(Path(sys.argv[2]))
    backend = make_backend(choice, task, 12)
    await backend.start()
    print(await scores(backend, task, programs(int(sys.argv[3]))), flush=True)
    await backend.close()

asyncio.run(main())
"""


def test_what_was_answered_while_no_driver_ran_is_not_evaluated_again(standing: Workers, tmp_path: Path):
    """A driver is killed while its evaluations run; the next one gets the answers out of the queue."""
    folder(tmp_path)
    words = [sys.executable, "-c", DRIVER, standing.url, str(tmp_path / "task")]
    first = subprocess.Popen([*words, "12"], stdout=subprocess.PIPE)

    def counts() -> dict[str, int]:
        runs = read_queue(standing.address)["runs"]
        return next((run for run in runs if run["name"] == "resumed"), {})

    def made() -> int:
        return standing.printed("one").count("Run resumed: ok after")

    async def wait() -> None:
        await wait_for_condition(
            lambda: counts().get("ready", 0) + counts().get("answered", 0) > 5, "the work is there"
        )
        first.kill()
        first.wait()
        await wait_for_condition(lambda: counts()["answered"] >= 13 and not counts()["leased"], "all was answered")

    asyncio.run(wait())
    before = made()
    again = subprocess.run([*words, "14"], stdout=subprocess.PIPE, check=True, timeout=100)
    assert json.loads(again.stdout) == [-float(n) for n in range(14)]
    assert made() == before + 2


def test_a_run_over_the_queue_and_its_password_stays_here(standing: Workers, tmp_path: Path):
    kit_task(folder(tmp_path))
    study = culmen.Study.create(
        tmp_path / "task", "best_of_n", budget=6, backend=standing.choice(), run_dir=tmp_path / "run"
    )
    study.run(progress=False)
    assert study.best.score == 0.0 and study.status.isolation in probes.LEVELS
    stored = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert PASSWORD.encode() not in stored and quote(PASSWORD, safe="").encode() not in stored
    assert PASSWORD not in standing.printed("one")


def test_the_verbs_make_show_and_revoke_a_worker(database: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any):
    def document(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert document("queue", "setup", database)["scripts"] == 2
    token = document("queue", "token", database, "lab", "--runs", "a,b")["token"]
    assert [each["name"] for each in document("queue", "show", database)["workers"]] == ["lab"]
    monkeypatch.delenv(TOKEN, raising=False)
    assert main(["worker", database]) == 2 and "needs a token" in capsys.readouterr().err
    assert document("queue", "revoke", database, "lab") == {"revoked": "lab"}
    monkeypatch.setenv(TOKEN, token)
    ended = subprocess.run([CULMEN, "worker", database], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2 and "refuses the worker's token" in ended.stderr
    assert PASSWORD not in ended.stderr + ended.stdout and token not in ended.stderr
