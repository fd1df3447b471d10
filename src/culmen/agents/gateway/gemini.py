"""Google's generateContent."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from culmen.agents.gateway.formats import Format, Refused, positive, with_tools
from culmen.agents.gateway.reading import Heard, count, dicts, inner
from culmen.llm.call import Tokens
from culmen.llm.spec import ModelSpec

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SPENT = {  # the sign of a quota that does not come back soon; without it Google's own client tries for minutes
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"subject": "culmen", "description": "budget", "quotaId": "BudgetPerDay"}],
}
_ACTIONS = {"generate": "generateContent", "stream": "streamGenerateContent", "count": "countTokens"}
_HOSTED = ("googleSearch", "googleSearchRetrieval", "googleMaps", "urlContext", "codeExecution", "fileSearch")


class GeminiReader:
    """A `culmen.agents.gateway.reading.Reader`. Every event is a whole reply in small; the last count holds.

    Thoughts are output; what tools of the provider read is input.
    """

    def __init__(self) -> None:
        self.heard, self.complete = Heard(), False
        self.tokens: Tokens | None = None
        self._calls = 0

    def whole(self, body: dict[str, Any]) -> None:
        self.event(body)

    def event(self, body: dict[str, Any]) -> None:
        for candidate in dicts(body.get("candidates"))[:1]:
            self.heard.finish = str(candidate.get("finishReason") or self.heard.finish)
            for part in dicts(inner(candidate, "content").get("parts")):
                self._part(part)
        blocked = inner(body, "promptFeedback").get("blockReason")
        self.heard.finish = str(blocked or self.heard.finish)
        usage = body.get("usageMetadata")
        if (read := count(usage, "promptTokenCount")) is not None:
            read += count(usage, "toolUsePromptTokenCount") or 0
            written = (count(usage, "candidatesTokenCount") or 0) + (count(usage, "thoughtsTokenCount") or 0)
            self.tokens = Tokens(read, written, count(usage, "cachedContentTokenCount") or 0)
        self.complete = bool(self.heard.finish) and self.tokens is not None

    def _part(self, part: dict[str, Any]) -> None:
        (self.heard.reasoning if part.get("thought") is True else self.heard.text).add(part.get("text"))
        if (call := inner(part, "functionCall")) or "functionCall" in part:
            self._calls += 1
            self.heard.call(self._calls, call.get("name"), json.dumps(call.get("args") or {}))


class Gemini(Format):
    """See https://ai.google.dev/api/generate-content."""

    name = "gemini"
    conversation = "contents"
    dearer = ("serviceTier", "service_tier")
    elsewhere = ("cachedContent", "cached_content")

    def streams(self, body: dict[str, Any], action: str) -> bool:
        return action == "stream"

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        if "generation_config" in body and "generationConfig" in body:
            raise Refused(400, "'generationConfig' is given twice")
        at = "generation_config" if "generation_config" in body else "generationConfig"
        config = inner(body, at)
        name = "max_output_tokens" if "max_output_tokens" in config else "maxOutputTokens"
        most = positive(config.get(name), name, model.max_tokens)
        several = config.get("candidateCount", config.get("candidate_count"))
        return {**body, at: {**config, name: most}}, most * positive(several, "candidateCount", 1)

    def named(self, body: dict[str, Any], model: str) -> dict[str, Any]:
        name = {"model": f"models/{model}"}
        if "generateContentRequest" in body:
            body = {**body, "generateContentRequest": {**inner(body, "generateContentRequest"), **name}}
        return {**body, **name} if "model" in body else body

    def reader(self) -> GeminiReader:
        return GeminiReader()

    def path(self, model: str, action: str) -> str:
        return f"/models/{quote(model, safe='/')}:{_ACTIONS[action]}"

    def error(self, refused: Refused) -> dict[str, Any]:
        error = {"code": refused.status, "message": refused.message, "status": _STATUS.get(refused.status, "INTERNAL")}
        return {"error": {**error, "details": [_SPENT] if refused.status == 429 and refused.final else []}}

    def local(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        tools = dicts(body.get("tools"))
        removed = [name for tool in tools for name in tool if _camel(name) in _HOSTED]
        kept = [{name: value for name, value in tool.items() if name not in removed} for tool in tools]
        return (with_tools(body, [tool for tool in kept if tool]), removed) if removed else (body, removed)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
