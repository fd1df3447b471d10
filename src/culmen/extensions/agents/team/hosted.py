"""An agent that is a program: it requests experiments through the file queue."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from culmen.core.ports import Lab
from culmen.extensions.agents.messages import Waited
from culmen.extensions.agents.team import texts
from culmen.extensions.agents.team.workspace import AgentWorkspace


@dataclass(frozen=True)
class HostedAgent:
    """An agent whose work is done by a program.

    It evaluates the program's experiments, sends up to `nudges` messages to an idle program, and
    ends a program that does not exit by itself.
    """

    nudges: int = 1
    manual: str = ""

    async def work(self, lab: Lab, workspace: AgentWorkspace) -> str:
        """Serve the program until it ends or must end; return its last message."""
        running: list[Awaitable[object]] = []
        # reports from the program after its workspace is closed, before the session ends
        left, farewells = self.nudges, 10
        workspace.register_program()
        while True:
            waited = await workspace.wait()
            if waited.experiments:
                running.append(lab.spawn(workspace.experiments(waited.experiments)))
            _note_reports(lab, workspace, waited.reports)
            if waited.ended:
                break
            if _is_idle(workspace, waited):
                if running:  # the program waits for experiments
                    await _wait_for_experiments(running)
                    continue
                if left == 0:
                    workspace.ended = "idle"
                    break
                left -= 1
                await workspace.nudge(texts.fill_template("idle"))
            if workspace.closing_reason:
                await _wait_for_experiments(running)
                await workspace.notify_closing()
                farewells -= 1
            if farewells < 0:
                break
        await _wait_for_experiments(running)
        return waited.word


def _is_idle(workspace: AgentWorkspace, waited: Waited) -> bool:
    return waited.idle >= workspace.limits.get("idle", float("inf")) and not waited.experiments


def _note_reports(lab: Lab, workspace: AgentWorkspace, reports: Sequence[str]) -> None:
    for report in reports:
        lab.note("report", agent=workspace.agent, text=report)


async def _wait_for_experiments(running: list[Awaitable[object]]) -> None:
    """Wait until all requested experiments are answered."""
    while running:
        await running.pop(0)
