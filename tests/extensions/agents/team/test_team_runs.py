"""Whole runs with real processes: a bare evaluator, agents of every kind, kills and resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import CulmenError
from culmen.store import views
from tests.extensions.agents.sandbox.grounds import unconfined
from tests.servers.openai_server import OpenAIServer

pytestmark = pytest.mark.slow
PATIENCE = 240.0  # seconds; only there to fail
SANDBOX = ("--set", "sandbox=none") if unconfined() else ()
OWN = (", sandbox=none",) if unconfined() else ()  # the same in the settings of an arm

EVALUATOR = '''"""Four numbers that are to be as near as possible to 1, 2, 3 and 4."""

from fractions import Fraction

N = 4
SEED = "def run():\\n    return [0.5, 0.5, 0.5, 0.5]\\n"


def score(output):
    return float(off(output))


def certify(output):
    return {"score": float(off(output)), "feasible": True}


def off(output):
    if len(output) != N:
        raise ValueError(f"{N} numbers are needed")
    return -sum(abs(Fraction(x) - n) for n, x in enumerate(output, 1))
'''
PROGRAM = """
import json, os, subprocess, sys

me = open(".agent").read().strip()
def client(*words):
    done = subprocess.run([sys.executable, "run_experiments.py", *words], capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
(best,) = client("--best")
tried = []
for n in range(3):
    path = f"candidates/{me}/{n}.py"
    open(path, "w").write(f"def run():\\n    return [1.0, 2.0, 3.0, {4 - n / 4 - 0.5}]\\n")
    tried.append(path)
rows = client(*tried, "--note", "by hand", "--parents", best["candidate"])
open("reflections.md", "a").write(f"{me}: {max(row['score'] for row in rows)}\\n")
open("evaluator.py", "w").write("def score(output):\\n    return 1e9\\n")
open("past_experiments.jsonl.new", "w").write("forged")
client("--report", "the numbers are given away")
client("--finish", "three tries")
"""


class Place:
    """A folder with nothing but evaluator.py, and the command as a real process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "evaluator.py").write_text(EVALUATOR)

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "COLUMNS": "100", "XDG_CACHE_HOME": str(self.root / "cache")}
        command = [sys.executable, "-m", "culmen.cli.main", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.root, env=env, **pipes)

    def culmen(self, *words: str, code: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, out + err
        return out, err

    def search(self, run: str, *words: str) -> dict[str, Any]:
        given = ("evaluator.py", "--goal", "be near 1, 2, 3, 4", *SANDBOX, *words)
        return json.loads(self.culmen("run", *given, "--run-dir", run, "--json")[0])

    def git(self, run: str, *words: str) -> str:
        folder = self.root / run / "control" / "repo.git"
        done = subprocess.run(
            ["git", "--git-dir", folder, *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def rows(self, run: str) -> list[dict[str, Any]]:
        lines = (self.root / run / "view" / "past_experiments.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_only_an_evaluator_and_the_offline_agent_give_a_certified_improvement(place: Place) -> None:
    found = place.search(
        "a", "--agent", "offline", "--set", "agents=3", "--budget", "evaluations=90"
    )
    rows = place.rows("a")
    seeds = [row for row in rows if row["agent"] == -1]
    start = max(row["certified"] for row in seeds if row["certified"] is not None)
    assert found["best"]["certified"] > start and found["best"]["trust"] == "certified"
    assert found["strategy"] == "cato" and found["reason"] in ("evaluations", "agents", "threshold")
    assert found["agents"]["of"] == 3 and found["agents"]["experiments"] == len(rows)
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
    log = place.git("a", "log", "--first-parent", "--format=%s%n%b", "trunk")
    assert (
        "Task: " in log
        and "Experiments: " in log
        and "Stop-Reason: " in log
        and "Journal-Head: " in log
    )
    told = place.git("a", "show", "trunk:reflections.md")
    assert "## Agent a00 (offline)" in told and "Breadth at the end" in told
    mine = [row for row in rows if row["agent"] == 0]
    assert mine and place.git("a", "show", f"trunk:{mine[0]['path']}")
    assert json.loads(place.culmen("runs", "replay", "a", "--json")[0])["matches"]


def test_a_program_is_hosted_and_what_it_may_not_leave_is_dropped(place: Place) -> None:
    (place.root / "agent.py").write_text(PROGRAM)
    agent = f"cmd: {sys.executable} {place.root / 'agent.py'}"
    found = place.search("a", "--agent", agent, "--set", "agents=2", "--budget", "evaluations=60")
    assert found["reason"] == "agents" and found["best"]["certified"] == -0.5
    rows = place.rows("a")
    mine = sorted(
        (row["path"], row["score"]) for row in rows if row["agent"] == 0
    )  # they end in any order
    assert [score for _, score in mine] == [-0.5, -0.75, -1.0]
    assert all(row["parents"] and row["note"] == "by hand" for row in rows if row["agent"] == 1)
    files = place.git("a", "ls-tree", "-r", "--name-only", "trunk").split()
    assert {"TASK.md", "reflections.md", "candidates/a00/0.py", "candidates/a01/2.py"} <= set(files)
    assert "evaluator.py" not in files and "past_experiments.jsonl.new" not in files
    log = place.culmen("show", "a", "--log", "--all")[0]
    assert "asks for 3 experiments" in log and "reports: the numbers are given away" in log
    assert "dropped evaluator.py" in log and "a01 of 2: finished; three tries; 3 experiments" in log
    status = place.culmen("status", "a")[0]
    assert f"2 of 2, 2 had their turn, {len(rows)} experiments" in status


def test_agents_are_an_arm_of_a_portfolio_and_a_killed_run_goes_on(place: Place) -> None:
    """The agents' settings are the arm's, here their sandbox."""
    arms = (
        "--strategy",
        "portfolio",
        "--set",
        f"arms=map_elites, cato(agent=offline, agents=20{''.join(OWN)})",
    )
    whole = place.start(
        "run", "evaluator.py", *arms, "--budget", "evaluations=120", "--run-dir", "a", "--json"
    )
    while done_so_far(place.root / "a") < 100 and whole.poll() is None:
        time.sleep(0.05)
    whole.kill()
    whole.communicate()
    found = json.loads(place.culmen("resume", "a", "--json")[0])
    assert found["strategy"] == "portfolio" and found["evaluations"] <= 120
    # an experiment that ended with the run's search may have no row for the agents any more
    assert found["agents"]["experiments"] >= len(place.rows("a")) > 2
    turns = [
        line
        for line in place.culmen("show", "a", "--log", "--all")[0].splitlines()
        if "turn" in line
    ]
    assert any("map_elites" in line for line in turns) and any("cato" in line for line in turns)
    assert json.loads(place.culmen("runs", "replay", "a", "--json")[0])["matches"]


def test_what_agents_of_an_arm_spend_is_said_not_to_be_counted(place: Place) -> None:
    arms = (
        "--strategy",
        "portfolio",
        "--set",
        f"arms=best_of_n, cato(agent=cmd: true, agents=2{''.join(OWN)})",
    )
    told = place.culmen(
        "run", "evaluator.py", *arms, "--budget", "evaluations=12", "--run-dir", "a"
    )
    assert "what the agents spend is not counted" in "".join(told)
    alone = place.culmen(
        "run",
        "evaluator.py",
        "--strategy",
        "best_of_n",
        "--budget",
        "evaluations=12",
        "--run-dir",
        "b",
    )
    assert "not counted" not in "".join(alone)


def climber(body: dict[str, Any]) -> str:
    """A model that writes a better program, evaluates it, reflects, and finishes.

    It evaluates by the tool and by the client.
    """
    said = [message["content"] for message in body["messages"]]
    agent = next(word for word in said[1].split() if word.startswith("`a0")).strip("`.,")
    step = sum(message["role"] == "assistant" for message in body["messages"])
    path = f"candidates/{agent}/one.py"
    program = f"def run():\n    return [1.0, 2.0, 3.0, {3.5 + 0.25 * int(agent[1:])}]\n"
    run = f"python3 run_experiments.py {path} --note again"
    steps = [
        [{"tool": "write", "path": path, "text": program}, {"tool": "list", "path": "candidates"}],
        [{"tool": "evaluate", "files": [path], "note": "a step"}],
        [{"tool": "command", "command": run}],
        [
            {"tool": "append", "path": "reflections.md", "text": f"{agent} was here\n"},
            {"tool": "finish", "word": "enough"},
        ],
    ]
    return "\n".join(f"```json\n{json.dumps(action)}\n```" for action in steps[min(step, 3)])


@pytest.fixture
def model(place: Place) -> Iterator[OpenAIServer]:
    """A model over HTTP that `models.toml` calls small."""
    with OpenAIServer(climber) as server:
        models = f'[providers.here]\nbase_url = "{server.url}"\n[models.small]\nprovider = "here"\nmodel = "m"\n'
        (place.root / "models.toml").write_text(models + "price = {input = 1.0, output = 2.0}\n")
        yield server


def test_the_built_in_agent_works_on_a_model_over_http(place: Place, model: OpenAIServer) -> None:
    words = (
        "--strategy",
        "cato",
        "--model",
        "small",
        "--models",
        "models.toml",
        "--set",
        "agents=2",
    )
    found = place.search("a", *words, "--budget", "evaluations=60,dollars=1")
    assert found["best"]["certified"] == -0.25 and found["reason"] == "agents"
    assert found["usage"]["calls"] == len(model.requests) == 8 and found["usage"]["dollars"] > 0
    rows = [row for row in place.rows("a") if row["agent"] >= 0]
    assert [(row["agent"], row["score"], row["note"]) for row in rows] == [
        (0, -0.5, "a step"),
        (0, -0.5, "again"),
        (1, -0.25, "a step"),
        (1, -0.25, "again"),
    ]
    assert "a00 was here\na01 was here" in place.git("a", "show", "trunk:reflections.md")


def finished(run: Path) -> dict[int, str]:
    """Finished effects by key."""
    events = (event.entry for event in views.log_events(run, limit=1_000_000, kinds=("done",)))
    found: dict[int, str] = {}
    for entry in events:
        assert entry.key not in found, f"effect {entry.key} finished twice"
        found[entry.key] = entry.mark
    return found


def done_so_far(run: Path) -> int:
    """The number of finished effects; none while the journal is still being made."""
    try:
        return len(finished(run))
    except CulmenError:
        return 0


@pytest.mark.parametrize("agent", ["offline", "program", "builtin"])
def test_killed_again_and_again_a_run_goes_on(
    place: Place, model: OpenAIServer, agent: str
) -> None:
    (place.root / "agent.py").write_text(PROGRAM)
    kind = f"cmd: {sys.executable} {place.root / 'agent.py'}" if agent == "program" else agent
    run, before = place.root / "a", dict[int, str]()
    words = (
        "evaluator.py",
        "--goal",
        "g",
        *SANDBOX,
        "--agent",
        kind,
        "--set",
        "agents=4",
        "--run-dir",
        "a",
    )
    words += ("--model", "small", "--models", "models.toml") if agent == "builtin" else ()
    process = place.start("run", *words, "--budget", "evaluations=70", "--quiet")
    for wanted in (3, 12, 25):
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            if done_so_far(run) >= len(before) + wanted:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = finished(run)
        assert {key: mark for key, mark in after.items() if key in before} == before
        before = after
        process = place.start("resume", "a", "--quiet")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    now = views.run_status(run)
    assert now.state == "finished" and now.agents is not None and now.best is not None
    assert {key: mark for key, mark in finished(run).items() if key in before} == before
    rows = place.rows("a")
    assert len({row["ticket"] for row in rows}) == len(rows) == now.agents.experiments
    commits = place.git("a", "for-each-ref", "--format=%(refname)", "refs/agents").split()
    assert len(commits) == len(set(commits)) >= 1
    assert json.loads(place.culmen("runs", "replay", "a", "--json")[0])["matches"]


def test_candidates_flow_both_ways(place: Place) -> None:
    place.search("a", "--agent", "offline", "--set", "agents=1", "--budget", "evaluations=40")
    place.culmen("runs", "pool", "build", "a", "--out", "a.json", "--best", "3")
    words = (
        "evaluator.py",
        "--goal",
        "be near 1, 2, 3, 4",
        "--strategy",
        "polca",
        "--pool",
        "a.json",
    )
    found = place.culmen("run", *words, "--budget", "evaluations=30", "--run-dir", "b", "--json")[0]
    assert json.loads(found)["best"] is not None
    place.culmen("runs", "pool", "build", "b", "--out", "b.json", "--best", "4")
    place.search(
        "c",
        "--agent",
        "offline",
        "--set",
        "agents=1",
        "--pool",
        "b.json",
        "--budget",
        "evaluations=40",
    )
    seeds = [row for row in place.rows("c") if row["agent"] == -1]
    best = {row.id for row in views.candidate_rows(place.root / "b", limit=4, failed=False)}
    assert best <= {row["candidate"] for row in seeds}
    assert all(
        (place.root / "c" / "view" / "programs" / name / "program.py").is_file() for name in best
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agent", "builtin"), "needs a model"),
        (("--agent", "nobody"), "there is no agent 'nobody'"),
        (("--agent", "cmd: no-such-program-here"), "not installed"),
        (("--agent", "offline", "--set", "agent=claude"), "two agents are named"),
        (("--agent", "offline", "--strategy", "polca"), "cato(agent=offline)"),
        (("--agent", "offline", "--direction", "up"), "unknown direction 'up'"),
        (("--agent", "offline", "--seed-program", "none.py"), "no file"),
    ],
)
def test_mistakes_are_said_before_there_is_a_run(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    _, err = place.culmen("run", "evaluator.py", *words, "--run-dir", "a", code=2)
    assert said in err and not (place.root / "a").exists()


def test_an_evaluator_that_tells_nothing_needs_a_first_program(place: Place) -> None:
    (place.root / "evaluator.py").write_text(
        "from helper import judge\n\ndef score(output):\n    return judge(output)\n"
    )
    (place.root / "helper.py").write_text("def judge(x):\n    return -x * x\n")
    _, err = place.culmen("run", "evaluator.py", "--goal", "g", "--agent", "offline", code=2)
    assert "that defines run with --seed-program FILE" in err
    (place.root / "first.py").write_text("def guess():\n    return 3.0\n")
    found = place.search(
        "a", "--agent", "offline", "--seed-program", "first.py", "--budget", "evaluations=20"
    )
    assert found["best"]["score"] > -9.0
