"""Serves a candidate's tools over the Model Context Protocol, inside an agent's sandbox.

    python3 -I serving.py SURFACE.json

The agent's program starts it, so it has the agent's user, limits and world. Calls go to the
original server, with names and arguments mapped back, or to the candidate's own functions; all
other messages pass between agent and server unchanged. It needs only the standard library of
Python 3.8, for the image of a task has its own. The document:

    tools      [{name, own, description, schema, file, arguments}]; null: all of the server's
    server     command of the original server, [] without one; own_first: an installed one of that
               name goes before
    code       folder of the candidate's files; check: load them all at the start
    folder, variables, path   working directory, environment and folders for PATH
    log        file to which lists and calls are appended, "" for none
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
import traceback
from types import ModuleType
from typing import BinaryIO

Message = dict  # a decoded JSON object
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # reached by initialize
_NOT_FOUND, _UNFIT = -32601, -32602
_SHOWN = 300  # characters of a text in the log


class ToolGate:
    """The surface between an agent's client and the tools."""

    def __init__(self, surface: Message, out: BinaryIO) -> None:
        self._surface, self._out = surface, out
        self._tools = {tool["name"]: tool for tool in surface["tools"] or ()}
        self._server: subprocess.Popen[bytes] | None = None
        self._waiting: dict[str, tuple[str, str]] = {}  # by a request's id: its method and tool
        self._modules: dict[str, ModuleType] = {}
        self._writing, self._calling = threading.Lock(), threading.Lock()

    # -- messages

    def start_server(self) -> None:
        """Start the original server, if there is one."""
        words = self._surface["server"]
        if not words:
            return
        found = shutil.which(os.path.basename(words[0])) if self._surface["own_first"] else None
        line = [found or words[0], *words[1:]]
        self._server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self._read_server, daemon=True).start()

    def run(self, lines: BinaryIO) -> None:
        """Answer the client until its messages end."""
        for line in lines:
            message = _parsed(line)
            if message is not None:
                self._on_client(message)
        if self._server is not None:
            self._server.kill()

    def _send(self, message: Message) -> None:
        with self._writing:
            self._out.write(json.dumps(message).encode() + b"\n")
            self._out.flush()

    def _forward(self, message: Message) -> None:
        assert self._server is not None and self._server.stdin is not None
        try:
            self._server.stdin.write(json.dumps(message).encode() + b"\n")
            self._server.stdin.flush()
        except OSError:
            if "id" in message and "method" in message:
                self._answer(message, {"error": {"code": -32603, "message": "the server ended"}})

    def _answer(self, request: Message, body: Message) -> None:
        self._send({"jsonrpc": "2.0", "id": request["id"], **body})

    def _on_client(self, message: Message) -> None:
        method, key = message.get("method"), json.dumps(message.get("id"))
        if method == "tools/call" and self._surface["tools"] is not None:
            self._call(message, key)
        elif self._server is not None:
            if method == "tools/list":
                params = message.get("params")
                is_later = isinstance(params, dict) and params.get("cursor") is not None
                self._waiting[key] = ("tools/list", "later" if is_later else "")
            self._forward(message)
        elif "id" in message and method is not None:
            self._answer(message, self._own_answer(str(method), message.get("params") or {}))

    def _own_answer(self, method: str, params: Message) -> Message:
        """The answer of a surface without a server."""
        if method == "initialize":
            asked = params.get("protocolVersion")
            about = {"name": "tools", "version": "1"}
            version = asked if asked in VERSIONS else VERSIONS[-1]
            known = {"tools": {}}
            return {
                "result": {"protocolVersion": version, "capabilities": known, "serverInfo": about}
            }
        if method == "tools/list":
            return {"result": {"tools": self._listed([], True)}}
        if method == "ping":
            return {"result": {}}
        return {"error": {"code": _NOT_FOUND, "message": "there is no method " + method}}

    def _read_server(self) -> None:
        assert self._server is not None and self._server.stdout is not None
        for line in self._server.stdout:
            message = _parsed(line)
            if message is None:
                continue
            if "method" not in message:
                self._map_answer(message)
            self._send(message)
        os._exit(self._server.wait() or 1)  # the client sees that the server has ended

    def _map_answer(self, message: Message) -> None:
        """Put the shown tools into a list, and note the result of a call."""
        method, name = self._waiting.pop(json.dumps(message.get("id")), ("", ""))
        result = message.get("result")
        if method == "tools/list" and isinstance(result, dict):
            if self._surface["tools"] is not None:
                theirs = [each for each in result.get("tools") or () if isinstance(each, dict)]
                result["tools"] = self._listed(theirs, name != "later")
        elif method == "tools/call":
            failed = not isinstance(result, dict) or bool(result.get("isError"))
            self._log({"result": name, "failed": failed, "text": _text_of(message)})

    # -- tools

    def _listed(self, theirs: list[Message], is_first: bool) -> list[Message]:
        """The tools as the agent sees them, of a page of the server's; own ones on the first.

        Some clients read no further one.
        """
        found, known = [], {tool.get("name"): tool for tool in theirs}
        for tool in self._tools.values():
            if tool["file"] and is_first:
                base = {}
            elif not tool["file"] and tool["own"] in known:
                base = known[tool["own"]]
            else:
                continue
            shown = {"name": tool["name"], "description": tool["description"]}
            schema = {} if tool["schema"] is None else {"inputSchema": tool["schema"]}
            found.append({**base, **shown, **schema})
        self._log({"listed": [tool["name"] for tool in found]})
        return found

    def _call(self, message: Message, key: str) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        name, given = params.get("name"), params.get("arguments")
        given = given if isinstance(given, dict) else {}
        tool = self._tools.get(name) if isinstance(name, str) else None
        if "id" not in message:
            return
        if tool is None:
            error = {"code": _UNFIT, "message": "there is no tool " + str(name)[:100]}
            self._answer(message, {"error": error})
            return
        self._log({"call": name, "arguments": json.dumps(given)[:_SHOWN]})
        own = {tool["arguments"].get(word, word): value for word, value in given.items()}
        if not tool["file"]:
            self._waiting[key] = ("tools/call", tool["name"])
            mapped = {**params, "name": tool["own"], "arguments": own}
            self._forward({**message, "params": mapped})
            return
        threading.Thread(target=self._call_function, args=(message, tool, own), daemon=True).start()

    def _call_function(self, message: Message, tool: Message, given: Message) -> None:
        """Answer with the result of the candidate's function; its errors are results, too."""
        try:
            with self._calling:
                value = getattr(self.load(tool["file"]), tool["own"])(**given)
                value = asyncio.run(value) if inspect.iscoroutine(value) else value
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            failed = False
        except BaseException as error:  # noqa: BLE001 (SystemExit of a tool is its result, too)
            text, failed = f"{type(error).__name__}: {error}", True
            traceback.print_exc()
        content = [{"type": "text", "text": text}]
        self._log({"result": tool["name"], "failed": failed, "text": text[:_SHOWN]})
        self._answer(message, {"result": {"content": content, "isError": failed}})

    def load(self, file: str) -> ModuleType:
        """The module of one of the candidate's files."""
        if file not in self._modules:
            name = file[: -len(".py")]
            path = os.path.join(self._surface["code"], file)
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            self._modules[file] = module
        return self._modules[file]

    def _log(self, row: Message) -> None:
        if self._surface["log"]:
            with contextlib.suppress(OSError):
                with open(self._surface["log"], "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def _parsed(line: bytes) -> Message | None:
    """The message on a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text_of(message: Message) -> str:
    """The first text of an answer."""
    result = message.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    texts = [each.get("text") for each in content or () if isinstance(each, dict)]
    return str(texts[0] if texts else message.get("error", ""))[:_SHOWN]


def main(argv: list[str]) -> None:
    """Serve until the client's messages end."""
    with open(argv[0], encoding="utf-8") as file:
        surface = json.load(file)
    lines, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what a tool prints is no message
    os.environ.update(surface["variables"])
    path = [*surface["path"], os.environ.get("PATH", os.defpath)]
    os.environ["PATH"] = os.pathsep.join(path)
    os.chdir(surface["folder"])
    sys.path.insert(0, surface["code"])
    sys.dont_write_bytecode = True
    gate = ToolGate(surface, out)
    if surface["check"]:
        for file in {tool["file"] for tool in surface["tools"] or () if tool["file"]}:
            gate.load(file)
    gate.start_server()
    gate.run(lines)
    os._exit(0)  # tools may still be at work


if __name__ == "__main__":
    main(sys.argv[1:])
