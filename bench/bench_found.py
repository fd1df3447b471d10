"""Finds and claims of culmen, OpenEvolve and GEPA with the same model and evaluator.

The budget of evaluations is the same, too.

    python bench/bench_peers.py --install --folder VENVS          # a venv for each tool; needs a package index
    python bench/bench_found.py --folder VENVS --out found.jsonl --seeds 30       # goes on where it was cut off

The problem is one with a known truth: a program has a hidden quality, the evaluator reports it with noise. The model
is a server on this machine that changes the program a prompt shows as the current one, blindly: the child is a step of
0.05 better with probability 0.15, as good with 0.21, else worse by 0.06 in the mean (POLCA's Assumption 1). So a tool
gains by the programs that it lets the model change, and by its use of the scores. All settings are the tools'
defaults: OpenEvolve's command line, GEPA's `optimize_anything`, `culmen.optimize`. Printed are the true quality of the
program that a tool reports, its claim less that truth, and how many evaluations and model calls it made.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.truth.worlds import START, Genome, smooth_shape

PROGRAM = "# EVOLVE-BLOCK-START\nQUALITY = {quality!r}\nSERIAL = {serial}\n# EVOLVE-BLOCK-END\n"
WORLDS = {"noise of 2 steps": 0.1, "no noise": 0.0}
MARKS = ("# Current candidate", "# Current Program\n", "## Current Component")
EVALUATOR = """
import os, random, re
def evaluate(program_path):
    text = open(program_path).read()
    with open(os.environ["BENCH_LOG"], "a") as log:
        log.write("x")
    return {"combined_score": float(re.search(r"^QUALITY = (.*)$", text, re.M)[1]) + random.gauss(0, NOISE)}
"""
CULMEN = """
import json, os, random, sys, culmen
from pathlib import Path
space = {}
exec(open("evaluator.py").read(), space)
def score(text):
    own = "candidate.py." + str(os.getpid())
    Path(own).write_text(text)
    return space["evaluate"](own)["combined_score"]
study = culmen.optimize(open("program.py").read(), score, model="scripted", models_file="models.toml", run_dir="run",
                        random_seed=int(sys.argv[2]), budget=int(sys.argv[1]), progress=False)
json.dump({"text": study.best.text, "claim": study.best.score}, open("found.json", "w"))
"""
GEPA = """
import json, os, random, sys, urllib.request
from pathlib import Path
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything
space = {}
exec(open("evaluator.py").read(), space)
def score(text):
    Path("candidate.py").write_text(text)
    return space["evaluate"]("candidate.py")["combined_score"]
def model(prompt):
    text = prompt if isinstance(prompt, str) else "\\n".join(message["content"] for message in prompt)
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": text}]}).encode()
    asked = urllib.request.Request(sys.argv[3] + "/chat/completions", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
config = GEPAConfig(engine=EngineConfig(max_metric_calls=int(sys.argv[1]), seed=int(sys.argv[2]), parallel=False),
                    reflection=ReflectionConfig(reflection_lm=model))
found = optimize_anything(open("program.py").read(), evaluator=score, objective="Improve the program.", config=config)
best = found.best_candidate
json.dump({"text": best if isinstance(best, str) else next(iter(best.values())),
           "claim": found.val_aggregate_scores[found.best_idx]}, open("found.json", "w"))
"""
CONFIG = """
llm: {{api_base: "{url}", api_key: none, models: [{{name: scripted, weight: 1.0}}]}}
diff_based_evolution: false
random_seed: {seed}
"""
MODELS = """
[providers.scripted]
base_url = "{url}"

[models.scripted]
provider = "scripted"
"""


class Model:
    """Blind changes of the current program."""

    def __init__(self, seed: str) -> None:
        self._rng, self.calls, self.unread = Random(seed), 0, ""

    def __call__(self, body: dict[str, Any]) -> str:
        self.calls += 1
        prompt = "\n\n".join(message["content"] for message in body["messages"])
        if "<summary>" in prompt:  # culmen's summariser, where progress stalls
            return "<summary>Nothing to add.</summary>"
        shown = prompt[max(prompt.rfind(mark) for mark in MARKS) :]
        found = re.search(r"^QUALITY = (.*)$", shown, re.M)
        if not found:
            self.unread = prompt
            return "No program is shown."
        child = smooth_shape(Genome(float(found[1])), self._rng, 0)
        return f"```python\n{PROGRAM.format(quality=child.quality, serial=self.calls)}```\n"


def ran(tool: str, venvs: Path, world: str, seed: int, evaluations: int) -> dict[str, Any]:
    """One search of one tool."""
    from tests.servers.openai_server import OpenAIServer

    model = Model(f"{tool} {world} {seed}")
    with tempfile.TemporaryDirectory() as name, OpenAIServer(model) as server:
        place, python = Path(name), venvs / tool / "bin/python"
        (place / "program.py").write_text(PROGRAM.format(quality=START, serial=0))
        (place / "evaluator.py").write_text(EVALUATOR.replace("NOISE", repr(WORLDS[world])))
        (place / "config.yaml").write_text(CONFIG.format(url=server.url, seed=seed))
        (place / "models.toml").write_text(MODELS.format(url=server.url))
        (place / "search.py").write_text(CULMEN if tool == "culmen" else GEPA)
        words = [str(python), "search.py", str(evaluations), str(seed), server.url]
        if tool == "openevolve":
            words = [
                str(python.with_name("openevolve-run")),
                "program.py",
                "evaluator.py",
                "--config",
                "config.yaml",
            ]
            words += ["--iterations", str(evaluations), "--output", "out"]
        own = {
            "BENCH_LOG": str(place / "log"),
            "OPENAI_API_KEY": "none",
            "XDG_CACHE_HOME": str(place / "cache"),
        }
        done = subprocess.run(
            words, cwd=place, env={**os.environ, **own}, capture_output=True, text=True, check=False
        )
        if model.unread:
            sys.exit(f"no current program was found in a prompt of {tool}:\n{model.unread}")
        if done.returncode:
            sys.exit(
                f"{tool} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        found = _found(tool, place)
        truth = float(re.search(r"^QUALITY = (.*)$", found["text"], re.M)[1])  # type: ignore[index]
        made = len((place / "log").read_text())
        told = {"truth": truth, "claim": found["claim"], "evaluations": made, "calls": model.calls}
        return {"tool": tool, "world": world, "seed": seed, **told}


def _found(tool: str, place: Path) -> dict[str, Any]:
    if tool != "openevolve":
        return json.loads((place / "found.json").read_text())
    best = place / "out/best"
    told = json.loads((best / "best_program_info.json").read_text())
    return {
        "text": (best / "best_program.py").read_text(),
        "claim": told["metrics"]["combined_score"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Means with 95 % intervals."""
    lines = [
        "| world | tool | true quality of what is reported | claim − truth | evaluations | model calls | seeds |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for world in WORLDS:
        for tool in ("culmen", "openevolve", "gepa"):
            own = [row for row in rows if (row["world"], row["tool"]) == (world, tool)]
            if len(own) > 1:
                gap = _mean([row["claim"] - row["truth"] for row in own], "+")
                spent = [
                    f"{fmean(row[what] for row in own):.0f}" for what in ("evaluations", "calls")
                ]
                cells = [
                    world,
                    tool,
                    _mean([row["truth"] for row in own]),
                    gap,
                    *spent,
                    str(len(own)),
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: list[float], sign: str = "") -> str:
    return f"{fmean(values):{sign}.3f} ± {1.96 * stdev(values) / math.sqrt(len(values)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="venvs, one for each tool")
    parser.add_argument("--out", type=Path, required=True, help="file of results")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--tools", default="culmen,openevolve,gepa")
    given = parser.parse_args()
    rows = (
        [json.loads(line) for line in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    known = {(row["tool"], row["world"], row["seed"]) for row in rows}
    for seed in range(given.seeds):
        for world in WORLDS:
            for tool in given.tools.split(","):
                if (tool, world, seed) not in known:
                    rows.append(ran(tool, given.folder.resolve(), world, seed, given.evaluations))
                    with given.out.open("a") as out:
                        out.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
