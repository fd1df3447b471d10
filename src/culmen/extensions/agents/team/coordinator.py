"""State shared by all agents of a run: history, evaluations, shares of budgets, end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status, weakest_trust
from culmen.core.ports import Lab
from culmen.core.spread import sum_floats
from culmen.extensions.agents.messages import AnswerExperiments, ExperimentRow, to_plain_data
from culmen.extensions.agents.team import texts
from culmen.extensions.agents.team.history import History

_BUDGETS = {
    "experiments": "evaluations",
    "tokens": "tokens",
    "dollars": "dollars",
    "calls": "calls",
}
SEEDS = -1  # agent of the rows of initial programs and of candidates handed in by a person


class TeamTerms(NamedTuple):
    """Settings that hold for all agents.

    threshold   score at which to stop; None: the task's target
    agents      number of agents in all
    parallel    number of agents at work at once
    plateau     number of consecutive agents without a certified gain that ends the run; None: none
    wording     name of the wording of TASK.md (`texts.WORDINGS`)
    """

    threshold: float | None = None
    agents: int = 10
    parallel: int = 1
    plateau: int | None = None
    wording: str = "stop_when_reached"


class LiveProgram(Protocol):
    """A running program that is notified when all agents must stop."""

    async def notify_closing(self) -> None: ...


class Coordinator:
    """Coordinator of the agents of one run.

    `stopping` is the reason for which experiments of all agents are refused; "" while they are
    accepted.
    """

    def __init__(self, lab: Lab, terms: TeamTerms) -> None:
        self.lab, self.task, self.terms = lab, lab.task, terms
        self.history = History(lab.task.objective, bool(lab.task.evaluator.verifier))
        self.stopping = ""
        self.begun = self._handed = 0
        self.programs: list[LiveProgram] = []
        self._open: dict[int, dict[str, float]] = {}  # remaining limits of agents at work, by agent
        self._slowest = self._usual = (
            0.0  # seconds of an experiment: the longest, and a recent mean
        )
        self._barren = 0
        self._board = ""
        self.whole = False  # True if any agent completed its work
        self.admitted: set[str] = set()  # sentences in which agents admit to gaming the evaluator
        self._verified: set[float] = set()  # rewards for which the verifier was called

    @property
    def threshold(self) -> float | None:
        """Score at which to stop: the team's threshold, else the task's target."""
        return self.task.objective.target if self.terms.threshold is None else self.terms.threshold

    @property
    def evaluations_per_experiment(self) -> int:
        """Evaluations of one experiment: one per training case."""
        return max(1, len(self.task.split("train")))

    async def evaluate_initial_programs(self) -> None:
        """Evaluate and certify what the search starts from: agents find it in the history."""
        await self.lab.gather(
            *(
                self._enter_candidate(f"{candidate.origin.operator}-{number}", candidate)
                for number, candidate in enumerate(self.lab.seeds)
            )
        )

    async def evaluate_handed_in(self) -> None:
        """Evaluate and certify candidates from outside the team since the last call.

        They are a person's, or of another search in the same run.
        """
        for candidate in self.lab.handed():
            self._handed += 1
            is_persons = candidate.origin.operator == texts.PERSON
            author = texts.PERSON if is_persons else texts.SEARCH
            note = "handed in by a person" if is_persons else "leads another search of this run"
            await self._enter_candidate(f"{author}-{self._handed}", candidate, note)

    async def _enter_candidate(self, ticket: str, candidate: Candidate, note: str = "") -> None:
        rollout = await self.judge_candidate(candidate)
        row = ExperimentRow(
            0,
            SEEDS,
            ticket,
            candidate.id,
            status="refused",
            reason="budget",
            note=note,
            origin=candidate.origin.operator,
        )
        await self.publish_row(SEEDS, self.enter_experiment(row, rollout))

    async def judge_candidate(self, candidate: Candidate) -> Rollout | None:
        """Evaluate a candidate on all training cases; None if the budget has no room.

        A candidate that would lead is evaluated again: by the task's verifier, or, if scores are
        noisy, a second time.
        """
        if self.lab.lacks(evaluations=self.evaluations_per_experiment):
            return None
        rollout = await self.lab.evaluate(candidate)
        reward = rollout.reward
        if reward is None or not self._needs_second_evaluation(rollout, reward):
            return rollout
        self._verified.update({reward} if self.history.exact else ())
        second = await self.lab.evaluate(candidate, certify=True)
        if self.task.is_evaluated_once:
            return second
        return Rollout(
            candidate,
            (*rollout.observations, *second.observations),
            (*rollout.rewards, *second.rewards),
        )

    def enter_experiment(self, row: ExperimentRow, rollout: Rollout | None) -> ExperimentRow:
        """Add an experiment and its evaluations to the history; stop at the threshold."""
        if rollout is not None:
            row = measured_row(row, rollout, self.history)
            self._slowest = max(self._slowest, row.seconds)
            self._usual += 0.2 * (row.seconds - self._usual)
        row = replace(row, n=len(self.history.rows) + 1)
        led = self.history.best
        self.history.record_row(row, rollout)
        if self.history.best is not led:
            self._barren = 0
        score, threshold = self.history.decisive_score(row), self.threshold
        objective = self.task.objective
        if (
            score is not None
            and threshold is not None
            and objective.reward(score) >= objective.reward(threshold)
        ):
            self.stop("threshold")
        self._note_experiment(row)
        return row

    async def publish_row(self, agent: int, row: ExperimentRow, closing: str = "") -> None:
        """Write a row for an agent to read, and the leaderboard if it has changed."""
        board = texts.leaderboard_text(self.history)
        changed, self._board = board != self._board, board
        known = self.history.candidates.get(row.candidate)
        answer = AnswerExperiments(
            agent,
            rows=(row,),
            parts={} if known is None else {known.id: known.parts},
            leaderboard=board if changed else "",
            closing=closing,
        )
        await self.lab.effect("session.answer", **to_plain_data(answer))

    def begin_agent(self, own: Mapping[str, float | None]) -> tuple[int, dict[str, float]]:
        """The next agent's number and limits.

        A limit is the agent's `own`, at most the rest of the budget; without one, an even share of
        the rest among the agents to come. Unlimited budgets are left out.
        """
        number, self.begun = self.begun, self.begun + 1
        to_come = max(1, self.terms.agents - number)
        limits = {name: self._budget_share(name, own.get(name), to_come) for name in _BUDGETS}
        # agents that work at once share the money, not the time
        turns = math.ceil(to_come / self.terms.parallel)
        limits["seconds"] = min(
            own.get("seconds") or math.inf,
            max(0.0, self.time_left / turns),
            self.lab.session_limit("seconds"),
        )
        limits["idle"] = own.get("idle") or math.inf
        finite = {name: value for name, value in limits.items() if value < math.inf}
        self._open[number] = dict(finite)
        return number, finite

    def _budget_share(self, name: str, own: float | None, to_come: int) -> float:
        """One agent's share of a budget among `to_come` agents: whole units, except dollars."""
        unit = self.evaluations_per_experiment if name == "experiments" else 1
        left = self.lab.left(_BUDGETS[name]) / unit
        most = self.lab.session_limit(_BUDGETS[name]) / unit
        left = max(0.0, left - sum_floats(each.get(name, 0.0) for each in self._open.values()))
        share = left / to_come
        if name != "dollars" and share < math.inf:
            left, share = math.floor(left), math.ceil(share)
            most = most if most == math.inf else math.ceil(most)
        return min(left, most, share if own is None else own)

    def stop(self, reason: str) -> None:
        """Refuse further experiments of all agents, and notify the running programs."""
        if reason and not self.stopping:
            self.stopping = reason
            for program in self.programs:
                self.lab.spawn(program.notify_closing())

    def charge_reservation(self, agent: int, name: str, amount: float) -> None:
        """Reduce an agent's reservation by an amount it has used."""
        held = self._open.get(agent)
        if held is not None and name in held:
            held[name] = max(0.0, held[name] - amount)

    def finish_agent(self, agent: int, gained: bool) -> None:
        """Release the unused limits of an agent that is done; stop at a plateau."""
        self._open.pop(agent, None)
        self._barren = 0 if gained else self._barren + 1
        if self.terms.plateau is not None and self._barren >= self.terms.plateau:
            self.stop("plateau")

    @property
    def time_left(self) -> float:
        """Seconds in which agents may still begin an action; negative once they are over.

        A last experiment and the end of the session must fit in before the search is asked to end,
        which in turn reserves time to confirm the slowest candidate.
        """
        # seconds reserved for ending a session and committing it
        return self.lab.left("seconds") - 1.25 * self._slowest - 2 * self._usual - 3.0

    def budget_short_for_experiment(self) -> str:
        """The budget that has no room for another experiment; "" if there is none."""
        return self.lab.lacks(evaluations=self.evaluations_per_experiment) or (
            "seconds" if self.time_left <= 0 else ""
        )

    def budget_short_for_agent(self) -> str:
        """The budget that has no room for another agent; "" if there is none."""
        return self.budget_short_for_experiment() or next(
            (name for name in ("calls", "tokens", "dollars") if self.lab.left(name) <= 0), ""
        )

    def _needs_second_evaluation(self, rollout: Rollout, reward: float) -> bool:
        """True if a second evaluation adds evidence about a possible leader.

        A possible leader beats the best so far or reaches the threshold.
        """
        objective, threshold = self.task.objective, self.threshold
        reached = threshold is not None and reward >= objective.reward(threshold)
        if reward in self._verified or not (
            reached or self.history.beats_best(objective.score(reward))
        ):
            return False  # this very score was verified before: another program, the same output
        verified = self.history.exact and all(
            observation.strict is not None for observation in rollout.observations
        )
        more = not verified if self.history.exact else not self.task.is_evaluated_once
        return more and not self.lab.lacks(evaluations=self.evaluations_per_experiment)

    def _note_experiment(self, row: ExperimentRow) -> None:
        names = ("n", "agent", "candidate", "path", "score", "certified", "status", "reason")
        best = self.history.best
        self.lab.note(
            "experiment",
            agents=self.terms.agents,
            best=None if best is None else self.history.decisive_score(best),
            **{name: getattr(row, name) for name in names},
        )


def measured_row(row: ExperimentRow, rollout: Rollout, history: History) -> ExperimentRow:
    """The row with a rollout's results: mean score, worst certified score, worst status."""
    observations = rollout.observations
    worst = next(
        (observation for observation in observations if not observation.ok), observations[-1]
    )
    scores = [observation.score for observation in observations if observation.score is not None]
    status, reason = worst.status.value, worst.reason
    verified = [
        observation
        for observation in observations
        if observation.strict is not None or observation.certified is not None
    ]
    values = [
        observation.certified for observation in verified if observation.certified is not None
    ]
    certified = (
        min(values, key=history.objective.reward)
        if values and len(values) == len(verified)
        else None
    )
    if verified and worst.ok and certified is None:
        reason = "not_certified"
    complete = len(scores) == len(observations) and bool(scores)
    return replace(
        row,
        candidate=rollout.candidate.id,
        score=sum_floats(scores) / len(scores) if complete else None,
        certified=certified,
        status=status,
        reason=reason,
        metrics=_metric_means(observations),
        feedback=worst.feedback[:4000],  # characters of a row's feedback
        seconds=sum_floats(observation.seconds for observation in observations),
        parents=row.parents or rollout.candidate.parents,
        origin=rollout.candidate.origin.operator,
        trust=weakest_trust(observation.trust for observation in observations if observation.ok),
    )


def _metric_means(observations: Sequence[Observation]) -> dict[str, float]:
    """Means of the metrics that every scored observation has."""
    scored = [
        observation.metrics for observation in observations if observation.status is Status.OK
    ]
    names = [
        name for name in (scored[0] if scored else {}) if all(name in metrics for metrics in scored)
    ]
    return {name: sum_floats(metrics[name] for metrics in scored) / len(scored) for name in names}
