"""Islands: a grid's costs per candidate, savings by several candidates per request.

Also that no island idles.

    python bench/bench_islands.py

CPU times are of this process; calls and the trace come from a virtual clock, where a request takes
5 s and an evaluation 1 s on average (exponential), so that they are the same on every machine.
"""

from __future__ import annotations

import time
from collections import defaultdict
from random import Random
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.event import ProposeRequest
from culmen.core.usage import Budget
from culmen.extensions.baselines.openevolve import OpenEvolve
from culmen.strategies.memory.grid import Axis, Elite, Grid, GridIsland, Selection
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import Simulation, simulate

CANDIDATES = 10_000
EVALUATIONS = 2000


def grid_costs(bins: int) -> None:
    """Mean CPU per insertion and per draw of parent and inspirations."""
    rng = Random(0)
    island = GridIsland(Grid([Axis("complexity", bins), Axis("diversity", bins)]), Selection())
    elites = [
        Elite(
            Rollout(Candidate.of({"p": str(n)}), (), ()),
            rng.gauss(n / 2000, 1),
            (rng.gauss(0, 1), rng.gauss(0, 1)),
        )
        for n in range(CANDIDATES)
    ]
    begun = time.process_time()
    for elite in elites:
        island.grid.offer_elite(elite)
    inserted = time.process_time()
    for _ in range(CANDIDATES):
        parent = island.draw_parent(rng)
        assert parent is not None
    drawn = time.process_time()
    for _ in range(CANDIDATES):
        island.draw_inspirations(island.grid.elite_at_rank(0), rng)
    shown = time.process_time()
    costs = ((inserted - begun), (drawn - inserted), (shown - drawn))
    told = "  ".join(
        f"{name} {1e3 * cost / CANDIDATES:.4f} ms"
        for name, cost in zip(("insert", "parent", "shown"), costs)
    )
    print(f"grid of {bins} x {bins}: {told}  ({len(island)} cells taken)")


def calls(run: Simulation) -> tuple[float, float, float]:
    """Requests per evaluated candidate, re-queries included, and the mean K.

    Requests are those of all turns, and of their second half.
    """
    requests, turns = 0, list[tuple[int, int, int]]()  # requests so far, candidates judged, K
    for entry in (event.entry for event in run.journal.read()):
        requests += entry.kind == "done" and entry.effect == "propose"
        if entry.body.get("note") == "event":
            judged = sum(child["status"] != "known" for child in entry.body["candidates"])
            turns.append((requests, judged, entry.body["k"]))
    late = turns[len(turns) // 2 :]
    steady = (late[-1][0] - late[0][0]) / max(1, sum(judged for _, judged, _ in late[1:]))
    return (
        requests / sum(judged for _, judged, _ in turns),
        steady,
        sum(k for _, _, k in turns) / len(turns),
    )


def request_savings() -> None:
    """Model requests per evaluated candidate against K = 1.

    On an easy, a hard and a faulty landscape.
    """
    worlds = {
        "easy (30% of proposals improve)": Landscape(delta0=0.3, gamma=0.002),
        "hard (3%)": Landscape(delta0=0.03, gamma=0.002),
        "faulty (10% empty, 10% repeats, 10% errors)": Landscape(
            delta0=0.1, gamma=0.002, faults=Faults(empty=0.1, repeat=0.1, error=0.1)
        ),
    }
    for name, world in worlds.items():
        budget = Budget(evaluations=EVALUATIONS)
        turbo = calls(simulate(TurboEvolve(), task(), world, budget, workers=8))
        plain = calls(simulate(OpenEvolve(), task(), world, budget, workers=8))
        print(
            f"{name}: requests per candidate {turbo[0]:.3f} (steady {turbo[1]:.3f}), mean K {turbo[2]:.2f}; "
            f"K = 1: {plain[0]:.3f}; ratio {turbo[1] / plain[1]:.3f}"
        )


def idle_trace() -> None:
    """One island's requests are twenty times slower.

    The others' turns must not slow down with it.
    """

    class Slow(Landscape):
        def perform(self, effect: Any, rng: Random) -> Any:
            seconds, result = super().perform(effect, rng)
            slow = isinstance(effect.request, ProposeRequest) and effect.request.brief.island == 0
            return seconds * (20 if slow else 1), result

    print("turns by virtual time, island 0 asks a model twenty times slower (8 workers):")
    for label, world in (("all alike", Landscape(delta0=0.1)), ("island 0 slow", Slow(delta0=0.1))):
        run = simulate(
            TurboEvolve(islands=4), task(), world, Budget(seconds=600.0, final=0.0), workers=8
        )
        ends: dict[int, list[float]] = defaultdict(list)
        for event in run.journal.read():
            if event.entry.body.get("note") == "event":
                ends[event.entry.body["island"]].append(event.entry.elapsed)
        for island in sorted(ends):
            line = "".join(
                "#" if any(t <= e < t + 10 for e in ends[island]) else "."
                for t in range(0, 600, 10)
            )
            print(f"  {label:14} island {island}: {len(ends[island]):3d} turns  {line}")


def main() -> None:
    for bins in (10, 100):
        grid_costs(bins)
    request_savings()
    idle_trace()


if __name__ == "__main__":
    main()
