"""The session world: performs the effects of agent sessions.

See `extensions/agents/messages.py` for their meaning and `layout.py` for the files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from culmen.core.errors import IsolationError, Unavailable
from culmen.core.event import Custom, CustomRequest
from culmen.core.json import JsonObject
from culmen.core.ports import CraftContext
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.extensions.agents.messages import (
    REPLIES,
    AnswerExperiments,
    Commit,
    Committed,
    Done,
    Open,
    from_plain_data,
    to_plain_data,
)
from culmen.extensions.agents.sandbox import confinement, layout, repository, worktree
from culmen.extensions.agents.sandbox.confinement import session_mark
from culmen.extensions.agents.sandbox.layout import Layout, agent_tag
from culmen.extensions.agents.sandbox.meter import SessionMeter
from culmen.extensions.agents.sandbox.process import end_strays
from culmen.extensions.agents.sandbox.repository import (
    TRUNK,
    CommitStamp,
    SharedRepository,
    commit_message,
)
from culmen.extensions.agents.sandbox.session import AgentSession, SessionContext
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.extensions.agents.sandbox.view import SharedView

_REQUESTS: JsonObject = {name.partition(".")[2]: kind for kind, (name, _) in REPLIES.items()}
HARMLESS = "offline"  # the kind of agent that runs no foreign code
_REFLECTIONS = (
    b"# Reflections\n\nWhat agents tried, what helped, what did not. Add to it; it is merged.\n"
)


class SessionWorld:
    """`core.ports.Craft` for the family `session`, one for each run.

    run       the run's folder
    models    a `--model` text (or mapping) and a models file, for agents' model calls
    permit    True if the run as a whole may spend this much more on model calls
    going     True while the search goes on; afterwards, running programs are ended
    history   payloads of the finished `session.answer` effects in the journal, in order
    """

    def __init__(
        self,
        run: Path,
        task: Task,
        settings: SandboxSettings | None = None,
        *,
        models: tuple[str | Mapping[str, object] | None, str | None] = (None, None),
        permit: Callable[[Usage], bool] = lambda _: True,
        going: Callable[[], bool] = lambda: True,
        history: Callable[[], Iterable[Mapping[str, object]]] = lambda: (),
    ) -> None:
        self._layout, self._task = Layout(Path(os.path.abspath(run))), task
        self._settings, self._history, self._going = settings or SandboxSettings(), history, going
        self._meter = SessionMeter(self._layout.run / "transcripts", models, permit)
        self._repo = SharedRepository(self._layout.repo)
        self._sessions: dict[int, AgentSession] = {}
        self._context: SessionContext | None = None
        self._starting, self._git, self._writing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()

    async def perform(self, request: CustomRequest) -> Custom:
        """Perform one effect.

        Raises `Unavailable` if the disk is full: all records are kept, and the run can be resumed.
        """
        try:
            return await self._dispatch_effect(request.kind.partition(".")[2], request.payload)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            fix = "make room, then: culmen resume RUN"
            raise Unavailable(
                "no space is left", where=str(error.filename or self._layout.run), fix=fix
            ) from error

    async def _dispatch_effect(self, kind: str, payload: JsonObject) -> Custom:
        context = await self._shared_context(payload.get("kind", ""))
        request = from_plain_data(payload, _REQUESTS[kind])
        if isinstance(request, Open):
            return await self._open_agent_session(request, context)
        if isinstance(request, AnswerExperiments):
            return await self._publish_answer(request, context)
        if isinstance(request, Commit):
            return Custom(to_plain_data(await self._commit_and_merge(request)))
        session = self._agent_session(request.agent, context)
        doing: JsonObject = {
            "wait": session.wait,
            "tool": session.use_tool,
            "nudge": session.nudge,
            "end": session.end,
        }
        return await doing[kind](request)

    async def close(self) -> None:
        """End every process of every session."""
        for session in self._sessions.values():
            await session.close()
        await self._meter.close()

    async def _shared_context(self, kind: str) -> SessionContext:
        """Context of all sessions, made at the first effect; from the journal in a resumed run.

        Raises IsolationError if an agent of this kind must be confined and cannot be.
        """
        async with self._starting:
            if self._context is None:
                self._context = await asyncio.to_thread(self._prepare_context)
            if self._context.unconfined is not None and kind not in ("", HARMLESS):
                raise self._context.unconfined
            return self._context

    def _prepare_context(self) -> SessionContext:
        self._layout.create_folders()
        unconfined: IsolationError | None = None
        try:
            method = confinement.choose_method(self._settings)
        except IsolationError as error:
            method, unconfined = confinement.ConfinementMethod("", True, "none"), error
        self._end_strays()
        about = {"task": self._task.name, "direction": self._task.objective.direction}
        view = SharedView(self._layout.view, about, keep=not method.name)
        view.build_from(
            from_plain_data({**payload}, AnswerExperiments) for payload in self._history()
        )
        self._history = tuple
        return SessionContext(
            self._layout,
            self._task,
            self._settings,
            method,
            view,
            self._meter,
            self._going,
            unconfined,
        )

    def _end_strays(self) -> None:
        """End processes of a driver that was killed while it started an agent."""
        for folder in (self._layout.run / "control").glob("a*"):
            if folder.name[1:].isdigit():
                end_strays(session_mark(self._layout.run, int(folder.name[1:])))

    def _agent_session(self, agent: int, context: SessionContext) -> AgentSession:
        if agent not in self._sessions:
            self._sessions[agent] = AgentSession(context, agent)
        return self._sessions[agent]

    async def _open_agent_session(self, request: Open, context: SessionContext) -> Custom:
        session = self._agent_session(request.agent, context)
        async with self._git:
            first = worktree.tree_files(
                {p: t for p, t in request.texts.items() if p not in worktree.VIEWED}
            )
            stamp = CommitStamp("culmen", int(time.time()))
            first = {repository.SHARED: _REFLECTIONS, **first}
            base = await asyncio.to_thread(
                self._repo.ensure_trunk, first, stamp, f"Task: {self._task.name}\n"
            )
            files = {} if session.is_open else await asyncio.to_thread(self._files_of_commit, base)
        board = request.texts.get("leaderboard.md", "")
        if board and not session.is_open:
            context.view.publish_answer(AnswerExperiments(request.agent, leaderboard=board))
        return Custom(to_plain_data(await session.open(request, files, base)))

    def _files_of_commit(self, commit: str) -> dict[str, bytes]:
        listing = self._repo.content_names(commit)
        contents = self._repo.read_contents(listing.values())
        return {path: contents[name] for path, name in listing.items()}

    async def _publish_answer(self, request: AnswerExperiments, context: SessionContext) -> Custom:
        async with self._writing:  # one after another, in the order of the requests
            await asyncio.to_thread(context.view.publish_answer, request)
        session = self._sessions.get(request.agent)
        if session is not None:
            session.on_results_written()
        return Custom(to_plain_data(Done(session is not None and session.can_read_answers)))

    async def _commit_and_merge(self, request: Commit) -> Committed:
        """Commit the permitted files of a work tree, merge them into the trunk, delete the tree."""
        async with self._git:
            file = self._layout.control_folder(request.agent) / "commit.json"
            known, head = layout.read_record(file), await asyncio.to_thread(self._repo.head)
            merged = known is not None and await asyncio.to_thread(
                self._repo.is_in_history, known["committed"]["commit"]
            )
            if known is None or not (merged or known["before"] == head):
                known = await asyncio.to_thread(self._write_commits, request, head)
                layout.write_record(file, known)
            done = from_plain_data(known["committed"], Committed)
            if not merged:
                refs = {TRUNK: done.trunk, f"refs/agents/{agent_tag(request.agent)}": done.commit}
                await asyncio.to_thread(self._repo.move_refs, refs)
            await asyncio.to_thread(shutil.rmtree, self._layout.work_folder(request.agent), True)
            return done

    def _write_commits(self, request: Commit, before: str) -> JsonObject:
        """Record of the new commits, which are not yet on the trunk; the trunk is at `before`."""
        assert self._context is not None
        session = self._agent_session(request.agent, self._context)
        stamp = self._commit_stamp(request.agent, session.record.get("kind", ""))
        base = session.record.get("base", "")
        base = base if self._repo.has_commit(base) else before
        old, trunk = self._repo.content_names(base), self._repo.content_names(before)
        tree, texts = self._layout.tree_folder(request.agent), session.record.get("texts", {})
        left = worktree.tree_changes(tree, request.agent, old, texts)
        board = self._context.view.leaderboard
        ours: dict[str, bytes | None] = {"leaderboard.md": board.encode()} if board else {}
        commit = self._repo.write_commit(
            stamp,
            commit_message(request.subject, request.trailers),
            {**left.changes, **ours},
            (base,),
        )
        merged, after = repository.Merged(), commit
        if before != base:
            merged = repository.merge_changes(
                old,
                trunk,
                left.changes,
                agent_tag(request.agent),
                lambda name: self._repo.read_contents([name])[name],
            )
            title = commit_message(
                f"Merge {agent_tag(request.agent)}", {"Conflicts": ", ".join(merged.conflicts)}
            )
            after = self._repo.write_commit(
                CommitStamp("culmen", stamp.time),
                title,
                {**merged.changes, **ours},
                (before, commit),
            )
        done = Committed(
            commit, after, tuple(sorted(left.changes)), tuple(left.dropped), tuple(merged.conflicts)
        )
        return {"committed": to_plain_data(done), "before": before}

    def _commit_stamp(self, agent: int, kind: str) -> CommitStamp:
        """The agent as author, at the end of its session."""
        ended = layout.read_record(self._layout.control_folder(agent) / "ended.json") or {}
        name = f"{agent_tag(agent)} {kind.partition(':')[0]}".strip()
        return CommitStamp(name, ended.get("time", int(time.time())))


def make_session_craft(context: CraftContext) -> SessionWorld:
    """The performer of a run's agent sessions."""
    return SessionWorld(
        context.run,
        context.task,
        SandboxSettings.from_values(context.settings),
        models=(context.model, context.models_file),
        permit=context.has_room,
        going=context.is_searching,
        history=lambda: context.past_payloads("session.answer"),
    )
