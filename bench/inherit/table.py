"""The state that an evaluation finds, for each row of `rows` and each way to run it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.inherit.rows import ROWS, Kind, Row, wrap_evaluator

import culmen
from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError
from culmen.core.event import seed_from_digest
from culmen.core.options import BackendChoice
from culmen.core.task import Limits, digest_pieces
from culmen.evaluate.backends import make_backend
from culmen.evaluate.function import FunctionBackend
from culmen.run import options

SCRIPT = str(Path(__file__).resolve().parents[1] / "bench_inherit.py")
Score = float | None  # None: no score
Work = Callable[["Session"], Any]
LIMITS = Limits(seconds=10.0)
SEQUENCE = "AAABA"
TOGETHER = "ABABABAB"
WORKERS = 4
TOML = """name = "inherit"
[evaluator]
proxy = "{proxy}"
[limits]
seconds = 10
[seed]
files = ["program.py"]
"""
ENDS = {
    "exit": "import sys\ndef run():\n    sys.exit(3)\n",
    "crash": "import os, signal\ndef run():\n    os.kill(os.getpid(), signal.SIGKILL)\n",
}
FUNCTION_COLUMNS = ("fn 1w", "fn 4w", "fn exit", "fn crash", "fn final", "fn resume")
JAIL_COLUMNS = ("call 1w", "call 4w", "serve", "path proxy", "path never")
COLUMNS = (*FUNCTION_COLUMNS, *JAIL_COLUMNS, "check fn/call/path")
BEGIN, END = "<!-- inherits -->", "<!-- end of inherits -->"  # around the table in a page
LEGEND = """\
C carried over · F fresh each time · P carried over within each of several processes
Z frozen: the same draw whatever the seed · V varies · V= varies, the same with the same seed
S several processes at once begin with the same state · = always the same
R restored: begins again as at the start · E no score
check: exact (equal whatever the seed), seed (equal with the same seed), noise, fails"""


def seeds_of(name: str) -> Callable[[], int]:
    """The random seeds that the engine would give the evaluations of one program, in order."""
    made: list[int] = []

    def next_seed() -> int:
        made.append(seed_from_digest(digest_pieces("7", name, str(len(made) + 1))))
        return made[-1]

    return next_seed


def candidate_of(row: Row, letter: str) -> Candidate:
    """The program A or B of a row, or one that ends its process."""
    text = ENDS.get(letter) or row.program.replace("NUMBER", {"A": "1.0", "B": "2.0"}[letter])
    return Candidate.of({"program.py": text})


class Session:
    """A started backend for one row; evaluations get the seeds of a run."""

    def __init__(self, row: Row, backend: Any, name: str = "search") -> None:
        self.row, self.backend, self.next_seed = row, backend, seeds_of(name)

    async def evaluate(self, letter: str, seed: int | None = None) -> Score:
        """The score of one evaluation."""
        seed = self.next_seed() if seed is None else seed
        return (await self.backend.evaluate(candidate_of(self.row, letter), None, seed)).score

    async def in_turn(self, letters: Sequence[str]) -> list[Score]:
        """Scores of one evaluation after the other."""
        return [await self.evaluate(letter) for letter in letters]

    async def together(self, letters: Sequence[str], seed: int | None = None) -> list[Score]:
        """Scores of evaluations at once."""
        return list(await asyncio.gather(*(self.evaluate(each, seed) for each in letters)))


# Letters from scores.


def letter_of(kind: Kind, letters: Sequence[str], scores: Sequence[Score]) -> str:
    """The letter of evaluations one after the other with different seeds."""
    if None in scores:
        return "E"
    own = [float(letter == "B") + 1.0 for letter in letters]
    if kind == "first":
        return "F" if own == list(scores) else "C" if len(set(scores)) == 1 else "P"
    same = len(set(scores)) == 1
    return {"draws": "ZV", "value": "=V", "count": "FC"}[kind][not same]


def letter_together(kind: Kind, letters: Sequence[str], scores: Sequence[Score]) -> str:
    """The letter of evaluations at once in several processes.

    S if two drew the same number, or two found the state of the start.
    """
    found = letter_of(kind, letters, scores)
    if kind == "draws" and found == "V":
        return "S" if len(set(scores)) < len(scores) else "V"
    if kind == "count" and found == "C":
        known = [each for each in scores if each is not None]
        return "S" if known.count(min(known)) > 1 else "C"
    return found


def letter_after(kind: Kind, letters: str, before: list[Score], later: list[Score]) -> str:
    """The letter of evaluations after an event: R if they begin as the first ones did.

    `letters` are the programs of `later`; those before were A.
    """
    if None in before or None in later:
        return "E"
    whole = letter_of(kind, [*"A" * len(before), *letters], [*before, *later])
    if kind == "first":
        return "R" if whole == "P" else whole
    return "R" if whole in ("V", "C") and later == before[: len(later)] else whole


def with_seed(letter: str, again: Sequence[Score]) -> str:
    """The letter, marked if equal seeds gave equal scores where others differ."""
    return "V=" if letter == "V" and len(set(again)) == 1 else letter


# Evaluations in each column.


def new_folder(row: Row, form: str, folder: Path, proxy: str = "auto", workers: int = 1) -> Path:
    """A task folder of this row in an empty folder; its evaluator may be a Python function.

    Several workers get an evaluator slow enough that each of them has to begin.
    """
    body = f"time.sleep(0.1)\n{row.body.strip()}" if workers > 1 else row.body
    folder.mkdir(parents=True)
    (folder / "evaluator.py").write_text(wrap_evaluator(row.setup, body, form))
    (folder / "program.py").write_text(row.program.replace("NUMBER", "1.0"))
    (folder / "task.toml").write_text(TOML.format(proxy=proxy))
    if row.database:
        with sqlite3.connect(folder / "data.db") as database:
            database.execute("create table t (x)")
    return folder


def import_function(folder: Path) -> Callable[..., Any]:
    """The function of an evaluator's file, imported as a module of this process."""
    spec = importlib.util.spec_from_file_location("inherit_evaluator", folder / "evaluator.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["inherit_evaluator"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.evaluate


def function_backend(fn: Callable[..., Any], workers: int) -> FunctionBackend:
    """A backend for the function, as a run has it."""
    task = options.function_task("seed", (), "", "max", "inherit", None, LIMITS, fn)
    return FunctionBackend(task, fn, workers)


def folder_backend(folder: Path, workers: int) -> Any:
    """A backend for the task folder, as a run has it."""
    return make_backend(BackendChoice(), options.folder_task(folder, None, ""), workers)


async def one_worker(session: Session) -> str:
    """Evaluations in sequence, then two with the same seed."""
    found = letter_of(session.row.kind, SEQUENCE, await session.in_turn(SEQUENCE))
    return with_seed(found, [await session.evaluate("A", 5) for _ in range(2)])


async def four_workers(session: Session) -> str:
    """Evaluations at once, then four at once with the same seed."""
    found = letter_together(session.row.kind, TOGETHER, await session.together(TOGETHER))
    return with_seed(found, await session.together("A" * WORKERS, 5))


async def after_end(session: Session, end: str) -> str:
    """Evaluations before and after a program that ends the evaluator's process."""
    before = await session.in_turn("AA")
    await session.evaluate(end)
    found = letter_after(session.row.kind, "BA", before, await session.in_turn("BA"))
    return with_seed(found, [await session.evaluate("A", 5) for _ in range(2)])


async def after_exit(session: Session) -> str:
    """A program that exits."""
    return await after_end(session, "exit")


async def after_crash(session: Session) -> str:
    """A program that kills its process."""
    return await after_end(session, "crash")


async def final_choice(session: Session) -> str:
    """Evaluations of the final choice, after some of the search."""
    await session.in_turn("AAB")
    await session.backend.renew()
    found = letter_of(session.row.kind, SEQUENCE, await session.in_turn(SEQUENCE))
    return with_seed(found, [await session.evaluate("A", 5) for _ in range(2)])


async def in_session(row: Row, backend: Any, work: Work, name: str = "search") -> Any:
    """The result of the work in a started backend; E if it cannot start or ends in an error."""
    try:
        await backend.start()
        return await work(Session(row, backend, name))
    except CulmenError:
        return "E"
    finally:
        await backend.close()


async def first_two(session: Session) -> list[Score]:
    """Scores of a session that a later one is compared with."""
    return await session.in_turn("AA")


async def later_two(session: Session) -> list[Score]:
    """Scores of the session after a resume."""
    return await session.in_turn("BA")


FUNCTION_WORK = {
    "fn 1w": (one_worker, 1),
    "fn 4w": (four_workers, WORKERS),
    "fn exit": (after_exit, 1),
    "fn crash": (after_crash, 1),
    "fn final": (final_choice, 1),
}
JAIL_WORK = {
    "call 1w": ("call", "auto", one_worker, 1),
    "call 4w": ("call", "auto", four_workers, WORKERS),
    "serve": ("serve", "auto", one_worker, 1),
    "path proxy": ("path", "auto", one_worker, 1),
    "path never": ("path", "never", one_worker, 1),
}


def checked(folder: Path, evaluator: Any) -> str:
    """The word for the report of `culmen.check` on repeats."""
    try:
        report = culmen.check((folder / "program.py").read_text(), evaluator, limits=LIMITS)
    except CulmenError:
        return "fails"
    if not report.fit or not any(one.ok for one in report.observations):
        return "fails"
    return "exact" if report.seed_free else "seed" if report.repeatable else "noise"


def probe(name: str, column: str, folder: Path, session: str) -> Any:
    """The cell, or for the sessions of a resume the scores; in a process of its own."""
    row = ROWS[name]
    if column.startswith("check"):
        form = column.split()[1]
        new_folder(row, form, folder)
        return checked(folder, import_function(folder) if form == "function" else folder)
    if column == "fn resume":
        if session == "search":
            new_folder(row, "function", folder)
        backend = function_backend(import_function(folder), 1)
        work = first_two if session == "search" else later_two
        return asyncio.run(in_session(row, backend, work, session))
    if column in FUNCTION_WORK:
        work, workers = FUNCTION_WORK[column]
        fn = import_function(new_folder(row, "function", folder, workers=workers))
        backend = function_backend(fn, workers)
    else:
        form, proxy, work, workers = JAIL_WORK[column]
        backend = folder_backend(new_folder(row, form, folder, proxy, workers), workers)
    return asyncio.run(in_session(row, backend, work))


def own_folders(place: Path) -> dict[str, str]:
    """Environment variables that keep temporary files and culmen's cache in a folder."""
    return {"TMPDIR": str(place), "XDG_CACHE_HOME": str(place / "cache")}


def probe_in_fork(name: str, column: str, folder: Path) -> Any:
    """`probe` in a fork of this process, with a folder for temporary files of its own."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_send_probe, args=(theirs, name, column, folder))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError(f"the process of {name}, {column} ended without a result") from None
    finally:
        process.join()


def _send_probe(channel: Any, name: str, column: str, folder: Path) -> None:
    os.environ |= own_folders(folder.parent)
    tempfile.tempdir = str(folder.parent)
    channel.send(probe(name, column, folder, "search"))


def probe_anew(name: str, column: str, folder: Path, session: str) -> Any:
    """`probe` in a new interpreter, with a hash seed of its own."""
    words = [sys.executable, SCRIPT, "probe", name, column, str(folder), session]
    surroundings = os.environ | own_folders(folder.parent)
    printed = subprocess.check_output(words, env=surroundings, text=True)
    return json.loads(printed.splitlines()[-1])


def resumed(name: str, folder: Path) -> str:
    """The letter of a second session in a new process."""
    before, later = (probe_anew(name, "fn resume", folder, each) for each in ("search", "resume"))
    if "E" in (before, later):
        return "E"
    return letter_after(ROWS[name].kind, "BA", before, later)


def cell(name: str, column: str) -> str:
    """One cell of the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "task")
        if column == "fn resume":
            return resumed(name, folder)
        if column != "check fn/call/path":
            return probe_in_fork(name, column, folder)
        forms = ("function", "call", "path")
        return "/".join(probe_in_fork(name, f"check {form}", folder / form) for form in forms)


def print_table(names: Sequence[str], columns: Sequence[str], page: Path | None = None) -> None:
    """Print the Markdown table, row by row; write it into a page, equal rows as one."""
    head = f"| row | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"
    print(LEGEND, "", head, sep="\n", flush=True)
    alike: dict[str, list[str]] = {}
    for name in names:
        letters = " | ".join(cell(name, column) for column in columns)
        print(f"| {name} | {letters} |", flush=True)
        alike.setdefault(letters, []).append(name)
    if page is not None:
        rows = [f"| {', '.join(found)} | {letters} |" for letters, found in alike.items()]
        write_block(
            page, "\n".join([*LEGEND.strip().replace("\n", "  \n").splitlines(), "", head, *rows])
        )


def write_block(page: Path, text: str) -> None:
    """Put a text between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
