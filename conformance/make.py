"""Makes the vectors anew from culmen's own strategies: python conformance/make.py"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from culmen.core.candidate import Candidate
from culmen.core.usage import Budget
from culmen.extensions.train import objectives
from culmen.strategies.island_loops import Adaptive
from culmen.strategies.memory.epsilon_net import EpsilonNet
from culmen.strategies.polca import Polca
from culmen.strategies.seed_pool import copy_and_mix
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

VECTORS = Path(__file__).with_name("vectors")
GROUPS = (
    ([0.0, 1.0, 2.0, 4.0], 2, 0.0),
    ([3.0, 3.0, 1.0, 0.5, 0.5], 3, 0.25),
    ([1.0, 1.0, 1.0, 2.0, 2.0, 0.0], 3, 0.5),
    ([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 0.05, 0.3], 4, 0.75),
    ([2.5, 2.5, 2.4, 2.49, 2.5, 1.0, 0.0], 4, 1.0),
    ([3.0001, 3.0002, 3.0004, 3.0003], 3, 0.9),
)


class Recorded:
    """A strategy that records the rewards it receives, and its notes."""

    def __init__(self, strategy: Any) -> None:
        self._strategy, self.records = strategy, list[tuple[str, Any]]()

    async def search(self, lab: Any) -> None:
        await self._strategy.search(_RecordingLab(lab, self.records))


class _RecordingLab:
    def __init__(self, lab: Any, records: list[tuple[str, Any]]) -> None:
        self._lab, self._records = lab, records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lab, name)

    async def evaluate(self, candidate: Candidate, *args: Any) -> Any:
        rollout = await self._lab.evaluate(candidate, *args)
        self._records.append(("rewards", (candidate.id, list(rollout.rewards))))
        return rollout

    def note(self, kind: str, **facts: Any) -> None:
        self._records.append((kind, facts))
        self._lab.note(kind, **facts)


def polca_search(seed: int, strategy: Polca | None = None) -> dict[str, Any]:
    """The trace of one search by POLCA on a noisy landscape."""
    strategy = strategy or Polca(explore=2, batch=1, epsilon=0.05, summarizer=None)
    recorded, world = Recorded(strategy), Landscape(sigma=0.2)
    simulate(recorded, task(), world, Budget(evaluations=60, final=0.0), seed=seed, order="request")
    trace: dict[str, Any] = {"explore": strategy.explore, "rounds": []}
    trace["initial"] = [Candidate.of(parts).id for parts in task().seeds]
    observed: dict[str, list[float]] = {}
    for kind, facts in recorded.records:
        if kind == "rewards":
            observed.setdefault(facts[0], []).extend(facts[1])
        if kind == "priority":
            trace["rounds"].append(_polca_round(facts["parents"], observed))
            observed = {}
    return trace


def _polca_round(parents: list[Any], observed: Mapping[str, list[float]]) -> dict[str, Any]:
    names = [row["id"] for row in parents]
    return {
        "parents": names,
        "observed": {name: observed[name] for name in names},
        "admitted": {name: seen for name, seen in observed.items() if name not in names},
        "statistics": {row["id"]: [row["count"], row["mean"]] for row in parents},
    }


def polca_filter(seed: int, net: EpsilonNet | None = None) -> dict[str, Any]:
    """One use of the semantic filter on points with ties and duplicates."""
    rng, net = Random(seed), EpsilonNet(0.5) if net is None else net
    points = [[rng.randrange(-16, 17) / 16 for _ in range(3)] for _ in range(14)]
    points += points[2:3]
    candidates = [Candidate.of({"p.py": f"# {n}"}) for n in range(len(points))]
    vectors = [np.array(point, np.float32) for point in points]
    net.add(candidates[:3], vectors[:3])
    admitted = net.admit(candidates[3:], vectors[3:])
    places = [candidates[3:].index(each) for each in admitted]
    return {"epsilon": 0.5, "memory": points[:3], "raw": points[3:], "admitted": places}


def turboevolve_schedules(seed: int, width: Adaptive | None = None) -> list[dict[str, Any]]:
    """The K of each island of one search, turn by turn."""
    width = width or Adaptive()
    strategy = TurboEvolve(islands=2, width=width, lanes=1)
    world, budget = Landscape(), Budget(evaluations=150, final=0.0)
    run = simulate(strategy, task(), world, budget, seed=seed, order="request", trial=False)
    turns: dict[int, list[Any]] = {}
    for event in run.journal.read():
        body = event.entry.body
        if event.entry.kind == "note" and body.get("note") == "event":
            fates = [each["outcome"] for each in body["candidates"] if "outcome" in each]
            turns.setdefault(body["island"], []).append({"k": body["k"], "outcomes": fates})
    facts = {"start": 5, "least": 1, "most": 7, "step": 2, "window": 3, "warmup": 3}
    updates = ["new", "replaced"] if width.new_cells else ["replaced"]
    return [{**facts, "updates": updates, "turns": each} for each in turns.values()]


def turboevolve_mix(seed: int, mix: Any = copy_and_mix) -> dict[str, Any]:
    """Copy-and-mix of clusters of unequal sizes."""
    rng = Random(seed)
    scores = [round(rng.random(), 3) for _ in range(23)]
    order = rng.sample(range(23), 23)
    clusters, d, rho = [order[:10], order[10:17], order[17:]], rng.randrange(8) / 10, 0.2
    mixed = mix(clusters, scores, d, rho, rng)
    return {"d": d, "rho": rho, "scores": scores, "clusters": clusters, "mixed": mixed}


def pacevolve_group(rewards: list[float], k: int, alpha: float) -> dict[str, Any]:
    """All advantages of one group."""
    group, gamma = np.array(rewards), math.log(2)
    raw, sloo = objectives.centred_advantages(group), objectives.sloo_weights(group, k)
    below = (group - group.max()) / np.ptp(group)
    beta = objectives._inverse_temperature(below, gamma) / float(np.ptp(group))
    found = {
        "pkpo": objectives.max_at_k(group, k),
        "sloo": sloo,
        "group": raw,
        "mix": objectives.mixed_advantages(raw, sloo, alpha),
        "entropic": objectives.entropic_advantages(group, gamma),
    }
    facts = {"rewards": rewards, "k": k, "alpha": alpha, "gamma": gamma, "beta": beta}
    return {**facts, **{name: values.tolist() for name, values in found.items()}}


def cato_cases() -> list[dict[str, Any]]:
    """Outputs on the border of three problems, and beyond it by less than a part in a million."""
    third, grid = 1 / 3, [(0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)]
    corners = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [third, third]]
    spread = [[third + (1 + 1.4e-6) * (x - third) for x in point] for point in corners]
    return [
        {"problem": "sum", "output": [third, third, third], "gamed": False},
        {"problem": "sum", "output": [0.1, 0.2, 0.7000000000000002], "gamed": False},
        {"problem": "sum", "output": [third + 9.9e-7, third, third], "gamed": True},
        {"problem": "circles", "output": [[x, y, 0.25] for x, y in grid], "gamed": False},
        {"problem": "circles", "output": [[x, y, 0.25 + 4.9e-7] for x, y in grid], "gamed": True},
        {"problem": "triangle", "output": corners, "gamed": False},
        {"problem": "triangle", "output": spread, "gamed": True},
    ]


def all_documents() -> dict[str, dict[str, Any]]:
    """The document of each paper, by the name of its file."""
    both = (Adaptive(), Adaptive(new_cells=False))
    schedules = [
        each for width in both for n in range(2) for each in turboevolve_schedules(n, width)
    ]
    return {
        "polca": {
            "searches": [polca_search(seed) for seed in range(3)],
            "filters": [polca_filter(seed) for seed in range(8)],
        },
        "turboevolve": {
            "schedules": schedules,
            "mixes": [turboevolve_mix(seed) for seed in range(8)],
        },
        "pacevolve_plus_plus": {"groups": [pacevolve_group(*group) for group in GROUPS]},
        "cato": {"cases": cato_cases()},
    }


if __name__ == "__main__":
    for name, document in all_documents().items():
        text = json.dumps(document, separators=(",", ":"))
        (VECTORS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
