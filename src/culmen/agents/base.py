"""The protocol of agents, and the words for how one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from culmen.agents.desk import Desk
    from culmen.core.ports import Lab

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
    """One agent's turn. `work` returns its own word at the end; why it ended is on the desk. `manual` says in its
    TASK.md how experiments are asked for, "" for the client that lies in every work tree."""

    @property
    def manual(self) -> str: ...

    async def work(self, lab: Lab, desk: Desk) -> str: ...
