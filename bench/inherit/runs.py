"""A/A runs: every program is truly worth the same, so a reported gain is only noise.

A run is a whole search with real processes, in a fork of its own. Its generator is seeded with the
run's number, so that runs draw apart; the engine's random seed is the same number.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from bench.inherit.rows import PROGRAM, wrap_evaluator
from bench.inherit.table import LIMITS, import_function, own_folders

import culmen

TRUTH = 0.5
NONE = 1e-12  # margins that are none
BUDGET = {"evaluations": 60, "final": 0.4}
KEY = ("form", "noise", "workers", "seed", "evaluations")
FORMS = ("function", "call", "serve", "path")
TOML = """name = "inherit"
[limits]
seconds = 10
[seed]
files = ["program.py"]
"""

Row = dict[str, Any]
Job = tuple[str, str, int, int, int]


@dataclass(frozen=True)
class Noise:
    """An evaluator's noise: `setup` at import, `body` the rest of `measure(output)`."""

    setup: str
    body: str
    exact: bool = False  # true if there is no noise at all
    leaves: bool = False  # true if each evaluation leaves something in its process


GENERATOR = "rng = np.random.default_rng(SEED)"
DRAW = "return rng.normal(0.5, 0.3)"
CLOSURE = f"""
def make_draw():
    {GENERATOR}
    def draw():
        {DRAW}
    return draw
draw = make_draw()
"""
ATTRIBUTE = f"""
class Judge:
    def __init__(self):
        self.{GENERATOR}
    def draw(self):
        return self.rng.normal(0.5, 0.3)
judge = Judge()
"""
POOL = "if not pool:\n    pool.append(ThreadPoolExecutor(1))\npool[0].submit(abs, -1).result()"


def leaver(change: str, setup: str = "") -> Noise:
    """A generator in an evaluator that leaves something in its process."""
    return Noise(f"{GENERATOR}\n{setup}", f"{change}\n{DRAW}", leaves=True)


NOISES = {  # the programs are worth the same but in the last three
    "numpy seeded": Noise(GENERATOR, DRAW),
    "numpy unseeded": Noise("rng = np.random.default_rng()", DRAW),
    "random.Random seeded": Noise("rng = random.Random(SEED)", "return rng.gauss(0.5, 0.3)"),
    "np.random.seed": Noise(
        "random.seed(SEED)\nnp.random.seed(SEED)",
        "return np.random.normal(0.5, 0.3)",
    ),
    "closure": Noise(CLOSURE, "return draw()"),
    "attribute": Noise(ATTRIBUTE, "return judge.draw()"),
    "n-th draw": Noise(GENERATOR, "return rng.normal(0.5, 0.3, 1 + int(output) % 50)[-1]"),
    "sets environ": leaver('os.environ["INHERIT"] = "1"'),
    "changes folder": leaver("os.chdir(PLACE)"),
    "appends to sys.path": leaver("sys.path.append(PLACE)"),
    "keeps a pool": leaver(POOL, "pool = []"),
    "leaves a thread": leaver(
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    "no noise": Noise("", "return 0.5 + output % 7 / 100", exact=True),
    "np.random.seed inside": Noise(
        "", "np.random.seed(0)\nreturn np.random.normal(0.5, 0.3) + output % 7 / 100", exact=True
    ),
    "default_rng inside": Noise(
        "",
        "return np.random.default_rng(0).normal(0.5, 0.3) + output % 7 / 100",
        exact=True,
    ),
}


def model_of(seed: int) -> Callable[[str], str]:
    """A model that answers each prompt with a new program, whatever it is shown."""
    rng = Random(seed)

    def answer(prompt: str) -> str:
        text = PROGRAM.replace("NUMBER", str(rng.randrange(10**9)))
        return f"Another one.\n\n```python\n{text}```\n"

    return answer


def study_of(job: Job, place: Path) -> culmen.Study:
    """The finished study of one run."""
    form, name, workers, seed, evaluations = job
    noise, folder = NOISES[name], place / "task"
    folder.mkdir()
    text = wrap_evaluator(f"SEED = {seed}\n{noise.setup.strip()}", noise.body, form)
    program = PROGRAM.replace("NUMBER", "1")
    for file, content in (("evaluator.py", text), ("program.py", program), ("task.toml", TOML)):
        (folder / file).write_text(content)
    keywords: dict[str, Any] = {
        "model": model_of(seed),
        "budget": culmen.Budget(**(BUDGET | {"evaluations": evaluations})),
        "random_seed": seed,
        "workers": workers,
        "run_dir": place / "run",
    }
    if form == "function":
        fn = import_function(folder)
        return culmen.optimize(program, fn, limits=LIMITS, progress=False, **keywords)
    study = culmen.Study.create(folder, **keywords)
    study.run(progress=False)
    return study


def processor_seconds() -> float:
    """User and system seconds of this process and of all its children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def is_exact(best: culmen.ReportedCandidate) -> bool:
    """True if a result is reported without noise, in words or by a margin of 0."""
    margins = [each for each in (best.margin, best.gain_margin) if each is not None]
    return best.noise.exact is True or ", exact" in best.result or min(margins, default=1.0) < NONE


def row_of(job: Job, place: Path) -> Row:
    """One run, as plain data."""
    begun = processor_seconds()
    study = study_of(job, place)
    best, seen = study.best, study.evaluations()
    assert best is not None
    return dict(zip(KEY, job, strict=True)) | {
        "score": best.score,
        "margin": best.margin,
        "count": best.count,
        "confirmed": best.confirmed,
        "gain": best.gain,
        "gain_margin": best.gain_margin,
        "exact": is_exact(best),
        "sd": best.noise.sd,
        "made": len(seen),
        "repeats": len(seen) - len({each.candidate for each in seen}),
        "failed": sum(not each.ok for each in seen),
        "cpu": round(processor_seconds() - begun, 3),
    }


def _send_row(channel: Any, job: Job) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.environ |= own_folders(Path(place))
        tempfile.tempdir = place
        channel.send(row_of(job, Path(place)))


def _send_modules(channel: Any, job: Job) -> None:
    with tempfile.TemporaryDirectory() as place:
        row_of(job, Path(place))
    channel.send([name for name, module in sys.modules.items() if hasattr(module, "__file__")])


def import_modules_of_run(form: str) -> None:
    """Import what a run of this form imports, so that the forks of this process need not."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_send_modules, args=(theirs, (form, "no noise", 1, 0, 8)))
    process.start()
    names = ours.recv()
    process.join()
    for name in names:
        if name not in sys.modules and not name.startswith(("inherit", "__")):
            importlib.import_module(name)


def made_rows(jobs: Sequence[Job], processes: int, path: Path | None) -> Iterator[Row]:
    """The rows of these runs, each written as soon as known."""
    fork, waiting, running = multiprocessing.get_context("fork"), list(jobs)[::-1], {}
    while waiting or running:
        while waiting and len(running) < processes:
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_send_row, args=(theirs, waiting[-1]))
            process.start()
            theirs.close()
            running[ours] = process, waiting.pop()
        for channel in wait(list(running)):
            process, job = running.pop(channel)
            try:
                row = channel.recv()
            except EOFError:
                raise RuntimeError(f"the run {job} ended without a result") from None
            finally:
                process.join()
                channel.close()
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            yield row


def kept_rows(path: Path | None) -> dict[Job, Row]:
    """The runs that a file has already."""
    if path is None or not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {tuple(row[name] for name in KEY): row for row in rows}


def share(found: Iterable[bool | None]) -> str:
    """Percentage of those that are known, and their number if any is not."""
    known = [one for one in found if one is not None]
    return f"{100 * fmean(known):.0f}" if known else "-"


def holds(value: float | None, margin: float | None, truth: float) -> bool | None:
    """True if the interval holds the truth, up to rounding; None without one."""
    if value is None or margin is None:
        return None
    return abs(value - truth) <= margin + 1e-9


COLUMNS = ("form", "noise", "workers", "runs", "score holds", "gain holds", "claimed", "exact")
COLUMNS = (*COLUMNS, "no ±", "mean score", "noise", "repeats", "failed", "CPU s")


def cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """The cells of one form, noise and number of workers."""
    one = rows[0]
    scores = [holds(row["score"], row["margin"], TRUTH) for row in rows]
    gains = [holds(row["gain"], row["gain_margin"], 0.0) for row in rows]
    claimed = sum(held is False and row["gain"] > 0 for held, row in zip(gains, rows, strict=True))
    is_exact = NOISES[one["noise"]].exact
    return (
        one["form"],
        one["noise"],
        str(one["workers"]),
        str(len(rows)),
        "-" if is_exact else share(scores),
        "-" if is_exact else share(gains),
        "-" if is_exact else str(claimed),
        str(sum(row["exact"] for row in rows)),
        str(sum(row["margin"] is None for row in rows)),
        f"{fmean(row['score'] for row in rows):.3f}",
        f"{fmean(row['sd'] for row in rows):.3f}",
        f"{fmean(row['repeats'] for row in rows):.1f}",
        str(sum(row["failed"] for row in rows)),
        f"{fmean(row['cpu'] for row in rows):.2f}",
    )
