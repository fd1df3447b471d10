"""A world whose metrics tell the mechanism, and a linear advisor that can learn them.

A program has a level, its score, and one of four mechanisms limits it. Each metric is the load of
one mechanism, and the limiting one has the highest. An edit of the kind that relieves it raises the
level by one, and another mechanism becomes the limit; an edit of any other kind costs two levels.
Which kind relieves which mechanism differs from one world to the next and is written nowhere: the
score alone says nothing about it, since each mechanism limits as many programs.

The advisor is a softmax over the four kinds, linear in the metrics that its prompt holds.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, CustomRequest
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.strategies.pacevolve.advisor import Advising, from_menu
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import PART, Landscape
from culmen.testing.virtual import simulate

KINDS = ("numbers", "lines", "operators", "bounds")
RATE = 1.0
LEVELS = 40
ISLANDS = 8


def program(level: float, limit: int, serial: int) -> dict[str, str]:
    return {PART: f"mu={level!r}\nlimit={limit}\nserial={serial}\n"}


def limit_of(candidate: Candidate) -> int:
    return int(candidate.parts[PART].splitlines()[1].removeprefix("limit="))


@dataclass(frozen=True)
class MetricWorld(Landscape):
    """`relieves[j]` is the kind that relieves mechanism j; the prompt may have the metrics.

    `weights` are those of each version of the advisor: kinds by features, a constant first.
    `hits` has, of all decisions, whether the edit relieved the limit.
    """

    relieves: tuple[int, ...] = (0, 1, 2, 3)
    told: bool = True
    weights: list[list[list[float]]] = field(
        default_factory=lambda: [[[0.0] * (1 + len(KINDS)) for _ in KINDS]]
    )
    hits: list[bool] = field(default_factory=list[bool])

    def observe(self, candidate: Candidate, seed: int, rng: Random) -> Observation:
        level, limit = float(candidate.parts[PART].splitlines()[0][3:]), limit_of(candidate)
        loads = {
            f"load_{j}": 1.0 - 0.1 * rng.random() if j == limit else 0.6 * rng.random()
            for j in range(len(KINDS))
        }
        return Observation(
            candidate.id, Status.OK, level, seed=seed, metrics=loads, trust="verified"
        )

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        assert brief.parent is not None
        limit = limit_of(brief.parent)
        level = float(brief.parent.parts[PART].splitlines()[0][3:])
        kind = KINDS.index(brief.hypothesis.partition(":")[0])
        hit = self.relieves[limit] == kind
        self.hits.append(hit)
        if hit:
            limit = rng.choice([j for j in range(len(KINDS)) if j != limit])
        level = level + 1.0 if hit else max(0.0, level - 2.0)
        made = Candidate.of(
            program(level, limit, rng.getrandbits(40)), (brief.parent.id,), Origin("edit")
        )
        return Proposal((made,), model="world", usage=Usage(calls=1))

    def train(self, request: CustomRequest) -> Custom:
        payload = request.payload
        if request.kind == "train.update":
            return self.update(payload)
        if request.kind != "train.sample" or payload["step"] != "generate":
            text = (
                ""
                if request.kind != "train.sample"
                else from_menu(payload["step"], payload["slots"], Random(request.seed))
            )
            return Custom({"version": 0, "sample": {}, "text": text})
        metrics = payload["slots"]["metrics"] if self.told else {}
        features = [1.0, *(metrics.get(f"load_{j}", 0.0) for j in range(len(KINDS)))]
        shares = self.shares(payload["version"], features)
        kind = Random(request.seed).choices(range(len(KINDS)), shares)[0]
        sample = {"features": features, "kind": kind, "version": payload["version"]}
        text = json.dumps({"hypotheses": [f"{KINDS[kind]}: {request.seed}"]})
        return Custom({"sample": sample, "text": text}, Usage(calls=1))

    def shares(self, version: int, features: list[float]) -> list[float]:
        """The probability of each kind."""
        rows = self.weights[version]
        logits = [sum(w * x for w, x in zip(row, features, strict=True)) for row in rows]
        powers = [math.exp(logit - max(logits)) for logit in logits]
        return [power / sum(powers) for power in powers]

    def update(self, payload: dict[str, Any]) -> Custom:
        """One step along the gradient of equation 6, at a ratio of 1."""
        version, batch = payload["version"], payload["batch"]
        rows = [list(row) for row in self.weights[version]]
        for one in batch:
            features, kind = one["sample"]["features"], one["sample"]["kind"]
            for j, share in enumerate(self.shares(version, features)):
                step = RATE * one["advantage"] * ((j == kind) - share) / len(batch)
                rows[j] = [w + step * x for w, x in zip(rows[j], features, strict=True)]
        del self.weights[version + 1 :]
        self.weights.append(rows)
        return Custom({"version": version + 1})


def searched(seed: int, *, told: bool, trained: bool = True, barriers: int = 80) -> dict[str, Any]:
    """One search: share of decisions that relieve the limit, by quarters, and the best level."""
    draw = Random(f"metrics {seed}")
    relieves = tuple(draw.sample(range(len(KINDS)), len(KINDS)))
    world = MetricWorld(relieves=relieves, told=told)
    rules = PacevolvePlusPlus(
        scaffold=Pacevolve(islands=ISLANDS, advising=Advising(hypotheses=1)),
        roles=("generate",),
        objective="phase_adaptive" if trained else "none",
        worst=0.0,
        best=float(LEVELS),
    )
    task = Task("metrics", goal="raise the level", seeds=(program(0.0, 0, 0),), deterministic=True)
    budget = Budget(evaluations=1 + ISLANDS * barriers, final=0.0)
    run = simulate(rules, task, world, budget, seed=seed, workers=ISLANDS, trial=False)
    edges = [round(n * len(world.hits) / 4) for n in range(5)]
    quarters = [world.hits[edges[q] : edges[q + 1]] for q in range(4)]
    best = max(tally.mean for tally in run.search.evidence.account.tallies())
    return {"hits": [sum(part) / len(part) for part in quarters], "best": best}
