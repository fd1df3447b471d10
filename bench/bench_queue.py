"""The time that the file queue adds to an experiment.

From the request's file to the result in the agent's hands, less the time
that the evaluation takes for any strategy.

    python bench/bench_queue.py [--experiments 200] [--wide 8]

An agent program in its sandbox runs experiments one after another, then several at once: against a
world that answers at once, which leaves the queue alone, and in a real run with the real journal
and jail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation
from culmen.core.event import CustomRequest
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.local import LocalBackend
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.messages import (
    AnswerExperiments,
    EndSession,
    ExperimentRow,
    Open,
    Wait,
    Waited,
    from_plain_data,
    to_plain_data,
)
from culmen.extensions.agents.sandbox.repository import run_git
from culmen.extensions.agents.sandbox.world import SessionWorld
from culmen.run.options import folder_task
from culmen.run.study import Study

TASK_TOML = """
name = "queue"
goal = "Return a number."
deterministic = true
[seed]
files = ["main.py"]
[evaluator]
file = "evaluator.py"
"""
AGENT = """
import json, runpy, sys, time
client = runpy.run_path(".culmen/evaluate")
ask, result = client["ask"], client["result"]
path = "candidates/a00/x{}.py"
for n in range(EXPERIMENTS + 1):
    open(path.format(n), "w").write(f"def run():\\n    return {n}.0\\n")
one, wide = [], []
for n in range(-10, EXPERIMENTS // 2):
    began = time.perf_counter()
    row = json.loads(result(*ask([path.format(max(n, -1) + 1)])))
    one.append((time.perf_counter() - began, [row["candidate"]]))
for n in range(EXPERIMENTS // 2, EXPERIMENTS, WIDE):
    began = time.perf_counter()
    rows = [json.loads(result(ticket)) for ticket in ask([path.format(k) for k in range(n + 1, n + 1 + WIDE)])]
    wide.append((time.perf_counter() - began, [row["candidate"] for row in rows]))
json.dump([one[10:], wide], open("notes/a00.md", "w"))
"""


Times = list[
    list[tuple[float, list[str]]]
]  # seconds and candidates of each request, one at a time and several at once
WORKERS = 2


class Timed:
    """The usual backend; `seconds` keeps how long each candidate took."""

    def __init__(self, task: Task) -> None:
        self._inner, self.seconds = LocalBackend(task, WORKERS), dict[str, float]()

    async def start(self) -> str:
        return await self._inner.start()

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        began = time.perf_counter()
        observation = await self._inner.evaluate(candidate, case, seed, certify=certify)
        self.seconds[candidate.id] = time.perf_counter() - began
        return observation

    async def close(self) -> None:
        await self._inner.close()


def program(experiments: int, wide: int) -> str:
    return AGENT.replace("EXPERIMENTS", str(experiments)).replace("WIDE", str(wide))


async def alone(folder: Path, experiments: int, wide: int) -> Times:
    """The agent's times where every request is answered at once."""
    world = SessionWorld(folder / "alone", Task("queue", seeds=({"main.py": ""},)))

    async def do(kind: str, request: Open | Wait | AnswerExperiments | EndSession) -> dict:
        return (
            await world.perform(CustomRequest(f"session.{kind}", to_plain_data(request), 0))
        ).data

    kind = f"cmd: {sys.executable} {{prompt_file}}"
    await do("open", Open(0, kind, {"TASK.md": ""}, program(experiments, wide)))
    nth = seen = 0
    try:
        while True:
            nth += 1
            waited = from_plain_data(await do("wait", Wait(0, seen, nth)), Waited)
            seen += len(waited.experiments)
            for n, one in enumerate(waited.experiments):
                await do(
                    "answer",
                    AnswerExperiments(0, (ExperimentRow(seen + n, 0, one.ticket, "c", score=1.0),)),
                )
            if waited.ended:
                assert waited.ended == "finished", waited
                return json.loads((await do("end", EndSession(0, "finished")))["notes"])
    finally:
        await world.close()


def run(folder: Path, experiments: int, wide: int) -> tuple[Times, dict[str, float]]:
    """The agent's times in a run, and those of the evaluations."""
    place = folder / "task"
    place.mkdir()
    (place / "task.toml").write_text(TASK_TOML)
    (place / "main.py").write_text("def run():\n    return 0.5\n")
    (place / "evaluator.py").write_text("def score(output):\n    return float(output)\n")
    task = folder_task(place, None, "")
    backend = Timed(task)
    strategy = Cato(
        agents=1, agent=f"cmd: {sys.executable} -c {shlex.quote(program(experiments, wide))}"
    )
    budget = Budget(evaluations=2 * experiments)
    Study.create(
        task, strategy, budget=budget, workers=WORKERS, run_dir=folder / "run", backend=backend
    ).run()
    return json.loads(
        run_git(folder / "run/control/repo.git", "show", "trunk:notes/a00.md")
    ), backend.seconds


def line(name: str, times: list[tuple[float, list[str]]], evaluations: dict[str, float]) -> str:
    """A row of the table: milliseconds per experiment without its evaluation.

    `WORKERS` evaluations run at once.
    """
    found = []
    for seconds, candidates in times:
        inside = sum(evaluations.get(name, 0.0) for name in candidates) / min(
            WORKERS, len(candidates)
        )
        found.append(1000 * (seconds - inside) / len(candidates))
    return f"| {name} | {statistics.median(found):.1f} | {sorted(found)[int(0.95 * (len(found) - 1))]:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--wide", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        quick = asyncio.run(alone(Path(folder), given.experiments, given.wide))
        real, evaluations = run(Path(folder), given.experiments, given.wide)
    print("| | median ms per experiment | 95th percentile |\n|---|---|---|")
    print(line("queue alone, one at a time", quick[0], {}))
    print(line(f"queue alone, {given.wide} at once", quick[1], {}))
    print(line("in a run, one at a time", real[0], evaluations))
    print(line(f"in a run, {given.wide} at once", real[1], evaluations))
    print(f"an evaluation takes {1000 * statistics.median(evaluations.values()):.1f} ms")


if __name__ == "__main__":
    main()
