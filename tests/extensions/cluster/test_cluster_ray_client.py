"""The Ray backend from outside the cluster, through Ray's client server.

Its address is `--set backend.address=ray://HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from culmen.core.evaluation import Observation, Status
from culmen.core.options import BackendChoice
from culmen.evaluate.backends import make_backend
from culmen.testing.backend_kit import (
    SLEEPER,
    candidate,
    check_backend,
    check_cancel,
    kit_task,
    processes_called,
    wait_for_condition,
)
from tests.extensions.cluster.conftest import Nodes, killed
from tests.extensions.cluster.test_cluster_ray import DRIVER, WAITS, descendants, using

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def ours(name: str) -> list[int]:
    """Processes of this test's own cluster that are called so."""
    return sorted(set(processes_called(name)) & set(descendants(os.getpid())))


@pytest.fixture(scope="module")
def outside(nodes: Nodes) -> str:
    """The address of a cluster with one node for evaluations."""
    nodes.add(cpus=3)
    return nodes.outside


def test_from_outside_the_backend_keeps_its_promises(outside: str, tmp_path: Path):
    asyncio.run(
        check_backend(
            lambda task, workers: make_backend(
                BackendChoice("ray", address=outside), task, workers
            ),
            tmp_path,
        )
    )


def test_from_outside_what_is_cancelled_ends(outside: str, tmp_path: Path):
    asyncio.run(
        check_cancel(
            lambda task, workers: make_backend(
                BackendChoice("ray", address=outside), task, workers
            ),
            tmp_path,
        )
    )


def test_from_outside_a_killed_worker_is_tried_again_and_a_cancel_harms_nobody(
    outside: str, tmp_path: Path
):
    async def work(backend: Any) -> Observation:
        case, name = backend.task.cases[0], "kitcancel01"
        long = asyncio.create_task(
            backend.evaluate(candidate(SLEEPER.replace("{name}", name)), case, 1)
        )
        short = asyncio.create_task(
            backend.evaluate(candidate(WAITS.format(seconds=1.5, n=0)), case, 2)
        )
        await wait_for_condition(
            lambda: bool(processes_called(name)) and len(ours("ray::errand")) >= 2,
            "both are on their way",
        )
        long.cancel()
        for pid in ours("ray::errand"):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        await asyncio.gather(long, return_exceptions=True)
        return await short

    seen = using(kit_task(tmp_path), BackendChoice("ray", address=outside), work)
    assert (seen.status, seen.score) == (Status.OK, 0.0)


def test_from_outside_a_killed_driver_leaves_nothing_running(outside: str, tmp_path: Path):
    kit_task(tmp_path)
    name = "kitorphan02"
    hurried = {
        **os.environ,
        "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",
    }  # how long Ray waits for a driver to come back
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), outside, name], env=hurried
    )

    async def watch() -> None:
        await killed(driver, name)
        await wait_for_condition(lambda: not ours("ray::NodeActor"), "the evaluators have ended")

    asyncio.run(watch())


def test_a_search_from_outside_takes_the_size_of_the_cluster(outside: str, tmp_path: Path):
    """The command line's own way.

    Without --workers there are as many as the cluster has room for.
    """
    folder = tmp_path / "task"
    folder.mkdir()
    kit_task(folder)
    words = [
        "-m",
        "culmen.cli.main",
        "run",
        str(folder),
        "--set",
        f"backend.address={outside}",
        "--strategy",
        "best_of_n",
        "--json",
    ]
    words += ["--budget", "evaluations=20", "--run-dir", str(tmp_path / "run")]
    ran = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["state"] == "finished"
    shown = [sys.executable, "-m", "culmen.cli.main", "status", str(tmp_path / "run"), "--json"]
    assert json.loads(subprocess.check_output(shown))["workers"] == 3
