"""One request to a model and its reply; model backends and their errors."""

from __future__ import annotations

import hashlib
import math
from typing import Protocol, runtime_checkable

import msgspec

from culmen.core.errors import CulmenError
from culmen.core.json import JsonObject
from culmen.core.pictures import picture_tokens
from culmen.models.prompts.formats import Completion as Completion


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chat message; `role` is system, user, assistant or tool.

    `pictures` follow its text (`core.pictures`); `more` are further fields, sent unchanged
    (`tool_calls`, `tool_call_id`).
    """

    role: str
    content: str
    pictures: tuple[str, ...] = ()
    more: JsonObject = {}


# a provider's count is believed up to this factor beyond the limits of a request, and this number
# of tokens beyond that of its prompt
COUNTED_MORE, _OWN_TOKENS = 4, 16_384
_CUT = ("length", "reasoning_cut")  # ends of a reply that took all the tokens it was allowed
_FRAME = 8  # tokens that a message, and a request, has besides its text


class Call(msgspec.Struct, frozen=True):
    """A request to a model: `samples` independent replies of at most `max_tokens` tokens each.

    `temperature` None leaves the provider's default, `json` asks for its JSON mode, `seed` is the
    request's random seed (sent only if the model's options ask for it), `extra` goes into the
    request body unchanged.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    samples: int = 1
    max_tokens: int = 16_384
    temperature: float | None = None
    json: bool = False
    seed: int = 0
    extra: JsonObject = {}

    @property
    def prompt(self) -> str:
        """All messages as one readable text."""
        return "\n\n".join(f"=== {m.role} ===\n{m.content}" for m in self.messages)

    def prompt_tokens(self) -> int:
        """Likely upper bound of the prompt's tokens.

        A third of its UTF-8 bytes, and some for the framing.
        """
        text = (
            sum(len(m.content.encode("utf-8", "replace")) // 3 + _FRAME for m in self.messages)
            + _FRAME
        )
        return text + self._picture_tokens() + self._tool_bytes() // 3

    def most_prompt_tokens(self) -> int:
        """Strict upper bound of the prompt's tokens.

        Tokenizers fall back to single bytes, never to less.
        """
        text = (
            sum(len(m.content.encode("utf-8", "replace")) + _FRAME for m in self.messages) + _FRAME
        )
        return text + 2 * self._picture_tokens() + self._tool_bytes()

    def _tool_bytes(self) -> int:
        """Bytes of a prompt besides its texts: offered tools, and calls of them."""
        more = [m.more for m in self.messages if m.more]
        more += [self.extra[name] for name in ("tools", "response_format") if name in self.extra]
        return len(msgspec.json.encode(more)) if more else 0

    def _picture_tokens(self) -> int:
        return sum(picture_tokens(picture) for m in self.messages for picture in m.pictures)

    def sample_digest(self) -> str:
        """SHA-256 (hex) of everything that shapes one sample; `samples` and `seed` are left out."""
        plain = msgspec.to_builtins(msgspec.structs.replace(self, samples=0, seed=0))
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of one request as the provider counted them.

    `cached` (read from the provider's cache) and `cache_write` (stored there, if that has a price)
    are parts of `input`.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0

    def are_believable(self, most_read: int, most_written: int) -> bool:
        """False if a request and its reply, of at most about these tokens, cannot have as many.

        A provider may count more: by another tokenizer, with its own prompts and with reasoning.
        """
        most = COUNTED_MORE * most_read + _OWN_TOKENS, COUNTED_MORE * most_written
        return self.input <= most[0] and self.output <= most[1]


class Reply(msgspec.Struct, frozen=True):
    """A model's reply.

    `tokens` is None if the provider did not report them, `dollars` is the price if the backend
    knows it itself. Without `tokens`, `total` is the number of tokens of prompt and reply together
    if that was reported, and `size` are the UTF-8 bytes of all that the reply shows, its reasoning
    included (None: of its texts and calls of tools).
    """

    choices: tuple[Completion, ...]
    tokens: Tokens | None = None
    dollars: float | None = None
    total: int | None = None
    size: int | None = None

    def most_tokens(self, call: Call, token_bytes: float = 1.0) -> int:
        """Upper bound of the reply's tokens if the provider reports none, strict with a byte each.

        `token_bytes` bytes make a token, and the framing takes some; without a size it is the
        limit of the call.
        """
        longest, size = call.samples * call.max_tokens, self.whole_bytes()
        if size is None:
            return longest
        return min(longest, math.ceil((size + _FRAME * len(self.choices)) / token_bytes))

    def whole_bytes(self) -> int | None:
        """UTF-8 bytes of all that the reply shows, None if they do not tell how long it was.

        A sample that was cut off, or shows nothing, may have been thought at length.
        """
        if any(choice.finish in _CUT or not choice.is_usable for choice in self.choices):
            return None
        return self._shown_bytes()

    def cut_bytes(self) -> int:
        """UTF-8 bytes of a reply whose samples all took the tokens that they were allowed, or 0."""
        is_cut = bool(self.choices) and all(choice.finish in _CUT for choice in self.choices)
        return self._shown_bytes() if is_cut else 0

    def _shown_bytes(self) -> int:
        if self.size is not None:
            return self.size
        return sum(
            len(choice.text.encode("utf-8", "replace"))
            + len(msgspec.json.encode(choice.tool_calls) if choice.tool_calls else b"")
            for choice in self.choices
        )


@runtime_checkable
class MinimalModel(Protocol):
    """The one required member of a model."""

    async def complete(self, call: Call) -> Reply | str | list[str]: ...


class ModelBackend(MinimalModel, Protocol):
    """A model: pass a small class of your own; `complete` is the only required member.

    `complete` makes exactly one attempt; retries, deadlines, limits and prices are the caller's. It
    returns a `Reply` and raises one of the errors below. `name` is the model's name in the journal;
    "": that of its class. `reports_price` is False if a `Reply` never has its dollars: a budget of
    dollars alone is refused then.
    """

    name: str = ""
    reports_price: bool = True

    async def close(self) -> None:
        """Close all resources; called once, after the last attempt."""


class CallFailed(CulmenError):
    """An attempt failed.

    `kind` is a short word, `message` the provider's own words, `raw` the response, `tokens` its
    cost if that is known. `billed` is True if the provider may have charged for it.
    """

    billed = False

    def __init__(
        self, kind: str, message: str = "", *, raw: str = "", tokens: Tokens | None = None
    ) -> None:
        super().__init__(message or kind)
        self.kind, self.message, self.raw, self.tokens = kind, message, raw, tokens


class RateLimited(CallFailed):
    """Too many requests: try again after `retry_after` seconds (None: unknown)."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__("rate_limited", message)
        self.retry_after = retry_after


class ServerFailed(CallFailed):
    """The provider cannot serve now: no connection, or a status of 5xx."""


class Interrupted(CallFailed):
    """The request was sent without a whole reply (timeout, cut): its cost is unknown."""

    billed = True


class BadResponse(CallFailed):
    """A response of status 200 without a usable reply.

    HTML, broken JSON, no choices, no content.
    """

    billed = True


class Declined(CallFailed):
    """The provider refuses this request for good; it is not repeated.

    Kinds: bad_request, too_long, refused.
    """
