"""The orchestrator's side of scorer processes (scorer.py): starts, asks and replaces them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from culmen.core.asking import current_asker
from culmen.core.errors import TaskError, place_in_text
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.packages import install_hint
from culmen.core.task import Evaluator, Limits
from culmen.jail import bubblewrap, procfs, spoken, wire
from culmen.jail.asking import LIMIT
from culmen.jail.fork_server import ENVIRONMENT, START_SECONDS, read_frame, write_frame

_CODE = "import sys; sys.path += {folders!r}; from culmen.jail.scorer import main; main()"


VERIFIER_PATIENCE = 5  # a verifier may take this many times as long as a scorer


def _loading_fix(trace: str) -> str:
    """The line of the user's own that raised while an evaluator was loaded, "" if none is named."""
    place = place_in_text(trace)
    return f"correct {os.path.basename(place.file)} line {place.line}" if place else ""


class ScorerFailed(Exception):
    """A scorer died, hung or sent an invalid answer."""


class ScorerStalled(ScorerFailed):
    """A scorer was busy with one output for too long: the output is the cause."""


class ScorerOverfull(ScorerFailed):
    """A fresh scorer needed too much memory for one output: the output is the cause."""


_BUSY_SHARE = 0.2  # share of its time that a scorer must have computed to count as busy
# share of its memory after which the end of a scorer counts as one for lack of memory: libraries
# end a process when an allocation fails
_FULL_SHARE = 0.5


class ScorerProcess:
    """One process with the evaluator loaded.

    `judged` is the number of outputs that it has judged.
    """

    def __init__(
        self, evaluator: Evaluator, memory_mb: int, path: str = "", hash_seed: int = 0
    ) -> None:
        self.path, self.judged = path or evaluator.path, 0
        self._memory_kb, self._loaded_kb = memory_mb << 10, 0
        self._is_overfull = False
        self._fix = "make the file importable and let it define the function its form needs"
        if evaluator.url or evaluator.program:
            self._fix = (
                "start the server, or correct [evaluator] url"
                if evaluator.url
                else "correct [evaluator] program"
            )
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        life, self._lifeline = os.pipe()
        judge, folders, self._contained = "", [str(bubblewrap.PACKAGE.parent)], False
        if evaluator.program:
            judge = spoken.judge_address(evaluator.program)
            folders += filter(None, [spoken.judge_folder(judge)])
            self._contained = spoken.starts_containers(evaluator.program)
        line = [sys.executable, "-s", "-P", "-c", _CODE.format(folders=folders)]
        role = "certify" if path else "score"
        measure = spoken.require_metric(evaluator).judge if evaluator.metric else ""
        elsewhere = json.dumps(
            [
                *(evaluator.program, evaluator.url, judge, memory_mb, measure),
                evaluator.keeps_state,
            ]
        )
        line += [str(theirs.fileno()), str(life), self.path, evaluator.form, role, elsewhere]
        named = evaluator.options.get("environment", ())
        if self._contained:
            named = (*named, *spoken.container_level().ENVIRONS)
        wanted = {name: os.environ[name] for name in named if name in os.environ}
        home = {"HOME": os.environ.get("HOME", "/"), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by `ready`
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            env={**ENVIRONMENT, "PYTHONHASHSEED": str(hash_seed), **home, **wanted},
            pass_fds=[theirs.fileno(), life],
            start_new_session=True,
        )
        theirs.close()
        os.close(life)

    async def wait_until_loaded(self) -> None:
        """Wait until the evaluator is loaded.

        Raises TaskError, with the end of the error output, if its file cannot be loaded.
        """
        try:
            # not `wait_for`, which would prefer the end of a process that Ctrl-C has ended, too
            async with asyncio.timeout(START_SECONDS):
                _, payload = await read_frame(self._channel, 1 << 20)
            error = json.loads(payload).get("error")
        except (EOFError, TimeoutError):
            self._complaints.seek(0)
            last = self._complaints.read()[-2000:].decode(errors="replace").strip()
            error = last or "its process ended or hung while it loaded"
        self._complaints.close()
        self._loaded_kb = procfs.descendants_kb(self._process.pid, 0)
        if error:
            raise TaskError(
                f"the evaluator cannot be used: {error.strip()}",
                where=self.path,
                fix=install_hint(error) or _loading_fix(error) or self._fix,
            )

    async def ask(
        self,
        request: JsonObject,
        output: bytes | None,
        programs: Sequence[socket.socket],
        seconds: float,
    ) -> JsonObject:
        """One answer within `seconds`, not counting the time of models.

        Raises ScorerFailed, ScorerStalled, ScorerOverfull, and the errors of an `Asker`; the
        process must then be replaced.
        """
        before = self._processor_seconds()
        watch = asyncio.create_task(self._watch_memory())
        try:
            async with asyncio.timeout(seconds) as alarm:
                data = b"" if programs else wire.frame_bytes("D", output or b"")
                await write_frame(self._channel, "S", json.dumps(request).encode(), data)
                if programs:
                    fds = [program.fileno() for program in programs]
                    socket.send_fds(self._channel, [b"P"], fds)
                _, payload = await read_final_frame(self._channel, 1 << 26, alarm)
            answer = json.loads(payload)
            if answer["kind"] == "memory":
                raise self._overfull_error()
            self.judged += 1
            return answer
        except TimeoutError:
            busy = self._processor_seconds() - before
            if busy < _BUSY_SHARE * seconds:
                raise ScorerFailed(
                    f"the scorer did not answer within {seconds:g} s ([limits] scorer_seconds) "
                    "and was idle"
                ) from None
            raise ScorerStalled(f"judging the output took longer than {seconds:g} s") from None
        except (EOFError, OSError, ValueError, wire.WireError) as error:
            if self._is_overfull or await self._ended_full():
                raise self._overfull_error() from None
            raise ScorerFailed(f"the scorer did not answer: {type(error).__name__}") from None
        finally:
            watch.cancel()

    async def _watch_memory(self) -> None:
        """End the scorer once it and its programs need too much memory."""
        limit = self._loaded_kb + self._memory_kb
        while not self._is_overfull:
            await asyncio.sleep(0.1)  # between two looks at a scorer's memory
            self._is_overfull = procfs.descendants_kb(self._process.pid, limit) > limit
        self._kill()

    async def _ended_full(self) -> bool:
        """True if the process, which does not answer, needed much of its memory."""
        self._kill()
        with contextlib.suppress(ChildProcessError):
            _, status, usage = await asyncio.to_thread(os.wait4, self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            peak_kb = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss >> 10
            return peak_kb > self._loaded_kb + _FULL_SHARE * self._memory_kb
        return False

    def _overfull_error(self) -> ScorerOverfull:
        return ScorerOverfull(
            f"judging the output needs more than {self._memory_kb >> 10} MB of memory "
            "([limits] scorer_memory_mb)"
        )

    def _processor_seconds(self) -> float:
        """Seconds of processor time of the scorer and the programs that it started."""
        pid = self._process.pid
        return sum(map(procfs.cpu_seconds, (pid, *procfs.child_pids(pid))))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the process and its session; may be called again."""
        if self._lifeline >= 0:
            self._channel.close()
            os.close(self._lifeline)
            self._lifeline = -1  # by the next call the number may be that of another file
            self._kill()
        await asyncio.to_thread(self._process.wait)
        if self._contained:
            await asyncio.to_thread(spoken.container_level().remove_orphaned_containers)


class ScorerPool:
    """A pool of running scorers, at most one per evaluation in flight.

    `path` is the file that they load if it is not the evaluator itself: its verifier, which may
    take `VERIFIER_PATIENCE` times as long. `several`: the task has several objectives, so a result
    may be metrics without a score.
    """

    def __init__(
        self, evaluator: Evaluator, limits: Limits, path: str = "", several: bool = False
    ) -> None:
        self.evaluator, self.limits, self.path, self.several = evaluator, limits, path, several
        self.seconds = limits.scorer_seconds * (VERIFIER_PATIENCE if path else 1)
        self.hash_seed = 0  # of scorers that start from now on
        self._idle: list[ScorerProcess] = []
        self._busy: set[ScorerProcess] = set()
        self._retired: set[ScorerProcess] = set()

    async def start(self) -> None:
        """Load the evaluator once, so that a broken one is reported before the run."""
        self._idle.append(await self._start_scorer())

    async def _start_scorer(self) -> ScorerProcess:
        memory_mb = self.limits.scorer_memory_mb
        scorer = ScorerProcess(self.evaluator, memory_mb, self.path, self.hash_seed)
        try:
            await scorer.wait_until_loaded()
        except BaseException:
            await scorer.close()
            raise
        return scorer

    async def ask(
        self,
        *,
        case: Case | None,
        parts: dict[str, str],
        seed: int,
        seconds: float,
        output: bytes | None = None,
        programs: Sequence[socket.socket] = (),
        patience: float = 0.0,
        more: JsonObject | None = None,
    ) -> JsonObject:
        """Judge one output (or drive `programs`); `more` goes into the request.

        Raises ScorerFailed if the scorer dies or is too slow. One that needs too much memory may
        have lost it over earlier outputs, so a fresh one judges this output again.
        """
        request = {
            "case": None if case is None else msgspec.to_builtins(case),
            "seed": seed,
            "parts": parts,
            "seconds": seconds,
            "limit": self.limits.output_kb << 10,
        }
        request |= {"several": True} if self.several else {}
        request |= more or {}
        scorer = self._idle.pop() if self._idle else await self._replacement_scorer()
        try:
            return await self._ask_scorer(scorer, request, output, programs, patience)
        except ScorerOverfull as error:
            if not scorer.judged:
                raise
            await self.retire_scorers()
            if programs:  # it has begun to answer
                raise ScorerFailed(str(error)) from None
        fresh = await self._replacement_scorer()
        return await self._ask_scorer(fresh, request, output, (), patience)

    async def _ask_scorer(
        self,
        scorer: ScorerProcess,
        request: JsonObject,
        output: bytes | None,
        programs: Sequence[socket.socket],
        patience: float,
    ) -> JsonObject:
        self._busy.add(scorer)
        try:
            answer = await scorer.ask(request, output, programs, self.seconds + patience)
        except BaseException:
            self._busy.discard(scorer)
            self._retired.discard(scorer)
            await scorer.close()
            raise
        self._busy.discard(scorer)
        if scorer in self._retired or answer.get("spent"):
            self._retired.discard(scorer)
            await scorer.close()
        else:
            self._idle.append(scorer)
        return answer

    async def retire_scorers(self) -> None:
        """Retire all present scorers; busy ones end after their answer."""
        idle, self._idle = self._idle, []
        self._retired |= self._busy
        for scorer in idle:
            await scorer.close()

    async def _replacement_scorer(self) -> ScorerProcess:
        try:
            return await self._start_scorer()
        except TaskError as error:
            raise ScorerFailed(error.what) from None

    async def close(self) -> None:
        """End all scorers."""
        scorers, self._idle = [*self._idle, *self._busy], []
        self._busy.clear()
        for scorer in scorers:
            await scorer.close()


# Answers the questions of evaluators to models (`asking`) during a judgement; the time limit is
# suspended meanwhile.


async def read_final_frame(
    channel: socket.socket, limit: int, alarm: asyncio.Timeout
) -> tuple[str, bytes]:
    """The frame that ends an evaluation, of at most `limit` bytes.

    Until it comes, questions to models are answered, and the alarm is postponed by the time that
    the answers take. Raises as `read_frame` does, and the errors of `core.asking.Asker`: the
    process then waits forever.
    """
    questions = _Questions(channel, alarm)
    try:
        while True:
            kind, payload = await questions.next_frame(max(limit, LIMIT))
            if kind != "M":
                break
            questions.start_answering(payload)
        if len(payload) > limit:
            raise wire.TooLarge
        # a later reply to a thread's question would be read as the next request
        await questions.wait_for_all()
        return kind, payload
    finally:
        await questions.cancel_all()


class _Questions:
    """The questions in flight of one evaluation."""

    def __init__(self, channel: socket.socket, alarm: asyncio.Timeout) -> None:
        self._channel, self._alarm, self._left = channel, alarm, 0.0
        self._running: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()

    async def next_frame(self, limit: int) -> tuple[str, bytes]:
        """The next frame; raise the error of a question as soon as it fails."""
        if not self._running:
            return await read_frame(self._channel, limit)
        reading = asyncio.ensure_future(read_frame(self._channel, limit))
        try:
            while not reading.done():
                await asyncio.wait({reading, *self._running}, return_when="FIRST_COMPLETED")
                self._collect_finished()
            return reading.result()
        finally:
            reading.cancel()

    def start_answering(self, payload: bytes) -> None:
        """Start answering a question."""
        when, now = self._alarm.when(), asyncio.get_running_loop().time()
        if not self._running and when is not None:
            self._left = when - now
            self._alarm.reschedule(None)
        self._running.add(asyncio.create_task(self._send_reply(json.loads(payload))))

    async def wait_for_all(self) -> None:
        """Wait for the questions in flight."""
        while self._running:
            await asyncio.wait(self._running)
            self._collect_finished()

    async def cancel_all(self) -> None:
        """Cancel the questions in flight."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _collect_finished(self) -> None:
        done = {task for task in self._running if task.done()}
        self._running -= done
        for task in done:
            task.result()
        if done and not self._running and self._alarm.when() is None and not self._alarm.expired():
            self._alarm.reschedule(asyncio.get_running_loop().time() + max(0.0, self._left))

    async def _send_reply(self, question: dict[str, object]) -> None:
        reply = await current_asker().ask(question)
        message = json.dumps({"number": question["number"], "reply": reply}).encode()
        async with self._writing:
            await write_frame(self._channel, "N", message)
