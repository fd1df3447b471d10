"""One evaluation behind the proxy: the evaluator's and the candidate's jailed children.

The two end together. The candidate's child does not see the evaluator's folder; the evaluator's is
never sent the candidate's Python text. `settle` tests before a search that an evaluator works this
way.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Scoring, Status
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.jail import outcome, wire
from culmen.jail.evaluation import (
    GRACE_SECONDS,
    EvaluationInChildren,
    allowed_seconds,
    build_request,
    candidate_seed,
    encode_request,
)
from culmen.jail.fork_server import ChildExit, Jail, OutputLog, read_frame, write_frame
from culmen.jail.outcome import EvaluationOutcome

_EXTRA_PROCESSES = 1  # plus a supervisor beside the process that imports the candidate
_LAST_WORDS_SECONDS = 1.0  # for each process to say why it ended
_TEXT_READ = (
    "the evaluator read the program's file, which holds no program behind a proxy: set proxy = "
    '"never"'
)
_REFUSALS = {"too_large": (Status.REJECTED, "output_limit")}


class JailedChild:
    """One of the two children: its channel, its number, and the future of its end."""

    def __init__(
        self,
        jail: Jail,
        log: OutputLog,
        line: socket.socket,
        task: Task,
        seed: int,
        *,
        slot: int,
        processes: int = 0,
        blind: bool = False,
        connects: bool = False,
    ) -> None:
        self._jail, self.number, self.is_ready = jail, 0, False
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        limits = task.limits
        with theirs, line:
            self.number, self.end = jail.submit(
                theirs,
                log.write,
                (line.fileno(),),
                seed=seed,
                seconds=allowed_seconds(task, "proxied"),
                memory_mb=limits.memory_mb,
                files_mb=limits.files_mb,
                slot=slot,
                processes=processes,
                blind=blind,
                connects=connects,
            )

    async def send_when_ready(self, content: bytes) -> None:
        """Wait until its jail is ready and send its request; raise EOFError or JailError."""
        kind, payload = await read_frame(self.channel, 1 << 16)
        if kind == "J":
            raise JailError(payload.decode(errors="replace"))
        self.is_ready = True
        await write_frame(self.channel, "Q", content)

    async def kill_and_wait(self) -> ChildExit:
        """Kill the child and wait for its end."""
        self._jail.kill(self.number)
        await asyncio.wait({self.end}, timeout=GRACE_SECONDS)
        if not self.end.done():
            self._jail.drop()
        return await self.end

    def close(self) -> None:
        """Kill the child if it still runs."""
        self._jail.kill(self.number)
        self.channel.close()


class JailError(Exception):
    """A child could not confine itself; the text is the reason."""


class ProxiedEvaluation(EvaluationInChildren):
    """One evaluation behind the proxy, in two children.

    `accept` names values that may cross although they are not plain finite data (see
    proxy/session.py); with `learn` every value may. Afterwards `account` lists the crossings.
    """

    def __init__(
        self,
        task: Task,
        jail: Jail,
        candidate: Candidate,
        case: Case | None,
        seed: int,
        accept: tuple[str, ...],
        learn: bool = False,
    ) -> None:
        super().__init__(task.limits.output_kb * 1024)
        self.task, self.candidate, self.case, self.seed = task, candidate, case, seed
        self._jail, self._accept, self._learn = jail, accept, learn
        # while both ways are compared the candidate has the evaluator's random seed, as in one
        # process
        self._programs_seed = seed if learn else candidate_seed(seed)
        self._children: list[JailedChild] = []
        self.account: JsonObject = {}

    def close(self) -> None:
        """Kill both children, and close their log."""
        for child in self._children:
            child.close()
        super().close()

    def _fork_children(
        self, there: socket.socket, here: socket.socket, slots: tuple[int, int]
    ) -> tuple[JailedChild, JailedChild]:
        """The children of the program and of the evaluator, one at each end of a line."""
        child = partial(JailedChild, self._jail, self.log)
        processes, children = self.task.limits.processes, self._children
        more = processes + _EXTRA_PROCESSES
        program = child(
            there, self.task, self._programs_seed, slot=slots[0], blind=True, processes=more
        )
        children.append(program)
        evaluator = child(
            here, self.task, self.seed, slot=slots[1], connects=True, processes=processes
        )
        children.append(evaluator)
        self.log.close_write_end()
        return program, evaluator

    async def perform(self, slots: tuple[int, int]) -> EvaluationOutcome:
        """Fork both children, wait for the evaluator's result, end both."""
        if (unfit := outcome.of_texts(self.candidate)) is not None:
            return unfit
        here, there = self._jail.open_line()
        program, evaluator = self._fork_children(there, here, slots)
        watching = asyncio.create_task(self._watch_candidate_server(program))
        talking = asyncio.create_task(self._exchange_with_evaluator(evaluator))
        try:
            allowed = allowed_seconds(self.task, "proxied") + GRACE_SECONDS
            await asyncio.wait(
                {talking, evaluator.end, program.end},
                timeout=allowed,
                return_when="FIRST_COMPLETED",
            )
            if not talking.done() and evaluator.end.done():
                await asyncio.wait({talking}, timeout=_LAST_WORDS_SECONDS)
            answer = talking.result() if talking.done() else None
            if program.end.done() or self.account.get("lost"):
                await asyncio.wait({watching}, timeout=_LAST_WORDS_SECONDS)
                if (
                    watching.done() and watching.result() is None
                ):  # its channel closes a moment before it is reaped
                    await asyncio.wait({program.end}, timeout=_LAST_WORDS_SECONDS)
            self.finished = time.monotonic() if answer is None else self.finished
            code = watching.result() if watching.done() else None
        except JailError as error:  # of either
            return outcome.lost_outcome("jail_error", str(error))
        finally:
            watching.cancel()
            talking.cancel()
        by_itself = program.end.result() if program.end.done() else None
        ends = await asyncio.gather(
            program.kill_and_wait(), evaluator.kill_and_wait()
        )  # the slots must be free again
        return self._evaluation_outcome(program.is_ready, by_itself, ends[1], answer, code)

    async def _exchange_with_evaluator(self, evaluator: JailedChild) -> tuple[str, bytes] | None:
        """The exchange with the evaluator's process; None if it ended without an answer."""
        programs = [name for name in self.candidate.parts if name.endswith(".py")]
        content = build_request(
            *(self.task, "proxied", self.candidate, self.case),
            accept=self._accept,
            learn=self._learn,
            seed=self.seed,
        )
        texts = {name: text for name, text in self.candidate.parts.items() if name not in programs}
        texts.pop(content["module"], None)
        others = [name for name in programs if name != content["module"]]
        content |= {"parts": texts, "programs": [content["program"], *others]}
        try:
            await evaluator.send_when_ready(encode_request(content, self.task, self.case))
            self.started = self.finished = time.monotonic()
            while True:
                kind, payload = await read_frame(evaluator.channel, self.output_limit)
                if kind != "N":
                    self.finished = time.monotonic()
                    return kind, payload
                self.account = wire.decode(payload)
        except EOFError:
            return None
        except wire.TooLarge:
            return "L", b""

    async def _watch_candidate_server(self, program: JailedChild) -> int | None:
        """Exit status of a candidate's server that ended by itself; None if none did."""
        try:
            request = build_request(
                self.task, "host", self.candidate, None, seed=self._programs_seed
            )
            await program.send_when_ready(encode_request(request, self.task, None))
            kind, payload = await read_frame(program.channel, 1 << 16)
            reply = json.loads(payload)
            if kind == "E":  # the supervisor, before any candidate was loaded
                raise JailError(str(reply["trace"]))
            return int(reply["code"])
        except (EOFError, wire.TooLarge, ValueError, KeyError, TypeError):
            return None

    def _evaluation_outcome(
        self,
        was_ready: bool,
        program: ChildExit | None,
        evaluator: ChildExit,
        answer: tuple[str, bytes] | None,
        code: int | None,
    ) -> EvaluationOutcome:
        """The outcome of the evaluation.

        `program` is the end of the candidate's process by itself, `code` the exit status of a
        server of it; None if there was none.
        """
        cpu = math.ceil(allowed_seconds(self.task, "proxied") * (os.cpu_count() or 1))
        if program is not None:
            if program.end == "exit" and not was_ready:
                return outcome.lost_outcome(
                    "jail_error",
                    f"the child exited with status {program.code} before its jail was ready",
                )
            return outcome.of_end(program, cpu)
        if answer is None:
            verdict = outcome.of_end(evaluator, cpu)
            broken = evaluator.end == "exit" and verdict.status is Status.ERROR
            what = f"the evaluator's process exited with status {evaluator.code}"
            return outcome.lost_outcome("scorer_error", what) if broken else verdict
        if self.account.get("gone"):
            return outcome.of_end(ChildExit("exit", code or 0), cpu)
        return self._outcome_of_frame(*answer)

    def _outcome_of_frame(self, kind: str, payload: bytes) -> EvaluationOutcome:
        if kind == "J":
            return outcome.lost_outcome("jail_error", payload.decode(errors="replace"))
        refused = self.account.get("refused", [])
        if refused:
            reason, text = refused[0]
            status, word = _REFUSALS.get(reason, (Status.INVALID, reason))
            return EvaluationOutcome(
                status, word, feedback=f"not accepted from the program: {text}"
            )
        if kind == "R" and self.account.get("reads") and not self._learn:
            return EvaluationOutcome(Status.INVALID, "text_read", feedback=_TEXT_READ)
        if kind == "L":
            return outcome.too_large(self.output_limit)
        if kind == "R":
            verdict = outcome.of_report(payload, self.task.objective)
            return outcome.with_raised(verdict, self.account.get("raised"))
        verdict = outcome.of_exception(payload if kind == "E" else b"")
        return (
            replace(verdict, feedback=f"{verdict.feedback}\n{_TEXT_READ}")
            if self.account.get("reads")
            else verdict
        )


def is_python_program(task: Task) -> bool:
    """True if the program is a Python module, which a stub can replace."""
    return PurePosixPath(f"x{task.evaluator.suffix}").suffix == ".py"


# -- the trial: does this evaluator work behind a proxy?
# -------------------------------------------------------------

_EXACT, _NOISY, _SPREADS = 1e-9, 1e-2, 4.0

Proxied = Callable[[Candidate, int], Awaitable[tuple[EvaluationOutcome, JsonObject]]]
Plain = Callable[[Candidate, int], Awaitable[EvaluationOutcome]]


async def scoring_from_trial(
    seeds: Sequence[Candidate], accept: Sequence[str], proxied: Proxied, plain: Plain
) -> Scoring:
    """The scores' level of trust, from a trial with the initial programs.

    `proxied` if an initial program scores the same behind a proxy as in a shared process, else
    `self-reported` with the reason. `accept` are the crossings that the task allows; those that the
    initial program's evaluation needs are added. The argument `proxied` evaluates with everything
    allowed and returns the crossings.
    """
    crossed = list(accept)
    for seed in seeds[:3]:  # most initial programs tried, until one scores
        verdict, account = await proxied(seed, 0)
        for number in range(1, 5):  # an evaluator that fails at random may work behind a proxy
            if verdict.reason != "exception" or "in the program:" in verdict.feedback:
                break
            verdict, account = await proxied(seed, number)
        crossed += [name for name in account.get("used", ()) if name not in crossed]
        why = _proxy_objection(account)
        if not why and verdict.status is Status.OK:
            why = await _describe_difference(seed, verdict, proxied, plain)
            return _build_scoring(why, crossed)
        if (await plain(seed, 0)).status is Status.OK:
            return _build_scoring(
                why
                or (
                    "its initial program scores in the same process and not behind a proxy: "
                    f"{_failure_summary(verdict)}"
                ),
                crossed,
            )
    return Scoring("proxied", accept=tuple(crossed))


def _build_scoring(why: str, crossed: list[str]) -> Scoring:
    return Scoring("self-reported", why) if why else Scoring("proxied", accept=tuple(crossed))


def _proxy_objection(account: JsonObject) -> str:
    """The reason that this evaluator cannot work with a proxy, for any score; "" if it may."""
    if account.get("reads"):
        return "the evaluator reads the program's text"
    if account and not account.get("imports"):
        return "the evaluator does not import the program"
    return str(next(iter(account.get("unsupported", ())), ""))


async def _describe_difference(
    seed: Candidate, first: EvaluationOutcome, proxied: Proxied, plain: Plain
) -> str:
    """The difference between the two ways, "" without one; noisy scores are compared by range."""
    there, here = [first], [await plain(seed, 0)]
    if here[0].status is not Status.OK:
        return ""  # then a proxy makes no difference
    # evaluations per way if scores vary: apart by luck in 2 of 924 trials
    for number in range(1, 6):
        if are_outcomes_alike(there, here):
            return ""
        there += _scored((await proxied(seed, number))[0])
        here += _scored(await plain(seed, number))
    if are_outcomes_alike(there, here) or _overlap(there, here):
        return ""
    return (
        f"its initial program scores {_score_or_failure(there[0])} behind a proxy and "
        f"{_score_or_failure(here[0])} in the same process"
    )


def _scored(verdict: EvaluationOutcome) -> list[EvaluationOutcome]:
    """The outcome if it is a score: both ways can work, so a later failure is chance."""
    return [verdict] if verdict.status is Status.OK else []


def are_outcomes_alike(
    there: Sequence[EvaluationOutcome], here: Sequence[EvaluationOutcome]
) -> bool:
    """True if both ways give the same kind of result, with scores in the same range.

    The range is that of the scores in a shared process, widened by their noise.
    """
    if not all(v.status is Status.OK for v in (*there, *here)):
        return False
    if _outcome_shape(there[0]) != _outcome_shape(here[0]):
        return False
    scores, own = [v.score or 0.0 for v in there], [v.score or 0.0 for v in here]
    low, high = min(own), max(own)
    size = max(map(abs, (*scores, *own)))
    slack = _EXACT * size if low == high else _NOISY * size + _SPREADS * (high - low)
    return low - slack <= min(scores) and max(scores) <= high + slack


def _overlap(there: Sequence[EvaluationOutcome], here: Sequence[EvaluationOutcome]) -> bool:
    """True if the scores of both ways vary, in ranges that are not apart.

    Of six and six scores of one kind, all of one are above the others in 2 of 924 orders.
    """
    if not all(v.status is Status.OK for v in (*there, *here)):
        return False
    scores, own = [v.score or 0.0 for v in there], [v.score or 0.0 for v in here]
    varies = len(set(own)) > 1 and len(set(scores)) > 1
    return varies and max(scores) >= min(own) and max(own) >= min(scores)


def _outcome_shape(verdict: EvaluationOutcome) -> tuple[object, ...]:
    return verdict.metrics.keys(), bool(verdict.feedback), verdict.artifacts.keys()


def _score_or_failure(verdict: EvaluationOutcome) -> str:
    return f"{verdict.score:.6g}" if verdict.score is not None else _failure_summary(verdict)


def _failure_summary(verdict: EvaluationOutcome) -> str:
    last = [line.strip() for line in verdict.feedback.splitlines() if line.strip()]
    return " ".join(
        [verdict.reason or verdict.status.value, *(last[-1:] and [f"({last[-1][:200]})"])]
    )
