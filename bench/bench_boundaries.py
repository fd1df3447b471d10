"""Texts at every boundary: texts that are read, faults by name, slowest calls.

    nice .venv/bin/python bench/bench_boundaries.py            200,000 texts, seeds 0 to 199,999
    nice .venv/bin/python bench/bench_boundaries.py 5000 7000  seeds 7,000 to 11,999

Each text is made from its seed (`tests/boundaries.py`) and given to one boundary, in turn. Exit 1 if
one raised, or took more than two seconds of processor time.
"""

import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.boundaries import READERS, Tried, summarize, try_many

MOST_SECONDS = 2.0  # of processor time for one text
TOLD = 5_000  # texts between two lines of progress


def with_progress(calls: Iterable[Tried]) -> Iterator[Tried]:
    """The calls, with a line of progress now and then."""
    raised = 0
    for number, call in enumerate(calls, 1):
        raised += call.raised is not None
        if number % TOLD == 0:
            used = time.process_time()
            print(f"{number:9,}  texts, {used:,.0f} s, {raised} raised", flush=True)
        yield call


def main(count: int = 200_000, first: int = 0) -> int:
    """Try the texts, print what came of them, and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        calls = with_progress(try_many(range(first, first + count), Path(folder)))
        faults, raised, slowest = summarize(calls)
    print(f"{count:,} texts at {len(READERS)} boundaries, seeds {first} to {first + count - 1}\n")
    for name, number in faults.most_common():
        print(f"{number:9,}  {name}")
    print("\nslowest, in seconds of processor time")
    for call in slowest:
        print(f"{call.seconds:9.2f}  {call.name}, seed {call.seed}")
    print(f"\n{len(raised)} raised something else")
    for call in raised[:20]:
        print(f"\n{call.name}, seed {call.seed}")
        traceback.print_exception(call.raised)
    return 1 if raised or slowest[0].seconds > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
