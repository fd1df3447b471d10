"""Evaluation by a Python callable of the user's process, in forks without a jail.

A fork-server is forked from this process when the backend starts, so closures work without
pickling, and files that the user opened before stay open (`jail.descriptors`). Threads do not
survive a fork (`fork_hazards`). The server forks one process per worker. A process serves many
calls; it is replaced by a fresh copy after a failure that may have damaged it, after a call that
changed its state (`jail.state`), and after `Limits.calls` calls. Wall time, memory and processor
time are limited call by call. Environment, files and network are the user's: the function is
trusted. Scores are self-reported, because candidate and function share a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import io
import json
import math
import os
import re
import resource
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import msgspec

from culmen.core import pictures
from culmen.core.asking import AskingFailed
from culmen.core.candidate import Candidate
from culmen.core.evaluation import PRINTED_MARK, Case, Scoring, Status
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.evaluate.fork_hazards import find_fork_hazards, reachable_objects
from culmen.evaluate.local import LocalBackend
from culmen.jail import descriptors, kernel, outcome, probes, procfs, wire
from culmen.jail.asking import ModelAsk, ask_argument, awaited_result, has_ask_parameter
from culmen.jail.confine import ForkRequest, JailPolicy, set_limits
from culmen.jail.culprit import is_outage
from culmen.jail.evaluation import GRACE_SECONDS, encode_request
from culmen.jail.fork_server import (
    ChildExit,
    Jail,
    JailFailed,
    OutputLog,
    read_frame,
    write_frame,
)
from culmen.jail.outcome import EvaluationOutcome
from culmen.jail.plain import answer_texts, metric_or_type, score_or_type, value_text
from culmen.jail.portable import PortableJail
from culmen.jail.runner import REQUEST_LIMIT, encode_exception, exit_at_once
from culmen.jail.scorer_pool import read_final_frame
from culmen.jail.state import (
    ModuleNames,
    OwnStreams,
    ProcessState,
    import_modules,
)
from culmen.jail.wire import EvaluationTraces
from culmen.jail.zygote import Zygote

_NO_LIMIT_SECONDS = 1e6  # for the fork-server; this side enforces the limit of a call
# between counts of the user's processes; the limit of a call is added to the count
_COUNT_INTERVAL_SECONDS = 30.0
# failures that earlier calls may have caused: by reason, and by the exception's type
_HARMFUL = ("crash", "no_output", "memory_limit", "exit", "bad_frame")
_NONE = EvaluationTraces()
_BY_SETTINGS = re.compile(r"([\w.]+\.)?(RecursionError|FloatingPointError|\w*Warning)\b")


class FunctionBackend(LocalBackend):
    """Evaluates by calling `fn(candidate)` or `fn(candidate, case)`, `workers` calls at once.

    `candidate` is the text of a candidate with one part, else the dict of its parts; it is always
    a dict if the initial programs were given as dicts. `case` is the `Case` or None. A function
    with a parameter `ask` gets a client for models (`jail.asking.ModelAsk`). The function returns a
    number, `(score, feedback or dict)`, or a dict with "score" or "combined_score"; coroutine
    functions work too. It raises `culmen.Invalid` for a candidate that is not acceptable.

    Every call begins from the state at the backend's start, with random streams of its own
    (`jail.state`): a process in which a call changed something serves no other call. With
    `Evaluator.keeps_state` it does, and the state lasts until the process ends. `Limits(calls=1)`
    gives every call its own process; the final choice does, unless state is kept.
    """

    def __init__(
        self, task: Task, fn: Callable[..., object], workers: int, require: str | None = None
    ) -> None:
        super().__init__(task, workers, require, level="limits" if kernel.LINUX else "portable")
        self.fn, self._keeps_state = fn, task.evaluator.keeps_state
        self._calls = 1 << 30 if self._keeps_state else max(1, task.limits.calls)
        self._imports: dict[str, None] = {}  # libraries that a worker loads before its first call
        # of one call
        self._processor_seconds = math.ceil(task.limits.seconds * (os.cpu_count() or 1)) + 1
        self._descriptors = descriptors.user_candidates()
        self._crew: dict[int, _Worker] = {}

    async def start(self) -> str:
        """Fork the server; the level is always "limits".

        Raises IsolationError if more is required.
        """
        self.scoring = Scoring(
            "self-reported", "a Python callable shares a process with the candidate"
        )
        level = self._wanted[0]
        probes.require_level(
            level,
            self.require,
            {"namespaces": "a Python callable runs as part of your own process"},
        )
        self.notes = find_fork_hazards(self.fn)
        self._jail = self._new_jail(level)
        await self._jail.start()
        return level

    def _new_jail(self, level: str) -> Jail:
        if level == "limits":
            return _ForkedJail(self.fn, self._descriptors)
        born = time.time() - 1.0
        return PortableJail(
            level, begin=lambda *job: _fork_worker(self.fn, self._descriptors, born, *job)
        )

    async def evaluate_in_one_process(
        self, candidate: Candidate, case: Case | None, seed: int, slot: int, certify: bool
    ) -> EvaluationOutcome:
        """One call, repeated in a fresh process if earlier calls may have caused its failure."""
        if (unfit := outcome.of_texts(candidate)) is not None:
            return unfit
        content = {
            "parts": candidate.parts,
            "case": None if case is None else msgspec.to_builtins(case),
            "seed": seed,
            "cpu": self._processor_seconds,
            "alone": self._calls == 1,
            "whole": bool(self.task.evaluator.options.get("parts")),
            "several": bool(self.task.objective.metrics),
        }
        content |= {"keeps_state": True} if self._keeps_state else {}
        content |= {"imports": list(self._imports)} if self._imports else {}
        request = encode_request(content, self.task, case)
        verdict, fresh = await self._call_worker(request, slot)
        if not fresh and _may_be_inherited(verdict):
            await self._dismiss_worker(slot)
            verdict, _ = await self._call_worker(request, slot)
        return verdict

    async def _dismiss_worker(self, slot: int) -> None:
        worker = self._crew.pop(slot, None)
        if worker is not None:
            await worker.dismiss()

    async def _call_worker(self, request: bytes, slot: int) -> tuple[EvaluationOutcome, bool]:
        """A call by the slot's process, and True if it was the first call of that process."""
        worker = self._crew.pop(slot, None)
        if worker is not None and worker.end.done():
            await worker.dismiss()
            worker = None
        try:
            worker = worker or _Worker(await self.healthy_jail(), self.task, slot)
        except JailFailed as error:
            return outcome.lost_outcome("zygote_died", str(error)), True
        fresh, kept = worker.calls == 0, False
        try:
            try:
                verdict = await worker.call_function(request)
            except AskingFailed as error:
                return outcome.lost_outcome(error.reason, str(error)), True
            kept = worker.sound and worker.calls < self._calls
            self._imports.update(dict.fromkeys(worker.traces.imported))
        finally:
            if kept:
                self._crew[slot] = worker
            else:
                await worker.dismiss()
        return verdict, fresh

    async def renew(self) -> None:
        """Give every call a process of its own from now on, unless the function keeps state."""
        if not self._keeps_state:
            self._calls = 1
            await self.vary_processes(0)

    async def vary_processes(self, hash_seed: int) -> tuple[str, ...]:
        """Replace the processes; they have the hash seed of the user's process."""
        crew, self._crew = self._crew, {}
        for worker in crew.values():
            await worker.dismiss()
        return ("process",)

    async def close(self) -> None:
        """End every process of this backend."""
        crew, self._crew = self._crew, {}
        for worker in crew.values():
            worker.close_descriptors()
        await super().close()


class _Worker:
    """One process that calls the function, seen from here.

    Not to be used again once it is not `sound`.
    """

    def __init__(self, jail: Jail, task: Task, slot: int) -> None:
        limits = task.limits
        self._jail, self._task, self._output_limit = jail, task, limits.output_kb * 1024
        self._log = OutputLog(self._output_limit)
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self.number, self.end = jail.submit(
            theirs,
            self._log.write,
            slot=slot,
            seed=0,
            seconds=_NO_LIMIT_SECONDS,
            memory_mb=limits.memory_mb,
            processes=limits.processes,
            files_mb=limits.files_mb,
        )
        theirs.close()
        self._log.close_write_end()
        self.end.add_done_callback(self._on_end)
        self.calls, self.sound = 0, True
        self.traces = _NONE

    async def call_function(self, request: bytes) -> EvaluationOutcome:
        """Call the function once."""
        self._log.take_new_text()  # output of threads since the last answer belongs to no call
        started, self.traces = time.monotonic(), _NONE
        verdict, patience = None, GRACE_SECONDS
        try:
            if not self.calls:
                async with asyncio.timeout(GRACE_SECONDS + self._task.limits.seconds):
                    await read_frame(self._channel, 1 << 16)
            self.calls += 1
            started, patience = time.monotonic(), self._task.limits.seconds
            async with asyncio.timeout(patience) as alarm:
                verdict = await self._ask_worker(request, alarm)
        except TimeoutError:
            verdict = outcome.of_end(ChildExit("timeout"), 0.0)
        except wire.TooLarge:
            verdict = outcome.too_large(self._output_limit)
        except EOFError:
            pass
        seconds = max(0.0, time.monotonic() - started)
        if verdict is None:
            verdict = await self._outcome_without_answer()
        drew, left, _ = self.traces
        verdict = replace(verdict, seconds=seconds, drew=drew, left=left)
        return verdict.with_log(self._log.take_new_text())

    async def _ask_worker(self, request: bytes, alarm: asyncio.Timeout) -> EvaluationOutcome | None:
        """Ask, and read the answer: its kind and the number of the call.

        A capital letter means that the process may serve another call.
        """
        self.sound = False
        await write_frame(self._channel, "Q", request)
        kind, payload = await read_final_frame(self._channel, self._output_limit + 4, alarm)
        number, traces, body = _split_answer(payload)
        if number != self.calls or kind.upper() not in ("R", "E", "A"):
            return EvaluationOutcome(
                Status.REJECTED,
                "bad_frame",
                feedback="the process sent an answer without a request",
            )
        self.sound, self.traces = kind.isupper(), traces
        if kind.upper() == "R":
            verdict = outcome.of_report(body, self._task.objective)
        else:
            verdict = outcome.of_exception(body)
        return outcome.provider_away(verdict.feedback) if kind.upper() == "A" else verdict

    async def _outcome_without_answer(self) -> EvaluationOutcome:
        """The verdict on a process that ended without an answer."""
        self.sound = False
        await asyncio.wait({self.end}, timeout=GRACE_SECONDS)
        if not self.end.done():
            self._jail.drop()
        ended = await self.end
        if ended.end == "exit" and not self.calls:
            return outcome.lost_outcome(
                "jail_error", f"the process exited with status {ended.code} before it was ready"
            )
        verdict = outcome.of_end(ended, math.inf)
        return replace(
            verdict, feedback=verdict.feedback.replace("the program", "the evaluator's process", 1)
        )

    async def dismiss(self) -> None:
        """Kill the process and its descendants, and wait for their end."""
        self._jail.kill(self.number)
        self.close_descriptors()
        await asyncio.wait({self.end}, timeout=GRACE_SECONDS)
        if not self.end.done():
            self._jail.drop()

    def close_descriptors(self) -> None:
        """Close this side's descriptors."""
        self.sound = False
        self._log.close()
        self._channel.close()

    def _on_end(self, _: object) -> None:
        """Wake the task that waits for an answer; data already sent are still read."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RD)


def _split_answer(payload: bytes) -> tuple[int, EvaluationTraces, bytes]:
    """Number of the call, its traces and the content of an answer; -1 for another message."""
    size = int.from_bytes(payload[4:8], "little")
    about = payload[8 : 8 + size]
    try:
        # most have none
        traces = _NONE if about == b"{}" else EvaluationTraces.from_json(json.loads(about))
    except (ValueError, TypeError, RecursionError):
        return -1, EvaluationTraces(), b""
    return int.from_bytes(payload[:4], "little"), traces, payload[8 + size :]


def _may_be_inherited(verdict: EvaluationOutcome) -> bool:
    """True for a failure that what earlier calls left in the process may have caused."""
    last = verdict.feedback.partition(PRINTED_MARK)[0].strip().rpartition("\n")[2]
    return verdict.reason in _HARMFUL or bool(
        verdict.status is Status.ERROR and _BY_SETTINGS.match(last)
    )


class _ForkedJail(Jail):
    """A fork-server made by fork alone."""

    def __init__(self, fn: Callable[..., object], opened: descriptors.Descriptors) -> None:
        super().__init__("limits", folders=False)
        self.fn, self._opened = fn, opened
        self._pid = 0

    async def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors.keep_from_servers(ours)
        kept = descriptors.user_descriptors(self._opened)
        texts = descriptors.flush_writers(reachable_objects(self.fn), kept)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # our threads hold no lock that a child needs
            self._pid = os.fork()
        if self._pid == 0:
            _run_server(theirs.fileno(), self.fn, kept, texts)
        theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._on_exit_message)

    async def close(self) -> None:
        await super().close()
        pid, self._pid = self._pid, 0
        if pid:
            await asyncio.to_thread(os.waitpid, pid, 0)


def _fork_worker(
    fn: Callable[..., object],
    opened: descriptors.Descriptors,
    born: float,
    job: ForkRequest,
    channel: int,
    log: int,
    _: int,
) -> int:
    """The number of a worker's process, forked from this one (without a fork-server)."""
    kept = descriptors.user_descriptors(opened)
    texts = descriptors.flush_writers(reachable_objects(fn), kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        policy = _ForkedPolicy.of_process("portable")
        descriptors.drop_others({*kept, channel, log})
        descriptors.write_whole_lines(texts)
        descriptors.read_on_ones_own(kept)
        _run_worker(fn, policy, job, channel, log, ModuleNames(born))
    finally:
        os._exit(1)


@dataclass(frozen=True)
class _ForkedPolicy(JailPolicy):
    """The policy of processes forked from the user's: what they have from it comes on top."""

    inherited: int = 0  # the numbers of its descriptors are below this one

    @classmethod
    def of_process(cls, level: str) -> _ForkedPolicy:
        """The policy of processes that are forked from this one now."""
        buffers = 1024 * procfs.buffers_kb([os.getpid()])
        highest = max(descriptors.open_descriptors())
        return cls(level, baseline=procfs.data_bytes() + buffers, inherited=highest + 1)

    @property
    def descriptor_limit(self) -> int:
        """The number below which a child's descriptors stay."""
        return self.inherited + procfs.DESCRIPTORS


def _run_server(
    control: int, fn: Callable[..., object], kept: set[int], texts: list[io.TextIOWrapper]
) -> NoReturn:
    """Run the forked server, which keeps the user's descriptors and text files.

    Objects of the parent are never freed here: their descriptors are replaced already.
    """
    try:
        gc.disable()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        policy = _ForkedPolicy.of_process("limits")
        control = descriptors.move_far_above(control)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        descriptors.drop_others({*kept, control})
        descriptors.write_whole_lines(texts)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if "numpy" in sys.modules:
            importlib.import_module("numpy.random")  # loaded lazily otherwise, by every child anew

        def child(
            policy: JailPolicy, job: ForkRequest, channel: int, log: int, *_: int
        ) -> NoReturn:
            zygote.close_descriptors()
            descriptors.read_on_ones_own(kept)
            _run_worker(fn, policy, job, channel, log, names)

        names = ModuleNames()
        zygote = Zygote(socket.socket(fileno=control), policy, child)
        gc.freeze()  # with the names: else each child's collector would visit them
        zygote.serve()
    finally:
        os._exit(0)


def _run_worker(
    fn: Callable[..., object],
    policy: JailPolicy,
    job: ForkRequest,
    channel_fd: int,
    log: int,
    names: ModuleNames,
) -> NoReturn:
    """Run a worker's process: one call after the other, until the channel is closed."""
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    channel_fd = descriptors.settle_worker(channel_fd, log)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False, errors="replace")
    channel = socket.socket(fileno=channel_fd)
    try:
        gc.enable()
        set_limits(policy, job, hard=False)
        counted = time.monotonic()
        worker = _FunctionProcess(fn, names, job.memory_mb)
        wire.send(channel, "K")
        while True:
            request = wire.decode(wire.receive(channel, REQUEST_LIMIT)[1])
            if time.monotonic() > counted + _COUNT_INTERVAL_SECONDS:
                counted = time.monotonic()
                set_limits(policy, job, hard=False)
            wire.send(channel, *worker.answer(request, ModelAsk(channel)))
    finally:
        exit_at_once()


class _FunctionProcess:
    """The worker's side of its calls: each begins from the state that the first one found."""

    def __init__(self, fn: Callable[..., object], names: ModuleNames, memory_mb: int) -> None:
        self.fn, self._names, self._memory_mb = fn, names, memory_mb
        self._calls, self._takes = 0, (takes_case(fn), has_ask_parameter(fn))
        self._state: OwnStreams | None = None

    def answer(self, request: JsonObject, ask: ModelAsk) -> tuple[str, bytes]:
        """Kind and payload of the answer to a request.

        The payload begins with the number of the call and the length of its traces. A lower-case
        kind means that the process should not serve another call.
        """
        self._calls += 1
        state = self._state = self._state or self._first_state(request)
        _set_processor_limit(request["cpu"])
        state.begin(request["seed"], "\n".join(request["parts"].values()))
        kind, body = _call_function(self.fn, request, ask, self._takes)
        traces = state.end()
        ask.refuse_questions()
        if request["alone"] or not (traces.is_clean or request.get("keeps_state")):
            kind = kind.lower()
        about = json.dumps(traces.as_json()).encode() if any(traces) else b"{}"
        head = self._calls.to_bytes(4, "little") + len(about).to_bytes(4, "little")
        return kind, head + about + body

    def _first_state(self, request: JsonObject) -> OwnStreams:
        """The state before the first call; libraries that calls import are loaded before it."""
        roots = [(getattr(self.fn, "__name__", "evaluator"), self.fn)]
        if request["alone"]:
            return OwnStreams(roots)
        import_modules(request.get("imports", ()))
        return ProcessState(roots, self._memory_mb, self._names)


def _set_processor_limit(seconds: int) -> None:
    """Raise this process's limit of processor time by these seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime) + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def _call_function(
    fn: Callable[..., object], request: JsonObject, ask: ModelAsk, takes: tuple[bool, bool]
) -> tuple[str, bytes]:
    """Kind and content of the answer to a request, as in `_FunctionProcess.answer`."""
    try:
        answer = "R", wire.encode(build_report(fn, request, ask, takes))
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything; it becomes a value
        is_full = isinstance(error, MemoryError)
        kind = "e" if is_full else "A" if is_outage(error, request["parts"]) else "E"
        answer = kind, encode_exception(error)
    except BaseException as error:  # noqa: BLE001 - as SystemExit: the process is meant to end
        answer = "e", encode_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return answer


def build_report(
    fn: Callable[..., object],
    request: JsonObject,
    ask: ModelAsk | None = None,
    takes: tuple[bool, bool] | None = None,
) -> JsonObject:
    """Call the function on a request; return its result in one form.

    `takes`: True if it takes a case, and if it has a parameter `ask` (None: look).
    """
    with_case, with_ask = takes or (takes_case(fn), has_ask_parameter(fn))
    parts = request["parts"]
    candidate = (
        next(iter(parts.values())) if len(parts) == 1 and not request.get("whole") else parts
    )
    case = None if request["case"] is None else Case(**request["case"])
    more = {"ask": ask_argument(fn, ask)} if ask is not None and with_ask else {}
    result = awaited_result(fn(candidate, case, **more) if with_case else fn(candidate, **more))
    score, info = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if isinstance(score, dict):
        if request.get("several"):
            score = {"score": 0.0, **score.pop("metrics", {}), **score}
        if not {"score", "combined_score"} & score.keys():
            keys = ", ".join(map(str, score)) or "none"
            raise TypeError(f"the evaluator returned a dict without 'score' (its keys: {keys})")
        info = {
            key: value for key, value in score.items() if key not in ("score", "combined_score")
        }
        score = score.get("score", score.get("combined_score"))
    info = {**info} if isinstance(info, dict) else {"feedback": info}
    drawn = info.pop("images", None)
    artifacts = info.pop("artifacts") if isinstance(info.get("artifacts"), dict) else {}
    numbers = {
        value_text(key): metric_or_type(value)
        for key, value in info.items()
        if _is_number(value) and not (key == "feedback" and isinstance(value, str))
    }
    shown = [
        value_text(value) if key == "feedback" else f"{value_text(key)}: {value_text(value)}"
        for key, value in info.items()
        if value_text(key) not in numbers
    ]
    return {
        "score": score_or_type(score),
        "metrics": numbers,
        "feedback": "\n".join(shown),
        "texts": answer_texts(info, artifacts),
        "artifacts": {
            **{value_text(key): value_text(value) for key, value in artifacts.items()},
            **(pictures.picture_artifacts(drawn) if drawn else {}),
        },
    }


def takes_case(fn: Callable[..., object]) -> bool:
    """True if the function takes a second positional argument, the case."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    parameters = [p for p in parameters if p.name != "ask"]
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    required = [p for p in positional if p.default is p.empty]
    return len(required) >= 2 or (
        len(positional) >= 2 and positional[1].name in ("case", "example")
    )


def _is_number(value: object) -> bool:
    plain = metric_or_type(value)
    return isinstance(plain, int | float) and not isinstance(plain, bool)
