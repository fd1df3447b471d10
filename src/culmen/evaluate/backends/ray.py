"""Evaluations on a Ray cluster: Ray places errands by what they need, one actor a node evaluates.

Nodes may come and go; there is no list of them to keep. A node that appears gets its actor, and with it the task, once.
No wait is without an end: an errand that is overdue is given up, and a cluster that has had no node for the work for
`wait` seconds ends the session, which can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.backends import ray_node
from culmen.evaluate.backends.choice import Choice
from culmen.evaluate.backends.ray_crew import Crew, aside, shortage
from culmen.evaluate.backends.ray_local import LOOPBACK, QUIET, LocalCluster
from culmen.evaluate.backends.remote import Lost

WAIT_SECONDS = 300.0
_CONNECT_SECONDS = 120.0
_REACH_SECONDS, _SHUTDOWN_SECONDS = 20.0, 30.0
_LOOK_SECONDS = 1.0
_LOOKS = 500  # times a second that all that wait together look whether waiting still makes sense, at most
_PATIENCE = 150.0  # how long an errand waits for the actor of its node, which loads packages when it starts
_FAILURES = {
    "OutOfMemoryError": "node_out_of_memory",
    "WorkerCrashedError": "worker_died",
    "NodeDiedError": "node_died",
    "LocalRayletDiedError": "node_died",
}


class RayCarrier:
    """See `remote.Carrier`."""

    def __init__(self, choice: Choice) -> None:
        self.retries, self.terms = choice.retries, b""
        self._choice, self._wait = choice, choice.wait or WAIT_SECONDS
        self._prefix, self._namespace = "culmen-node", f"culmen-{secrets.token_hex(8)}"
        self._local: LocalCluster | None = None
        self._connected = False
        self._crew: Crew | None = None
        self._served = self._flying = 0
        self._errand: Any = None

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Raises `UserError` naming the resource that no node has, or the address where no cluster answers."""
        address = await self._address()
        await self._connect(address)
        import ray  # pyright: ignore[reportMissingImports]

        self._crew = Crew(self._choice.needs, self._prefix, self._namespace, ray.put(parcel), name, lambda: self.terms)
        needs = self._choice.needs
        more = {"memory": needs.memory} if needs.memory else {}
        self._errand = ray.remote(ray_node.errand).options(
            num_cpus=needs.cpu, num_gpus=needs.gpu, resources=needs.custom or None, max_retries=0, **more
        )
        return await self._first(self._crew)

    async def _address(self) -> str:
        if self._choice.address != "local":
            return self._choice.address
        self._local = LocalCluster()
        await self._local.start()
        return self._local.address

    async def _connect(self, address: str) -> None:
        """Raises `Unavailable` where no cluster answers. A connection that the program has is used as it is."""
        own = {} if self._local is None else LOOPBACK | {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._local.token
        }  # fmt: skip

        def connect() -> bool:
            with _environment(QUIET | own):
                import ray  # pyright: ignore[reportMissingImports]

                if ray.is_initialized() and self._local is None:
                    self._namespace = ray.get_runtime_context().namespace
                    return False
                _hush()
                ray.init(address=address, namespace=self._namespace, log_to_driver=False, logging_level="ERROR")
                return True

        try:
            await _reached(address)
            self._connected = await aside(connect, _CONNECT_SECONDS)
        except (OSError, RuntimeError, ValueError) as error:  # Ray raises all of these, and time-outs are OSErrors
            told = [line for line in str(error).splitlines() if line.strip()]
            raise Unavailable(
                f"no Ray cluster answers: {told[0].strip() if told else type(error).__name__}",
                where=f"--ray-address {self._choice.address}",
                fix="start one (ray start --head), give its address, or use --ray-address local",
            ) from None

    async def _first(self, crew: Crew) -> bytes:
        """Wait for a node that has what an evaluation needs; an autoscaler is shown that one is wanted."""
        ends, wish = time.monotonic() + self._wait, None
        while True:
            await crew.look()
            if crew.able:
                break
            if wish is None:
                wish = self._errand.remote(self._prefix, self._namespace, "wish", b"", 0.0, 0.0)
            if time.monotonic() > ends or not await self._may_grow(crew):
                raise shortage(self._choice.needs, crew.nodes, self._choice.address, UserError)
            await asyncio.sleep(_LOOK_SECONDS)
        if wish is not None:
            _cancelled(wish)
        greeting = await crew.first()
        crew.tend()
        return greeting

    async def _may_grow(self, crew: Crew) -> bool:
        """Whether waiting makes sense: always, but for the one node that we started ourselves."""
        return self._local is None or not crew.nodes

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        crew = self._crew
        assert crew is not None
        ref = self._errand.remote(self._prefix, self._namespace, number, job, seconds, _PATIENCE)
        future = asyncio.wrap_future(ref.future())
        self._flying += 1
        try:
            answer: bytes = await self._patiently(future, seconds + 2 * _PATIENCE)
        except BaseException:
            if not future.done() or future.cancelled():
                future.cancel()
                _cancelled(ref)
            crew.cancel(number)
            raise
        finally:
            self._flying -= 1
        self._served += 1
        return answer

    async def _patiently(self, future: asyncio.Future[bytes], patience: float) -> bytes:
        """Wait for an errand. It is given up if within its time nothing came back at all, or if more did than can have
        stood before it."""
        crew = self._crew
        assert crew is not None
        served, ahead, since = self._served, self._flying, time.monotonic()
        while not future.done():
            await asyncio.wait({future}, timeout=_LOOK_SECONDS + self._flying / _LOOKS)
            crew.check()
            if crew.idle_seconds > self._wait:
                raise shortage(self._choice.needs, crew.nodes, self._choice.address, Unavailable)
            if not crew.able:
                since = time.monotonic()
            elif time.monotonic() - since > patience:
                if not 0 < self._served - served <= ahead:
                    raise Lost("overdue")
                served, ahead, since = self._served, ahead - (self._served - served), time.monotonic()
        return self._result(future)

    def _result(self, future: asyncio.Future[bytes]) -> bytes:
        import ray.exceptions as failures  # pyright: ignore[reportMissingImports]

        try:
            return future.result()
        except failures.RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            raise UserError(
                f"a node cannot run evaluations: {last}",
                where=f"--ray-address {self._choice.address}",
                fix="install the same culmen, with the same Python, on every node",
            ) from None
        except failures.RayError as error:
            raise Lost(_FAILURES.get(type(error).__name__, "node_died")) from None

    async def close(self) -> None:
        """See `remote.Carrier`."""
        crew, self._crew = self._crew, None
        if crew is not None:
            await crew.close()
        if self._connected:
            import ray  # pyright: ignore[reportMissingImports]

            self._connected = False
            with contextlib.suppress(TimeoutError):
                await aside(ray.shutdown, _SHUTDOWN_SECONDS)
        if self._local is not None:
            await self._local.close()


def _hush() -> None:
    """Keep Ray's reports of dead workers off our standard output, which may be a document; statuses tell of them."""
    worker = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        setattr(worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010 - no attribute that types know


async def _reached(address: str) -> None:
    """Raise OSError where nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), _REACH_SECONDS)
        writer.close()


def _cancelled(ref: Any) -> None:
    import ray  # pyright: ignore[reportMissingImports]

    if not ray.is_initialized():
        return
    with contextlib.suppress(ray.exceptions.RayError, ValueError, ConnectionError):
        ray.cancel(ref, force=True)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables that Ray reads while it connects; they do not stay."""
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
