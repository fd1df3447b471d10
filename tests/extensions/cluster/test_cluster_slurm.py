"""The Slurm backend with submitit's own executor for this machine.

Real jobs as processes, no Slurm.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.core.evaluation import Status
from culmen.core.options import BackendChoice, Needs
from culmen.core.task import Task
from culmen.evaluate.backends import make_backend
from culmen.extensions.cluster import slurm
from culmen.extensions.cluster.slurm import JobState
from culmen.testing.backend_kit import (
    SLEEPER,
    candidate,
    check_backend,
    check_cancel,
    kit_task,
    processes_called,
    wait_for_condition,
)
from tests.extensions.cluster.asking import asks_models
from tests.extensions.cluster.conftest import HAS_SUBMITIT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not HAS_SUBMITIT, reason="submitit is not installed: pip install 'culmen[slurm]'"
    ),
]


def choice(place: Path, **more: Any) -> BackendChoice:
    texts = {"cluster": "local", "folder": str(place / "spool")}
    return BackendChoice("slurm", texts=texts, **{"minutes": 10, **more})


def test_the_slurm_backend_keeps_its_promises(tmp_path: Path):
    folder = tmp_path / "task"
    folder.mkdir()
    asyncio.run(
        check_backend(
            lambda task, workers: make_backend(choice(tmp_path, jobs=2), task, workers), folder
        )
    )
    assert not any((tmp_path / "spool").iterdir())


def test_the_slurm_backend_ends_what_is_cancelled(tmp_path: Path):
    folder = tmp_path / "task"
    folder.mkdir()
    asyncio.run(
        check_cancel(lambda task, workers: make_backend(choice(tmp_path), task, workers), folder)
    )


def test_a_worker_that_dies_is_replaced_and_its_work_done_again(tmp_path: Path):
    folder = tmp_path / "task"
    folder.mkdir()
    task = kit_task(folder)
    name = "kitslurm001"
    program = (
        SLEEPER.replace("{name}", name).replace("600", "2").replace("return x", "return 2 * x")
    )

    async def work() -> None:
        backend: Any = make_backend(choice(tmp_path), task, 2)
        await backend.start()
        try:
            running = asyncio.create_task(backend.evaluate(candidate(program), task.cases[0], 1))
            await wait_for_condition(lambda: bool(processes_called(name)), "the candidate runs")
            for pid in workers_of(tmp_path / "spool"):
                os.kill(pid, 9)
            seen = await running
            assert (seen.status, seen.score) == (Status.OK, 0.0)
        finally:
            await backend.close()

    asyncio.run(work())


def test_a_worker_whose_time_is_up_ends_what_it_has_and_is_replaced(tmp_path: Path):
    """Nothing is begun that a job would not live to see the end of, so nothing is lost."""
    (tmp_path / "task").mkdir()
    task = kit_task(tmp_path / "task")
    program = "import time\n\ndef run(x):\n    time.sleep(0.5)\n    return 2 * x\n"

    async def work() -> None:
        backend: Any = make_backend(choice(tmp_path, minutes=0.3, retries=0), task, 1)
        await backend.start()
        first = set(workers_of(tmp_path / "spool"))
        try:
            while first & set(workers_of(tmp_path / "spool")):
                seen = await backend.evaluate(candidate(program), task.cases[0], 1)
                assert (seen.status, seen.score) == (Status.OK, 0.0)
        finally:
            await backend.close()

    asyncio.run(work())


def workers_of(spool: Path) -> list[int]:
    """The processes that submitit started for this spool."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"submitit" in words and str(spool).encode() in words:
            found.append(int(pid))
    return found


DRIVER = """
import asyncio, sys
from pathlib import Path
from culmen.evaluate.backends import make_backend
from culmen.testing.backend_kit import SLEEPER, candidate, kit_task
from tests.extensions.cluster.test_cluster_slurm import choice
import msgspec

async def main():
    place = Path(sys.argv[1])
    task = kit_task(place / "task")
    task = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, seconds=600.0))
    backend = make_backend(choice(place), task, 2)
    await backend.start()
    await backend.evaluate(candidate(SLEEPER.replace("{name}", sys.argv[2])), task.cases[0], 1)

asyncio.run(main())
"""


def test_a_driver_that_is_killed_leaves_nothing_running(tmp_path: Path):
    (tmp_path / "task").mkdir()
    name = "kitslurm002"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), name])

    async def watch() -> None:
        await wait_for_condition(
            lambda: bool(processes_called(name)) or driver.poll() is not None, "the candidate runs"
        )
        assert driver.poll() is None
        driver.kill()
        driver.wait()
        await wait_for_condition(
            lambda: not processes_called(name) and not workers_of(tmp_path / "spool"),
            "everything has ended",
        )

    asyncio.run(watch())


def test_without_slurm_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = make_backend(BackendChoice("slurm"), Task("t"), 1)
    with pytest.raises(UserError, match="no sbatch"):
        asyncio.run(backend.start())


def test_what_slurm_is_asked_for():
    needs = Needs(cpu=2.0, gpu=0.5, memory=10**9, custom={"fpga": 1.0})
    asked = BackendChoice(
        "slurm", minutes=60, needs=needs, texts={"partition": "long", "folder": "/shared"}
    )
    assert slurm.submitit_options(asked, 4, "culmen-1") == {
        "job_name": "culmen-1",
        "time": 60,
        "cpus_per_task": 8,
        "gpus_per_node": 2,
        "mem": "3815M",
        "partition": "long",
        "gres": "fpga:4",
        "srun_args": ["--cpus-per-task=8"],
        "additional_parameters": {"no_requeue": True, "signal": "URG@1"},
    }
    bare = slurm.submitit_options(BackendChoice("slurm", needs=Needs(cpu=0.1)), 4, "culmen-1")
    assert not {"gpus_per_node", "mem", "gres"} & set(bare)


def test_how_a_queue_stands_is_said_in_few_words():
    wait, runs = JobState("PENDING", "Resources"), JobState("RUNNING", "None", "n1")
    assert slurm.queue_summary([wait]) == "1 job pending (Resources)"
    assert slurm.queue_summary([JobState("PENDING", "None")] * 2) == "2 jobs pending"
    assert slurm.queue_summary([runs, wait, runs]) == "2 of 3 jobs run, 1 pending (Resources)"
    nodes = JobState("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]")
    assert slurm.queue_summary([nodes]) == "1 job pending (ReqNodeNotAvail, UnavailableNodes)"
    too_long = JobState("PENDING", "PartitionTimeLimit")
    assert slurm.hopeless_reason([too_long, too_long]).endswith("(PartitionTimeLimit)")
    assert not slurm.hopeless_reason([wait]) and not slurm.hopeless_reason([])
    assert not slurm.hopeless_reason([too_long, wait]) and not slurm.hopeless_reason(
        [too_long, runs]
    )


def test_evaluators_in_jobs_ask_models_through_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asks_models(choice(tmp_path), tmp_path, monkeypatch)
