"""What runs on the nodes of a Ray cluster: one actor a node that evaluates, and the errands that Ray places.

An errand is a Ray task that holds what an evaluation needs (cores, GPUs, ...), so Ray alone decides where it runs. It
hands its job to the actor of the node it finds itself on. Bytes and numbers are all that crosses.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster.node import NodeEvaluator
from culmen.evaluate.cluster.parcel import Answer

ASLEEP = b"asleep "  # no answer in JSON begins so
_LOOK_SECONDS, _IDLE_LOOK_SECONDS = 0.05, 1.0
_GOING_SECONDS = 0.5  # for the last answer to be sent
_APPEAR_SECONDS = 3.0  # how long the driver may take to see a new node and start its evaluator


class NodeActor:
    """A `NodeEvaluator` as a Ray actor. Calls that come before it has begun wait."""

    def __init__(self) -> None:
        self._node = NodeEvaluator()
        self._greeting: bytes | None = None
        self._over = False

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        """See `NodeEvaluator`; a second time it says again what it said."""
        await self._end_of_rest()
        if self._greeting is None:
            self._greeting = await self._node.begin(parcel, name, terms)
        return self._greeting

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `NodeEvaluator`; an actor that is going to rest knows no task any more."""
        if self._greeting is None or self._over:
            return parcels.dump(Answer(lost="no_evaluator"))
        return await self._node.evaluate(number, job, seconds)

    async def cancel(self, number: str) -> None:
        """See `NodeEvaluator`."""
        self._node.cancel(number)

    async def hold(self, rest: float) -> None:
        """Returns when there was nothing to do for `rest` seconds, with everything ended, so that the node may be given
        back; 0: never. Its failure tells that this actor is gone."""
        await self._end_of_rest()
        while not rest or self._node.idle_seconds < rest:
            await asyncio.sleep(min(rest or _IDLE_LOOK_SECONDS, _IDLE_LOOK_SECONDS))
        self._over = True
        await self._node.close()
        asyncio.get_running_loop().call_later(_GOING_SECONDS, os._exit, 0)

    async def _end_of_rest(self) -> None:
        """Who comes while it goes to rest waits for its end, and starts another."""
        if self._over:
            await asyncio.Event().wait()

    async def close(self) -> None:
        """See `NodeEvaluator`."""
        await self._node.close()


def errand(prefix: str, namespace: str, number: str, job: bytes, seconds: float, patience: float) -> bytes:
    """Hand a job to this node's evaluator, and wait for it; `patience` is how long it may take to be ready.

    Where there is none, the answer is `ASLEEP` with the node's id.
    """
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import GetTimeoutError, RayActorError  # pyright: ignore[reportMissingImports]

    rested = False
    node, ends = ray.get_runtime_context().get_node_id(), time.monotonic() + min(patience, _APPEAR_SECONDS)
    while True:
        actor = _find(ray, f"{prefix}-{node}", namespace)
        if actor is not None:
            try:
                answer: bytes = ray.get(actor.evaluate.remote(number, job, seconds), timeout=seconds + patience)
                rested = parcels.load(answer, Answer).lost == "no_evaluator"
                if not rested:
                    return answer
            except GetTimeoutError:
                return parcels.dump(Answer(lost="deadline"))
            except RayActorError:
                if not rested:
                    return parcels.dump(Answer(lost="evaluator_died"))
        if time.monotonic() > ends:
            return ASLEEP + node.encode()
        time.sleep(_LOOK_SECONDS)


def _find(ray: Any, name: str, namespace: str) -> Any:
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:  # the driver has not seen this node yet
        return None
