"""culmen beside OpenEvolve and GEPA: an installation's size, costs of evaluations and kills.

    python bench/bench_peers.py --install            # needs a package index
    python bench/bench_peers.py --run                # the same venvs; a model server on this machine

Each tool has a venv of its own in --folder. All improve the same small program with the same model,
a server that answers at once, and the same evaluator, which takes 50 ms. CPU is that of the tool
and all its children, from the difference of two runs, so that starting up does not count. The kill
is SIGKILL to all its processes after half the evaluations; then the tool goes on as its
documentation describes, all its settings at their defaults. GEPA's model and evaluator are
functions in its process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {"culmen": str(ROOT), "openevolve": "openevolve", "gepa": "gepa"}
IMPORTS = {
    "culmen": "import culmen; culmen.optimize",
    "openevolve": "import openevolve",
    "gepa": "import gepa",
}
PROGRAM = "# EVOLVE-BLOCK-START\nVALUE = 0.0\n# EVOLVE-BLOCK-END\n"
EVALUATOR = """
import os, random, re, time
def evaluate(program_path):
    text = open(program_path).read()
    with open(os.environ["BENCH_LOG"] + ".evaluations", "a") as log:
        log.write("x")
    time.sleep(0.05)
    return {"combined_score": -abs(1.0 - float(re.search(r"^VALUE = (.*)$", text, re.M)[1]))}
"""
CULMEN = """
import os, sys, culmen
space = {}
exec(open("evaluator.py").read(), space)
def score(text):
    open("candidate.py." + str(os.getpid()), "w").write(text)
    return space["evaluate"]("candidate.py." + str(os.getpid()))
if os.path.exists("run"):
    culmen.Study.resume("run", evaluator=score).run()
else:
    culmen.optimize(open("program.py").read(), score, model="scripted", models_file="models.toml", run_dir="run",
                    strategy="map_elites", workers=4, budget=culmen.Budget(evaluations=int(sys.argv[1])))
"""
GEPA = """
import os, random, sys, gepa
from gepa.core.adapter import EvaluationBatch
space = {}
exec(open("evaluator.py").read(), space)
class Adapter:
    propose_new_texts = None
    def evaluate(self, batch, candidate, capture_traces=False):
        scores = []
        for _ in batch:
            open("candidate.py", "w").write(candidate["program"])
            scores.append(space["evaluate"]("candidate.py")["combined_score"])
        return EvaluationBatch(outputs=scores, scores=scores, trajectories=scores if capture_traces else None)
    def make_reflective_dataset(self, candidate, batch, components):
        return {"program": [{"score": str(score)} for score in batch.scores]}
def model(prompt):
    with open(os.environ["BENCH_LOG"] + ".calls", "a") as log:
        log.write("x")
    return "```\\nVALUE = %r\\n```" % random.gauss(0.5, 0.3)
gepa.optimize({"program": open("program.py").read()}, trainset=[0], valset=[0], adapter=Adapter(), reflection_lm=model,
              max_metric_calls=int(sys.argv[1]), run_dir="run", reflection_minibatch_size=1)
"""
CONFIG = """
llm: {{api_base: "{url}", api_key: none, models: [{{name: scripted, weight: 1.0}}]}}
diff_based_evolution: false
"""


def python(folder: Path, tool: str) -> Path:
    return folder / tool / "bin/python"


def installed(folder: Path) -> None:
    """Additions of each installation to a fresh venv."""
    for tool, what in TOOLS.items():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / tool], check=True)
        before = megabytes(folder / tool)
        pip = [
            python(folder, tool),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            what,
        ]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        listed = json.loads(output([python(folder, tool), "-m", "pip", "list", "--format=json"]))
        added = megabytes(folder / tool) - before
        version = next(each["version"] for each in listed if each["name"].lower() == tool)
        times = sorted(
            children(lambda tool=tool: output([python(folder, tool), "-c", IMPORTS[tool]]))
            for _ in range(5)
        )
        print(
            f"{tool} {version}: {added:.0f} MB, {len(listed) - 2} packages, import {times[2]:.2f} CPU s",
            flush=True,
        )


def output(command: list[object]) -> str:
    return subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout


def megabytes(folder: Path) -> float:
    return (
        int(output(["du", "-sk", next(folder.glob("lib/python3*/site-packages"))]).split()[0])
        / 1024
    )


def children(work: object) -> float:
    """CPU seconds of the processes that `work` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()  # type: ignore[operator]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def command(folder: Path, tool: str, evaluations: int, place: Path) -> list[str]:
    """The command that begins a search of this number of evaluations, or goes on with it."""
    if tool != "openevolve":
        (place / "search.py").write_text(CULMEN if tool == "culmen" else GEPA)
        return [str(python(folder, tool)), "search.py", str(evaluations)]
    words = [
        str(folder / tool / "bin/openevolve-run"),
        "program.py",
        "evaluator.py",
        "--config",
        "config.yaml",
    ]
    words += ["--iterations", str(evaluations), "--output", "out"]
    kept = sorted(
        (place / "out/checkpoints").glob("checkpoint_*"),
        key=lambda path: int(path.name.split("_")[1]),
    )
    return [*words, "--checkpoint", str(kept[-1])] if kept else words


def prepare(place: Path, url: str) -> dict[str, str]:
    """The same problem for all; the environment they run in."""
    from tests.servers.openai_server import SCRIPTED

    place.mkdir(parents=True)
    (place / "program.py").write_text(PROGRAM)
    (place / "evaluator.py").write_text(EVALUATOR)
    (place / "models.toml").write_text(SCRIPTED.format(url=url))
    (place / "config.yaml").write_text(CONFIG.format(url=url))
    return {
        **os.environ,
        "BENCH_LOG": str(place / "log"),
        "OPENAI_API_KEY": "none",
        "XDG_CACHE_HOME": str(place / "cache"),
    }


def counted(place: Path, what: str) -> int:
    file = place / f"log.{what}"
    return len(file.read_text()) if file.exists() else 0


def whole(
    folder: Path, tool: str, evaluations: int, place: Path, serve: object, kill: bool
) -> tuple[float, int, int]:
    """CPU seconds, model calls and evaluations of one search, killed once if wanted."""
    with serve(place) as url:  # type: ignore[operator]
        environment = prepare(place, url)

        def search() -> None:
            words = command(folder, tool, evaluations, place)
            with (place / "said").open("ab") as said:
                process = subprocess.Popen(
                    words,
                    cwd=place,
                    env=environment,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            while (
                kill and process.poll() is None and counted(place, "evaluations") < evaluations // 2
            ):
                time.sleep(0.01)
            if kill:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                time.sleep(1)
                subprocess.run(
                    command(folder, tool, evaluations, place),
                    check=False,
                    cwd=place,
                    env=environment,
                    capture_output=True,
                )
            process.wait()

        cpu = children(search)
        return cpu, counted(place, "calls"), counted(place, "evaluations")


def ran(folder: Path, evaluations: int, seeds: int) -> None:
    """Every tool: CPU an evaluation, and what a kill repeats."""
    import contextlib
    import random
    import tempfile

    from tests.servers.openai_server import OpenAIServer

    @contextlib.contextmanager
    def serve(place: Path):
        rng = random.Random(0)

        def answer(body: dict) -> str:
            with (place / "log.calls").open("a") as log:
                log.write("x")
            return f"```python\n{PROGRAM.replace('0.0', repr(rng.gauss(0.5, 0.3)))}```\n"

        with OpenAIServer(answer) as server:
            yield server.url

    for tool in TOOLS:
        with tempfile.TemporaryDirectory() as name:
            few = whole(folder, tool, evaluations // 4, Path(name, "few"), serve, False)
            plain = whole(folder, tool, evaluations, Path(name, "plain"), serve, False)
            each = 1000 * (plain[0] - few[0]) / max(1, plain[2] - few[2])
            print(
                f"{tool}: {each:.1f} ms CPU an evaluation; {plain[1]} calls, {plain[2]} evaluations",
                flush=True,
            )
            for seed in range(seeds):
                _, calls, made = whole(
                    folder, tool, evaluations, Path(name, f"kill{seed}"), serve, True
                )
                print(f"  killed half-way: {calls} calls, {made} evaluations in all", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("/tmp/culmen-peers"))
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--evaluations", type=int, default=80)
    parser.add_argument("--kills", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.install:
        installed(chosen.folder.resolve())
    if chosen.run:
        ran(chosen.folder.resolve(), chosen.evaluations, chosen.kills)


if __name__ == "__main__":
    main()
