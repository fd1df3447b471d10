"""Evaluations through the queue: overhead, operations a second, bytes, and a trial with all that goes wrong.

    python bench/bench_pull.py overhead [--evaluations 500]
    python bench/bench_pull.py operations
    python bench/bench_pull.py throughput [--workers 16]
    python bench/bench_pull.py trial [--evaluations 10000] [--workers 50] [--hosts 10]

Needs PostgreSQL's server; the trial also root, iproute2 and iptables. The server is the tests' own, on this machine,
and writes to its disk as it does by default.
Workers are those of `culmen worker`, several in one process, without a jail:
their evaluator reads the score off the program. In the trial they run in network namespaces of their own, where a
fifth of all packets is dropped in each direction, their processes are killed at random, the server is ended without
warning and starts again, and one worker lies about half of its scores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from tests import postgres

from culmen.cluster import messages
from culmen.cluster.messages import EvaluationJob, NodeReply, TaskBundle
from culmen.cluster.queue_link import new_token, prepare_queue, read_queue
from culmen.cluster.queue_worker import QueueWorker
from culmen.core.evaluation import Observation, Scoring, Status
from culmen.core.options import BackendChoice
from culmen.evaluate.backends import make_backend
from culmen.store.address import parse_address
from culmen.testing.backend_kit import candidate, kit_task

DURABLE = {"fsync": "on", "max_connections": "200", "shared_buffers": "128MB", "autovacuum": "on"}
LOSS = 0.2


class Reading:
    """The evaluator of a worker here: the score of `2 * x + N` is -N, or false with probability `lies`."""

    shares_processes, idle_seconds = False, 0.0

    def __init__(self, lies: float) -> None:
        self._lies, self._digest = lies, ""

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        size = int.from_bytes(parcel[:8], "big")
        self._digest = messages.load_struct(parcel[8 : 8 + size], TaskBundle).task.evaluator.digest
        return messages.dump_struct(NodeReply(level="namespaces", scoring=Scoring("verified")))

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        asked = messages.load_struct(job, EvaluationJob)
        found = re.search(r"2 \* x \+ (\d+)", next(iter(asked.parts.values())))
        score = -float(found[1]) if found else 0.0
        score += 1000.0 * (random.random() < self._lies)
        seen = Observation(
            asked.id, Status.OK, score, asked.case or "", seed=asked.seed, evaluator=self._digest, trust="verified"
        )
        return messages.dump_struct(NodeReply(observation=seen))

    async def close(self) -> None:
        """Nothing was opened."""


def serve(url: str, lies: float, tokens: list[str]) -> None:
    """Several workers of one slot in this process, until it is killed."""

    async def all_of_them() -> None:
        address = parse_address(url)
        made = [
            QueueWorker(address, token, 1, None, None, lambda _: None, lambda: Reading(lies))  # type: ignore
            for token in tokens
        ]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [worker.stop() for worker in made])
        await asyncio.gather(*(worker.serve() for worker in made))

    asyncio.run(all_of_them())


class Crew:
    """Processes with workers; the `n`th has names of its own."""

    def __init__(self, url: str) -> None:
        self.url, self.running = url, dict[int, subprocess.Popen[bytes]]()

    def start(self, number: int, workers: int, inside: tuple[str, ...] = (), lies: float = 0.0, url: str = "") -> None:
        names = [f"{'liar' if lies else 'w'}{number}-{n}" for n in range(workers)]
        tokens = [new_token(parse_address(self.url), name, None, False) for name in names]
        words = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            *inside,
            sys.executable,
            __file__,
            "serve",
            url or self.url,
            str(lies),
            *tokens,
        ]
        self.running[number] = subprocess.Popen(words)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def queue(**more: Any) -> Iterator[tuple[postgres.Server, str, Crew]]:
    with postgres.server(**{**DURABLE, **more}) as server:
        url = server.new_database()
        prepare_queue(parse_address(url))
        crew = Crew(url)
        try:
            yield server, url, crew
        finally:
            crew.end()


def backend_of(url: str, workers: int, **texts: Any) -> tuple[Any, Any]:
    """A backend on a new task of one case, and the task."""
    folder = Path(tempfile.mkdtemp(prefix="culmen-bench-"))
    task = msgspec.structs.replace(kit_task(folder), deterministic=True)
    settings = {name: str(value) for name, value in texts.items()}
    choice = BackendChoice("queue", parse_address(url).url, retries=20, wait=120.0, run="bench", texts=settings)
    return make_backend(choice, task, workers, on_message=lambda text: print(f"    {text}", flush=True)), task


async def evaluate(backend: Any, task: Any, numbers: list[int], at_once: int) -> list[float | None]:
    room = asyncio.Semaphore(at_once)

    async def one(number: int) -> float | None:
        async with room:
            program = candidate(f"# {'x' * 1500}\ndef run(x):\n    return 2 * x + {number}\n")
            return (await backend.evaluate(program, task.cases[0], 1)).score

    return await asyncio.gather(*(one(number) for number in numbers))


def overhead(options: argparse.Namespace) -> None:
    """One evaluation after the other by one worker: all of the time is overhead."""
    with queue() as (server, url, crew):
        crew.start(0, 1)

        async def work() -> None:
            backend, task = backend_of(url, 1)
            await backend.start()
            await evaluate(backend, task, [0], 1)
            times = []
            for number in range(1, options.evaluations + 1):
                began = time.perf_counter()
                await evaluate(backend, task, [number], 1)
                times.append(1000 * (time.perf_counter() - began))
            await backend.close()
            times.sort()
            print(f"  overhead of an evaluation: median {statistics.median(times):.1f} ms, "
                  f"90 % under {times[int(0.9 * len(times))]:.1f} ms")  # fmt: skip

        asyncio.run(work())
        with server.connect(url.partition("?")[0].rpartition("/")[2]) as connection:
            trips = []
            for _ in range(200):
                began = time.perf_counter()
                connection.execute("SELECT 1").fetchone()
                trips.append(1000 * (time.perf_counter() - began))
            print(f"  a round trip to the server: median {statistics.median(trips):.2f} ms")
            connection.execute("CREATE TABLE written (x integer)")
            commits = []
            for _ in range(200):
                began = time.perf_counter()
                connection.execute("INSERT INTO written VALUES (1)")
                commits.append(1000 * (time.perf_counter() - began))
            print(f"  a commit on this disk: median {statistics.median(commits):.2f} ms")


def throughput(options: argparse.Namespace) -> None:
    """As many evaluations as the server bears, their size in it, and the processor time of each side."""
    with queue() as (server, url, crew):
        for number in range(4):
            crew.start(number, options.workers // 4)
        name = url.partition("?")[0].rpartition("/")[2]
        counts = "SELECT xact_commit, pg_current_wal_lsn() - '0/0' FROM pg_stat_database WHERE datname = %s"

        async def work() -> tuple[float, list[float]]:
            backend, task = backend_of(url, 4 * options.workers)
            await backend.start()
            await evaluate(backend, task, list(range(200)), 4 * options.workers)
            with server.connect(name) as connection:

                def measure() -> list[float]:
                    row = connection.execute(counts, (name,)).fetchone()
                    return [*map(float, row), cpu_of(server.process.pid), time.process_time()]

                await asyncio.sleep(1)  # statistics arrive late
                before, began = measure(), time.perf_counter()
                await evaluate(backend, task, list(range(1000, 1000 + options.evaluations)), 4 * options.workers)
                seconds = time.perf_counter() - began
                await asyncio.sleep(1)
                after = measure()
            await backend.close()
            return seconds, [(b - a) / options.evaluations for a, b in zip(before, after, strict=True)]

        seconds, (commits, log, served, drove) = asyncio.run(work())
        with server.connect(name) as connection:
            sizes = "sum(octet_length(job)), sum(octet_length(reply)), count(*)"
            job, reply, items = connection.execute(
                f"SELECT {sizes} FROM culmen_queue.item WHERE state = 2 AND octet_length(job) > 0"
            ).fetchone()
            body = connection.execute("SELECT avg(octet_length(body)) FROM culmen_queue.artifact").fetchone()[0]
        rate = options.evaluations / seconds
        print(f"  {rate:.0f} evaluations a second, {rate * commits:.0f} transactions a second, {commits:.1f} each")
        print(f"  processor time of an evaluation: server {1000 * served:.2f} ms, driver {1000 * drove:.2f} ms")
        print(f"  bytes: job {job / items:.0f}, answer {reply / items:.0f}, candidate {body:.0f}, log {log:.0f}")


def operations(options: argparse.Namespace) -> None:
    """What single calls cost the server: a sign of life, and a pull that finds nothing; and a connection's memory."""
    with queue() as (server, url, _):
        address = parse_address(url)
        token = new_token(address, "one", None, False)
        calls = {
            "a sign of life": ("SELECT * FROM culmen_queue.beat(%s, 'p', 'h', 1, '{}', false)", (token,)),
            "an empty pull": ("SELECT * FROM culmen_queue.pull(%s, 'p', 1, NULL, '{}')", (token,)),
        }
        with server.connect(url.partition("?")[0].rpartition("/")[2]) as connection:
            for name, (statement, values) in calls.items():
                cpu, began = cpu_of(server.process.pid), time.perf_counter()
                for _ in range(options.evaluations):
                    connection.execute(statement, values).fetchall()
                seconds, cpu = time.perf_counter() - began, cpu_of(server.process.pid) - cpu
                each, server_each = 1000 * seconds / options.evaluations, 1000 * cpu / options.evaluations
                print(f"  {name}: {each:.2f} ms, {server_each:.2f} ms of the server's processor time")
            lines = Path(f"/proc/{connection.info.backend_pid}/smaps_rollup").read_text().splitlines()
            private = sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
            print(f"  memory of a connection: {private / 1024:.1f} MB")


def cpu_of(parent: int) -> float:
    """Seconds of processor time of a server: the process and its children."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = file.read_text().rpartition(")")[2].split()
            if int(words[1]) == parent or int(file.parent.name) == parent:
                ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def trial(options: argparse.Namespace) -> None:
    """All that can go wrong at once; every score must be right, and every evaluation be answered once."""
    hosts = [f"cupull{os.getpid() % 10_000}-{n}" for n in range(options.hosts)]
    each = options.workers // options.hosts
    try:
        lay_network(hosts)
        with queue(listen_addresses="10.78.0.1") as (server, url, crew):
            name = url.partition("?")[0].rpartition("/")[2]
            login = parse_address(url).secret_url.partition("//")[2].rpartition("@")[0]
            there = f"postgresql://{login}@10.78.0.1/{name}?sslmode=disable"
            with (server.home / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all 10.78.0.0/16 scram-sha-256\n")
            starts = [(number, each, ("ip", "netns", "exec", host)) for number, host in enumerate(hosts)]
            for start in starts:
                crew.start(*start, url=there)
            crew.start(len(hosts), 1, ("ip", "netns", "exec", hosts[0]), lies=0.5, url=there)
            asyncio.run(run_trial(options, server, url, there, crew, starts))
    finally:
        remove_network(hosts)


async def run_trial(options: Any, server: Any, url: str, there: str, crew: Crew, starts: list[Any]) -> None:
    backend, task = backend_of(url, 4 * options.workers, share=options.share, lease=15)
    await backend.start()
    kills, crashes = 0, 0

    async def disturb() -> None:
        nonlocal kills, crashes
        while True:
            await asyncio.sleep(random.uniform(3, 6))
            start = random.choice(starts)
            crew.running[start[0]].send_signal(random.choice((signal.SIGKILL, signal.SIGTERM)))
            kills += 1
            await asyncio.to_thread(crew.running[start[0]].wait)
            if kills % 8 == 4:
                await asyncio.to_thread(server.crash)
                await asyncio.sleep(1)
                await asyncio.to_thread(server.start)
                crashes += 1
            await asyncio.to_thread(crew.start, *start, url=there)

    disturbing = asyncio.create_task(disturb())
    began = time.perf_counter()
    found = await evaluate(backend, task, list(range(options.evaluations)), 4 * options.workers)
    seconds = time.perf_counter() - began
    disturbing.cancel()
    await asyncio.gather(disturbing, return_exceptions=True)
    if server.process.poll() is not None:
        server.start()
    await backend.close()
    for finding in read_queue(parse_address(url))["findings"]:
        print(f"    finding: {finding['text']}")
    lost = sum(score is None for score in found)
    wrong = sum(score is not None and score != -number for number, score in enumerate(found))
    print(f"  {options.evaluations} evaluations in {seconds:.0f} s: {lost} lost, {wrong} wrong")
    print(f"  {options.workers} workers in {options.hosts} network namespaces, {LOSS:.0%} of packets dropped each way")
    print(f"  share {options.share}; {kills} processes killed or ended, {crashes} restarts of the server")


def lay_network(hosts: list[str]) -> None:
    """A bridge with an address for the server, and a lossy host for each name."""
    run("ip link add cupull0 type bridge")
    run("ip addr add 10.78.0.1/16 dev cupull0")
    run("ip link set cupull0 up")
    for number, host in enumerate(hosts):
        run(f"ip netns add {host}")
        run(f"ip link add cup{number} type veth peer name eth0 netns {host}")
        run(f"ip link set cup{number} master cupull0 up")
        run(f"ip -n {host} addr add 10.78.1.{number + 1}/16 dev eth0")
        for device in ("eth0", "lo"):
            run(f"ip -n {host} link set {device} up")
        for chain in ("INPUT", "OUTPUT"):
            drop = f"iptables -A {chain} -p tcp -m statistic --mode random --probability {LOSS} -j DROP"
            run(f"ip netns exec {host} {drop}")


def remove_network(hosts: list[str]) -> None:
    for words in (*(f"ip netns delete {host}" for host in hosts), "ip link delete cupull0"):
        subprocess.run(words.split(), capture_output=True, check=False)


def run(words: str) -> None:
    subprocess.run(words.split(), check=True, capture_output=True)


CASES = {"overhead": overhead, "operations": operations, "throughput": throughput, "trial": trial}


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], float(sys.argv[3]), sys.argv[4:])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    print(options.case, flush=True)
    CASES[options.case](options)


if __name__ == "__main__":
    main()
