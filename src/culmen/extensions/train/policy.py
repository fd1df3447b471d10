"""The advisor as a policy in training: its engine, samples, updates, and alarms."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Protocol

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.core.task import Objective
from culmen.strategies.pacevolve.advisor import MENU, AdvisorReply, from_menu
from culmen.strategies.pacevolve.implementing import ExperimentOutcome
from culmen.strategies.settings import About

_CUT = "A prompt of the advisor is longer than its context, so the middle of it is left out"
TRAINED = ("generate", "classify", "select")  # the steps whose replies share a decision's advantage
_MENU_STEPS = ("generate", "select")  # those that the tiny policy knows


@dataclass
class TrainedPolicy:
    """One policy in training.

    `version` is the version to sample from; `samples` those of decisions without an update yet, by
    number.
    """

    name: str
    steps: tuple[str, ...] = TRAINED
    version: int = 0
    samples: dict[int, JsonObject] = field(default_factory=dict[int, JsonObject])
    drawn: int = 0
    cut: bool = False  # True once a too long prompt has been reported

    async def open(self, lab: Lab, **settings: object) -> None:
        """Make the policy, or find that of an earlier session of this run.

        Empty settings are left out of the request.
        """
        request = {
            name: value for name, value in settings.items() if value is not False and value != {}
        }
        opened = await lab.effect("train.open", policy=self.name, menu=MENU, **request)
        self.version = int(opened.data["version"])
        lab.note("policy", name=self.name, **opened.data)

    async def answer_step(self, lab: Lab, step: str, **slots: object) -> AdvisorReply:
        """One reply (`advisor.Voice`).

        The tiny policy knows a menu; all its other steps are left to rules.
        """
        if self.name == "tiny" and step not in _MENU_STEPS:
            return AdvisorReply(from_menu(step, slots, lab.rng))
        drawn = await lab.effect("train.sample", step=step, slots=slots, version=self.version)
        text = str(drawn.data.get("text", ""))
        if drawn.data.get("cut") and not self.cut:
            self.cut = True
            lab.note(
                "prompt_cut",
                step=step,
                told=f"{_CUT} ({step}). Showing less serves better: program_chars, failures.",
            )
        if step not in self.steps:
            return AdvisorReply(text)
        self.drawn += 1
        self.samples[self.drawn] = drawn.data["sample"]
        return AdvisorReply(text, sample=self.drawn)

    async def update(
        self,
        lab: Lab,
        decisions: Sequence[Sequence[int]],
        advantages: Sequence[float],
        rules: JsonObject,
        plan: JsonObject,
    ) -> JsonObject:
        """Update by all samples of the barrier; sample from the version after it.

        `plan` is the position of the update in the run; it is kept with the checkpoint. A
        decision's advantage goes to every sample that the decision is made of, rounded to ten
        digits: the last digits differ from one processor to another, and a run may be resumed
        elsewhere.
        """
        batch = [
            {"sample": self.samples[number], "advantage": round(advantage, 10)}
            for numbers, advantage in zip(decisions, advantages, strict=True)
            for number in numbers
        ]
        updated = await lab.effect(
            "train.update", version=self.version, batch=batch, rules=rules, plan=plan
        )
        self.version = int(updated.data["version"])
        return updated.data

    def versions_behind(self, decisions: Sequence[Sequence[int]]) -> int:
        """Most versions that a sample of these decisions is behind the present one."""
        drawn = [self.samples[number]["version"] for numbers in decisions for number in numbers]
        return self.version - min(drawn, default=self.version)

    def discard_samples(self, keep: Container[int] = ()) -> None:
        """Discard the samples of finished barriers, all but those to `keep`."""
        self.samples = {number: each for number, each in self.samples.items() if number in keep}


@dataclass
class Steps:
    """Steps of training: `taken` by the optimiser, and barriers `skipped` in a row.

    The other fields are the levels that alarms compare with.
    """

    taken: int = 0
    skipped: int = 0
    entropy: float | None = None
    norms: list[float] = field(default_factory=list[float])

    def update_alarms(self, skip: str, update: JsonObject, failed: float) -> list[str]:
        """Names of the present alarms: entropy_collapse, gradient_spike, failures, skips."""
        self.skipped = self.skipped + 1 if skip and skip != "not_training" else 0
        # barriers in a row without an update that raise an alarm
        alarms = ["skips"] if self.skipped >= 10 else []
        alarms += ["failures"] if failed > 0.8 else []
        if "entropy" in update:
            first = self.entropy = update["entropy"] if self.entropy is None else self.entropy
            alarms += ["entropy_collapse"] if update["entropy"] < 0.3 * first else []
        if "grad_norm" in update:
            alarms += (
                ["gradient_spike"]
                if len(self.norms) > 4 and update["grad_norm"] > 5 * median(self.norms)
                else []
            )
            self.norms.append(update["grad_norm"])
        return alarms


AGGREGATES = ("token_sum", "sequence_mean")


class Engine(Protocol):
    """Settings of an engine as plain data for `train.open`; {} for the one in this process."""

    def engine_settings(self) -> JsonObject: ...


@dataclass(frozen=True)
class Local:
    """Sampling and training in this process, by torch."""

    def engine_settings(self) -> JsonObject:
        return {}


@dataclass(frozen=True)
class Tinker:
    """Sampling and training by a server with the Tinker API.

    The server is SkyRL on machines of your own, or the managed service. The policy is the name of
    the server's base model; the key is in TINKER_API_KEY.
    """

    url: Annotated[str, About("address of the server; none: the managed service")] = ""
    aggregate: Annotated[
        str,
        About(
            "how the server sums its loss: token_sum (the managed service), sequence_mean (SkyRL)"
        ),
    ] = "token_sum"
    tokenizer: Annotated[str, About("folder or name of the tokenizer; none: the policy's")] = ""

    def __post_init__(self) -> None:
        if self.aggregate not in AGGREGATES:
            raise UserError(
                f"no server sums its loss by '{self.aggregate}'",
                where="engine",
                fix=f"one of {', '.join(AGGREGATES)}",
            )

    def engine_settings(self) -> JsonObject:
        return {
            "kind": "tinker",
            "url": self.url,
            "aggregate": self.aggregate,
            "tokenizer": self.tokenizer,
        }


# Rewards of decisions, on one scale for the training on all tasks (PACEvolve++, equation 5).


def decision_reward(
    objective: Objective, outcome: ExperimentOutcome, bounds: tuple[float, float]
) -> float:
    """Reward of a decision: 0..5 between the bounds (y_min, y_max), -1 without a score.

    Scores beyond the bounds are clamped.
    """
    from culmen.extensions.train.objectives import progress_reward

    score = objective.score(outcome.scored_rollout[1]) if outcome.scored_rollout else None
    return progress_reward(score, *bounds, maximise=objective.direction == "max")


def score_bounds(
    objective: Objective, start: float, worst: float | None, *best: float | None
) -> tuple[float, float]:
    """Scores (y_min, y_max) of the least and the full reward.

    One level is `worst`, by default the initial programs' score (`start`, a reward); the other is
    the first level given of `best`, the target and the best known value. Raises `UserError` unless
    there are two different levels.
    """
    seeds = objective.score(start) if start > float("-inf") else objective.start
    first = worst if worst is not None else seeds
    last = next(
        (level for level in (*best, objective.target, objective.known) if level is not None), None
    )
    if first is None or last is None or first == last:
        raise UserError(
            f"rewards need two different levels, not {first} and {last}",
            where="strategy pacevolve_plus_plus",
            fix="--set worst=SCORE --set best=SCORE, or [objective] target in task.toml",
        )
    return min(first, last), max(first, last)
