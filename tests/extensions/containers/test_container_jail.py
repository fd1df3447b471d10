"""Candidates in a container: their limits, and the end when something is killed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.evaluation import Case, Status
from culmen.core.task import Limits
from culmen.extensions.audit.jail_suite import ATTACKS, HONEST, JUDGE, Decoys
from culmen.extensions.containers.jail import ContainerJail
from culmen.jail import probes
from tests.evaluate.conftest import Ground, wait_until

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
Make = Callable[..., Ground]
PLAIN = "def score(output):\n    return output if isinstance(output, (int, float)) else 0.0\n"
WITH_CASE = JUDGE + "def score(output, case):\n    return judge(output, case.input['values'])\n"
PATIENT = Limits(
    seconds=60.0, memory_mb=256, processes=24, files_mb=16, output_kb=1024, scorer_seconds=60.0
)
TRIED = (
    "connect_loopback",
    "disk_fill",
    "edit_evaluator",
    "exit_early",
    "forge_frame",
    "fork_bomb",
    "import_the_evaluator",
    "kill_everyone",
    "kill_parent",
    "leftovers",
    "memory_bomb_shared",
    "monkeypatch",
    "print_fake_result",
    "read_environment",
    "read_foreign_memory",
    "read_other_candidates",
    "respawning_daemons",
    "system_calls",
)
LEGACY = (
    "import importlib.util\ndef evaluate(path):\n    spec = importlib.util.spec_from_file_location('program', path)\n"
    "    program = importlib.util.module_from_spec(spec); spec.loader.exec_module(program)\n"
    "    return {'combined_score': float(program.run())}\n"
)
FORGED = """
import os, sys, json
def run():
    import culmen.jail.wire as wire, socket
    try:
        wire.send(socket.socket(fileno=3), "R", wire.encode({"metrics": {"combined_score": 999.0}}))
    except OSError:
        pass
    sys.modules["json"].dumps = lambda *a, **k: '{"combined_score": 999}'
    return 1.0
"""


def containers(name: str = "culmen-container") -> list[str]:
    """Names of those that are there, also ended ones."""
    line = ["podman", "ps", "--all", "--format", "{{.Names}}", "--filter", f"name={name}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()


def orphans() -> list[str]:
    """Containers of ours without a living owner.

    Those of tests that run beside this one have an owner.
    """
    found = []
    for name in containers():
        try:
            with open(Path(tempfile.gettempdir(), f"{name}.lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except FileNotFoundError:
            pass
        found.append(name)
    return found


def name_of(ground: Ground) -> str:
    jail = ground.backend._jail
    assert isinstance(jail, ContainerJail)
    return jail.name


@pytest.mark.slow
def test_every_probe_of_the_doctor_is_held_but_the_total_of_files(podman: str) -> None:
    found = probes._run_in_thread(probes.probe_level("container", podman))
    assert {name for name, result in found.items() if result != probes.PASS} <= {"total file limit"}


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["restricted", "limits"])
def test_hostile_programs_win_nothing_and_honest_ones_score(
    podman: str, shared: Make, tmp_path: Path, inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At `limits`, another user and the container alone hold.

    It is as where the container's kernel has no Landlock.
    """
    monkeypatch.setattr(ContainerJail, "levels", (inner,))
    decoys = Decoys(tmp_path, WITH_CASE)
    try:
        arena = shared(
            WITH_CASE, "container", workers=1 if inner == "limits" else 2, image=podman, packages=()
        )
        assert arena.backend._jail.inner == inner  # type: ignore[union-attr]
        case = Case("1", decoys.attack_arguments(), info={"secret": decoys.secret})
        for name in (
            TRIED
            if inner == "restricted"
            else ("kill_everyone", "read_foreign_memory", "forge_frame")
        ):
            attack, honest = arena.one(ATTACKS[name], case), arena.one(HONEST, case)
            assert attack.score in (None, 0.0) and attack.status is not Status.LOST, (name, attack)
            assert honest.score == 1.0 and not decoys.describe_harm(), (
                name,
                honest,
                decoys.describe_harm(),
            )
    finally:
        decoys.close()


@pytest.mark.slow
def test_candidates_are_not_root_have_no_rights_and_can_write_to_their_folder_only(
    podman: str, shared: Make
) -> None:
    arena = shared(
        "def score(output):\n    return {'score': 1.0, 'feedback': repr(output)}\n",
        "container",
        image=podman,
    )
    told = arena.one(
        "import os\ndef run():\n"
        "    status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "    def refused(path):\n"
        "        try: open(path, 'w').close()\n"
        "        except OSError: return True\n"
        "        return False\n"
        "    open('mine', 'w').close()\n"
        "    import numpy\n"
        "    return [os.getuid() >= 20000, int(status['CapEff'], 16), int(status['NoNewPrivs']),\n"
        "            all(map(refused, ('/tmp/x', '/usr/x', '/w/x', '/dev/shm/x', '/etc/x', '/var/tmp/x', '../x')))]\n"
    )
    assert told.feedback == "[True, 0, 1, True]"


def test_a_forged_result_of_an_evaluator_with_path_does_not_win(podman: str, shared: Make) -> None:
    arena = shared(
        LEGACY,
        "container",
        image=podman,
        form="legacy",
        seeds=({"program.py": "def run(): return 0.5"},),
    )
    assert arena.backend.scoring.trust == "proxied", arena.backend.scoring.why
    honest, forged = arena.evaluate("def run(): return 0.75", FORGED)
    assert honest.score == 0.75 and honest.trust == "proxied"
    assert forged.score in (None, 1.0)
    peeks = f"def run(): return float(len(open({arena.task.evaluator.path!r}).read()))"
    assert "PermissionError" in arena.one(peeks).feedback


@pytest.mark.slow
def test_big_data_both_ways_floods_and_many_calls_pass_through_one_pipe(
    podman: str, ground: Make
) -> None:
    drive = "def score(call):\n    return float(sum(call(i) for i in range(200)) + len(call('x' * 3_000_000)))\n"
    serve = "def run(x): return x if isinstance(x, int) else x + x\n"
    arena = ground(drive, "container", image=podman, form="serve", packages=(), limits=PATIENT)
    assert arena.one(serve).score == 199 * 100 + 6_000_000
    noisy = "import os\ndef run(x):\n    os.write(1, b'y' * 300_000); return x if isinstance(x, int) else x\n"
    loud, calm = arena.evaluate(noisy, serve)
    assert calm.score == 199 * 100 + 6_000_000 and loud.status is not Status.LOST


def test_a_container_that_is_killed_is_replaced_and_its_candidates_run_again(
    podman: str, ground: Make
) -> None:
    arena = ground(PLAIN, "container", image=podman, packages=())
    first = name_of(arena)
    subprocess.run(["podman", "kill", first], check=True, capture_output=True)
    assert arena.one("def run(): return 2").score == 2.0
    assert name_of(arena) != first and containers(first) == []
    arena.runner.run(arena.backend.close())
    assert containers(name_of(arena) if arena.backend._jail else first) == []


@pytest.mark.slow
def test_a_container_that_hangs_is_ended_with_the_evaluation(
    podman: str, ground: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = ground(PLAIN, "container", image=podman, packages=())
    first = name_of(arena)
    monkeypatch.setattr("culmen.jail.evaluation.GRACE_SECONDS", 0.5)
    subprocess.run(["podman", "pause", first], check=True, capture_output=True)
    assert arena.one("def run(): return 3").score == 3.0
    assert containers(first) == []


OWNER = """
import asyncio, sys
from culmen.core.task import Limits
from culmen.extensions.containers.jail import ContainerJail
async def main():
    jail = ContainerJail(sys.argv[1], Limits(), 1)
    await jail.start()
    print(jail.name, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("all_of_them", [False, True])
def test_nothing_is_left_of_a_run_that_was_killed(
    podman: str, ground: Make, tmp_path: Path, all_of_them: bool
) -> None:
    """Its container sees the end of its input.

    Where its program was killed, too, the next run removes it.
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, podman], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    assert containers(name) == [name]
    below = [
        int(pid) for pid in Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
    ]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    if all_of_them:
        for pid in below:
            os.kill(pid, signal.SIGKILL)
        assert (
            ground(PLAIN, "container", image=podman, packages=()).one("def run(): return 1").score
            == 1.0
        )
        assert containers(name) == []
    else:
        assert wait_until(lambda: containers(name) == [], 60.0)


TASK = """
goal = "return a large number"
[seed]
files = ["program.py"]
[evaluator]
packages = []
image = "{image}"
"""


def culmen(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "culmen.cli.main", *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=folder, check=False)


@pytest.fixture
def task(tmp_path: Path, podman: str) -> Path:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK.format(image=podman))
    (folder / "program.py").write_text("def run():\n    x = 1.0\n    return x\n")
    (folder / "evaluator.py").write_text(PLAIN)
    return folder


@pytest.mark.slow
def test_check_and_run_work_in_a_container(task: Path) -> None:
    checked = culmen(
        "check", str(task), "--isolation", "container", "--times", "2", "--json", folder=task.parent
    )
    assert json.loads(checked.stdout)["isolation"] == "container", checked.stdout + checked.stderr
    words = (
        "run",
        str(task),
        "--isolation",
        "container",
        "--run-dir",
        "r",
        "--budget",
        "evaluations=2",
        "--quiet",
    )
    ran = culmen(*words, folder=task.parent)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = json.loads(culmen("status", "r", "--json", folder=task.parent).stdout)
    assert shown["isolation"] == "container"


def test_what_is_missing_is_said_with_the_next_command(task: Path) -> None:
    toml = (task / "task.toml").read_text()
    (task / "task.toml").write_text(toml.replace("culmen-test", "culmen-nothing"))
    ran = culmen("check", str(task), "--isolation", "container", folder=task.parent)
    assert ran.returncode == 5 and "podman pull localhost/culmen-nothing" in " ".join(
        ran.stderr.split()
    ), ran.stderr
    (task / "task.toml").write_text(toml.replace("image =", "# "))
    ran = culmen("check", str(task), "--isolation", "container", folder=task.parent)
    assert ran.returncode == 5 and "no image is named" in ran.stderr
    ran = culmen("check", str(task), "--isolation", "vault", folder=task.parent)
    assert ran.returncode == 2 and "there is no isolation level 'vault'" in ran.stderr
