"""PACEvolve++: PACEvolve with an advisor that is trained while it searches.

The meaning of its rewards follows the phase of the search.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.extensions.train import OBJECTIVES
from culmen.extensions.train.arms import (
    EndToEnd,
    FrontierAdvisor,
    TrainedAdvisor,
    trained_steps,
)
from culmen.extensions.train.policy import (
    TRAINED,
    Engine,
    Local,
    Steps,
    Tinker,
    TrainedPolicy,
    decision_reward,
    score_bounds,
)
from culmen.extensions.train.schedule import PhaseSchedule
from culmen.extensions.train.starts import Islands, Puct, Starting, Starts
from culmen.strategies.pacevolve.advisor import (
    UNREADABLE,
    Advising,
    Decision,
    Upkeep,
)
from culmen.strategies.pacevolve.implementing import NO_CANDIDATE, ExperimentOutcome
from culmen.strategies.pacevolve.pacevolve import Pacevolve, Research
from culmen.strategies.settings import About, check

if TYPE_CHECKING:
    from culmen.extensions.train.objectives import AdvantageRule, Objective, Signal

Plan = tuple[Rollout | None, Decision]
"""A decision on an island, with its parent."""

FRONTIER = ("max_at_k", "pkpo", "phase_adaptive")  # the objectives that have a k
NO_CREDIT = (
    "k is not less than the group: where two programs tie at the top, no step is made. "
    "--set k=N, or more islands."
)
_LATE = ExperimentOutcome(fault="deadline", reason="not done in time")

_PATIENCE = 20  # barriers of a training without a single program
_GAVE_UP = (
    f"For {_PATIENCE} barriers no reply of the policy led to a program, so nothing was tried or "
    "learnt: the search"
    " ends. A larger model: --set policy=MODEL; longer replies: --set most=N."
)


@dataclass(frozen=True)
class PacevolvePlusPlus:
    """Search in barriers: one decision on each island, then one step of training or none.

    At a barrier the present policy decides once on each island, all experiments are implemented and
    evaluated side by side, population, ideas and failures are updated, rewards become advantages,
    and later decisions are sampled from the new weights. Early barriers credit a candidate for
    being better than its group, late ones for its gain over the best of k.

    With `staleness` s the barriers are relaxed (Section 3.2): one version decides on s + 1 groups,
    and the later ones train the policy with samples that are up to s versions old.

    `preset` makes the paper's baselines: thetaevolve, ttt_discover, max_at_k, no_rl, frontier.
    `arm` says which model decides, which one writes, and whose replies are trained. Needs torch,
    except for a frontier advisor: `pip install 'culmen[train]'`. `policy=tiny` is a language model
    of a few thousand weights over a menu of edits; a model folder makes any causal language model
    the advisor, with a LoRA adapter.
    """

    retraces: ClassVar[bool] = False  # training leaves weights
    trains: ClassVar[bool] = True

    presets: ClassVar[dict[str, dict[str, str]]] = {  # Section 4.2
        "no_rl": {"objective": "none"},
        "frontier": {"arm": "frontier_advisor"},
        "thetaevolve": {"objective": "grpo"},
        "max_at_k": {"objective": "pkpo"},
        "ttt_discover": {
            "objective": "entropic",
            "starts": "puct",
            "anchor": "0.1",
            "low": "1",
            "high": "1000",
        },
    }
    paper = (
        "PACEvolve++: Improving Test-time Learning for Evolutionary Search Agents (arXiv "
        "2605.07039)"
    )

    scaffold: Annotated[
        Pacevolve, About("the search around the advisor; islands are the group size n")
    ] = field(default=Pacevolve(advising=Advising(), upkeep=Upkeep(tries=3)))
    arm: Annotated[
        TrainedAdvisor,
        About(
            "whose replies are trained",
            choices=(TrainedAdvisor, FrontierAdvisor, EndToEnd),
        ),
    ] = field(default=TrainedAdvisor())
    policy: Annotated[str, About("tiny, or the folder or GGUF file of a causal language model")] = (
        "tiny"
    )
    engine: Annotated[
        Engine,
        About("engine that samples and trains the policy", choices=(Local, Tinker)),
    ] = field(default=Local())
    starts: Annotated[Starts, About("starting points of decisions", choices=(Islands, Puct))] = (
        field(default=Islands())
    )
    roles: Annotated[
        tuple[str, ...], About("replies that are trained: generate, select, classify")
    ] = TRAINED
    objective: Annotated[
        str, About("none, grpo, dr_grpo, entropic, max_at_k, pkpo, phase_adaptive")
    ] = "phase_adaptive"
    k: Annotated[
        int | None,
        About(
            "size of the frontier in max_at_k, pkpo and phase_adaptive; none: 4, but less than "
            "the group",
            least=2,
        ),
    ] = None
    staleness: Annotated[
        int,
        About(
            "versions of the policy that samples may be behind: so many more barriers are decided "
            "by one version and implemented side by side",
            least=0,
        ),
    ] = 0
    barriers: Annotated[
        int | None,
        About(
            "barriers over which alpha goes from 0 to 1; none: as many as the budget has room for",
            least=1,
        ),
    ] = None
    rate: Annotated[
        float | None, About("learning rate; none: 0.01 (tiny), 1e-5 (LoRA), 1e-6 (all weights)")
    ] = None
    rank: Annotated[int, About("rank of the LoRA adapter; 0: all weights", least=0)] = 32
    head: Annotated[bool, About("the adapter on the output layer, too; few servers take that")] = (
        False
    )
    most: Annotated[int, About("most tokens of a reply", least=1)] = 2048
    epochs: Annotated[
        int, About("passes over a barrier's samples, each with its optimiser steps", least=1)
    ] = 1
    minibatches: Annotated[
        int, About("optimiser steps in a pass, each on its part of the samples", least=1)
    ] = 1
    anchor: Annotated[
        float, About("weight of the divergence from the first weights, lambda; 0: none", least=0)
    ] = 0.0
    low: Annotated[float, About("clip of the ratio below, epsilon_lo", least=0, most=1)] = 0.2
    high: Annotated[float, About("clip of the ratio above, epsilon_hi", least=0)] = 0.28
    floor: Annotated[
        float,
        About("spread of a branch below which there is nothing to learn, epsilon_skip", least=0),
    ] = 1e-6
    noise: Annotated[
        float,
        About(
            "the evaluator's noise: spread of rewards (0..5) below which no step is made", least=0
        ),
    ] = 0.0
    worst: Annotated[
        float | None, About("score of reward 0, y_min; none: the score of the initial programs")
    ] = None
    best: Annotated[
        float | None, About("score of reward 5, y_max; none: the target or the best known value")
    ] = None
    deadline: Annotated[
        float | None, About("seconds a barrier waits for its candidates; none: for all", least=1)
    ] = None

    def __post_init__(self) -> None:
        check(self)
        if self.objective not in OBJECTIVES:
            raise UserError(
                f"there is no objective '{self.objective}'",
                where="objective",
                fix=f"one of {', '.join(OBJECTIVES)}",
            )
        if not self.roles or not set(self.roles) <= set(TRAINED):
            raise UserError(
                f"cannot train {', '.join(self.roles) or 'nothing'}",
                where="roles",
                fix=f"of {', '.join(TRAINED)}",
            )
        if self.arm.writes and self.policy == "tiny":
            raise UserError(
                "the tiny policy knows a menu of edits, and writes no programs",
                where="arm",
                fix="--set policy=MODEL_FOLDER",
            )

    @property
    def frontier_size(self) -> int:
        """k: of the default less than the group, so that a tie at the top still gives credit."""
        return max(2, min(4, self.scaffold.islands - 1)) if self.k is None else self.k

    def advantage_rule(self) -> AdvantageRule:
        """Rule by which rewards become advantages."""
        from culmen.extensions.train.objectives import AdvantageRule  # numpy comes with it

        # __post_init__ checks the word
        objective = cast("Objective", self.objective if self.arm.trains else "none")
        return AdvantageRule(objective, self.frontier_size, floor=self.floor, noise=self.noise)

    def update_rules(self) -> JsonObject:
        """The settings of an update (`culmen.extensions.train.engine.Rules`)."""
        usual = 0.01 if self.policy == "tiny" else 1e-5 if self.rank else 1e-6
        more = {"epochs": self.epochs, "minibatches": self.minibatches, "anchor": self.anchor}
        unusual = {
            name: value for name, value in more.items() if value != getattr(PacevolvePlusPlus, name)
        } | ({"stale": self.staleness} if self.staleness else {})
        return {
            "rate": usual if self.rate is None else self.rate,
            "low": self.low,
            "high": self.high,
            **unusual,
        }

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        course = await self.begin_course(lab)
        for first in count(0, 1 + self.staleness):
            groups = [await self.decide_group(course) for _ in range(1 + self.staleness)]
            results = await self.implement_groups(course, groups)
            for n, (plans, outcomes) in enumerate(zip(groups, results, strict=True)):
                later = {
                    m
                    for k in range(n + 1, len(groups))
                    for s in _samples(groups[k], results[k])
                    for m in s
                }
                await self.finish_barrier(course, first + n, plans, outcomes, later)
                if course.unreadable == _PATIENCE:  # nothing to try, nothing to learn from
                    return lab.note("advisor_unreadable", barriers=_PATIENCE, told=_GAVE_UP)

    async def begin_course(self, lab: Lab) -> Course:
        """Open the policy if one is trained, and evaluate the initial programs."""
        policy = TrainedPolicy(self.policy, trained_steps(self.arm, self.roles))
        advising = self.scaffold.advising
        if not isinstance(advising, Advising):  # training needs the replies of its steps
            advising = Advising()
        rules = replace(self.scaffold, advising=advising)
        voice, writer = self.arm.voice(policy), self.arm.writer(policy, advising)
        research = Research(rules, lab, voice, writer)
        if self.arm.trains:
            seed, engine = lab.rng.getrandbits(31), self.engine.engine_settings()
            more = {"engine": engine, "head": self.head, "anchored": self.anchor > 0}
            await policy.open(lab, seed=seed, rank=self.rank, most=self.most, **more)
        if self.objective in FRONTIER and self.frontier_size >= rules.islands:
            lab.note("frontier_is_group", k=self.frontier_size, told=NO_CREDIT)
        await research.insert_initial_programs()
        levels = score_bounds(
            lab.task.objective, research.start, self.worst, self.best, rules.target
        )
        schedule = PhaseSchedule(self.barriers, lab.progress, 1 + self.staleness)
        starting = self.starts.begin_search(research.seeds)
        return Course(lab, research, policy, levels, starting, schedule)

    async def decide_group(self, course: Course) -> Sequence[Plan]:
        """One decision on each island, all by the present version."""
        islands = range(len(course.research.islands))
        parents = course.starts.take_starts(len(islands))
        return await course.lab.gather(
            *(course.research.decide_experiment(i, parents[i]) for i in islands)
        )

    async def implement_groups(
        self, course: Course, groups: Sequence[Sequence[Plan]]
    ) -> list[list[ExperimentOutcome]]:
        """The outcomes of all groups, implemented side by side.

        Stragglers fail and do not block the others.
        """
        done = await course.lab.within(
            self.deadline,
            *(
                course.research.implement_experiment(i, *plan)
                for plans in groups
                for i, plan in enumerate(plans)
            ),
        )
        outcomes, size = [outcome or _LATE for outcome in done], len(groups[0])
        return [outcomes[at : at + size] for at in range(0, len(outcomes), size)]

    async def finish_barrier(
        self,
        course: Course,
        barrier: int,
        plans: Sequence[Plan],
        outcomes: Sequence[ExperimentOutcome],
        later: Container[int] = (),
    ) -> None:
        """The rest of a barrier of Section 3.1, in the paper's order.

        `later` are the samples of barriers that are implemented and not yet finished.
        """
        lab, research = course.lab, course.research
        islands = range(len(research.islands))
        await lab.gather(
            *(research.learn_from_outcome(i, barrier + 1, *plans[i], outcomes[i]) for i in islands)
        )  # the search first
        for expansion in course.starts.give_back([outcome.scored_rollout for outcome in outcomes]):
            lab.note("puct", **expansion)
        rewards = [
            decision_reward(lab.task.objective, outcome, course.bounds) for outcome in outcomes
        ]  # equation 5
        decisions = [decision for _, decision in plans]
        samples = _samples(plans, outcomes)
        behind = {"behind": course.policy.versions_behind(samples)} if self.staleness else {}
        signal, update = await self.train_policy(
            course, samples, rewards, course.schedule.weight(barrier, lab.progress)
        )
        course.policy.discard_samples(later)
        failures = [outcome.fault for outcome in outcomes if outcome.fault]
        barren = [fault in (UNREADABLE, NO_CANDIDATE) for fault in failures]
        is_barren = bool(signal.skip) and barren == [True] * len(outcomes)
        course.unreadable += 1 if is_barren else -course.unreadable
        lab.note(
            "barrier",
            barrier=barrier,
            version=course.policy.version,
            alpha=signal.alpha,
            skip=signal.skip,
            rewards=rewards,
            advantages=list(signal.advantages),
            spreads=dict(signal.spreads),
            failures={name: failures.count(name) for name in dict.fromkeys(failures)},
            clamped=[sum(r == 0.0 for r in rewards), sum(r == 5.0 for r in rewards)],
            experiments=[decision.experiment for decision in decisions],
            alarms=course.steps.update_alarms(signal.skip, update, len(failures) / len(outcomes)),
            **behind,
            **{name: value for name, value in update.items() if name != "version"},
        )

    async def train_policy(
        self, course: Course, samples: list[tuple[int, ...]], rewards: list[float], alpha: float
    ) -> tuple[Signal, JsonObject]:
        """Compute advantages, and update the policy or not."""
        steps, update = course.steps, JsonObject()
        signal = self.advantage_rule().training_signal(rewards, alpha)  # equations 3 and 4
        if not signal.skip:  # a skipped group takes no step of the optimiser at all
            plan = {"step": steps.taken, "alpha": round(alpha, 10)}
            update = await course.policy.update(
                course.lab, samples, signal.advantages, self.update_rules(), plan
            )  # equation 6
            steps.taken += 1
        return signal, update


@dataclass
class Course:
    """One training in progress: the state shared by its barriers."""

    lab: Lab
    research: Research
    policy: TrainedPolicy
    bounds: tuple[float, float]
    starts: Starting
    schedule: PhaseSchedule
    steps: Steps = field(default_factory=Steps)
    unreadable: int = 0  # barriers in a row without a program: none of their replies led to one


def _samples(plans: Sequence[Plan], outcomes: Sequence[ExperimentOutcome]) -> list[tuple[int, ...]]:
    """The trainable replies of each decision and of its program."""
    return [
        (*decision.samples, *outcome.samples)
        for (_, decision), outcome in zip(plans, outcomes, strict=True)
    ]
