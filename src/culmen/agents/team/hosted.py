"""An agent that is a program of its own: it asks for experiments through the file queue, culmen
answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from culmen.agents.team import texts
from culmen.agents.team.workspace import AgentWorkspace
from culmen.core.ports import Lab
from culmen.core.session import Waited

_LEAVE = 10  # signs of life after the desk is closed until the agent is sent away


@dataclass(frozen=True)
class HostedAgent:
    """Waits, answers, nudges up to `nudges` times when nothing happens, and sends home who does not
    go by itself.
    """

    nudges: int = 1
    manual: str = ""

    async def work(self, lab: Lab, desk: AgentWorkspace) -> str:
        """Serve the program until it ends or has to."""
        running: list[Awaitable[Any]] = []
        left, farewells = self.nudges, _LEAVE
        desk.attend()
        while True:
            waited = await desk.wait()
            if waited.experiments:
                running.append(lab.spawn(desk.experiments(waited.experiments)))
            _pass_on(lab, desk, waited.reports)
            if waited.ended:
                break
            if _idles(desk, waited):
                if running:  # it waits for us
                    await _all(running)
                    continue
                if left == 0:
                    desk.ended = "idle"
                    break
                left -= 1
                await desk.nudge(texts.fill("idle"))
            if desk.closing:
                await _all(running)
                await desk.farewell()
                farewells -= 1
            if farewells < 0:
                break
        await _all(running)
        return waited.word


def _idles(desk: AgentWorkspace, waited: Waited) -> bool:
    return waited.idle >= desk.limits.get("idle", float("inf")) and not waited.experiments


def _pass_on(lab: Lab, desk: AgentWorkspace, reports: Sequence[str]) -> None:
    for report in reports:
        lab.note("report", agent=desk.agent, text=report)


async def _all(running: list[Awaitable[Any]]) -> None:
    """Until everything that was asked for is answered."""
    while running:
        await running.pop(0)
