"""Performs effects: evaluations, model calls, embeddings, edits.

In a fork, the parent's journal answers first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import (
    Custom,
    CustomRequest,
    EditRequest,
    Edits,
    Effect,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Request,
    Result,
    Vectors,
    WriteRequest,
    at_least,
)
from culmen.core.foreign import UNREADABLE, Unreadable
from culmen.core.json import JsonObject
from culmen.core.ports import Backend, Craft, Embedder, Gateway, World
from culmen.core.task import Task
from culmen.core.usage import Usage


class Editor(Protocol):
    """Performs `edit` effects."""

    async def perform(self, request: EditRequest) -> Edits: ...

    async def close(self) -> None: ...


def _limit_of(request: ProposeRequest | WriteRequest) -> JsonObject:
    """The limit of a request as a keyword; gateways that know none are never given one."""
    return {} if request.limit is None else {"limit": request.limit}


class LiveWorld(World):
    """Performs effects for real.

    `surface_fault(candidate)` is the reason that it may not run, "" if it may. `crafts` makes the
    performers of custom effects, by family ("session" for `session.open`); each is made when first
    needed and closed with the world.
    """

    def __init__(
        self,
        task: Task,
        backend: Backend,
        gateway: Gateway | None,
        embedder: Embedder,
        editor: Editor | None,
        surface_fault: Callable[[Task, Candidate], str],
        crafts: Mapping[str, Callable[[], Craft]] | None = None,
    ) -> None:
        self._task, self._backend, self._gateway = task, backend, gateway
        self._embedder, self._editor, self._surface_fault = embedder, editor, surface_fault
        self._makers, self._crafts = dict(crafts or {}), dict[str, Craft]()

    async def perform(self, effect: Effect) -> Result:
        """Perform the effect; failures of candidates and models are results, never raised."""
        request = effect.request
        match request:
            case EvaluateRequest():
                return await self._evaluate_candidate(request)
            case ProposeRequest():
                return (
                    await self._gateway.propose(request.brief, request.seed, **_limit_of(request))
                    if self._gateway
                    else _NO_PROPOSAL
                )
            case WriteRequest():
                return (
                    await self._gateway.write(
                        request.role, request.slots, request.seed, **_limit_of(request)
                    )
                    if self._gateway
                    else _NO_TEXT
                )
            case EmbedRequest():
                return await asyncio.to_thread(self._embed_candidates, request)
            case EditRequest():
                return (
                    await self._editor.perform(request)
                    if self._editor
                    else Edits(fault="no_editor")
                )
            case CustomRequest(kind="clock.wait"):
                await asyncio.sleep(float(request.payload["seconds"]))
                return Custom()
            case CustomRequest():
                return await self._craft_for(request.kind).perform(request)

    def result_at_once(self, effect: Effect) -> Result | None:
        """The vectors of texts that are counted in no time."""
        request = effect.request
        if not isinstance(request, EmbedRequest) or not self._embedder.is_instant:
            return None
        length = sum(len(candidate.text) for candidate in request.candidates)
        return self._embed_candidates(request) if length <= _SHORT else None

    async def close(self) -> None:
        """Close the performers of custom effects."""
        for craft in self._crafts.values():
            await craft.close()

    def estimate(self, request: Request) -> Usage:
        """Upper bound of an effect's cost: the gateway's for a model call, else one evaluation."""
        if not isinstance(request, ProposeRequest | WriteRequest):
            return at_least(request)
        return self._gateway.estimate(request) if self._gateway else Usage()

    def most(self, request: Request) -> Usage:
        """Strict upper bound of a model call's cost: the gateway's."""
        if not isinstance(request, ProposeRequest | WriteRequest) or self._gateway is None:
            return self.estimate(request)
        return self._gateway.most(request)

    def _craft_for(self, kind: str) -> Craft:
        family = kind.partition(".")[0]
        if family not in self._makers:
            raise UserError(
                f"no world or craft performs the effect '{kind}'",
                where="the strategy's search()",
                fix="pass a world that does: Study.create(..., world=...)",
            )
        if family not in self._crafts:
            self._crafts[family] = self._makers[family]()
        return self._crafts[family]

    async def _evaluate_candidate(self, request: EvaluateRequest) -> Observation:
        # other backends need not know
        more: JsonObject = {"certify": True} if request.certify else {}
        if request.checks:
            more |= {"checks": request.checks, "above": request.above}
        if request.rivals:
            more["rivals"] = request.rivals
        if request.pushes:
            more |= {"pushes": request.pushes, "neighbours": request.neighbours}
        try:
            fault = self._surface_fault(self._task, request.candidate)
            feedback = f"Not run: {_fault_text(fault)}."
            if not fault:
                return await self._backend.evaluate(
                    request.candidate, request.case, request.seed, **more
                )
        except Unreadable as error:
            fault, feedback = UNREADABLE, error.what
        return Observation(
            request.candidate.id,
            Status.REJECTED,
            case=request.case.id if request.case else "",
            reason=fault.partition(":")[0],
            feedback=feedback,
            seed=request.seed,
            evaluator=self._task.evaluator.digest,
        )

    def _embed_candidates(self, request: EmbedRequest) -> Vectors:
        import numpy as np

        vectors, usage = self._embedder.embed_with_usage([c.text for c in request.candidates])
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        return Vectors(rows.shape[0], rows.shape[1], rows.tobytes(), self._embedder.name, usage)


def _fault_text(fault: str) -> str:
    """The reason of a rejection in words; behind a colon it has the details."""
    code, colon, details = fault.partition(":")
    return f"{code.replace('_', ' ')}{colon}{details}"


class RememberingWorld(World):
    """A fork's world: the parent's finished results are returned by content, at no cost.

    `finished` maps the mark of a request (digest of all its contents, random seed included) to its
    result.
    """

    def __init__(self, world: World, finished: Mapping[str, Result]) -> None:
        self._world, self._finished = world, finished

    async def perform(self, effect: Effect) -> Result:
        """The parent's result if there is one, else perform the effect."""
        known = self._finished.get(effect.mark)
        return await self._world.perform(effect) if known is None else known

    def result_at_once(self, effect: Effect) -> Result | None:
        """The world's, for an effect that the parent did not finish."""
        return None if effect.mark in self._finished else self._world.result_at_once(effect)

    def estimate(self, request: Request) -> Usage:
        """Upper bound of the cost if the effect is performed."""
        return self._world.estimate(request)

    def most(self, request: Request) -> Usage:
        """Strict upper bound of the cost if the effect is performed."""
        return self._world.most(request)


_SHORT = 50_000  # characters that are embedded without a thread
_NO_PROPOSAL = Proposal(fault="no_model")
_NO_TEXT = Text(model="offline")  # not a fault: a run without a model expects no prose

__all__ = ["Custom", "Editor", "LiveWorld", "RememberingWorld"]
