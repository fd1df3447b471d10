"""Throughput of every strategy against the ideal, with a stand-in model.

The model has 0.5 s latency and takes 8 calls at once.

    python bench/bench_throughput.py [--seconds 20] [--strategy NAME ...]

The ideal is 8 calls under way at any moment. Strategies without a barrier should come close; polca
with its defaults waits for its whole round, gepa and beam for a step, and the difference is what
the barrier costs. Evaluations are instant. Counted are the calls under way, on average from the
first one to the end.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench_engine import TASK, Instant
from culmen.core.event import ProposeRequest, WriteRequest
from culmen.core.usage import Budget
from culmen.engine.driver import Driver
from culmen.engine.search import Search
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.strategies.polca import Polca

LATENCY, CALLS = 0.5, 8


class Slow(Instant):
    """The instant world with a model that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.busy = 0.0, 0.0

    async def perform(self, effect):
        if isinstance(effect.request, ProposeRequest | WriteRequest):
            began = time.perf_counter()
            self.first = self.first or began
            try:
                await asyncio.sleep(LATENCY)
            finally:
                self.busy += time.perf_counter() - began
        return await super().perform(effect)


def measure(name, strategy, seconds: float, folder: Path) -> None:
    budget = Budget(seconds=seconds, final=0.0)
    journal = SqlJournal.create(
        folder / name.replace(" ", "-"), RunMeta(id=name, task=TASK, budget=budget)
    )
    world = Slow()
    search = Search(strategy, TASK, budget, 1, CALLS)
    asyncio.run(Driver(search, world, journal, workers=CALLS, calls=CALLS).run())
    under_way = world.busy / (time.perf_counter() - world.first)
    journal.close()
    print(
        f"{name:<20} {under_way:5.2f} of {CALLS} calls under way = {100 * under_way / CALLS:5.1f} %",
        flush=True,
    )


OMITTED = (
    "cato",
    "pacevolve_plus_plus",
    "ask_tell",
)  # these need agents, a trained advisor, an optimiser


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--strategy",
        nargs="+",
        default=[name for name in catalog.strategy_paths() if name not in OMITTED],
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.strategy:
            measure(name, catalog.make_strategy(name), chosen.seconds, Path(folder))
        measure(
            "polca, 8 lanes of 1",
            Polca(explore=1, batch=1, lanes=8, summarizer=None),
            chosen.seconds,
            Path(folder),
        )


if __name__ == "__main__":
    main()
