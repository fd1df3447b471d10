"""The cost of culmen beside an earlier commit of itself: ratios, both builds in turn.

    python bench/bench_against.py COMMIT                  # seven pairs, every row
    python bench/bench_against.py COMMIT --pairs 3 --only run commands
    python bench/bench_against.py COMMIT --keep BUILDS    # leaves the two environments there

Each build is the tree of a commit (the newer one: of HEAD) in an environment of its own, with
bytecode written. A row is the ratio of the newer build to the older one: the median over the pairs,
with its quartiles. CPU is that of all processes, in seconds. Commits are counted in the journal,
by the times of its rows; a commit writes one time.

    run       `culmen.optimize` of a program of 1.5 kB with a Python function as evaluator and one
              as model, which answers at once
    commands  on the run of 1,000 evaluations, each in a process of its own
    jail      `culmen.check` of a program that returns a number: 139 evaluations less 39
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SCRIPT = """
import json, random, re, resource, sys, time
import culmen

PROGRAM = "\\n".join(f"def step_{i}(x):\\n    return x * {i} + 1" for i in range(40))
PROGRAM += "\\n\\nVALUE = 0.0\\n"
strategy, evaluations, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draws, began = random.Random(0), []

def cpu():
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)

def answer(prompt, *rest, **more):
    if not began:
        began.append((cpu(), time.perf_counter()))
    old = re.findall("^VALUE = .*$", str(prompt), re.MULTILINE)
    line = f"VALUE = {draws.gauss(0.5, 0.3)!r}"
    if "<<<<<<< SEARCH" in str(prompt) and old:
        edit = f"<<<<<<< SEARCH\\n{old[-1]}\\n=======\\n{line}\\n>>>>>>> REPLACE"
        return f"Another number.\\n\\n{edit}\\n"
    return "Another number.\\n\\n```python\\n" + PROGRAM.replace("VALUE = 0.0", line) + "```\\n"

def score(text):
    found = re.search("^VALUE = (.*)$", text, re.MULTILINE)
    return -abs(1.0 - float(found[1])) + random.gauss(0, 0.05) if found else -9.0

more = {} if strategy == "default" else {"strategy": strategy}
study = culmen.optimize(
    PROGRAM, score, model=answer, budget=culmen.Budget(evaluations=evaluations), workers=2,
    random_seed=1, run_dir=folder, progress=False, **more,
)
(start, first), end = began[0], cpu()
print(json.dumps({"start": start, "after": end - start, "wall": time.perf_counter() - first}))
"""

CHECK = """
import resource, sys
import culmen

def cpu():
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)

used = []
for times in (2, 20, 70):  # the first one loads what the others use
    before = cpu()
    culmen.check("program.py", "evaluator.py", times=times)
    used.append(cpu() - before)
print((used[2] - used[1]) / 100)
"""

TASK = {
    "program.py": "def run():\n    return 0.5\n",
    "evaluator.py": "def score(output):\n    return float(output)\n",
    "check.py": CHECK,
}


def environment(commit: str, folder: Path) -> Path:
    """The interpreter of an environment that holds the tree of a commit."""
    python = folder / "venv" / "bin" / "python"
    if python.exists():
        return python
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", commit], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", tree], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, tree], check=True)
    return python


def cpu_of(words: list[str | Path], surroundings: Mapping[str, str]) -> tuple[float, str]:
    """CPU seconds of a command with all its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr[-2000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout


class Build:
    """One build: runs its commands in a cache and a folder of its own."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder, self._runs = python, folder, 0
        self.cache = folder / "cache"
        (folder / "run.py").write_text(SCRIPT)
        self._surroundings = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        }
        self._surroundings["OPENBLAS_NUM_THREADS"] = "1"

    def run(self, strategy: str, evaluations: int) -> tuple[dict[str, float], Path]:
        """Figures of one run, and its folder."""
        self._runs += 1
        run = self.folder / f"run-{self._runs}"
        words = [self.python, self.folder / "run.py", strategy, str(evaluations), run]
        _, printed = cpu_of(words, {**self._surroundings, "XDG_CACHE_HOME": f"{run}-cache"})
        return json.loads(printed.splitlines()[-1]), run

    def cpu(self, *words: str | Path) -> float:
        """CPU seconds of one `culmen` command."""
        surroundings = {**self._surroundings, "XDG_CACHE_HOME": str(self.cache)}
        return cpu_of([self.python.parent / "culmen", *words], surroundings)[0]

    def check(self) -> float:
        """CPU seconds of one more evaluation by `culmen.check`."""
        words = ["-C", self.folder, self.python, "check.py"]
        return float(cpu_of(["env", *words], self._surroundings)[1].split()[-1])

    def bare(self) -> float:
        """CPU seconds of the interpreter alone, the mean of ten."""
        return (
            sum(cpu_of([self.python, "-c", "pass"], self._surroundings)[0] for _ in range(10)) / 10
        )


def commits(run: Path, evaluations: int) -> float:
    """Commits an evaluation."""
    with sqlite3.connect(f"file:{run / 'journal.db'}?mode=ro", uri=True) as connection:
        (count,) = connection.execute("SELECT count(DISTINCT time) FROM event").fetchone()
    return count / evaluations


def disk(run: Path, evaluations: int) -> float:
    """Bytes an evaluation."""
    files = (each for each in run.rglob("*") if each.is_file())
    return sum(each.stat().st_size for each in files) / evaluations


def run_rows(build: Build) -> Iterator[tuple[str, float]]:
    """Costs of whole runs."""
    for strategy in ("default", "map_elites"):
        figures, run = build.run(strategy, 300)
        yield f"CPU an evaluation after the start, {strategy}", figures["after"] / 300
        yield f"commits an evaluation, {strategy}", commits(run, 300)
        yield f"wall of 300 evaluations, {strategy}", figures["wall"]
        if strategy == "default":
            yield "start: command to first model call", figures["start"]
            yield "bytes of disk an evaluation", disk(run, 300)


def command_rows(build: Build) -> Iterator[tuple[str, float]]:
    """Costs of commands."""
    run = build.folder / "run-of-1000"
    if not run.exists():
        made = build.run("default", 1000)[1]
        made.with_name(f"{made.name}-cache").rename(build.cache)  # the commands are the same user's
        made.rename(run)
        build.cpu("status", run)  # writes bytecode
    for verb in ("status", "best", "story"):
        yield f"`{verb}` of 1,000 evaluations", build.cpu(verb, run)
    bare = build.bare()
    for words in ("--help", "--version"):
        yield f"`{words}`, in bare interpreters", build.cpu(words) / bare


def jail_rows(build: Build) -> Iterator[tuple[str, float]]:
    """Costs of one jailed evaluation, parent and children."""
    for name, text in TASK.items():
        (build.folder / name).write_text(text)
    yield "jailed evaluation of a program that does nothing", build.check()


ROWS: dict[str, Callable[[Build], Iterator[tuple[str, float]]]] = {
    "run": run_rows,
    "commands": command_rows,
    "jail": jail_rows,
}


def table(pairs: dict[str, list[tuple[float, float]]]) -> None:
    """Print the medians of both builds, and of their ratio with its quartiles."""
    print("| | before | now | ratio | quartiles |\n|---|---|---|---|---|")
    for name, values in pairs.items():
        old, new = (statistics.median(each) for each in zip(*values))
        ratios = sorted(new / old for old, new in values)
        low, middle, high = (
            statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        )
        print(f"| {name} | {old:.4g} | {new:.4g} | **{middle:.2f}** | {low:.2f} to {high:.2f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="the older build")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--keep", type=Path, help="folder of the two environments")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        kept = (chosen.keep or Path(name)).absolute()
        builds = list[Build]()
        for label, commit in (("old", chosen.commit), ("new", "HEAD")):
            folder = Path(name, "work", label)
            folder.mkdir(parents=True)
            builds.append(Build(environment(commit, kept / label), folder))
        pairs: dict[str, list[tuple[float, float]]] = {}
        for number in range(chosen.pairs):
            for part in chosen.only:
                turn = builds if number % 2 == 0 else builds[::-1]
                found = {build: dict(ROWS[part](build)) for build in turn}
                old, new = (found[build] for build in builds)
                for row in old:
                    pairs.setdefault(row, []).append((old[row], new[row]))
        table(pairs)


if __name__ == "__main__":
    main()
