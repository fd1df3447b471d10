"""Agent sessions without agents, for `culmen.testing`: answers drawn from the effect.

The program asks for a few experiments at a time, spends tokens, falls silent, reports, crashes or
ends, by chance, and never sees a result.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from culmen.core.event import Custom, CustomRequest
from culmen.core.usage import Usage
from culmen.extensions.agents.messages import (
    REPLIES,
    Ended,
    Experiment,
    ToolOutput,
    Wait,
    Waited,
    from_plain_data,
    to_plain_data,
)

Programs = Callable[[Random], dict[str, str]]


def perform_session(
    request: CustomRequest, rng: Random, programs: Programs, empty: float = 0.0
) -> tuple[float, Custom]:
    """Virtual seconds and the result of a session effect.

    `programs` writes a candidate's parts; `empty` is the probability that a program calls its model
    without a result.
    """
    if request.kind == "session.wait":
        draw = Random(f"{request.seed}/wait")
        waited, usage = _draw_wait(from_plain_data(request.payload, Wait), draw, programs, empty)
        return rng.expovariate(0.2), Custom(to_plain_data(waited), usage)
    if request.kind == "session.tool":
        return 0.01, Custom(
            to_plain_data(
                ToolOutput("Breadth at the end: 3." if request.payload["tool"] == "read" else "")
            )
        )
    if request.kind == "session.end":
        return 0.1, Custom(
            to_plain_data(Ended(reflections="nothing new", transcript="transcripts/none.jsonl"))
        )
    kinds = {kind: reply for kind, reply in REPLIES.values()}
    return 0.1, Custom(to_plain_data(kinds[request.kind]()))


def _draw_wait(asked: Wait, draw: Random, programs: Programs, empty: float) -> tuple[Waited, Usage]:
    chance = draw.random()
    if asked.nth >= 8 or chance < 0.05:  # waits after which a program ends at the latest
        return Waited(
            ended=draw.choice(("finished", "crashed", "interrupted")), word="enough"
        ), Usage()
    if chance < 0.2:
        return Waited(idle=1e6), Usage()
    if chance < 0.4 or draw.random() < empty:
        reports = ("the tolerance is wide",) * draw.randint(0, 1)
        return Waited(reports=reports), Usage(calls=1, input_tokens=900, output_tokens=90)
    count = draw.randint(1, 4)
    return Waited(
        tuple(_draw_experiment(asked, asked.seen + n, draw, programs) for n in range(count))
    ), Usage()


def _draw_experiment(asked: Wait, n: int, draw: Random, programs: Programs) -> Experiment:
    ticket = f"a{asked.agent:02d}-{n}"
    if draw.random() < 0.1:
        return Experiment(ticket, "evaluator.py", fault="outside_candidates")
    path = f"candidates/a{asked.agent:02d}/{n}.py"
    return Experiment(ticket, path, programs(draw), "a try", parents=("seed-0",))
