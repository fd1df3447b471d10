"""Embeddings from an OpenAI-compatible endpoint, under the same policies as the models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from culmen.core.errors import Unavailable
from culmen.core.usage import Usage, total
from culmen.llm.call import BadResponse, Call, Choice, Message, Reply
from culmen.llm.openai import Endpoint
from culmen.llm.providers import Providers
from culmen.llm.spec import Model
from culmen.llm.wire import read_body, read_tokens


class RemoteEmbedder:
    """Vectors of one model. Texts longer than `chars` characters are cut; `batch` texts go into one request.

    The vectors' width is the model's. Raises `UserError` (key, model) and `Unavailable` if the endpoint gives nothing
    usable after all retries: a search cannot go on without its distances.
    """

    def __init__(self, model: Model, *, batch: int = 64, chars: int = 24_000) -> None:
        self._model, self._batch, self._chars = model, batch, chars
        self._last = threading.local()
        self.name = model.name

    def embed(self, texts: Sequence[str]) -> Any:
        """Array of shape (len(texts), width), float32. Not to be called from a running event loop."""
        rows, self._last.usage = self.embed_with_usage(texts)
        return rows

    @property
    def usage_of_last(self) -> Usage:
        """What this thread's last `embed` cost."""
        return getattr(self._last, "usage", Usage())

    def embed_with_usage(self, texts: Sequence[str]) -> tuple[Any, Usage]:
        """The array, and what it cost."""
        return asyncio.run(self.embed_async(texts))

    async def embed_async(self, texts: Sequence[str]) -> tuple[Any, Usage]:
        """The same, inside an event loop."""
        import numpy as np

        if not texts:
            return np.zeros((0, 0), dtype=np.float32), Usage()
        backend = _Embeddings(Endpoint(self._model.provider.key, self._model.provider.address))
        providers = Providers()  # connections, lanes and health live as long as one event loop
        caller = providers.caller(msgspec.structs.replace(self._model, backend=backend))
        batches = [texts[i : i + self._batch] for i in range(0, len(texts), self._batch)]
        try:
            outcomes = await asyncio.gather(
                *(caller.call(self._call(batch), self._model.price_list) for batch in batches)
            )
        finally:
            await providers.close()
        for outcome in outcomes:
            if outcome.fault:
                raise Unavailable(f"no embeddings from {self.name}: {outcome.fault}", fix="resume the run later")
        rows = [msgspec.json.decode(c.text, type=list[float]) for outcome in outcomes for c in outcome.choices]
        return _unit(rows), total(outcome.usage for outcome in outcomes)

    def _call(self, texts: Sequence[str]) -> Call:
        messages = tuple(Message("input", text[: self._chars] or " ") for text in texts)
        return Call(self._model.model, messages, max_tokens=0, extra=self._model.extra)


class _Embeddings:
    """A backend whose samples are the vectors, as JSON, one for each message."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def complete(self, call: Call) -> Reply:
        create = self._endpoint.client.embeddings.with_raw_response.create
        texts = [message.content for message in call.messages]
        raw = await self._endpoint.post(
            create, model=call.model, input=texts, encoding_format="float", extra_body=call.extra or None
        )
        body = read_body(raw)
        tokens = read_tokens(body.get("usage"))
        return Reply(tuple(Choice(text) for text in _vectors(body.get("data"), len(texts), raw)), tokens)

    async def close(self) -> None:
        await self._endpoint.close()


def _vectors(data: object, count: int, raw: str) -> list[str]:
    if not isinstance(data, list) or len(data) != count:
        raise BadResponse("no_vectors", raw=raw[:2000])
    rows: list[list[float] | None] = [None] * count
    for place, item in enumerate(data):
        vector = item.get("embedding") if isinstance(item, dict) else None
        index = item.get("index", place) if isinstance(item, dict) else place
        if not _numbers(vector) or not isinstance(index, int) or not 0 <= index < count:
            raise BadResponse("no_vectors", raw=raw[:2000])
        rows[index] = vector
    if any(row is None or len(row) != len(rows[0] or ()) for row in rows):
        raise BadResponse("no_vectors", raw=raw[:2000])
    return [msgspec.json.encode(row).decode() for row in rows]


def _numbers(vector: object) -> bool:
    return isinstance(vector, list) and bool(vector) and all(isinstance(x, int | float) for x in vector)


def _unit(rows: list[list[float]]) -> Any:
    import numpy as np

    array = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return (array / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
