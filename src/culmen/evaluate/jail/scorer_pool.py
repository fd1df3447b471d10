"""The orchestrator's side of scorer processes (scorer.py): starts them, asks them, replaces those that die or hang."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any

import msgspec

from culmen.core.errors import TaskError
from culmen.core.evaluation import Case
from culmen.core.task import Evaluator
from culmen.evaluate.jail import bubblewrap, container, procfs, wire
from culmen.evaluate.jail.answering import conversed
from culmen.evaluate.jail.fork_server import ENVIRONMENT, START_SECONDS, read_frame, write_frame

_CODE = "import sys; sys.path.append({root!r}); from culmen.evaluate.jail.scorer import main; main()"


class ScorerFailed(Exception):
    """A scorer died, hung or sent an invalid answer."""


class ScorerStalled(ScorerFailed):
    """A scorer was busy with one output for longer than it may: the output is to blame."""


_BUSY = 0.2  # share of the time that a scorer must have computed, and not waited, to count as busy


class ScorerProcess:
    """One process with the evaluator loaded."""

    def __init__(self, evaluator: Evaluator, path: str = "") -> None:
        self.path = path or evaluator.path
        self._fix = "make the file importable and let it define the function its form needs"
        if evaluator.url or evaluator.program:
            self._fix = (
                "start the server, or correct [evaluator] url" if evaluator.url else "correct [evaluator] program"
            )
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        life, self._lifeline = os.pipe()
        line = [sys.executable, "-s", "-P", "-c", _CODE.format(root=str(bubblewrap.PACKAGE.parent))]
        role = "certify" if path else "score"
        elsewhere = json.dumps([evaluator.program, evaluator.url])
        line += [str(theirs.fileno()), str(life), self.path, evaluator.form, role, elsewhere]
        named = evaluator.options.get("environment", ())
        self._contained = next(iter(evaluator.program), "").startswith(container.CONTAINED)
        if self._contained:
            named = (*named, *container.ENVIRONS)
        wanted = {name: os.environ[name] for name in named if name in os.environ}
        home = {"HOME": os.environ.get("HOME", "/"), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by `ready`
        self._process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._complaints,
            env={**ENVIRONMENT, **home, **wanted}, pass_fds=[theirs.fileno(), life], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        os.close(life)

    async def ready(self) -> None:
        """Wait until the evaluator is loaded; a file that does not load raises TaskError with the end of its error
        output."""
        try:
            _, payload = await asyncio.wait_for(read_frame(self._channel, 1 << 20), START_SECONDS)
            error = json.loads(payload).get("error")
        except (EOFError, TimeoutError):
            self._complaints.seek(0)
            last = self._complaints.read()[-2000:].decode(errors="replace").strip()
            error = last or "its process ended or hung while it loaded"
        self._complaints.close()
        if error:
            raise TaskError(
                f"the evaluator cannot be used: {error.strip()}",
                where=self.path,
                fix=install_hint(error) or self._fix,
            )

    async def ask(
        self, request: dict[str, Any], output: bytes | None, program: socket.socket | None, seconds: float
    ) -> dict[str, Any]:
        """One answer within `seconds`, besides what models take. Raises ScorerFailed, ScorerStalled, and what an
        `Asker` raises; the process must then be replaced."""
        before = self._computed()
        try:
            async with asyncio.timeout(seconds) as alarm:
                await write_frame(self._channel, "S", json.dumps(request).encode())
                if program is not None:
                    socket.send_fds(self._channel, [b"P"], [program.fileno()])
                else:
                    await write_frame(self._channel, "D", output or b"")
                _, payload = await conversed(self._channel, 1 << 26, alarm)
            return json.loads(payload)
        except TimeoutError:
            busy = self._computed() - before
            if busy < _BUSY * seconds:
                raise ScorerFailed(f"the scorer did not answer within {seconds:g} s, and did not compute") from None
            raise ScorerStalled(f"judging the output took longer than {seconds:g} s") from None
        except (EOFError, OSError, ValueError, wire.WireError) as error:
            raise ScorerFailed(f"the scorer did not answer: {type(error).__name__}") from None

    def _computed(self) -> float:
        """Seconds of processor time of the scorer and the programs that it started itself."""
        pid = self._process.pid
        return sum(map(procfs.cpu_seconds, (pid, *procfs.children(pid))))

    async def close(self) -> None:
        """End the process and its session."""
        self._channel.close()
        os.close(self._lifeline)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        if self._contained:
            await asyncio.to_thread(container.sweep)


class ScorerPool:
    """Scorers, as many as are needed at once, kept running; at most one per evaluation in flight.

    `path` is the file they load, if it is not the evaluator itself: its verifier. `several`: the task has several
    objectives, so a result may be metrics without a score.
    """

    def __init__(self, evaluator: Evaluator, seconds: float, path: str = "", several: bool = False) -> None:
        self.evaluator, self.seconds, self.path, self.several = evaluator, seconds, path, several
        self._idle: list[ScorerProcess] = []
        self._busy: set[ScorerProcess] = set()
        self._retired: set[ScorerProcess] = set()

    async def start(self) -> None:
        """Load the evaluator once, so that a broken one is reported before the run."""
        self._idle.append(await self._new())

    async def _new(self) -> ScorerProcess:
        scorer = ScorerProcess(self.evaluator, self.path)
        try:
            await scorer.ready()
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
        program: socket.socket | None = None,
        patience: float = 0.0,
    ) -> dict[str, Any]:
        """Judge one output (or drive one `program`). Raises ScorerFailed if the scorer dies or is too slow."""
        scorer = self._idle.pop() if self._idle else await self._replacement()
        self._busy.add(scorer)
        request = {"case": None if case is None else msgspec.to_builtins(case), "seed": seed, "parts": parts}
        request |= {"several": True} if self.several else {}
        try:
            answer = await scorer.ask({**request, "seconds": seconds}, output, program, self.seconds + patience)
        except BaseException:
            self._busy.discard(scorer)
            self._retired.discard(scorer)
            await scorer.close()
            raise
        self._busy.discard(scorer)
        if scorer in self._retired:
            self._retired.discard(scorer)
            await scorer.close()
        else:
            self._idle.append(scorer)
        return answer

    async def renew(self) -> None:
        """Retire all present scorers; busy ones end after their answer."""
        idle, self._idle = self._idle, []
        self._retired |= self._busy
        for scorer in idle:
            await scorer.close()

    async def _replacement(self) -> ScorerProcess:
        try:
            return await self._new()
        except TaskError as error:
            raise ScorerFailed(error.what) from None

    async def close(self) -> None:
        """End all scorers."""
        scorers, self._idle = [*self._idle, *self._busy], []
        self._busy.clear()
        for scorer in scorers:
            await scorer.close()


def install_hint(traceback: str) -> str:
    """How to get the module that a traceback says is missing; "" if none is."""
    module = re.search(r"No module named '([\w.]+)'", traceback)
    return (
        f"install it where culmen is: {sys.executable} -m pip install {module[1].partition('.')[0]}" if module else ""
    )
