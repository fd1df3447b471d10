"""One evaluation in one child of the fork-server, and the requests to such a child."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import os
import socket
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Self

from culmen.core.asking import AskingFailed
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Case, Status
from culmen.core.json import JsonObject
from culmen.core.task import OWN_FORMS, Task
from culmen.jail import outcome, spoken, wire
from culmen.jail.fork_server import (
    ChildExit,
    Jail,
    OutputLog,
    read_frame,
    write_frame,
)
from culmen.jail.forms import find_form, loads_evaluator
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.scorer_pool import ScorerFailed, ScorerPool

# after its deadline; if a child is not reported by then, the fork-server counts as dead
GRACE_SECONDS = 10.0
_LAST_WORDS_SECONDS = 0.25
BUILD = "build"  # the form of a request to compile a candidate
BUILD_SECONDS = 60.0  # that compiling may take, at least
BUILT_BYTES = 64 << 20  # of the files that a compiler makes, together
# data that a child sent before it ended still counts; it is in the socket's buffer
_DRAIN_SECONDS = 1.0
_PARTING_SECONDS = 0.05  # that a child has to end after its answer, before it is killed
_REASON_CHARS = 2000  # kept of a child's message that it cannot start


class EvaluationInChildren:
    """Time and output of one evaluation in children, as a context manager.

    Leaving it, for any reason, calls `close`, which kills the children and closes what leads there.
    """

    def __init__(self, output_limit: int) -> None:
        self.output_limit = output_limit
        self.log = OutputLog(output_limit)
        self.started = self.finished = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the children, and close their log."""
        self.log.close()

    @property
    def seconds(self) -> float:
        """Wall seconds from the ready jails to the answer (or the end)."""
        return max(0.0, self.finished - self.started)

    @property
    def printed(self) -> str:
        """The output on stdout and stderr."""
        return self.log.close()


class JailedEvaluation(EvaluationInChildren):
    """One evaluation in one child."""

    def __init__(
        self,
        task: Task,
        jail: Jail,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        form: str = "",
        built: Mapping[str, bytes] | None = None,
    ) -> None:
        self.task, self.jail, self.candidate = task, jail, candidate
        self.case, self.seed, self.limits = case, seed, task.limits
        self.form: str = form or task.evaluator.form
        self.built = dict(built or {})
        super().__init__(BUILT_BYTES if self.form == BUILD else self.limits.output_kb * 1024)
        self.allowed = allowed_seconds(task, self.form)
        self.number, self.is_ready, self.has_drawn = 0, False, False
        self.channel, self._theirs = socket.socketpair()
        self.channel.setblocking(False)

    def close(self) -> None:
        """Kill the child, and close its channel and its log."""
        self.jail.kill(self.number)
        super().close()
        self.channel.close()
        self._theirs.close()

    @cached_property
    def _own_seed(self) -> int:
        """The child's random seed.

        An evaluator beside the candidate shares its seed with it, a scorer must not.
        """
        shared = loads_evaluator(self.task.evaluator.form, self.form)
        return self.seed if shared else candidate_seed(self.seed)

    def _fork_child(self, slot: int) -> asyncio.Future[ChildExit]:
        """Have the child forked; return the future of its end."""
        self.number, end = self.jail.submit(
            self._theirs,
            self.log.write,
            slot=slot,
            seed=self._own_seed,
            seconds=self.allowed,
            memory_mb=self.limits.memory_mb,
            processes=self.limits.processes,
            files_mb=self.limits.files_mb,
            keeps_orphans=bool(self.task.evaluator.metric),
        )
        self._theirs.close()
        self.log.close_write_end()
        return end

    async def start(self, slot: int) -> str:
        """Fork the child and send its request; "" if it has taken it, else why not. Form serve."""
        end = self._fork_child(slot)
        handshake = asyncio.create_task(self._await_load())
        await asyncio.wait({handshake, end}, timeout=GRACE_SECONDS, return_when="FIRST_COMPLETED")
        if not handshake.done():
            handshake.cancel()
            return "it ended" if end.done() else f"no answer within {GRACE_SECONDS:g} s"
        return handshake.result()

    async def _await_load(self) -> str:
        try:
            kind, payload = await read_frame(self.channel, 1 << 16)
            if kind == "K":
                await write_frame(self.channel, "Q", self._encoded_request())
                kind, payload = await read_frame(self.channel, self.output_limit)
        except (EOFError, wire.TooLarge) as error:
            return f"no answer could be read: {type(error).__name__}"
        if kind == "L":
            return ""
        if kind == "E":
            return outcome.of_exception(payload).feedback
        return wire.storable_text(payload.decode(errors="replace"), _REASON_CHARS)

    async def perform(self, slot: int, judges: ScorerPool) -> EvaluationOutcome | bytes:
        """Fork, exchange, wait for the end; bytes are an output still to be judged."""
        if (unfit := outcome.of_texts(self.candidate)) is not None:
            return unfit
        end = self._fork_child(slot)
        talk = asyncio.create_task(self._exchange_frames(judges))
        try:
            await asyncio.wait(
                {talk, end}, timeout=self.allowed + GRACE_SECONDS, return_when="FIRST_COMPLETED"
            )
            if end.done() and not talk.done():
                slow = self.limits.scorer_seconds if self.form == "serve" else 0.0
                await asyncio.wait({talk}, timeout=_DRAIN_SECONDS + slow)
            answer = talk.result() if talk.done() else None
        finally:
            talk.cancel()
        self.finished = max(self.finished, time.monotonic()) if answer is None else self.finished
        if answer is None:  # the pipe closes shortly before a dying child is reaped
            await asyncio.wait({end}, timeout=_LAST_WORDS_SECONDS)
        loop = asyncio.get_running_loop()
        kill = loop.call_later(self._parting_seconds(answer), self.jail.kill, self.number)
        ended = await self._wait_for_exit(end)
        kill.cancel()
        if answer is None and not self.is_ready and ended.end == "exit":
            return outcome.lost_outcome(
                "jail_error", f"the child exited with status {ended.code} before its jail was ready"
            )
        if answer is None:
            return outcome.of_end(ended, math.ceil(self.allowed * (os.cpu_count() or 1)))
        return answer

    def _parting_seconds(self, answer: object) -> float:
        """Seconds that the child has to end by itself: once it answered, it does so at once."""
        return 0.0 if answer is None or self.form == "serve" else _PARTING_SECONDS

    async def _wait_for_exit(self, end: asyncio.Future[ChildExit]) -> ChildExit:
        await asyncio.wait({end}, timeout=GRACE_SECONDS)
        if not end.done():
            self.jail.drop()
        return await end

    async def _exchange_frames(self, judges: ScorerPool) -> EvaluationOutcome | bytes | None:
        """The exchange up to the candidate's answer; None if it ended without one."""
        try:
            kind, payload = await read_frame(self.channel, 1 << 16)
            if kind == "J":
                return outcome.lost_outcome("jail_error", payload.decode(errors="replace"))
            self.is_ready = True
            self.started = self.finished = time.monotonic()
            await write_frame(self.channel, "Q", self._encoded_request())
            kind, payload = await read_frame(self.channel, self.output_limit)
        except EOFError:
            return None
        except wire.TooLarge:
            return outcome.too_large(self.output_limit)
        self.finished = time.monotonic()
        if kind == "L" and self.form == "serve":
            return await self._score_served_program(judges)
        self.has_drawn = kind == "D"
        if kind in ("R", "D"):
            if self.form not in OWN_FORMS and self.form == self.task.evaluator.form:
                return outcome.of_report(payload, self.task.objective)
            return payload
        if kind == "X":
            return EvaluationOutcome(
                Status.INVALID, "no_output", feedback="the entry returned nothing"
            )
        return outcome.of_exception(payload if kind == "E" else b"")

    async def _score_served_program(self, judges: ScorerPool) -> EvaluationOutcome | None:
        """Form serve: the scorer calls the program itself; None if the program ended meanwhile."""
        try:
            answer = await judges.ask(
                case=self.case,
                parts=self.candidate.parts,
                seed=self.seed,
                seconds=0.0,
                programs=self._driven_channels(),
                patience=self.allowed,
                more=self._judge_facts(),
            )
        except ScorerFailed as error:
            return outcome.of_failed_scorer(error)
        except AskingFailed as error:
            return outcome.lost_outcome(error.reason, str(error))
        self.finished = time.monotonic()
        return None if answer["kind"] == "gone" else outcome.of_answer(answer, self.task.objective)

    def _driven_channels(self) -> tuple[socket.socket, ...]:
        """The connections that the scorer drives."""
        return (self.channel,)

    def _judge_facts(self) -> JsonObject:
        """Further facts for the judge."""
        return {}

    def _encoded_request(self) -> bytes:
        content = build_request(
            *(self.task, self.form, self.candidate, self.case),
            limit=self.output_limit,
            built=self.built,
            seed=self._own_seed,
        )
        return encode_request(content, self.task, self.case)


@functools.lru_cache
def candidate_seed(seed: int) -> int:
    """The candidate's random seed, derived from the evaluator's by a one-way function.

    A candidate that knew the evaluator's seed would know the cases or the noise drawn with it. The
    function is slow enough that trying all values takes days.
    """
    return int.from_bytes(hashlib.pbkdf2_hmac("sha256", str(seed).encode(), b"candidate", 500, 4))


def allowed_seconds(task: Task, form: str) -> float:
    """Wall seconds of one evaluation: every stage of a cascade has the full time limit."""
    if form == BUILD:
        return max(task.limits.seconds, BUILD_SECONDS)
    return task.limits.seconds * (1 + len(task.evaluator.thresholds or ()))


def encode_request(content: JsonObject, task: Task, case: Case | None) -> bytes:
    """A request as bytes. Raises `TaskError` for a case that is not plain data."""
    try:
        return wire.encode(content)
    except wire.WireError as error:
        name = case.id if case is not None else ""
        raise TaskError(
            f"the input of case '{name}' cannot be handed to a program: {error}",
            where=task.evaluator.path,
            fix="make it plain data: numbers, lists, dicts, and texts without lone surrogates",
        ) from None


def _jail_function(task: Task, form: str) -> str:
    """The address of the function that serves an extension's request; "" for others."""
    if task.evaluator.metric:
        return spoken.require_metric(task.evaluator).jail_function
    added = find_form(task.evaluator.form)
    return "" if added is None or form == BUILD else added.jail_functions[form]


def build_request(
    task: Task, form: str, candidate: Candidate, case: Case | None, **more: object
) -> JsonObject:
    """The request to a child. The answer of a case (`info`) never enters a jail."""
    evaluator = task.evaluator
    return {
        "form": form,
        "function": _jail_function(task, form),
        "parts": candidate.parts,
        "module": evaluator.module or next(iter(candidate.parts), ""),
        "program": f"candidate_{candidate.id}{evaluator.suffix}",
        "entry": evaluator.entry,
        "has_input": case is not None and case.input is not None,
        "input": case.input if case is not None else None,
        "command": evaluator.command,
        "build": evaluator.build,
        "outputs": list(evaluator.options.get("outputs", ())),
        "evaluator": evaluator.path if loads_evaluator(evaluator.form, form) else "",
        "contract": str(evaluator.options.get("contract", "")),
        "thresholds": evaluator.thresholds,
        "arguments": dict(evaluator.options.get("arguments", {})),
        "retries": int(evaluator.options.get("retries", 0)),
        "stage_seconds": task.limits.seconds,
        "features": list(task.features),
        **more,
    }
