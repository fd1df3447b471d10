"""The evaluator of a node, with one fork-server and scorers as in `LocalBackend`.

Carriers send it the task and then jobs, all as bytes; it opens no journal and gets no key. On a Ray
cluster one actor per node holds it, and Ray places errands: tasks that hold an evaluation's
resources (cores, GPUs, ...) and pass its job to the actor of their node.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from culmen.core.asking import ASKER, AskingFailed, Loan
from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, UserError
from culmen.core.evaluation import Case, Status
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.evaluate.local import LocalBackend
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.jail import probes

Replies = dict[str, "asyncio.Future[bytes]"]
_PREFIX = "culmen-node-"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_OURS = re.compile(r"RAY_|SLURM_|SUBMITIT_")


_LISTEN_SECONDS = 20.0


class NodeAsker:
    """Passes the questions of one evaluation to models on to the driver.

    `waited` is the time in seconds that the answers took.
    """

    def __init__(
        self, number: str, outbox: asyncio.Queue[tuple[str, bytes]], replies: Replies
    ) -> None:
        self._number, self._outbox, self._replies = number, outbox, replies
        self._count, self.waited = 0, 0.0

    async def ask(self, question: Mapping[str, object]) -> JsonObject:
        """See `core.asking.Asker`; a role without a model ends the run, from the driver's side."""
        self._count += 1
        key, started = f"{self._number}{messages.ASKED}{self._count}", time.monotonic()
        future = self._replies[key] = asyncio.get_running_loop().create_future()
        try:
            self._outbox.put_nowait((key, messages.dump_struct(question)))
            answer = json.loads(await future)
        finally:
            del self._replies[key]
            self.waited += time.monotonic() - started
        if "failed" in answer:
            raise AskingFailed(**answer["failed"])
        return answer["reply"]

    async def lend(self, role: str, most: Callable[[Any], Usage]) -> Loan:
        """Refuse: a model's key never leaves the driver's machine."""
        raise UserError(
            "agents of rollouts ask a model through this machine's gateway, and a node has none",
            where=f"role {role}",
            fix="run without --backend",
        )


def restore_priority() -> int:
    """Give the process the usual priority, if it may; return its niceness.

    Ray starts its workers at niceness 15.
    """
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)
    return os.nice(0)


class NodeEvaluator:
    """One task on one node; `begin` comes first, and every answer is bytes.

    The bytes are a `messages.NodeReply`. `next_questions` returns the questions of evaluators to
    models, and `deliver_reply` delivers the replies.
    """

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.replies: Replies = {}
        self._seconds = 0.0
        self._backend: LocalBackend | None = None
        self._cases: dict[str, Case] = {}
        self._epoch = 0
        self._running: dict[str, asyncio.Task[NodeReply]] = {}
        self._folder, self._lock = _create_own_folder()
        self._renewing = asyncio.Lock()
        self._rested = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds without work, since the last work or the start."""
        return 0.0 if self._running or self._backend is None else time.monotonic() - self._rested

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        """Unpack, check, and start the jail.

        Returns the level in force and the scores' level of trust, or an error for the user.
        """
        forget_secrets()
        niceness = restore_priority()
        agreed = messages.load_struct(terms, NodeTerms)
        try:
            task = await asyncio.to_thread(messages.unpack_task, parcel, name, self._folder)
            backend = LocalBackend(task, agreed.workers, agreed.require, scoring=agreed.scoring)
            level = await backend.start()
            self._rested = time.monotonic()
            self._backend, self._cases = backend, {case.id: case for case in task.cases}
            self._seconds = agreed.seconds
            if agreed.level and probes.level_rank(level) > probes.level_rank(agreed.level):
                raise IsolationError(
                    f"this node has isolation level {level}, the run began with {agreed.level}",
                    where="a node that joined later",
                    fix=probes.FIX,
                )
            answer = NodeReply(level=level, scoring=backend.scoring, niceness=niceness)
        except UserError as error:
            answer = messages.error_reply(error)
        return messages.dump_struct(answer)

    @property
    def shares_processes(self) -> bool:
        """True if the evaluator shares a process with the candidate.

        Then a signal that ends one process can change a score.
        """
        return self._backend is not None and self._backend.task.evaluator.form == "legacy"

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        """One evaluation within `seconds`, and within those of the terms plus the time of models.

        A cancelled or late evaluation is lost.
        """
        asker = NodeAsker(number, self._outbox, self.replies)
        work = self._evaluate_job(messages.load_struct(job, EvaluationJob), asker)
        task = self._running[number] = asyncio.create_task(work)
        ends = time.monotonic() + seconds
        left, waited = min(seconds, self._seconds or seconds), 0.0
        try:
            while left > 0 and not task.done():
                await asyncio.wait({task}, timeout=left)
                asking = any(key.startswith(number + messages.ASKED) for key in self.replies)
                left = min(
                    asker.waited - waited or asking * _LISTEN_SECONDS, ends - time.monotonic()
                )
                waited = asker.waited
            if not task.done():
                return messages.dump_struct(NodeReply(lost="deadline"))
            return messages.dump_struct(
                NodeReply(lost="cancelled") if task.cancelled() else task.result()
            )
        finally:
            task.cancel()
            self._running.pop(number, None)
            self._rested = time.monotonic()

    async def next_questions(self) -> list[tuple[str, bytes]]:
        """Questions since the last call, each with a key; waits a while for the first."""
        try:
            questions = [await asyncio.wait_for(self._outbox.get(), _LISTEN_SECONDS)]
        except TimeoutError:
            return []
        return questions + self.questions_now()

    def questions_now(self) -> list[tuple[str, bytes]]:
        """Questions since the last call, without waiting."""
        return [self._outbox.get_nowait() for _ in range(self._outbox.qsize())]

    def deliver_reply(self, key: str, reply: bytes) -> None:
        """Deliver the reply to a question; ignored if the question was given up."""
        future = self.replies.get(key)
        if future is not None and not future.done():
            future.set_result(reply)

    async def _evaluate_job(self, job: EvaluationJob, asker: NodeAsker) -> NodeReply:
        ASKER.set(asker)
        backend = self._backend
        if backend is None:
            return NodeReply(lost="no_evaluator")
        await self._renew_for_epoch(backend, job.epoch)
        candidate, case = Candidate.of(job.parts), self._cases.get(job.case or "")
        if candidate.id != job.id or (job.case and case is None):
            return NodeReply(lost="damaged")
        try:
            observation = await backend.evaluate(candidate, case, job.seed, certify=job.certify)
        except UserError as error:
            return messages.error_reply(error)
        if observation.status is Status.LOST:
            observation = msgspec.structs.replace(
                observation,
                feedback=f"{observation.feedback}\non node {os.uname().nodename}".strip(),
            )
        return NodeReply(observation=observation)

    async def _renew_for_epoch(self, backend: LocalBackend, epoch: int) -> None:
        async with self._renewing:
            if epoch > self._epoch:
                await backend.renew()
                self._epoch = epoch

    def cancel(self, number: str) -> None:
        """Cancel an evaluation; its processes end at once."""
        if number in self._running and not self._running[number].cancelling():
            self._running[number].cancel()

    async def close(self) -> None:
        """End every process and remove every file of this node."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._backend is not None:
            await self._backend.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def forget_secrets() -> None:
    """Remove API keys from this process's environment, which needs none."""
    for name in [n for n in os.environ if _SECRET.search(n) and not _OURS.match(n)]:
        del os.environ[name]


def _create_own_folder() -> tuple[Path, int]:
    """A new private folder and the descriptor of its lock; folders of dead owners are removed."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(old / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(lock)
    draft = Path(tempfile.mkdtemp(prefix="culmen-draft-"))
    draft.chmod(0o711)
    lock = os.open(draft / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = draft.with_name(_PREFIX + secrets.token_hex(8))  # the name under which others check it
    draft.rename(folder)
    return folder, lock


ASLEEP = b"asleep "  # no JSON answer begins like this
_LOOK_SECONDS, _IDLE_LOOK_SECONDS = 0.05, 1.0


class NodeActor(NodeEvaluator):
    """A `NodeEvaluator` as a Ray actor; calls before its start wait."""

    def __init__(self) -> None:
        super().__init__()
        self._greeting: bytes | None = None
        self._over = False

    async def begin(self, parcel: bytes, name: str, terms: bytes) -> bytes:
        """See `NodeEvaluator`; a second call repeats the first answer."""
        await self._end_of_rest()
        if self._greeting is None:
            self._greeting = await super().begin(parcel, name, terms)
        return self._greeting

    async def evaluate(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `NodeEvaluator`; an actor that is about to rest takes no task any more."""
        if self._greeting is None or self._over:
            return messages.dump_struct(NodeReply(lost="no_evaluator"))
        return await super().evaluate(number, job, seconds)

    async def hold(self, rest: float) -> None:
        """Return after `rest` seconds without work (0: never), with everything ended.

        The node may then be given back. If this call fails, the actor is lost.
        """
        await self._end_of_rest()
        while not rest or self.idle_seconds < rest:
            await asyncio.sleep(min(rest or _IDLE_LOOK_SECONDS, _IDLE_LOOK_SECONDS))
        self._over = True
        await self.close()
        asyncio.get_running_loop().call_later(0.5, os._exit, 0)  # for the last answer to be sent

    async def _end_of_rest(self) -> None:
        """Let a caller during shutdown wait for its end; the caller then starts another actor."""
        if self._over:
            await asyncio.Event().wait()


def errand(namespace: str, number: str, job: bytes, seconds: float, patience: float) -> bytes:
    """Pass a job to this node's evaluator, and wait for the answer.

    `patience` is the time in seconds for the evaluator to get ready. Without an evaluator the
    answer is `ASLEEP` with the node's id.
    """
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import GetTimeoutError, RayActorError  # pyright: ignore[reportMissingImports]

    rested = False
    node, ends = (
        ray.get_runtime_context().get_node_id(),
        # seconds that the driver may take to see a new node and start its evaluator
        time.monotonic() + min(patience, 3.0),
    )
    while True:
        actor = _find_actor(ray, actor_name(node), namespace)
        if actor is not None:
            try:
                answer: bytes = ray.get(
                    actor.evaluate.remote(number, job, seconds), timeout=seconds + patience
                )
                rested = messages.load_struct(answer, NodeReply).lost == "no_evaluator"
                if not rested:
                    return answer
            except GetTimeoutError:
                return messages.dump_struct(NodeReply(lost="deadline"))
            except RayActorError:
                if not rested:
                    return messages.dump_struct(NodeReply(lost="evaluator_died"))
        if time.monotonic() > ends:
            return ASLEEP + node.encode()
        time.sleep(_LOOK_SECONDS)


def actor_name(node: str) -> str:
    """The name of the actor on the node with this id."""
    return f"culmen-node-{node}"


def _find_actor(ray: ModuleType, name: str, namespace: str) -> Any:
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:  # the driver has not seen this node yet
        return None
