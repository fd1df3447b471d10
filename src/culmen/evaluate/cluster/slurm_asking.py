"""The driver's end of the process that submits jobs: see `slurm_launcher`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.cluster import slurm_queue as queue

_ASK_SECONDS = 120.0
_END_SECONDS = 60.0
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "USER", "LOGNAME", "SHELL")
_PREFIXES = ("SLURM_CONF", "MODULE")
_HABITS = (
    "ACCOUNT",
    "PARTITION",
    "QOS",
    "CONSTRAINT",
    "RESERVATION",
    "WCKEY",
)  # as SBATCH_...: they beat what we write
_LAUNCHER = "culmen.evaluate.cluster.slurm_launcher"


class Asking:
    """Starts the launcher, asks it, and lets it end everything."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Raises `UserError` where submitit cannot work with what it is told."""
        kept = {n: v for n, v in os.environ.items() if n in _KEPT or n.startswith(_PREFIXES)}
        habits = (f"SBATCH_{name}" for name in _HABITS if name.lower() not in self._setup["texts"])
        kept |= {name: os.environ[name] for name in habits if name in os.environ}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _LAUNCHER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=kept, start_new_session=True, limit=1 << 24,
        )  # fmt: skip
        await self._say(self._setup)

    async def ask(self, what: str, *about: str) -> dict[str, Any]:
        """One question. Raises `UserError` with what Slurm said, `Unavailable` if nothing comes."""
        return await self._say({"do": what, "with": about})

    async def _say(self, request: dict[str, Any]) -> dict[str, Any]:
        launcher = self._process
        assert launcher is not None and launcher.stdin is not None and launcher.stdout is not None
        async with self._turn:
            try:
                launcher.stdin.write(json.dumps(request).encode() + b"\n")
                line = await asyncio.wait_for(launcher.stdout.readline(), _ASK_SECONDS)
                answer: dict[str, Any] = json.loads(line)
            except (TimeoutError, ValueError, ConnectionError) as error:
                what = f"jobs cannot be submitted any more: {type(error).__name__}"
                raise Unavailable(what, where="submitit", fix="culmen resume") from None
        if "error" in answer:
            fix = "ask for what the cluster has with --backend-set; then culmen resume"
            raise UserError(f"Slurm refuses: {answer['error'].strip()}", where="--backend slurm", fix=fix)
        return answer

    async def close(self) -> None:
        """All jobs end and the folder goes; the launcher does that, or we do where it died."""
        launcher, self._process = self._process, None
        if launcher is not None:
            assert launcher.stdin is not None
            launcher.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(launcher.wait(), _END_SECONDS)
            if launcher.returncode is None:
                launcher.kill()
                await launcher.wait()
        if (launcher is None or launcher.returncode) and self._setup["cluster"] == "slurm":
            await asyncio.to_thread(queue.cancel_all, self._setup["name"])
        await asyncio.to_thread(shutil.rmtree, Path(self._setup["folder"]), True)
