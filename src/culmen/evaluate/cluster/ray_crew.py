"""The evaluators of a Ray cluster: one actor on every node that has what an evaluation needs, as long as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster.choice import Needs
from culmen.evaluate.cluster.parcel import Answer
from culmen.evaluate.cluster.ray_link import aside, future_of, listing
from culmen.evaluate.cluster.ray_node import NodeActor

_LOOK_SECONDS = 1.0
_BEGIN_SECONDS, _TRIES = 240.0, 4
_ASK_SECONDS, _KILL_SECONDS = 30.0, 10.0
_CALLS = 1000  # evaluations that one actor may have waiting; Ray places no more than the node has room for


class Crew:
    """`nodes` are the resources of the nodes that are alive, by id; `able` those that can take an evaluation."""

    def __init__(
        self,
        needs: Needs,
        prefix: str,
        namespace: str,
        parcel: Any,
        name: str,
        terms: Callable[[], bytes],
        address: str,
        rest: float,
    ) -> None:
        self._needs, self._prefix, self._namespace = wanted(needs), prefix, namespace
        self._parcel, self._name, self._terms, self._address = parcel, name, terms, address
        self.nodes: dict[str, dict[str, float]] = {}
        self.able: set[str] = set()
        self._actors: dict[str, Any] = {}
        self._rest, self._resting = rest, set[str]()
        self._begun: dict[str, asyncio.Task[bytes]] = {}
        self._since = time.monotonic()
        self._trouble: UserError | None = None
        self._tending: asyncio.Task[None] | None = None
        self._deaf = False

    @property
    def idle_seconds(self) -> float:
        """How long there has been no node that could take an evaluation."""
        return 0.0 if self.able else time.monotonic() - self._since

    def room(self, most: int) -> int:
        """How many evaluations all nodes together can take at once, at most so many each."""
        needs = self._needs or {"CPU": 1.0}
        rooms = [min(int(self.nodes[n].get(k, 0.0) / v) for k, v in needs.items()) for n in self.able]
        return sum(min(most, each) for each in rooms)

    def check(self) -> None:
        """Raise what a node told that a person must put right."""
        if self._trouble is not None:
            raise self._trouble

    async def look(self) -> None:
        """Ask the cluster which nodes there are. Raises `Unavailable` where it does not answer."""
        import ray  # pyright: ignore[reportMissingImports]

        try:
            listed: list[dict[str, Any]] = await aside(listing, _ASK_SECONDS)
        except (TimeoutError, ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            self._deaf = True
            raise unreachable(error) from None
        if self.able:
            self._since = time.monotonic()
        self.nodes = {node["NodeID"]: dict(node["Resources"]) for node in listed if node["Alive"]}
        self.able = {n for n, has in self.nodes.items() if all(has.get(k, 0.0) >= v for k, v in self._needs.items())}
        self._resting &= self.able
        for gone in self._actors.keys() - self.able:
            self._drop(gone)

    async def first(self) -> bytes:
        """Begin on one node, or on another where that one dies meanwhile; its answer."""
        ends, tried, last = time.monotonic() + _BEGIN_SECONDS, set[str](), "no node stayed alive"
        while time.monotonic() < ends and len(tried) < _TRIES:
            await self.look()
            if not self.able - tried:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            node = min(self.able - tried)
            tried.add(node)
            task = self._begin(node)
            await asyncio.wait({task}, timeout=max(0.0, ends - time.monotonic()))
            if task.done() and not task.cancelled():
                error = task.exception()
                if error is None and task.result():
                    return task.result()
                last = str(error).strip().splitlines()[-1] if error is not None else last
            self._drop(node)
        raise Unavailable(
            f"no evaluator could be started: {last}",
            where="Ray",
            fix="install the same culmen, with the same Python, on every node; then culmen resume",
        )

    def tend(self) -> None:
        """From now on see to it that every node has its evaluator, but for those that rested until they are woken."""
        self._tending = asyncio.create_task(self._tend())

    async def _tend(self) -> None:
        while self._trouble is None:
            try:
                await self.look()
            except UserError as error:
                self._trouble = error
                return
            for node in self.able - self._actors.keys() - self._resting:
                self._begin(node)
            await asyncio.sleep(_LOOK_SECONDS)

    def _begin(self, node: str) -> asyncio.Task[bytes]:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

        actor = self._actors[node] = (
            ray.remote(NodeActor)
            .options(
                name=f"{self._prefix}-{node}", namespace=self._namespace, num_cpus=0, max_restarts=0,
                get_if_exists=True, max_concurrency=_CALLS,  # one that goes to rest may still be there
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote()
        )  # fmt: skip
        task = self._begun[node] = asyncio.create_task(self._greet(node, actor))
        return task

    async def _greet(self, node: str, actor: Any) -> bytes:
        """Bring the task, then see the actor die; a mistake that it tells stops everything."""
        import ray  # pyright: ignore[reportMissingImports]

        held = await future_of(actor.hold.remote(self._rest), self._address)
        held.add_done_callback(lambda done: self._ended(node, actor, done))
        try:
            begun = actor.begin.remote(self._parcel, self._name, self._terms())
            answer: bytes = await (await future_of(begun, self._address))
        except ray.exceptions.RayActorError:
            if self._tending is None:
                raise
            return b""  # it went away; if its node did not, it is tried again
        told = parcels.load(answer, Answer)
        if told.error is not None:
            self._trouble = parcels.raised(told.error)
        return answer

    def _ended(self, node: str, actor: Any, held: asyncio.Future[Any]) -> None:
        rests = not held.cancelled() and held.exception() is None
        if self._actors.get(node) is actor:
            self._drop(node)
            if rests:
                self._resting.add(node)

    def wake(self, node: str) -> None:
        """There is work on a node whose evaluator went to rest."""
        self._resting.discard(node)
        if node in self.able and node not in self._actors and self._tending is not None:
            self._begin(node)

    def _drop(self, node: str) -> None:
        self._actors.pop(node, None)
        task = self._begun.pop(node, None)
        if task is not None:
            task.cancel()

    def cancel(self, number: str) -> None:
        """End an evaluation, wherever it runs."""
        for actor in list(self._actors.values()):
            actor.cancel.remote(number)

    async def close(self) -> None:
        """End the evaluators, those that answer by their own hand."""
        if self._tending is not None:
            self._tending.cancel()
        actors = list(self._actors.values())
        if actors and not self._deaf:
            with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
                await aside(lambda: _dismiss(actors), _ASK_SECONDS + _KILL_SECONDS)
        for node in list(self._actors):
            self._drop(node)


def _dismiss(actors: list[Any]) -> None:
    import ray  # pyright: ignore[reportMissingImports]

    closing = [actor.close.remote() for actor in actors]
    ray.wait(closing, num_returns=len(closing), timeout=_ASK_SECONDS)
    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(actor, no_restart=True)


def wanted(needs: Needs) -> dict[str, float]:
    """What an evaluation needs, in Ray's names."""
    named = {"CPU": needs.cpu, "GPU": needs.gpu, "memory": float(needs.memory), **needs.custom}
    return {name: value for name, value in named.items() if value}


def shortage(needs: Needs, nodes: dict[str, dict[str, float]], address: str, kind: type[UserError]) -> UserError:
    """The error about what no node has, by name."""
    most = {name: max((has.get(name, 0.0) for has in nodes.values()), default=0.0) for name in wanted(needs)}
    lacking = [f"{name} = {value:g}" for name, value in wanted(needs).items() if most[name] < value]
    if not nodes:
        what = "the cluster has no nodes"
    elif lacking:
        best = ", ".join(f"{name} = {most[name]:g}" for name in most if most[name] < wanted(needs)[name])
        what = f"no node has {', '.join(lacking)}; the most that one has is {best}"
    else:
        what = "no node has all at once: " + ", ".join(f"{name} = {value:g}" for name, value in wanted(needs).items())
    return kind(
        what,
        where=f"--ray-address {address}, {len(nodes)} nodes",
        fix="add such a node, or ask for less with --backend-set; then culmen resume",
    )


def unreachable(error: Exception) -> Unavailable:
    """The error about a cluster that answered once, and does not now."""
    return Unavailable(
        f"the Ray cluster does not answer any more: {type(error).__name__}",
        where="Ray",
        fix="culmen resume, once it is back",
    )
