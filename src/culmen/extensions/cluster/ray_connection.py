"""The driver's connection to a Ray cluster.

From one of the cluster's machines, or from outside through Ray's client server.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from culmen.core.errors import Unavailable
from culmen.core.json import JsonObject

T = TypeVar("T")

_REFUSED = ("Initialization failure", "Starting Ray client server failed")
# A machine with a pulled cable sends nothing. Ray waits seven minutes for it; its servers allow a
# keep-alive message a minute.
_ALIVE = {
    "RAY_grpc_client_keepalive_time_ms": "61000",
    "RAY_grpc_client_keepalive_timeout_ms": "15000",
}


def is_outside_cluster(address: str) -> bool:
    """True if the connection goes through Ray's client server.

    There, every call that waits may hang.
    """
    return address.startswith("ray://")


async def connect_to_cluster(
    address: str, namespace: str, own: Mapping[str, str], shown: str
) -> str:
    """Connect with these variables set; return the namespace in force.

    It is another one if the program was already connected. Raises `Unavailable` if no cluster
    answers or access is denied.
    """
    try:
        await _require_reachable(address)
    except OSError as error:  # time-outs are OSErrors
        raise Unavailable(
            f"no Ray cluster answers: {_informative_line(error)}",
            where=f"--set backend.address={shown}",
            fix=(
                "start one (ray start --head), give its address, or use "
                "--set backend.address=local; then culmen resume"
            ),
        ) from None
    kept = {name: value for name, value in _ALIVE.items() if name not in os.environ}
    try:
        return await run_on_thread(
            lambda: _init_ray(address, namespace, QUIET | kept | dict(own), bool(own)),
            240.0,
        )
    except (OSError, RuntimeError, ValueError) as error:  # Ray raises all of these
        raise _ray_connection_error(address, shown, error) from None


def _init_ray(address: str, namespace: str, variables: Mapping[str, str], new: bool) -> str:
    with _temporary_environment(variables):
        import ray  # pyright: ignore[reportMissingImports]

        if ray.is_initialized() and not new:
            return ray.get_runtime_context().namespace
        _silence_ray()
        for left in reversed(range(5)):
            try:
                ray.init(
                    address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR"
                )
                break
            except (ConnectionError, RuntimeError) as error:
                # The client server forks a process for each driver, and the fork fails now and
                # then.
                if not left or not str(error).startswith(_REFUSED):
                    raise
        return namespace


def _ray_connection_error(address: str, shown: str, error: Exception) -> Unavailable:
    message = _informative_line(error)
    if ":" not in address:
        what, fix = (
            f"no Ray cluster answers: {message}",
            "start one (ray start --head), or give its address",
        )
    elif is_outside_cluster(address):
        what = f"Ray's client server denies access: {message}"
        fix = (
            "give it the cluster's token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN), and the same Ray "
            "and Python here"
        )
    else:
        host = address.rpartition(":")[0]
        what = f"the Ray cluster denies access: {message}"
        fix = (
            "run this on one of its machines, with its token (RAY_AUTH_MODE=token, "
            f"RAY_AUTH_TOKEN); from outside: --set backend.address=ray://{host}:10001"
        )
    return Unavailable(what, where=f"--set backend.address={shown}", fix=fix)


def _informative_line(error: Exception) -> str:
    """The most informative line of Ray's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if lines[0].startswith(_REFUSED) else lines[0]


def _silence_ray() -> None:
    """Keep Ray's reports of dead workers off standard output, which may be a document.

    Statuses report them.
    """
    worker = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        setattr(worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010 - no attribute that types know


async def _require_reachable(address: str) -> None:
    """Raise OSError if HOST:PORT does not listen; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 20.0)
        writer.close()


def list_nodes() -> list[JsonObject]:
    """The cluster's nodes, as from `ray.nodes`; raise ConnectionError if disconnected."""
    import ray  # pyright: ignore[reportMissingImports]

    if not ray.is_initialized():  # else Ray raises an exception that has no type
        raise ConnectionError("not connected")
    return ray.nodes()


async def run_on_thread(work: Callable[[], T], seconds: float) -> T:
    """Run a function on a thread for at most `seconds`.

    Passes on its errors; raises `TimeoutError`.
    """
    result: Future[T] = Future()

    def target() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - passed to the waiter
            result.set_exception(error)

    threading.Thread(target=target, daemon=True, name="culmen-ray").start()
    return await asyncio.wait_for(_mirror_future(result), seconds)


async def future_of(ref: Any, address: str) -> asyncio.Future[Any]:
    """A future of a reference's value.

    From outside the cluster the request is slow, so another thread makes it.
    """
    return _mirror_future(
        await run_on_thread(ref.future, 120.0) if is_outside_cluster(address) else ref.future()
    )


def _mirror_future(source: Future[T]) -> asyncio.Future[T]:
    """A future of this loop for another future.

    Unlike with asyncio's own, cancelling it does not cancel the other: Ray's client fails on a
    cancelled future.
    """
    loop = asyncio.get_running_loop()
    mirror: asyncio.Future[T] = loop.create_future()

    def settle() -> None:
        if mirror.done():
            return
        error = source.exception()
        mirror.set_result(source.result()) if error is None else mirror.set_exception(error)

    def done(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle)

    source.add_done_callback(done)
    return mirror


class RayThread:
    """Runs background calls one after the other, on a daemon thread."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._started = False

    def __call__(self, work: Callable[[], object]) -> None:
        self._work.put(work)
        if not self._started:
            self._started = True
            threading.Thread(target=self._run_calls, daemon=True, name="culmen-ray-later").start()

    def _run_calls(self) -> None:
        import ray  # pyright: ignore[reportMissingImports]

        while True:
            work = self._work.get()
            with contextlib.suppress(ray.exceptions.RayError, ValueError, OSError, RuntimeError):
                if ray.is_initialized():
                    work()


@contextlib.contextmanager
def _temporary_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that Ray reads while connecting; remove them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# A Ray cluster of one node on this machine, as a process of its own: loopback only, a token, no
# keys, no telemetry.

START_SECONDS = 180.0
_KEPT = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "USER",
    "LOGNAME",
)
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"
}  # Ray's own switch for "this machine only", despite its name


def cluster_environment(token: str) -> dict[str, str]:
    """Environment of the cluster's processes: a fixed list, and the token."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_worker_niceness": "0"}
    return kept | QUIET | LOOPBACK | own


class LocalCluster:
    """A cluster started and ended by the driver.

    `address` is on the loopback, `token` is private.
    """

    def __init__(self) -> None:
        self.address, self.token = "", secrets.token_hex(32)
        self._process: asyncio.subprocess.Process | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="culmen-ray-")

    async def start(self) -> None:
        """Start the cluster; raise `Unavailable`, with the end of Ray's output, if that fails."""
        log = Path(self._folder.name, "log")
        with log.open("wb") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                __name__,
                self._folder.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=cluster_environment(self.token),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            line = b""
        self.address = line.decode().strip()
        if not self.address:
            last = log.read_text(errors="replace")[-1500:]
            await self.close()
            raise Unavailable(
                "Ray did not start here",
                where=last.strip(),
                fix="culmen resume, or --backend local",
            )

    async def close(self) -> None:
        """End the cluster and all its processes."""
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


def serve_cluster(folder: str) -> None:
    """Main of the process: start Ray, print its address, wait for the end of standard input."""
    import ray  # pyright: ignore[reportMissingImports]

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=folder,
        _node_ip_address="127.0.0.1",
    )
    os.write(1, f"{ray.get_runtime_context().gcs_address}\n".encode())
    with contextlib.suppress(KeyboardInterrupt):
        while os.read(0, 4096):
            pass
    ray.shutdown()


if __name__ == "__main__":
    serve_cluster(sys.argv[1])
