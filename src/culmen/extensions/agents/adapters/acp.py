"""The Agent Client Protocol: JSON-RPC, one message a line, over standard streams.

Requests, answers and errors are matched by the protocol's own SDK (`agent-client-protocol`). The
transport below it is culmen's own, and messages from agents are read as plain data instead of
through the SDK's models: a session must survive input on which those fail, such as garbage between
messages, lines of megabytes, unknown kinds of updates, and answers without a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import msgspec
from acp import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION, RequestError
from acp.connection import Connection

from culmen.core.json import JsonObject
from culmen.extensions.agents.adapters import AgentJob, OnEvent, Parting, Pipes, ProgramEvent
from culmen.extensions.agents.adapters.headless import (
    BOUND,
    LEAVE_SECONDS,
    LineReader,
    StreamTail,
    failure_summary,
    number_at,
    objects_at,
    parse_json_line,
    short_line,
    text_at,
    value_at,
    wait_for_exit,
)

OPEN_SECONDS = 300.0  # some programs load for a minute from a cold disk
_AUTH_REQUIRED = RequestError.auth_required().code
_FREE_MODES = ("bypassPermissions", "agent-full-access", "full-access", "yolo", "auto", "build")
_STOPS = {"max_turn_requests": "calls", "max_tokens": "tokens"}


class ProgramTransport:
    """The SDK's transport over a program's pipes.

    It passes on well-formed messages and never waits for the program to read. `over` is set at the
    end; `why` is then the fault, "" if the program exited.
    """

    def __init__(self, pipes: Pipes, on_event: OnEvent) -> None:
        assert pipes.stdin is not None
        self.over, self.why = asyncio.Event(), ""
        self._writer, self._on_event = pipes.stdin, on_event
        self._lines = aiter(LineReader(pipes.stdout, self.over))

    async def send(self, message: JsonObject) -> None:
        if self.why or self._writer.is_closing():
            return
        self._writer.write(msgspec.json.encode(message) + b"\n")
        # unread bytes after which a program counts as broken
        if self._writer.transport.get_write_buffer_size() > (8 << 20):
            self.why = "it does not read its input"
            self.over.set()

    async def receive(self) -> JsonObject | None:
        async for line in self._lines:
            self._on_event(ProgramEvent("life"))
            if self.why:
                break
            if (message := _well_formed(parse_json_line(line))) is not None:
                return message
        self.over.set()
        return None

    async def close(self) -> None:
        self.over.set()


def _well_formed(message: JsonObject | None) -> JsonObject | None:
    """The message reduced to fields that the SDK can read; None if it is not JSON-RPC."""
    if message is None:
        return None
    which, method = message.get("id"), message.get("method")
    if isinstance(method, str) and method:
        call = {"method": method, "params": message.get("params")}
        return call if which is None else {"id": which, **call}
    if method is not None or not isinstance(which, int) or isinstance(which, bool):
        return None
    if "error" not in message:
        return {"id": which, "result": message.get("result")}
    code = value_at(message, "error", "code")
    error = {
        "message": text_at(message, "error", "message"),
        "data": value_at(message, "error", "data"),
    }
    return {"id": which, "error": {"code": code if isinstance(code, int) else 0, **error}}


def claimed_tokens(usage: object) -> dict[str, float]:
    """Tokens of a turn, as an agent claims them: cached input and thoughts are parts of them.

    The protocol counts both apart. Agents that count them within input and output as well have a
    smaller total than the sum of all.
    """
    given, made = _either(usage, "inputTokens"), _either(usage, "outputTokens")
    total, thoughts = _either(usage, "totalTokens"), _either(usage, "thoughtTokens")
    cached = _either(usage, "cachedReadTokens") + _either(usage, "cachedWriteTokens")
    if not total or given + cached + made <= total:
        given += cached
    if not total or given + made + thoughts <= total:
        made += thoughts
    return {"input_tokens": given, "output_tokens": made}


def _either(usage: object, name: str) -> float:
    """A number under its name, or that name in snake case."""
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    return max(number_at(usage, name), number_at(usage, snake))


class AcpDialogue:
    """A `ProgramDialogue`: one session with a program that speaks the Agent Client Protocol.

    `login` is the program's method of authentication with a key.
    """

    def __init__(self, pipes: Pipes, job: AgentJob, on_event: OnEvent, login: str = "") -> None:
        self._pipes, self._job, self._on_event, self._login = pipes, job, on_event, login
        self.session = job.resume
        self._connection: Connection | None = None
        self._waiting: deque[str] = deque()
        self._open = self._prompting = self._over = False
        self._pieces = self._word = ""
        self._claimed: dict[str, float] = {}
        self._tools: dict[str, str] = {}

    async def interrupt_with(self, text: str) -> bool:
        """Cancel the current turn and queue a message as the next; False if the session is over."""
        if self._over:
            return False
        self._waiting.append(text)
        if self._prompting and self._connection is not None:
            with suppress(ConnectionError):
                await self._connection.send_notification(
                    AGENT_METHODS["session_cancel"], {"sessionId": self.session}
                )
        return True

    async def run(self) -> Parting:
        """Open the session, send the prompt and queued messages, and return when none is left."""
        transport = ProgramTransport(self._pipes, self._on_event)
        gone, complaints = asyncio.Event(), StreamTail()
        leaving = asyncio.ensure_future(wait_for_exit(self._pipes.wait(), gone))
        leaving.add_done_callback(lambda _: transport.over.set())
        aside = asyncio.ensure_future(
            complaints.collect_lines(LineReader(self._pipes.stderr, gone))
        )
        self._connection = Connection(self._on_message, transport)
        try:
            ended, fault = await self._run_turns(transport)
            if ended == "crashed" and transport.over.is_set() and not transport.why:
                await asyncio.wait((leaving,), timeout=LEAVE_SECONDS)
            if gone.is_set():
                await aside
        finally:
            self._over = True
            for task in (aside, leaving):
                task.cancel()
            await self._connection.close()
        code = leaving.result() if leaving.done() and not leaving.cancelled() else None
        why = failure_summary(fault, code, complaints.text if ended == "crashed" else "")
        return Parting(ended, self._last_word(), why, self.session, self._claimed, code)

    async def _run_turns(self, transport: ProgramTransport) -> tuple[str, str]:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._open_session()
            # messages may have been queued during the start
            message = "\n\n".join((self._job.prompt, *self._waiting))
            self._waiting.clear()
            while True:
                try:
                    stop = await self._send_prompt(message)
                except RequestError:  # some programs answer a cancelled prompt with an error
                    if not self._waiting:
                        raise
                    stop = "cancelled"
                if not self._waiting:
                    break
                message = self._waiting.popleft()
        except TimeoutError:
            return "crashed", f"no session within {OPEN_SECONDS:g} seconds"
        except ConnectionError:
            return "crashed", transport.why or "it exited in the middle of its work"
        except RequestError as error:
            return "crashed", f"{error} {short_line(error.data)}".strip()
        if stop in ("end_turn", "cancelled"):
            return "finished", ""
        return _STOPS.get(stop, "crashed"), f"it stopped: {stop or 'no reason given'}"

    async def _send_request(self, method: str, **params: object) -> object:
        """Send a request and return its result.

        Raises RequestError for an error answer, ConnectionError if an answer can no longer come.
        """
        assert self._connection is not None
        return await self._connection.send_request(AGENT_METHODS[method], params)

    async def _open_session(self) -> None:
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "culmen", "title": "culmen", "version": "1"}
        hello = await self._send_request(
            "initialize",
            protocolVersion=PROTOCOL_VERSION,
            clientCapabilities=capabilities,
            clientInfo=client,
        )
        try:
            opened = await self._load_or_create_session(hello)
        except RequestError as error:
            method = self._login_method(hello)
            if error.code != _AUTH_REQUIRED or not method:
                raise
            await self._send_request("authenticate", methodId=method)
            opened = await self._load_or_create_session(hello)
        self._open = True
        self._on_event(ProgramEvent("session", self.session))
        await self._switch_to_free_mode(opened)

    async def _load_or_create_session(self, hello: object) -> object:
        tools = self._job.tools
        server = (
            {"name": "tools", "command": tools[0], "args": tools[1:], "env": []} if tools else {}
        )
        where: JsonObject = {"cwd": self._job.tree, "mcpServers": [server] if tools else []}
        if self._job.resume and value_at(hello, "agentCapabilities", "loadSession") is True:
            return await self._send_request("session_load", sessionId=self._job.resume, **where)
        opened = await self._send_request("session_new", **where)
        self.session = text_at(opened, "sessionId")
        if not self.session:
            raise RequestError(0, "it opened a session without an id")
        return opened

    def _login_method(self, hello: object) -> str:
        """Method of authentication that takes a key from the environment; "" if there is none."""
        known = [text_at(method, "id") for method in objects_at(hello, "authMethods")]
        return (
            self._login
            if self._login in known
            else next((name for name in known if "key" in name.lower()), "")
        )

    async def _switch_to_free_mode(self, opened: object) -> None:
        """Switch to the mode with the fewest permission prompts; the sandbox is the protection."""
        modes = {text_at(mode, "id") for mode in objects_at(opened, "modes", "availableModes")}
        wanted = next((mode for mode in _FREE_MODES if mode in modes), "")
        if wanted and wanted != text_at(opened, "modes", "currentModeId"):
            try:
                await self._send_request("session_set_mode", sessionId=self.session, modeId=wanted)
            except RequestError as error:
                self._on_event(
                    ProgramEvent(
                        "refused",
                        f"mode {wanted}: {short_line(f'{error} {short_line(error.data)}'.strip())}",
                    )
                )

    async def _send_prompt(self, message: str) -> str:
        self._prompting = True
        try:
            words = [{"type": "text", "text": message}]
            reply = await self._send_request("session_prompt", sessionId=self.session, prompt=words)
        finally:
            self._prompting = False
        usage = value_at(reply, "usage") or value_at(reply, "_meta", "quota", "token_count")
        for name, amount in claimed_tokens(usage).items():
            if amount:
                self._claimed[name] = self._claimed.get(name, 0.0) + amount
        return text_at(reply, "stopReason")

    async def _on_message(
        self, method: str, params: object, notification: bool
    ) -> JsonObject | None:
        """Handle a message from the agent; every permission is granted."""
        if notification:
            # updates before `_open` replay the messages of a loaded session
            if method == CLIENT_METHODS["session_update"] and self._open:
                self._on_session_update(value_at(params, "update"))
            return None
        if method != CLIENT_METHODS["session_request_permission"]:
            raise RequestError.method_not_found(method)
        options = objects_at(params, "options")
        chosen = next(
            (
                o
                for kind in ("allow_always", "allow_once")
                for o in options
                if o.get("kind") == kind
            ),
            None,
        )
        if chosen is None:
            self._on_event(
                ProgramEvent(
                    "refused", short_line(text_at(params, "toolCall", "title") or "a tool call")
                )
            )
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen.get("optionId")}}

    def _on_session_update(self, update: object) -> None:
        kind = text_at(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            self._pieces = (self._pieces + text_at(update, "content", "text"))[-BOUND:]
            return
        if kind != "usage_update":
            self._last_word()
        if kind == "usage_update" and text_at(update, "cost", "currency") == "USD":
            self._claimed["dollars"] = number_at(update, "cost", "amount")  # a running sum
        elif kind == "agent_thought_chunk":
            self._on_event(ProgramEvent("thought", text_at(update, "content", "text")[:BOUND]))
        elif kind in ("tool_call", "tool_call_update"):
            self._report_tool_call(update)

    def _report_tool_call(self, update: object) -> None:
        """Report a tool call; some programs send its argument only in a later update."""
        which, detail = text_at(update, "toolCallId"), short_line(value_at(update, "rawInput"))
        if (
            (which in self._tools and not detail)
            or self._tools.get(which) == detail
            or len(self._tools) > 100_000  # tool calls of one session
        ):
            return
        self._tools[which] = detail
        title = short_line(text_at(update, "title") or text_at(update, "kind"))
        self._on_event(ProgramEvent("tool", f"{title} {detail}".strip()))

    def _last_word(self) -> str:
        pieces, self._pieces = self._pieces.strip(), ""
        if pieces:
            self._word = pieces
            self._on_event(ProgramEvent("text", pieces))
        return self._word
