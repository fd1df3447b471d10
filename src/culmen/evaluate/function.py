"""A Python callable of the user's own process as evaluator: forked, not jailed.

A fork-server is forked from this process when the backend starts, so closures work without pickling; every evaluation
is a child of its own with time, memory and process limits. Environment, files and network stay the user's: the function
is trusted. Scores are self-reported, because candidate and function share a process.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from culmen.core.evaluation import Case, Scoring
from culmen.core.task import Task
from culmen.evaluate.jail import kernel, probes, procfs, wire
from culmen.evaluate.jail.confine import CHANNEL, ForkRequest, JailPolicy, own_descriptors, set_limits
from culmen.evaluate.jail.fork_server import Jail
from culmen.evaluate.jail.plain import number
from culmen.evaluate.jail.runner import REQUEST_LIMIT, describe, leave
from culmen.evaluate.jail.zygote import Zygote
from culmen.evaluate.local import LocalBackend


class FunctionBackend(LocalBackend):
    """Evaluates by calling `fn(candidate)` or `fn(candidate, case)`, up to `workers` calls at once.

    `candidate` is the text of a candidate with one part, else the dict of its parts; `case` the `Case` or None. The
    function returns a number, `(score, feedback or dict)`, or a dict with "score" or "combined_score"; coroutine
    functions work too. Raising `culmen.Invalid` says that the candidate is not acceptable.
    """

    def __init__(self, task: Task, fn: Callable[..., Any], workers: int, require: str | None = None) -> None:
        super().__init__(task, workers, require, level="limits")
        self.fn = fn

    async def start(self) -> str:
        """Fork the server; the level is always "limits". Raises IsolationError if more is required."""
        self.scoring = Scoring("self-reported", "a Python callable shares a process with the candidate")
        probes.require_level(
            "limits", self.require, {"namespaces": "a Python callable runs as part of your own process"}
        )
        self._jail = self._new_jail("limits")
        await self._jail.start()
        return "limits"

    def _new_jail(self, level: str) -> Jail:
        return _ForkedJail(self.fn)


class _ForkedJail(Jail):
    """A fork-server made by fork alone."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__("limits")
        self.fn = fn
        self._pid = 0

    async def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # our threads hold no lock that a child needs
            self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs.fileno(), self.fn, self.scratch)
        theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._listen)

    async def close(self) -> None:
        await super().close()
        pid, self._pid = self._pid, 0
        if pid:
            await asyncio.to_thread(os.waitpid, pid, 0)


def _serve(control: int, fn: Callable[..., Any], scratch: str) -> NoReturn:
    """The forked server. Objects of the parent are never freed here: their descriptors are closed already."""
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

        def child(cage: JailPolicy, job: ForkRequest, channel: int, log: int, _line: int) -> NoReturn:
            _call_once(fn, cage, job, channel, log)

        cage = JailPolicy("limits", scratch=scratch, baseline=procfs.data_bytes())
        Zygote(socket.socket(fileno=CHANNEL), cage, child).serve()
    finally:
        os._exit(0)


def _call_once(fn: Callable[..., Any], cage: JailPolicy, job: ForkRequest, channel_fd: int, log: int) -> NoReturn:
    """One evaluation in a child of its own."""
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    own_descriptors(channel_fd, log)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False, errors="replace")
    channel = socket.socket(fileno=CHANNEL)
    try:
        set_limits(cage, job)
        wire.send(channel, "K")
        request = wire.decode(wire.receive(channel, REQUEST_LIMIT)[1])
        random.seed(job.seed)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(job.seed % (1 << 32))
        report = report_of(fn, request)
        wire.send(channel, "R", wire.encode(report))
    except BaseException as error:  # noqa: BLE001 - the user's function may raise anything; it becomes a value
        wire.send(channel, "E", describe(error))
    finally:
        leave()


def report_of(fn: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    """Call the function on a request and bring its result into one form."""
    parts = request["parts"]
    candidate = next(iter(parts.values())) if len(parts) == 1 else parts
    case = None if request["case"] is None else Case(**request["case"])
    result = fn(candidate, case) if takes_case(fn) else fn(candidate)
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    score, info = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if isinstance(score, dict):
        info = {key: value for key, value in score.items() if key not in ("score", "combined_score")}
        score = score.get("score", score.get("combined_score"))
    info = info if isinstance(info, dict) else {"feedback": info}
    artifacts = info.pop("artifacts", None) if isinstance(info.get("artifacts"), dict) else None
    shown = [
        str(value) if key == "feedback" else f"{key}: {value}" for key, value in info.items() if not _number(value)
    ]
    return {
        "score": number(score),
        "metrics": {str(key): number(value) for key, value in info.items() if _number(value)},
        "feedback": "\n".join(shown),
        "artifacts": {str(key): str(value) for key, value in (artifacts or {}).items()},
    }


def takes_case(fn: Callable[..., Any]) -> bool:
    """Whether the function wants a second argument."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    required = [p for p in places if p.default is p.empty]
    return len(required) >= 2 or (len(places) >= 2 and places[1].name in ("case", "example"))


def _number(value: Any) -> bool:
    plain = number(value)
    return isinstance(plain, int | float) and not isinstance(plain, bool)


async def _wait(result: Any) -> Any:
    return await result
