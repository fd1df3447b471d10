"""An agent without a model: it plans experiments with the run's proposer.

It narrows its work after a batch with a gain and widens it after a batch without one: fewer or more
candidates are developed in parallel. A batch is either proposals for the best candidates or a
generation of changes of the best candidate's numbers, chosen by past gains per time. Its
reflections report counts of its results.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import INITIAL, Candidate, Origin
from culmen.core.evaluation import Case, Rollout
from culmen.core.event import Edits
from culmen.core.ports import Lab
from culmen.core.spread import sum_floats
from culmen.core.wording import format_number
from culmen.extensions.agents.messages import ExperimentRow
from culmen.extensions.agents.team.workspace import AgentWorkspace

_WIDEST = 8  # experiments in parallel, at most
_BARREN = 20  # consecutive batches without a new candidate
_SHOWN = 3  # other candidates shown to the proposer
_BREADTH = re.compile(r"Breadth at the end: (\d+)")


@dataclass
class _Diary:
    """Record of the batches, for decisions and for the reflections."""

    breadth: int
    batches: int = 0
    barren: int = 0
    since: int = 0  # experiments since the last gain
    widest: int = 0
    first: ExperimentRow | None = None
    tried: dict[str, int] = field(default_factory=dict[str, int])
    better: dict[str, int] = field(default_factory=dict[str, int])
    gains: dict[str, float] = field(default_factory=lambda: {"propose": 0.0, "tune": 0.0})
    seconds: dict[str, float] = field(default_factory=lambda: {"propose": 0.0, "tune": 0.0})

    def gain_rate(self, way: str) -> float:
        """Gains per second of a way to make a batch, with one added to both for an even start.

        A gain of less than a hundredth counts in part.
        """
        return (self.gains[way] + 1.0) / (self.seconds[way] + 1.0)


@dataclass(frozen=True)
class OfflineAgent:
    """Agent that works with the run's proposer; without a model that is the offline proposer."""

    manual: str = ""

    async def work(self, lab: Lab, workspace: AgentWorkspace) -> str:
        """Run batches of experiments until the workspace closes, novelty ends, or patience ends."""
        diary = _Diary(await self._read_breadth(lab, workspace), first=workspace.history.best)
        tuning = NumberTuning(size=max(6, 2 * lab.workers))
        while (
            not workspace.closing_reason
            and diary.barren < _BARREN
            and not self._is_out_of_patience(workspace, diary)
        ):
            best, before = workspace.history.best, len(workspace.rows)
            weights = [
                diary.gain_rate("propose"),
                diary.gain_rate("tune") * (tuning.possible and best is not None),
            ]
            way = lab.rng.choices(("propose", "tune"), weights)[0]
            if way == "tune" and best is not None:
                diary.widest = max(diary.widest, tuning.size)
                await self._tune_generation(lab, workspace, tuning, best)
            else:
                await self._propose_batch(lab, workspace, diary)
            self._learn_from_batch(workspace, diary, way, before, best)
        word = workspace.closing_reason or (
            "nothing new to try" if diary.barren >= _BARREN else "no gain for a while"
        )
        await self._append_reflections(workspace, diary, word)
        return word

    async def _read_breadth(self, lab: Lab, workspace: AgentWorkspace) -> int:
        """Breadth in the last agent's reflections; else one line of work per worker."""
        output = await workspace.use_tool("read", path="reflections.md")
        breadths = _BREADTH.findall(output.text)
        return max(1, min(_WIDEST, int(breadths[-1]) if breadths else lab.workers))

    def _is_out_of_patience(self, workspace: AgentWorkspace, diary: _Diary) -> bool:
        # consecutive experiments without a gain, or half of all its own if that is more
        return diary.since >= max(60, len(workspace.rows) // 2)

    def _plan_briefs(self, lab: Lab, workspace: AgentWorkspace, diary: _Diary) -> list[Brief]:
        """One brief for each of the `breadth` best candidates; other candidates lend ideas.

        With fewer candidates than lines of work the best is repeated; without candidates every
        brief asks for a first one.
        """
        top = workspace.history.top_rows(diary.breadth + _SHOWN)
        diary.widest = max(diary.widest, diary.breadth)
        if not top:
            return [Brief(next(iter(lab.seeds), None)) for _ in range(diary.breadth)]
        parents = [top[i] if i < len(top) else top[0] for i in range(diary.breadth)]
        return [
            self._make_brief(workspace, parent, [row for row in top if row is not parent][:_SHOWN])
            for parent in parents
        ]

    def _make_brief(
        self, workspace: AgentWorkspace, row: ExperimentRow, others: Sequence[ExperimentRow]
    ) -> Brief:
        history = workspace.history
        rollout = history.latest_rollout(row.candidate)
        shown = tuple(
            Exhibit(history.candidates[other.candidate], history.ranking_reward(other))
            for other in others
        )
        seen = () if rollout is None else rollout.observations
        return Brief(history.candidates[row.candidate], seen, history.ranking_reward(row), shown)

    async def _propose_batch(self, lab: Lab, workspace: AgentWorkspace, diary: _Diary) -> None:
        """Make a batch of proposals; close the workspace if the budget has no room for them."""
        briefs = self._plan_briefs(lab, workspace, diary)
        short = next((name for brief in briefs if (name := lab.lacks(brief=brief))), "")
        if short:
            workspace.close(short)
        else:
            await lab.gather(
                *(self._propose_and_evaluate(lab, workspace, brief) for brief in briefs)
            )

    async def _tune_generation(
        self, lab: Lab, workspace: AgentWorkspace, tuning: NumberTuning, best: ExperimentRow
    ) -> None:
        """Evaluate one generation of changes of the best candidate's numbers."""
        generation = await tuning.next_generation(lab, workspace.history.candidates[best.candidate])
        new = {
            candidate.id: candidate
            for candidate in generation
            if candidate.id not in workspace.history.candidates
        }
        await lab.gather(
            *(self._write_and_evaluate(workspace, candidate) for candidate in new.values())
        )
        rollouts = [workspace.history.latest_rollout(candidate.id) for candidate in generation]
        tuning.record_rewards(
            [None if rollout is None else rollout.reward for rollout in rollouts],
            workspace.history.best is not best,
        )

    async def _propose_and_evaluate(
        self, lab: Lab, workspace: AgentWorkspace, brief: Brief
    ) -> None:
        """Have a candidate proposed and evaluated.

        Evaluations that the proposer requests on the way are experiments, too.
        """

        async def run(candidate: Candidate) -> Rollout:
            history, is_kept = workspace.history, lab.task.is_evaluated_once
            known = history.latest_rollout(candidate.id) if is_kept else None
            if known is None and not workspace.closing_reason:
                await self._write_and_evaluate(workspace, candidate)
                known = workspace.history.latest_rollout(candidate.id)
            return (
                Rollout(candidate, known.observations, known.rewards)
                if known
                else Rollout(candidate, (), ())
            )

        proposal = await lab.propose(brief, experiment_lab(lab, run, workspace.budget_left))
        for candidate in proposal.candidates:
            if candidate.id not in workspace.history.candidates and not workspace.closing_reason:
                await self._write_and_evaluate(workspace, candidate)

    async def _write_and_evaluate(self, workspace: AgentWorkspace, candidate: Candidate) -> None:
        """Write the candidate's files and evaluate it."""
        path = workspace.next_path(candidate.parts)
        for name, text in candidate.parts.items():
            part_path = path if len(candidate.parts) == 1 else f"{path}/{name}"
            await workspace.use_tool("write", path=part_path, text=text)
        await workspace.evaluate_candidate(candidate, path, candidate.origin.operator)

    def _learn_from_batch(
        self,
        workspace: AgentWorkspace,
        diary: _Diary,
        way: str,
        before: int,
        best: ExperimentRow | None,
    ) -> None:
        """Narrow the breadth after a gain, widen it after none; credit the way of the batch."""
        gain = workspace.history.best is not best
        new = [row for row in workspace.rows[before:] if row.status != "refused"]
        diary.batches += 1
        diary.barren = 0 if new else diary.barren + 1
        diary.since = 0 if gain else diary.since + len(new)
        diary.gains[way] += min(1.0, 100.0 * _reward_rise(workspace, best))
        diary.seconds[way] += sum_floats(row.seconds for row in new) + 0.1 * len(new)
        if new and way == "propose":
            diary.breadth = max(1, diary.breadth - 1) if gain else min(_WIDEST, diary.breadth + 1)
        for row in new:
            for name in row.origin.rpartition(":")[2].split("+"):
                diary.tried[name] = diary.tried.get(name, 0) + 1
                diary.better[name] = diary.better.get(name, 0) + _improves_on_parent(workspace, row)

    async def _append_reflections(
        self, workspace: AgentWorkspace, diary: _Diary, word: str
    ) -> None:
        """Append the agent's attempts and their results to the reflections, from the rows alone."""
        rows = [row for row in workspace.rows if row.status != "refused"]
        failed: dict[str, int] = {}
        for row in rows:
            if row.status != "ok":
                failed[row.status] = failed.get(row.status, 0) + 1
        lines = [f"\n## Agent {workspace.tag} (offline)\n"]
        lines.append(
            f"- {len(rows)} experiments in {diary.batches} batches, up to {diary.widest} side "
            f"by side; {_failure_counts(failed)}."
        )
        lines.append(
            f"- Best before: {_row_summary(workspace, diary.first)}. Best now: "
            f"{_row_summary(workspace, workspace.history.best)}."
        )
        refused = sum(row.reason == "not_certified" for row in rows)
        if refused:
            lines.append(f"- {refused} would have led, but the verifier did not accept them.")
        helped = sorted(diary.tried, key=lambda name: (-diary.better[name], name))
        if helped:
            successes = ", ".join(
                f"{name} {diary.better[name]} of {diary.tried[name]}" for name in helped
            )
            lines.append(
                f"- Better than the candidate they were made from, by what was done: {successes}."
            )
        lines.append(
            f"- Breadth at the end: {diary.breadth}. Why it ended: {word.replace('_', ' ')}."
        )
        await workspace.use_tool("append", path="reflections.md", text="\n".join(lines) + "\n")


def _reward_rise(workspace: AgentWorkspace, before: ExperimentRow | None) -> float:
    """Rise of the best reward, relative to the best reward before."""
    history = workspace.history
    now = None if history.best is None else history.ranking_reward(history.best)
    then = None if before is None else history.ranking_reward(before)
    if now is None or then is None:
        return 0.0 if now is None else 1.0
    return (now - then) / (abs(then) or 1.0)


def _improves_on_parent(workspace: AgentWorkspace, row: ExperimentRow) -> bool:
    """True if a row's reward is higher than the best of its first parent."""
    reward = workspace.history.ranking_reward(row)
    parents = [
        earlier
        for earlier in workspace.history.rows
        if row.parents and earlier.candidate == row.parents[0]
    ]
    rewards = [
        level
        for earlier in parents
        if (level := workspace.history.ranking_reward(earlier)) is not None
    ]
    return reward is not None and (not rewards or reward > max(rewards))


def _row_summary(workspace: AgentWorkspace, row: ExperimentRow | None) -> str:
    if row is None:
        return "none"
    score = format_number(workspace.history.decisive_score(row))
    return f"{score} ({row.candidate}, {row.path or _origin_text(row)})"


def _origin_text(row: ExperimentRow) -> str:
    """The origin of a candidate that no agent made: `initial program`, `carried`, `person`."""
    return "initial program" if row.origin == INITIAL else row.origin


def _failure_counts(failed: dict[str, int]) -> str:
    return (
        ", ".join(f"{count} ended in {status}" for status, count in failed.items())
        or "all were scored"
    )


# A line of work on the numbers of one candidate: generations of CMA-ES, each a batch of
# experiments.

_STALLED = 4  # generations without a gain after which a line restarts
# first and smallest initial deviation, relative to the size of each number or its list
_STEP, _LEAST = 0.1, 0.001


@dataclass
class NumberTuning:
    """A line of work on the numbers of the best candidate.

    After `_STALLED` generations without a gain it restarts: at the same candidate with half the
    step, at a new best one with twice the step.
    """

    size: int
    step: float = _STEP
    parent: Candidate | None = None
    seed: int = 0
    stalled: int = 0
    possible: bool = True
    rewards: list[list[float | None]] = field(default_factory=list[list[float | None]])

    async def next_generation(self, lab: Lab, best: Candidate) -> list[Candidate]:
        """The next candidates to try; none if there is no number to tune."""
        if self.parent is None or (self.stalled >= _STALLED and best.id == self.parent.id):
            self._begin_line(lab, best, self.step if self.parent is None else self.step / 2)
        elif self.stalled >= _STALLED:
            self._begin_line(lab, best, min(_STEP, self.step * 2))
        surface = lab.task.surface
        edits: Edits = await lab.edit(
            "cma",
            (self.parent or best,),
            seed=self.seed,
            size=self.size,
            step=self.step,
            generations=self.rewards,
            frozen=list(surface.frozen),
            marked=surface.markers != "off",
        )
        self.possible = bool(edits.parts)
        origin = Origin("offline:cma", model="offline")
        return [Candidate.of(parts, ((self.parent or best).id,), origin) for parts in edits.parts]

    def record_rewards(self, rewards: Sequence[float | None], gain: bool) -> None:
        """Record a generation's rewards, in its order; `gain` is True if one of them leads now."""
        self.rewards.append(list(rewards))
        self.stalled = 0 if gain else self.stalled + 1

    def _begin_line(self, lab: Lab, best: Candidate, step: float) -> None:
        self.parent, self.stalled, self.seed = best, 0, lab.rng.getrandbits(30)
        self.rewards, self.step = [], step if step >= _LEAST else _STEP


# The lab for the proposer of an agent: its evaluations are experiments of that agent.

_RunExperiment = Callable[[Candidate], Awaitable[Rollout]]
_Remaining = Callable[[str], float]


class _ExperimentLab:
    """A lab whose evaluations are made by `run` and whose budgets are the agent's.

    Everything else is passed on to the lab behind it.
    """

    def __init__(self, lab: Lab, run: _RunExperiment, left: _Remaining) -> None:
        self._lab, self._run, self._left = lab, run, left

    def left(self, budget: str) -> float:
        """Amount left of the agent's share of a budget."""
        return min(self._lab.left(budget), self._left(budget))

    async def evaluate(
        self,
        candidate: Candidate,
        cases: Sequence[Case | None] | None = None,
        repeats: int = 1,
        *,
        certify: bool = False,
    ) -> Rollout:
        """Make one experiment on all training cases; no observations if the workspace is closed."""
        return await self._run(candidate)

    def __getattr__(self, name: str) -> object:
        return getattr(self._lab, name)


def experiment_lab(lab: Lab, run: _RunExperiment, left: _Remaining) -> Lab:
    """A lab on which `run` evaluates candidates and `left` bounds every budget."""
    return cast(Lab, _ExperimentLab(lab, run, left))
