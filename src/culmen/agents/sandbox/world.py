"""The session world: performs the effects of agent sessions.

See `core/session.py` for their meaning and `layout.py` for the files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from culmen.agents.sandbox import confinement, layout, repository, worktree
from culmen.agents.sandbox.confinement import mark
from culmen.agents.sandbox.layout import Layout, tag
from culmen.agents.sandbox.meter import SessionMeter
from culmen.agents.sandbox.process import end_strays
from culmen.agents.sandbox.repository import TRUNK, CommitStamp, SharedRepository, message
from culmen.agents.sandbox.session import AgentSession, SessionContext
from culmen.agents.sandbox.settings import SandboxSettings
from culmen.agents.sandbox.view import SharedView
from culmen.core.errors import IsolationError, Unavailable
from culmen.core.event import Custom, CustomRequest
from culmen.core.session import (
    AnswerExperiments,
    Commit,
    Committed,
    Done,
    EndSession,
    Nudge,
    Open,
    Tool,
    Wait,
    plain,
    read,
)
from culmen.core.task import Task
from culmen.core.usage import Usage

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
        models: tuple[Any, str | None] = (None, None),
        permit: Callable[[Usage], bool] = lambda _: True,
        going: Callable[[], bool] = lambda: True,
        history: Callable[[], Iterable[Mapping[str, Any]]] = lambda: (),
    ) -> None:
        self._layout, self._task = Layout(Path(os.path.abspath(run))), task
        self._settings, self._history, self._going = settings or SandboxSettings(), history, going
        self._meter = SessionMeter(self._layout.run / "transcripts", models, permit)
        self._repo = SharedRepository(self._layout.repo)
        self._sessions: dict[int, AgentSession] = {}
        self._place: SessionContext | None = None
        self._starting, self._git, self._writing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()

    async def perform(self, request: CustomRequest) -> Custom:
        """Perform one effect.

        Raises `Unavailable` if the disk is full: all records are kept, and the run can be resumed.
        """
        try:
            return await self._perform(request.kind.partition(".")[2], request.payload)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            fix = "make room, then: culmen resume RUN"
            raise Unavailable(
                "no space is left", where=str(error.filename or self._layout.run), fix=fix
            ) from error

    async def _perform(self, kind: str, payload: dict[str, Any]) -> Custom:
        place = await self._ready(payload.get("kind", ""))
        match kind:
            case "open":
                return await self._open(read(payload, Open), place)
            case "answer":
                return await self._answer(read(payload, AnswerExperiments), place)
            case "commit":
                return Custom(plain(await self._commit(read(payload, Commit))))
            case "wait":
                return await self._session(payload["agent"], place).wait(read(payload, Wait))
            case "tool":
                return await self._session(payload["agent"], place).tool(read(payload, Tool))
            case "nudge":
                return await self._session(payload["agent"], place).nudge(read(payload, Nudge))
            case "end":
                return await self._session(payload["agent"], place).end(read(payload, EndSession))
        raise ValueError(f"sessions know no effect '{kind}'")

    async def close(self) -> None:
        """End every process of every session."""
        for session in self._sessions.values():
            await session.close()
        await self._meter.close()

    async def _ready(self, kind: str) -> SessionContext:
        """Context of all sessions, made at the first effect; from the journal in a resumed run.

        Raises IsolationError if an agent of this kind must be confined and cannot be.
        """
        async with self._starting:
            if self._place is None:
                self._place = await asyncio.to_thread(self._prepared)
            if self._place.unconfined is not None and kind not in ("", HARMLESS):
                raise self._place.unconfined
            return self._place

    def _prepared(self) -> SessionContext:
        self._layout.make()
        unconfined: IsolationError | None = None
        try:
            way = confinement.choose(self._settings)
        except IsolationError as error:
            way, unconfined = confinement.ConfinementMethod("", True, "none"), error
        self._end_strays()
        about = {"task": self._task.name, "direction": self._task.objective.direction}
        view = SharedView(self._layout.view, about, keep=not way.name)
        view.make(read({**payload}, AnswerExperiments) for payload in self._history())
        self._history = tuple
        return SessionContext(
            self._layout,
            self._task,
            self._settings,
            way,
            view,
            self._meter,
            self._going,
            unconfined,
        )

    def _end_strays(self) -> None:
        """End processes of a driver that was killed while it started an agent."""
        for folder in (self._layout.run / "control").glob("a*"):
            if folder.name[1:].isdigit():
                end_strays(mark(self._layout.run, int(folder.name[1:])))

    def _session(self, agent: int, place: SessionContext) -> AgentSession:
        if agent not in self._sessions:
            self._sessions[agent] = AgentSession(place, agent)
        return self._sessions[agent]

    async def _open(self, ask: Open, place: SessionContext) -> Custom:
        session = self._session(ask.agent, place)
        async with self._git:
            first = worktree.texts_of(
                {p: t for p, t in ask.texts.items() if p not in worktree.VIEWED}
            )
            stamp = CommitStamp("culmen", int(time.time()))
            first = {repository.SHARED: _REFLECTIONS, **first}
            base = await asyncio.to_thread(
                self._repo.ready, first, stamp, f"Task: {self._task.name}\n"
            )
            files = {} if session.is_open else await asyncio.to_thread(self._files, base)
        board = ask.texts.get("leaderboard.md", "")
        if board and not session.is_open:
            place.view.answer(AnswerExperiments(ask.agent, leaderboard=board))
        return Custom(plain(await session.open(ask, files, base)))

    def _files(self, commit: str) -> dict[str, bytes]:
        listing = self._repo.listing(commit)
        contents = self._repo.contents(listing.values())
        return {path: contents[name] for path, name in listing.items()}

    async def _answer(self, ask: AnswerExperiments, place: SessionContext) -> Custom:
        async with self._writing:  # one after another, in the order of the requests
            await asyncio.to_thread(place.view.answer, ask)
        session = self._sessions.get(ask.agent)
        if session is not None:
            session.answered()
        return Custom(plain(Done(session is not None and session.alive)))

    async def _commit(self, ask: Commit) -> Committed:
        """Commit the permitted files of a work tree, merge them into the trunk, delete the tree."""
        async with self._git:
            file = self._layout.control(ask.agent) / "commit.json"
            known, head = layout.read_record(file), await asyncio.to_thread(self._repo.head)
            merged = known is not None and await asyncio.to_thread(
                self._repo.contains, known["committed"]["commit"]
            )
            if known is None or not (merged or known["before"] == head):
                known = await asyncio.to_thread(self._made, ask, head)
                layout.write_record(file, known)
            done = read(known["committed"], Committed)
            if not merged:
                refs = {TRUNK: done.trunk, f"refs/agents/{tag(ask.agent)}": done.commit}
                await asyncio.to_thread(self._repo.move, refs)
            await asyncio.to_thread(shutil.rmtree, self._layout.work(ask.agent), True)
            return done

    def _made(self, ask: Commit, before: str) -> dict[str, Any]:
        """Record of the new commits, which are not yet on the trunk; the trunk is at `before`."""
        assert self._place is not None
        session = self._session(ask.agent, self._place)
        ended = layout.read_record(self._layout.control(ask.agent) / "ended.json") or {}
        stamp = CommitStamp(
            f"{tag(ask.agent)} {session.record.get('kind', '').partition(':')[0]}".strip(),
            ended.get("time", int(time.time())),
        )
        base = session.record.get("base", "")
        base = base if self._repo.has(base) else before
        old, trunk = self._repo.listing(base), self._repo.listing(before)
        left = worktree.left(
            self._layout.tree(ask.agent), ask.agent, old, session.record.get("texts", {})
        )
        board = self._place.view.leaderboard
        ours: dict[str, bytes | None] = {"leaderboard.md": board.encode()} if board else {}
        commit = self._repo.commit(
            stamp, message(ask.subject, ask.trailers), {**left.changes, **ours}, (base,)
        )
        merged, after = repository.Merged(), commit
        if before != base:
            merged = repository.merge(
                old,
                trunk,
                left.changes,
                tag(ask.agent),
                lambda name: self._repo.contents([name])[name],
            )
            title = message(f"Merge {tag(ask.agent)}", {"Conflicts": ", ".join(merged.conflicts)})
            after = self._repo.commit(
                CommitStamp("culmen", stamp.time),
                title,
                {**merged.changes, **ours},
                (before, commit),
            )
        done = Committed(
            commit, after, tuple(sorted(left.changes)), tuple(left.dropped), tuple(merged.conflicts)
        )
        return {"committed": plain(done), "before": before}
