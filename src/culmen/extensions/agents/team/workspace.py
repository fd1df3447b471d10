"""One agent's workspace: its experiments, limits, model calls, tools and session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

import msgspec

from culmen.core import admissions
from culmen.core.brief import Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import BARRED
from culmen.core.ports import Lab
from culmen.core.usage import Usage
from culmen.extensions.agents.messages import (
    REPLIES,
    Commit,
    Committed,
    Ended,
    EndSession,
    Experiment,
    ExperimentRow,
    Nudge,
    Open,
    Opened,
    Tool,
    ToolOutput,
    Wait,
    Waited,
    from_plain_data,
    to_plain_data,
)
from culmen.extensions.agents.team import texts
from culmen.extensions.agents.team.coordinator import Coordinator
from culmen.extensions.agents.team.history import History

S = TypeVar("S", bound=msgspec.Struct)
_PAID = ("tokens", "dollars", "calls")


class AgentWorkspace:
    """Workspace of one agent, for one session.

    limits   most that the agent may use: experiments, seconds, idle seconds, tokens, dollars, calls
    rows     its own experiments
    taken    number of its experiments that were not refused
    ended    reason for which its session has ended by itself; "" while it goes on
    """

    def __init__(
        self,
        lab: Lab,
        coordinator: Coordinator,
        kind: str,
        own: Mapping[str, float | None] | None = None,
        model: str = "",
    ) -> None:
        self._lab, self._coordinator, self.kind, self._model = lab, coordinator, kind, model
        self.agent, self.limits = coordinator.begin_agent(own or {})
        self.rows: list[ExperimentRow] = []
        self.usage, self.ended = Usage(), ""
        self._requested = self.taken = self._waits = self._tools = self._nudges = self._seen = (
            self._files
        ) = self._queued = 0
        self._began = lab.elapsed
        self._led = coordinator.history.best
        self._ending: Awaitable[Ended] | None = None
        self._listening: Awaitable[Waited] | None = None
        # `notified`: the program knows that its experiments are refused
        self._closed, self.notified = "", False

    @property
    def tag(self) -> str:
        """The agent's name in paths: a00, a01, ..."""
        return texts.agent_tag(self.agent)

    @property
    def history(self) -> History:
        """All experiments so far, by all agents."""
        return self._coordinator.history

    @property
    def has_gained(self) -> bool:
        """True if this agent's own experiment has improved the best since the agent began."""
        best = self.history.best
        return best is not self._led and any(row is best for row in self.rows)

    @property
    def closing_reason(self) -> str:
        """Reason for which this agent's experiments are refused; "" while they are accepted."""
        return (
            self._closed
            or self._coordinator.stopping
            or self._used_up_limit()
            or self._coordinator.budget_short_for_experiment()
        )

    @property
    def end_reason(self) -> str:
        """Reason for the agent's end: of the session, of its notification, or "finished"."""
        if self.ended in ("finished", "idle") and self.notified:
            return self.closing_reason
        return self.ended or self.closing_reason or "finished"

    def budget_left(self, budget: str) -> float:
        """Amount of a budget of the run that this agent may still use; infinity without a limit."""
        limit = self.limits.get("experiments" if budget == "evaluations" else budget, float("inf"))
        if budget == "seconds":
            return max(0.0, limit - (self._lab.elapsed - self._began))
        used = self.taken if budget == "evaluations" else getattr(self.usage, budget)
        return max(0.0, limit - used) * (
            self._coordinator.evaluations_per_experiment if budget == "evaluations" else 1
        )

    def close(self, reason: str) -> None:
        """Refuse further experiments of this agent."""
        self._closed = self._closed or reason

    async def open(self, how: str = "") -> Opened:
        """Create the agent's work tree, and start its program if it has one.

        `how` explains in TASK.md how to request experiments.
        """
        await self._coordinator.evaluate_handed_in()
        terms = self._coordinator.terms
        task = texts.task_text(
            self._lab.task,
            self.agent,
            terms.agents,
            terms.parallel,
            self.limits,
            self._coordinator.threshold,
            how,
            terms.wording,
        )
        request = Open(
            self.agent,
            self.kind,
            {"TASK.md": task},
            texts.fill_template("prompt"),
            self._model,
            self.limits,
        )
        return await self._request_effect(request, Opened)

    def next_path(self, parts: Mapping[str, str]) -> str:
        """Path for a new candidate: a file, or a folder of parts."""
        self._files += 1
        suffix = PurePosixPath(next(iter(parts))).suffix if len(parts) == 1 else ""
        return f"candidates/{self.tag}/e{self._files:03d}{suffix}"

    async def experiments(self, requested: Sequence[Experiment]) -> list[ExperimentRow]:
        """Evaluate experiments in parallel; return their rows in the same order.

        On return the rows are in the history and have been written for the agent.
        """
        return await self._lab.gather(
            *(self._evaluate_experiment(experiment) for experiment in requested)
        )

    async def evaluate_candidate(
        self, candidate: Candidate, path: str, note: str = ""
    ) -> ExperimentRow:
        """Evaluate a candidate whose origin and parents are known, not only its text."""
        ticket = f"{self.tag}-{self._requested}"
        return await self._run_experiment(
            Experiment(ticket, path, candidate.parts, note, candidate.parents), candidate
        )

    async def use_tool(self, tool: str, seconds: float = 120.0, **arguments: object) -> ToolOutput:
        """Make one tool call in the agent's work tree."""
        self._tools += 1
        return await self._request_effect(
            Tool(self.agent, self._tools, tool, arguments, seconds), ToolOutput
        )

    async def queue_files(
        self, files: Sequence[str], note: str = "", parents: Sequence[str] = ()
    ) -> list[Experiment]:
        """Files of the work tree as experiments, read through the queue that programs use.

        Experiments of other requests in the queue follow those of `files`.
        """
        tickets: list[str] = []
        for path in files:
            self._queued += 1
            request = {"path": path, "note": note, "parents": list(parents)}
            await self.use_tool(
                "write", path=f"queue/q{self._queued:04d}.json", text=json.dumps(request)
            )
            tickets.append(f"{self.tag}-q{self._queued:04d}")
        received: dict[str, Experiment] = {}
        futile = 0
        # consecutive reads of an empty queue after which a request counts as lost
        while futile < 3 and not all(ticket in received for ticket in tickets):
            new = (await self._read_queue()).experiments
            self._listening = None
            futile = 0 if new else futile + 1
            received.update((experiment.ticket, experiment) for experiment in new)
        requested = [
            received.pop(ticket, Experiment(ticket, path, fault="lost"))
            for ticket, path in zip(tickets, files)
        ]
        return [*requested, *received.values()]

    async def run_in_tree(self, command: str, seconds: float) -> ToolOutput:
        """Run a shell command; evaluate the experiments that it requests through the client."""
        running = [True]
        self._lab.spawn(self._serve_command(running))
        output = await self.use_tool("command", seconds, command=command)
        running.clear()
        return output

    async def _serve_command(self, running: list[bool]) -> None:
        """Evaluate the experiments that a running command requests.

        The last wait stays open for the next caller.
        """
        while running:
            waited = await self._read_queue()
            if not running or self.ended:
                return
            self._listening = None
            await self.experiments(waited.experiments)

    async def _read_queue(self) -> Waited:
        """The next reading of the queue; at most one wait is in flight."""
        if self._listening is None:
            self._listening = self._lab.spawn(self.wait())
        return await self._listening

    async def ask_model(self, role: str, **slots: Any) -> Text | None:
        """Ask the model of a role for a text.

        Without room in the agent's limits or the budget, close the workspace and return None.
        """
        short = self._used_up_limit() or self._lab.lacks(role=role, **slots)
        if short:
            return self.close(short)
        text = await self._lab.write(role, **slots)
        self._add_usage(text.usage)
        return text

    async def wait(self) -> Waited:
        """Wait until the program requests experiments, reports usage, idles or ends."""
        self._waits += 1
        waited = await self._request_effect(Wait(self.agent, self._seen, self._waits), Waited)
        self._seen += len(waited.experiments)
        self.ended = self.ended or waited.ended
        await self._coordinator.evaluate_handed_in()
        return waited

    def register_program(self) -> None:
        """Register this workspace's program to be notified when all agents must stop."""
        self._coordinator.programs.append(self)

    async def notify_closing(self) -> None:
        """Notify a running program, once, that its experiments are refused from now on."""
        if not (self.notified or self.ended):
            self.notified = True
            await self.nudge(
                texts.fill_template(
                    "closed", why=REASONS.get(self.closing_reason, self.closing_reason)
                )
            )

    async def nudge(self, text: str) -> None:
        """Send a message to a running program."""
        self._nudges += 1
        await self._lab.effect(
            "session.nudge", **to_plain_data(Nudge(self.agent, self._nudges, text))
        )

    async def end(self, reason: str) -> Ended:
        """End every process of the session; repeated calls share one effect."""
        if self._ending is None:
            self._ending = self._lab.spawn(
                self._request_effect(EndSession(self.agent, reason), Ended)
            )
        return await self._ending

    def record_admissions(self, *passages: str) -> None:
        """Record the agent's own admissions of gaming the evaluator, found in texts that it left.

        Its candidates are marked from then on. Admissions of earlier agents in the same texts are
        skipped.
        """
        sentences = [
            admission.sentence
            for text in passages
            for admission in admissions.find_admissions(text)
            if admission.name == "admits"
        ]
        new = [
            evidence
            for evidence in dict.fromkeys(sentences)
            if evidence not in self._coordinator.admitted
        ]
        self._coordinator.admitted.update(new)
        scored = [row.candidate for row in self.history.top_rows(len(self.rows), self.rows)]
        if new and scored:
            self._lab.note(admissions.ADMISSION, agent=self.agent, evidence=new, candidates=scored)

    async def commit(self, reason: str) -> Committed:
        """Commit the permitted files and merge them into the trunk; release the agent's limits."""
        self._coordinator.finish_agent(self.agent, self.has_gained)
        scored = self.history.top_rows(1, self.rows)
        best = None if self.history.best is None else self.history.decisive_score(self.history.best)
        trailers = {
            "Experiments": str(self.taken),
            "Best-Score": repr(scored[0].score) if scored else "none",
            "Certified" if self.history.exact else "Best-So-Far": "none"
            if best is None
            else repr(best),
            "Stop-Reason": reason,
            "Journal-Head": self.history.digest or "none",
        }
        subject = f"Agent {self.tag} ({self.kind}): {self.taken} experiments"
        return await self._request_effect(Commit(self.agent, subject, trailers), Committed)

    async def _evaluate_experiment(self, experiment: Experiment) -> ExperimentRow:
        return await self._run_experiment(
            experiment, None if experiment.fault else self._experiment_candidate(experiment)
        )

    async def _run_experiment(
        self, experiment: Experiment, candidate: Candidate | None
    ) -> ExperimentRow:
        """Evaluate a candidate unless it is refused; write the row for the agent."""
        refusal = experiment.fault if candidate is None else self.closing_reason
        self._requested += 1
        if not refusal:
            self.taken += 1
            self._coordinator.charge_reservation(self.agent, "experiments", 1)
        rollout = (
            None
            if candidate is None or refusal
            else await self._coordinator.judge_candidate(candidate)
        )
        row = ExperimentRow(
            0,
            self.agent,
            experiment.ticket,
            "" if candidate is None else candidate.id,
            path=experiment.path,
            status="refused",
            reason=refusal or "budget",
            note=experiment.note,
            parents=self._resolved_parents(experiment),
        )
        row = self._coordinator.enter_experiment(row, rollout)
        self.rows.append(row)
        # experiments rejected for gaming the evaluator after which an agent must end
        if sum(earlier.reason.startswith(BARRED) for earlier in self.rows) >= 3:
            self.close("integrity")
        await self._coordinator.publish_row(self.agent, row, self.closing_reason)
        await self._coordinator.evaluate_handed_in()
        return row

    def _experiment_candidate(self, experiment: Experiment) -> Candidate:
        """Candidate of an experiment.

        A single text is the task's only part; missing parts are taken from the initial program,
        except in a set of skills, where they are dropped.
        """
        task, parts = self._lab.task, dict(experiment.parts)
        names = (
            list(task.seeds[0])
            if task.seeds
            else [task.evaluator.module or f"program{task.evaluator.suffix}"]
        )
        if len(names) == 1 and len(parts) == 1 and not task.surface.skills:
            parts = {names[0]: next(iter(parts.values()))}
        elif task.seeds and len(names) > 1 and not task.surface.skills:
            parts = {**task.seeds[0], **parts}
        who = f"agent:{self.kind.partition(':')[0]}"
        if self._coordinator.terms.agents > 1:
            who += f" {self.tag}"
        origin = Origin(who, model=self._model, note=experiment.path)
        return Candidate.of(parts, self._resolved_parents(experiment), origin)

    def _resolved_parents(self, experiment: Experiment) -> tuple[str, ...]:
        candidates = (self.history.resolve_candidate(name) for name in experiment.parents)
        return tuple(dict.fromkeys(name for name in candidates if name))

    def _used_up_limit(self) -> str:
        limit = self.limits.get
        if self.taken >= limit("experiments", float("inf")):
            return "experiments"
        if self._lab.elapsed - self._began >= limit("seconds", float("inf")):
            return "seconds"
        return next(
            (name for name in _PAID if getattr(self.usage, name) >= limit(name, float("inf"))), ""
        )

    def _add_usage(self, usage: Usage) -> None:
        self.usage = self.usage + usage
        for name in _PAID:
            self._coordinator.charge_reservation(self.agent, name, getattr(usage, name))

    async def _request_effect(self, request: msgspec.Struct, reply: type[S]) -> S:
        done = await self._lab.effect(REPLIES[type(request)][0], **to_plain_data(request))
        self._add_usage(done.usage)
        return from_plain_data(done.data, reply)


# The protocol of agents, and phrases for the reasons of their end.

REASONS = {
    "threshold": "the threshold is reached",
    "experiments": "its experiments are used up",
    "evaluations": "the budget of evaluations is spent",
    "seconds": "its time is up",
    "idle": "it did nothing for too long",
    "tokens": "its tokens are used up",
    "dollars": "its money is used up",
    "calls": "its model calls are used up",
    "plateau": "too many agents without a gain",
    "integrity": "too many of its candidates gamed the evaluator",
    "finished": "its own word",
    "malformed": "its replies could not be read",
    "crashed": "its program crashed",
    "interrupted": "it was cut off",
    "budget": "the budget is spent",
    "unavailable": "it could not be started",
}


class Agent(Protocol):
    """An agent that works in a workspace.

    `work` returns the agent's last message; the reason for its end is in the workspace. `manual`
    explains in TASK.md how to request experiments; "" for the client that lies in every work tree.
    """

    @property
    def manual(self) -> str: ...

    async def work(self, lab: Lab, workspace: AgentWorkspace) -> str: ...
