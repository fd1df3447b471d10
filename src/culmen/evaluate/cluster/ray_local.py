"""A Ray cluster of one node on this machine, as a process of its own: loopback only, a token, no keys, no telemetry.

The process lives as long as its standard input is open; with it ends everything that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from culmen.core.errors import Unavailable

START_SECONDS = 180.0
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "USER", "LOGNAME")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's own switch for "this machine only", whatever its name


def environment(token: str) -> dict[str, str]:
    """What the cluster's processes see: a fixed list, and how to know one another."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | QUIET | LOOPBACK | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


class LocalCluster:
    """Started and ended by the driver; `address` is on the loopback, `token` is known to nobody else."""

    def __init__(self) -> None:
        self.address, self.token = "", secrets.token_hex(32)
        self._process: asyncio.subprocess.Process | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="culmen-ray-")

    async def start(self) -> None:
        """Raises `Unavailable` with Ray's last words."""
        log = Path(self._folder.name, "log")
        with log.open("wb") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, self._folder.name,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
                env=environment(self.token), start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            line = b""
        self.address = line.decode().strip()
        if not self.address:
            last = log.read_text(errors="replace")[-1500:]
            await self.close()
            raise Unavailable("Ray did not start here", where=last.strip(), fix="culmen resume, or --backend local")

    async def close(self) -> None:
        """End it and all its processes."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 20.0)
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.to_thread(self._folder.cleanup)


def serve(folder: str) -> None:
    """The process itself: start Ray, say where, wait for the end of standard input."""
    import ray  # pyright: ignore[reportMissingImports]

    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR",
        _temp_dir=folder, _node_ip_address="127.0.0.1",
    )  # fmt: skip
    os.write(1, f"{ray.get_runtime_context().gcs_address}\n".encode())
    with contextlib.suppress(KeyboardInterrupt):
        while os.read(0, 4096):
            pass
    ray.shutdown()


if __name__ == "__main__":
    serve(sys.argv[1])
