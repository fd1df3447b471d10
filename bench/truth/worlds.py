"""A family of simulated tasks with known truths: `FAMILY`, by name.

Strategies are compared on them. Every candidate has a hidden quality in 0..1 (`quality`), and its
reward is a function of that. Tasks differ in the relation of children to parents (`shape`), in the
noise of an evaluation, and in oddities of the scores. One step is 0.05. Half of the family
(`HELD_OUT`) was never looked at while constants were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from msgspec.structs import replace as replaced

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.json import JsonObject
from culmen.core.task import Objective, Task, parse_constraint, parse_metric_goals
from culmen.core.usage import Usage
from culmen.testing.landscape import PART, Landscape

STEP = 0.05
START = 0.10
GENES, LINKS = 20, 4  # of the rugged shape: NK landscapes (Kauffman and Levin, 1987)

Shape = Callable[["Genome", Random, int], "Genome"]


@dataclass(frozen=True)
class Genome:
    """Hidden properties of a candidate: its quality, and its basin or genes.

    `broken` is True if it always fails.
    """

    quality: float
    genes: int = 0
    broken: bool = False

    def genome_parts(self, serial: int) -> dict[str, str]:
        """The text of a candidate; `serial` makes it one of its own."""
        return {
            PART: (
                f"mu={self.quality!r}\nserial={serial}\ngenes={self.genes}\nbroken={int(self.broken)}\n"
            )
        }


def candidate_genome(candidate: Candidate) -> Genome:
    """The properties in a candidate's text."""
    lines = dict(line.split("=") for line in candidate.text.splitlines())
    return Genome(float(lines["mu"]), int(lines["genes"]), lines["broken"] == "1")


def hidden_quality(candidate: Candidate) -> float:
    """The hidden quality of a candidate, 0..1."""
    return candidate_genome(candidate).quality


def _moved_genome(
    parent: Genome, rng: Random, better: float, same: float, gain: float = STEP, most: float = 1.0
) -> Genome:
    """Better by `gain` with probability `better`, the same with `same`, else worse.

    The loss is exponential.
    """
    draw, value = rng.random(), parent.quality
    if draw < better:
        value += gain
    elif draw >= better + same:
        value -= rng.expovariate(1 / 0.06)
    return replace(parent, quality=min(most, max(0.0, value)))


def smooth_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """A child is a step better with probability 0.15, the same with 0.21, else worse.

    The mean loss is 0.06.
    """
    return _moved_genome(parent, rng, 0.15, 0.21)


def flat_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Gains are rare (0.05) and most children are the same."""
    return _moved_genome(parent, rng, 0.05, 0.70)


def needle_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """One child in fifty is far better (0.15), no other child is better at all."""
    return _moved_genome(parent, rng, 0.02, 0.28, gain=0.15)


def ruins_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Half of the children are ruined: they run, and score a fifth of their parent.

    The others are as in `smooth`.
    """
    if rng.random() < 0.5:
        return replace(parent, quality=0.2 * parent.quality)
    return smooth_shape(parent, rng, world)


def deceptive_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """A first basin that ends at 0.5, and another, 0.1 to 0.2 lower, that ends at 1.

    One child in ten falls into the other basin.
    """
    if not parent.genes and rng.random() < 0.1:
        return Genome(max(0.0, parent.quality - 0.1 - 0.1 * rng.random()), 1)
    return _moved_genome(parent, rng, 0.15, 0.21, most=1.0 if parent.genes else 0.5)


def rugged_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """One or two of 20 genes change, each of which depends on four others."""
    genes = parent.genes
    for _ in range(1 if rng.random() < 0.7 else 2):
        genes ^= 1 << rng.randrange(GENES)
    return Genome(_gene_fitness(genes, world), genes)


@cache
def _gene_tables(world: int) -> list[list[float]]:
    rng = Random(f"nk/{world}")
    return [[rng.random() for _ in range(2 ** (LINKS + 1))] for _ in range(GENES)]


def _gene_fitness(genes: int, world: int) -> float:
    total = 0.0
    for i, table in enumerate(_gene_tables(world)):
        index = 0
        for j in range(LINKS + 1):
            index = 2 * index + (genes >> ((i + j) % GENES) & 1)
        total += table[index]
    return total / GENES


def plain_reward(value: float) -> float:
    """The reward is the quality."""
    return value


@dataclass(frozen=True)
class SimulatedWorld(Landscape):
    """One member of the family.

    `noise` is the deviation of an evaluation in units of quality; `tails` Student's degrees of
    freedom (0: normal); `unequal`: each candidate has a noise of its own, log-normal about it;
    `coin`: scores are 0 or 1 with the quality as chance. `reward` maps quality to the score; all is
    multiplied by `unit`. `broken` is the share of children that always fail (with `absurd`, they
    score that instead), `flaky` the chance of any evaluation to fail. `twins`: one child in three
    may be the text of an older one. `cases` of a data set have effects of deviation `effect`, and
    interactions with each candidate of `interaction`; with `answers` each has a difficulty in 0..1
    instead, and the score is 1 if quality and interaction exceed it, else 0. `cross`: three
    children in ten are of one inspiration, too.
    """

    shape: Shape = smooth_shape
    noise: float = 0.0
    tails: int = 0
    unequal: float = 0.0
    coin: bool = False
    unit: float = 1.0
    reward: Callable[[float], float] = plain_reward
    broken: float = 0.0
    absurd: float | None = None
    flaky: float = 0.0
    twins: bool = False
    cross: bool = False
    cases: int = 0
    effect: float = 0.0
    interaction: float = 0.0
    answers: bool = False
    number: int = 0  # of the world, among those with these parameters: one for each random seed
    evaluate_seconds: float = 1.0
    propose_seconds: float = 1.0

    def task(self) -> Task:
        """The task of this world.

        Its initial program has quality 0.1 (rugged: that of random genes).
        """
        first = Genome(START)
        if self.shape is rugged_shape:
            genes = Random(f"start/{self.number}").getrandbits(GENES)
            first = Genome(_gene_fitness(genes, self.number), genes)
        cases = tuple(Case(f"case-{k}", k) for k in range(self.cases))
        bounds = (0.0, 1.0) if self.coin or self.answers else (0.0 if self.flaky else None, None)
        return Task(
            "world",
            goal="climb",
            seeds=(first.genome_parts(0),),
            cases=cases,
            objective=Objective(bounds=bounds),
        )

    def truth(self, candidate: Candidate) -> float:
        """The expected score of a candidate over evaluations and cases, failures at 0."""
        genome = candidate_genome(candidate)
        if genome.broken:
            return 0.0
        value = self.unit * self.reward(genome.quality)
        if self.answers:
            return (
                sum(self._case_answer(candidate, f"case-{k}") for k in range(self.cases))
                / self.cases
            )
        if self.cases:
            shifts = [self._case_shift(candidate, f"case-{k}") for k in range(self.cases)]
            value += self.unit * sum(shifts) / len(shifts)
        return value * (1.0 - self.flaky)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            case = request.case.id if request.case else ""
            draws = Random(f"{request.seed}/{request.candidate.digest}/{case}")
            score = self._draw_score(request.candidate, case, draws)
            status = Status.ERROR if score is None else Status.OK
            observation = Observation(
                request.candidate.id, status, score, case, seed=request.seed, trust="verified"
            )
            return rng.expovariate(1.0) * self.evaluate_seconds, observation
        if isinstance(request, ProposeRequest):
            return rng.expovariate(1.0) * self.propose_seconds, self.propose(
                request.brief, Random(request.seed)
            )
        return super().perform(effect, rng)

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        """`brief.k` children."""
        children = tuple(self._born_child(brief, rank, rng) for rank in range(brief.k))
        return Proposal(
            children,
            model="world",
            usage=Usage(calls=1, input_tokens=2000, output_tokens=800 * brief.k),
        )

    def _born_child(self, brief: Brief, rank: int, rng: Random) -> Candidate:
        assert brief.parent is not None
        parent, parents = candidate_genome(brief.parent), (brief.parent.id,)
        if self.cross and brief.inspirations and rng.random() < 0.3:
            other = brief.inspirations[0].candidate
            parent, parents = (
                replace(parent, quality=(parent.quality + hidden_quality(other)) / 2),
                (*parents, other.id),
            )
        child = self.shape(parent, rng, self.number)
        if self.broken and rng.random() < self.broken:
            child = replace(child, broken=True)
        serial = rng.getrandbits(40)
        if self.twins and rng.random() < 1 / 3:
            child, serial = replace(child, quality=round(child.quality / STEP) * STEP), 0
        return Candidate.of(child.genome_parts(serial), parents, Origin("world", rank=rank))

    def _draw_score(self, candidate: Candidate, case: str, draws: Random) -> float | None:
        genome = candidate_genome(candidate)
        if genome.broken:
            return self.absurd
        if self.flaky and draws.random() < self.flaky:
            return None
        if self.answers:
            return self._case_answer(candidate, case)
        if self.coin:
            return float(draws.random() < genome.quality)
        value = self.reward(genome.quality) + (self._case_shift(candidate, case) if case else 0.0)
        return self.unit * (value + self._draw_noise(candidate, draws))

    def _case_answer(self, candidate: Candidate, case: str) -> float:
        """1.0 if the candidate's answer to a case is right, else 0.0."""
        difficulty = Random(f"difficulty/{self.number}/{case}").random()
        return float(
            candidate_genome(candidate).quality + self._case_shift(candidate, case) > difficulty
        )

    def _draw_noise(self, candidate: Candidate, draws: Random) -> float:
        if not self.noise:
            return 0.0
        spread = (
            math.exp(self.unequal * Random(f"noise/{candidate.digest}").gauss(0, 1))
            if self.unequal
            else 1.0
        )
        tail = (
            math.sqrt(self.tails / (2 * draws.gammavariate(self.tails / 2, 1.0)))
            if self.tails
            else 1.0
        )
        return self.noise * spread * tail * draws.gauss(0, 1)

    def _case_shift(self, candidate: Candidate, case: str) -> float:
        """Effect of the case, and of this case on this candidate."""
        common = self.effect * Random(f"effect/{self.number}/{case}").gauss(0, 1)
        return common + self.interaction * Random(f"shift/{candidate.digest}/{case}").gauss(0, 1)


def decades_reward(value: float) -> float:
    """A loss that falls from 1000 to 0.1 as quality rises, as a reward."""
    return -(10.0 ** (3.0 - 4.0 * value))


def ceiling_reward(value: float) -> float:
    """Nothing above 0.6 pays."""
    return min(value, 0.6)


TUNED: dict[str, SimulatedWorld] = {
    "smooth": SimulatedWorld(),
    "smooth, noise 2 steps": SimulatedWorld(noise=0.1),
    "smooth, noise 6 steps": SimulatedWorld(noise=0.3),
    "flat": SimulatedWorld(shape=flat_shape),
    "flat, noise 2 steps": SimulatedWorld(shape=flat_shape, noise=0.1),
    "rugged": SimulatedWorld(shape=rugged_shape),
    "rugged, noise 1 step": SimulatedWorld(shape=rugged_shape, noise=0.05),
    "needle": SimulatedWorld(shape=needle_shape),
    "deceptive": SimulatedWorld(shape=deceptive_shape),
    "deceptive, noise 1 step": SimulatedWorld(shape=deceptive_shape, noise=0.05),
    "Student noise": SimulatedWorld(noise=0.05, tails=2),
    "0/1 scores": SimulatedWorld(coin=True),
    "data set": SimulatedWorld(noise=0.05, cases=30, effect=0.3, interaction=0.1),
    "broken children": SimulatedWorld(noise=0.1, broken=0.3),
    "ruined children": SimulatedWorld(shape=ruins_shape, noise=0.05),
    "right answers": SimulatedWorld(cases=24, interaction=0.2, answers=True),
}
HELD_OUT: dict[str, SimulatedWorld] = {
    "smooth, noise 1 step": SimulatedWorld(noise=0.05),
    "smooth, noise 4 steps": SimulatedWorld(noise=0.2),
    "needle, noise 2 steps": SimulatedWorld(shape=needle_shape, noise=0.1),
    "rugged, noise 2 steps": SimulatedWorld(shape=rugged_shape, noise=0.1),
    "deceptive, noise 2 steps": SimulatedWorld(shape=deceptive_shape, noise=0.1),
    "unequal noise": SimulatedWorld(noise=0.05, unequal=1.0),
    "exact data set": SimulatedWorld(cases=20, effect=0.3, interaction=0.1),
    "ceiling": SimulatedWorld(noise=0.1, reward=ceiling_reward),
    "unit 1e6": SimulatedWorld(noise=0.1, unit=1e6),
    "unit 1e-6": SimulatedWorld(unit=1e-6),
    "losses over decades": SimulatedWorld(reward=decades_reward),
    "scores of -1e9": SimulatedWorld(noise=0.05, broken=0.2, absurd=-1e9),
    "flaky": SimulatedWorld(noise=0.05, flaky=0.2),
    "twins": SimulatedWorld(noise=0.1, twins=True),
    "crossovers": SimulatedWorld(noise=0.1, cross=True),
    "ruined children, noise 2 steps": SimulatedWorld(shape=ruins_shape, noise=0.1),
    "right answers, ruined children": SimulatedWorld(
        shape=ruins_shape, cases=24, interaction=0.1, answers=True
    ),
}
FAMILY = {**TUNED, **HELD_OUT}


@dataclass(frozen=True)
class FrontWorld(Landscape):
    """Two objectives, `speed` to be minimised in units of a thousandth, and a known front.

    A candidate has a quality q in 0..1, which moves as in the smooth shape, and a place on the
    trade-off a in 0..1, which moves by normal steps of 0.15. Accuracy is q cos(a pi/2) ** bend and
    speed 1e-3 (1 - q sin(a pi/2) ** bend): bend 1 is a quarter circle, above 2 a hollow front of
    which weighted sums find the ends alone. `noise` is the deviation of both, in units of quality;
    `flaky` the chance of any evaluation to fail, `blank` to lack a metric.
    """

    noise: float = 0.1
    bend: float = 1.0
    flaky: float = 0.0
    blank: float = 0.0
    constraints: tuple[str, ...] = ()
    evaluate_seconds: float = 1.0
    propose_seconds: float = 1.0

    def task(self) -> Task:
        """The task of this world; its initial program has quality 0.1, halfway."""
        limits = tuple(map(parse_constraint, self.constraints))
        objective = Objective(metrics=parse_metric_goals(self.objectives), constraints=limits)
        return Task(
            "front", goal="climb", seeds=(_placed_parts(START, 0.5, 0),), objective=objective
        )

    @property
    def objectives(self) -> JsonObject:
        """The objectives as a person writes them."""
        return {
            "accuracy": {"direction": "max", "reference": 0.0},
            "speed": {"direction": "min", "reference": 1e-3},
        }

    def truth(self, candidate: Candidate) -> tuple[float, float]:
        """Accuracy, and one minus the speed in thousandths: both 0..1, higher is better."""
        quality, place = _candidate_place(candidate)
        angle = place * math.pi / 2
        return quality * math.cos(angle) ** self.bend, quality * math.sin(angle) ** self.bend

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            draws = Random(f"{request.seed}/{request.candidate.digest}")
            return rng.expovariate(1.0) * self.evaluate_seconds, self._seen(request, draws)
        if isinstance(request, ProposeRequest):
            draws = Random(request.seed)
            children = tuple(
                self._front_child(request.brief, draws) for _ in range(request.brief.k)
            )
            usage = Usage(calls=1, input_tokens=2000, output_tokens=800 * request.brief.k)
            return rng.expovariate(1.0) * self.propose_seconds, Proposal(
                children, model="world", usage=usage
            )
        return super().perform(effect, rng)

    def _front_child(self, brief: Brief, rng: Random) -> Candidate:
        assert brief.parent is not None
        quality, place = _candidate_place(brief.parent)
        moved = _moved_genome(Genome(quality), rng, 0.15, 0.21).quality
        parts = _placed_parts(
            moved, min(1.0, max(0.0, place + rng.gauss(0, 0.15))), rng.getrandbits(40)
        )
        return Candidate.of(parts, (brief.parent.id,), Origin("world"))

    def _seen(self, request: EvaluateRequest, draws: Random) -> Observation:
        """An evaluation as the engine gets it: invalid without all metrics."""
        first, second = (
            value + self.noise * draws.gauss(0, 1) for value in self.truth(request.candidate)
        )
        metrics = {"accuracy": first, "speed": 1e-3 * (1 - second)}
        told = Observation(request.candidate.id, Status.OK, seed=request.seed, trust="verified")
        if draws.random() < self.flaky:
            return replaced(told, status=Status.ERROR)
        if draws.random() < self.blank:
            return replaced(
                told, status=Status.INVALID, reason="metric_missing", metrics={"accuracy": first}
            )
        return replaced(told, score=(first + second) / 2, metrics=metrics)


def _placed_parts(quality: float, place: float, serial: int) -> dict[str, str]:
    return {PART: f"mu={quality!r}\nplace={place!r}\nserial={serial}\n"}


def _candidate_place(candidate: Candidate) -> tuple[float, float]:
    lines = dict(line.split("=") for line in candidate.text.splitlines())
    return float(lines["mu"]), float(lines["place"])
