"""Programs that are started with a prompt, print events as lines of JSON, and exit.

Also the reading of any program's output: lines among garbage, of any length, from pipes that may
never close.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import msgspec

from culmen.core.errors import UserError
from culmen.core.foreign import Unreadable, boundary
from culmen.core.json import JsonObject
from culmen.extensions.agents.adapters import (
    AgentJob,
    OnEvent,
    Parting,
    Pipes,
    Plan,
    ProgramEvent,
    programs,
)

# seconds for the exit after a program's last event; some wait for their background processes
LEAVE_SECONDS = 60.0
_UNREACHABLE = (
    "connection refused",
    "econnrefused",
    "connection error",
    "fetch failed",
    "error sending request",
    "unable to connect",
)
LONGEST = 32 << 20  # bytes of one line; agents put whole files into an event
BOUND = 4000  # characters of any text that is passed on
# seconds of silence on a pipe after its program has exited: other processes may hold it open
QUIET = 2.0


class LineReader:
    """Lines of a stream, until it ends or `gone` is set and `QUIET` seconds pass in silence.

    `patience` is the longest silence in seconds while the process is running; None for no limit.
    Lines over `longest` bytes are dropped and counted in `dropped`.
    """

    def __init__(self, stream: asyncio.StreamReader, gone: asyncio.Event, longest: int = 0) -> None:
        self._stream, self._gone, self._longest = stream, gone, longest or LONGEST
        self.patience: float | None = None
        self.dropped = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest, skipping = bytearray(), False
        while chunk := await self._next_chunk():
            *pieces, tail = chunk.split(b"\n")
            for piece in pieces:
                if not skipping:
                    rest += piece
                    yield bytes(rest)
                rest, skipping = bytearray(), False
            if not skipping:
                rest += tail
            if len(rest) > self._longest:
                rest, skipping = bytearray(), True
                self.dropped += 1
        if rest and not skipping:
            yield bytes(rest)

    async def _next_chunk(self) -> bytes:
        """The next bytes; b"" at the end."""
        reading = asyncio.ensure_future(self._read_chunk())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait(
                (reading, gone), timeout=self.patience, return_when=asyncio.FIRST_COMPLETED
            )
            if gone.done() and not reading.done():
                await asyncio.wait((reading,), timeout=QUIET)
            return reading.result() if reading.done() else b""
        finally:
            gone.cancel()
            reading.cancel()

    async def _read_chunk(self) -> bytes:
        try:
            return await self._stream.read(1 << 16)
        except OSError:  # a broken pipe has ended
            return b""


class StreamTail:
    """The end of a stream as text; the stream is read to its end in the background."""

    def __init__(self, size: int = BOUND) -> None:
        self._kept, self._size = bytearray(), size

    def add_line(self, piece: bytes) -> None:
        """Add a line."""
        self._kept += piece[-4 * self._size :] + b"\n"
        del self._kept[: -4 * self._size]

    async def collect_lines(self, lines: LineReader) -> None:
        """Add all lines, to the end."""
        async for line in lines:
            self.add_line(line)

    @property
    def text(self) -> str:
        """The kept text, at most `size` characters."""
        return self._kept.decode("utf-8", "replace").strip()[-self._size :]


async def wait_for_exit(wait: Awaitable[int], gone: asyncio.Event) -> int:
    """Set `gone` when the process has ended; return its exit code.

    `wait` may be shared: it is not cancelled.
    """
    try:
        return await asyncio.shield(wait)
    finally:
        gone.set()


def parse_json_line(line: bytes) -> JsonObject | None:
    """The JSON object on a line; None for anything else."""
    line = line.strip()
    if not line.startswith(b"{"):
        return None
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def value_at(value: object, *path: str | int) -> object:
    """The value at a path of keys and indices; None if the path does not exist."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = (
                value[step]
                if isinstance(value, list) and -len(value) <= step < len(value)
                else None
            )
    return value


def text_at(value: object, *path: str | int) -> str:
    """The string at a path; "" if there is none."""
    item = value_at(value, *path)
    return item if isinstance(item, str) else ""


def number_at(value: object, *path: str | int) -> float:
    """The number at a path if it is finite and not negative; else 0."""
    item = value_at(value, *path)
    if isinstance(item, int | float) and not isinstance(item, bool) and 0 <= item < 1e15:
        return float(item)
    return 0.0


def objects_at(value: object, *path: str | int) -> list[JsonObject]:
    """The objects in the list at a path."""
    items = value_at(value, *path)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def short_line(value: object, size: int = 300) -> str:
    """The value on one line of at most `size` characters."""
    words = (
        value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    )
    words = " ".join(words[: 4 * size].split())
    return words if len(words) <= size else words[: size - 1] + "…"


class StreamReading:
    """State read from the event stream of one kind of program; subclasses read the events.

    over    by its own account the program has finished
    fault   reason of a failure, "" if there is none
    ended   the failure's word for `Parting.ended`, "" if it is not known
    stuck   the last event showed no progress
    """

    def __init__(self, job: AgentJob, on_event: OnEvent) -> None:
        self.job, self._on_event = job, on_event
        self.session, self.word, self.fault, self.ended = job.resume, "", "", ""
        self.over = self.stuck = False
        self.claimed: dict[str, float] = {}

    def read_line(self, line: bytes) -> None:
        """Read one line of output; one that cannot be read is trouble."""
        try:
            self._read_line(line)
        except Unreadable as error:
            self.report_event("trouble", error.what)

    @boundary()
    def _read_line(self, line: bytes) -> None:
        event = parse_json_line(line)
        if event is None:
            return self.report_event("life")
        self.over = self.stuck = False
        self.read_event(event)
        if not self.stuck:
            self.report_event("life")

    def read_event(self, event: JsonObject) -> None:
        """Read one event; it must not raise, whatever the event holds."""
        raise NotImplementedError

    def on_exit(self, code: int | None) -> None:
        """Draw conclusions from the program's exit code."""

    def report_event(self, kind: str, text: str = "") -> None:
        """Report an event to the host."""
        self._on_event(
            ProgramEvent(
                kind,
                text
                if kind in ("text", "session") and len(text) <= BOUND
                else short_line(text, BOUND),
            )
        )

    def note_session(self, session: str) -> None:
        """Note the program's id of the session."""
        if session and session != self.session and len(session) <= 200:
            self.session = session
            self.report_event("session", session)

    def note_failure(self, fault: str) -> None:
        """Note a failure; the program may retry."""
        self.fault, self.stuck = fault, True
        self.report_event("trouble", fault)

    def note_message(self, text: str) -> None:
        """Note a text meant for people; the last one is the program's final message."""
        if text.strip():
            self.word = text.strip()[-BOUND:]
            self.report_event("text", text)

    def add_claimed_usage(self, **amounts: float) -> None:
        """Add to the program's claimed usage."""
        for name, amount in amounts.items():
            if amount:
                self.claimed[name] = self.claimed.get(name, 0.0) + amount


class HeadlessDialogue:
    """A `ProgramDialogue`: one run of a headless program.

    `feed` is the text for its standard input.
    """

    def __init__(self, pipes: Pipes, reading: StreamReading, feed: str = "") -> None:
        self._pipes, self._reading, self._feed = pipes, reading, feed

    @property
    def session(self) -> str:
        """The program's own id of the session; "" until it is known."""
        return self._reading.session

    async def interrupt_with(self, text: str) -> bool:
        """False: a headless program takes no message while it runs."""
        return False

    async def run(self) -> Parting:
        """Read the output to its end."""
        if self._feed and self._pipes.stdin is not None:
            self._pipes.stdin.write(self._feed.encode("utf-8", "replace"))
            self._pipes.stdin.close()  # once it is written
        gone = asyncio.Event()
        leaving = asyncio.ensure_future(wait_for_exit(self._pipes.wait(), gone))
        complaints = StreamTail()
        aside = asyncio.ensure_future(
            complaints.collect_lines(LineReader(self._pipes.stderr, gone))
        )
        try:
            await self._read_events(LineReader(self._pipes.stdout, gone))
            await asyncio.wait((leaving,), timeout=LEAVE_SECONDS)
            if leaving.done():
                await aside
            return self._make_parting(leaving.result() if leaving.done() else None, complaints.text)
        finally:
            aside.cancel()
            leaving.cancel()

    async def _read_events(self, lines: LineReader) -> None:
        async for line in lines:
            self._reading.read_line(line)
            lines.patience = LEAVE_SECONDS if self._reading.over else None

    def _make_parting(self, code: int | None, complaint: str) -> Parting:
        reading = self._reading
        reading.on_exit(code)
        ended, fault = reading.ended, reading.fault
        if not ended:
            ended = "crashed" if fault or code or not reading.over else "finished"
        why = "" if ended == "finished" else failure_summary(fault, code, complaint)
        if ended == "crashed" and any(sign in why.lower() for sign in _UNREACHABLE):
            ended = "unavailable"
        return Parting(ended, reading.word, why or fault, reading.session, reading.claimed, code)


def failure_summary(fault: str, code: int | None, complaint: str) -> str:
    """One bounded text: the reported fault, the exit code, the end of the error output."""
    left = "" if code in (0, None) else f"exit code {code}"
    # without the marks below a traceback's lines, which mean nothing on one line
    complaint = "\n".join(line for line in complaint.splitlines() if line.strip("^~ "))
    return "; ".join(
        part
        for part in (short_line(fault, 1000), left, short_line(complaint[-1000:], 1000))
        if part
    )


class HeadlessAdapter:
    """Base of adapters for headless programs.

    By default the programs are metered and take further messages by resuming the session.
    `model_words` and `resume_words` stand before a model's name and a session's id on the command
    line, `tools` is False for a program that is not given an MCP server.
    """

    name = program = ""
    metered, nudges, resumes = True, False, True
    wires: tuple[str, ...] = ()
    reading = StreamReading
    model_words, resume_words = ("--model",), ("--resume",)
    stdin, tools = False, True

    def plan(self, job: AgentJob) -> Plan:
        """Plan of the start. Raises UserError if the program is not installed."""
        if job.tools and not self.tools:
            raise UserError(
                f"the agent {self.name} is not given an MCP server here",
                where=f"--agent {self.name}",
                fix="--agent claude, codex, opencode, gemini, acp:... or 'cmd: ...'",
            )
        installed = programs.find_program(self.program)
        model = self.model_name(job)
        more = [*self.model_words, model] if model else []
        more += [*self.resume_words, job.resume] if job.resume else []
        return Plan(
            (*installed.command, *self.arguments(job, more)),
            self.environment(job),
            installed.path,
            self.files(job),
            installed.visible,
            stdin=self.stdin,
            network=not self.metered,
        )

    def arguments(self, job: AgentJob, more: list[str]) -> list[str]:
        """The command line after the program; `more` are its words for model and session."""
        raise NotImplementedError

    def model_name(self, job: AgentJob) -> str:
        """The model's name in the program's form; "" for its own default."""
        return job.model

    @staticmethod
    def environment(job: AgentJob) -> dict[str, str]:
        """Variables that lead the program to the relay and switch off its other traffic."""
        raise NotImplementedError

    @staticmethod
    def files(job: AgentJob) -> dict[str, str]:
        """The program's settings, by path in HOME."""
        return {}

    def open_dialogue(self, pipes: Pipes, job: AgentJob, on_event: OnEvent) -> HeadlessDialogue:
        """Dialogue that reads the program's output."""
        return HeadlessDialogue(pipes, self.reading(job, on_event))
