"""A scripted model for tests, demonstrations and cost-free rehearsals of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from culmen.models.call import Call, Completion, Reply, Tokens

Script = Callable[[Call], str | Completion | Reply]


class ScriptedModel:
    """A model that follows a script, to pass as `model=`.

    `script` is a function of the call (a pure one makes a run repeatable for any order of calls),
    or texts that are returned in turn, from the start again after the last.

    A function that raises one of `culmen.models.call`'s errors simulates a failing provider. Each
    sample takes `latency` seconds; tokens are counted as a quarter of the characters; it costs
    nothing. `calls` keeps the requests.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script | Sequence[str],
        *,
        latency: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not callable(script) and not script:
            raise ValueError("a scripted model needs at least one reply")
        self._script, self._latency, self._sleep = script, latency, sleep
        self._next = 0
        self.calls: list[Call] = []

    async def complete(self, call: Call) -> Reply:
        """The script's answer, `call.samples` times."""
        self.calls.append(call)
        if self._latency:
            await self._sleep(self._latency)
        choices: list[Completion] = []
        for _ in range(call.samples):
            answer = self._next_answer(call)
            if isinstance(answer, Reply):
                return answer
            choices.append(answer if isinstance(answer, Completion) else Completion(answer))
        counted = Tokens(
            _token_estimate(call.prompt), sum(_token_estimate(choice.text) for choice in choices)
        )
        return Reply(tuple(choices), counted, dollars=0.0)

    def _next_answer(self, call: Call) -> str | Completion | Reply:
        if callable(self._script):
            return self._script(call)
        self._next += 1
        return self._script[(self._next - 1) % len(self._script)]


def _token_estimate(text: str) -> int:
    return len(text) // 4 + 1
