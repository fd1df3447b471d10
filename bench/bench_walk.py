"""The first hour of four users, as real commands: their time and their outcome, offline.

    python bench/bench_walk.py                    # all four; exit 1 if an outcome or its time is not as promised
    python bench/bench_walk.py agent --show       # one, with everything the commands printed
    python bench/bench_walk.py --peers DIR        # beside venvs DIR/openevolve and DIR/gepa, made by pip install

heuristic   an evaluator and a program of one's own, a model: check, run, best
prompt      a prompt and 120 labelled cases in a CSV file: prompt
researcher  two strategies, six random seeds: compare, analyze
agent       the page docs/agents.md, word for word: a folder with an evaluator, the offline agent, no key

The model is a script on the loopback, which answers at once: programs with random weights, the
prompts of tests/extensions/prompt/world.py. Peers get the same evaluator, cases and model. Figures
depend on the machine; the load average shows whether it had the machine to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.extensions.prompt.world import (  # noqa: E402
    LINES,
    PROMPT,
    WORDS,
    answer_ticket,
    scripted,
    tickets,
    write_tickets,
)
from tests.servers.model_script import Asked, Turn  # noqa: E402
from tests.servers.model_server import ModelServer  # noqa: E402

PAGE = ROOT / "docs" / "agents.md"
LIMITS = {"heuristic": 120.0, "prompt": 180.0, "researcher": 300.0, "agent": 120.0}
SHOWN = False
PROGRAM = """\
# EVOLVE-BLOCK-START
def priority(size, gap):
    return 1.0 * gap + 0.0 * size
# EVOLVE-BLOCK-END
"""
EVALUATOR = """\
import importlib.util
import random


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    rng, bins = random.Random(5), []
    for _ in range(400):
        size = rng.randint(5, 60)
        fitting = [b for b, gap in enumerate(bins) if gap >= size]
        if fitting:
            bins[max(fitting, key=lambda b: program.priority(size, bins[b]))] -= size
        else:
            bins.append(100 - size)
    return {"combined_score": -float(len(bins))}
"""
MODELS = """\
[providers.mine]
base_url = "{url}/v1"
[models.small]
provider = "mine"
max_tokens = 400
price = {{ input = 0.2, output = 0.8 }}
"""
CONFIG = """\
llm: {{api_base: "{url}/v1", api_key: none, models: [{{name: small, weight: 1.0}}]}}
diff_based_evolution: false
"""
GEPA = """\
import gepa, json, re

world = json.load(open("world.json"))
cases = [
    {"input": row["ticket"], "additional_context": {}, "answer": row["team"].capitalize()} for row in world["rows"]
]
calls = {"proposals": 0, "answers": 0}

def task(messages):
    calls["answers"] += 1
    for team, words in world["words"].items():
        if world["lines"][team] in messages[0]["content"] and any(word in messages[-1]["content"] for word in words):
            return team.capitalize() + "."
    return "I am not sure."

def write(prompt):
    calls["proposals"] += 1
    now = re.findall(r"```(?:\\w*)\\n(.*?)\\n```", prompt, re.S)[0]
    lacking = [line for line in world["lines"].values() if line not in now]
    return "```\\n" + "\\n".join([now, *lacking[:1]]) + "\\n```"

found = gepa.optimize({"system_prompt": world["prompt"]}, trainset=cases[:60], valset=cases[60:90], task_lm=task,
                      reflection_lm=write, max_metric_calls=200)
print(json.dumps({**calls, "prompt": found.best_candidate["system_prompt"]}))
"""


@dataclass
class Walk:
    """A user's walk: commands so far, seconds, what came of it, and whether that is as promised."""

    who: str
    tool: str = "culmen"
    commands: int = 0
    seconds: float = 0.0
    outcome: str = ""
    good: bool = False
    folder: Path = field(default_factory=Path)

    def do(self, *words: str | Path) -> str:
        """The output of a command, its time counted; raises if it fails."""
        began = time.perf_counter()
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "OPENAI_API_KEY": "none",
        }
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        self.seconds += time.perf_counter() - began
        self.commands += 1
        if SHOWN or done.returncode:
            print(f"$ {shlex.join(map(str, words))}\n{done.stderr}{done.stdout}", file=sys.stderr)
        done.check_returncode()
        return done.stdout

    def culmen(self, *words: str) -> str:
        """The same for a command of culmen."""
        return self.do(sys.executable, "-m", "culmen.cli.main", *words)


def write_weights(asked: Asked) -> Turn:
    """A program with random weights, whatever was asked."""
    rng = Random(f"{len(asked.text)}/{asked.text[-2000:]}")
    gap, size = (f"{rng.uniform(-1, 1):.3f}" for _ in range(2))
    program = PROGRAM.replace("1.0 * gap", f"{gap} * gap").replace("0.0 * size", f"{size} * size")
    return Turn(f"Other weights.\n```python\n{program}```")


@contextlib.contextmanager
def own_heuristic(folder: Path) -> Iterator[str]:
    """The user's files and a model; its address."""
    (folder / "initial_program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(EVALUATOR)
    with ModelServer(write_weights) as server:
        (folder / "models.toml").write_text(MODELS.format(url=server.url))
        (folder / "config.yaml").write_text(CONFIG.format(url=server.url))
        yield server.url


def heuristic(walk: Walk, peers: Path | None) -> list[Walk]:
    """An evaluator of one's own in OpenEvolve's form, 40 programs of a model."""
    with own_heuristic(walk.folder):
        walk.culmen("check", "evaluator.py")
        model = ("--models", "models.toml", "--model", "small")
        done = json.loads(
            walk.culmen(
                "run",
                "evaluator.py",
                *model,
                "--budget",
                "evaluations=40",
                "--run-dir",
                "run",
                "--json",
            )
        )
        program = walk.culmen("best", "run")
    bins, calls = -done["best"]["score"], done["usage"]["calls"]
    walk.outcome = f"{bins:.0f} bins (start {first_bins():.0f}) with {calls} calls"
    walk.good = bins < first_bins() and "def priority" in program
    made = [walk]
    if peers and (peers / "openevolve").exists():
        other = Walk("heuristic", "openevolve", folder=walk.folder)
        with own_heuristic(walk.folder):
            program_and_rest = (
                "initial_program.py",
                "evaluator.py",
                "--config",
                "config.yaml",
                "--iterations",
                "40",
            )
            other.do(peers / "openevolve/bin/openevolve-run", *program_and_rest)
        info = json.loads(
            (walk.folder / "openevolve_output/best/best_program_info.json").read_text()
        )
        other.outcome = f"{-info['metrics']['combined_score']:.0f} bins (start {first_bins():.0f}) with 40 calls"
        made.append(other)
    return made


def first_bins() -> float:
    """Bins of the initial program."""
    space: dict[str, object] = {}
    exec(EVALUATOR, space)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROGRAM)
        file.flush()
        return -space["evaluate"](file.name)["combined_score"]  # type: ignore[operator]


def accuracy(prompt: str) -> float:
    """Share of the last 30 tickets that the prompt answers."""
    last = tickets(120)[90:]
    return sum(
        answer_ticket(prompt, row["ticket"]).strip(".").lower() == row["team"] for row in last
    ) / len(last)


def prompt(walk: Walk, peers: Path | None) -> list[Walk]:
    """120 labelled tickets, 200 evaluations."""
    write_tickets(walk.folder, 120)
    with ModelServer(scripted) as server:
        (walk.folder / "models.toml").write_text(MODELS.format(url=server.url))
        model = ("--models", "models.toml", "--model", "small", "--budget", "evaluations=200")
        asked = (
            "prompt",
            PROMPT,
            "tickets.csv",
            "--label",
            "team",
            *model,
            "--run-dir",
            "run",
            "--json",
        )
        done = json.loads(walk.culmen(*asked))
        text = walk.culmen("best", "run")
    report = done["prompt"]
    walk.outcome = f"{report['before']['score']:.2f} -> {accuracy(text):.2f}; {report['spent']}"
    walk.good = accuracy(text) > accuracy(PROMPT) and report["split"] == "test"
    made = [walk]
    if peers and (peers / "gepa").exists():
        other = Walk("prompt", "gepa", folder=walk.folder)
        (walk.folder / "own.py").write_text(GEPA)
        world = {"rows": tickets(120), "lines": LINES, "words": WORDS, "prompt": PROMPT}
        (walk.folder / "world.json").write_text(json.dumps(world))
        found = json.loads(other.do(peers / "gepa/bin/python", "own.py").splitlines()[-1])
        spent = f"{found['proposals']} proposals, {found['answers']} answers"
        other.outcome = f"{accuracy(PROMPT):.2f} -> {accuracy(found['prompt']):.2f}; {spent} (a script of one's own)"
        made.append(other)
    return made


def researcher(walk: Walk, peers: Path | None) -> list[Walk]:
    """Two strategies on a built-in task, with a table for a paper."""
    made = (
        "--tasks",
        "function_minimization",
        "--strategies",
        "best_of_n,map_elites",
        "--seeds",
        "6",
    )
    table = walk.culmen("compare", *made, "--budget", "evaluations=40", "--out", "runs", "--latex")
    runs = sorted(str(path.parent) for path in walk.folder.glob("runs/**/run.db"))
    runs = runs or sorted(
        str(path) for path in walk.folder.glob("runs/function_minimization/*/seed-*")
    )
    walk.culmen("compare", "analyze", *runs, "--out", "analysis")
    files = list((walk.folder / "analysis").rglob("*.csv"))
    said = next((line for line in table.splitlines() if "tell" in line or "is better" in line), "")
    walk.outcome = (
        f"a LaTeX table of {len(runs)} runs, {len(files)} CSV files; {said.strip('% ')[:60]}"
    )
    walk.good = "\\toprule" in table and len(runs) == 12 and bool(files)
    return [walk]


def agent(walk: Walk, peers: Path | None) -> list[Walk]:
    """The newcomer's walk of docs/agents.md."""
    page = PAGE.read_text(encoding="utf-8")
    evaluator = re.search(r"<!-- file: evaluator.py -->\n```python\n(.*?)```", page, re.DOTALL)
    command = re.search(r"<!-- run -->\n```sh\n(culmen run.*?)```", page, re.DOTALL)
    assert evaluator is not None and command is not None, "the page has changed"
    (walk.folder / "evaluator.py").write_text(evaluator[1], encoding="utf-8")
    walk.culmen(*shlex.split(command[1].replace("\\\n", " "))[1:])
    history = (walk.folder / "runs/walk/view/past_experiments.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in history.splitlines()]
    certified = [row for row in rows if row["certified"] is not None]
    start = max(row["certified"] for row in certified if row["agent"] == -1)
    best = max(row["certified"] for row in certified)
    walk.outcome = f"certified {start:.6g} -> {best:.6g}, {len(rows)} experiments"
    walk.good = best > start
    return [walk]


USERS: dict[str, Callable[[Walk, Path | None], list[Walk]]] = {
    "heuristic": heuristic,
    "prompt": prompt,
    "researcher": researcher,
    "agent": agent,
}


def main() -> None:
    """Walk, and print what came of it."""
    global SHOWN
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("who", nargs="*", choices=[[], *USERS], default=[])
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    SHOWN, failed = options.show, False
    print("| user | with | commands | seconds | outcome | as promised |\n|---|---|---|---|---|---|")
    for who in options.who or USERS:
        with tempfile.TemporaryDirectory() as folder:
            for walk in USERS[who](
                Walk(who, folder=Path(folder)), options.peers and options.peers.resolve()
            ):
                kept = walk.good and walk.seconds <= LIMITS[who]
                failed |= walk.tool == "culmen" and not kept
                told = ("yes" if kept else "NO") if walk.tool == "culmen" else "-"
                cells = [
                    who,
                    walk.tool,
                    str(walk.commands),
                    f"{walk.seconds:.0f}",
                    walk.outcome,
                    told,
                ]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
