"""What runs on the nodes of a Ray cluster: one actor a node that evaluates, and the errands that Ray places.

An errand is a Ray task that holds what an evaluation needs (cores, GPUs, ...), so Ray alone decides where it runs. It
hands its job to the actor of the node it finds itself on. Bytes and numbers are all that crosses.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from culmen.evaluate.backends import parcel as parcels
from culmen.evaluate.backends.node import NodeEvaluator
from culmen.evaluate.backends.parcel import Answer

_LOOK_SECONDS = 0.05


class NodeActor:
    """A `NodeEvaluator` as a Ray actor. Calls that come before it has begun wait."""

    def __init__(self) -> None:
        self._node = NodeEvaluator()
        self._greeting: bytes | None = None

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        """See `NodeEvaluator`; a second time it says again what it said."""
        if self._greeting is None:
            self._greeting = await self._node.begin(parcel, name, terms)
        return self._greeting

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `NodeEvaluator`; an actor that Ray has started again knows no task yet."""
        if self._greeting is None:
            return parcels.dump(Answer(lost="no_evaluator"))
        return await self._node.evaluate(number, job, seconds)

    async def cancel(self, number: str) -> None:
        """See `NodeEvaluator`."""
        self._node.cancel(number)

    async def hold(self) -> None:
        """Never returns: its failure tells that this actor is gone."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """See `NodeEvaluator`."""
        await self._node.close()


def errand(prefix: str, namespace: str, number: str, job: bytes, seconds: float, patience: float) -> bytes:
    """Hand a job to this node's evaluator, and wait for it; `patience` is how long it may take to appear."""
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import GetTimeoutError, RayActorError  # pyright: ignore[reportMissingImports]

    ends = time.monotonic() + patience
    while True:
        actor = _find(ray, f"{prefix}-{ray.get_runtime_context().get_node_id()}", namespace)
        lost = "no_evaluator"
        if actor is not None:
            try:
                answer: bytes = ray.get(actor.evaluate.remote(number, job, seconds), timeout=seconds + patience)
                lost = parcels.load(answer, Answer).lost
                if lost != "no_evaluator":
                    return answer
            except GetTimeoutError:
                return parcels.dump(Answer(lost="deadline"))
            except RayActorError:
                return parcels.dump(Answer(lost="evaluator_died"))
        if time.monotonic() > ends:
            return parcels.dump(Answer(lost=lost))
        time.sleep(_LOOK_SECONDS)


def _find(ray: Any, name: str, namespace: str) -> Any:
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:  # the driver has not seen this node yet
        return None
