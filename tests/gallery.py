"""Whole runs to look at, made in a moment.

Any strategy on a virtual clock, journaled as a real run would be.

The world is a landscape with a known truth, but its candidates are programs, its proposals carry
prompts, replies, tokens and dollars, and things go wrong now and then, so that every page of the
dashboard has something to show.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import (
    Custom,
    EditRequest,
    Edits,
    Effect,
    EmbedRequest,
    Entry,
    EvaluateRequest,
    ProposeRequest,
    Result,
    Vectors,
    WriteRequest,
)
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.store.database import RunMeta

_PROGRAM = '''\
"""Revision {serial}: {idea}."""

import math

SKILL = {mu!r}
STEPS = {steps}


def run(size: int = 26) -> list[float]:
    """Radii that {idea}."""
    radii = []
    for place in range(size):
        angle = 2.0 * math.pi * place / size  # evenly around
        radii.append(SKILL * abs(math.cos(angle)) / STEPS)
    return radii
'''
_IDEAS = (
    "widen the outer ring",
    "use a finer step near the corners",
    "restart from the best three",
    "shrink before growing",
    "swap two neighbours and settle",
    "follow the gradient of the smallest gap",
)
_SKILL = re.compile(r"^SKILL = (\S+)$", re.M)
_WIDTH = 8  # of embeddings


def program(mu: float, serial: int) -> dict[str, str]:
    """A candidate's parts, its true reward `mu` among them."""
    idea = _IDEAS[serial % len(_IDEAS)]
    return {"program.py": _PROGRAM.format(mu=mu, serial=serial, idea=idea, steps=5 + serial % 17)}


def truth(candidate: Candidate) -> float:
    """The reward written in a candidate; 0 where somebody wrote something else."""
    found = _SKILL.search(candidate.text)
    return float(found[1]) if found else 0.0


def task(cases: int = 0, *, deterministic: bool = False, direction: str = "max") -> Task:
    """A task to climb, with this number of training cases, a start and a target."""
    return Task(
        "gallery",
        goal="Place the circles so that their radii sum to as much as possible.",
        seeds=(program(0.2, 0),),
        cases=tuple(Case(f"case-{n}", input=n) for n in range(cases)),
        objective=Objective("min" if direction == "min" else "max", start=0.2, target=0.95),
        deterministic=deterministic,
    )


@dataclass
class Gallery:
    """The world.

    `sigma` is the noise of an observation, `rough` the share of evaluations and replies that fail.
    """

    sigma: float = 0.05
    rough: float = 0.06
    models: tuple[str, ...] = ("small-model", "large-model")
    direction: str = "max"

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            return 0.4 + rng.expovariate(1.0), self.observe(request, rng)
        if isinstance(request, ProposeRequest):
            return 1.0 + rng.expovariate(0.3), self.propose(request.brief, rng)
        if isinstance(request, EmbedRequest):
            return 0.02, self.embed(request)
        if isinstance(request, WriteRequest):
            usage = Usage(calls=1, input_tokens=900, output_tokens=140, dollars=0.0006)
            advice = "Steps near the corners paid off; restarts did not."
            return 2.0, Text(advice, "", self.models[0], usage, "Summarise what was seen.", advice)
        if isinstance(request, EditRequest):
            size = len(request.options.get("vectors", ()))
            labels = [n % int(request.options.get("k", 1)) for n in range(size)]
            return 0.05, Edits(data={"labels": labels})
        return 0.05, Custom()

    def observe(self, request: EvaluateRequest, rng: Random) -> Observation:
        """The truth with noise, or a failure."""
        name, case, level = (
            request.candidate.id,
            request.case.id if request.case else "",
            rng.random(),
        )
        if level < self.rough:
            status = (Status.ERROR, Status.TIMEOUT, Status.INVALID)[int(level / self.rough * 3)]
            reason = {"error": "exception", "timeout": "wall_clock", "invalid": "score_nan"}[
                status.value
            ]
            told = (
                f"The program stopped after {20 * rng.random():.1f} s: {reason.replace('_', ' ')}."
            )
            return Observation(
                name, status, None, case, reason, feedback=told, seconds=0.9, seed=request.seed
            )
        score = truth(request.candidate) + (rng.gauss(0.0, self.sigma) if self.sigma else 0.0)
        score = score if self.direction == "max" else 1.0 - score
        return Observation(
            name,
            Status.OK,
            score,
            case,
            metrics={"gap": abs(1.0 - score), "radius": score / 26},
            feedback=f"The smallest gap is {abs(1.0 - score) / 26:.4f}.",
            seconds=0.4 + rng.random(),
            seed=request.seed,
            trust="verified",
            artifacts={"stdout": f"settled after {int(300 * rng.random())} steps\n"},
        )

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        """`brief.k` children, a little better or worse; sometimes a reply of no use."""
        model = self.models[int(rng.random() < 0.3)]
        spent = Usage(
            calls=1,
            input_tokens=1800 + rng.randrange(900),
            output_tokens=500 * brief.k,
            dollars=0.0031,
        )
        prompt = f"Improve this program.\n\n{brief.parent.text if brief.parent else '(none yet)'}\n{brief.context}"
        if rng.random() < self.rough:
            faults = {"unparsable": 1, "truncated": 1}
            return Proposal(
                (), "", "unparsable", model, spent, prompt, "I would suggest ...", faults
            )
        parent = brief.parent
        base, ids = (truth(parent), (parent.id,)) if parent else (0.2, ())
        children = [
            self._child(base, ids, rank, model, brief.island, rng) for rank in range(brief.k)
        ]
        idea = f"I expect to gain if I {_IDEAS[rng.randrange(len(_IDEAS))]}."
        reply = idea + "\n\n" + "\n\n".join(f"```python\n{child.text}```" for child in children)
        faults = {"rate_limited": 1} if rng.random() < 0.1 else {}
        return Proposal(tuple(children), idea, "", model, spent, prompt, reply, faults)

    def _child(
        self,
        base: float,
        ids: tuple[str, ...],
        rank: int,
        model: str,
        island: int | None,
        rng: Random,
    ) -> Candidate:
        step = (1.0 - base) * 0.12 * rng.random() if rng.random() < 0.3 else -0.15 * rng.random()
        mu = round(max(0.0, min(0.99, base + step)), 6)
        origin = Origin("rewrite", model, rank, island=island)
        return Candidate.of(program(mu, rng.getrandbits(30)), ids, origin)

    def embed(self, request: EmbedRequest) -> Vectors:
        """Unit vectors that turn with the truth, and with the steps of the program."""
        flat: list[float] = []
        for candidate in request.candidates:
            draws = Random(candidate.digest)
            row = [math.cos(3 * truth(candidate)), math.sin(3 * truth(candidate))]
            row += [draws.gauss(0.0, 0.12) for _ in range(_WIDTH - 2)]
            length = math.sqrt(sum(x * x for x in row))
            flat += [x / length for x in row]
        return Vectors(
            len(request.candidates), _WIDTH, struct.pack(f"<{len(flat)}f", *flat), "gallery"
        )


def record(
    folder: Path,
    strategy: Any,
    *,
    budget: Budget | None = None,
    about: Task | None = None,
    world: Any = None,
    seed: int = 1,
    workers: int = 2,
    kill_after: int | None = None,
) -> Path:
    """A run of `strategy` in `folder`, which must hold none: finished, or killed.

    It is deterministic, except for the time it is made. `kill_after` is a number of results.
    """
    from culmen.store.writer import JournalWriter
    from culmen.strategies import catalog
    from culmen.testing.virtual import simulate

    budget, about, world = budget or Budget(evaluations=200), about or task(), world or Gallery()
    run = simulate(
        strategy, about, world, budget, seed=seed, workers=workers, kill_after=kill_after
    )
    model = next(iter(getattr(world, "models", ("world",))))
    meta = RunMeta(
        folder.name,
        about,
        catalog.strategy_config(strategy),
        models={"proposer": model, "summarizer": model},
        budget=budget,
        seed=seed,
        workers=workers,
        isolation="namespaces",
        created=1_760_000_000.0,
        model=model,
        embedder="gallery",
    )
    entries = [_seeds(about), Entry("state", body={"state": "running"})]
    entries += [event.entry for event in run.journal.read()]
    ended: dict[str, Any] = {"state": "finished", "reason": run.search.reason}
    if run.verdict is not None:
        ended["winner"] = msgspec.to_builtins(run.verdict)
    if not run.killed:
        entries.append(Entry("state", body=ended, elapsed=run.seconds))
    folder.mkdir(parents=True)
    writer, _ = JournalWriter.open(folder, meta)
    times = [meta.created + entry.elapsed for entry in entries]
    for start in range(0, len(entries), 50):  # a point of the progress series after each
        writer.append(entries[start : start + 50], times[start : start + 50])
    writer.close()
    return folder


def _seeds(about: Task) -> Entry:
    return Entry(
        "note",
        effect="seeds",
        body={"note": "seeds"},
        result=Proposal(candidates=about.starting_candidates()),
    )
