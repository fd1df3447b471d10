"""The Slurm backend on a real Slurm: a controller and two nodes.

All of them are on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.errors import Unavailable, UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.options import BackendChoice, Needs
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.backends import make_backend
from culmen.run.study import Study
from culmen.store import views
from culmen.tasks import load
from culmen.testing.backend_kit import (
    PROGRAM,
    SLEEPER,
    candidate,
    check_backend,
    check_cancel,
    kit_task,
    processes_called,
    wait_for_condition,
)
from tests.extensions.cluster import slurm_cluster
from tests.extensions.cluster.conftest import HAS_SUBMITIT
from tests.extensions.cluster.slurm_cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.slurm, pytest.mark.timeout(240)]
SLOW = "import time\n\ndef run(x):\n    time.sleep(0.2)\n    return 2 * x\n"
ENVIRONMENT = """
import os
from pathlib import Path


def score(output, case):
    place = Path({place!r})
    (place / "environment").write_text(repr(sorted(os.environ)))
    number, above = os.getppid(), b""
    while number > 1 and b"SLURM_JOB_ID" not in above:  # up to the job's own process, as Slurm started it
        above += Path(f"/proc/{{number}}/environ").read_bytes()
        number = int(Path(f"/proc/{{number}}/stat").read_text().rpartition(")")[2].split()[1])
    (place / "above").write_bytes(above)
    return 1.0
"""


@pytest.fixture(scope="module")
def daemons() -> Iterator[Cluster]:
    if not HAS_SUBMITIT:
        pytest.skip("submitit is not installed: pip install 'culmen[slurm]'")
    if lacking := slurm_cluster.lacking():
        pytest.skip(f"Slurm and munge are not installed: {lacking}")
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(slurm_cluster.cluster())
        except slurm_cluster.CannotStart as error:
            pytest.skip(f"Slurm's daemons do not run here: {error}")
        yield made


@pytest.fixture
def cluster(daemons: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two idle nodes, before and after."""
    monkeypatch.setenv("SLURM_CONF", str(daemons.conf))
    yield daemons
    daemons.calm()


class Place:
    """A task in a folder, a spool beside it, and the backend's messages."""

    def __init__(self, root: Path) -> None:
        self.root, self.told = root, list[str]()
        (root / "task").mkdir()
        self.task = kit_task(root / "task")

    @property
    def spools(self) -> list[Path]:
        return sorted((self.root / "spool").iterdir())

    def choice(self, **more: Any) -> BackendChoice:
        texts = {"folder": str(self.root / "spool"), **more.pop("texts", {})}
        return BackendChoice("slurm", texts=texts, **{"minutes": 60, **more})

    def using(
        self, work: Callable[[Any], Awaitable[Any]], task: Task | None = None, **more: Any
    ) -> Any:
        """Do it with a backend that is started and closed around it."""

        async def whole() -> Any:
            backend: Any = make_backend(
                self.choice(**more), task or self.task, 4, on_message=self.told.append
            )
            await backend.start()
            try:
                return await work(backend)
            finally:
                await backend.close()

        return asyncio.run(whole())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def on(backend: Any, *programs: str) -> Awaitable[list[Observation]]:
    case = backend.task.cases[0]
    return asyncio.gather(
        *(backend.evaluate(candidate(text), case, n) for n, text in enumerate(programs))
    )


def sleeper(name: str, seconds: float = 600.0) -> str:
    """A candidate that can be found while it runs, and is right in the end."""
    return (
        SLEEPER.replace("{name}", name)
        .replace("600", str(seconds))
        .replace("return x", "return 2 * x")
    )


def patient(task: Task, seconds: float = 600.0) -> Task:
    return msgspec.structs.replace(
        task, limits=msgspec.structs.replace(task.limits, seconds=seconds)
    )


def of_state(cluster: Cluster, state: str) -> list[str]:
    """Ids of the jobs in that state, oldest first."""
    return [number for number, (now, _) in cluster.jobs().items() if now == state]


def test_two_sessions_at_once_keep_their_promises(cluster: Cluster, tmp_path: Path):
    """The kit, twice over, with the jobs of both on the same nodes."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    chosen = BackendChoice(
        "slurm",
        jobs=2,
        minutes=60,
        needs=Needs(memory=2**28),
        texts={"folder": str(tmp_path / "spool")},
    )

    def made(task: Task, workers: int) -> Any:
        return make_backend(chosen, task, workers)

    async def both() -> None:
        await asyncio.gather(check_backend(made, folders[0]), check_cancel(made, folders[1]))

    asyncio.run(both())
    assert not cluster.active() and not any((tmp_path / "spool").iterdir())


def test_jobs_get_what_was_asked_for_and_know_no_key(
    cluster: Cluster, place: Place, monkeypatch: pytest.MonkeyPatch
):
    """Cores, memory and generic resources as Slurm has them.

    The environment as the job itself sees it.
    """
    monkeypatch.setenv("CULMEN_KIT_API_KEY", "sk-kit-5f2a")
    monkeypatch.setenv("KIT_PLAIN", "sk-kit-5f2a")
    for name, value in {
        "ACCOUNT": "team",
        "PARTITION": "urgent",
        "JOB_NAME": "odd",
        "SIGNAL": "KILL@1",
    }.items():
        monkeypatch.setenv(
            f"SBATCH_{name}", value
        )  # habits are kept, but for what is said and what must be ours
    text = (
        (place.root / "task/evaluator.py").read_text().replace("\n\ndef score", "\n\ndef _score", 1)
    )
    (place.root / "task/evaluator.py").write_text(text + ENVIRONMENT.format(place=str(place.root)))

    async def work(backend: Any) -> list[dict[str, str]]:
        assert [seen.score for seen in await on(backend, PROGRAM)] == [1.0]
        return [cluster.shown(number) for number in cluster.active()]

    needs = Needs(cpu=1, memory=256 * 2**20, custom={"fpga": 0.5})
    (job,) = place.using(
        work,
        load(place.root / "task"),
        needs=needs,
        slots=2,
        texts={"partition": "short"},
        minutes=9,
    )
    assert (job["Partition"], job["TimeLimit"], job["CPUs/Task"]) == ("short", "00:09:00", "2")
    assert (job["MinMemoryNode"], job["NodeList"], job["Requeue"]) == ("512M", "n1", "0")
    assert job["TresPerNode"].endswith("fpga:1")
    assert job["Account"] == "team" and job["JobName"].startswith("culmen-")
    assert "KIT" not in (place.root / "environment").read_text()
    above = (place.root / "above").read_bytes()
    assert b"SLURM_JOB_ID" in above and b"sk-kit" not in above


def test_pending_jobs_are_told_and_waited_for(cluster: Cluster, place: Place):
    """Both nodes are taken; then they are not."""
    other = cluster.call(
        "sbatch", "--parsable", "--exclusive", "-N2", "--output=/dev/null", "--wrap", "sleep 600"
    )

    async def whole() -> list[Observation]:
        await wait_for_condition(
            lambda: of_state(cluster, "RUNNING") == [other], "another job has the nodes"
        )
        backend: Any = make_backend(
            place.choice(jobs=2), place.task, 4, on_message=place.told.append
        )
        starting = asyncio.create_task(backend.start())
        try:
            await wait_for_condition(
                lambda: any("2 jobs pending (" in text for text in place.told),
                "it is said why it waits",
            )
            assert not starting.done()
            cluster.call("scancel", other)
            await starting
            return await on(backend, PROGRAM)
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await backend.close()

    assert [seen.score for seen in asyncio.run(whole())] == [0.0]
    assert place.told[0].startswith("Waiting for Slurm: 2 jobs pending")


def test_what_the_cluster_does_not_have_is_an_error(cluster: Cluster, place: Place):
    """Slurm refuses the job, or takes it and never starts it."""
    cases: dict[str, dict[str, Any]] = {
        "invalid partition specified: nowhere": {"texts": {"partition": "nowhere"}},
        "Invalid feature specification": {"texts": {"constraint": "moon"}},
        "Invalid (generic resource|Trackable)": {"needs": Needs(custom={"moon": 1})},
        r"will never start these jobs.*\(PartitionTimeLimit\)": {
            "texts": {"partition": "short"},
            "minutes": 99,
        },
        r"will never start these jobs.*\(PartitionConfig\)|configuration is not available": {
            "needs": Needs(cpu=99)
        },
    }

    async def start(asked: dict[str, Any]) -> None:
        backend: Any = make_backend(place.choice(**asked), place.task, 1)
        with contextlib.suppress(Unavailable):
            await backend.start()

    async def whole() -> list[BaseException | None]:
        return await asyncio.gather(*map(start, cases.values()), return_exceptions=True)

    for words, error in zip(cases, asyncio.run(whole()), strict=True):
        assert type(error) is UserError and re.search(words, str(error)), error
    assert not cluster.active() and not place.spools


def test_jobs_that_others_end_are_replaced_and_their_work_done_again(
    cluster: Cluster, place: Place
):
    """Over its time limit, cancelled by a person, preempted, its node down.

    It is never the candidate's fault.
    """
    names = ["kitslurmone", "kitslurmtwo"]

    def on_node(node: str) -> str:
        """Our job there, "" if there is none; each takes a whole node."""
        found = [job for job, (state, place) in cluster.jobs("RUNNING").items() if place == node]
        return next(
            (job for job in found if cluster.shown(job)["JobName"].startswith("culmen-")), ""
        )

    def preempt(job: str) -> None:
        words = (
            "--exclusive",
            "-w",
            cluster.jobs()[job][1],
            "--output=/dev/null",
            "--wrap",
            "sleep 1",
        )
        cluster.call("sbatch", "-p", "urgent", *words)

    ends: dict[str, Callable[[str], Any]] = {
        "CANCELLED": lambda job: cluster.call("scancel", job),
        "PREEMPTED": preempt,
        "NODE_FAIL": lambda job: cluster.down(cluster.jobs()[job][1]),
    }

    async def ended(job: str, state: str) -> None:
        await wait_for_condition(lambda: cluster.jobs()[job][0] == state, f"a job is {state}")

    async def both_run() -> None:
        await wait_for_condition(
            lambda: bool(on_node("n1") and on_node("n2") and all(map(processes_called, names))),
            "both candidates run",
        )

    async def work(backend: Any) -> list[Observation]:
        case = backend.task.cases[0]
        running = [
            asyncio.create_task(backend.evaluate(candidate(sleeper(name)), case, 1))
            for name in names
        ]
        try:
            await both_run()
            slow = on_node("n1")
            cluster.call(
                "scontrol", "update", f"jobid={slow}", "EndTime=now+1seconds"
            )  # seen within half a minute
            for state, end in ends.items():
                await both_run()
                job = on_node("n2")
                end(job)
                await ended(job, state)
            cluster.up("n2")
            await ended(slow, "TIMEOUT")
            await both_run()
            assert not any(task.done() for task in running)
        finally:
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return await on(backend, PROGRAM)

    (seen,) = place.using(work, patient(place.task), retries=9, jobs=2, slots=1, needs=Needs(cpu=4))
    assert (seen.status, seen.score) == (Status.OK, 0.0)


def test_an_evaluation_that_no_job_lives_long_enough_for_is_lost(cluster: Cluster, place: Place):
    """SIGTERM reaches candidates, too.

    Their end after it is no score and no error of theirs.
    """
    name = "kitslurmlost"

    async def work(backend: Any) -> Observation:
        running = asyncio.create_task(
            backend.evaluate(candidate(sleeper(name)), backend.task.cases[0], 1)
        )
        for _ in range(2):
            await wait_for_condition(
                lambda: bool(processes_called(name)) or running.done(), "the candidate runs"
            )
            before = of_state(cluster, "RUNNING")
            cluster.call("scancel", *before)
            await wait_for_condition(
                lambda b=before: not set(b) & set(of_state(cluster, "RUNNING")), "its job is over"
            )
            await wait_for_condition(
                lambda: not processes_called(name) or running.done(), "it has ended"
            )
        return await asyncio.wait_for(running, 60)

    seen = place.using(work, patient(place.task), retries=1)
    assert (seen.status, seen.score) == (Status.LOST, None)
    assert seen.reason in ("job_ended", "job_cancelled", "worker_died")


def test_a_job_that_slurm_starts_again_is_another_worker(cluster: Cluster, place: Place):
    """Ours forbid it; a cluster may do it nevertheless.

    Then the work that the first one held is not waited for.
    """
    name = "kitslurmagain"

    async def work(backend: Any) -> tuple[Observation, str]:
        running = asyncio.create_task(
            backend.evaluate(candidate(sleeper(name, 2)), backend.task.cases[0], 1)
        )
        await wait_for_condition(lambda: bool(processes_called(name)), "the candidate runs")
        (job,) = of_state(cluster, "RUNNING")
        assert cluster.shown(job)["Requeue"] == "0"
        cluster.call("scontrol", "update", f"jobid={job}", "requeue=1")
        cluster.call("scontrol", "requeue", job)
        await wait_for_condition(lambda: cluster.jobs()[job][0] == "PENDING", "it waits again")
        cluster.call("scontrol", "update", f"jobid={job}", "starttime=now")
        return await running, cluster.shown(job)["Restarts"]

    seen, restarts = place.using(work, patient(place.task))
    assert (seen.status, seen.score, restarts) == (Status.OK, 0.0, "1")


def test_a_node_whose_files_are_not_the_runs_ends_it(cluster: Cluster, place: Place):
    """A worker that starts later gets another parcel than the first one."""

    async def work(backend: Any) -> None:
        (parcel,) = place.spools[0].glob("parcel-*")
        parcel.write_bytes(parcel.read_bytes().replace(b"return {", b"return  {", 1))
        (first,) = of_state(cluster, "RUNNING")
        cluster.call("scancel", first)
        await wait_for_condition(lambda: cluster.jobs()[first][0] == "CANCELLED", "its job is over")
        await backend.evaluate(candidate(PROGRAM), backend.task.cases[0], 1)

    with pytest.raises(UserError, match="arrived damaged"):
        place.using(work)


def test_jobs_that_end_before_they_begin_end_the_session(cluster: Cluster, place: Place):
    """Somebody holds the nodes, and somebody cancels whatever else waits."""
    other = cluster.call(
        "sbatch", "--parsable", "--exclusive", "-N2", "--output=/dev/null", "--wrap", "sleep 600"
    )

    async def whole() -> None:
        await wait_for_condition(
            lambda: of_state(cluster, "RUNNING") == [other], "another job has the nodes"
        )
        backend: Any = make_backend(place.choice(), place.task, 1)
        starting = asyncio.create_task(backend.start())
        try:
            while not starting.done():
                waiting = of_state(cluster, "PENDING")
                if waiting:
                    cluster.call("scancel", *waiting)
                await asyncio.sleep(0.1)
            await starting
        finally:
            await backend.close()

    with pytest.raises(Unavailable, match="CANCELLED: they were cancelled"):
        asyncio.run(whole())


def command(place: Place, *more: str) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "run",
        str(place.root / "task"),
        "--backend",
        "slurm",
    ]
    words += [
        "--set",
        "backend.jobs=2",
        "--set",
        "backend.minutes=60",
        "--set",
        f"backend.folder={place.root / 'spool'}",
        "--workers",
        "4",
    ]
    return [*words, "--strategy", "best_of_n", "--run-dir", str(place.root / "run"), *more]


def test_a_run_on_the_command_line_tells_how_the_queue_stands_and_leaves_nothing(
    cluster: Cluster, place: Place
):
    """Ctrl-C ends it, with exit code 130; everything that it started is gone; it can be resumed."""
    (place.root / "task/program.py").write_text(SLOW)
    other = cluster.call(
        "sbatch", "--parsable", "--exclusive", "-N2", "--output=/dev/null", "--wrap", "sleep 600"
    )
    asyncio.run(
        wait_for_condition(
            lambda: of_state(cluster, "RUNNING") == [other], "another job has the nodes"
        )
    )
    run = subprocess.Popen(
        command(place, "--budget", "evaluations=100000"), stderr=subprocess.PIPE, text=True
    )
    assert run.stderr is not None
    told = next(
        (line for line in run.stderr if line.startswith("Waiting for Slurm: 2 jobs pending")), ""
    )
    assert told, "it said nothing and ended"
    cluster.call("scancel", other)

    async def watch() -> None:
        await wait_for_condition(
            lambda: views.run_status(place.root / "run").evaluations > 4 or run.poll() is not None,
            "it evaluates",
        )

    asyncio.run(watch())
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=120)
    assert run.returncode == 130, err
    assert not cluster.active() and not place.spools
    assert Study.open(place.root / "run").status.state == "interrupted"


def test_a_driver_that_is_killed_leaves_no_job(cluster: Cluster, place: Place):
    (place.root / "task/program.py").write_text(SLOW)
    words = command(place, "--budget", "evaluations=100000", "--quiet")
    run = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    async def watch() -> None:
        await wait_for_condition(
            lambda: len(of_state(cluster, "RUNNING")) == 2 or run.poll() is not None,
            "both jobs run",
        )
        assert run.poll() is None
        run.kill()
        run.wait()
        await wait_for_condition(
            lambda: not cluster.active() and not place.spools, "no job is left, nor any file"
        )

    asyncio.run(watch())


def test_a_run_all_of_whose_nodes_go_is_resumed(cluster: Cluster, place: Place):
    """A run without nodes waits for its set time, and ends so that it can be resumed.

    It goes on when there are nodes again.
    """
    (place.root / "task/program.py").write_text(SLOW)
    task = load(place.root / "task")
    seen: list[int] = []

    class Break:
        def see(self, events: Any) -> None:
            before = len(seen)
            seen.extend(event.seq for event in events if event.entry.effect == "evaluate")
            if before <= 4 < len(seen):
                cluster.down(*slurm_cluster.NODES)

    study = Study.create(
        task,
        "best_of_n",
        backend=place.choice(jobs=2, wait=3.0),
        budget=Budget(evaluations=30),
        workers=4,
        run_dir=place.root / "run",
        observers=(Break(),),
    )
    with pytest.raises(Unavailable, match=r"no worker for 3 s: 2 jobs pending"):
        study.run()
    assert study.status.state == "paused" and not cluster.active()
    cluster.up(*slurm_cluster.NODES)
    again = Study.resume(study.path)
    assert again.run() == "finished"
    assert Status.LOST not in {each.status for each in again.observations()}
