"""The page docs/gallery.md: every task that can be tried here, measured.

    python bench/make_gallery.py measure KEPT [TASK ...] [--evaluations 200] [--minutes 5]
    python bench/make_gallery.py cheats KEPT ALGOTUNE
    python bench/make_gallery.py write KEPT [--solvers FILE]
    python bench/make_gallery.py rows KEPT

`measure` audits tasks and searches in them offline; TASK is a built-in task or a folder, without
any all built-in ones that need nothing else. Folders are audited alone. `cheats` scores the
programs in `gallery_programs` beside the initial ones, in task folders that `culmen import
algotune` made below ALGOTUNE. Results lie in KEPT, and results there are not measured again.
`write` makes the page of them; FILE is what `bench_algotune.py solvers` keeps. `rows` puts only the
rows of built-in tasks that KEPT has into the page and leaves the others. KEPT/conditions.txt, if it
is there, names the other conditions of the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import cast

import msgspec

from bench_algotune import Outcome
from culmen.core.candidate import Candidate
from culmen.core.json import JsonObject
from culmen.evaluate.local import LocalBackend
from culmen.tasks.loading import load

ROOT = Path(__file__).parents[1]
TASKS, PROGRAMS = ROOT / "src" / "culmen" / "tasks", Path(__file__).parent / "gallery_programs"
PAGE = ROOT / "docs" / "gallery.md"
NEEDS = {
    "harness": "a model, which each candidate asks (`--model agent=MODEL`)",
    "hotpotqa": "a model that answers the questions",
    "kuairec": "PyTorch",
    "python_to_dafny": "Dafny, and 1 to 3 s for a method",
    "tau_retail": "two models: the agent, and one that plays the customer",
    "veribench": "Lean 4, a copy of VeriBench, and a model as its judge",
}
CHEAT_SEEDS = 3
FEW_ATTACKS = 10  # of which a cell says that no more apply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "cheats", "write", "rows"))
    parser.add_argument("kept", type=Path)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5.0, help="of one search")
    parser.add_argument("--solvers", type=Path)
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    if asked.what == "measure":
        for name in asked.tasks or builtin_names():
            measure(name, asked.kept, asked.evaluations, asked.minutes)
    elif asked.what == "cheats":
        asyncio.run(measure_cheats(asked.kept, Path(asked.tasks[0])))
    elif asked.what == "rows":
        PAGE.write_text("\n".join(page_with_rows(PAGE.read_text(), asked.kept)) + "\n")
    else:
        PAGE.write_text("\n".join(page_lines(asked.kept, asked.solvers)) + "\n")


def builtin_names() -> list[str]:
    """The built-in tasks that need nothing else."""
    found = sorted(each.parent.name for each in TASKS.glob("*/task.toml"))
    return [name for name in found if name not in NEEDS]


# -- measuring


def measure(name: str, kept: Path, evaluations: int, minutes: float) -> None:
    """Audit a task, and search in it if it is built in."""
    is_builtin = (TASKS / name / "task.toml").is_file()
    folder = TASKS / name if is_builtin else Path(name)
    if is_builtin and load(folder).evaluator.form == "rollout":
        folder = copied_example(name, kept)  # sandboxes of agents hide culmen's own checkout
    audited = kept / f"{folder.name}.audit.json"
    if not audited.is_file():
        print(f"{folder.name}: audit", flush=True)
        found = run_culmen(kept, "audit", str(folder.resolve()), "--workers", "1")
        audited.write_text(json.dumps(found))
    searched = kept / f"{folder.name}.run.json"
    if is_builtin and not searched.is_file():
        print(f"{folder.name}: search", flush=True)
        budget = f"evaluations={evaluations},seconds={60 * minutes:g}"
        words = ("run", str(folder), "--budget", budget, "--workers", "1")
        searched.write_text(json.dumps(run_culmen(kept, *words)))


def copied_example(name: str, kept: Path) -> Path:
    """A copy of a built-in task, as `culmen new` makes it."""
    copy = kept.resolve() / "copies" / name
    if not copy.is_dir():
        copy.parent.mkdir(exist_ok=True)
        run_culmen(kept, "new", str(copy), "--example", name)
    return copy


def run_culmen(folder: Path, *words: str) -> JsonObject:
    """The output of a verb with `--json`."""
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, *words, "--json"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)
    return cast(JsonObject, json.loads(ran.stdout))


class Cheat(msgspec.Struct):
    """A program that solves nothing, beside the honest initial one: median scores."""

    task: str
    honest: float | None
    score: float | None
    size: int
    feedback: str = ""


async def measure_cheats(kept: Path, folders: Path) -> None:
    """Score the programs in `gallery_programs`."""
    cheats: list[Cheat] = []
    for file in sorted(PROGRAMS.glob("*.py")):
        task = load(folders / file.stem)
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            medians: list[float | None] = []
            feedback = ""
            for text in (task.seeds[0]["solver.py"], file.read_text()):
                candidate = Candidate.of({"solver.py": text})
                found = [
                    await backend.evaluate(candidate, task.cases[0], seed)
                    for seed in range(CHEAT_SEEDS)
                ]
                scores = [each.score for each in found if each.score is not None]
                medians.append(median(scores) if len(scores) == len(found) else None)
                feedback = found[0].feedback
        finally:
            await backend.close()
        size = int(task.cases[0].info["n"])
        cheats.append(Cheat(file.stem, medians[0], medians[1], size, feedback))
        print(cheats[-1], flush=True)
    (kept / "cheats.json").write_bytes(msgspec.json.encode(cheats))


# -- the page

HEAD = """\
# Gallery

You can look up, of the tasks that come with culmen and those of AlgoTune that `culmen import algotune` makes, what the
audit says, how much a score varies, what an evaluation costs, and what the offline proposer reaches. Measured by

```
python bench/make_gallery.py measure KEPT                 # the built-in tasks
culmen import algotune CHECKOUT --milliseconds 2
python bench/make_gallery.py measure KEPT algotune/*      # imported ones: the audit alone
python bench/make_gallery.py cheats KEPT algotune
python bench/make_gallery.py write KEPT
```

on {machine}. {conditions}

*noise* is the standard deviation of equal evaluations with one random seed and, after the stroke, with others,
as a share of the score; *seconds* are of one evaluation of the initial program. `look` names attacks whose
result only a person can judge; `determinism` among them is noise. An [audit](audit.md) of a task is no proof:
it shows what some twenty attacks made from the initial program reach.
"""


def page_lines(kept: Path, solvers: Path | None) -> Iterator[str]:
    """The page's lines."""
    conditions = kept / "conditions.txt"
    text = conditions.read_text().strip() if conditions.is_file() else ""
    yield HEAD.format(machine=machine_kind(), conditions=text)
    yield "## Built-in tasks"
    yield ""
    yield from builtin_lines(kept)
    yield "## Tasks of AlgoTune"
    yield ""
    lines = solvers.read_bytes().splitlines() if solvers else []
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    yield from algotune_lines(kept, outcomes)
    yield "## How many public evaluators can be gamed"
    yield ""
    yield from cheat_lines(kept)
    yield from recorded_lines(outcomes)


def machine_kind() -> str:
    """The kind of this machine."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    model = next((line.split(": ")[1] for line in text.splitlines() if "model name" in line), "")
    cores = text.count("processor\t")
    return f"{model or platform.machine()}, {cores} cores, Python {platform.python_version()}"


COLUMNS = "| task | audit | noise | seconds | initial | offline, after evaluations | best known |"
LEFT = (
    "test cases); where the search kept the initial program, both are the same. Not measured here:"
)


def builtin_lines(kept: Path) -> Iterator[str]:
    """The table of built-in tasks, and those that were not measured."""
    yield COLUMNS
    yield "|---|---|---|---|---|---|---|"
    rows = builtin_rows(kept)
    yield from rows.values()
    yield ""
    yield "*initial* and *offline* are the final values of one search with random seed 0 (for tasks with cases: on the"
    yield LEFT
    yield ""
    yield from left_lines(set(rows))
    yield ""


def builtin_rows(kept: Path) -> dict[str, str]:
    """The rows of the built-in tasks that were measured, by name."""
    rows: dict[str, str] = {}
    for folder in sorted(each.parent for each in TASKS.glob("*/task.toml")):
        name, audited = folder.name, read(kept / f"{folder.name}.audit.json")
        if name in NEEDS or "outcomes" not in audited:
            continue
        known = load(folder).objective.known
        best = "-" if known is None else f"[{known:.9g}](certified.md#best-known-values)"
        arrow = "↓" if audited["direction"] == "min" else "↑"
        rows[name] = (
            f"| `{name}` {arrow} | {audit_cell(audited)} | {noise_cell(audited)} | "
            f"{audited['honest']['seconds']:.2f} | {search_cells(read(kept / f'{name}.run.json'))} "
            f"| {best} |"
        )
    return rows


def left_lines(measured: set[str]) -> Iterator[str]:
    """The built-in tasks that were not measured, each with its needs."""
    for name in sorted(each.parent.name for each in TASKS.glob("*/task.toml")):
        if name not in measured:
            yield f"- `{name}`: {'needs ' + NEEDS[name] if name in NEEDS else 'not measured yet'}"


def page_with_rows(page: str, kept: Path) -> Iterator[str]:
    """The page's lines with these rows in place of those of the same tasks, or between them."""
    lines = page.splitlines()
    first = lines.index(COLUMNS) + 2
    end = lines.index("", first)
    rows = {line.split("`")[1]: line for line in lines[first:end]} | builtin_rows(kept)
    named = ", ".join(f"`{name}`" for name in builtin_rows(kept))
    conditions = kept / "conditions.txt"
    text = " ".join(conditions.read_text().split()) if conditions.is_file() else ""
    said = "\n".join(wrap(f"{named}: {text}", 118, break_on_hyphens=False)) if text else ""
    yield from lines[:first]
    yield from (rows[name] for name in sorted(rows))
    yield ""
    if said and said not in page:
        yield said
        yield ""
    left = lines.index(LEFT)
    yield from lines[end + 1 : left + 2]
    yield from left_lines(set(rows))
    yield from lines[lines.index("", left + 2) :]


def read(path: Path) -> JsonObject:
    """A kept document; {} if there is none."""
    if not path.is_file() or not path.stat().st_size:
        return {}
    return cast(JsonObject, json.loads(path.read_text()))


def audit_cell(audited: JsonObject) -> str:
    """The verdict of an audit: what pays, has effects, or is to be looked at."""
    named: dict[str, list[str]] = {}
    for each in audited["outcomes"]:
        named.setdefault(each["result"], []).append(f"`{each['name']}`")
    if any("time limit" in each.get("evidence", "") for each in audited["outcomes"]):
        named["not finished"] = []
    parts = [
        f"{'**gamed**' if kind == 'gamed' else kind}: {', '.join(named[kind])}".removesuffix(": ")
        for kind in ("gamed", "effect", "inconclusive", "look", "not finished")
        if kind in named
    ]
    applied = sum(each["result"] != "skipped" for each in audited["outcomes"])
    few = f" (attacks that apply: {applied})" if applied < FEW_ATTACKS else ""
    return ("; ".join(parts) or "held") + few


def noise_cell(audited: JsonObject) -> str:
    """The noise of a score as a share of it: of one random seed, and of others."""
    honest = audited["honest"]
    size = abs(honest["score"]) or 1.0
    shares = [honest.get(key, 0.0) / size for key in ("noise", "seed_noise")]
    return " / ".join("0" if share == 0 else f"{100 * share:.2g} %" for share in shares)


def search_cells(found: JsonObject) -> str:
    """The initial value, and what the offline search reached in how many evaluations."""
    best = found.get("best") or {}
    if best.get("score") is None:
        return "- | not searched"
    initial = (best.get("initial") or {}).get("score")
    first = "-" if initial is None else f"{initial:.6g}"
    limit = ", then time was up" if found.get("reason") == "seconds" else ""
    return f"{first} | {best['score']:.6g} after {found['evaluations']}{limit}"


def algotune_lines(kept: Path, outcomes: list[Outcome]) -> Iterator[str]:
    """The table of audited tasks of AlgoTune, with its recorded programs."""
    yield "The score is the reference's time by the program's: the initial program, which is the reference, has 1."
    yield "*recorded* are programs of AlgoTune's results: scored of tried, and the best score"
    yield "([how](benchmarks.md#speed-ups-of-a-program-over-itself))."
    yield ""
    yield "| task | audit | noise | seconds | recorded programs: scored of tried, best |"
    yield "|---|---|---|---|---|"
    for path in sorted(kept.glob("*.audit.json")):
        name, audited = path.name.removesuffix(".audit.json"), read(path)
        if (TASKS / name).is_dir() or "outcomes" not in audited:
            continue
        tried = [each for each in outcomes if each.task == name]
        scores = [each.score for each in tried if each.score is not None]
        best = f"{len(scores)} of {len(tried)}, {max(scores):.3g}" if scores else "-"
        yield (
            f"| `{name}` | {audit_cell(audited)} | {noise_cell(audited)} | "
            f"{audited['honest']['seconds']:.2f} | {best} |"
        )
    yield ""


def cheat_lines(kept: Path) -> Iterator[str]:
    """The programs that solve nothing, with their scores."""
    path = kept / "cheats.json"
    cheats = msgspec.json.decode(path.read_bytes(), type=list[Cheat]) if path.is_file() else []
    paying = [each for each in cheats if (each.score or 0) > (each.honest or 1)]
    yield CHEATS.format(count=len(paying))
    yield "| task | what the program in `bench/gallery_programs` does | its score | the honest initial program | size |"
    yield "|---|---|---|---|---|"
    for each in paying:
        what = (PROGRAMS / f"{each.task}.py").read_text().split('"""')[1]
        honest = "-" if each.honest is None else f"{each.honest:.3g}"
        yield f"| `{each.task}` | {what} | {each.score:.3g} | {honest} | {each.size} |"
    yield ""


# recorded programs that were read, and what they do
READ = {
    ("qr_factorization", "GPT-5.4"): (
        "returns two objects that compute only when the check looks at them, after the call; they are no plain data"
    ),
    ("voronoi_diagram", "GPT-5.2"): "returns zeros, counted by Euler's formula, and no ridges",
    ("affine_transform_2d", "GPT-5.2"): (
        "keeps work on an image under the image's address in memory, where the next one may lie, and "
        "is wrong with fresh inputs"
    ),
}


def recorded_lines(outcomes: list[Outcome]) -> Iterator[str]:
    """Lines on the actions of recorded programs that were read."""
    found = [each for each in outcomes if (each.task, each.model) in READ]
    if not found:
        return
    yield "### Recorded programs"
    yield ""
    yield "Some of AlgoTune's recorded programs do so, too, or worse. These stood out and were read; most were not:"
    yield ""
    for each in found:
        score = each.verdict if each.score is None else f"{each.score:.3g}"
        known = "none" if each.published is None else f"{each.published:.4g}"
        yield (
            f"- `{each.task}`, {each.model}: {READ[each.task, each.model]}. Published speed-up {known}; here: {score}."
        )
    yield ""


CHEATS = """\
The audits of AlgoTune's tasks above are older than the attack `cheap`. `culmen import algotune` tries answers that are
cheaper than the one that was asked for (zeros in place of all numbers, the first item in place of all) and lists the
checks that accept them as `weak`: {count} of the 24. Others may; nobody has shown that they do not. Scores are medians
of three evaluations.
"""

if __name__ == "__main__":
    main()
