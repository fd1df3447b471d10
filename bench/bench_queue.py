"""What the file queue adds to an experiment: from the request's file to the result in the agent's hands, less the
evaluation itself.

    python bench/bench_queue.py [--experiments 200] [--wide 8]

An agent program in its sandbox runs experiments one after another, then several at once, in a real run with the real
journal and jail ("run"), and against a world that answers at once, which leaves the queue alone ("queue alone").
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from culmen.core.event import CustomRequest
from culmen.core.session import Answer, Open, Row, Wait, Waited, plain, read
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.sessions.world import SessionWorld
from culmen.strategies.cato import Cato
from culmen.study import Study

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
    one.append(time.perf_counter() - began - row["seconds"])
for n in range(EXPERIMENTS // 2, EXPERIMENTS, WIDE):
    began = time.perf_counter()
    rows = [json.loads(result(ticket)) for ticket in ask([path.format(k) for k in range(n + 1, n + 1 + WIDE)])]
    wide.append((time.perf_counter() - began) / WIDE - sum(row["seconds"] for row in rows) / WIDE)
print(json.dumps([one[10:], wide]))
"""


def program(experiments: int, wide: int) -> str:
    return AGENT.replace("EXPERIMENTS", str(experiments)).replace("WIDE", str(wide))


async def alone(folder: Path, experiments: int, wide: int) -> list[list[float]]:
    """The agent's times where every request is answered at once."""
    world = SessionWorld(folder / "alone", Task("queue", seeds=({"main.py": ""},)))

    async def do(kind: str, request: Open | Wait | Answer) -> dict:
        return (await world.perform(CustomRequest(f"session.{kind}", plain(request), 0))).data

    kind = f"cmd: {sys.executable} {{prompt_file}}"
    await do("open", Open(0, kind, {"TASK.md": ""}, program(experiments, wide)))
    nth = seen = 0
    try:
        while True:
            nth += 1
            waited = read(await do("wait", Wait(0, seen, nth)), Waited)
            seen += len(waited.experiments)
            for n, one in enumerate(waited.experiments):
                await do("answer", Answer(0, (Row(seen + n, 0, one.ticket, "c", score=1.0),)))
            if waited.ended:
                assert waited.ended == "finished", waited
                return json.loads(waited.word)
    finally:
        await world.close()


def run(folder: Path, experiments: int, wide: int) -> list[list[float]]:
    """The agent's times in a run."""
    task = folder / "task"
    task.mkdir()
    (task / "task.toml").write_text(TASK_TOML)
    (task / "main.py").write_text("def run():\n    return 0.5\n")
    (task / "evaluator.py").write_text("def score(output):\n    return float(output)\n")
    agent = f"cmd: {sys.executable} -c {shlex.quote(program(experiments, wide))}"
    strategy = Cato(agents=1, agent=agent)
    study = Study.create(task, strategy, budget=Budget(evaluations=2 * experiments), workers=2, run_dir=folder / "run")
    study.run()
    rows = [json.loads(line) for line in (folder / "run/transcripts/a00.jsonl").read_text().splitlines()]
    return json.loads([row["text"] for row in rows if row["kind"] == "text"][-1])


def line(name: str, times: list[float]) -> str:
    milliseconds = sorted(1000 * value for value in times)
    most = milliseconds[int(0.95 * (len(milliseconds) - 1))]
    return f"| {name} | {statistics.median(milliseconds):.1f} | {most:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--wide", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        quick = asyncio.run(alone(Path(folder), given.experiments, given.wide))
        real = run(Path(folder), given.experiments, given.wide)
    print("| | median ms per experiment | 95th percentile |\n|---|---|---|")
    print(line("queue alone, one at a time", quick[0]))
    print(line(f"queue alone, {given.wide} at once", quick[1]))
    print(line("in a run, one at a time", real[0]))
    print(line(f"in a run, {given.wide} at once", real[1]))


if __name__ == "__main__":
    main()
