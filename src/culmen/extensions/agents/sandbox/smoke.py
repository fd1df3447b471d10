"""A smoke test of an agent: one small question in its sandbox, with the configured model."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from culmen.core.errors import UserError
from culmen.core.event import Custom, CustomRequest
from culmen.core.task import Evaluator, Task
from culmen.core.usage import Usage
from culmen.extensions.agents.messages import (
    REPLIES,
    Ended,
    EndSession,
    Open,
    Opened,
    Wait,
    Waited,
    from_plain_data,
    to_plain_data,
)
from culmen.extensions.agents.sandbox.world import SessionWorld

PROMPT = (
    "This is a test of your connection. Answer with the one word: ready. Call no tool and change "
    "no file."
)
Reply = TypeVar("Reply", bound=msgspec.Struct)
LIMITS = {"seconds": 300.0, "idle": 120.0, "calls": 5.0}


class SmokeTest(msgspec.Struct, frozen=True):
    """Result of a smoke test.

    `word` is the agent's last message, `why` the fault; `usage` is the gateway's count.
    """

    agent: str
    works: bool
    why: str = ""
    word: str = ""
    isolation: str = ""
    metered: bool = True
    version: str = ""
    seconds: float = 0.0
    usage: Usage = Usage()
    claimed: dict[str, float] = {}


async def run_smoke_test(agent: str, model: str = "", models: str | None = None) -> SmokeTest:
    """Ask an agent one question.

    `model` is a `--model` text ("": the program's own default), `models` a models file.
    """
    began = time.monotonic()
    if agent == "offline":
        return SmokeTest(agent, True, word="it needs nothing")
    try:
        done = await (
            _test_builtin(agent, model, models)
            if agent == "builtin"
            else _test_program(agent, model, models)
        )
    except UserError as error:
        done = SmokeTest(
            agent, False, "; ".join(filter(None, (error.what, error.where, error.fix)))
        )
    return msgspec.structs.replace(done, seconds=round(time.monotonic() - began, 1))


def _smoke_task() -> Task:
    return Task("smoke", seeds=({"main.py": "pass\n"},), evaluator=Evaluator())


async def _test_builtin(agent: str, model: str, models: str | None) -> SmokeTest:
    """Test of the built-in agent: a call of its model."""
    from culmen.models.gateway import ModelGateway
    from culmen.models.roles import ModelBook

    if model in ("", "offline"):
        return SmokeTest(agent, False, "no model is named: --model MODEL")
    gateway = ModelGateway(_smoke_task(), ModelBook(models).parse_roles(model))
    try:
        text = await gateway.write("agent", {"messages": [{"role": "user", "content": PROMPT}]}, 0)
    finally:
        await gateway.close()
    return SmokeTest(agent, not text.fault, text.fault, text.text, usage=text.usage)


async def _test_program(agent: str, model: str, models: str | None) -> SmokeTest:
    with tempfile.TemporaryDirectory(prefix="culmen-smoke-") as folder:
        world = SessionWorld(Path(folder) / "run", _smoke_task(), models=(model or None, models))
        try:
            opened, _ = await _perform_request(
                world, Open(0, agent, {"TASK.md": PROMPT + "\n"}, PROMPT, limits=LIMITS), Opened
            )
            if opened.fault:
                return SmokeTest(agent, False, opened.fault)
            waited, usage = await _wait_for_session_end(world)
            ended, more = await _perform_request(
                world, EndSession(0, waited.ended or "idle"), Ended
            )
        finally:
            await world.close()
    answered = waited.ended == "finished" and bool(usage.calls or not opened.metered)
    why = "" if answered else f"{waited.ended or 'idle'}: {waited.word or 'it returned no message'}"
    facts = {"isolation": opened.isolation, "metered": opened.metered, "version": opened.version}
    return SmokeTest(
        agent, answered, why, waited.word, usage=usage + more, claimed=ended.claimed, **facts
    )


async def _wait_for_session_end(world: SessionWorld) -> tuple[Waited, Usage]:
    nth, usage = 1, Usage()
    while True:
        waited, more = await _perform_request(world, Wait(0, 0, nth), Waited)
        nth, usage = nth + 1, usage + more
        if waited.ended or waited.idle:
            return waited, usage


async def _perform_request(
    world: SessionWorld, request: msgspec.Struct, kind: type[Reply]
) -> tuple[Reply, Usage]:
    done: Custom = await world.perform(
        CustomRequest(REPLIES[type(request)][0], to_plain_data(request), 0)
    )
    return from_plain_data(dict(done.data), kind), done.usage
