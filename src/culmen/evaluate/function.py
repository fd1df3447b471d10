"""Evaluation by a Python callable of the user's process, in forks without a jail.

A fork-server is forked from this process when the backend starts, so closures work without
pickling. It forks one process per worker. A process serves many calls; it is replaced by a fresh
copy after a failure that may have damaged it, after a call with leftovers (`Leftovers`), and after
`Limits.calls` calls. Wall time, memory and processor time are limited call by call. Environment,
files and network are the user's: the function is trusted. Scores are self-reported, because
candidate and function share a process.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import gc
import importlib
import inspect
import math
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import NoReturn

import msgspec

from culmen.core import pictures
from culmen.core.asking import AskingFailed
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Scoring, Status
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.evaluate import outcome
from culmen.evaluate.jail import kernel, probes, procfs, wire
from culmen.evaluate.jail.asking import ModelAsk, ask_argument, awaited_result, has_ask_parameter
from culmen.evaluate.jail.confine import (
    CHANNEL,
    ForkRequest,
    JailPolicy,
    arrange_descriptors,
    set_limits,
)
from culmen.evaluate.jail.culprit import is_outage
from culmen.evaluate.jail.evaluation import GRACE_SECONDS, encode_request
from culmen.evaluate.jail.fork_server import (
    ChildExit,
    Jail,
    JailFailed,
    OutputLog,
    read_frame,
    write_frame,
)
from culmen.evaluate.jail.plain import number_or_type
from culmen.evaluate.jail.portable import PortableJail
from culmen.evaluate.jail.runner import REQUEST_LIMIT, encode_exception, exit_at_once
from culmen.evaluate.jail.scorer_pool import read_final_frame
from culmen.evaluate.jail.zygote import Zygote
from culmen.evaluate.local import LocalBackend
from culmen.evaluate.outcome import EvaluationOutcome

_NO_LIMIT_SECONDS = 1e6  # for the fork-server; this side enforces the limit of a call
# between counts of the user's processes; the limit of a call is added to the count
_COUNT_INTERVAL_SECONDS = 30.0
# failures that earlier calls may have caused
_HARMFUL = ("crash", "no_output", "memory_limit", "exit", "bad_frame")


class FunctionBackend(LocalBackend):
    """Evaluates by calling `fn(candidate)` or `fn(candidate, case)`, `workers` calls at once.

    `candidate` is the text of a candidate with one part, else the dict of its parts; it is always
    a dict if the initial programs were given as dicts. `case` is the `Case` or None. A function
    with a parameter `ask` gets a client for models (`jail.asking.ModelAsk`). The function returns a
    number, `(score, feedback or dict)`, or a dict with "score" or "combined_score"; coroutine
    functions work too. It raises `culmen.Invalid` for a candidate that is not acceptable.

    The function's variables persist from call to call within a process; the next process begins
    with their state at the backend's start. `Limits(calls=1)` gives every call its own process;
    the final choice always does.
    """

    def __init__(
        self, task: Task, fn: Callable[..., object], workers: int, require: str | None = None
    ) -> None:
        super().__init__(task, workers, require, level="limits" if kernel.LINUX else "portable")
        self.fn, self._calls = fn, max(1, task.limits.calls)
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
        self._jail = self._new_jail(level)
        await self._jail.start()
        return level

    def _new_jail(self, level: str) -> Jail:
        if level == "limits":
            return _ForkedJail(self.fn)
        born = time.time() - 1.0
        return PortableJail(level, begin=lambda *job: _fork_worker(self.fn, born, *job))

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
            "cpu": math.ceil(self.task.limits.seconds * (os.cpu_count() or 1)) + 1,
            "alone": self._calls == 1,
            "whole": bool(self.task.evaluator.options.get("parts")),
            "several": bool(self.task.objective.metrics),
        }
        request = encode_request(content, self.task, case)
        verdict, fresh = await self._call_worker(request, slot)
        if verdict.reason in _HARMFUL and not fresh:
            verdict, _ = await self._call_worker(request, slot)
        return verdict

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
        finally:
            if kept:
                self._crew[slot] = worker
            else:
                await worker.dismiss()
        return verdict, fresh

    async def renew(self) -> None:
        """Give every call a process of its own from now on.

        Leftovers of earlier candidates then have no effect.
        """
        self._calls = 1
        crew, self._crew = self._crew, {}
        for worker in crew.values():
            await worker.dismiss()

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

    async def call_function(self, request: bytes) -> EvaluationOutcome:
        """Call the function once."""
        self._log.take_new_text()  # output of threads since the last answer belongs to no call
        started = time.monotonic()
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
        return replace(verdict, seconds=seconds).with_log(self._log.take_new_text())

    async def _ask_worker(self, request: bytes, alarm: asyncio.Timeout) -> EvaluationOutcome | None:
        """Ask, and read the answer: its kind and the number of the call.

        A capital letter means that the process may serve another call.
        """
        self.sound = False
        await write_frame(self._channel, "Q", request)
        kind, payload = await read_final_frame(self._channel, self._output_limit + 4, alarm)
        if payload[:4] != self.calls.to_bytes(4, "little") or kind.upper() not in ("R", "E", "A"):
            return EvaluationOutcome(
                Status.REJECTED,
                "bad_frame",
                feedback="the process sent an answer without a request",
            )
        self.sound = kind.isupper()
        if kind.upper() == "R":
            return outcome.of_report(payload[4:], self._task.objective)
        failure = outcome.of_exception(payload[4:])
        return outcome.provider_away(failure.feedback) if kind.upper() == "A" else failure

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


class _ForkedJail(Jail):
    """A fork-server made by fork alone."""

    def __init__(self, fn: Callable[..., object]) -> None:
        super().__init__("limits", folders=False)
        self.fn = fn
        self._pid = 0

    async def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # our threads hold no lock that a child needs
            self._pid = os.fork()
        if self._pid == 0:
            _run_server(theirs.fileno(), self.fn)
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
    fn: Callable[..., object], born: float, job: ForkRequest, channel: int, log: int, _: int
) -> int:
    """The number of a worker's process, forked from this one (without a fork-server)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        _run_worker(
            fn, JailPolicy("portable", baseline=procfs.data_bytes()), job, channel, log, born
        )
    finally:
        os._exit(1)


def _run_server(control: int, fn: Callable[..., object]) -> NoReturn:
    """Run the forked server.

    Objects of the parent are never freed here: their descriptors are closed already.
    """
    try:
        gc.disable()
        gc.freeze()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.dup2(control, CHANNEL)
        os.closerange(CHANNEL + 1, 1 << 20)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        born = time.time() - 1.0  # clocks of file systems are coarse
        if "numpy" in sys.modules:
            importlib.import_module("numpy.random")  # loaded lazily otherwise, by every child anew

        def child(
            policy: JailPolicy, job: ForkRequest, channel: int, log: int, *_: int
        ) -> NoReturn:
            _run_worker(fn, policy, job, channel, log, born)

        policy = JailPolicy("limits", baseline=procfs.data_bytes())
        Zygote(socket.socket(fileno=CHANNEL), policy, child).serve()
    finally:
        os._exit(0)


def _run_worker(
    fn: Callable[..., object],
    policy: JailPolicy,
    job: ForkRequest,
    channel_fd: int,
    log: int,
    born: float,
) -> NoReturn:
    """Run a worker's process: one call after the other, until the channel is closed."""
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    arrange_descriptors(channel_fd, log)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False, errors="replace")
    channel = socket.socket(fileno=CHANNEL)
    try:
        gc.enable()
        set_limits(policy, job, hard=False)
        counted, calls, before = time.monotonic(), 0, None
        wire.send(channel, "K")
        while True:
            request = wire.decode(wire.receive(channel, REQUEST_LIMIT)[1])
            if time.monotonic() > counted + _COUNT_INTERVAL_SECONDS:
                counted = time.monotonic()
                set_limits(policy, job, hard=False)
            calls += 1
            if not request["alone"]:
                before = before or Leftovers(fn, job.memory_mb, born)
            ask = ModelAsk(channel)
            kind, payload = _answer_function_call(fn, request, ask)
            ask.refuse_questions()
            kind = kind.lower() if before is None or before.find_leftover() else kind
            wire.send(channel, kind, calls.to_bytes(4, "little") + payload)
    finally:
        exit_at_once()


def _answer_function_call(
    fn: Callable[..., object], request: JsonObject, ask: ModelAsk
) -> tuple[str, bytes]:
    """Kind and payload of the answer to a request.

    A lower-case kind means that the process should not serve another call.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = math.ceil(used.ru_utime + used.ru_stime) + request["cpu"]
    hard_limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU,
        (cpu if hard_limit == resource.RLIM_INFINITY else min(cpu, hard_limit), hard_limit),
    )
    random.seed(request["seed"])
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(request["seed"] % (1 << 32))
    try:
        answer = "R", wire.encode(build_report(fn, request, ask))
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything; it becomes a value
        kind = (
            "e"
            if isinstance(error, MemoryError)
            else "A"
            if is_outage(error, request["parts"])
            else "E"
        )
        answer = kind, encode_exception(error)
    except BaseException as error:  # noqa: BLE001 - as SystemExit: the process is meant to end
        answer = "e", encode_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return answer


def build_report(
    fn: Callable[..., object], request: JsonObject, ask: ModelAsk | None = None
) -> JsonObject:
    """Call the function on a request; return its result in one form."""
    parts = request["parts"]
    candidate = (
        next(iter(parts.values())) if len(parts) == 1 and not request.get("whole") else parts
    )
    case = None if request["case"] is None else Case(**request["case"])
    more = {"ask": ask_argument(fn, ask)} if ask is not None and has_ask_parameter(fn) else {}
    result = awaited_result(
        fn(candidate, case, **more) if takes_case(fn) else fn(candidate, **more)
    )
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
    info = info if isinstance(info, dict) else {"feedback": info}
    images = pictures.picture_artifacts(info["images"]) if info.get("images") else {}
    info = {key: value for key, value in info.items() if key != "images"}
    artifacts = info.pop("artifacts", None) if isinstance(info.get("artifacts"), dict) else None
    shown = [
        str(value) if key == "feedback" else f"{key}: {value}"
        for key, value in info.items()
        if not _is_number(value)
    ]
    return {
        "score": number_or_type(score),
        "metrics": {
            str(key): number_or_type(value) for key, value in info.items() if _is_number(value)
        },
        "feedback": "\n".join(shown),
        "artifacts": {str(key): str(value) for key, value in (artifacts or {}).items()} | images,
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
    plain = number_or_type(value)
    return isinstance(plain, int | float) and not isinstance(plain, bool)


# Leftovers of a call of a Python function in its process that could affect the next call.
#
# Checked after each call: threads and child processes, a pending timer, another working folder,
# environment or module path, modules whose file is younger than the run or that have no file
# (an imported candidate), replaced functions of the modules that compute scores and of
# the evaluator's own module, growing numbers of descriptors and growing memory. The function's own
# variables are its state, and persist.

_GUARDED = (
    "math",
    "cmath",
    "statistics",
    "random",
    "time",
    "json",
    "itertools",
    "functools",
    "operator",
    "collections",
    "numpy",
    "numpy.random",
    "numpy.linalg",
)
_FDS = 16  # additional descriptors, compared with the start, that count as a leak
_KEPT_SHARE_DIVISOR = 4  # of the memory limit, a quarter may be kept between calls


class Leftovers:
    """The state of this process now, to be compared with later states.

    `memory_mb` is a call's limit; modules whose file changed after `born` (Unix seconds) do not
    belong to a library.
    """

    def __init__(self, fn: Callable[..., object], memory_mb: int, born: float) -> None:
        self._born = born
        self._modules = set(sys.modules)
        self._folder, self._environ, self._path = os.getcwd(), _raw_environment(), list(sys.path)
        self._memory = procfs.data_bytes() + memory_mb * (1 << 20) // _KEPT_SHARE_DIVISOR
        self._fds = procfs.descriptor_count() + _FDS
        watched = [builtins, *(sys.modules[name] for name in _GUARDED if name in sys.modules)]
        self._watched = [(vars(module), dict(vars(module))) for module in watched]
        own = getattr(fn, "__globals__", {})
        self._own = own, {name: value for name, value in own.items() if _is_code(value)}

    def find_leftover(self) -> str:
        """The kind of leftover in one word; "" if there is none."""
        checks: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("thread", lambda: threading.active_count() > 1),
            ("process", lambda: bool(procfs.child_pids(os.getpid()))),
            ("timer", lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0),
            ("module", self._has_new_module),
            ("patch", self._has_patch),
            ("surroundings", self._has_new_surroundings),
            ("descriptors", lambda: procfs.descriptor_count() > self._fds),
            ("memory", lambda: procfs.data_bytes() > self._memory),
        )
        return next((name for name, left in checks if left()), "")

    def _has_new_surroundings(self) -> bool:
        try:
            folder = os.getcwd()
        except OSError:
            return True
        return (
            folder != self._folder or sys.path != self._path or _raw_environment() != self._environ
        )

    def _has_new_module(self) -> bool:
        """True if a module of the run, not of a library, was imported since the last check."""
        if self._modules == sys.modules.keys():
            return False
        fresh = [module for name, module in list(sys.modules.items()) if name not in self._modules]
        self._modules = set(sys.modules)
        return any(self._is_from_run(module) for module in fresh)

    def _is_from_run(self, module: ModuleType) -> bool:
        """True if a module was created after the run began."""
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if file is None:
            return spec is None or not (
                spec.origin in ("built-in", "frozen") or spec.submodule_search_locations
            )
        try:
            return os.stat(file).st_ctime >= self._born
        except OSError:
            return True

    def _has_patch(self) -> bool:
        try:
            # comparing whole dicts is several times as fast, and usually decides
            pairs = (*self._watched, self._own)
            return not all(before == now or before.items() <= now.items() for now, before in pairs)
        except (ValueError, TypeError):  # another object, whose comparison fails
            return True


def _raw_environment() -> Mapping[str, str] | Mapping[bytes, bytes]:
    """The environment as the bytes that `os.environ` keeps.

    Faster than its texts, which are decoded one by one.
    """
    return dict(getattr(os.environ, "_data", os.environ))


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, ModuleType)
