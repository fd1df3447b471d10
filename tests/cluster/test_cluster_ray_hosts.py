"""The Ray backend on several hosts: networks, names, processes and temporary files are their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from culmen.testing.backend_kit import kit_task
from tests.cluster.conftest import HAS_RAY, patiently
from tests.cluster.hosts import Host, Network, Unable, network
from tests.cluster.test_cluster_ray import WAITS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "fedcba9876543210" * 4, "RAY_USAGE_STATS_ENABLED": "0"}


class Cluster:
    """A head, two hosts that evaluate, and one outside the cluster with the task."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.head, self.one, self.two, self.laptop = (net.add(name) for name in ("head", "one", "two", "laptop"))
        self.start(self.head, "--head", "--num-cpus=0", "--include-dashboard=false")
        with ThreadPoolExecutor() as both:
            list(both.map(lambda host: self.start(host, f"--address={self.inside}", "--num-cpus=2"), self.workers))
        kit_task(folder)
        for host in (self.laptop, self.one):
            shutil.copytree(folder, host.root / "tmp/kit")

    inside = property(lambda self: f"{self.head.address}:6379")
    outside = property(lambda self: f"ray://{self.head.address}:10001")
    workers = property(lambda self: (self.one, self.two))

    def start(self, host: Host, *words: str) -> None:
        small = ("--object-store-memory=80000000", f"--node-ip-address={host.address}")

        def start() -> None:
            host.run("ray", "stop", "--force", more=TOKEN)
            host.run("ray", "start", *words, *small, more=TOKEN)

        patiently(start)

    def culmen(self, host: Host, *words: str) -> subprocess.Popen[Any]:
        pipe = subprocess.PIPE
        return host.popen("culmen", *words, "--json", more=TOKEN, stdout=pipe, stderr=pipe, text=True)

    def folders(self) -> list[tuple[str, str]]:
        """Where the task lies: host and folder."""
        hosts = self.net.hosts.values()
        return [(host.name, each.name) for host in hosts for each in (host.root / "tmp").glob("culmen-node-*")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not HAS_RAY:
        pytest.skip("Ray is not installed: pip install 'culmen[ray]'")
    try:
        with network() as net:
            yield Cluster(net, tmp_path_factory.mktemp("kit"))
    except Unable as reason:
        pytest.skip(f"no separate hosts on this machine: {reason}")


def until(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"never came true: {what}"
        time.sleep(0.05)


def test_a_run_from_outside_brings_its_task_once_to_each_host_and_leaves_nothing(cluster: Cluster):
    words = ["run", "/tmp/kit", "--ray-address", cluster.outside, "--strategy", "best_of_n", "--run-dir", "/tmp/run"]
    before = {host.name: set(host.processes().values()) for host in cluster.workers}
    run = cluster.culmen(cluster.laptop, *words, "--budget", "evaluations=60")
    seen, listening = set[tuple[str, str]](), set[tuple[str, str]]()
    while run.poll() is None:
        seen.update(cluster.folders())
        listening |= cluster.laptop.listening()  # on nodes Ray's own processes listen on every address
        time.sleep(0.1)
    out, err = run.communicate()
    assert run.returncode == 0, err[-3000:]
    assert json.loads(out)["state"] == "finished"
    assert sorted(host for host, _ in seen) == ["one", "two"]
    assert not cluster.folders()
    assert not listening
    left = {host.name: set(host.processes().values()) - before[host.name] for host in cluster.workers}
    assert not any(name in ("bwrap", "ray::NodeActor") for names in left.values() for name in names)


def test_a_cable_that_is_out_for_a_moment_costs_nothing(cluster: Cluster):
    """The driver is on one of the nodes; head and the other node are gone for a moment, without a word."""
    (cluster.one.root / "tmp/scores.py").write_text(SCORES)
    run = cluster.one.popen(
        sys.executable, "/tmp/scores.py", cluster.inside, more=TOKEN, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline().strip() == "begun"
    cluster.net.unplug("two", "head")
    time.sleep(2.0)  # the outage itself, not a wait for anything
    cluster.net.plug("two", "head")
    out, _ = run.communicate(timeout=200)
    assert json.loads(out) == [-float(n) for n in range(12)]


def test_an_evaluator_that_was_changed_on_one_host_stops_the_run_and_names_the_host(cluster: Cluster):
    words = ["run", "/tmp/kit", "--ray-address", cluster.inside, "--strategy", "best_of_n", "--run-dir", "/tmp/changed"]
    run = cluster.culmen(cluster.one, *words, "--budget", "evaluations=100000")
    place = cluster.two.root / "tmp"
    until(lambda: run.poll() is not None or any(place.glob("culmen-node-*/task/evaluator.py")), "the task is there")
    until(lambda: run.poll() is not None or "bwrap" in cluster.two.processes().values(), "the host evaluates")
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
from culmen.evaluate.taskfiles import load
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
