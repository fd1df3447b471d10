"""The Ray backend on a real cluster of several nodes, all of them on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import Unavailable, UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.options import BackendChoice, Needs
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.backends import make_backend
from culmen.run.study import Study
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
from tests.extensions.cluster.asking import asks_models
from tests.extensions.cluster.conftest import Nodes, killed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WAITS = "import time\n\ndef run(x):\n    time.sleep({seconds})\n    return 2 * x + {n}\n"


@pytest.fixture(scope="module")
def pair(nodes: Nodes) -> Nodes:
    """Two nodes, each with a resource of its own."""
    nodes.add(left=4)
    nodes.add(right=4)
    return nodes


def choice(nodes: Nodes, **more: Any) -> BackendChoice:
    return BackendChoice("ray", address=nodes.address, **more)


def using(
    task: Task, chosen: BackendChoice, work: Callable[[Any], Awaitable[Any]], workers: int = 4
) -> Any:
    """Do it with a backend that is started and closed around it."""

    async def whole() -> Any:
        backend: Any = make_backend(chosen, task, workers)
        await backend.start()
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(whole())


def on(backend: Any, programs: list[str]) -> Awaitable[list[Observation]]:
    case = backend.task.cases[0]
    return asyncio.gather(
        *(backend.evaluate(candidate(text), case, n) for n, text in enumerate(programs))
    )


def test_the_ray_backend_keeps_its_promises(pair: Nodes, tmp_path: Path):
    asyncio.run(
        check_backend(lambda task, workers: make_backend(choice(pair), task, workers), tmp_path)
    )


def test_the_ray_backend_ends_what_is_cancelled(pair: Nodes, tmp_path: Path):
    asyncio.run(
        check_cancel(lambda task, workers: make_backend(choice(pair), task, workers), tmp_path)
    )


def test_the_task_lies_once_on_every_node_and_nowhere_afterwards(pair: Nodes, tmp_path: Path):
    marker = f"marker-{secrets.token_hex(8)}.txt"
    (tmp_path / marker).write_text("here")

    def folders() -> list[Path]:
        return [
            p
            for p in Path(tempfile.gettempdir()).glob("culmen-node-*")
            if (p / "task" / marker).exists()
        ]

    async def work(backend: Any) -> None:
        seen = await on(backend, [WAITS.format(seconds=0.3, n=n) for n in range(12)])
        assert {each.status for each in seen} == {Status.OK}
        await wait_for_condition(lambda: len(folders()) == 2, "one folder a node")

    using(kit_task(tmp_path), choice(pair), work)
    assert not folders()


def test_a_resource_that_no_node_has_is_named(pair: Nodes, tmp_path: Path):
    task = kit_task(tmp_path)
    wanted = Needs(cpu=1, gpu=4, custom={"left": 1})
    with pytest.raises(UserError, match=r"no node has GPU = 4; the maximum on one node is GPU = 0"):
        using(task, choice(pair, needs=wanted, wait=2.0), lambda backend: on(backend, [PROGRAM]))
    both = Needs(custom={"left": 1, "right": 1})
    with pytest.raises(UserError, match="no node has all at once"):
        using(task, choice(pair, needs=both, wait=2.0), lambda backend: on(backend, [PROGRAM]))


def test_where_no_cluster_answers_it_is_said(tmp_path: Path, nodes: Nodes):
    with pytest.raises(Unavailable, match="no Ray cluster answers"):
        using(
            kit_task(tmp_path),
            BackendChoice("ray", address="127.0.0.1:1"),
            lambda backend: on(backend, [PROGRAM]),
        )


def test_nodes_come_and_go(pair: Nodes, tmp_path: Path):
    """One that joins is used, one that dies is not missed.

    When all die the work waits for the next.
    """
    task = kit_task(tmp_path)
    needs = Needs(custom={"here": 1})
    first = pair.add(here=2)

    async def work(backend: Any) -> list[Observation]:
        names = ["kitnode0001", "kitnode0002"]
        sleepers = [SLEEPER.replace("{name}", name).replace("600", "2") for name in names]
        running = asyncio.ensure_future(
            on(backend, sleepers + [WAITS.format(seconds=0.1, n=n) for n in range(6)])
        )
        await wait_for_condition(
            lambda: bool(processes_called(names[0]) and processes_called(names[1])),
            "the first node works",
        )
        pair.kill(first)  # all nodes that have the resource are gone at once
        added.append(pair.add(here=4))
        return await running

    added: list[Any] = []
    seen = using(task, choice(pair, needs=needs), work, workers=8)
    pair.kill(added[0])
    assert {each.status for each in seen} == {Status.OK}
    assert [each.score for each in seen[2:]] == [-float(n) for n in range(6)]


def test_evaluators_without_work_leave_their_nodes_and_come_back(pair: Nodes, tmp_path: Path):
    """So that an autoscaler may take the nodes while a model thinks."""

    def here() -> set[int]:
        return set(processes_called("ray::NodeActor")) & set(descendants(os.getpid()))

    async def work(backend: Any) -> list[Observation]:
        first = await on(backend, [WAITS.format(seconds=0, n=n) for n in range(6)])
        await wait_for_condition(lambda: not here(), "no evaluator is left")
        return first + await on(backend, [WAITS.format(seconds=0, n=n) for n in range(6)])

    seen = using(kit_task(tmp_path), choice(pair, rest=1.0), work)
    assert [each.score for each in seen] == [-float(n) for n in range(6)] * 2


def test_what_kills_its_worker_every_time_is_lost_and_no_bad_candidate(
    pair: Nodes, tmp_path: Path, capfd
):
    async def work(backend: Any) -> Observation:
        async def killing() -> None:
            while True:
                for pid in set(processes_called("ray::errand")) & set(descendants(os.getpid())):
                    try:
                        os.kill(pid, 9)
                    except ProcessLookupError:
                        continue
                await asyncio.sleep(0.05)

        killer = asyncio.create_task(killing())
        try:
            case = backend.task.cases[0]
            return await backend.evaluate(candidate(WAITS.format(seconds=1.5, n=0)), case, 1)
        finally:
            killer.cancel()

    seen = using(kit_task(tmp_path), choice(pair, retries=1), work)
    assert (seen.status, seen.score) == (Status.LOST, None)
    assert seen.reason in ("worker_died", "node_died")
    assert "worker died" not in capfd.readouterr().out  # standard output belongs to the answer


DRIVER = """
import asyncio, sys
from culmen.evaluate.backends import make_backend
from culmen.core.options import BackendChoice
from culmen.tasks import load
from culmen.testing.backend_kit import SLEEPER, candidate
import msgspec

async def main():
    task = load(sys.argv[1])
    task = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, seconds=600.0))
    backend = make_backend(BackendChoice("ray", address=sys.argv[2]), task, 2)
    await backend.start()
    await backend.evaluate(candidate(SLEEPER.replace("{name}", sys.argv[3])), task.cases[0], 1)

asyncio.run(main())
"""


def test_a_driver_that_is_killed_leaves_nothing_running(pair: Nodes, tmp_path: Path):
    kit_task(tmp_path)
    name = "kitorphan01"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), pair.address, name])

    asyncio.run(killed(driver, name))


def test_a_run_whose_cluster_goes_away_is_resumed_on_another(pair: Nodes, tmp_path: Path):
    """All nodes are preempted; the session gives up after `wait`, and the run goes on elsewhere."""
    folder = tmp_path / "task"
    folder.mkdir()
    task = kit_task(folder)
    last = pair.add(there=4)
    chosen = choice(pair, needs=Needs(custom={"there": 1}), wait=3.0)
    seen: list[int] = []

    class Preempt:
        def see(self, events: Any) -> None:
            seen.extend(event.seq for event in events if event.entry.effect == "evaluate")
            if len(seen) > 4 and not gone:
                gone.append(pair.kill(last))

    gone: list[Any] = []
    study = Study.create(
        task,
        "best_of_n",
        backend=chosen,
        budget=Budget(evaluations=24),
        workers=2,
        run_dir=tmp_path / "run",
        observers=(Preempt(),),
    )
    with pytest.raises(Unavailable, match="there = 1"):
        study.run()
    assert study.status.state == "paused"
    assert study.meta.backend.needs == Needs(custom={"there": 1.0})
    again = Study.resume(study.path, backend=choice(pair))
    assert again.run() == "finished"
    assert {each.status for each in again.observations()} <= {
        Status.OK,
        Status.ERROR,
        Status.INVALID,
    }
    assert again.status.evaluations > len(gone)


def test_a_cluster_of_its_own_listens_on_the_loopback_and_knows_no_key(tmp_path: Path):
    """`--set backend.address=local`, as the command line starts it."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'culmen[ray]'")
    folder = tmp_path / "task"
    folder.mkdir()
    kit_task(folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["CULMEN_KIT_API_KEY"] = "sk-kit-5f2a"
    words = [
        "-m",
        "culmen.cli.main",
        "run",
        str(folder),
        "--backend",
        "ray",
        "--set",
        "backend.address=local",
        "--json",
    ]
    words += [
        "--strategy",
        "best_of_n",
        "--budget",
        "evaluations=40",
        "--workers",
        "2",
        "--run-dir",
        str(tmp_path / "r"),
    ]
    run = subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    open_to: set[str] = set()
    keyed: set[str] = set()
    while run.poll() is None:
        for pid in descendants(run.pid):
            keyed |= names_of(pid) if holds(pid, "sk-kit-5f2a") else set()
            open_to |= listening(pid)
    out, err = run.communicate()
    assert run.returncode == 0, err.decode()[-3000:]
    assert json.loads(out)["state"] == "finished"
    assert open_to == {"127.0.0.1"}
    assert not keyed & {"raylet", "gcs_server"} and not any(
        name.startswith("ray::") for name in keyed
    ), keyed


def descendants(root: int) -> list[int]:
    """Processes below one."""
    parents: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(pid))
    found, waiting = [], [root]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def names_of(pid: int) -> set[str]:
    try:
        return {Path(f"/proc/{pid}/comm").read_text().strip()}
    except OSError:
        return set()


def holds(pid: int, text: str) -> bool:
    """True if a process was given this in its environment."""
    try:
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def listening(pid: int) -> set[str]:
    """The addresses a process listens on."""
    import ipaddress
    import re

    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        inodes = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
        tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    except OSError:
        return set()
    found: set[str] = set()
    for words in lines:
        if words[3] == "0A" and words[9] in inodes:
            raw = bytes.fromhex(words[1].partition(":")[0])
            packed = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
            address = ipaddress.ip_address(packed)
            found.add(str(getattr(address, "ipv4_mapped", None) or address))
    return found


def test_evaluators_on_nodes_ask_models_through_the_run(
    pair: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asks_models(choice(pair), tmp_path, monkeypatch)
