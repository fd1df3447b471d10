"""Embeddings by models, remote or on this machine.

An endpoint, or an embedder supplied by the caller, under the retry policy of all models; or a
model on this machine (extra `local-embeddings`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import Unavailable, UserError, missing_extra
from culmen.core.ports import Embedder
from culmen.core.usage import Usage, total_usage
from culmen.models.backends import read_body, read_tokens
from culmen.models.call import (
    BadResponse,
    Call,
    ChatMessage,
    Completion,
    ModelBackend,
    Reply,
    Tokens,
)
from culmen.models.caller import Caller, Providers
from culmen.models.endpoint import Endpoint
from culmen.models.spec import ModelSpec, PriceList

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_MODE = "<encoder-only>"
_CHARS = 24_000  # of a text that an endpoint gets: 8,000 tokens of three characters
_WINDOW = 512  # tokens in the model's window


class RemoteEmbedder(Embedder):
    """Vectors of one model behind an endpoint.

    Texts longer than `_CHARS` characters are cut; one request carries `batch` texts. The width of
    the vectors is the model's. Raises `UserError` (key, model), and `Unavailable` if the endpoint
    returns nothing usable after all retries: a search cannot continue without its distances.
    """

    def __init__(self, model: ModelSpec, *, batch: int = 64) -> None:
        self._model, self._batch = model, batch
        self.name = model.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Array of shape (len(texts), width), float32.

        Not to be called from a running event loop.
        """
        return self.embed_with_usage(texts)[0]

    def embed_with_usage(self, texts: Sequence[str]) -> tuple[Vectors, Usage]:
        """The array and its cost."""
        return asyncio.run(self.embed_async(texts))

    async def embed_async(self, texts: Sequence[str]) -> tuple[Vectors, Usage]:
        """The array and its cost, inside an event loop."""
        import numpy as np

        if not texts:
            return np.zeros((0, 0), dtype=np.float32), Usage()
        backend = _Embeddings(
            Endpoint(self._model.provider.key, self._model.provider.effective_base_url)
        )
        providers = Providers()  # connections, lanes and health live as long as one event loop
        caller = providers.caller_for(msgspec.structs.replace(self._model, backend=backend))
        batches = [texts[i : i + self._batch] for i in range(0, len(texts), self._batch)]
        try:
            outcomes = await asyncio.gather(
                *(
                    caller.call(self._embedding_call(batch), self._model.price_list)
                    for batch in batches
                )
            )
        finally:
            await providers.close()
        for outcome in outcomes:
            _require_vectors(self.name, outcome.fault)
        rows = [
            msgspec.json.decode(c.text, type=list[float])
            for outcome in outcomes
            for c in outcome.choices
        ]
        return _unit_rows(rows), total_usage(outcome.usage for outcome in outcomes)

    def _embedding_call(self, texts: Sequence[str]) -> Call:
        messages = tuple(ChatMessage("input", text[:_CHARS] or " ") for text in texts)
        return Call(self._model.model, messages, max_tokens=0, extra=self._model.extra)


def _require_vectors(name: str, fault: str) -> None:
    if fault:
        raise Unavailable(f"no embeddings from {name}: {fault}", fix="resume the run later")


class _Embeddings:
    """A backend whose samples are the vectors, as JSON, one for each message."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def complete(self, call: Call) -> Reply:
        texts = [message.content for message in call.messages]
        body = {"model": call.model, "input": texts, "encoding_format": "float", **call.extra}
        raw = await self._endpoint.post("/embeddings", body)
        response = read_body(raw)
        tokens = read_tokens(response.get("usage"))
        return Reply(
            tuple(
                Completion(text) for text in _encoded_vectors(response.get("data"), len(texts), raw)
            ),
            tokens,
        )

    async def close(self) -> None:
        await self._endpoint.close()


def _encoded_vectors(data: object, count: int, raw: str) -> list[str]:
    bad = BadResponse("no_vectors", raw=raw[:2000])
    if not isinstance(data, list) or len(data) != count:
        raise bad
    rows: list[list[float] | None] = [None] * count
    for position, item in enumerate(data):
        vector = item.get("embedding") if isinstance(item, dict) else None
        index = item.get("index", position) if isinstance(item, dict) else position
        if not _is_number_list(vector) or not isinstance(index, int) or not 0 <= index < count:
            raise bad
        rows[index] = vector
    if any(row is None or len(row) != len(rows[0] or ()) for row in rows):
        raise bad
    return [msgspec.json.encode(row).decode() for row in rows]


def _is_number_list(vector: object) -> bool:
    return (
        isinstance(vector, list)
        and bool(vector)
        and all(isinstance(x, int | float) for x in vector)
    )


def _unit_rows(rows: list[list[float]]) -> Vectors:
    import numpy as np

    array = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return (array / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


class PatientEmbedder(Embedder):
    """An embedder with a model's retries.

    Repeats after the errors of `culmen.models.call`, with growing pauses. Raises `Unavailable` if
    all attempts failed: a search cannot continue without its distances.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The embedder's vectors."""
        return self.embed_with_usage(texts)[0]

    def embed_with_usage(self, texts: Sequence[str]) -> tuple[Vectors, Usage]:
        """The vectors, and the cost of all attempts. Not to be called from a running event loop."""
        attempt = _Attempt(self._embedder, texts)
        call = Call(self.name, (), max_tokens=0)
        outcome = asyncio.run(Caller(attempt).call(call, PriceList(self.name)))
        _require_vectors(self.name, outcome.fault)
        return attempt.vectors, attempt.usage + (outcome.usage - Usage(calls=1))


class _Attempt(ModelBackend):
    """Embeds the texts once per call; its reply carries no vectors, which `complete` sets."""

    vectors: Vectors

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder, self._texts = embedder, texts
        self.usage = Usage()

    async def complete(self, call: Call) -> Reply:
        self.vectors, self.usage = self._embedder.embed_with_usage(self._texts)
        return Reply((Completion(""),), Tokens(), 0.0)


class LocalEmbedder(Embedder):
    """A sentence-transformers model by name or path, loaded on first use.

    Missing weights are downloaded then. `device` is "cpu", "cuda", ... or None for the library's
    choice. Raises `UserError` if the library is missing or the model cannot be loaded.
    """

    def __init__(
        self, model: str = "sentence-transformers/all-MiniLM-L6-v2", *, device: str | None = None
    ) -> None:
        self._name, self._device = model, device
        self._model: Any = None
        self.name = f"local:{model}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Array of shape (len(texts), width), float32, rows of length 1."""
        model = self._load_sentence_model()
        return model.encode(
            list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )

    def _load_sentence_model(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
            except ImportError:
                raise _missing("sentence-transformers", self.name) from None
            try:
                self._model = SentenceTransformer(self._name, device=self._device)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"cannot load the model: {error}", where=f"embedder {self.name}"
                ) from error
        return self._model


class UnixcoderEmbedder(Embedder):
    """UniXcoder (Guo et al., 2022), as TurboEvolve uses it for its seed pools.

    The vector of a program is the mean of the encoder's last hidden states over its tokens, scaled
    to length 1. Programs longer than the model's window (512 tokens) are read in windows, whose
    means are averaged by their number of tokens. `model` is a name on the Hugging Face hub or a
    folder; weights are loaded on first use. Raises `UserError` if the libraries are missing or the
    model cannot be loaded.
    """

    def __init__(
        self,
        model: str = "microsoft/unixcoder-base",
        *,
        device: str | None = None,
        batch: int = 8,
        windows: int = 8,
    ) -> None:
        self._path, self._device, self._batch, self._windows = model, device, batch, windows
        self._loaded: tuple[Any, Any, Any] | None = None
        self.name = "unixcoder" if model == "microsoft/unixcoder-base" else f"unixcoder:{model}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Array of shape (len(texts), 768), float32, rows of length 1."""
        import numpy as np

        torch, tokenizer, model = self._load_unixcoder()
        pieces: list[tuple[int, list[int]]] = []
        for row, text in enumerate(texts):
            ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
            pieces += [(row, window) for window in token_windows(ids, _WINDOW - 4, self._windows)]
        sums = np.zeros((len(texts), int(model.config.hidden_size)), dtype=np.float64)
        for start in range(0, len(pieces), self._batch):
            batch = pieces[start : start + self._batch]
            for (row, window), vector in zip(
                batch, self._window_means(torch, tokenizer, model, [w for _, w in batch])
            ):
                sums[row] += vector * max(len(window), 1)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    def _window_means(self, torch: Any, tokenizer: Any, model: Any, batch: list[list[int]]) -> Any:
        """Mean hidden state of each window, shape (len(batch), width)."""
        mode = tokenizer.convert_tokens_to_ids(_MODE)
        rows = [
            [tokenizer.cls_token_id, mode, tokenizer.sep_token_id, *ids, tokenizer.sep_token_id]
            for ids in batch
        ]
        longest = max(map(len, rows))
        padded = torch.tensor(
            [row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows]
        )
        padded = padded.to(model.device)
        mask = padded.ne(tokenizer.pad_token_id)
        with torch.inference_mode():
            states = model(padded, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1)
        return ((states * weights).sum(1) / weights.sum(1)).double().cpu().numpy()

    def _load_unixcoder(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            try:
                import torch  # pyright: ignore[reportMissingImports]
                from transformers import AutoModel, AutoTokenizer  # pyright: ignore[reportMissingImports]
            except ImportError:
                raise _missing("transformers", self.name) from None
            try:
                tokenizer = AutoTokenizer.from_pretrained(self._path)
                model = AutoModel.from_pretrained(self._path, add_pooling_layer=False)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"cannot load the model: {error}", where=f"embedder {self.name}"
                ) from error
            device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
            self._loaded = torch, tokenizer, model.to(device).eval()
        return self._loaded


def _missing(package: str, name: str) -> UserError:
    where = f"embedder {name}; 'hashing' needs none"
    return missing_extra("the embedder", package, "local-embeddings", where)


def token_windows(ids: Sequence[int], size: int, limit: int) -> list[list[int]]:
    """The first `most` consecutive windows of at most `size` token ids.

    No tokens give one empty window.
    """
    return [list(ids[start : start + size]) for start in range(0, max(len(ids), 1), size)][:limit]
