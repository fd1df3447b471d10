"""Access to models for an evaluator while one evaluation runs.

The performer of the evaluation sets it, the backend reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from culmen.core.errors import CulmenError, UserError
from culmen.core.json import JsonObject

ROLE = "judge"
"""The role that is asked if the evaluator names none."""


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
    and returns a chat completion, or `{"error": {"kind", "message"}}` if the provider refuses the
    request for good. Raises `AskingFailed`, `Unavailable` (a lasting outage), and `UserError` for a
    role without a model or a wrong key.
    """

    async def ask(self, question: Mapping[str, object]) -> JsonObject: ...


ASKER: ContextVar[Asker | None] = ContextVar("asker", default=None)
"""The asker of the evaluation that the present task performs."""


def current_asker() -> Asker:
    """The present asker. Raises `UserError` if there is none."""
    found = ASKER.get()
    if found is None:
        raise no_model(ROLE)
    return found


def no_model(role: str) -> UserError:
    """The error for a role that has no model."""
    return UserError(
        f"the evaluator asks a model as '{role}', and no model has that role",
        where="--model",
        fix=f"add --model {role}=MODEL (the search itself may stay --model offline)",
    )
