"""CATO: N coding agents in sequence on one shared repository.

Each agent chooses its depth and breadth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from culmen.core.errors import UserError
from culmen.core.ports import Lab
from culmen.extensions.agents.messages import Ended
from culmen.extensions.agents.team.texts import WORDINGS
from culmen.strategies.settings import About, check

if TYPE_CHECKING:
    from culmen.extensions.agents.team.coordinator import Coordinator
    from culmen.extensions.agents.team.workspace import Agent, AgentWorkspace


@dataclass(frozen=True)
class Cato:
    """Coding agents one after another in a shared repository.

    The repository holds programs, notes, reflections, and the results of all experiments so far.
    Each agent decides for itself how many experiments it runs side by side and how many rounds it
    makes; its work is merged, and the next agent starts there. Experiments are evaluated by culmen,
    never by the agent, and the score that counts is the certified one if the task has a verifier.

    An agent is a program on this machine (Claude Code, Codex, OpenCode, ...: `culmen doctor` lists
    them), the built-in one, which needs a model and nothing else, or `offline`, which needs
    neither. Without a limit of its own, an agent gets an even share of the run's remaining budget;
    a share not spent goes to those after it.
    """

    paper = "Coding Agents as Text Optimizers: N coding agents in sequence on a shared repository"

    ends_at: ClassVar[str] = "threshold"
    agent_setting: ClassVar[str] = "agent"
    trains: ClassVar[bool] = False
    retraces: ClassVar[bool] = False  # agents leave a repository

    agents: Annotated[int, About("agents in all", least=1)] = 10
    parallel: Annotated[int, About("agents at work at the same time", 1, 10_000)] = 1
    agent: Annotated[
        str, About("offline, builtin, the name of a program, acp:COMMAND or cmd:COMMAND")
    ] = "builtin"
    model: Annotated[str, About("model for the agent's program; empty: its own default")] = ""
    threshold: Annotated[
        float | None, About("score that ends the run, certified if it can be; off: the target")
    ] = None
    plateau: Annotated[
        int | None, About("agents in a row without a gain that end the run", least=1)
    ] = None
    wording: Annotated[
        str,
        About(
            "what agents are told of the end: stop_when_reached, or the paper's pressing "
            "go_on_until_reached"
        ),
    ] = "stop_when_reached"
    experiments: Annotated[int | None, About("experiments per agent", least=1)] = None
    seconds: Annotated[float | None, About("wall time per agent", least=1)] = 3600.0
    idle: Annotated[
        float | None, About("seconds without a sign of life before a nudge, then the end", least=1)
    ] = 600.0
    tokens: Annotated[int | None, About("tokens per agent", least=1)] = None
    dollars: Annotated[float | None, About("dollars per agent", least=0)] = None
    calls: Annotated[int | None, About("model calls per agent", least=1)] = 300
    nudges: Annotated[int, About("nudges to an idle agent before it is ended", least=0)] = 1
    context: Annotated[
        int, About("characters of conversation that the built-in agent keeps", least=8000)
    ] = 120_000
    sandbox: Annotated[
        str, About("auto: confined or not at all; agent: by its own means; none")
    ] = "auto"
    memory_mb: Annotated[
        int, About("megabytes of memory of all an agent's processes", least=64)
    ] = 4096

    def __post_init__(self) -> None:
        check(self)
        if self.wording not in WORDINGS:
            raise UserError(
                f"there is no wording '{self.wording}'",
                where="wording",
                fix=f"one of {', '.join(WORDINGS)}",
            )

    @staticmethod
    def require_agent(kind: str) -> str:
        """The agent with the files of its command as absolute paths.

        Raises `UserError` for an agent that is unknown or not installed.
        """
        from culmen.extensions.agents.adapters import catalog, programs

        settled = catalog.agent_with_paths(kind, Path.cwd())
        programs.find_program(catalog.adapter_by_name(settled).program)
        return settled

    @property
    def writes(self) -> bool:
        """True if its agents can write a first candidate without one of culmen's models."""
        return self.agent not in ("offline", "builtin")

    @property
    def asides(self) -> str:
        """Empty: agents make requests of their own, and pay for them from their own shares."""
        return ""

    @property
    def crew(self) -> str:
        """Number and kind of agents: `3 x claude, 2 at once`."""
        return f"{self.agents} x {self.agent}" + (
            f", {self.parallel} at once" if self.parallel > 1 else ""
        )

    async def search(self, lab: Lab) -> str:
        """Run the sequence of agents; the reason for its end.

        Step numbers are those of docs/agents/cato.md; the paper has none.
        """
        from culmen.extensions.agents.team.coordinator import Coordinator, TeamTerms

        coordinator = Coordinator(
            lab, TeamTerms(self.threshold, self.agents, self.parallel, self.plateau, self.wording)
        )
        await coordinator.evaluate_initial_programs()  # 1
        turns = iter(range(self.agents))
        await lab.gather(
            *(
                self.run_lane(lab, coordinator, turns)
                for _ in range(min(self.parallel, self.agents))
            )
        )  # 2
        return coordinator.stopping or ("agents" if coordinator.whole else "agents_crashed")  # 8

    async def run_lane(self, lab: Lab, coordinator: Coordinator, turns: Iterator[int]) -> None:
        """Run one agent after another; several lanes take their turns from one counter."""
        lost = 0
        while not coordinator.stopping and next(turns, None) is not None:
            reason = await self.run_agent(lab, coordinator)
            coordinator.whole = coordinator.whole or reason not in ("unavailable", "crashed")
            lost = lost + 1 if reason == "unavailable" else 0
            coordinator.stop(
                # agents in a row that cannot be started end the run
                "unavailable" if lost == 3 else coordinator.budget_short_for_agent()
            )  # 7

    async def run_agent(self, lab: Lab, coordinator: Coordinator) -> str:
        """Run one agent, from the trunk and back to it; the reason for its end."""
        from culmen.extensions.agents.team.workspace import AgentWorkspace

        own = {
            name: getattr(self, name)
            for name in ("experiments", "seconds", "idle", "tokens", "dollars", "calls")
        }
        agent, workspace = (
            self.make_agent(),
            AgentWorkspace(lab, coordinator, self.agent, own, self.model),
        )
        opened = await workspace.open(agent.manual)  # 3
        word = opened.fault
        if not word:
            began = {
                "isolation": opened.isolation,
                "metered": opened.metered,
                "version": opened.version,
            }
            lab.note(
                "agent",
                agent=workspace.agent,
                agents=self.agents,
                program=self.agent,
                limits=workspace.limits,
                **began,
            )
            word = await agent.work(lab, workspace)  # 4
        reason = "unavailable" if opened.fault else workspace.end_reason
        ended = await workspace.end(reason)  # 5
        workspace.record_admissions(
            ended.reflections, ended.notes, word, *(row.note for row in workspace.rows)
        )
        await workspace.commit(reason)  # 6
        self.note_end(lab, workspace, reason, word, ended)
        return reason

    def make_agent(self) -> Agent:
        """The agent that `agent` names."""
        if self.agent == "offline":
            from culmen.extensions.agents.team.offline import OfflineAgent

            return OfflineAgent()
        if self.agent == "builtin":
            from culmen.extensions.agents.team.builtin import BuiltinAgent

            return BuiltinAgent(self.context)
        from culmen.extensions.agents.team.hosted import HostedAgent

        return HostedAgent(self.nudges)

    def note_end(
        self, lab: Lab, workspace: AgentWorkspace, reason: str, word: str, ended: Ended
    ) -> None:
        """A message on the end of an agent."""
        best = workspace.history.best
        lab.note(
            "agent ended",
            agent=workspace.agent,
            agents=self.agents,
            program=self.agent,
            ended=reason,
            word=word[:400],
            experiments=workspace.taken,
            gained=workspace.has_gained,
            best=None if best is None else workspace.history.decisive_score(best),
            calls=workspace.usage.calls,
            tokens=workspace.usage.tokens,
            dollars=workspace.usage.dollars,
            claimed=ended.claimed,
            transcript=ended.transcript,
        )
