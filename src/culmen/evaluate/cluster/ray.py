"""Evaluations on a Ray cluster: Ray places errands by what they need, one actor a node evaluates.

Nodes may come and go; there is no list of them to keep. A node that appears gets its actor, and with it the task, once.
No wait is without an end: an errand that is overdue is given up, and a cluster that has had no node for the work for
`wait` seconds ends the session, which can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.cluster import ray_node
from culmen.evaluate.cluster.choice import Choice
from culmen.evaluate.cluster.ray_crew import Crew, shortage, unreachable
from culmen.evaluate.cluster.ray_link import Later, aside, connect, future_of
from culmen.evaluate.cluster.ray_local import LOOPBACK, LocalCluster
from culmen.evaluate.cluster.remote import NODE_SLOTS, Lost

WAIT_SECONDS = 300.0
_SEND_SECONDS = 600.0  # for the parcel, which may be large, over a line that may be slow
_SHUTDOWN_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_SILENT_SECONDS = 5.0
_LOOKS = 500  # times a second that all that wait together look whether waiting still makes sense, at most
_NAPS = 50  # nodes without an evaluator that one evaluation may come upon, one after the other
_PATIENCE = 150.0  # how long an errand waits for the actor of its node, which loads packages when it starts
_FAILURES = {
    "OutOfMemoryError": "node_out_of_memory",
    "WorkerCrashedError": "worker_died",
    "NodeDiedError": "node_died",
    "LocalRayletDiedError": "node_died",
}


class RayCarrier:
    """See `remote.Carrier`."""

    def __init__(self, choice: Choice, tell: Callable[[str], None] | None = None) -> None:
        self.retries, self.terms = choice.retries, b""
        self._choice, self._wait = choice, choice.wait or WAIT_SECONDS
        self._prefix, self._namespace = "culmen-node", f"culmen-{secrets.token_hex(8)}"
        self._local: LocalCluster | None = None
        self._connected = False
        self._crew: Crew | None = None
        self._served = self._flying = 0
        self._errand: Any = None
        self._later = Later()
        self._tell, self._told = tell or (lambda _: None), False

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Raises `UserError` naming the resource that no node has, or the address where no cluster answers."""
        address = await self._address()
        await self._connect(address)
        import ray  # pyright: ignore[reportMissingImports]

        brought, needs = await aside(lambda: ray.put(parcel), _SEND_SECONDS), self._choice.needs
        terms, chosen = (lambda: self.terms), self._choice
        self._crew = Crew(needs, self._prefix, self._namespace, brought, name, terms, chosen.address, chosen.rest)
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
        own = {} if self._local is None else {**LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._local.token}
        found = await connect(address, self._namespace, own, self._choice.address)
        self._connected, self._namespace = found == self._namespace, found

    async def _first(self, crew: Crew) -> bytes:
        """Wait for a node that has what an evaluation needs; an autoscaler is shown that one is wanted."""
        import ray  # pyright: ignore[reportMissingImports]

        started, wish = time.monotonic(), None
        while True:
            await crew.look()
            if crew.able:
                break
            if wish is None:
                wish = self._errand.remote(self._prefix, self._namespace, "wish", b"", 0.0, 0.0)
            if not self._may_grow(crew) or self._idle_since(started):
                raise shortage(self._choice.needs, crew.nodes, self._choice.address, UserError)
            await asyncio.sleep(_LOOK_SECONDS)
        self._idle_since(started)
        if wish is not None:
            self._later(lambda: ray.cancel(wish, force=True))
        greeting = await crew.first()
        crew.tend()
        return greeting

    def _may_grow(self, crew: Crew) -> bool:
        """Whether waiting makes sense: always, but for the one node that we started ourselves."""
        return self._local is None or not crew.nodes

    def _idle_since(self, started: float) -> bool:
        """Whether work that is wanted since then has had no node for too long. Tells of the waiting, once."""
        crew = self._crew
        assert crew is not None
        if crew.able:
            if self._told:
                self._tell("There is a node for evaluations again.")
            self._told = False
            return False
        seconds = min(time.monotonic() - started, crew.idle_seconds)
        if seconds > _SILENT_SECONDS and not self._told:
            self._told = True
            self._tell(f"No node can take evaluations now; waiting for one, at most {self._wait:g} seconds.")
        return seconds > self._wait

    def room(self) -> int:
        """See `remote.Carrier`."""
        return 0 if self._crew is None else self._crew.room(NODE_SLOTS)

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        import ray  # pyright: ignore[reportMissingImports]

        crew = self._crew
        assert crew is not None
        if not ray.is_initialized():
            raise unreachable(ConnectionError())
        for _ in range(_NAPS):
            answer = await self._errand_of(crew, number, job, seconds)
            if not answer.startswith(ray_node.ASLEEP):
                return answer
            crew.wake(answer.removeprefix(ray_node.ASLEEP).decode())
        raise Lost("no_evaluator")

    async def _errand_of(self, crew: Crew, number: str, job: bytes, seconds: float) -> bytes:
        import ray  # pyright: ignore[reportMissingImports]

        ref = self._errand.remote(self._prefix, self._namespace, number, job, seconds, _PATIENCE)
        future = await future_of(ref, self._choice.address)
        self._flying += 1
        try:
            answer: bytes = await self._patiently(future, seconds + 2 * _PATIENCE)
        except BaseException:
            if not future.done() or future.cancelled():
                future.cancel()
                self._later(lambda: ray.cancel(ref, force=True))
            self._later(lambda: crew.cancel(number))
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
        started = since
        while not future.done():
            await asyncio.wait({future}, timeout=_LOOK_SECONDS + self._flying / _LOOKS)
            crew.check()
            if self._idle_since(started):
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
        except (ConnectionError, RuntimeError) as error:  # of the client, whose server is gone
            raise unreachable(error) from None

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
