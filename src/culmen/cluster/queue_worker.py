"""Worker of a queue: pulls evaluations and makes them in a jail of this machine.

One task owns the connection: it sends answers, keeps leases alive, and pulls as many items as
there are free slots. Every run has a `NodeEvaluator` of its own, which ends after a rest. A worker
without a connection goes on evaluating, and connects again; an answer whose lease was lost
meanwhile is refused by the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from culmen.cluster import messages
from culmen.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.cluster.node import NodeEvaluator, forget_secrets
from culmen.cluster.queue_link import QueueLink
from culmen.cluster.queue_schema import ENDED, MOST_BYTES, WORK
from culmen.core.errors import UserError
from culmen.core.evaluation import Status
from culmen.store.address import Address

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

MOST_SLOTS = 64
_POLL_SECONDS = 2.0  # without a notification
_BEAT_SECONDS = 10.0  # between signs of life without a lease; with one a quarter of its length
_REST_SECONDS = 60.0  # without work of a run, after which its jail is closed
_LEAVE_SECONDS = 10.0
_SETTLE_SECONDS = 0.25  # within which the signal that ended a candidate also reaches this process

Say = Callable[[str], None]


@dataclass
class _Node:
    """A run's evaluator on this machine; `ready` is its greeting."""

    name: str
    session: str
    evaluator: NodeEvaluator
    ready: asyncio.Task[NodeReply]


@dataclass
class _Lease:
    """An item that this process holds."""

    node: _Node
    work: asyncio.Task[None]


class QueueWorker:
    """Evaluates what it pulls, up to `slots` items at once, until `stop`.

    `runs` are the names of the only runs that it serves (None: all that its token allows).
    `require` is the weakest isolation level that it works at, whatever a run requires.
    `new_evaluator` makes the evaluator of a run.
    """

    def __init__(
        self,
        address: Address,
        token: str,
        slots: int,
        runs: Sequence[str] | None,
        require: str | None,
        say: Say,
        new_evaluator: Callable[[], NodeEvaluator] = NodeEvaluator,
    ) -> None:
        self._link = QueueLink(address, (WORK, ENDED), math.inf, say, durable=False)
        self._loading = QueueLink(address, (), math.inf, say)
        self._load_lock = asyncio.Lock()
        self._token, self._slots, self._say = token, slots, say
        self._runs = None if runs is None else list(runs)
        self._require, self._new_evaluator = require, new_evaluator
        self._host = socket.gethostname()
        self._process = f"{self._host}.{os.getpid()}.{secrets.token_hex(4)}"
        self._leases: dict[UUID, _Lease] = {}
        self._nodes: dict[str, _Node] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._refused: list[str] = []
        self._outcomes: list[Callable[[], Coroutine[object, object, None]]] = []
        self._beaten, self._lease_seconds = -math.inf, math.inf
        self._name = ""
        self._stopping = False
        self._trouble: BaseException | None = None
        self.done = 0

    def stop(self) -> None:
        """End soon: leases are given back, and nothing of what runs is answered."""
        self._stopping = True
        self._link.wake.set()

    async def serve(self) -> None:
        """Work until `stop`; raises `UserError` if the queue refuses token or login."""
        forget_secrets()
        try:
            while not self._stopping:
                await self._send_outcomes()
                await self._keep_leases()
                await self._pull_items()
                self._close_resting_nodes()
                if not self._outcomes and not self._stopping:
                    await self._link.wait(min(_POLL_SECONDS, self._beat_seconds))
        finally:
            await self._leave()
        if self._trouble is not None:
            raise self._trouble

    @property
    def _beat_seconds(self) -> float:
        return min(_BEAT_SECONDS, self._lease_seconds / 4)

    async def _send_outcomes(self) -> None:
        while self._outcomes and not self._stopping:
            await self._outcomes[0]()
            del self._outcomes[0]

    async def _keep_leases(self) -> None:
        """Renew the leases if it is time; end the work whose lease was taken."""
        heard, self._link.heard = self._link.heard, set()
        if time.monotonic() - self._beaten < self._beat_seconds and ENDED not in heard:
            return
        name, kept = (await self._beat(list(self._leases), leaving=False))[0]
        self._beaten = time.monotonic()
        if not self._name:
            self._name = name
            self._say(f"Joined as {name} with {self._slots} slots.")
        for lease in [held for held in self._leases if held not in set(kept)]:
            self._leases.pop(lease).work.cancel()

    async def _beat(self, held: list[UUID], *, leaving: bool) -> list[TupleRow]:
        values = (self._token, self._process, self._host, self._slots, held, leaving)
        return await self._link.call(
            "SELECT * FROM culmen_queue.beat(%s, %s, %s, %s, %s::uuid[], %s)", values
        )

    async def _pull_items(self) -> None:
        free = self._slots - len(self._leases)
        if free <= 0 or self._stopping:
            return
        rows = await self._link.call(
            "SELECT * FROM culmen_queue.pull(%s, %s, %s, %s::text[], %s::text[])",
            (self._token, self._process, free, self._runs, self._refused),
        )
        for item, lease, run, session, job, parts, seconds, lease_seconds in rows:
            self._lease_seconds = lease_seconds
            node = self._nodes.get(session) or self._open_node(run, session)
            work = asyncio.create_task(self._work_on(item, lease, node, job, parts, seconds))
            work.add_done_callback(self._on_done)
            self._leases[lease] = _Lease(node, work)

    def _open_node(self, run: int, session: str) -> _Node:
        evaluator = self._new_evaluator()
        ready = asyncio.create_task(self._begin_node(run, session, evaluator))
        node = self._nodes[session] = _Node("", session, evaluator, ready)
        return node

    async def _begin_node(self, run: int, session: str, evaluator: NodeEvaluator) -> NodeReply:
        """Load the task of a run and start its jail; the greeting."""
        async with self._load_lock:
            values = (self._token, run)
            statement = "SELECT * FROM culmen_queue.describe(%s, %s)"
            rows = await self._loading.call(statement, values)
            if not rows or rows[0][1] != session:
                return NodeReply(lost="run_ended")
            name, _, digest, terms = rows[0]
            statement = "SELECT culmen_queue.read_artifact(%s, %s, %s)"
            parcel = (await self._loading.call(statement, (*values, digest)))[0][0]
            await self._loading.close()
        agreed = messages.load_struct(terms, NodeTerms)
        slots = min(agreed.workers, self._slots)
        agreed = msgspec.structs.replace(agreed, workers=slots)
        if self._require is not None:
            agreed = msgspec.structs.replace(agreed, require=self._require)
        self._nodes[session].name = name
        greeting = messages.load_struct(
            await evaluator.begin(parcel, digest.hex(), messages.dump_struct(agreed)), NodeReply
        )
        if greeting.error is None:
            self._say(f"Began run {name} at isolation level {greeting.level}.")
        return greeting

    async def _work_on(
        self, item: int, lease: UUID, node: _Node, job: bytes, parts: bytes, seconds: float
    ) -> None:
        """Evaluate one item, and leave its outcome for the owner of the connection."""
        started = time.monotonic()
        reply = await asyncio.shield(node.ready)
        if job and reply.error is None and not reply.lost:
            asked = messages.load_struct(job, EvaluationJob)
            asked = msgspec.structs.replace(asked, parts=json.loads(parts or b"{}"))
            raw = await node.evaluator.evaluate(str(lease), messages.dump_struct(asked), seconds)
            reply = messages.load_struct(raw, NodeReply)
            if self._is_doubtful(reply, node):
                await asyncio.sleep(_SETTLE_SECONDS)
        self._outcomes.append(lambda: self._send(item, lease, node, reply, started))
        self._link.wake.set()

    def _is_doubtful(self, reply: NodeReply, node: _Node) -> bool:
        """True if a signal to all processes of this worker may have caused the result."""
        seen = reply.observation
        return seen is not None and (
            seen.status is not Status.OK or node.evaluator.shares_processes
        )

    async def _send(
        self, item: int, lease: UUID, node: _Node, reply: NodeReply, started: float
    ) -> None:
        """Answer an item, or report its loss; an answer without its lease is dropped."""
        if lease not in self._leases:
            return
        answer = messages.dump_struct(reply)
        seen = reply.observation
        lost = "answer_too_large" if len(answer) > MOST_BYTES else reply.lost
        if seen is not None and seen.status is Status.LOST:
            lost = seen.reason or "lost"
        refusal = None
        if reply.error is not None:
            refusal = f"{reply.error['what']}; {reply.error['fix']}"
            self._refused.append(node.session)
            self._say(f"Serves run {node.name} no more: {refusal}.")
        if lost or refusal:
            await self._link.call(
                "SELECT culmen_queue.fail(%s, %s, %s, %s, %s)",
                (self._token, item, lease, lost, refusal),
            )
            took = False
        else:
            rows = await self._link.call(
                "SELECT culmen_queue.finish(%s, %s, %s, %s)", (self._token, item, lease, answer)
            )
            took = bool(rows[0][0])
        del self._leases[lease]
        self.done += took
        if seen is not None:
            word = lost or (seen.status.value if took else "done too late")
            self._say(f"Run {node.name}: {word} after {time.monotonic() - started:.2f} s.")

    def _on_done(self, work: asyncio.Task[None]) -> None:
        """End the program if work ended with an error: it is a bug, or the queue refuses us."""
        if not work.cancelled() and work.exception() is not None:
            self._trouble = self._trouble or work.exception()
            self.stop()

    def _close_resting_nodes(self) -> None:
        busy = {lease.node.session for lease in self._leases.values()}
        for session, node in list(self._nodes.items()):
            if session in busy or not node.ready.done():
                continue
            greeting = node.ready.result()
            useless = bool(greeting.lost or greeting.error)
            if useless or node.evaluator.idle_seconds > _REST_SECONDS:
                del self._nodes[session]
                closing = asyncio.create_task(node.evaluator.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _leave(self) -> None:
        """Give the leases back, and end every process of this worker."""
        works = [lease.work for lease in self._leases.values()]
        starts = [node.ready for node in self._nodes.values()]
        for task in (*works, *starts):
            task.cancel()
        with contextlib.suppress(TimeoutError, UserError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._beat([], leaving=True)
                self._say(f"Gave {len(self._leases)} items back.")
        await asyncio.gather(*works, *self._closing, return_exceptions=True)
        await asyncio.gather(*starts, return_exceptions=True)
        for node in self._nodes.values():
            await node.evaluator.close()
        await self._link.close()
        await self._loading.close()
