"""Shared pieces of the gateway's tests: real sockets, a scripted model, real SDKs.

The sockets are on the loopback, the model is upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from culmen.core.usage import Budget
from culmen.extensions.agents.gateway.metering import Metering
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from tests.servers.model_script import ToolCall, Turn
from tests.servers.model_server import ModelServer

SECRET = "sk-upstream-0123456789abcdefSECRET"
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
COST = Tokens(1000, 50, 800)
TURN = Turn(
    "I will look.",
    (ToolCall("bash", {"command": "ls -la"}), ToolCall("bash", {"command": "pwd"})),
    COST,
)
FORMATS = ("chat", "responses", "messages", "gemini")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UPSTREAM_KEY", SECRET)


def model(server: ModelServer, **settings: Any) -> ModelSpec:
    """A model served by the scripted server, with a price.

    A dollar a million tokens of input, two of output, cached a tenth.
    """
    provider = Provider("mine", f"{server.url}/v1", "UPSTREAM_KEY")
    return ModelSpec(
        **{"provider": provider, "model": "big", "price": Price(1.0, 2.0, 0.1), **settings}
    )


class Agent:
    """A coding agent's requests in one of the four formats, by the SDK if there is one."""

    def __init__(self, gateway: Metering, token: str, url: str = "") -> None:
        self.gateway, self.token, self.url = gateway, token, url or gateway.url
        self.http = httpx2.AsyncClient(timeout=60)
        self._sdks: list[Any] = []

    @functools.cached_property
    def openai(self) -> Any:
        """A client of OpenAI's SDK."""
        return self._sdk(pytest.importorskip("openai").AsyncOpenAI, f"{self.url}/v1")

    @functools.cached_property
    def anthropic(self) -> Any:
        """A client of Anthropic's SDK."""
        return self._sdk(pytest.importorskip("anthropic").AsyncAnthropic, self.url)

    def _sdk(self, client: Callable[..., Any], url: str) -> Any:
        self._sdks.append(client(api_key=self.token, base_url=url, max_retries=0))
        return self._sdks[-1]

    async def ask(
        self, form: str, text: str = "hi", stream: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """The reply's text and the arguments of its tool calls."""
        return await getattr(self, f"_{form}")(text, stream)

    async def _chat(self, text: str, stream: bool) -> tuple[str, list[dict[str, Any]]]:
        asked: Any = {
            "model": "x",
            "messages": [{"role": "user", "content": text}],
            "tools": [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}],
        }
        if stream:
            async with self.openai.chat.completions.stream(**asked) as events:
                async for _ in events:
                    pass
                reply: Any = await events.get_final_completion()
        else:
            reply = await self.openai.chat.completions.create(**asked)
        message = reply.choices[0].message
        return message.content, [
            json.loads(call.function.arguments) for call in message.tool_calls or []
        ]

    async def _responses(self, text: str, stream: bool) -> tuple[str, list[dict[str, Any]]]:
        tools: Any = [{"type": "function", "name": "bash", "parameters": SHELL, "strict": False}]
        if stream:
            async with self.openai.responses.stream(model="x", input=text, tools=tools) as events:
                async for _ in events:
                    pass
                reply: Any = await events.get_final_response()
        else:
            reply = await self.openai.responses.create(model="x", input=text, tools=tools)
        calls = [
            json.loads(item.arguments) for item in reply.output if item.type == "function_call"
        ]
        return reply.output_text, calls

    async def _messages(self, text: str, stream: bool) -> tuple[str, list[dict[str, Any]]]:
        asked: Any = {
            "model": "x",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": text}],
            "tools": [{"name": "bash", "input_schema": SHELL}],
        }
        if stream:
            async with self.anthropic.messages.stream(**asked) as events:
                reply: Any = await events.get_final_message()
        else:
            reply = await self.anthropic.messages.create(**asked)
        said = "".join(block.text for block in reply.content if block.type == "text")
        return said, [block.input for block in reply.content if block.type == "tool_use"]

    async def _gemini(self, text: str, stream: bool) -> tuple[str, list[dict[str, Any]]]:
        tools = [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SHELL}]}]
        response = await self.post("gemini", text, stream, tools=tools)
        response.raise_for_status()
        lines = [
            line.removeprefix("data: ")
            for line in response.text.splitlines()
            if line.startswith("data: ")
        ]
        bodies = [json.loads(line) for line in lines] if stream else [response.json()]
        parts = [part for body in bodies for part in body["candidates"][0]["content"]["parts"]]
        said = "".join(part.get("text", "") for part in parts)
        return said, [part["functionCall"]["args"] for part in parts if "functionCall" in part]

    async def post(
        self, form: str, text: str = "hi", stream: bool = False, **fields: Any
    ) -> httpx2.Response:
        """The plain request, as bytes see it."""
        path, body = request(form, text, stream)
        headers = {"authorization": f"Bearer {self.token}"}
        return await self.http.post(self.url + path, json={**body, **fields}, headers=headers)

    async def close(self) -> None:
        for client in self._sdks:
            await client.close()
        await self.http.aclose()


def request(form: str, text: str = "hi", stream: bool = False) -> tuple[str, dict[str, Any]]:
    """Path and body of a plain request."""
    said = [{"role": "user", "content": text}]
    flag = {"stream": True} if stream else {}
    action = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return {
        "chat": ("/v1/chat/completions", {"model": "x", "messages": said, **flag}),
        "responses": ("/v1/responses", {"model": "x", "input": said, **flag}),
        "messages": ("/v1/messages", {"model": "x", "max_tokens": 100, "messages": said, **flag}),
        "gemini": (
            f"/v1beta/models/x:{action}",
            {"contents": [{"role": "user", "parts": [{"text": text}]}]},
        ),
    }[form]


@contextlib.asynccontextmanager
async def running(
    models: Mapping[str, ModelSpec | Provider],
    folder: Path,
    budget: Budget | None = None,
    **settings: Any,
) -> AsyncIterator[Agent]:
    """A gateway with one agent."""
    async with Metering(models, folder, **settings) as gateway:
        agent = Agent(gateway, gateway.open("a", budget=budget))
        try:
            yield agent
        finally:
            await agent.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that will come about."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def rows(folder: Path, agent: str = "a") -> list[dict[str, Any]]:
    """An agent's transcript."""
    return [json.loads(line) for line in (folder / f"agent-{agent}.jsonl").read_text().splitlines()]
