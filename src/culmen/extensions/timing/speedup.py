"""Metric `speedup`: seconds of a reference by those of a program, on fresh inputs.

Reference and program run in two jailed processes on one core and take turns; this process makes
the inputs, holds the clock and judges the results, and neither can reach it. A turn has four steps
(timed.py): the input is handed over and read, the program runs, its result is written out and
handed over, and between the turns it should rest. Only the run counts, unless the other steps take
more processor time than they must: work that a program moves there is added to its time.

Time is wall time less the time for which the program was ready and others had the core, and at
least the processor time of all its processes, as the kernel counts both. The kernel accounts for
the waiting of a first thread alone: of a program whose other threads or processes work, the time
lies between their processor time and that of a first thread that may have slept while others had
the core. Where these differ, the load would decide, and there is no figure.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import ModuleType
from typing import NamedTuple

from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.extensions.timing import packed
from culmen.jail import procfs, wire
from culmen.jail.scorer import (
    CandidateError,
    CandidateGone,
    CandidateProgram,
    Invalid,
    MachineBusy,
    ResultTooLarge,
    call_judge,
    traceback_text,
)

FEWEST, MOST = 8, 24  # timed rounds, each with a fresh input
ENOUGH = 0.01  # relative standard error of the speed-up at which rounds end
SHARE_OF_TIME = 0.7  # of the evaluation's time limit that rounds may take
PINGS = 8
# what reading an input and writing a result may take beyond what the reference and this process
# need for the same, as a share of that and in seconds: equal processes differ by so much
_SLACK, _SLACK_SECONDS = 0.2, 1e-4
_LEAST_SECONDS = 1e-6
_OTHERS = 0.02  # share of a run's processor time from which other threads count
_DOUBT = 0.05  # relative difference that the load may make to a speed-up
_BUSY = 0.1  # share of waiting for the core from which a machine counts as busy
_NANO = 1e-9
_CREDENTIALS = struct.Struct("iII")


class ReferenceFailed(BaseException):
    """The reference does not work: a fault of the task, whatever the candidate."""


class Use(NamedTuple):
    """Seconds that were used: wall time, waiting for the core, processor time.

    Waiting is that of the program's first thread and of this process; `first` is the part of the
    processor time that this thread had. Without an exact clock all but wall time are 0.
    """

    wall: float
    waited: float
    processor: float
    first: float

    @property
    def least(self) -> float:
        """The shortest time that it may have taken: without others, if other threads worked.

        While the first thread waited the others may have run or not: that is doubt as well.
        """
        lone = max(self.wall - self.waited, self.processor)
        has_others = self.processor - self.first > _OTHERS * self.processor
        return max(0.0, self.processor - self.waited) if has_others else lone


class Turn(NamedTuple):
    """Seconds of one turn's steps, and the bytes of its result.

    `run` with `waited` for the core in it, and the `least` that it may have been; `reading` of the
    input, which includes all work since the last turn; `writing` of the result.
    """

    run: float
    least: float
    waited: float
    reading: float
    writing: float
    result: wire.Data


class TurnClock:
    """The clock of one program: the kernel's account of its process and descendants.

    `pid` 0: the system gives none, and wall time counts alone.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid if pid and _processor_seconds(pid) is not None else 0

    def read(self) -> Use:
        """The program's use up to now."""
        if not self._pid:
            return Use(time.perf_counter(), 0.0, 0.0, 0.0)
        processor = sum(map(_tree_seconds, procfs.tree_pids(self._pid)))
        first, waited = _first_thread_seconds(self._pid)
        waited += _first_thread_seconds(os.getpid())[1]
        return Use(time.perf_counter(), waited, processor, first)

    @property
    def is_exact(self) -> bool:
        """True if the kernel accounts for the program's time apart from that of others."""
        return bool(self._pid)


def _processor_seconds(pid: int) -> float | None:
    """Processor seconds of a process and its threads; None if the kernel does not tell."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED, see clock_getcpuclockid(3)
    except (OSError, AttributeError, OverflowError):
        return None


def _tree_seconds(pid: int) -> float:
    """Processor seconds of a process, with those of children that it has waited for."""
    return (_processor_seconds(pid) or 0.0) + procfs.reaped_seconds(pid)


def _first_thread_seconds(pid: int) -> tuple[float, float]:
    """Seconds for which the first thread of a process ran, and was ready but did not run."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", 0) as file:
            ran, waited = file.read().split()[:2]
            return int(ran) * _NANO, int(waited) * _NANO
    except (OSError, ValueError):
        return 0.0, 0.0


class TimedProcess:
    """One of the two programs: its connection and its clock."""

    def __init__(self, program: CandidateProgram, core: int) -> None:
        self._program = program
        self._crossing = 0.0
        with contextlib.suppress(OSError):
            program.channel.setsockopt(socket.SOL_SOCKET, 16, 1)  # SO_PASSCRED of Linux
        place = str(core).encode()
        self._clock = TurnClock(self._find_pid(place))
        # before the program is loaded, which would answer slowly to get more taken off
        pings = [self._timed_step("P", place)[0] for _ in range(PINGS)]
        self._crossing = min(max(ping.wall - ping.waited, ping.processor) for ping in pings)
        self._step("B")
        self._rested = self._clock.read()

    @property
    def is_exact(self) -> bool:
        """See `TurnClock.is_exact`."""
        return self._clock.is_exact

    def _find_pid(self, place: bytes) -> int:
        """Number of the process that answers, from the kernel; 0 if it gives none.

        Across a container's border it is that of a relay, whose time says nothing.
        """
        self._send("P", place)
        try:
            _, extra, _, _ = self._program.channel.recvmsg(
                1, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_PEEK
            )
        except (OSError, AttributeError):
            extra = []
        self._receive()
        sent = next((data for _, _, data in extra if len(data) >= _CREDENTIALS.size), None)
        pid = _CREDENTIALS.unpack(sent[: _CREDENTIALS.size])[0] if sent else 0
        # this process may be a copy of the one that culmen started (`scorer.serve_copies`)
        relays = (os.getpid(), os.getppid(), procfs.parent_pid(os.getppid()))
        return 0 if pid in relays else pid

    def take_turn(self, data: bytes) -> Turn:
        """Run the program on an input.

        Raises CandidateError if the program raises, CandidateGone if it ends, ResultTooLarge for a
        result beyond the task's limit.
        """
        unrest = self._clock.read().processor - self._rested.processor
        reading, _ = self._timed_step("I", data)
        run, _ = self._timed_step("G")
        writing, result = self._timed_step("O")
        self._rested = self._clock.read()
        around = (
            (unrest + reading.processor, writing.processor)
            if self.is_exact
            else (reading.wall, writing.wall)
        )
        spent = max(run.wall - run.waited, run.processor) - self._crossing
        spent = max(_LEAST_SECONDS, spent)
        least = max(_LEAST_SECONDS, min(spent, run.least))
        return Turn(spent, least, run.waited, *around, result)

    def _timed_step(self, kind: str, payload: bytes = b"") -> tuple[Use, wire.Data]:
        """The use of one step, and its answer."""
        before = self._clock.read()
        answer = self._step(kind, payload)
        after = self._clock.read()
        wall = after.wall - before.wall
        waited = min(wall, after.waited - before.waited)
        processor, first = after.processor - before.processor, after.first - before.first
        return Use(wall, waited, processor, first), answer

    def _step(self, kind: str, payload: bytes = b"") -> wire.Data:
        self._send(kind, payload)
        return self._receive()

    def _send(self, kind: str, payload: bytes) -> None:
        if self._program.gone:
            raise CandidateGone
        try:
            wire.send(self._program.channel, kind, payload)
        except OSError:
            self._program.gone = True
            raise CandidateGone from None

    def _receive(self) -> wire.Data:
        try:
            kind, payload = wire.receive(self._program.channel, self._program.limit)
        except wire.TooLarge as error:
            raise ResultTooLarge(f"a result has {error}") from None
        except (OSError, EOFError):
            self._program.gone = True
            raise CandidateGone from None
        if kind != "R":
            raise CandidateError(traceback_text(payload))
        return payload


class Round(NamedTuple):
    """Seconds of one input: both runs, the waiting in them, and the program's other steps.

    `around` is what these steps took, `due` what they must take. `unsure` is the logarithm of the
    factor by which the load may have changed the ratio of the runs.
    """

    reference: float
    program: float
    waited: float
    unsure: float
    around: float
    due: float


class SpeedupEstimate(NamedTuple):
    """A speed-up with its relative standard error and its parts.

    `moved` is work in seconds that the program did outside its runs, and `least` the shortest time
    that can be believed: half of what it could do there unseen. Hiding work gains a factor of two
    at most, near `least`. `unsure` is the relative difference that the load may have made.
    """

    speedup: float
    error: float
    program: float
    reference: float
    waited: float
    moved: float
    least: float
    unsure: float


def estimate_speedup(rounds: list[Round]) -> SpeedupEstimate:
    """The median of the ratios over rounds; its error from their median absolute deviation.

    Ratios of one input's two times are free of differences between inputs, and of a load that
    slows both; a median is free of single disturbances.
    """
    slack = median(_SLACK * each.due + _SLACK_SECONDS for each in rounds)
    moved = max(0.0, median(each.around - each.due for each in rounds) - slack)
    times = [max(each.program + moved, slack / 2) for each in rounds]
    logs = [math.log(each.reference / spent) for each, spent in zip(rounds, times, strict=True)]
    middle = median(logs)
    deviation = 1.4826 * median(abs(each - middle) for each in logs)
    waited = sum(each.waited for each in rounds)
    return SpeedupEstimate(
        speedup=math.exp(middle),
        error=math.sqrt(math.pi / 2) * deviation / math.sqrt(len(logs)),
        program=median(times),
        reference=median(each.reference for each in rounds),
        waited=waited / (waited + sum(each.reference + each.program for each in rounds)),
        moved=moved,
        least=slack / 2,
        unsure=math.expm1(median(each.unsure for each in rounds)),
    )


class TimedComparison:
    """One evaluation: rounds of both programs until the speed-up is known well enough."""

    def __init__(
        self, task: TimedTask, program: TimedProcess, reference: TimedProcess, until: float
    ) -> None:
        self._task, self._program, self._reference = task, program, reference
        self._until = until

    def run(self, inputs: Iterator[object]) -> tuple[SpeedupEstimate, int]:
        """Compare on fresh inputs; return the estimate and the number of timed rounds.

        The first input warms both up and is only checked.

        Raises Invalid for a result that the task refuses, ReferenceFailed, MachineBusy, and what
        the program's turns raise.
        """
        rounds: list[Round] = []
        for number, value in enumerate(inputs):
            found = self._perform_round(number, value)
            rounds += [found] if number else []
            late = time.monotonic() > self._until
            if len(rounds) >= (1 if late else FEWEST):
                estimate = estimate_speedup(rounds)
                is_known = estimate.error <= ENOUGH and estimate.unsure <= _DOUBT
                if late or is_known or len(rounds) >= MOST:
                    return _told_apart(estimate), len(rounds)
            elif late:
                break
        raise Invalid("the program is too slow: the time limit was reached before a timed round")

    def _perform_round(self, number: int, value: object) -> Round:
        """Both turns on one input, the reference first in every other round; and the judgement."""
        data = packed.encode(value)
        turns: dict[bool, Turn] = {}
        for is_reference in (True, False) if number % 2 == 0 else (False, True):
            take = self._reference_turn if is_reference else self._program.take_turn
            turns[is_reference] = take(data)
        reference, program = turns[True], turns[False]
        known, known_writing = _read_result(reference.result)
        if not number:
            self._task.check_reference(packed.decode(data), known)
        found, own_writing = _read_result(program.result)
        self._task.check(value, found)
        way = max(0.0, reference.writing - known_writing)
        way *= max(1.0, len(program.result) / max(1, len(reference.result)))
        return Round(
            reference.run,
            program.run,
            reference.waited + program.waited,
            math.log(reference.run / reference.least) + math.log(program.run / program.least),
            around=program.reading + program.writing,
            due=reference.reading + own_writing + way,
        )

    def _reference_turn(self, data: bytes) -> Turn:
        try:
            return self._reference.take_turn(data)
        except CandidateError as error:
            raise ReferenceFailed(f"the reference raised an exception\n{error}") from None
        except ResultTooLarge as error:
            text = f"the reference's {str(error).removeprefix('a ')}: raise [limits] output_kb"
            raise ReferenceFailed(text) from None
        except CandidateGone:
            raise ReferenceFailed("the reference ended: perhaps [limits] are too low") from None


def _told_apart(found: SpeedupEstimate) -> SpeedupEstimate:
    """The estimate; raise `MachineBusy` if the load of the machine may have decided it."""
    if found.unsure <= _DOUBT:
        return found
    raise MachineBusy(
        "the speed-up cannot be told: other threads or processes of the program or the reference "
        f"worked, and on this machine the load of others may have changed it by "
        f"{100 * found.unsure:.0f} %; use one worker on a machine that does nothing else, or a "
        "program with one thread"
    )


def _read_result(data: wire.Data) -> tuple[object, float]:
    """A result, and the processor seconds that writing it takes; raises Invalid."""
    try:
        value = packed.decode(data)
    except wire.WireError as error:
        raise Invalid(f"bad output: {error}") from None
    begun = time.thread_time()
    packed.encode(value)
    return value, time.thread_time() - begun


class TimedTask:
    """An evaluator's three functions: `generate(case, seed)`, `reference` and `check`."""

    def __init__(self, module: ModuleType) -> None:
        self._generate, self._check = module.generate, module.check

    def inputs(self, case: Case | None, seed: int) -> Iterator[object]:
        """Inputs of a case without end, all with seeds of their own."""
        number = 0
        while True:
            text = f"{seed}:{case.id if case is not None else ''}:{number}"
            own = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
            yield call_judge(self._generate, {"case": case, "seed": own})
            number += 1

    def check(self, value: object, result: object) -> None:
        """Raise Invalid unless the evaluator accepts the result."""
        verdict = self._check(value, result)
        if verdict is None or not verdict:
            raise Invalid("check() refuses the result")

    def check_reference(self, value: object, result: object) -> None:
        """Raise ReferenceFailed unless the evaluator accepts the reference's result."""
        try:
            self.check(value, result)
        except Exception as error:
            raise ReferenceFailed(
                f"check() does not accept the reference's own result: {error}"
            ) from error


def make_judge(module: ModuleType) -> Callable[..., JsonObject]:
    """The judge of an evaluator with the metric `speedup`."""
    task = TimedTask(module)

    def judge(
        call: CandidateProgram,
        rival: CandidateProgram,
        case: Case | None,
        seed: int,
        core: int,
        allowed: float,
    ) -> JsonObject:
        until = time.monotonic() + SHARE_OF_TIME * allowed
        with pinned(core):
            reference = _started_reference(rival, core)
            program = TimedProcess(call, core)
            comparison = TimedComparison(task, program, reference, until)
            found, rounds = comparison.run(task.inputs(case, seed))
        return report_estimate(found, rounds, program.is_exact)

    return judge


def _started_reference(rival: CandidateProgram, core: int) -> TimedProcess:
    try:
        return TimedProcess(rival, core)
    except CandidateError as error:
        raise ReferenceFailed(f"the reference cannot be loaded\n{error}") from None
    except CandidateGone:
        raise ReferenceFailed("the reference ended while it was loaded") from None


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run on one core, if the system can do that; afterwards on those of before."""
    if core < 0 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


def report_estimate(found: SpeedupEstimate, rounds: int, is_exact: bool) -> JsonObject:
    """An estimate as a judgement."""
    fast, slow = 1000 * found.program, 1000 * found.reference
    text = (
        f"{found.speedup:.4g} times the reference's speed (+- {100 * found.error:.1f} %): "
        f"{fast:.4g} ms against {slow:.4g} ms, medians of {rounds} fresh inputs"
    )
    if found.moved:
        text += f"; {1000 * found.moved:.3g} ms of it were spent outside the calls"
    if found.program <= found.least:
        text += f"; shorter times than {1000 * found.least:.3g} ms cannot be told apart here"
    if not is_exact:
        text += "; wall time alone: the load of the machine is not taken off"
    elif found.waited > _BUSY:
        text += (
            f"; the machine was busy: others had the core for {100 * found.waited:.0f} % of the "
            "time, which is taken off"
        )
    metrics = {
        "program_ms": fast,
        "reference_ms": slow,
        "speedup_error": found.error,
        "rounds": float(rounds),
        "others_share": found.waited,
    }
    return {"score": found.speedup, "metrics": metrics, "feedback": text}
