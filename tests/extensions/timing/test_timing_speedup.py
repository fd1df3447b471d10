"""The metric `speedup`: honest programs score their speed-up, time cheats win nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks.loading import load
from tests.evaluate.conftest import need

pytestmark = pytest.mark.jail

TOML = """
goal = "Sum what a slow generator of random numbers gives."
deterministic = false
[seed]
files = ["solver.py"]
[evaluator]
metric = "speedup"
entry = "Solver.solve"
[limits]
seconds = 30
"""
WORK = """
def total(start, count):
    state, total = start, 0
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        total += state % 1000
    return total
"""
EVALUATOR = (
    WORK
    + """
def generate(seed):
    return [seed, 20_000]

def reference(problem):
    return [total(*problem)]

def check(problem, found):
    return found == [total(*problem)]
"""
)
HONEST = (
    WORK
    + """
class Solver:
    def solve(self, problem):
        return [total(*problem)]
"""
)
PATCHED = (
    HONEST
    + """
from culmen.extensions.timing import timed
from culmen.extensions.timing import packed
from culmen.jail import wire
read, write, send = packed.decode, packed.encode, wire.send
"""
)
# each would score 20 and more if its trick worked; the honest program scores 1
CHEATS = {
    "remembers results by value": HONEST
    + """
import functools
honest, known = Solver.solve, {}
def solve(self, problem):
    key = tuple(problem)
    if key not in known:
        known[key] = honest(self, problem)
    return known[key]
Solver.solve = solve
""",
    "remembers results by the input's address": HONEST
    + """
honest, known = Solver.solve, {}
def solve(self, problem):
    if id(problem) not in known:
        known[id(problem)] = honest(self, problem)
    return known[id(problem)]
Solver.solve = solve
""",
    "computes on import": HONEST
    + """
honest = Solver.solve
table = {(seed, 20_000): [total(seed, 20_000)] for seed in range(8)}
Solver.solve = lambda self, problem: table.get(tuple(problem)) or honest(self, problem)
""",
    "stops the clocks": "import time\n"
    + HONEST
    + """
for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
    setattr(time, name, lambda value=getattr(time, name)(): value)
    setattr(time, name + "_ns", lambda value=getattr(time, name + "_ns")(): value)
time.clock_gettime = lambda clock: 0.0
""",
    "replaces the checker": """
import builtins, sys
class Solver:
    def solve(self, problem):
        for module in list(sys.modules.values()):
            for name in ("check", "accepts", "judge"):
                if hasattr(module, name):
                    setattr(module, name, lambda *args: True)
        builtins.all = lambda items: True
        return [0]
""",
    "fills the result in a thread": HONEST
    + """
import threading
class Solver:
    def solve(self, problem):
        found = []
        threading.Thread(target=lambda: found.append(total(*problem))).start()
        return found
""",
    "works while the input is read": PATCHED
    + """
def decode(data):
    problem = read(data)
    return [problem, [total(*problem)]]
packed.decode = decode
Solver.solve = lambda self, pair: pair[1]
""",
    "works while the result is written": PATCHED
    + """
packed.encode = lambda problem: write([total(*problem)])
Solver.solve = lambda self, problem: problem
""",
    "says done before it is": PATCHED
    + """
import threading
state = {"early": False}
def early_send(channel, kind, payload=b""):
    if state["early"] and kind == "R" and not payload:
        state["early"] = False
        return
    send(channel, kind, payload)
class Solver:
    def solve(self, problem):
        import socket
        channel = socket.socket(fileno=3)
        send(channel, "R")
        channel.detach()
        state["early"] = True
        return [total(*problem)]
timed.wire.send = early_send
""",
    "has a helper process that works while the input is read": PATCHED
    + """
import json, os
ask, answer = os.pipe(), os.pipe()
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.close(ask[1])
    with os.fdopen(ask[0]) as questions:
        for line in questions:
            os.write(answer[1], (json.dumps([total(*json.loads(line))]) + "\\n").encode())
    os._exit(0)
answers = os.fdopen(answer[0])
def decode(data):
    problem = read(data)
    os.write(ask[1], (json.dumps(problem) + "\\n").encode())
    return json.loads(answers.readline())
packed.decode = decode
Solver.solve = lambda self, found: found
""",
    "waits for its helper without rest": PATCHED
    + """
import json, os, select
ask, answer = os.pipe(), os.pipe()
if os.fork() == 0:
    os.setsid()
    os.close(ask[1])
    with os.fdopen(ask[0]) as questions:
        for line in questions:
            os.write(answer[1], (json.dumps([total(*json.loads(line))]) + "\\n").encode())
    os._exit(0)
os.nice(19)
answers = os.fdopen(answer[0])
class Solver:
    def solve(self, problem):
        os.write(ask[1], (json.dumps(problem) + "\\n").encode())
        while not select.select([answers], [], [], 0)[0]:
            pass
        return json.loads(answers.readline())
""",
    "answers pings slowly": HONEST
    + """
import time
from culmen.extensions.timing import timed
perform = timed.TimedProgram.perform
def slow(self, kind, payload):
    if kind == "P":
        time.sleep(0.05)
    return perform(self, kind, payload)
timed.TimedProgram.perform = slow
""",
    "slows the reference down": HONEST
    + """
import os, threading, time
def burn():
    while True:
        sum(range(1000))
threading.Thread(target=burn, daemon=True).start()
for pid in range(max(2, os.getpid() - 20), os.getpid()):
    for harm in (lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.kill(pid, 19)):
        try:
            harm()
        except OSError:
            pass
""",
}
OTHERS = {
    "honest": HONEST,
    "slow": HONEST.replace(
        "return [total(*problem)]", "return [total(*problem)] and [total(*problem)]"
    ),
    "lazy": HONEST.replace("return [total(*problem)]", "return (total(*problem) for _ in [0])"),
    "broken": "class Solver:\n    def solve(self, problem):\n        return problem['n']\n",
    "absent": "class Other:\n    pass\n",
    "ends": "import os\nclass Solver:\n    def solve(self, problem):\n        os._exit(3)\n",
}


def write_task(folder: Path, **files: str) -> Path:
    for name, text in {
        "task.toml": TOML,
        "evaluator.py": EVALUATOR,
        "solver.py": HONEST,
        **files,
    }.items():
        (folder / name).write_text(text)
    return folder


def evaluate(
    folder: Path, programs: dict[str, str], level: str | None = None
) -> dict[str, Observation]:
    async def run() -> dict[str, Observation]:
        backend = LocalBackend(load(folder), 1, level=level)
        try:
            await backend.start()
            return {
                name: await backend.evaluate(Candidate.of({"solver.py": text}), None, 1)
                for name, text in programs.items()
            }
        finally:
            await backend.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observation]:
    folder = write_task(tmp_path_factory.mktemp("speedup"))
    return evaluate(folder, {**CHEATS, **OTHERS})


@pytest.mark.parametrize("cheat", CHEATS)
def test_speedup_a_cheat_about_time_wins_nothing(cheat: str, found: dict[str, Observation]) -> None:
    score = found[cheat].score
    assert score is None or score < 2.5, found[cheat].feedback


def test_speedup_orphans_count_without_namespaces_too(tmp_path: Path) -> None:
    need("restricted")
    helped = {name: text for name, text in CHEATS.items() if "helper" in name}
    free = HONEST + "import ctypes\nfree = ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n"
    honest = "class Solver:\n    def solve(self, problem):\n        return [total(*problem)]"
    allowed = free + honest.replace("return", "assert free\n        return")
    found = evaluate(write_task(tmp_path), {**helped, "leaves": allowed}, level="restricted")
    assert {name for name in helped if (found[name].score or 0.0) > 2.5} == set()
    assert found["leaves"].ok, found["leaves"].feedback


def test_speedup_cheats_are_right_so_that_their_time_is_what_holds_them(
    found: dict[str, Observation],
) -> None:
    none = {name for name in CHEATS if found[name].score is None}
    wrong = {name for name in none if found[name].reason != "machine_busy"}  # with threads
    assert wrong <= {
        "replaces the checker",
        "fills the result in a thread",
        "remembers results by the input's address",
    }


def test_speedup_scores_are_ratios_of_times(found: dict[str, Observation]) -> None:
    honest, slow = found["honest"], found["slow"]
    assert honest.score is not None and slow.score is not None
    assert 0.6 < honest.score < 1.6
    assert slow.score < 0.8 * honest.score
    assert honest.metrics["rounds"] >= 8 and "fresh inputs" in honest.feedback


def test_speedup_failures_of_the_program_are_its_own(found: dict[str, Observation]) -> None:
    assert found["lazy"].status is Status.ERROR and "generator" in found["lazy"].feedback
    assert found["broken"].status is Status.ERROR and "problem['n']" in found["broken"].feedback
    assert found["absent"].status is Status.ERROR and "Solver" in found["absent"].feedback
    assert found["ends"].status is Status.ERROR and found["ends"].score is None


@pytest.mark.parametrize(
    "evaluator, words",
    [
        (EVALUATOR.replace("return [total(*problem)]", "return [0]"), "reference's own result"),
        (EVALUATOR.replace("return [total(*problem)]", "return 1 / 0"), "ZeroDivisionError"),
    ],
)
def test_speedup_a_broken_reference_is_not_held_against_the_program(
    tmp_path: Path, evaluator: str, words: str
) -> None:
    found = evaluate(write_task(tmp_path, **{"evaluator.py": evaluator}), {"honest": HONEST})
    assert found["honest"].status is Status.LOST and words in found["honest"].feedback


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("def check(", "def chekc(", "no function 'check'"),
        ("def generate(seed)", "def generate(sead)", "unknown argument 'sead'"),
    ],
)
def test_speedup_an_evaluator_that_lacks_something_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    folder = write_task(tmp_path, **{"evaluator.py": EVALUATOR.replace(old, new)})
    with pytest.raises(TaskError, match=words):
        load(folder)


def test_speedup_has_a_form_of_its_own(tmp_path: Path) -> None:
    toml = TOML.replace("[limits]", 'form = "call"\n[limits]')
    with pytest.raises(TaskError, match="form of its own"):
        load(write_task(tmp_path, **{"task.toml": toml}))
