"""Edits go on, whatever happens to the worker processes."""

from __future__ import annotations

import asyncio
import os
import signal

from culmen.core.candidate import Candidate
from culmen.core.event import EditRequest, Edits
from culmen.models.offline.proposer import EditWorkers
from culmen.models.offline.tools import run_tool

OPTIONS = {"weights": {"numbers": 1.0}, "count": 2}


def request(
    seed: int, tool: str = "vary", text: str = "x = [1, 2, 3.5]\n", **options: object
) -> EditRequest:
    return EditRequest(tool, (Candidate.of({"a.py": text}),), {**OPTIONS, **options}, seed)


def test_a_worker_answers_as_the_tool_itself() -> None:
    async def ask() -> list[Edits]:
        toolbox = EditWorkers(workers=2)
        try:
            return await asyncio.gather(*(toolbox.perform(request(seed)) for seed in range(6)))
        finally:
            await toolbox.close()

    assert asyncio.run(ask()) == [run_tool(request(seed)) for seed in range(6)]


def test_a_killed_worker_is_replaced() -> None:
    async def ask() -> tuple[Edits, Edits, bool]:
        toolbox = EditWorkers()
        try:
            first = await toolbox.perform(request(1))
            (worker,) = toolbox.process_ids
            os.kill(worker, signal.SIGKILL)
            second = await toolbox.perform(request(1))
            return first, second, toolbox.process_ids != (worker,)
        finally:
            await toolbox.close()

    first, second, replaced = asyncio.run(ask())
    assert first == second and first.parts and replaced


def test_a_hung_worker_is_a_fault_and_its_successor_works() -> None:
    async def ask() -> tuple[Edits, Edits]:
        toolbox = EditWorkers(seconds=10.0)
        try:
            await toolbox.perform(request(1))
            (worker,) = toolbox.process_ids
            os.kill(worker, signal.SIGSTOP)
            toolbox.seconds = 0.1
            stuck = await toolbox.perform(request(2))
            toolbox.seconds = 60.0
            return stuck, await toolbox.perform(request(2))
        finally:
            await toolbox.close()

    stuck, after = asyncio.run(ask())
    assert stuck == Edits(fault="timeout")
    assert after == run_tool(request(2))


def test_bad_requests_are_faults() -> None:
    async def ask() -> list[Edits]:
        toolbox = EditWorkers()
        try:
            return [
                await toolbox.perform(request(1, tool="nonsense")),
                await toolbox.perform(request(1, weights="not a mapping")),
                await toolbox.perform(request(1)),
            ]
        finally:
            await toolbox.close()

    unknown, broken, fine = asyncio.run(ask())
    assert (unknown.fault, broken.fault, fine.fault) == ("unknown_tool", "crashed", "")


def test_closing_ends_the_processes_also_in_mid_request() -> None:
    async def ask() -> tuple[int, ...]:
        toolbox = EditWorkers()
        await toolbox.perform(request(1))
        processes = toolbox.process_ids
        os.kill(processes[0], signal.SIGSTOP)
        pending = asyncio.ensure_future(toolbox.perform(request(2)))
        await asyncio.sleep(0)
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await toolbox.close()
        return processes

    for process in asyncio.run(ask()):
        assert not os.path.exists(f"/proc/{process}")
