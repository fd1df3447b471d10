"""Runs on a server that bills: killed, with shared replies, or through a jump of the clock.

Each run is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from culmen.core.usage import Usage
from culmen.models.call import Completion
from culmen.store import views
from tests.servers.billing_server import PRICE, BillingServer

pytestmark = pytest.mark.slow

MODELS = """
[providers.own]
base_url = "{url}/v1"
[models.m]
provider = "own"
max_tokens = 1000
price = {{ input = {price.input}, output = {price.output} }}
"""
# answers are wrong, and cost their tokens all the same
CHILD = """
import sys
import time
from pathlib import Path

import culmen
from culmen.core.usage import Budget

folder, budget, jump = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
true_time, looks = time.time, iter(range(10**9))
time.time = lambda: true_time() + (jump if next(looks) > 30 else 0.0)
if (folder / "run").exists():
    culmen.Study.resume(folder / "run").run()
else:
    teams = ("billing", "technical", "account")
    rows = [{"ticket": f"ticket {n}: {n * 7 % 97} is wrong", "team": teams[n % 3]} for n in range(30)]
    culmen.optimize_prompt(
        "Read the ticket.\\nAnswer with the team.\\nBe brief.\\nOne word.\\n",
        rows,
        "team",
        model={"default": "offline", "answer": "m"},
        models_file=str(folder / "models.toml"),
        budget=Budget.parse(budget),
        run_dir=folder / "run",
        progress=False,
        random_seed=1,
        workers=4,
    )
"""


class Runs:
    """Processes that run or resume a search in a folder each; replies are shared."""

    def __init__(self, root: Path, server: BillingServer, budget: str, jump: float = 0.0) -> None:
        self._root, self._server, self._budget, self._jump = root, server, budget, jump

    def begin(self, name: str) -> subprocess.Popen[bytes]:
        """A process that begins, or goes on."""
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        models = MODELS.format(url=self._server.url, price=PRICE)
        (folder / "models.toml").write_text(models)
        environment = {**os.environ, "XDG_CACHE_HOME": str(self._root / "cache")}
        words = [sys.executable, "-c", CHILD, str(folder), self._budget, str(self._jump)]
        with open(folder / "log", "ab") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def kill_after(self, process: subprocess.Popen[bytes], calls: int) -> None:
        """Kill a process once the server has answered as many more calls."""
        wanted = self._server.calls + calls
        while self._server.calls < wanted and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()

    def end(self, name: str) -> views.RunStatus:
        """The state of a run, brought to its end."""
        assert self.begin(name).wait(1200) == 0, (self._root / name / "log").read_text()
        return views.run_status(self._root / name / "run")


def counted(*runs: views.RunStatus) -> Usage:
    """Calls of these runs, with those that were lost."""
    calls = sum(now.usage.calls + now.usage.possibly_lost.calls for now in runs)
    return Usage(calls=calls, dollars=sum(now.usage.dollars for now in runs))


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_kill_cut_off_is_given_back(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    with BillingServer(reply=40, random_seed=seed) as server:
        runs = Runs(tmp_path, server, "evaluations=100,dollars=0.03")
        for _ in range(3):
            runs.kill_after(runs.begin("a"), rng.randrange(8, 25))
        now = runs.end("a")
    # the most that the lost calls can have cost would have ended the run
    assert now.usage.dollars + now.usage.possibly_lost.dollars > 0.03 > server.dollars
    assert (now.evaluations, now.reason) == (100, "evaluations")
    assert now.usage.calls <= server.calls <= counted(now).calls


@pytest.mark.parametrize("seed", [1, 2])
def test_two_runs_share_replies_while_they_are_killed(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    with BillingServer(reply=40, random_seed=seed) as server:
        runs = Runs(tmp_path, server, "evaluations=60,calls=200")
        running = {name: runs.begin(name) for name in ("a", "b")}
        for _ in range(4):
            name = rng.choice(["a", "b"])
            runs.kill_after(running[name], rng.randrange(2, 15))
            running[name] = runs.begin(name)
        for process in running.values():
            process.kill()
            process.wait()
        ends = [runs.end(name) for name in ("a", "b")]
    assert [(now.state, now.evaluations) for now in ends] == [("finished", 60)] * 2
    assert sum(now.usage.calls for now in ends) <= server.calls <= counted(*ends).calls
    assert sum(now.usage.cache_hits for now in ends) > 0
    kept = list((tmp_path / "cache").rglob("*.json"))
    assert len(kept) > 20
    for path in kept:
        msgspec.json.decode(path.read_bytes(), type=Completion)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_by_an_hour_changes_nothing(jump: float, tmp_path: Path) -> None:
    began = time.monotonic()
    with BillingServer(reply=40) as server:
        runs = Runs(tmp_path, server, "evaluations=150,seconds=1000", jump)
        runs.kill_after(runs.begin("a"), 60)
        half = views.run_status(tmp_path / "a" / "run")
        now = runs.end("a")
    assert (now.state, now.reason, now.evaluations) == ("finished", "evaluations", 150)
    assert now.usage.calls <= server.calls <= counted(now).calls
    took = time.monotonic() - began
    assert 0 < half.elapsed_seconds <= now.elapsed_seconds < took
