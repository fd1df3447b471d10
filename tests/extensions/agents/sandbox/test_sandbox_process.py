"""A cancelled start of a sandbox's process: it ends, and so does all waiting for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from culmen.extensions.agents.sandbox.process import MARK, SandboxProcess
from culmen.jail import procfs

# a program whose child keeps its output open
LINE = ["/bin/sh", "-c", "sleep 1000 & wait"]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 8, 12, 20, 40])
def test_a_start_that_is_cancelled_ends_with_what_it_started(tmp_path: Path, steps: int) -> None:
    mark = f"cancelled-{os.getpid()}-{steps}"

    async def main() -> None:
        environment = {"PATH": os.environ["PATH"], MARK: mark}
        starting = asyncio.ensure_future(
            SandboxProcess.start(LINE, environment, stdin=True, cwd=tmp_path)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        if starting.done():
            await starting.result().end()
            return
        starting.cancel()
        done, _ = await asyncio.wait({starting}, timeout=30)
        assert done and starting.cancelled()

    asyncio.run(main())
    assert procfs.marked_pids(f"{MARK}={mark}\0") == []
