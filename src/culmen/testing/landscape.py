"""A simulated task with a known truth: the landscape of POLCA's analysis.

Section 4, Assumption 1. Every candidate has a true reward mu in [0, B], written in its text. A
proposal improves its parent by a little more than gamma with probability delta0 and is worse
otherwise; an observation is mu plus Gaussian noise of deviation sigma; embeddings are an arc along
mu, so candidates of equal reward are the same in meaning, and candidates that differ are apart.
Everything is drawn from the effect's own seed: the outcome of an effect never depends on when it is
performed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import (
    WAIT,
    Custom,
    CustomRequest,
    EditRequest,
    Edits,
    Effect,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Result,
    Vectors,
    WriteRequest,
)
from culmen.core.extensions import find_part
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.engine.lab import pack_vectors
from culmen.strategies.pacevolve.advisor import from_menu

PART = "program"


def landscape_program(mu: float, serial: int = 0) -> dict[str, str]:
    """The parts of a candidate with true reward `mu`; `serial` makes it a text of its own."""
    return {PART: f"mu={mu!r}\nserial={serial}\n"}


def written_reward(candidate: Candidate) -> float:
    """The true reward written in a candidate."""
    return float(next(iter(candidate.parts.values())).partition("\n")[0].removeprefix("mu="))


def task(*, deterministic: bool | None = None, seeds: Sequence[float] = (0.0,)) -> Task:
    """A task whose seeds have these true rewards; none for a search from scratch."""
    return Task(
        "landscape",
        goal="climb",
        seeds=tuple(landscape_program(mu) for mu in seeds),
        deterministic=deterministic,
    )


@dataclass(frozen=True)
class Restart:
    """A failed proposal starts from nothing (the worst case in the proof of Theorem 2)."""

    def fallen_reward(self, mu: float, rng: Random) -> float:
        return 0.0


@dataclass(frozen=True)
class Slip:
    """A failed proposal is worse than its parent by up to `depth`, uniformly, but not below 0."""

    depth: float = 0.2

    def fallen_reward(self, mu: float, rng: Random) -> float:
        return max(0.0, mu - self.depth * rng.random())


@dataclass(frozen=True)
class Faults:
    """Probabilities of failures.

    Of an evaluation to raise, to time out or to be lost, of a proposal to be empty or to repeat its
    parent, of a summary to be missing.
    """

    error: float = 0.0
    timeout: float = 0.0
    lost: float = 0.0
    empty: float = 0.0
    repeat: float = 0.0
    silent: float = 0.0


@dataclass(frozen=True)
class Landscape:
    """The world.

    `bound` is B, `failure` the law of a failed proposal; durations are mean virtual seconds. A
    success adds gamma times a factor just above 1 (the worst case that Assumption 1 allows), never
    beyond B. `blur` (radians) spreads embeddings sideways, at random by candidate: equal reward is
    then no longer equal meaning.
    """

    gamma: float = 0.1
    delta0: float = 0.3
    sigma: float = 0.0
    bound: float = 1.0
    failure: Restart | Slip = field(default=Slip())
    faults: Faults = field(default=Faults())
    blur: float = 0.0
    evaluate_seconds: float = 1.0
    propose_seconds: float = 5.0

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            draws = Random(f"{request.seed}/{request.candidate.digest}")
            return rng.expovariate(1.0) * self.evaluate_seconds, self.observe(
                request.candidate, request.seed, draws
            )
        if isinstance(request, ProposeRequest):
            return rng.expovariate(1.0) * self.propose_seconds, self.propose(
                request.brief, Random(request.seed)
            )
        if isinstance(request, EmbedRequest):
            return 0.01, self.embed(request.candidates)
        if isinstance(request, WriteRequest):
            return rng.expovariate(1.0) * self.propose_seconds, self.write(request)
        if isinstance(request, EditRequest):
            return 0.01, self.cluster(request) if request.tool == "kmeans" else Edits(
                fault="unsupported"
            )
        simulate = find_part("simulators", effect.kind.partition(".")[0])
        if simulate is not None:
            empty = max(self.faults.empty, self.faults.repeat)
            return simulate(request, rng, self.any_program, empty)
        if isinstance(request, CustomRequest) and request.kind.startswith("train."):
            return 1.0, self.train(request)
        if isinstance(request, CustomRequest) and request.kind == WAIT:
            return float(request.payload["seconds"]), Custom()
        return 0.01, Custom()

    def write(self, request: WriteRequest) -> Text:
        """Advice without preferences, or a summary; nothing if the model fails."""
        rng = Random(request.seed)
        if rng.random() < self.faults.silent:
            return Text(fault="empty", usage=Usage(calls=1))
        role, _, step = request.role.partition(".")
        text = (
            from_menu(step, request.slots, rng) if role == "advisor" else "<summary>climb</summary>"
        )
        return Text(text, usage=Usage(calls=1))

    def any_program(self, draw: Random) -> dict[str, str]:
        """A program of any reward, like those of agents."""
        return landscape_program(self.bound * draw.random(), draw.getrandbits(40))

    def train(self, request: CustomRequest) -> Custom:
        """A policy that never learns: menu replies, and updates that only count the version."""
        payload = request.payload
        if request.kind == "train.open":
            return Custom({"version": 0})
        if request.kind == "train.update":
            return Custom({"version": payload["version"] + 1, "entropy": 1.0, "grad_norm": 1.0})
        rng = Random(request.seed)
        silent = rng.random() < self.faults.silent
        text = "" if silent else from_menu(payload["step"], payload["slots"], rng)
        sample = {
            "prompt": [0],
            "response": [1],
            "logprobs": [-1.0],
            "version": payload["version"],
            "text": text,
        }
        return Custom({"sample": sample, "text": text}, Usage(calls=1))

    def cluster(self, request: EditRequest) -> Edits:
        """Stands in for k-means: equal slices along the landscape, cluster by cluster upwards."""
        vectors: list[list[float]] = request.options["vectors"]
        k = int(request.options["k"])
        order = sorted(range(len(vectors)), key=lambda i: (vectors[i][1], i))
        labels = [0] * len(vectors)
        for place, i in enumerate(order):
            labels[i] = place * k // len(vectors)
        return Edits(data={"labels": labels})

    def observe(self, candidate: Candidate, seed: int, rng: Random) -> Observation:
        """mu plus noise, or a failure."""
        level = rng.random()
        for status, chance in (
            (Status.ERROR, self.faults.error),
            (Status.TIMEOUT, self.faults.timeout),
            (Status.LOST, self.faults.lost),
        ):
            if level < chance:
                return Observation(
                    candidate.id, status, reason="injected", seed=seed, feedback="it failed"
                )
            level -= chance
        score = written_reward(candidate) + (rng.gauss(0.0, self.sigma) if self.sigma else 0.0)
        return Observation(
            candidate.id,
            Status.OK,
            score,
            seed=seed,
            feedback=f"score {score:.3f}",
            trust="verified",
        )

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        """`brief.k` proposals by Assumption 1, or none."""
        if rng.random() < self.faults.empty:
            return Proposal(fault="empty", usage=Usage(calls=1))
        candidates = tuple(self.child(brief.parent, rank, rng) for rank in range(brief.k))
        return Proposal(candidates, model="landscape", usage=Usage(calls=1))

    def child(self, parent: Candidate | None, rank: int, rng: Random) -> Candidate:
        """One proposal; without a parent it starts at 0."""
        if parent is None:
            return Candidate.of(
                landscape_program(0.0, rng.getrandbits(40)), (), Origin("landscape", rank=rank)
            )
        if rng.random() < self.faults.repeat:
            return Candidate.of(parent.parts, (parent.id,), Origin("landscape", rank=rank))
        mu = written_reward(parent)
        if rng.random() < self.delta0:
            mu = min(self.bound, mu + self.gamma * (1.0 + 1e-6 + 1e-3 * rng.random()))
        else:
            mu = self.failure.fallen_reward(mu, rng)
        return Candidate.of(
            landscape_program(mu, rng.getrandbits(40)), (parent.id,), Origin("landscape", rank=rank)
        )

    def embed(self, candidates: Sequence[Candidate]) -> Vectors:
        """Points on a quarter of a great circle, at the angle of mu, moved off it by the blur."""
        rows: list[tuple[float, ...]] = []
        for candidate in candidates:
            along = math.pi / 2 * written_reward(candidate) / self.bound
            aside = self.blur * (2.0 * int(candidate.digest[:8], 16) / 0xFFFFFFFF - 1.0)
            arc = math.cos(along) * math.cos(aside), math.sin(along) * math.cos(aside)
            rows.append((*arc, math.sin(aside)))
        return pack_vectors(rows, "landscape")

    def net_size(self, epsilon: float) -> int:
        """N_epsilon: the most candidates that can be epsilon (> 0) apart, without blur."""
        angle = 2.0 * math.asin(min(1.0, epsilon / 2.0))
        return 1 + int(math.pi / 2 / angle + 1e-9)
