"""Evaluations on a Ray cluster.

Ray places errands by their resources; one actor per node evaluates. Nodes may come and go. A new
node gets its actor, and with it the task, once. All waits are bounded: an overdue errand is
abandoned, and a cluster without a suitable node for `wait` seconds ends the session, which can be
resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice, Needs
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import NodeReply
from culmen.extensions.cluster.node import ASLEEP, NodeActor, actor_name, errand
from culmen.extensions.cluster.ray_connection import (
    LOOPBACK,
    LocalCluster,
    RayThread,
    connect_to_cluster,
    future_of,
    list_nodes,
    run_on_thread,
)
from culmen.extensions.cluster.remote import (
    NODE_SLOTS,
    Lost,
    QuestionHandler,
    answer_without_backend,
)

WAIT_SECONDS = 300.0
_LOOK_SECONDS = 1.0
# seconds that an errand waits for the actor of its node, which loads packages when it starts
_PATIENCE = 150.0
_FAILURES = {
    "OutOfMemoryError": "node_out_of_memory",
    "WorkerCrashedError": "worker_died",
    "NodeDiedError": "node_died",
    "LocalRayletDiedError": "node_died",
}
_BEGIN_SECONDS, _TRIES = 240.0, 4
_ASK_SECONDS, _KILL_SECONDS = 30.0, 10.0
# evaluations that one actor may have waiting; Ray places no more than the node can take
_CALLS = 1000


class RayNodes:
    """The nodes of the cluster and their evaluators.

    `alive` maps the id of each live node to its resources; `able` has those that can take an
    evaluation.
    """

    def __init__(
        self,
        needs: Needs,
        namespace: str,
        parcel: object,
        name: str,
        terms: Callable[[], bytes],
        answer_question: QuestionHandler,
        address: str,
        rest: float,
        on_message: Callable[[str], None],
    ) -> None:
        self._needs, self._namespace = ray_resources(needs), namespace
        self._parcel, self._name, self._terms, self._address = parcel, name, terms, address
        self._answer_question, self._listening = answer_question, dict[str, asyncio.Task[None]]()
        self._replying = set[asyncio.Task[None]]()
        self.alive: dict[str, dict[str, float]] = {}
        self.able: set[str] = set()
        self._actors: JsonObject = {}
        self._rest, self._resting = rest, set[str]()
        self._begun: dict[str, asyncio.Task[bytes]] = {}
        self._since = time.monotonic()
        self._trouble: UserError | None = None
        self._tending: asyncio.Task[None] | None = None
        self._deaf = False
        self._on_message = on_message

    @property
    def idle_seconds(self) -> float:
        """Seconds without a node that could take an evaluation."""
        return 0.0 if self.able else time.monotonic() - self._since

    def total_room(self, limit: int) -> int:
        """Number of evaluations that all nodes can take at once, with a limit per node."""
        needs = self._needs or {"CPU": 1.0}
        rooms = [
            min(int(self.alive[n].get(k, 0.0) / v) for k, v in needs.items()) for n in self.able
        ]
        return sum(min(limit, room) for room in rooms)

    def raise_trouble(self) -> None:
        """Raise a user error that a node reported."""
        if self._trouble is not None:
            raise self._trouble

    async def refresh_nodes(self) -> None:
        """Query the cluster's nodes; raise `Unavailable` if it does not answer."""
        import ray  # pyright: ignore[reportMissingImports]

        try:
            listed: list[JsonObject] = await run_on_thread(list_nodes, _ASK_SECONDS)
        except (TimeoutError, ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            self._deaf = True
            raise unreachable_error(error) from None
        if self.able:
            self._since = time.monotonic()
        before = self.alive.keys() - self._resting
        self.alive = {node["NodeID"]: dict(node["Resources"]) for node in listed if node["Alive"]}
        self.able = {
            n
            for n, has in self.alive.items()
            if all(has.get(k, 0.0) >= v for k, v in self._needs.items())
        }
        self._resting &= self.able
        for node in listed:
            if node["NodeID"] in before and not node["Alive"]:
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                self._on_message(f"Node {name} is gone; left for evaluations: {len(self.able)}.")
        for gone in self._actors.keys() - self.able:
            self._drop_node(gone)

    async def start_first_evaluator(self) -> bytes:
        """Start the evaluator on one node, or on another if that one dies; return its answer."""
        ends, tried, last = time.monotonic() + _BEGIN_SECONDS, set[str](), "no node stayed alive"
        while time.monotonic() < ends and len(tried) < _TRIES:
            await self.refresh_nodes()
            if not self.able - tried:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            node = min(self.able - tried)
            tried.add(node)
            task = self._start_evaluator(node)
            await asyncio.wait({task}, timeout=max(0.0, ends - time.monotonic()))
            if task.done() and not task.cancelled():
                error = task.exception()
                if error is None and task.result():
                    return task.result()
                last = str(error).strip().splitlines()[-1] if error is not None else last
            self._drop_node(node)
        raise Unavailable(
            f"no evaluator could be started: {last}",
            where="Ray",
            fix="install the same culmen, with the same Python, on every node; then culmen resume",
        )

    def start_tending(self) -> None:
        """Keep an evaluator on every node, except on resting ones until they are woken."""
        self._tending = asyncio.create_task(self._tend_nodes())

    async def _tend_nodes(self) -> None:
        while self._trouble is None:
            try:
                await self.refresh_nodes()
            except UserError as error:
                self._trouble = error
                return
            for node in self.able - self._actors.keys() - self._resting:
                self._start_evaluator(node)
            await asyncio.sleep(_LOOK_SECONDS)

    def _start_evaluator(self, node: str) -> asyncio.Task[bytes]:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

        actor = self._actors[node] = (
            ray.remote(NodeActor)
            .options(
                name=actor_name(node),
                namespace=self._namespace,
                num_cpus=0,
                max_restarts=0,
                get_if_exists=True,
                max_concurrency=_CALLS,  # a resting one may still exist
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote()
        )
        task = self._begun[node] = asyncio.create_task(self._send_task(node, actor))
        return task

    async def _send_task(self, node: str, actor: Any) -> bytes:
        """Send the task; note the actor's end.

        A user error in its answer stops the run.
        """
        import ray  # pyright: ignore[reportMissingImports]

        held = await future_of(actor.hold.remote(self._rest), self._address)
        held.add_done_callback(lambda done: self._on_actor_end(node, actor, done))
        try:
            begun = actor.begin.remote(self._parcel, self._name, self._terms())
            answer: bytes = await (await future_of(begun, self._address))
        except ray.exceptions.RayActorError:
            if self._tending is None:
                raise
            return b""  # the actor ended; if its node still exists, another one is started
        reply = messages.load_struct(answer, NodeReply)
        if reply.error is not None:
            self._trouble = messages.error_from_reply(reply.error)
        else:
            self._listening[node] = asyncio.create_task(self._answer_questions(actor))
        return answer

    async def _answer_questions(self, actor: Any) -> None:
        """Answer the questions of this node's evaluators to models, during the node's life."""
        import ray  # pyright: ignore[reportMissingImports]

        while True:
            try:
                questions = await (await future_of(actor.next_questions.remote(), self._address))
            except (ray.exceptions.RayError, ConnectionError, RuntimeError):
                return
            for key, question in questions:
                task = asyncio.create_task(self._reply_to_question(actor, key, question))
                self._replying.add(task)
                task.add_done_callback(self._replying.discard)

    async def _reply_to_question(self, actor: Any, key: str, question: bytes) -> None:
        actor.deliver_reply.remote(key, await self._answer_question(key, question))

    def _on_actor_end(self, node: str, actor: object, held: asyncio.Future[object]) -> None:
        rests = not held.cancelled() and held.exception() is None
        if self._actors.get(node) is actor:
            self._drop_node(node)
            if rests:
                self._resting.add(node)

    def wake_node(self, node: str) -> None:
        """Restart the evaluator of a resting node that has work."""
        self._resting.discard(node)
        if node in self.able and node not in self._actors and self._tending is not None:
            self._start_evaluator(node)

    def _drop_node(self, node: str) -> None:
        self._actors.pop(node, None)
        for task in (self._begun.pop(node, None), self._listening.pop(node, None)):
            if task is not None:
                task.cancel()

    def cancel(self, number: str) -> None:
        """End an evaluation on any node."""
        for actor in list(self._actors.values()):
            actor.cancel.remote(number)

    async def close(self) -> None:
        """End the evaluators, by their own clean-up if possible."""
        if self._tending is not None:
            self._tending.cancel()
        actors = list(self._actors.values())
        if actors and not self._deaf:
            with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
                await run_on_thread(lambda: _dismiss_actors(actors), _ASK_SECONDS + _KILL_SECONDS)
        for node in list(self._actors):
            self._drop_node(node)


def _dismiss_actors(actors: list[Any]) -> None:
    import ray  # pyright: ignore[reportMissingImports]

    closing = [actor.close.remote() for actor in actors]
    ray.wait(closing, num_returns=len(closing), timeout=_ASK_SECONDS)
    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(actor, no_restart=True)


def ray_resources(needs: Needs) -> dict[str, float]:
    """Resources of an evaluation, in Ray's names."""
    named = {"CPU": needs.cpu, "GPU": needs.gpu, "memory": float(needs.memory), **needs.custom}
    return {name: value for name, value in named.items() if value}


def shortage_error(
    needs: Needs, nodes: dict[str, dict[str, float]], address: str, kind: type[UserError]
) -> UserError:
    """The error naming the resources that no node has."""
    maximum = {
        name: max((resources.get(name, 0.0) for resources in nodes.values()), default=0.0)
        for name in ray_resources(needs)
    }
    lacking = [
        f"{name} = {value:g}"
        for name, value in ray_resources(needs).items()
        if maximum[name] < value
    ]
    if not nodes:
        what = "the cluster has no nodes"
    elif lacking:
        best = ", ".join(
            f"{name} = {maximum[name]:g}"
            for name in maximum
            if maximum[name] < ray_resources(needs)[name]
        )
        what = f"no node has {', '.join(lacking)}; the maximum on one node is {best}"
    else:
        what = "no node has all at once: " + ", ".join(
            f"{name} = {value:g}" for name, value in ray_resources(needs).items()
        )
    return kind(
        what,
        where=f"--set backend.address={address}, {len(nodes)} nodes",
        fix="add such a node, or request less with --set backend.NAME=N; then culmen resume",
    )


def unreachable_error(error: Exception) -> Unavailable:
    """The error for a cluster that no longer answers."""
    return Unavailable(
        f"the Ray cluster no longer answers: {type(error).__name__}",
        where="Ray",
        fix="culmen resume, once it is back",
    )


class RayCarrier:
    """See `remote.Carrier`."""

    def __init__(
        self, choice: BackendChoice, _workers: int, on_message: Callable[[str], None] | None = None
    ) -> None:
        self.retries, self.terms = choice.retries, b""
        self.answer_question: QuestionHandler = answer_without_backend
        self._choice, self._wait = choice, choice.wait or WAIT_SECONDS
        self._namespace = f"culmen-{secrets.token_hex(8)}"
        self._local: LocalCluster | None = None
        self._connected = False
        self._nodes: RayNodes | None = None
        self._served = self._flying = 0
        self._errand: Any = None
        self._later = RayThread()
        self._on_message, self._is_wait_reported = on_message or (lambda _: None), False

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Connect and start the first evaluator.

        Raises `UserError`, naming the resource that every node lacks or the address without a
        cluster.
        """
        address = await self._resolve_address()
        await self._connect_driver(address)
        import ray  # pyright: ignore[reportMissingImports]

        parcel_ref, needs = (
            # the parcel may be large, and the connection slow
            await run_on_thread(lambda: ray.put(parcel), 600.0),
            self._choice.needs,
        )
        terms, choice = (lambda: self.terms), self._choice
        self._nodes = RayNodes(
            needs,
            self._namespace,
            parcel_ref,
            name,
            terms,
            self.answer_question,
            choice.address,
            choice.rest,
            self._on_message,
        )
        options = {"memory": needs.memory} if needs.memory else {}
        self._errand = ray.remote(errand).options(
            num_cpus=needs.cpu,
            num_gpus=needs.gpu,
            resources=needs.custom or None,
            max_retries=0,
            **options,
        )
        return await self._start_first_node(self._nodes)

    async def _resolve_address(self) -> str:
        if self._choice.address != "local":
            return self._choice.address
        self._local = LocalCluster()
        await self._local.start()
        return self._local.address

    async def _connect_driver(self, address: str) -> None:
        variables = (
            {}
            if self._local is None
            else {**LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._local.token}
        )
        namespace = await connect_to_cluster(
            address, self._namespace, variables, self._choice.address
        )
        self._connected, self._namespace = namespace == self._namespace, namespace

    async def _start_first_node(self, nodes: RayNodes) -> bytes:
        """Wait for a node with the resources of an evaluation.

        The wait is visible to an autoscaler.
        """
        import ray  # pyright: ignore[reportMissingImports]

        started, request = time.monotonic(), None
        while True:
            await nodes.refresh_nodes()
            if nodes.able:
                break
            if request is None:
                request = self._errand.remote(self._namespace, "wish", b"", 0.0, 0.0)
            if not self._may_grow(nodes) or self._idle_since(started):
                raise shortage_error(
                    self._choice.needs, nodes.alive, self._choice.address, UserError
                )
            await asyncio.sleep(_LOOK_SECONDS)
        self._idle_since(started)
        if request is not None:
            self._later(lambda: ray.cancel(request, force=True))
        greeting = await nodes.start_first_evaluator()
        nodes.start_tending()
        return greeting

    def _may_grow(self, nodes: RayNodes) -> bool:
        """True if nodes may still join: always, except for a single node started by the driver."""
        return self._local is None or not nodes.alive

    def _idle_since(self, started: float) -> bool:
        """True if work has had no node for too long; the wait is reported once."""
        nodes = self._nodes
        assert nodes is not None
        if nodes.able:
            if self._is_wait_reported:
                self._on_message("There is a node for evaluations again.")
            self._is_wait_reported = False
            return False
        seconds = min(time.monotonic() - started, nodes.idle_seconds)
        if seconds > 5.0 and not self._is_wait_reported:
            self._is_wait_reported = True
            self._on_message(
                f"No node can take evaluations now; waiting for one, at most {self._wait:g} "
                "seconds."
            )
        return seconds > self._wait

    def room(self) -> int:
        """See `remote.Carrier`."""
        return 0 if self._nodes is None else self._nodes.total_room(NODE_SLOTS)

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        import ray  # pyright: ignore[reportMissingImports]

        nodes = self._nodes
        assert nodes is not None
        if not ray.is_initialized():
            raise unreachable_error(ConnectionError())
        for _ in range(50):  # nodes without an evaluator that one evaluation may try in a row
            answer = await self._errand_of(nodes, number, job, seconds)
            if not answer.startswith(ASLEEP):
                return answer
            nodes.wake_node(answer.removeprefix(ASLEEP).decode())
        raise Lost("no_evaluator")

    async def _errand_of(self, nodes: RayNodes, number: str, job: bytes, seconds: float) -> bytes:
        import ray  # pyright: ignore[reportMissingImports]

        ref = self._errand.remote(self._namespace, number, job, seconds, _PATIENCE)
        future = await future_of(ref, self._choice.address)
        self._flying += 1
        try:
            answer: bytes = await self._wait_for_errand(future, seconds + 2 * _PATIENCE)
        except BaseException:
            if not future.done() or future.cancelled():
                future.cancel()
                self._later(lambda: ray.cancel(ref, force=True))
            self._later(lambda: nodes.cancel(number))
            raise
        finally:
            self._flying -= 1
        self._served += 1
        return answer

    async def _wait_for_errand(self, future: asyncio.Future[bytes], patience: float) -> bytes:
        """Wait for an errand.

        It is abandoned if within its time no errand returned, or more returned than can have been
        queued before it.
        """
        nodes = self._nodes
        assert nodes is not None
        served, ahead, since = self._served, self._flying, time.monotonic()
        started = since
        while not future.done():
            # at most 500 checks per second, over all waiting evaluations
            await asyncio.wait({future}, timeout=_LOOK_SECONDS + self._flying / 500)
            nodes.raise_trouble()
            if self._idle_since(started):
                raise shortage_error(
                    self._choice.needs, nodes.alive, self._choice.address, Unavailable
                )
            if not nodes.able:
                since = time.monotonic()
            elif time.monotonic() - since > patience:
                if not 0 < self._served - served <= ahead:
                    raise Lost("overdue")
                served, ahead, since = (
                    self._served,
                    ahead - (self._served - served),
                    time.monotonic(),
                )
        return self._errand_result(future)

    def _errand_result(self, future: asyncio.Future[bytes]) -> bytes:
        import ray.exceptions as failures  # pyright: ignore[reportMissingImports]

        try:
            return future.result()
        except failures.RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            raise UserError(
                f"a node cannot run evaluations: {last}",
                where=f"--set backend.address={self._choice.address}",
                fix="install the same culmen, with the same Python, on every node",
            ) from None
        except failures.RayError as error:
            raise Lost(_FAILURES.get(type(error).__name__, "node_died")) from None
        except (ConnectionError, RuntimeError) as error:  # of the client, if its server has ended
            raise unreachable_error(error) from None

    async def close(self) -> None:
        """See `remote.Carrier`."""
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            await nodes.close()
        if self._connected:
            import ray  # pyright: ignore[reportMissingImports]

            self._connected = False
            with contextlib.suppress(TimeoutError):
                await run_on_thread(ray.shutdown, 30.0)
        if self._local is not None:
            await self._local.close()
