"""The inheritance of an evaluation: the state it finds, and the run's claims after it.

    python bench/bench_inherit.py table                        # 36 kinds of state, 12 ways to run
    python bench/bench_inherit.py aa --json aa.jsonl           # resumable: keeps finished runs
    python bench/bench_inherit.py control --json control.jsonl # evaluators without any noise
    python bench/bench_inherit.py cost --against ../other/.venv/bin/python  # processor time

`table` runs evaluators and programs whose score is the state that they find, through the backends
of every form and through `culmen.check`; `inherit/table.py` has the rules that make a letter of
scores. Evaluations get the random seeds that the engine would give them.

`aa` makes whole small searches with real processes in which every program is truly worth 0.5, with
noise of standard deviation 0.3 from a generator of the evaluator. One selects the best of many,
but the final choice evaluates it afresh, so its intervals should hold the truth:

score, gain      95 % intervals that hold the truth, per cent of those given
claimed          runs that report a gain above 0 beyond its margin
exact            runs that report no noise, in words or by a margin of 0: none should
no ±             runs without a margin
repeats          evaluations of a program beyond its first, per run
failed           evaluations without a score, in all
CPU s            of a run, all processes

`control` is the same for evaluators without any randomness: all runs should report exact scores,
and the repeats are what that costs. `cost` is milliseconds of processor time per evaluation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.inherit import cost, runs, table
from bench.inherit.interpreter import installed_source, make_interpreter

import culmen

SOURCE = Path(culmen.__file__).resolve().parents[1]


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The parsed command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parts = parser.add_subparsers(dest="part", required=True)
    states = parts.add_parser("table")
    states.add_argument("--row", action="append", choices=table.ROWS, help="may be repeated")
    states.add_argument("--column", action="append", choices=table.COLUMNS, help="may be repeated")
    states.add_argument("--page", type=Path, help="the page to write the table into")
    for name, seeds in (("aa", 40), ("control", 10)):
        searches = parts.add_parser(name)
        searches.add_argument("--form", action="append", choices=runs.FORMS, help="may be repeated")
        searches.add_argument("--noise", action="append", choices=runs.NOISES)
        searches.add_argument("--workers", action="append", type=int, help="default: 1 and 4")
        searches.add_argument("--seeds", type=int, default=seeds)
        searches.add_argument("--evaluations", type=int, default=60)
        searches.add_argument("--jobs", type=int, default=1)
        searches.add_argument("--json", type=Path, help="runs, one a line; those in it are kept")
        searches.add_argument("--kept", action="store_true", help="print those alone, run nothing")
    costs = parts.add_parser("cost")
    costs.add_argument(
        "--against", type=Path, required=True, help="the Python of another checkout's environment"
    )
    costs.add_argument("--source", type=Path, default=SOURCE, help="src of this one")
    costs.add_argument("--pairs", type=int, default=7)
    costs.add_argument("--kind", action="append", choices=cost.KINDS, help="may be repeated")
    for name, words in (("probe", ("row", "column", "folder", "session")), ("measure", ("kind",))):
        inner = parts.add_parser(name, help="one measurement, for a process of its own")
        for word in words:
            inner.add_argument(word)
    return parser.parse_args(arguments)


def chosen_cells(asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """The cells that are asked for; leavers only as functions, unless they are named."""
    for form in asked.form or runs.FORMS:
        for name, noise in runs.NOISES.items():
            named = asked.noise and name in asked.noise
            usual = not asked.noise and noise.exact == (asked.part == "control")
            if named or (usual and (form == "function" or not noise.leaves)):
                yield from ((form, name, workers) for workers in asked.workers or (1, 4))


def print_runs(asked: argparse.Namespace) -> None:
    """The table of A/A runs, row by row, and their time."""
    begun, kept = time.monotonic(), runs.kept_rows(asked.json)
    print(f"| {' | '.join(runs.COLUMNS)} |", "|" + "---|" * len(runs.COLUMNS), sep="\n", flush=True)
    for form in () if asked.kept else asked.form or runs.FORMS:
        runs.import_modules_of_run(form)
    for form, noise, workers in chosen_cells(asked):
        seeds = range(asked.seeds)
        jobs = [(form, noise, workers, seed, asked.evaluations) for seed in seeds]
        missing = [job for job in jobs if job not in kept and not asked.kept]
        rows = [kept[job] for job in jobs if job in kept]
        rows += runs.made_rows(missing, asked.jobs, asked.json)
        if rows:
            print(f"| {' | '.join(runs.cells(rows))} |", flush=True)
    print(f"\n{time.monotonic() - begun:.0f} s", flush=True)


def run_in_own_interpreter(arguments: Sequence[str]) -> int:
    """The exit status of this script, run so that every process has the same culmen."""
    with tempfile.TemporaryDirectory() as place:
        python = make_interpreter(SOURCE, Path(place, "venv"))
        return subprocess.call([python, __file__, *arguments])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that is asked for."""
    asked = options(arguments)
    if asked.part == "probe":
        found = table.probe(asked.row, asked.column, Path(asked.folder), asked.session)
        print(json.dumps(found))
    elif asked.part == "measure":
        print(json.dumps(cost.evaluation_ms(asked.kind)))
    elif asked.part == "cost":
        kinds = asked.kind or list(cost.KINDS)
        cost.print_costs(asked.source, asked.against, asked.pairs, kinds)
    elif not installed_source(sys.executable).samefile(SOURCE):
        sys.exit(run_in_own_interpreter(sys.argv[1:] if arguments is None else arguments))
    elif asked.part == "table":
        table.print_table(asked.row or list(table.ROWS), asked.column or table.COLUMNS, asked.page)
    else:
        print_runs(asked)


if __name__ == "__main__":
    main()
