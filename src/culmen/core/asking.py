"""Access to models for an evaluator while one evaluation runs.

The performer of the evaluation sets it, the backend reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from culmen.core.errors import CulmenError, UserError
from culmen.core.json import JsonObject
from culmen.core.usage import Usage

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

    async def lend(self, role: str, most: Callable[[Any], Usage]) -> Loan:
        """The model of a role, for a program that asks it through a gateway of its own.

        `most` computes the largest cost from the model; the run's budget holds it until the loan is
        settled. Raises as `ask` does.
        """
        ...


class Loan(Protocol):
    """A lent model (an `models.spec.ModelSpec`), and what the budget holds for it at most."""

    @property
    def model(self) -> Any: ...

    @property
    def most(self) -> Usage: ...

    def settle(self, usage: Usage, calls: int) -> None:
        """Count the true cost; the rest of the hold is released."""
        ...


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
