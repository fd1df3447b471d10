"""Agent Client Protocol: JSON-RPC, one message a line, over a program's standard streams.

A client of our own: it is small, and it has to go on where a strict one gives up - garbage between messages, kinds of
updates it has never heard of, answers nobody asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from culmen.agents.adapters.base import Heard, Job, Parting, Pipes, Sign
from culmen.agents.adapters.headless import LEAVE_SECONDS, explain
from culmen.agents.adapters.lines import BOUND, Lines, Tail, at, follow, items, number, parse, short, text

VERSION = 1
OPEN_SECONDS = 300.0  # some load for a minute on a cold disk
_UNREAD = 8 << 20  # bytes that an agent may leave unread before it counts as broken
_MANY = 100_000  # tool calls of one session that are told
_AUTH_REQUIRED = -32000
_FREE_MODES = ("bypassPermissions", "agent-full-access", "full-access", "yolo", "auto", "build")
_STOPS = {"max_turn_requests": "calls", "max_tokens": "tokens"}


class Refused(Exception):
    """The agent answered a request with an error; the text is its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Left(Exception):
    """The agent is gone; the text says how it looks."""


class Connection:
    """Requests and answers; updates go to `on_update`, permission is given to whatever is asked."""

    def __init__(self, pipes: Pipes, heard: Heard) -> None:
        assert pipes.stdin is not None
        self._in, self._heard = pipes.stdin, heard
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count, self._over, self._why = 0, False, ""
        self.on_update: Callable[[Any], None] = _nothing

    async def request(self, method: str, **params: Any) -> Any:
        """Raises Refused, or Left if no answer can come any more."""
        if self._over:
            raise Left(self._why)
        self._count += 1
        future = self._asked[self._count] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return await future

    def notify(self, method: str, **params: Any) -> None:
        """Say without asking."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def read(self, lines: Lines) -> None:
        """Serve the agent until it is gone; every request still open then raises Left."""
        try:
            async for line in lines:
                message = parse(line)
                if message is not None and not self._over:
                    self._take(message)
                self._heard(Sign("life"))
        finally:
            self.close()

    def close(self, why: str = "it left in the middle of its work") -> None:
        """No more answers."""
        self._over, self._why = True, self._why or why
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Left(self._why))
                future.exception()  # it may be that nobody waits any more

    def _send(self, message: dict[str, Any]) -> None:
        if self._over or self._in.is_closing():
            return
        self._in.write(msgspec.json.encode(message) + b"\n")
        if self._in.transport.get_write_buffer_size() > _UNREAD:
            self.close("it does not read what it is told")

    def _take(self, message: dict[str, Any]) -> None:
        number_, method = message.get("id"), text(message, "method")
        if method and number_ is not None:
            self._send({"jsonrpc": "2.0", "id": number_, **self._answer(method, at(message, "params"))})
        elif method == "session/update":
            self.on_update(at(message, "params", "update"))
        elif not method:
            self._answered(number_, message)

    def _answer(self, method: str, params: Any) -> dict[str, Any]:
        if method != "session/request_permission":
            return {"error": {"code": -32601, "message": f"{method} is not offered"}}
        options = items(params, "options")
        chosen = next((o for kind in ("allow_always", "allow_once") for o in options if o.get("kind") == kind), None)
        asked = short(text(params, "toolCall", "title") or "a tool call")
        if chosen is None:
            self._heard(Sign("refused", asked))
            return {"result": {"outcome": {"outcome": "cancelled"}}}
        return {"result": {"outcome": {"outcome": "selected", "optionId": chosen.get("optionId")}}}

    def _answered(self, which: Any, message: dict[str, Any]) -> None:
        future = self._asked.pop(which, None) if isinstance(which, int) else None
        if future is None or future.done():
            return
        if "error" in message:
            said = text(message, "error", "message")
            detail = short(at(message, "error", "data"))
            code = at(message, "error", "code")
            future.set_exception(Refused(code if isinstance(code, int) else 0, f"{said} {detail}".strip()))
        else:
            future.set_result(message.get("result"))


def _nothing(_: Any) -> None: ...


class Conversation:
    """One session over a connection; `Talk` of the host."""

    def __init__(self, pipes: Pipes, job: Job, heard: Heard, login: str = "") -> None:
        self._pipes, self._job, self._heard, self._login = pipes, job, heard, login
        self._connection = Connection(pipes, heard)
        self.session = job.resume
        self._waiting: deque[str] = deque()
        self._prompting = self._over = False
        self._pieces = self._word = ""
        self._claimed: dict[str, float] = {}
        self._tools: dict[str, str] = {}

    async def say(self, text: str) -> bool:
        """Interrupts what it is doing; it hears the text next. False when its turn is over."""
        if self._over:
            return False
        self._waiting.append(text)
        if self._prompting:
            self._connection.notify("session/cancel", sessionId=self.session)
        return True

    async def run(self) -> Parting:
        """Open the session, give it the prompt and what is said later, until it has nothing more to do."""
        gone, complaints = asyncio.Event(), Tail()
        leaving = asyncio.ensure_future(follow(self._pipes.wait(), gone))
        reading = asyncio.ensure_future(self._connection.read(Lines(self._pipes.stdout, gone)))
        aside = asyncio.ensure_future(_collect(Lines(self._pipes.stderr, gone), complaints))
        try:
            ended, fault = await self._turns()
            if ended == "crashed" and reading.done():
                await asyncio.wait((leaving,), timeout=LEAVE_SECONDS)
            if gone.is_set():
                await aside
        finally:
            self._over = True
            self._connection.close()
            for task in (reading, aside, leaving):
                task.cancel()
        code = leaving.result() if leaving.done() and not leaving.cancelled() else None
        why = explain(fault, code, complaints.text if ended == "crashed" else "")
        return Parting(ended, self._last_word(), why, self.session, self._claimed, code)

    async def _turns(self) -> tuple[str, str]:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._open()
            said = "\n\n".join((self._job.prompt, *self._waiting))  # some of it was said while it started
            self._waiting.clear()
            while True:
                try:
                    stop = await self._prompt(said)
                except Refused:  # some answer an interrupted prompt with an error
                    if not self._waiting:
                        raise
                    stop = "cancelled"
                if not self._waiting:
                    break
                said = self._waiting.popleft()
        except TimeoutError:
            return "crashed", f"no session within {OPEN_SECONDS:g} seconds"
        except (Refused, Left) as error:
            return "crashed", str(error)
        if stop in ("end_turn", "cancelled"):
            return "finished", ""
        return _STOPS.get(stop, "crashed"), f"it stopped: {stop or 'no reason given'}"

    async def _open(self) -> None:
        ask = self._connection.request
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "culmen", "title": "culmen", "version": "1"}
        hello = await ask("initialize", protocolVersion=VERSION, clientCapabilities=capabilities, clientInfo=client)
        try:
            opened = await self._session(hello)
        except Refused as error:
            method = self._method(hello)
            if error.code != _AUTH_REQUIRED or not method:
                raise
            await ask("authenticate", methodId=method)
            opened = await self._session(hello)
        self._connection.on_update = self._update
        self._heard(Sign("session", self.session))
        await self._free(opened)

    async def _session(self, hello: Any) -> Any:
        where: dict[str, Any] = {"cwd": self._job.tree, "mcpServers": []}
        if self._job.resume and at(hello, "agentCapabilities", "loadSession") is True:
            return await self._connection.request("session/load", sessionId=self._job.resume, **where)
        opened = await self._connection.request("session/new", **where)
        self.session = text(opened, "sessionId")
        if not self.session:
            raise Refused(0, "it opened a session without an id")
        return opened

    def _method(self, hello: Any) -> str:
        """The way to sign in that takes a key from the environment."""
        known = [text(method, "id") for method in items(hello, "authMethods")]
        return self._login if self._login in known else next((name for name in known if "key" in name.lower()), "")

    async def _free(self, opened: Any) -> None:
        """The mode that asks least; the sandbox around it is the protection."""
        modes = {text(mode, "id") for mode in items(opened, "modes", "availableModes")}
        wanted = next((mode for mode in _FREE_MODES if mode in modes), "")
        if wanted and wanted != text(opened, "modes", "currentModeId"):
            try:
                await self._connection.request("session/set_mode", sessionId=self.session, modeId=wanted)
            except Refused as error:
                self._heard(Sign("refused", f"mode {wanted}: {short(str(error))}"))

    async def _prompt(self, said: str) -> str:
        self._prompting = True
        try:
            words = [{"type": "text", "text": said}]
            reply = await self._connection.request("session/prompt", sessionId=self.session, prompt=words)
        finally:
            self._prompting = False
        self._usage(at(reply, "usage") or at(reply, "_meta", "quota", "token_count"))
        return text(reply, "stopReason")

    def _usage(self, usage: Any) -> None:
        for name, theirs in _TOKENS.items():
            amount = max(number(usage, key) for key in theirs)
            if amount:
                self._claimed[name] = self._claimed.get(name, 0.0) + amount

    def _update(self, update: Any) -> None:
        kind = text(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            self._pieces = (self._pieces + text(update, "content", "text"))[-BOUND:]
            return
        if kind != "usage_update":
            self._last_word()
        if kind == "usage_update" and text(update, "cost", "currency") == "USD":
            self._claimed["dollars"] = number(update, "cost", "amount")  # a running sum
        elif kind == "agent_thought_chunk":
            self._heard(Sign("thought", text(update, "content", "text")[:BOUND]))
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(update)

    def _tool(self, update: Any) -> None:
        """Some tell what a tool is asked only after they have told that it is called."""
        which, detail = text(update, "toolCallId"), short(at(update, "rawInput"))
        if (which in self._tools and not detail) or self._tools.get(which) == detail or len(self._tools) > _MANY:
            return
        self._tools[which] = detail
        self._heard(Sign("tool", f"{short(text(update, 'title') or text(update, 'kind'))} {detail}".strip()))

    def _last_word(self) -> str:
        pieces, self._pieces = self._pieces.strip(), ""
        if pieces:
            self._word = pieces
            self._heard(Sign("text", pieces))
        return self._word


_TOKENS = {
    "input_tokens": ("inputTokens", "input_tokens"),
    "output_tokens": ("outputTokens", "output_tokens"),
}


async def _collect(lines: Lines, tail: Tail) -> None:
    async for line in lines:
        tail.add(line)
