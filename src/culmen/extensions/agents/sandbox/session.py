"""Effects of one agent's session: work tree, queue, program or tools, and usage.

See `culmen/extensions/agents/messages.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from culmen.core.errors import IsolationError, UserError
from culmen.core.event import Custom
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.extensions.agents.adapters import Adapter, AgentJob, catalog, programs
from culmen.extensions.agents.messages import (
    Done,
    Ended,
    EndSession,
    Nudge,
    Open,
    Opened,
    Tool,
    Wait,
    Waited,
    to_plain_data,
)
from culmen.extensions.agents.sandbox import layout as records
from culmen.extensions.agents.sandbox import repository, safe, worktree
from culmen.extensions.agents.sandbox.confinement import (
    PORT,
    Confinement,
    ConfinementMethod,
    free_port,
    prepare_folders,
)
from culmen.extensions.agents.sandbox.intake import QueueScan, RequestQueue, printable_text
from culmen.extensions.agents.sandbox.layout import Layout, RecordLog, agent_tag
from culmen.extensions.agents.sandbox.meter import SessionMeter
from culmen.extensions.agents.sandbox.process import ProgramHost
from culmen.extensions.agents.sandbox.settings import WORD_CHARS, SandboxSettings
from culmen.extensions.agents.sandbox.tools import SandboxTools
from culmen.extensions.agents.sandbox.view import SharedView


class AgentSession:
    """The session of one agent, restored from the records of an earlier process."""

    def __init__(self, context: SessionContext, agent: int) -> None:
        self._context, self.agent = context, agent
        self._control = context.layout.control_folder(agent)
        self._waits = SessionWaits(context, agent, self._control / "waits.jsonl")
        self._tools: SandboxTools | None = None
        self._opened = records.read_record(self._control / "opened.json")
        if self._opened is not None:
            self._waits.kind, self._waits.limits = self._opened["kind"], self._opened["limits"]

    @property
    def is_open(self) -> bool:
        """True if the session was opened, by this or an earlier process."""
        return self._opened is not None

    @property
    def record(self) -> JsonObject:
        """The record of the session's opening."""
        return self._opened or {}

    async def open(self, request: Open, files: Mapping[str, bytes], base: str) -> Opened:
        """Create the work tree from `files` and start the program.

        A session that is open stays unchanged.
        """
        if self._opened is not None:
            return msgspec.convert(self._opened["opened"], Opened)
        context = self._context
        adapter = None if request.kind in NO_PROCESS else _adapter_or_fault(request.kind)
        if isinstance(adapter, str):
            return Opened(base, fault=adapter)
        confinement = self._confinement()
        texts = worktree.tree_files(
            {path: text for path, text in request.texts.items() if path not in worktree.VIEWED}
        )
        await asyncio.to_thread(self._create_folders, confinement, {**files, **texts})
        context.meter.load_earlier_usage(self.agent)
        opened = Opened(base, context.method.isolation)
        if adapter is not None:
            opened = await self._start_program(adapter, request, confinement, opened)
            if opened.fault:
                return opened
        text_names = {path: repository.blob_name(data) for path, data in texts.items()}
        self._opened = {
            "opened": to_plain_data(opened),
            "kind": request.kind,
            "limits": request.limits,
            "texts": text_names,
            "base": base,
        }
        records.write_record(self._control / "opened.json", self._opened)
        self._waits.kind, self._waits.limits = request.kind, dict(request.limits)
        return opened

    def _create_folders(self, confinement: Confinement, files: Mapping[str, bytes]) -> None:
        """Replace the agent's folders by fresh ones, with `files` in the work tree."""
        layout = self._context.layout
        view = None if self._context.method.name else layout.view
        shutil.rmtree(layout.work_folder(self.agent), True)
        layout.tree_folder(self.agent).parent.mkdir(parents=True)
        prepare_folders(confinement)
        if view is not None:
            # unconfined agents may have written into the view
            self._context.view.restore()
        worktree.create_work_tree(layout.tree_folder(self.agent), self.agent, files, None, view)
        worktree.set_tree_owner(layout.work_folder(self.agent), confinement.owner)

    async def wait(self, request: Wait) -> Custom:
        """Wait until there is an event to report."""
        return await self._waits.wait(request)

    async def use_tool(self, call: Tool) -> Custom:
        """Make one tool call."""
        if self._tools is None:
            self._tools = SandboxTools(
                self._confinement(), self._control / "tools.jsonl", self._context.going
            )
        return Custom(to_plain_data(await self._tools.answer_call(call)))

    async def nudge(self, request: Nudge) -> Custom:
        """Send a message to the program; after a crash it has none, and nothing is sent."""
        self._waits.restart_idle_clock()
        host = self._waits.host
        delivered = host is not None and await host.nudge(request.text)
        return Custom(to_plain_data(Done(delivered)))

    def on_results_written(self) -> None:
        """Restart the idle clock because results were written for the agent."""
        self._waits.restart_idle_clock()

    @property
    def can_read_answers(self) -> bool:
        """True if the program may still read an answer."""
        host = self._waits.host
        return self._waits.over is None and (host is None or not host.has_ended)

    async def end(self, request: EndSession) -> Custom:
        """End every process; return the texts that it left and the usage since the last wait."""
        known = records.read_record(self._control / "ended.json")
        if known is not None:
            return Custom(known["ended"], msgspec.convert(known["usage"], Usage))
        await self.stop(request.reason)
        await self._context.meter.close_account(self.agent)
        usage, host = self._waits.unreported_usage(), self._waits.host
        ended = Ended(
            self._read_left_text(repository.SHARED),
            self._read_left_text(f"notes/{agent_tag(self.agent)}.md"),
            self._transcript_path(),
            host.claimed_usage if host else {},
        )
        known = {
            "ended": to_plain_data(ended),
            "usage": msgspec.to_builtins(usage),
            "time": int(time.time()),
        }
        records.write_record(self._control / "ended.json", known)
        self._context.meter.mark_reported(self.agent)
        return Custom(known["ended"], usage)

    async def stop(self, reason: str) -> None:
        """End every process; waits in flight return."""
        self._waits.over = self._waits.over or Waited(ended="finished", word=reason)
        if self._waits.host is not None:
            await self._waits.host.end(reason)
        if self._tools is not None:
            await self._tools.end()
        self._waits.wake_wait()

    async def close(self) -> None:
        """Close all resources; keep the records."""
        if self._waits.host is not None:
            await self._waits.host.end("stopped")
        if self._tools is not None:
            await self._tools.close()
            self._tools = None
        await self._waits.close()

    def _confinement(self) -> Confinement:
        context = self._context
        return Confinement(
            context.layout,
            self.agent,
            context.settings,
            context.method.name,
            context.method.proc,
            hidden=context.hidden_paths,
            socket=context.meter.socket,
        )

    async def _start_program(
        self, adapter: Adapter, request: Open, confinement: Confinement, opened: Opened
    ) -> Opened:
        """Start the program; a failure is the `fault` of the result and is not raised."""
        meter, layout = self._context.meter, self._context.layout
        try:
            token, model = "", request.model
            if adapter.metered:
                token, model = await meter.open_account(
                    self.agent, request.model, adapter.wires, request.limits, self._waits.wake_wait
                )
            port = (PORT if confinement.method else free_port()) if token else 0
            url = f"http://127.0.0.1:{port}" if port else ""
            job = AgentJob(
                confinement.tree,
                confinement.home,
                request.prompt,
                model,
                url,
                token,
                limits=request.limits,
            )
            file = layout.transcript_file(self.agent)
            host = ProgramHost(
                self._confinement(),
                adapter,
                job,
                file,
                self._waits.wake_wait,
                self._context.going,
            )
            await host.start()
            self._waits.host = host
            version = await asyncio.to_thread(_adapter_version, adapter)
        except (UserError, OSError) as error:
            return msgspec.structs.replace(opened, fault=" ".join(str(error).split()))
        return msgspec.structs.replace(opened, metered=adapter.metered, version=version)

    def _read_left_text(self, path: str) -> str:
        try:
            tree = self._context.layout.tree_folder(self.agent)
            data = safe.read_regular_file(tree, path, 8 * WORD_CHARS)  # four bytes a character
        except (safe.IntakeRefused, OSError):
            return ""
        return printable_text(data.decode("utf-8", "replace"), 2 * WORD_CHARS)

    def _transcript_path(self) -> str:
        file = self._context.layout.transcript_file(self.agent)
        return str(file.relative_to(self._context.layout.run)) if file.exists() else ""


def _adapter_or_fault(kind: str) -> Adapter | str:
    """The adapter of that name, or the reason for its absence."""
    try:
        return catalog.adapter_by_name(kind)
    except UserError as error:
        return " ".join(str(error).split())


def _adapter_version(adapter: Adapter) -> str:
    try:
        return programs.program_version(programs.find_program(adapter.program))
    except UserError:
        return ""


# Events of a session, one wait after another; each wait has one fixed answer.

_POLL = 0.05  # seconds between scans of the queue
NO_PROCESS = ("builtin", "offline")


class SessionWaits:
    """The waits of one agent's session.

    `host` is its program in this process, None if there is none. `kind` and `limits` are those of
    its opening; `kind` is "" before it.
    """

    def __init__(self, context: SessionContext, agent: int, log: Path) -> None:
        self._context, self._agent = context, agent
        self._log = RecordLog(log)
        experiments = [
            experiment
            for wait in self._log.records
            for experiment in wait["waited"].get("experiments", ())
        ]
        self._handed = {experiment["ticket"] for experiment in experiments}
        self._queue = RequestQueue(
            context.layout.tree_folder(agent),
            agent,
            context.only_part,
            sum(bool(experiment.get("fault")) for experiment in experiments),
        )
        # earlier waits are in the journal: only the last one can be repeated
        del self._log.records[:-1]
        self._changed = asyncio.Event()
        self._unreported, self._quiet = 0.0, time.monotonic()
        self.host: ProgramHost | None = None
        self.kind, self.limits = "", dict[str, float]()
        self.over: Waited | None = None
        self._settling: asyncio.Future[None] | None = None

    async def wait(self, request: Wait) -> Custom:
        """Wait until there is an event to report; a repeated wait has the same answer."""
        for record in self._log.records:
            if record["nth"] == request.nth:
                return Custom(record["waited"], msgspec.convert(record["usage"], Usage))
        if self._settling is not None:
            await self._settling
        try:
            waited, done = await self._next_event()
        # the run or the search ends, and this agent is no longer awaited
        except asyncio.CancelledError:
            if self.host is not None:
                await self.host.end("stopped")
            raise
        usage = self.unreported_usage()
        total = msgspec.to_builtins(self._reported_usage() + usage)
        record = {
            "nth": request.nth,
            "waited": to_plain_data(waited),
            "usage": msgspec.to_builtins(usage),
            "total": total,
        }
        self._log.append_record(record, sync=False)
        del self._log.records[:-1]
        self._handed.update(experiment.ticket for experiment in waited.experiments)
        self._settling = asyncio.ensure_future(asyncio.to_thread(self._settle_requests, done))
        self._context.meter.mark_reported(self._agent)
        self._unreported = 0.0
        return Custom(record["waited"], usage)

    def _settle_requests(self, done: list[str]) -> None:
        """Finish the work that need not delay the agent; the next wait awaits it.

        After a power failure before its end, an experiment may be requested again under its old
        ticket.
        """
        self._log.sync()
        self._queue.remove_requests(done)

    def wake_wait(self) -> None:
        """Wake the wait in flight."""
        self._changed.set()

    def restart_idle_clock(self) -> None:
        """Restart the idle clock."""
        self._quiet = time.monotonic()

    def unreported_usage(self) -> Usage:
        """Usage that no wait has reported."""
        if self.kind in ("", *NO_PROCESS):
            return Usage()
        return self._context.meter.usage(self._agent) - self._reported_usage()

    async def close(self) -> None:
        """Close all resources; keep the records."""
        if self._settling is not None:
            await self._settling
            self._settling = None
        self._log.close()

    async def _next_event(self) -> tuple[Waited, list[str]]:
        """The next event, and the requests that it settles."""
        while True:
            self._changed.clear()
            # read before the queue, so that requests made before the end are still found
            over = self._session_end()
            patient = self.kind in NO_PROCESS  # such agents do not read that a request was refused
            batch = await asyncio.to_thread(
                self._queue.scan_requests, self._handed.__contains__, patient
            )
            if event := self._queue_event(batch):
                return event, batch.taken
            await asyncio.to_thread(self._queue.remove_requests, batch.taken)
            if over is not None and not batch.taken:
                self.over = over
                return over, []
            if self._is_report_due():
                return Waited(), []
            if (idle := self._idle_seconds()) is not None:
                self.restart_idle_clock()
                return Waited(idle=idle), []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _POLL)

    def _queue_event(self, batch: QueueScan) -> Waited | None:
        """The event in a scan of the queue; None if there is none."""
        self._context.view.publish_refusals(self._agent, batch.refused)
        if batch.finish is not None:
            self.over = Waited(ended="finished", word=batch.finish)
        if not (batch.experiments or batch.reports or batch.finish is not None):
            return None
        ended, word = ("finished", batch.finish) if batch.finish is not None else ("", "")
        return Waited(tuple(batch.experiments), tuple(batch.reports), ended, word)

    def _session_end(self) -> Waited | None:
        """The end of the session, None while it goes on; a limit that is reached ends it."""
        host = self.host
        if self.over is not None or self.kind in NO_PROCESS:
            return self.over
        if host is None:
            return Waited(ended="interrupted")
        if host.failure is not None:
            raise host.failure
        if not host.has_ended:
            if cause := self._reached_limit(host):
                self.over = Waited(ended=cause)
                self._ending = asyncio.ensure_future(host.end(cause))  # which wakes this wait
            return None
        return self._program_end(host)

    def _program_end(self, host: ProgramHost) -> Waited:
        """The end of a session whose program has exited."""
        parting = host.parting
        assert parting is not None
        if host.cause:
            return Waited(ended="crashed", word=host.cause)
        ended, word = parting.ended, parting.why or parting.word
        if ended == "finished":
            # some programs end a turn in which no model answered as if it were done
            failure = self._context.meter.last_failure(self._agent)
            ended, word = ("crashed", failure) if failure else (ended, parting.word)
        return Waited(ended=ended, word=printable_text(word, WORD_CHARS))

    def _reached_limit(self, host: ProgramHost) -> str:
        """The limit that this session has reached; "" if none."""
        if host.seconds >= self.limits.get("seconds", float("inf")):
            return "seconds"
        return self._context.meter.refusing_limit(self._agent)

    def _idle_seconds(self) -> float | None:
        """Seconds without a sign of life if they reach the limit; else None.

        An agent that waits for results does not idle.
        """
        if self.host is None or not all(map(self._context.view.has_experiment, self._handed)):
            return None
        idle = time.monotonic() - max(self.host.life, self._quiet)
        return idle if idle >= self.limits.get("idle", float("inf")) else None

    def _is_report_due(self) -> bool:
        if self.unreported_usage() == Usage():
            self._unreported = 0.0
            return False
        now = time.monotonic()
        self._unreported = self._unreported or now
        # longest delay in seconds until new usage is reported
        return now - self._unreported >= 10.0

    def _reported_usage(self) -> Usage:
        """Usage that all waits together have reported."""
        return (
            msgspec.convert(self._log.records[-1]["total"], Usage) if self._log.records else Usage()
        )


# Shared by all sessions of a run.


@dataclass
class SessionContext:
    """Context of all sessions of a run.

    `going` returns True while the search goes on. `unconfined` is the error for agents that must be
    confined and cannot be, None if they can.
    """

    layout: Layout
    task: Task
    settings: SandboxSettings
    method: ConfinementMethod
    view: SharedView
    meter: SessionMeter
    going: Callable[[], bool]
    unconfined: IsolationError | None = None

    @property
    def hidden_paths(self) -> tuple[str, ...]:
        """Paths that no agent may see: the run's folder and the evaluator's files."""
        evaluator = self.task.evaluator
        files = [path for path in (evaluator.path, evaluator.verifier) if path]
        folders = list(dict.fromkeys(str(Path(path).parent) for path in files))
        beside = [str(Path(folder) / name) for folder in folders for name in evaluator.files]
        return (str(self.layout.run), *folders, *files, *beside)

    @property
    def only_part(self) -> str:
        """Name of the task's only part; "" if it has several or none is known."""
        names = {name for seed in self.task.seeds for name in seed}
        return names.pop() if len(names) == 1 else ""
