"""Deaths of our own processes: the consequences, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.jail import procfs
from culmen.jail.fork_server import MARK
from tests.evaluate.conftest import LIMITS, Ground, need, wait_until

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]
SCORE = "def score(output): return output\n"
SPIN = "def run():\n    while True: pass"
DAEMON = (
    "import os, time\ndef run():\n"
    "    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(600)\n        os._exit(0)\n"
    "    while True: pass"
)


def zygote(arena: Ground) -> int:
    jail = arena.backend._jail
    assert jail is not None and jail._process is not None
    children = procfs.child_pids(jail._process.pid) if arena.level == "namespaces" else []
    return children[0] if children else jail._process.pid


async def start_evaluations(
    arena: Ground, candidate: Candidate, copies: int, count: int
) -> tuple[list[asyncio.Task[Observation]], list[int]]:
    """Evaluations under way and their processes, at least `count`.

    On a busy machine they may have to begin again.
    """
    ended: list[Observation] = []
    for _ in range(5):
        running = [
            asyncio.create_task(arena.backend.evaluate(candidate, None, 0)) for _ in range(copies)
        ]
        while len(found := arena.processes()) < count and not any(each.done() for each in running):
            await asyncio.sleep(0.005)
        if not any(each.done() for each in running):
            return running, found
        ended = await asyncio.gather(*running)
    pytest.fail(f"never so many processes: {ended}")


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "restricted", "limits"])
def test_a_dead_fork_server_is_replaced_and_its_candidates_run_again(
    ground: Make, level: str
) -> None:
    arena = ground(SCORE, level)

    async def work():
        slow = Candidate.of({"program": "import time\ndef run():\n    time.sleep(0.5); return 1"})
        running, old = await start_evaluations(arena, slow, 2, 1)
        os.kill(zygote(arena), signal.SIGKILL)
        return old, await asyncio.gather(*running)

    old, observations = arena.runner.run(work())
    assert [o.score for o in observations] == [1.0, 1.0]
    assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old))
    assert arena.one("def run(): return 2").score == 2.0


PRIORITY = "import os\ndef run(): return os.getpriority(os.PRIO_PROCESS, 0)"


@pytest.mark.parametrize("level", ["namespaces", "restricted"])
def test_the_fork_server_of_root_runs_before_those_it_watches(ground: Make, level: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root")
    arena = ground(SCORE, level)
    assert arena.one(PRIORITY).score == 0.0
    assert os.getpriority(os.PRIO_PROCESS, zygote(arena)) < 0


LEGACY = "import importlib.util\ndef evaluate(path):\n    return load(path).run()\n" + (
    "def load(path):\n    spec = importlib.util.spec_from_file_location('program', path)\n"
    "    module = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(module)\n    return module\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "restricted"])
@pytest.mark.extension("compat")
def test_both_processes_of_a_proxied_evaluation_end_with_it(ground: Make, level: str) -> None:
    arena = ground(LEGACY, level, form="legacy")
    assert arena.one(SPIN).reason == "timeout" and wait_until(lambda: arena.processes() == [])
    assert arena.one(DAEMON).reason == "timeout" and wait_until(lambda: arena.processes() == [])

    async def work():
        slow = Candidate.of(
            {"program.py": "import time\ndef run():\n    time.sleep(0.5); return 1"}
        )
        running, old = await start_evaluations(
            arena, slow, 2, 6
        )  # a supervisor, a server and an evaluator each
        os.kill(zygote(arena), signal.SIGKILL)
        first = await asyncio.gather(*running)
        running[0] = asyncio.create_task(arena.backend.evaluate(slow, None, 0))
        while not arena.processes():
            await asyncio.sleep(0.005)
        running[0].cancel()
        await asyncio.gather(running[0], return_exceptions=True)
        return old, first

    old, observations = arena.runner.run(work())
    assert [o.score for o in observations] == [1.0, 1.0]
    assert wait_until(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old) and arena.processes() == []
    )
    assert arena.one("def run(): return 2").score == 2.0


def test_daemons_of_a_killed_fork_server_end_too(ground: Make) -> None:
    arena = ground(SCORE, "restricted")

    async def work():
        (running,), old = await start_evaluations(arena, Candidate.of({"program": DAEMON}), 1, 2)
        os.kill(zygote(arena), signal.SIGKILL)
        return old, await running

    old, observation = arena.runner.run(work())
    assert observation.status is Status.TIMEOUT
    assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old))


def test_a_scorer_that_dies_or_hangs_is_replaced(ground: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    source = (
        "import os, time\ndef score(output):\n"
        f"    if output and not os.path.exists({str(flag)!r}):\n"
        f"        open({str(flag)!r}, 'w').close()\n"
        "        os.kill(os.getpid(), 9)\n"
        "    while output == 2: pass\n"
        "    if output == 4: time.sleep(600)\n"
        "    return output\n"
    )
    arena = ground(source)
    arena.backend._judges.seconds = 1.0
    assert arena.one("def run(): return 1").score == 1.0
    stalled = arena.one("def run(): return 2")
    assert (stalled.status, stalled.reason) == (Status.REJECTED, "scorer_stalled")
    hung = arena.one("def run(): return 4")
    assert (hung.status, hung.reason) == (Status.LOST, "scorer_error")
    assert arena.one("def run(): return 3").score == 3.0


ORCHESTRATOR = """
import asyncio, sys
from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.function import FunctionBackend
from culmen.evaluate.local import LocalBackend

async def main(kind, path, program):
    task = Task("t", evaluator=Evaluator(path=path), limits=Limits(seconds=60.0, memory_mb=256, processes=16))
    if kind == "function":
        def spin(text):
            while True: pass
        backend = FunctionBackend(task, spin, 2)
    else:
        backend = LocalBackend(task, 2, level=kind)
    await backend.start()
    jobs = [asyncio.create_task(backend.evaluate(Candidate.of({"program": program}), None, 0)) for _ in range(2)]
    await asyncio.sleep(0.3)
    print("running", flush=True)
    await asyncio.gather(*jobs)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["namespaces", "restricted", "limits", "function"])
def test_killing_the_orchestrator_ends_everything(kind: str, tmp_path: Path) -> None:
    if kind != "function":
        need(kind)
    (tmp_path / "evaluator.py").write_text(SCORE)
    mark = f"CULMEN_TEST={os.getpid()}-{kind}"
    process = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, kind, str(tmp_path / "evaluator.py"), DAEMON],
        stdout=subprocess.PIPE,
        env={**os.environ, "CULMEN_TEST": mark.partition("=")[2], "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None and process.stdout.readline() == b"running\n"
    family = descendants(process.pid) | set(procfs.marked_pids(mark))
    assert len(family) > 3
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_until(lambda: not alive(family)), alive(family)
    assert wait_until(lambda: not list(tmp_path.glob("culmen-jail-*/*")))


@pytest.mark.parametrize("kind", ["namespaces", "restricted", "limits"])
def test_killing_the_orchestrator_and_its_fork_server_at_once_ends_the_candidates(
    kind: str, tmp_path: Path
) -> None:
    """As a scheduler does that kills all processes of a worker."""
    need(kind)
    (tmp_path / "evaluator.py").write_text(SCORE)
    process = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, kind, str(tmp_path / "evaluator.py"), SPIN],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None and process.stdout.readline() == b"running\n"
    family = descendants(process.pid)
    process.send_signal(signal.SIGSTOP)  # it sees nothing of what follows
    for child in procfs.child_pids(process.pid):
        os.kill(child, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_until(lambda: not alive(family)), alive(family)


def descendants(pid: int) -> set[int]:
    found, new = set(), {pid}
    while new:
        new = {child for parent in new for child in procfs.child_pids(parent)} - found
        found |= new
    return found


def alive(pids: Iterable[int]) -> list[str]:
    names = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            names += (
                [f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}"]
                if state not in "ZX"
                else []
            )
        except OSError:
            continue
    return names


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "restricted"])
def test_hundreds_of_hostile_runs_leave_nothing(ground: Make, level: str) -> None:
    hostile = [
        "import os\ndef run(): os._exit(1)",
        "import os\ndef run(): os.abort()",
        "def run(): return 'x' * (1 << 20)",
        "def run(): raise SystemExit",
        "import os, time\ndef run():\n    if os.fork() == 0:\n        os.setsid(); time.sleep(600)\n    return 1",
        "import threading, time\ndef run():\n    threading.Thread(target=time.sleep, args=(9,)).start()\n    return 1",
        "def run(): return bytearray(1 << 33)",
        "import os\ndef run():\n    os.write(3, b'junk' * 1000); os._exit(0)",
        "def run():\n    print('x' * 100_000); return object()",
        "import os\ndef run():\n    os.close(3); os.close(1); return 1",
    ]
    arena = ground(SCORE, level, workers=4)
    arena.evaluate(*hostile)  # whatever is opened lazily is open now

    def ours() -> int:  # a scorer more or less holds two
        return len(os.listdir("/proc/self/fd")) - 2 * len(arena.backend._judges._idle)

    before = ours()
    resident = resident_kb(zygote(arena))
    for _ in range(20):
        arena.evaluate(*hostile)
    assert ours() == before
    assert wait_until(lambda: arena.processes() == [])
    assert resident_kb(zygote(arena)) < resident + 4096
    assert arena.one("def run(): return 5").score == 5.0


def resident_kb(pid: int) -> int:
    return next(
        int(line.split()[1])
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if "VmRSS" in line
    )


@pytest.mark.parametrize("level", ["namespaces", "restricted", "limits"])
def test_closing_leaves_no_process_and_no_file(tmp_path: Path, level: str) -> None:
    from culmen.core.task import Evaluator, Task

    need(level)
    (tmp_path / "evaluator.py").write_text(SCORE)
    arena = Ground(
        Task("t", evaluator=Evaluator(path=str(tmp_path / "evaluator.py")), limits=LIMITS), level
    )
    jail = arena.backend._jail
    assert jail is not None
    arena.one(
        "import os\ndef run():\n    open('left', 'w').close(); os.mkdir('x'); os.chmod('x', 0); return 1"
    )

    async def cut_short():
        running = asyncio.create_task(
            arena.backend.evaluate(Candidate.of({"program": SPIN}), None, 0)
        )
        while not arena.processes():
            await asyncio.sleep(0.005)
        running.cancel()

    arena.runner.run(cut_short())
    arena.close()
    assert not os.path.exists(jail.scratch)
    assert wait_until(lambda: procfs.marked_pids(f"{MARK}={os.path.basename(jail.scratch)}") == [])


DEEP = """
import os
def dig(name, depth):
    os.mkdir(name); here = os.open(".", os.O_RDONLY); os.chdir(name)
    for _ in range(depth):
        os.mkdir("d"); os.chdir("d")
    os.fchdir(here)
def run():
    dig("deep", 3000)
    os.mkdir("shut"); os.mkdir("shut/inside"); open("shut/inside/file", "w").close(); os.chmod("shut", 0)
    while True: pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "level", ["restricted", "limits"]
)  # at namespaces it lies in memory, and ends with it
def test_very_deep_and_closed_folders_are_removed_at_the_end(tmp_path: Path, level: str) -> None:
    from culmen.core.task import Evaluator, Task

    need(level)
    (tmp_path / "evaluator.py").write_text(SCORE)
    arena = Ground(
        Task("t", evaluator=Evaluator(path=str(tmp_path / "evaluator.py")), limits=LIMITS), level
    )
    jail = arena.backend._jail
    assert jail is not None
    assert arena.one(DEEP).reason in ("timeout", "cpu_limit", "files_limit")

    async def cut_short():
        running = asyncio.create_task(
            arena.backend.evaluate(Candidate.of({"program": DEEP}), None, 0)
        )
        while not arena.processes():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.3)
        assert jail._process is not None
        os.kill(zygote(arena), signal.SIGKILL)  # nobody but the orchestrator is left to clean up
        running.cancel()

    arena.runner.run(cut_short())
    arena.close()
    assert not os.path.exists(jail.scratch)


def test_a_jail_that_cannot_be_set_up_never_starts_the_candidate(ground: Make) -> None:
    arena = ground(SCORE, "restricted")
    jail = arena.backend._jail
    assert jail is not None
    os.chmod(jail.scratch, 0)  # the work folder cannot be entered
    marker = Path(jail.scratch).parent / f"started-{os.getpid()}"
    if os.geteuid() == 0:
        assert wait_until(lambda: not os.listdir(jail.scratch))
        os.rmdir(jail.scratch)  # a root passes anything: then there is no folder at all
    observation = arena.one(f"open({str(marker)!r}, 'w')\ndef run(): return 1")
    assert observation.status is Status.LOST and observation.reason == "jail_error"
    assert not marker.exists()
