"""A long run under faults and kills: growth, leaks, losses.

    python bench/bench_soak.py                                      # 200,000 cheap evaluations
    python bench/bench_soak.py --evaluations 5000 --backend jail    # real jailed ones

One run of `map_elites` with the real engine, gateway and journal. One model call in ten fails:
refused by the server, rate limited, cut, empty, or prose without a program. One program in twenty
fails: it raises, returns no number, or ends its process. After about `--every` seconds of work it
is killed with SIGKILL at a random instant and resumed, until all evaluations are made. With
`--backend cheap` a program is a line that is read, not run, so hours of evaluations fit into
minutes; with `jail` it is run as any candidate is.

After every kill the journal is compared with its earlier contents and with the events that the
killed process knew to be durable. Memory and open files are those of the searching process, read
from /proc while it works.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import random
import re
import resource
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Event
from culmen.core.usage import Budget
from culmen.extensions.baselines.map_elites import MapElites
from culmen.models.call import (
    BadResponse,
    Call,
    Completion,
    Interrupted,
    RateLimited,
    Reply,
    ServerFailed,
    Tokens,
)
from culmen.run.study import Study

TASK_TOML = """
name = "soak"
goal = "Return a number as close to 3 as possible."
features = ["low", "high"]
[seed]
files = ["main.py"]
[evaluator]
file = "evaluator.py"
packages = []
[limits]
seconds = 10
"""
SEED = "def run():\n    return 0.5\n"
EVALUATOR = """
def score(output, seed):
    value = float(output)
    return {"score": -abs(value - 3.0), "low": value % 1.0, "high": value // 1.0}
"""
BROKEN = ("raise ValueError('no')", "return 'a word'", "__import__('os')._exit(3)")
MODEL_FAULTS, CANDIDATE_FAULTS = 0.10, 0.05
_VALUE = re.compile(r"return (-?[\d.]+)")


class Model:
    """Answers with programs near the one it is shown.

    It is a pure function of the call except for its faults.
    """

    def __init__(self) -> None:
        self._rng = random.Random(os.getpid())

    async def complete(self, call: Call) -> Reply:
        prompt = call.messages[-1].content
        if self._rng.random() < MODEL_FAULTS:
            return self._fail(prompt)
        found = _VALUE.findall(prompt)
        value = float(found[0]) if found else 1.0
        choices = tuple(
            Completion(f"Closer.\n\n```main.py\n{self._program(value)}```\n")
            for _ in range(call.samples)
        )
        return Reply(choices, Tokens(len(prompt) // 4, 20 * call.samples), dollars=0.0)

    def _program(self, value: float) -> str:
        if self._rng.random() < CANDIDATE_FAULTS:
            return f"def run():  # {self._rng.getrandbits(40)}\n    {self._rng.choice(BROKEN)}\n"
        return f"def run():\n    return {abs(value + self._rng.gauss(0, 0.5)):.9f}\n"

    def _fail(self, prompt: str) -> Reply:
        kind = self._rng.randrange(5)
        if kind == 0:
            raise ServerFailed("status 500")
        if kind == 1:
            raise RateLimited("status 429", retry_after=0.02)
        if kind == 2:
            raise Interrupted("cut", "the connection broke")
        if kind == 3:
            raise BadResponse("no_content", raw="{}")
        return Reply(
            (Completion("I would rather talk about the weather."),),
            Tokens(len(prompt) // 4, 9),
            dollars=0.0,
        )


class Cheap:
    """Judges a program by its text."""

    async def start(self) -> str:
        return "none"

    async def evaluate(self, candidate: Candidate, case: Case | None, seed: int) -> Observation:
        found = _VALUE.search(candidate.text)
        if found is None:
            return Observation(
                candidate.id, Status.ERROR, reason="exception", feedback="it failed", seed=seed
            )
        value = float(found[1])
        return Observation(
            candidate.id,
            Status.OK,
            -abs(value - 3.0),
            metrics={"low": value % 1.0, "high": value // 1.0},
            seed=seed,
        )

    async def close(self) -> None:
        return None


class Acknowledged:
    """Sends the parent the last event that is durable.

    It does so through a shared page that survives a kill.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 16)

    def see(self, events: Iterable[Event]) -> None:
        self._page[:8] = struct.pack("<q", max(event.seq for event in events))


def child(run: Path, backend: str) -> None:
    """One session of the run."""
    more: dict[str, Any] = {"backend": Cheap()} if backend == "cheap" else {}
    study = Study.resume(
        run, model=Model(), observers=(Acknowledged(run.parent / "acknowledged"),), **more
    )
    print(study.run())


def make(folder: Path, evaluations: int, workers: int) -> Study:
    """The task and its run."""
    task = folder / "task"
    task.mkdir()
    (task / "task.toml").write_text(TASK_TOML)
    (task / "main.py").write_text(SEED)
    (task / "evaluator.py").write_text(EVALUATOR)
    (folder / "acknowledged").write_bytes(bytes(16))
    strategy = MapElites(features=("low", "high"), proposals=4)
    return Study.create(
        task,
        strategy,
        model=Model(),
        budget=Budget(evaluations=evaluations),
        workers=workers,
        run_dir=folder / "run",
    )


def rows(run: Path) -> Iterator[tuple[int, str, int, str, bytes]]:
    """Events as they lie in the file: seq, kind, key, mark, result."""
    with sqlite3.connect(f"file:{run / 'journal.db'}?mode=ro", uri=True) as db:
        yield from db.execute("SELECT seq, kind, key, mark, result FROM event ORDER BY seq")


class Account:
    """Contents of the journal at the last look: a digest of every prefix that matters."""

    def __init__(self) -> None:
        self.events = self.done = self.lost = self.repeated = 0
        self.digest = ""

    def look(self, run: Path, acknowledged: int) -> None:
        """Compare with the last look; count events that were lost or are there twice."""
        running, seen, events, done = hashlib.sha256(), set[int](), 0, 0
        for seq, kind, key, mark, result in rows(run):
            running.update(f"{seq} {kind} {key} {mark} ".encode() + (result or b""))
            events = seq
            if kind == "done":
                self.repeated += key in seen
                seen.add(key)
                done += 1
            if seq == self.events and running.hexdigest() != self.digest:
                self.lost += 1  # the beginning is not what it was
        self.lost += max(0, self.events - events, acknowledged - events)
        self.events, self.done, self.digest = events, done, running.hexdigest()


class Gauge(threading.Thread):
    """Samples a process: resident megabytes, open files, threads.

    With the evaluations made so far.
    """

    def __init__(self, pid: int, page: mmap.mmap, session: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._page, self._session, self._over = pid, page, session, threading.Event()
        self.samples: list[dict[str, float]] = []

    def run(self) -> None:
        began = time.monotonic()
        while not self._over.wait(1.0):
            try:
                status = Path(f"/proc/{self._pid}/status").read_text()
                files = len(os.listdir(f"/proc/{self._pid}/fd"))
            except OSError:
                return
            facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if "VmRSS" not in facts:
                return
            self.samples.append(
                {
                    "session": self._session,
                    "seconds": time.monotonic() - began,
                    "events": acknowledged(self._page),
                    "mb": int(facts["VmRSS"].split()[0]) / 1024,
                    "files": files,
                    "threads": int(facts["Threads"]),
                }
            )

    def end(self) -> list[dict[str, float]]:
        self._over.set()
        self.join()
        return self.samples


def acknowledged(page: mmap.mmap) -> int:
    """The last event that a session knew to be durable."""
    return struct.unpack("<q", page[:8])[0]


def soak(
    folder: Path, evaluations: int, backend: str, every: float, workers: int
) -> dict[str, Any]:
    """Run to the end under kills; everything that was measured."""
    study, account, rng = make(folder, evaluations, workers), Account(), random.Random(1)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    line = [sys.executable, __file__, "--child", str(study.path), "--backend", backend]
    samples: list[dict[str, float]] = []
    kills, began = 0, time.monotonic()
    with (folder / "acknowledged").open("r+b") as file:
        page = mmap.mmap(file.fileno(), 16)
    while True:
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        gauge = Gauge(process.pid, page, kills)
        gauge.start()
        kills += not left_alone(process, page, rng.uniform(0.5, 1.5) * every)
        samples += gauge.end()
        account.look(study.path, acknowledged(page))
        last = samples[-1] if samples else {"mb": 0, "files": 0}
        print(
            f"{time.monotonic() - began:6.0f} s  {kills:>3} kills  {account.done:>7} effects  "
            f"{last['mb']:5.0f} MB  {last['files']:3.0f} files",
            flush=True,
        )
        if process.returncode == 0:
            break
    return report(study, account, samples, kills, time.monotonic() - began)


def left_alone(process: subprocess.Popen[bytes], page: mmap.mmap, seconds: float) -> bool:
    """True if the session ended by itself within `seconds` of work.

    Reading the journal does not count.
    """
    before = acknowledged(page)
    while (
        process.poll() is None and acknowledged(page) <= before + 1
    ):  # the first event only says that it runs
        time.sleep(0.05)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return False
    assert process.returncode == 0, errors.decode()[-3000:]
    return True


def report(
    study: Study, account: Account, samples: list[dict[str, float]], kills: int, seconds: float
) -> dict[str, Any]:
    """The figures, checked: nothing lost, nothing twice.

    The journal replays to the very same end.
    """
    from culmen.store import views

    status = views.run_status(study.path)
    kinds: dict[str, int] = {}
    for observation in study.observations():
        kinds[observation.status] = kinds.get(observation.status, 0) + 1
    ends = [
        [s for s in samples if s["session"] == n] for n in sorted({s["session"] for s in samples})
    ]
    longest = max(ends, key=len)
    half = longest[len(longest) // 2 :]
    return {
        "evaluations": status.evaluations,
        "statuses": kinds,
        "model_calls": status.usage.calls,
        "kills": kills,
        "seconds": round(seconds),
        "lost": account.lost,
        "repeated": account.repeated,
        "state": status.state,
        "journal_mb": round(sum(f.stat().st_size for f in study.path.glob("journal.db*")) / 2**20),
        "mb_by_events": [[round(s[-1]["events"]), round(s[-1]["mb"])] for s in ends if s],
        "kb_per_evaluation": round(
            1024 * _slope(samples) * ends[-1][-1]["events"] / max(1, status.evaluations), 2
        ),
        "files": [min(s["files"] for s in half), max(s["files"] for s in half)],
        "files_at_session_ends": [s[-1]["files"] for s in ends if s],
        "threads": [min(s["threads"] for s in half), max(s["threads"] for s in half)],
        "children_peak_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


def _slope(samples: list[dict[str, float]]) -> float:
    """Megabytes per event, by least squares, over all samples taken while events came in."""
    samples = [now for before, now in pairwise(samples) if now["events"] > before["events"]]
    if len({s["events"] for s in samples}) < 2:
        return 0.0
    return statistics.linear_regression(
        [s["events"] for s in samples], [s["mb"] for s in samples]
    ).slope


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evaluations", type=int, default=200_000)
    parser.add_argument("--backend", choices=("cheap", "jail"), default="cheap")
    parser.add_argument(
        "--every", type=float, default=150.0, help="seconds of work between kills, on average"
    )
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        return child(given.child, given.backend)
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), given.evaluations, given.backend, given.every, given.workers)
    print(json.dumps(found, indent=1))
    assert found["lost"] == found["repeated"] == 0 and found["state"] == "finished"


if __name__ == "__main__":
    main()
