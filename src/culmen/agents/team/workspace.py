"""The desk: where one agent has experiments run, asks about those of all, and uses its tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from culmen.agents.team import texts
from culmen.agents.team.coordinator import Coordinator
from culmen.agents.team.history import History
from culmen.core import admissions
from culmen.core.brief import Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import BARRED
from culmen.core.ports import Lab
from culmen.core.session import (
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
    plain,
    read,
)
from culmen.core.usage import Usage

if TYPE_CHECKING:
    pass
    from culmen.core.ports import Lab

S = TypeVar("S", bound=msgspec.Struct)
_BARRED = 3  # experiments rejected for playing the evaluator, after which an agent has to go
_FUTILE = 3  # looks at the queue in a row that find nothing, after which a request is lost
_PAID = ("tokens", "dollars", "calls")


class AgentWorkspace:
    """One agent's turn. `limits` are what it may use (experiments, seconds, idle, tokens, dollars,
    calls), `rows` its own experiments, `taken` how many of them were not turned away; `ended` is
    why its session is over as far as its world knows, "" while it is not; `told` whether its
    program knows that the desk is closed.
    """

    def __init__(
        self,
        lab: Lab,
        registry: Coordinator,
        kind: str,
        own: Mapping[str, float | None] | None = None,
        model: str = "",
    ) -> None:
        self._lab, self._registry, self.kind, self._model = lab, registry, kind, model
        self.agent, self.limits = registry.begin(own or {})
        self.rows: list[ExperimentRow] = []
        self.usage, self.ended = Usage(), ""
        self._asked = self.taken = self._waits = self._tools = self._nudges = self._seen = (
            self._files
        ) = self._queued = 0
        self._began = lab.elapsed
        self._led = registry.history.best
        self._ending: Awaitable[Ended] | None = None
        self._listening: Awaitable[Waited] | None = None
        self._closed, self.told = "", False

    @property
    def tag(self) -> str:
        """a00, a01, ...: its name in paths."""
        return texts.tag(self.agent)

    @property
    def history(self) -> History:
        """Everything measured so far, by all agents."""
        return self._registry.history

    @property
    def gained(self) -> bool:
        """Whether the best so far is better than when this agent began, by its own doing."""
        best = self.history.best
        return best is not self._led and any(row is best for row in self.rows)

    @property
    def closing(self) -> str:
        """Why no more experiments are taken from this agent, "" while they are."""
        return self._closed or self._registry.stopping or self._used_up() or self._registry.spent()

    @property
    def reason(self) -> str:
        """Why the agent ended: what its world says, the limit after which it was told to go, or its
        own word.
        """
        if self.ended in ("finished", "idle") and self.told:
            return self.closing
        return self.ended or self.closing or "finished"

    def left(self, budget: str) -> float:
        """What remains for this agent of a budget of the run; infinity where it has no limit."""
        limit = self.limits.get("experiments" if budget == "evaluations" else budget, float("inf"))
        if budget == "seconds":
            return max(0.0, limit - (self._lab.elapsed - self._began))
        used = self.taken if budget == "evaluations" else getattr(self.usage, budget)
        return max(0.0, limit - used) * (self._registry.price if budget == "evaluations" else 1)

    def close(self, reason: str) -> None:
        """Take no more experiments from this agent."""
        self._closed = self._closed or reason

    async def open(self, how: str = "") -> Opened:
        """Make its work tree, and start its program if it has one. `how` says how experiments are
        asked for.
        """
        await self._registry.take_up()
        terms = self._registry.terms
        task = texts.task(
            self._lab.task,
            self.agent,
            terms.agents,
            terms.parallel,
            self.limits,
            self._registry.threshold,
            how,
        )
        request = Open(
            self.agent, self.kind, {"TASK.md": task}, texts.fill("prompt"), self._model, self.limits
        )
        return await self._ask(request, Opened)

    def next_path(self, parts: Mapping[str, str]) -> str:
        """A place for a new candidate: a file, or a folder of parts."""
        self._files += 1
        suffix = PurePosixPath(next(iter(parts))).suffix if len(parts) == 1 else ""
        return f"candidates/{self.tag}/e{self._files:03d}{suffix}"

    async def experiments(self, asked: Sequence[Experiment]) -> list[ExperimentRow]:
        """Evaluate these side by side; the rows are in the history and before the agent on return,
        in this order.
        """
        return await self._lab.gather(*(self._experiment(one) for one in asked))

    async def attempt(self, candidate: Candidate, path: str, note: str = "") -> ExperimentRow:
        """Evaluate a candidate that is known by more than its text."""
        ticket = f"{self.tag}-{self._asked}"
        return await self._run(
            Experiment(ticket, path, candidate.parts, note, candidate.parents), candidate
        )

    async def tool(self, tool: str, seconds: float = 120.0, **arguments: Any) -> ToolOutput:
        """One tool call in its work tree."""
        self._tools += 1
        return await self._ask(Tool(self.agent, self._tools, tool, arguments, seconds), ToolOutput)

    async def take(
        self, files: Sequence[str], note: str = "", parents: Sequence[str] = ()
    ) -> list[Experiment]:
        """Files of its work tree as experiments, through the same queue that programs use; those
        that other requests in the queue ask for come after them."""
        tickets: list[str] = []
        for path in files:
            self._queued += 1
            request = {"path": path, "note": note, "parents": list(parents)}
            await self.tool(
                "write", path=f"queue/q{self._queued:04d}.json", text=json.dumps(request)
            )
            tickets.append(f"{self.tag}-q{self._queued:04d}")
        found: dict[str, Experiment] = {}
        futile = 0
        while futile < _FUTILE and not all(ticket in found for ticket in tickets):
            new = (await self._listen()).experiments
            self._listening = None
            futile = 0 if new else futile + 1
            found.update((one.ticket, one) for one in new)
        asked = [
            found.pop(ticket, Experiment(ticket, path, fault="lost"))
            for ticket, path in zip(tickets, files)
        ]
        return [*asked, *found.values()]

    async def command(self, command: str, seconds: float) -> ToolOutput:
        """A shell command; experiments that it asks for, by running the client, are made while it
        waits for them.
        """
        running = [True]
        self._lab.spawn(self._serve(running))
        told = await self.tool("command", seconds, command=command)
        running.clear()
        return told

    async def _serve(self, running: list[bool]) -> None:
        """Make the experiments asked for while a command runs; the last wait stays open for what
        comes next.
        """
        while running:
            waited = await self._listen()
            if not running or self.ended:
                return
            self._listening = None
            await self.experiments(waited.experiments)

    async def _listen(self) -> Waited:
        """What the queue says next; at most one wait is under way."""
        if self._listening is None:
            self._listening = self._lab.spawn(self.wait())
        return await self._listening

    async def write(self, role: str, **slots: Any) -> Text | None:
        """Ask the model of a role; None if the agent's limits or the budget have no room, which
        closes the desk.
        """
        short = self._used_up() or self._lab.lacks(role=role, **slots)
        if short:
            return self.close(short)
        text = await self._lab.write(role, **slots)
        self._spend(text.usage)
        return text

    async def wait(self) -> Waited:
        """Until its program asks for experiments, has spent something, idles or ends."""
        self._waits += 1
        waited = await self._ask(Wait(self.agent, self._seen, self._waits), Waited)
        self._seen += len(waited.experiments)
        self.ended = self.ended or waited.ended
        await self._registry.take_up()
        return waited

    def attend(self) -> None:
        """There is a program here that must be told when all have to stop."""
        self._registry.programs.append(self)

    async def farewell(self) -> None:
        """Tell a live program, once, that no more experiments are taken from it."""
        if not (self.told or self.ended):
            self.told = True
            await self.nudge(texts.fill("closed", why=REASONS.get(self.closing, self.closing)))

    async def nudge(self, text: str) -> None:
        """Say something to a live program."""
        self._nudges += 1
        await self._lab.effect("session.nudge", **plain(Nudge(self.agent, self._nudges, text)))

    async def end(self, reason: str) -> Ended:
        """End every process of the session; once, whoever asks."""
        if self._ending is None:
            self._ending = self._lab.spawn(self._ask(EndSession(self.agent, reason), Ended))
        return await self._ending

    def confess(self, *told: str) -> None:
        """Journal what the agent itself says of playing the evaluator: its candidates carry the
        sign from then on.

        `told` are texts that it left, some of them with what others wrote before it.
        """
        said = [
            one.sentence for text in told for one in admissions.found(text) if one.name == "admits"
        ]
        own = [
            evidence for evidence in dict.fromkeys(said) if evidence not in self._registry.admitted
        ]
        self._registry.admitted.update(own)
        scored = [row.candidate for row in self.history.top(len(self.rows), self.rows)]
        if own and scored:
            self._lab.note(admissions.ADMISSION, agent=self.agent, evidence=own, candidates=scored)

    async def commit(self, reason: str) -> Committed:
        """Commit what is allowed and merge it into the trunk; the agent's limits are free for
        others.
        """
        self._registry.finish(self.agent, self.gained)
        scored = self.history.top(1, self.rows)
        best = None if self.history.best is None else self.history.counts(self.history.best)
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
        return await self._ask(Commit(self.agent, subject, trailers), Committed)

    async def _experiment(self, asked: Experiment) -> ExperimentRow:
        return await self._run(asked, None if asked.fault else self._candidate(asked))

    async def _run(self, asked: Experiment, candidate: Candidate | None) -> ExperimentRow:
        """Judge a candidate unless there is a reason not to, and tell everybody."""
        refusal = asked.fault if candidate is None else self.closing
        self._asked += 1
        if not refusal:
            self.taken += 1
            self._registry.used(self.agent, "experiments", 1)
        rollout = None if candidate is None or refusal else await self._registry.judge(candidate)
        row = ExperimentRow(
            0,
            self.agent,
            asked.ticket,
            "" if candidate is None else candidate.id,
            path=asked.path,
            status="refused",
            reason=refusal or "budget",
            note=asked.note,
            parents=self._parents(asked),
        )
        row = self._registry.enter(row, rollout)
        self.rows.append(row)
        if sum(one.reason.startswith(BARRED) for one in self.rows) >= _BARRED:
            self.close("integrity")
        await self._registry.answer(self.agent, row, self.closing)
        await self._registry.take_up()
        return row

    def _candidate(self, asked: Experiment) -> Candidate:
        """The candidate in what the agent gave: a lone text is the task's only part, missing parts
        are the seed's.
        """
        task, parts = self._lab.task, dict(asked.parts)
        names = (
            list(task.seeds[0])
            if task.seeds
            else [task.evaluator.module or f"program{task.evaluator.suffix}"]
        )
        if len(names) == 1 and len(parts) == 1:
            parts = {names[0]: next(iter(parts.values()))}
        elif task.seeds and len(names) > 1:
            parts = {**task.seeds[0], **parts}
        origin = Origin(f"agent:{self.kind.partition(':')[0]}", model=self._model, note=asked.path)
        return Candidate.of(parts, self._parents(asked), origin)

    def _parents(self, asked: Experiment) -> tuple[str, ...]:
        found = (self.history.resolve(name) for name in asked.parents)
        return tuple(dict.fromkeys(name for name in found if name))

    def _used_up(self) -> str:
        limit = self.limits.get
        if self.taken >= limit("experiments", float("inf")):
            return "experiments"
        if self._lab.elapsed - self._began >= limit("seconds", float("inf")):
            return "seconds"
        return next(
            (name for name in _PAID if getattr(self.usage, name) >= limit(name, float("inf"))), ""
        )

    def _spend(self, usage: Usage) -> None:
        self.usage = self.usage + usage
        for name in _PAID:
            self._registry.used(self.agent, name, getattr(usage, name))

    async def _ask(self, request: msgspec.Struct, reply: type[S]) -> S:
        done = await self._lab.effect(REPLIES[type(request)][0], **plain(request))
        self._spend(done.usage)
        return read(done.data, reply)


# The protocol of agents, and the words for how one ends.

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
    "integrity": "too many of its candidates played the evaluator",
    "finished": "its own word",
    "malformed": "its replies could not be read",
    "crashed": "its program crashed",
    "interrupted": "it was cut off",
    "budget": "the budget is spent",
    "unavailable": "it could not be started",
}


class Agent(Protocol):
    """One agent's turn. `work` returns its own word at the end; why it ended is on the desk.
    `manual` says in its TASK.md how experiments are asked for, "" for the client that lies in every
    work tree."""

    @property
    def manual(self) -> str: ...

    async def work(self, lab: Lab, desk: AgentWorkspace) -> str: ...
