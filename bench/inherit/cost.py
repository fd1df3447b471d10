"""Processor time of an evaluation, of two checkouts in turn."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from bench.inherit.interpreter import compile_source, installed_source, make_interpreter
from bench.inherit.rows import ROWS, Row
from bench.inherit.runs import processor_seconds, study_of
from bench.inherit.table import (
    SCRIPT,
    candidate_of,
    folder_backend,
    function_backend,
    import_function,
    new_folder,
    seeds_of,
)

FEW = 60  # evaluations: the difference to more of them leaves out start and end
# form, evaluator, and the evaluations more: about as many as take two seconds
WHOLE = "run"  # of the engine, with a model in the process and an evaluator without noise
KINDS: dict[str, tuple[str, Row, int]] = {
    "function, nothing": ("function", Row("value"), 2000),
    "function, generator": ("function", ROWS["np_gen_seeded"], 2000),
    "call": ("call", ROWS["np_gen_seeded"], 200),
    "path": ("path", ROWS["np_gen_seeded"], 100),
    "function, whole run": ("function", Row(WHOLE), 300),
    "call, whole run": ("call", Row(WHOLE), 100),
    "path, whole run": ("path", Row(WHOLE), 60),
}


def session_seconds(kind: str, evaluations: int, folder: Path) -> float:
    """Processor seconds of a backend from start to end, with all its processes."""
    form, row, _ = KINDS[kind]
    begun = processor_seconds()
    if row.kind == WHOLE:
        folder.mkdir(exist_ok=True)
        study_of((form, "no noise", 1, 1, evaluations), folder)
        return processor_seconds() - begun
    task, next_seed = new_folder(row, form, folder), seeds_of("cost")
    function = import_function(task) if form == "function" else None

    async def work() -> None:
        backend = function_backend(function, 1) if function else folder_backend(task, 1)
        await backend.start()
        for _ in range(evaluations):
            found = await backend.evaluate(candidate_of(row, "A"), None, next_seed())
            assert found.ok, found.feedback
        await backend.close()

    begun = processor_seconds()
    asyncio.run(work())
    return processor_seconds() - begun


def evaluation_ms(kind: str) -> float:
    """Milliseconds of processor time of one evaluation more, in this process and its children."""
    more = KINDS[kind][2]
    with tempfile.TemporaryDirectory() as place:
        session_seconds(kind, 1, Path(place, "imports"))
        few = session_seconds(kind, FEW, Path(place, "few"))
        many = session_seconds(kind, FEW + more, Path(place, "many"))
    return 1000 * (many - few) / more


def measured_ms(kind: str, python: str) -> float:
    """`evaluation_ms` in a new process of this interpreter."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    printed = subprocess.check_output([python, SCRIPT, "measure", kind], env=surroundings)
    return json.loads(printed.splitlines()[-1])


def print_costs(own: Path, other: Path, pairs: int, kinds: Sequence[str]) -> None:
    """The table of a folder with sources and the Python of another environment."""
    for source in (own, installed_source(str(other))):
        compile_source(source)
    with tempfile.TemporaryDirectory() as place:
        print_ratios(make_interpreter(own, Path(place, "own")), str(other), pairs, kinds)


def print_ratios(own: str, other: str, pairs: int, kinds: Sequence[str]) -> None:
    """The table of two interpreters, measured in turn; ratios are own to other, pair by pair."""
    print("| evaluation | other ms | own ms | ratio | quartiles | of the least | pairs |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in kinds:
        found: list[tuple[float, float]] = []
        for number in range(pairs):
            order = (own, other)[:: 1 if number % 2 else -1]
            ms = {python: measured_ms(kind, python) for python in order}
            found.append((ms[own], ms[other]))
        ratios = [one / another for one, another in found]
        low, _, high = quantiles(ratios, n=4)
        mine, others = zip(*found, strict=True)
        least = min(mine) / min(others)  # other processes can only add to a measurement
        print(
            f"| {kind} | {median(others):.2f} | {median(mine):.2f} | {median(ratios):.3f} "
            f"| {low:.3f} to {high:.3f} | {least:.3f} | {pairs} |",
            flush=True,
        )
