"""What lets an evaluator ask models while one evaluation runs: set by who performs it, found by the
backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from culmen.core.errors import CulmenError, UserError

ROLE = "judge"
"""The role that is asked where the evaluator names none."""


class AskingFailed(CulmenError):
    """A model did not serve an evaluator, or no budget holds the call: the evaluation is lost.
    `reason` is a word.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class Asker(Protocol):
    """Answers the questions of one evaluation.

    `ask` takes `{"number", "role", "messages", "options"}` (number: 1, 2, ... within one attempt)
    and gives a chat completion, or `{"error": {"kind", "message"}}` for what the provider refuses
    for good. Raises `AskingFailed`, `Unavailable` (an outage that lasts), and `UserError` for a
    role without a model or a key that is wrong.
    """

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]: ...


ASKER: ContextVar[Asker | None] = ContextVar("asker", default=None)
"""What answers the evaluation that the present task performs."""


def asker() -> Asker:
    """The present one. Raises `UserError` where nothing answers."""
    found = ASKER.get()
    if found is None:
        raise no_model(ROLE)
    return found


def no_model(role: str) -> UserError:
    """The error for a role that nobody answers."""
    return UserError(
        f"the evaluator asks a model as '{role}', and no model has that role",
        where="--model",
        fix=f"add --model {role}=MODEL (the search itself may stay --model offline)",
    )
