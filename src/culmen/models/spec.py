"""Providers and models: addresses, keys, prices and settings.

Keys are read late, from the environment or a file that the user names, and never shown.
"""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from random import Random

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.ports import with_protocol_defaults
from culmen.core.usage import Usage
from culmen.models.call import MinimalModel, ModelBackend, Tokens

_LOOKS_LIKE_KEY = re.compile(
    r"\b(?:sk|pk|gsk|xai|key)-[A-Za-z0-9_\-*.]{6,}|\bBearer\s+\S+|\bAIza[\w-]{20,}"
)
LONGEST_TOKEN = 16.0  # bytes of a token, on average, that a model's settings may claim
OTHERS = "default"  # the entry of all roles that have none of their own


class Key:
    """Source of a provider's API key.

    `reveal` is called only to build the HTTP client.
    """

    def __init__(self, env: str = "", file: str = "") -> None:
        self.env, self.file = env, file

    def __repr__(self) -> str:
        return f"Key({self.source_name})"

    @property
    def source_name(self) -> str:
        """Description of the key's source."""
        if self.file:
            return f"the file {self.file}"
        return f"the environment variable {self.env}" if self.env else "no key"

    @property
    def is_needed(self) -> bool:
        """True if the provider needs a key at all."""
        return bool(self.file or self.env)

    def is_available(self) -> bool:
        """True if there is a key; its value is not returned."""
        return not self.is_needed or bool(self._read_key())

    def reveal(self) -> str:
        """The key. Raises `UserError` with its expected place if it is missing."""
        if not self.is_needed:
            return "none"
        key = self._read_key()
        if not key:
            fix = f"put the key into {self.file}" if self.file else f"export {self.env}=…"
            raise UserError(
                "no API key found", where=self.source_name, fix=f"{fix}, or use --model offline"
            )
        return key

    def scrub(self, text: str) -> str:
        """The text without this key and without anything that looks like a key."""
        key = self._read_key() if self.is_needed else ""
        text = _key_pattern(key).sub("[key]", text) if key else text
        return _LOOKS_LIKE_KEY.sub("[key]", text)

    def hide(self, text: str) -> str:
        """The text without this key, also as JSON escapes it; nothing else of it changes.

        A key that may be a word of a text, such as `none` or `placeholder`, is no secret.
        """
        key = self._secret()
        if not key or not any(mark in text for mark in (key, "\\u00", "\\/")):
            return text
        return _key_pattern(key).sub("[key]", text)

    def stream_filter(self) -> KeyFilter:
        """A filter that hides this key in a stream of bytes."""
        return KeyFilter(self._secret().encode())

    def hide_in(self, value: object) -> object:
        """Plain data without this key in any of its texts."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide_in(name): self.hide_in(item) for name, item in value.items()}
        return [self.hide_in(item) for item in value] if isinstance(value, list) else value

    def _secret(self) -> str:
        """The key, "" for one that is no secret."""
        key = self._read_key() if self.is_needed else ""
        return key if len(key) >= 16 or (len(key) >= 8 and any(map(str.isdigit, key))) else ""

    def _read_key(self) -> str:
        if not self.file:
            return os.environ.get(self.env, "").strip()
        try:
            return Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""


@lru_cache(16)
def _key_pattern(key: str) -> re.Pattern[str]:
    """The key, and any form of it in JSON, also in JSON within JSON."""
    forms = (re.escape(char) + rf"|\\{{1,4}}(?:u{ord(char):04x}|{re.escape(char)})" for char in key)
    return re.compile("".join(f"(?:{form})" for form in forms), re.IGNORECASE)


class KeyFilter:
    """A stream of bytes without a key; the bytes that may begin one are held back."""

    def __init__(self, key: bytes) -> None:
        self._key, self._held = key, b""

    def feed(self, chunk: bytes, is_last: bool = False) -> bytes:
        """The bytes that can be passed on after this chunk."""
        if not self._key:
            return chunk
        data = (self._held + chunk).replace(self._key, b"[key]")
        begun = range(min(len(self._key) - 1, len(data)), 0, -1) if not is_last else ()
        held = next((n for n in begun if data.endswith(self._key[:n])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens, and `call` dollars for a call.

    `cached_input` and `cache_write` None: the price of other input tokens.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    call: float = 0.0

    def cost_of_tokens(self, tokens: Tokens) -> float:
        """Dollars of one request."""
        cached = min(tokens.cached, tokens.input)
        written = min(tokens.cache_write, tokens.input - cached)
        read_rate = self.input if self.cached_input is None else self.cached_input
        write_rate = self.input if self.cache_write is None else self.cache_write
        plain = tokens.input - cached - written
        each = self.input * plain + read_rate * cached + write_rate * written
        return self.call + (each + self.output * tokens.output) / 1e6


class PriceList:
    """The price of one model; unknown prices are reported as unpriced, never as free.

    `provider` is the price library's name of the provider ("" if it has none: then only the user's
    table counts).
    """

    def __init__(
        self,
        model: str,
        provider: str = "",
        table: Price | None = None,
        *,
        token_bytes: float = 1.0,
    ) -> None:
        """`token_bytes`: see `ModelSpec`."""
        self._model, self._provider, self._table = model, provider, table
        self.token_bytes = token_bytes

    def dollars_for(self, tokens: Tokens, at: datetime | None = None) -> float | None:
        """Dollars of one request, None if the price is unknown.

        Listed prices are those of the time `at` (None: now): some change with the hour, and lists
        know of changes to come.
        """
        if self._table is not None:
            return self._table.cost_of_tokens(tokens)
        return _listed_dollars(self._model, self._provider, tokens, at) if self._provider else None

    def dearest_split(self, total: int, prompt: int, reply: int, least: int = 0) -> Tokens:
        """The dearest tokens with this total, of which the prompt and the reply have at most these.

        What is beyond both is the reply's: reasoning that it does not show. The prompt has `least`
        tokens or more.
        """
        prompt = max(prompt, least)
        most = min(total - min(total, least), max(reply, total - prompt)), min(total, prompt)
        splits = Tokens(total - most[0], most[0]), Tokens(most[1], total - most[1])
        return max(splits, key=lambda tokens: self.dollars_for(tokens) or 0.0)

    def largest_usage(self, tokens: Tokens, at: datetime | None = None) -> Usage:
        """The largest cost of a request with these tokens that begins at a time (None: now).

        Its input may be stored in the provider's cache, and its price may be that of an hour later.
        """
        if self._table is None and not self._provider:  # no price: the times do not matter
            return self.usage_for(tokens)
        begin = at or datetime.now(UTC)
        costs = (
            self.usage_for(msgspec.structs.replace(tokens, cache_write=stored), at=begin + later)
            for stored in (0, tokens.input)
            for later in (timedelta(0), timedelta(hours=1))
        )
        return max(costs, key=lambda usage: usage.dollars)

    def usage_for(
        self, tokens: Tokens | None, dollars: float | None = None, at: datetime | None = None
    ) -> Usage:
        """Usage of one request: `tokens` None if unknown, `dollars` if the backend reported them.

        The user's price table takes precedence over the backend.
        """
        if tokens is None:
            dollars = self._table.call if self._table and self._table.call else dollars
            return Usage(calls=1, dollars=dollars or 0.0, unpriced=int(dollars is None))
        if dollars is None or self._table:
            dollars = self.dollars_for(tokens, at)
        return Usage(
            calls=1,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            dollars=dollars or 0.0,
            unpriced=int(dollars is None),
        )


def _listed_dollars(model: str, provider: str, tokens: Tokens, at: datetime | None) -> float | None:
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    counted = Counted(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=min(tokens.cached, tokens.input) or None,
        cache_write_tokens=min(tokens.cache_write, tokens.input - min(tokens.cached, tokens.input))
        or None,
    )
    try:
        dollars = float(
            calc_price(counted, model, provider_id=provider, genai_request_timestamp=at).total_price
        )
    except (LookupError, ValueError):  # unknown model, or a price without the unit we need
        return None
    return dollars if math.isfinite(dollars) else None


class RetryPolicy(msgspec.Struct, frozen=True):
    """Timeouts and retries of one call.

    `timeout` seconds for one attempt, `deadline` seconds for all attempts and the pauses between
    them (waiting for a free lane, a rate limit or the end of an outage is not counted), `retries`
    after a failure of the provider, `bad_retries` after a malformed reply, pauses of about `base`
    seconds doubling up to `cap`, which also bounds the wait that a Retry-After may request.
    """

    timeout: float = 300.0
    deadline: float = 900.0
    retries: int = 5
    bad_retries: int = 2
    base: float = 1.0
    cap: float = 60.0


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider of models, and its limits.

    base_url     address of the OpenAI-compatible API; None: OpenAI's own (or OPENAI_BASE_URL)
    key_env      environment variable with the key ("" and no key_file: none is sent)
    key_file     file with the key, instead
    rpm, tpm     requests and tokens per minute (None: no limit of ours)
    concurrency  requests in flight, whatever the number of cores
    timeout, deadline, retries, bad_retries, base, cap  see `RetryPolicy`; seconds
    patience     seconds of an outage after which the run stops
    prices       the provider's name in genai-prices ("": none)
    endpoints    addresses of its other wire formats (responses, messages, gemini), if `base_url`
                 does not lead there
    bills_errors True if it may charge for requests that it answers with a status of 5xx
    """

    name: str
    base_url: str | None = None
    key_env: str = ""
    key_file: str = ""
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int = 64
    timeout: float = 300.0
    deadline: float = 900.0
    retries: int = 5
    bad_retries: int = 2
    base: float = 1.0
    cap: float = 60.0
    patience: float = 1800.0
    prices: str = ""
    endpoints: dict[str, str] = {}
    bills_errors: bool = False

    @property
    def key(self) -> Key:
        """Source of the API key."""
        return Key(self.key_env, self.key_file)

    @property
    def retry_policy(self) -> RetryPolicy:
        """Timeouts and retries of a call."""
        return RetryPolicy(
            self.timeout, self.deadline, self.retries, self.bad_retries, self.base, self.cap
        )

    @property
    def effective_base_url(self) -> str | None:
        """The address in use, None for OpenAI's own."""
        return self.base_url or (
            os.environ.get("OPENAI_BASE_URL") or None if self.name == "openai" else None
        )

    @property
    def is_own(self) -> bool:
        """True for an endpoint of the user's own: an address that is no provider's, or is local."""
        address = self.effective_base_url
        known = PROVIDERS.get(self.name)
        return bool(address) and (
            known is None or known.base_url != address or "//localhost" in address
        )


_SEEING = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-5|\bo[34]\b|claude-|gemini|pixtral|llava|vision|-vl\b|llama-4|gemma-3"
)
"""Names of models that are known to see pictures."""


class BankAddress(msgspec.Struct, frozen=True):
    """A bank of programs (`bank:FOLDER#MODEL`); `model` "" for all of its models."""

    folder: str
    model: str = ""

    @property
    def text(self) -> str:
        """The address as `--model` writes it."""
        return f"bank:{self.folder}" + (f"#{self.model}" if self.model else "")

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self.folder).expanduser().resolve()


class ModelSpec(msgspec.Struct, frozen=True):
    """One model with its settings.

    samples          samples in one request (`n`), at most; 1 if the server does not support `n`
    json             ask for the server's JSON mode (whole rewrites then come as one JSON object)
    send_seed        pass the seed on to the server
    max_tokens       tokens of one reply, reasoning included; doubled once for a truncated reply
    max_tokens_name  the server's name for that limit
    price            dollars per million tokens, instead of the price library
    price_unknown    True if a budget in dollars is accepted though it cannot limit this model
    token_bytes      bytes of a token, on the average of every request, where the server does not
                     report its tokens (1: none is shorter, so no budget is exceeded)
    context          tokens of prompt and reply together, at most: prompts are made to fit (None:
                     learnt from a refusal)
    images           True if it sees pictures (None: by its name)
    cacheable        True if the same request again, also of another run, may get the same reply
                     from the disk
    extra            further fields of the request body
    backend          an object with `complete(call)`, instead of a provider
    bank             programs written before, instead of a provider: it cannot be asked anything
    """

    provider: Provider
    model: str
    temperature: float | None = None
    max_tokens: int = 16_384
    samples: int = 1
    json: bool = False
    send_seed: bool = False
    max_tokens_name: str = "max_tokens"
    price: Price | None = None
    price_unknown: bool = False
    extra: JsonObject = {}
    token_bytes: float = 1.0
    context: int | None = None
    backend: MinimalModel | None = None
    images: bool | None = None
    cacheable: bool = True
    bank: BankAddress | None = None

    @property
    def is_person(self) -> bool:
        """True for a person, who is asked by files (`--model ask`)."""
        return self.provider.name == "person"

    @property
    def accepts_pictures(self) -> bool:
        """True if requests to it may show pictures."""
        return bool(_SEEING.search(self.model.lower())) if self.images is None else self.images

    @property
    def name(self) -> str:
        """provider/model, as recorded with each candidate."""
        return f"{self.provider.name}/{self.model}"

    @property
    def cache_key(self) -> str:
        """Key of this model's replies in the cache: its name and the provider's address."""
        return f"{self.name} {self.provider.effective_base_url or ''}"

    @property
    def price_list(self) -> PriceList:
        """The model's price."""
        redirected = self.provider.base_url is None and self.provider.effective_base_url is not None
        provider = "" if redirected else self.provider.prices
        return PriceList(self.model, provider, self.price, token_bytes=self.token_bytes)

    @property
    def can_be_priced(self) -> bool:
        """True if a price is known before a request, or a backend may report it with the reply."""
        if self.provider.name == "litellm":
            return True
        backend = self.backend
        if backend is not None and with_protocol_defaults(ModelBackend, backend).reports_price:
            return True
        return self.price_list.dollars_for(Tokens(1000, 1000)) is not None


class Weighted(msgspec.Struct, frozen=True):
    """A member of an ensemble."""

    model: ModelSpec
    weight: float = 1.0


class Roles(msgspec.Struct, frozen=True):
    """Models by role; the entry "default" is for all roles without one."""

    table: dict[str, tuple[Weighted, ...]] = {}

    def pick_model(self, role: str, seed: int) -> ModelSpec | None:
        """The role's model, of an ensemble the one that the seed draws; None if there is none.

        A step of a role (`advisor.generate`) has the model of the role, unless it has one of its
        own.
        """
        members = self.members(role)
        if not members:
            return None
        if len(members) == 1:
            return members[0].model
        rng = Random(f"{role}:{seed}")  # a text seeds it the same on every machine
        return rng.choices([m.model for m in members], [m.weight for m in members])[0]

    def members(self, role: str) -> tuple[Weighted, ...]:
        """The models of a role: its own, else those of all roles without one."""
        names = (role, role.partition(".")[0], OTHERS)
        return next((self.table[name] for name in names if name in self.table), ())

    def without_banks(self) -> Roles:
        """The models that can be asked: all but banks of programs."""
        return Roles(
            {
                role: tuple(member for member in members if member.model.bank is None)
                for role, members in self.table.items()
            }
        )

    def banks(self) -> tuple[BankAddress, ...]:
        """All banks named, each once."""
        found = (model.bank for model in self.all_models())
        return tuple(dict.fromkeys(bank for bank in found if bank is not None))

    def all_models(self) -> tuple[ModelSpec, ...]:
        """All models named."""
        return tuple(member.model for members in self.table.values() for member in members)


def _make_provider(name: str, base_url: str | None, key_env: str, prices: str = "") -> Provider:
    return Provider(name=name, base_url=base_url, key_env=key_env, prices=prices)


PROVIDERS: dict[str, Provider] = {
    p.name: p
    for p in (
        _make_provider("openai", None, "OPENAI_API_KEY", "openai"),
        _make_provider(
            "anthropic", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY", "anthropic"
        ),
        _make_provider(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "GEMINI_API_KEY",
            "google",
        ),
        _make_provider(
            "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter"
        ),
        _make_provider("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek"),
        _make_provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral"),
        _make_provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "groq"),
        _make_provider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together"),
        _make_provider("ollama", "http://localhost:11434/v1", ""),
        _make_provider("vllm", "http://localhost:8000/v1", ""),
        _make_provider("litellm", None, ""),
    )
}
