"""The driver's side of a backend whose evaluations run elsewhere.

It sends jobs, retries, and attributes failures. A `Carrier` (Ray or Slurm) carries bytes to nodes
and back. Evaluations that ended with their worker or node are repeated; after that they are `lost`,
which no strategy counts against a candidate. Each loss is reported, and the evaluation that
took its place has a line on it in the evaluator's log. The journal stays on the driver.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from culmen.core.asking import ASKER, AskingFailed, current_asker
from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError
from culmen.core.evaluation import (
    EVALUATOR_LOG,
    BackendNote,
    Case,
    Observation,
    Scoring,
    Status,
)
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.evaluate.integrity.guard import EvaluatorSeal
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import NodeReply, NodeTerms
from culmen.jail.evaluation import GRACE_SECONDS, allowed_seconds
from culmen.jail.scorer_pool import VERIFIER_PATIENCE
from culmen.report.figures import count_text

NODE_SLOTS = 64  # evaluations at once on one node, at most: each has a user of its own there
_ATTEMPTS = 2  # a node repeats an evaluation lost by its own jail once
# seconds of models in one evaluation, after which its carrier counts as dead
_ASKING = 86_400.0
# seconds whose losses are reported in one message: a node takes all its evaluations with it
_GATHER_SECONDS = 2.0


class Lost(Exception):
    """An evaluation was lost through no fault of its candidate.

    The text is the failing part in one word: node, worker, ...
    """


QuestionHandler = Callable[[str, bytes], Awaitable[bytes]]


async def answer_without_backend(_key: str, _question: bytes) -> bytes:
    """The answer to questions before a backend is set."""
    return messages.dump_struct({"failed": {"reason": "cancelled"}})


class Carrier(Protocol):
    """Carries bytes to nodes and back.

    answer_question
             is set before `open`: gets a key and a question of an evaluator on a node to a model;
             its result goes back to that node
    open     connect, send the parcel to one node, and return its answer. Raises `UserError` for
             errors that the user can correct, also for a resource that every node lacks. Nodes that
             join later start with the `terms` of that time
    carry    one job, named `number`, to a node with room, with at most `seconds` of work there; the
             bytes of its answer. Raises `Lost`, and `UserError` if no node will ever come.
             Cancelling it ends the work on the node
    room     number of evaluations that the present nodes can run at once; 0: unknown
    close    end everything everywhere
    """

    retries: int
    terms: bytes
    answer_question: QuestionHandler

    async def open(self, parcel: bytes, name: str) -> bytes: ...

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes: ...

    def room(self) -> int: ...

    async def close(self) -> None: ...


class _Questions:
    """The questions to models of one evaluation elsewhere.

    They are answered in the context of the task that performs it. `trouble` gets the error that
    ends the run.
    """

    def __init__(self) -> None:
        self.trouble: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._context = contextvars.copy_context()
        self._running: set[asyncio.Task[JsonObject]] = set()

    async def answer_from_model(self, question: JsonObject) -> JsonObject:
        task = asyncio.get_running_loop().create_task(
            self._ask_model(question), context=self._context
        )
        self._running.add(task)
        try:
            await asyncio.wait({task})
            return {"failed": {"reason": "cancelled"}} if task.cancelled() else task.result()
        finally:
            self._running.discard(task)

    async def _ask_model(self, question: JsonObject) -> JsonObject:
        try:
            return {"reply": await current_asker().ask(question)}
        except AskingFailed as error:
            return {"failed": {"reason": error.reason, "message": str(error)}}
        except CulmenError as error:
            if not self.trouble.done():
                self.trouble.set_exception(error)
            return {"failed": {"reason": "provider_away"}}

    async def cancel_tasks(self, carrying: asyncio.Future[bytes]) -> None:
        """Cancel the unfinished tasks."""
        tasks = [carrying, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.trouble.done():
            self.trouble.exception()  # has been raised, or something worse was
        self.trouble.cancel()


class _LossReport:
    """Reports lost attempts to the user, those of a few seconds in one message."""

    def __init__(self, retries: int, on_message: Callable[[str], None]) -> None:
        self._retries, self._on_message = retries, on_message
        self._counts = Counter[str]()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reason: str) -> None:
        """Count a lost attempt, and report it soon."""
        self._counts[reason.replace("_", " ")] += 1
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_GATHER_SECONDS, self.send)

    def send(self) -> None:
        """Report all losses since the last message; no-op if there are none."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        lost, several = count_text(self._counts.total(), "evaluation"), len(self._counts) > 1
        reasons = ", ".join(f"{why} {n}" if several else why for why, n in self._counts.items())
        again = f"each is tried again, at most {count_text(self._retries, 'time')}"
        self._counts.clear()
        self._on_message(f"Lost with their worker or node: {lost} ({reasons}); {again}.")


class RemoteBackend:
    """Evaluates `task` through the carrier, up to `workers` at once; see `core.ports.Backend`.

    0 workers: the capacity of the nodes at the start.
    """

    attempts = 1  # `evaluate` repeats by itself
    notes: tuple[BackendNote, ...] = ()

    def __init__(
        self,
        task: Task,
        workers: int,
        carrier: Carrier,
        require: str | None = None,
        *,
        scoring: Scoring | None = None,
        on_message: Callable[[str], None] | None = None,
    ) -> None:
        self.task, self.workers, self.require = task, workers, require
        self.scoring = scoring or Scoring()
        self._carrier, self._seal = carrier, EvaluatorSeal(task.evaluator)
        self._epoch = self._count = 0
        self._asking: dict[str, _Questions] = {}
        self._name = secrets.token_hex(4)
        self._losses = _LossReport(carrier.retries, on_message or (lambda _: None))

    async def start(self) -> str:
        """Open the carrier; return the isolation level of the first node.

        The other nodes must reach that level. Errors of the carrier's start are passed on.
        """
        self._seal.require_unchanged()
        terms = NodeTerms(
            min(self.workers or NODE_SLOTS, NODE_SLOTS),
            self.require,
            "",
            self.scoring,
            self.seconds,
        )
        self._carrier.terms, self._carrier.answer_question = (
            messages.dump_struct(terms),
            self._reply_to_node,
        )
        parcel = messages.pack_task(self.task)
        try:
            first = self._parse_reply(
                await self._carrier.open(parcel, messages.parcel_digest(parcel))
            )
        except BaseException:
            await self._carrier.close()
            raise
        if first.niceness:
            what = f"nodes evaluate at niceness {first.niceness}: times grow under load"
            self.notes = (BackendNote(what, "start Ray with RAY_worker_niceness=0"),)
        self.scoring, self.workers = first.scoring, self.workers or max(1, self._carrier.room())
        self._carrier.terms = messages.dump_struct(
            msgspec.structs.replace(terms, level=first.level, scoring=first.scoring)
        )
        return first.level

    def _parse_reply(self, raw: bytes) -> NodeReply:
        answer = messages.load_struct(raw, NodeReply)
        if answer.error is not None:
            raise messages.error_from_reply(answer.error)
        return answer

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        """One evaluation; every failure is a status.

        Raises `EvaluatorChanged`, and `Unavailable` if the cluster does not come back.
        """
        self._seal.require_unchanged()
        job = messages.encode_job(candidate, case, seed, certify, self._epoch)
        reasons: list[str] = []
        while len(reasons) <= self._carrier.retries:
            self._count += 1
            try:
                answer = self._parse_reply(
                    await self._carry_job(f"{self._name}-{self._count}", job)
                )
            except Lost as error:
                answer = NodeReply(lost=str(error))
            if answer.observation is not None:
                return _with_losses(answer.observation, reasons)
            reasons.append(answer.lost)
            self._losses.add(answer.lost)
        reason = reasons[-1]
        return Observation(
            candidate.id,
            Status.LOST,
            case=case.id if case else "",
            reason=reason,
            feedback=f"lost {len(reasons)} times: {reason.replace('_', ' ')}",
            seed=seed,
            evaluator=self.task.evaluator.digest,
        )

    async def _carry_job(self, number: str, job: bytes) -> bytes:
        """Carry one job; answer the questions of its evaluator to models meanwhile."""
        questions = self._asking[number] = _Questions()
        seconds = self.seconds + (
            _ASKING if ASKER.get() is not None else 0.0
        )  # the node itself is stricter
        carrying = asyncio.ensure_future(self._carrier.carry(number, job, seconds))
        try:
            await asyncio.wait({carrying, questions.trouble}, return_when="FIRST_COMPLETED")
            return carrying.result() if carrying.done() else questions.trouble.result()
        finally:
            del self._asking[number]
            await questions.cancel_tasks(carrying)

    async def _reply_to_node(self, key: str, question: bytes) -> bytes:
        """The reply for a node, from the task that performs the evaluation."""
        questions = self._asking.get(key.rpartition(messages.ASKED)[0])
        if questions is None:
            return messages.dump_struct({"failed": {"reason": "cancelled"}})
        return messages.dump_struct(await questions.answer_from_model(json.loads(question)))

    @property
    def seconds(self) -> float:
        """Upper bound in seconds of one evaluation on a node, with its second attempt there."""
        limits, evaluator = self.task.limits, self.task.evaluator
        judging = limits.scorer_seconds * (1 + (VERIFIER_PATIENCE if evaluator.verifier else 0))
        once = allowed_seconds(self.task, evaluator.form) + judging + 2 * GRACE_SECONDS
        return _ATTEMPTS * once + 30.0  # seconds of its start

    async def renew(self) -> None:
        """Have every node replace its scorers."""
        self._epoch += 1

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """Vary nothing: nodes keep their processes until `renew`."""
        return ()

    async def close(self) -> None:
        """End all evaluations and close the carrier."""
        self._losses.send()
        await self._carrier.close()


def _with_losses(seen: Observation, reasons: list[str]) -> Observation:
    """The observation; attempts that were lost before it stand in the evaluator's log."""
    if not reasons:
        return seen
    words = ", ".join(reason.replace("_", " ") for reason in reasons)
    line = f"attempt {len(reasons) + 1}: lost before ({words})"
    log = "\n".join(filter(None, (seen.artifacts.get(EVALUATOR_LOG, ""), line)))
    return msgspec.structs.replace(seen, artifacts={**seen.artifacts, EVALUATOR_LOG: log})
