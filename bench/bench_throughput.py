"""Throughput against the ideal with a stand-in model of 0.5 s latency and 8 calls at once.

    python bench/bench_throughput.py [--seconds 20]

The ideal is 8 / 0.5 = 16 proposals a second. Strategies without a barrier should come close; with one lane, polca waits
for its whole round, and the difference is what the barrier costs.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench_engine import TASK, Instant
from culmen.core.event import ProposeRequest
from culmen.core.usage import Budget
from culmen.engine.driver import Driver
from culmen.engine.search import Search
from culmen.store.journal import SqlJournal
from culmen.store.meta import RunMeta
from culmen.strategies.map_elites import MapElites
from culmen.strategies.polca import Polca

LATENCY, CALLS = 0.5, 8


class Slow(Instant):
    """The instant world with a model that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.proposals = 0

    async def perform(self, effect):
        if isinstance(effect.request, ProposeRequest):
            await asyncio.sleep(LATENCY)
            self.proposals += 1
        return await super().perform(effect)


def measure(name, strategy, seconds: float, folder: Path) -> None:
    budget = Budget(seconds=seconds, final=0.0)
    journal = SqlJournal.create(folder / name.replace(" ", "-"), RunMeta(id=name, task=TASK, budget=budget))
    world = Slow()
    search = Search(strategy, TASK, budget, 1, 2)
    began = time.perf_counter()
    asyncio.run(Driver(search, world, journal, workers=2, calls=CALLS).run())
    took = time.perf_counter() - began
    journal.close()
    rate, ideal = world.proposals / took, CALLS / LATENCY
    print(f"{name:<28} {rate:6.2f} proposals/s of {ideal:.0f} ideal  = {100 * rate / ideal:5.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        measure("polca, 8 lanes of 1", Polca(explore=1, batch=1, lanes=8, summarizer=None), seconds, Path(folder))
        measure("map_elites, 8 lanes", MapElites(lanes=8), seconds, Path(folder))
        measure("polca, 1 lane of 5 (barrier)", Polca(explore=5, batch=1), seconds, Path(folder))


if __name__ == "__main__":
    main()
