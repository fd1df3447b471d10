"""The Ray backend on several hosts.

Networks, names, processes and temporary files are their own.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from culmen.core.evaluation import EVALUATOR_LOG
from culmen.run.study import Study
from culmen.store.journal import SqlJournal
from culmen.testing.backend_kit import kit_task
from tests.extensions.cluster.conftest import HAS_RAY, patiently
from tests.extensions.cluster.hosts import Host, Network, Unable, network
from tests.extensions.cluster.test_cluster_ray import WAITS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TOKEN = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "fedcba9876543210" * 4,
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Cluster:
    """A head, two hosts that evaluate, and one outside the cluster with the task."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.head, self.one, self.two, self.laptop = (
            net.add(name) for name in ("head", "one", "two", "laptop")
        )
        self.start(self.head, "--head", "--num-cpus=0", "--include-dashboard=false")
        with ThreadPoolExecutor() as both:
            list(
                both.map(
                    lambda host: self.start(host, f"--address={self.inside}", "--num-cpus=2"),
                    self.workers,
                )
            )
        kit_task(folder)
        for host in (self.laptop, self.one):
            shutil.copytree(folder, host.root / "tmp/kit")

    inside = property(lambda self: f"{self.head.address}:6379")
    outside = property(lambda self: f"ray://{self.head.address}:10001")
    workers = property(lambda self: (self.one, self.two))

    def start(self, host: Host, *words: str) -> None:
        small = ("--object-store-memory=80000000", f"--node-ip-address={host.address}")

        def start() -> None:
            try:
                host.run("ray", "start", *words, *small, more=TOKEN, seconds=240.0)
            except (RuntimeError, subprocess.TimeoutExpired):
                host.run("ray", "stop", "--force", more=TOKEN)
                raise

        patiently(start)

    def culmen(self, host: Host, *words: str) -> subprocess.Popen[Any]:
        pipe = subprocess.PIPE
        return host.popen(
            "culmen", *words, "--json", more=TOKEN, stdout=pipe, stderr=pipe, text=True
        )

    def folders(self) -> list[tuple[str, str]]:
        """Places of the task: host and folder."""
        hosts = self.net.hosts.values()
        return [
            (host.name, each.name)
            for host in hosts
            for each in (host.root / "tmp").glob("culmen-node-*")
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not HAS_RAY:
        pytest.skip("Ray is not installed: pip install 'culmen[ray]'")
    try:
        with network() as net:
            yield Cluster(net, tmp_path_factory.mktemp("kit"))
    except Unable as reason:
        pytest.skip(f"no separate hosts on this machine: {reason}")


def until(
    condition: Callable[[], bool],
    what: str,
    seconds: float = 90.0,
    seen: Callable[[], object] = str,
) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"never came true: {what}: {seen()}"
        time.sleep(0.05)


def test_a_run_from_outside_brings_its_task_once_to_each_host_and_leaves_nothing(cluster: Cluster):
    words = [
        "run",
        "/tmp/kit",
        "--set",
        f"backend.address={cluster.outside}",
        "--strategy",
        "best_of_n",
        "--run-dir",
        "/tmp/run",
    ]
    before = {host.name: set(host.processes().values()) for host in cluster.workers}
    run = cluster.culmen(cluster.laptop, *words, "--budget", "evaluations=60")
    seen, listening = set[tuple[str, str]](), set[tuple[str, str]]()
    while run.poll() is None:
        seen.update(cluster.folders())
        listening |= (
            cluster.laptop.listening()
        )  # on nodes Ray's own processes listen on every address
        time.sleep(0.1)
    out, err = run.communicate()
    assert run.returncode == 0, err[-3000:]
    assert json.loads(out)["state"] == "finished"
    assert sorted(host for host, _ in seen) == ["one", "two"]
    assert not cluster.folders()
    assert not listening
    left = {
        host.name: set(host.processes().values()) - before[host.name] for host in cluster.workers
    }
    assert not any(name in ("bwrap", "ray::NodeActor") for names in left.values() for name in names)


def test_a_cable_that_is_out_for_a_moment_costs_nothing(cluster: Cluster):
    """The driver is on one of the nodes.

    Head and the other node are gone for a moment, without a word.
    """
    (cluster.one.root / "tmp/scores.py").write_text(SCORES)
    run = cluster.one.popen(
        sys.executable,
        "/tmp/scores.py",
        cluster.inside,
        more=TOKEN,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline().strip() == "begun"
    cluster.net.unplug("two", "head")
    time.sleep(2.0)  # the outage itself, not a wait for anything
    cluster.net.plug("two", "head")
    out, _ = run.communicate(timeout=200)
    assert json.loads(out) == [-float(n) for n in range(12)]


def test_an_evaluator_that_was_changed_on_one_host_stops_the_run_and_names_the_host(
    cluster: Cluster,
):
    words = [
        "run",
        "/tmp/kit",
        "--set",
        f"backend.address={cluster.inside}",
        "--strategy",
        "best_of_n",
        "--run-dir",
        "/tmp/changed",
    ]
    run = cluster.culmen(cluster.one, *words, "--budget", "evaluations=100000")
    place = cluster.two.root / "tmp"
    until(
        lambda: run.poll() is not None or any(place.glob("culmen-node-*/task/evaluator.py")),
        "the task is there",
    )
    until(
        lambda: run.poll() is not None or "bwrap" in cluster.two.processes().values(),
        "the host evaluates",
    )
    (file,) = place.glob("culmen-node-*/task/evaluator.py")
    file.write_text(file.read_text().replace("-abs", "abs"))
    out, err = run.communicate(timeout=200)
    assert run.returncode not in (0, 75), err[-2000:]
    told = json.loads(out)["error"]
    assert told["kind"] == "evaluator_changed" and "node two" in told["where"]


SCORES = f"""
import asyncio, json, sys
from culmen.evaluate.backends import make_backend
from culmen.core.options import BackendChoice
from culmen.tasks import load
from culmen.testing.backend_kit import candidate

PROGRAM = {WAITS!r}

async def main():
    task = load("/tmp/kit")
    backend = make_backend(BackendChoice("ray", address=sys.argv[1]), task, 4)
    await backend.start()
    try:
        asked = [backend.evaluate(candidate(PROGRAM.format(seconds=1, n=n)), task.cases[0], n) for n in range(12)]
        running = asyncio.gather(*asked)
        await asyncio.sleep(0.5)
        print("begun", flush=True)
        print(json.dumps([seen.score for seen in await running]))
    finally:
        await backend.close()

asyncio.run(main())
"""


GATED = {
    "task.toml": """
goal = "Return a large number."
deterministic = true
seed = { files = ["program.py"] }
limits = { scorer_seconds = 200 }
""",
    "program.py": "def run():\n    return 0.25\n",
    "evaluator.py": """
import os, time
from pathlib import Path

GATE = Path("/tmp/gate")


def score(output):
    if GATE.exists():  # on the nodes
        wait()
    return float(output)


def wait():
    mark = GATE / f"waits-{os.getpid()}-{time.monotonic_ns()}"
    mark.touch()
    while not any(map(take, GATE.glob("pass-*"))):
        time.sleep(0.05)
    mark.unlink()


def take(permit):
    try:
        permit.unlink()
    except FileNotFoundError:
        return False
    return True
""",
}
"""A task whose evaluations wait on a node for a pass, which one of them takes."""
PROGRAMS = 27


def write_gated_task(folder: Path) -> None:
    """The task, and beside it a bank of programs.

    All are drawn whatever the order of the results.
    """
    (folder / "task").mkdir(parents=True)
    (folder / "bank/model").mkdir(parents=True)
    for name, text in GATED.items():
        (folder / "task" / name).write_text(text)
    for number in range(PROGRAMS):
        (folder / f"bank/model/{number}.py").write_text(f"def run():\n    return {number}.5\n")


def let_pass(host: Host, evaluations: int) -> None:
    for _ in range(evaluations):
        (host.root / f"tmp/gate/pass-{secrets.token_hex(8)}").touch()


def kill_evaluating_node(host: Host, run: subprocess.Popen[Any]) -> None:
    """Kill all processes of a node in the middle of two evaluations."""
    gate = host.root / "tmp/gate"

    def two_wait() -> bool:
        return not any(gate.glob("pass-*")) and len(list(gate.glob("waits-*"))) >= 2

    found = lambda: sorted(path.name for path in gate.iterdir())  # noqa: E731
    until(lambda: run.poll() is not None or two_wait(), f"two wait on {host.name}", 240.0, found)
    assert run.poll() is None
    host.run(
        sys.executable, "-c", "import os; os.kill(-1, 9)"
    )  # every process but the host's first
    until(lambda: not host.processes(), "the node is dead")
    shutil.rmtree(gate)
    gate.mkdir()


def outcomes(study: Study) -> Counter[tuple[str, int, str, float | None]]:
    return Counter(
        (each.candidate, each.seed, each.status, each.score) for each in study.evaluations()
    )


@pytest.mark.nightly  # minutes, on a quiet machine: a busy one starts evaluators too late for it
@pytest.mark.timeout(900)
def test_nodes_are_killed_under_a_fifth_of_the_evaluations(cluster: Cluster, tmp_path: Path):
    """None is lost, none counts twice, and the user is informed.

    The last in this file: one node is not started again.
    """
    write_gated_task(cluster.head.root / "tmp/gated")
    write_gated_task(tmp_path)
    model, budget = "bank:/tmp/gated/bank", 2 * PROGRAMS  # the bank ends the search, not the budget
    words = [
        "run",
        "/tmp/gated/task",
        "--strategy",
        "best_of_n",
        "--model",
        model,
        "--run-dir",
        "/tmp/killed",
    ]
    words += [
        "--set",
        f"backend.address={cluster.inside}",
        "--budget",
        f"evaluations={budget}",
        "--workers",
        "4",
    ]
    for host in cluster.workers:
        (host.root / "tmp/gate").mkdir()
        let_pass(host, 3)
    run = cluster.head.popen(
        "culmen", *words, more=TOKEN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for victim in (cluster.one, cluster.two):
        kill_evaluating_node(victim, run)
        cluster.start(victim, f"--address={cluster.inside}", "--num-cpus=2")
        for host in cluster.workers:
            let_pass(host, 3)
    kill_evaluating_node(cluster.one, run)
    let_pass(cluster.two, budget)
    _, told = run.communicate(timeout=200)
    assert run.returncode == 0, told[-3000:]

    model, calm_run = f"bank:{tmp_path}/bank", tmp_path / "calm"
    calm = Study.create(
        tmp_path / "task", "best_of_n", model=model, budget=budget, workers=4, run_dir=calm_run
    )
    calm.run(progress=False)
    shutil.copytree(cluster.head.root / "tmp/killed", tmp_path / "killed")
    killed = Study.open(tmp_path / "killed")
    assert killed.status.state == calm.status.state == "finished"
    assert outcomes(killed) == outcomes(calm)
    with contextlib.closing(SqlJournal.open(killed.path)) as journal:
        events = [event.entry for event in journal.read() if event.entry.effect == "evaluate"]
    planned = calm.status.evaluations
    assert Counter(each.kind for each in events) == {"started": planned, "done": planned}
    assert len({each.key for each in events}) == planned
    lost = sum(map(int, re.findall(r"Lost with their worker or node: (\d+) evaluation", told)))
    assert lost >= 0.2 * planned
    logs = [each.artifacts.get(EVALUATOR_LOG, "") for each in killed.evaluations()]
    assert sum(log.count("died") for log in logs if "lost before" in log) == lost
    assert all(f"Node {host.name} ({host.address}) is gone" in told for host in cluster.workers)
