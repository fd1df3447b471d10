"""PACEvolve++: the advisor of PACEvolve is trained while it searches, by rewards whose meaning follows the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from culmen.core.errors import UserError
from culmen.core.ports import Lab
from culmen.strategies.pacevolve import Pacevolve, Research
from culmen.strategies.parts.implementing import Outcome
from culmen.strategies.parts.policy import Policy
from culmen.strategies.parts.settings import About, check
from culmen.train import OBJECTIVES

if TYPE_CHECKING:
    from culmen.train.signal import Credit

_LATE = Outcome(fault="deadline", reason="not done in time")
_ALARMS = 10  # barriers in a row without an update that are worth a word


@dataclass(frozen=True)
class PacevolvePlusPlus:
    """Every barrier: one decision on each island by the present policy, all implemented and evaluated side by side,
    population, ideas and failures updated, rewards turned into advantages, one step of the optimiser or none, and the
    new weights sampled from. Early barriers credit a candidate for being better than its group, late ones for what it
    adds to the best of k.

    `objective` makes the baselines: grpo (ThetaEvolve), entropic (TTT-Discover), max_at_k, dr_grpo, none (no training).
    Needs torch: `pip install 'culmen[train]'`. `policy=tiny` is a language model of a few thousand weights over a menu
    of edits; a model folder makes any causal language model the advisor, with a LoRA adapter.
    """

    paper = "PACEvolve++: Improving Test-time Learning for Evolutionary Search Agents (arXiv 2605.07039)"

    scaffold: Annotated[Pacevolve, About("the search around the advisor; islands are the group size n")] = field(
        default=Pacevolve()
    )
    policy: Annotated[str, About("tiny, or the folder of a causal language model")] = "tiny"
    objective: Annotated[str, About("none, grpo, dr_grpo, entropic, max_at_k, phase_adaptive")] = "phase_adaptive"
    k: Annotated[int, About("size of the frontier in max_at_k and phase_adaptive", least=2)] = 4
    barriers: Annotated[int, About("planned barriers, over which alpha goes from 0 to 1", least=1)] = 128
    rate: Annotated[float | None, About("learning rate; none: 0.01 (tiny), 1e-5 (LoRA), 1e-6 (all weights)")] = None
    rank: Annotated[int, About("rank of the LoRA adapter; 0: all weights", least=0)] = 32
    most: Annotated[int, About("most tokens of a reply", least=1)] = 2048
    low: Annotated[float, About("clip of the ratio below, epsilon_lo", least=0, most=1)] = 0.2
    high: Annotated[float, About("clip of the ratio above, epsilon_hi", least=0)] = 0.28
    floor: Annotated[
        float, About("spread of a branch below which there is nothing to learn, epsilon_skip", least=0)
    ] = 1e-6
    noise: Annotated[float, About("the evaluator's noise in rewards (0..5), taken as a floor, too", least=0)] = 0.0
    worst: Annotated[float | None, About("score of reward 0, y_min; none: what the seeds score")] = None
    best: Annotated[float | None, About("score of reward 5, y_max; none: the target or the best known value")] = None
    deadline: Annotated[float | None, About("seconds a barrier waits for its candidates; none: for all", least=1)] = (
        None
    )

    def __post_init__(self) -> None:
        check(self)
        if self.objective not in OBJECTIVES:
            raise UserError(
                f"there is no objective '{self.objective}'", where="objective", fix=f"one of {', '.join(OBJECTIVES)}"
            )

    def credit(self) -> Credit:
        """How rewards become advantages."""
        from culmen.train.signal import Credit  # numpy comes with it

        objective: Any = self.objective
        return Credit(objective, self.k, floor=self.floor, noise=self.noise)

    def rules(self) -> dict[str, Any]:
        """The settings of an update (`culmen.train.engine.Rules`)."""
        usual = 0.01 if self.policy == "tiny" else 1e-5 if self.rank else 1e-6
        return {"rate": usual if self.rate is None else self.rate, "low": self.low, "high": self.high}

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        policy = Policy(self.policy)
        research = Research(self.scaffold, lab, policy)
        await policy.open(lab, seed=lab.rng.getrandbits(31), rank=self.rank, most=self.most)
        await research.settle()
        bounds, steps = self.bounds(lab, research), Steps()
        for barrier in count():
            await self.barrier(lab, research, policy, bounds, barrier, steps)

    async def barrier(
        self, lab: Lab, research: Research, policy: Policy, bounds: tuple[float, float], barrier: int, steps: Steps
    ) -> None:
        """Section 3.1, in its order."""
        from culmen.train.objectives import phase

        islands = range(len(research.islands))
        plans = await lab.gather(*(research.decide(i) for i in islands))  # n decisions, one version
        done = await lab.within(self.deadline, *(research.implement(i, *plans[i]) for i in islands))
        outcomes: list[Outcome] = [outcome or _LATE for outcome in done]  # stragglers fail and block nobody
        await lab.gather(*(research.learn(i, barrier, *plans[i], outcomes[i]) for i in islands))  # the search first
        rewards = [self.reward(lab, outcome, bounds) for outcome in outcomes]  # equation 5
        alpha = phase(steps.taken, self.barriers)
        signal = self.credit().signal(rewards, alpha)  # equations 3 and 4
        told: dict[str, Any] = {}
        if not signal.skip:  # a skipped group takes no step of the optimiser at all
            samples = [decision.samples for _, decision in plans]
            told = await policy.update(lab, samples, signal.advantages, self.rules())  # equation 6
            steps.taken += 1
        policy.forget()
        failures = [outcome.fault for outcome in outcomes if outcome.fault]
        lab.note(
            "barrier",
            barrier=barrier,
            version=policy.version,
            alpha=signal.alpha,
            skip=signal.skip,
            rewards=rewards,
            advantages=list(signal.advantages),
            spreads=dict(signal.spreads),
            failures={name: failures.count(name) for name in dict.fromkeys(failures)},
            clamped=[sum(r == 0.0 for r in rewards), sum(r == 5.0 for r in rewards)],
            experiments=[decision.experiment for _, decision in plans],
            alarms=steps.alarms(signal.skip, told, len(failures) / len(outcomes)),
            **{name: value for name, value in told.items() if name != "version"},
        )

    def reward(self, lab: Lab, outcome: Outcome, bounds: tuple[float, float]) -> float:
        """Equation 5 of what a decision came to."""
        from culmen.train.objectives import progress_reward

        objective = lab.task.objective
        reward = outcome.rollout.reward if outcome.rollout and not outcome.fault else None
        score = None if reward is None else objective.score(reward)
        return progress_reward(score, *bounds, maximise=objective.direction == "max")

    def bounds(self, lab: Lab, research: Research) -> tuple[float, float]:
        """y_min and y_max: given, or between what the seeds score and the target. Raises `UserError` without both."""
        objective = lab.task.objective
        seeds = objective.score(research.start) if research.start > float("-inf") else objective.start
        first = self.worst if self.worst is not None else seeds
        levels = (self.best, self.scaffold.target, objective.target, objective.known)
        last = next((level for level in levels if level is not None), None)
        if first is None or last is None or first == last:
            raise UserError(
                f"rewards need two different levels, not {first} and {last}",
                where="strategy pacevolve_plus_plus",
                fix="--set worst=SCORE --set best=SCORE, or [objective] target in task.toml",
            )
        return min(first, last), max(first, last)


@dataclass
class Steps:
    """Optimiser steps taken, and what to watch over them."""

    taken: int = 0
    skipped: int = 0
    entropy: float | None = None
    norms: list[float] = field(default_factory=list[float])

    def alarms(self, skip: str, told: dict[str, Any], failed: float) -> list[str]:
        """Words for what looks wrong: entropy_collapse, gradient_spike, failures, skips."""
        self.skipped = self.skipped + 1 if skip else 0
        found = ["skips"] if self.skipped >= _ALARMS else []
        found += ["failures"] if failed > 0.8 else []
        if "entropy" in told:
            first = self.entropy = told["entropy"] if self.entropy is None else self.entropy
            found += ["entropy_collapse"] if told["entropy"] < 0.3 * first else []
            found += ["gradient_spike"] if len(self.norms) > 4 and told["grad_norm"] > 5 * median(self.norms) else []
            self.norms.append(told["grad_norm"])
        return found
