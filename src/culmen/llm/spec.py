"""Which provider, which model, with which settings."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import msgspec

from culmen.llm.call import Backend
from culmen.llm.caller import Policy
from culmen.llm.keys import Key
from culmen.llm.prices import Price, PriceList

OTHERS = "default"  # the entry of all roles that have none of their own


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where models are served, and how hard it may be pressed.

    base_url     address of the OpenAI-compatible API; None: OpenAI's own (or what OPENAI_BASE_URL says)
    key_env      environment variable that holds the key ("" and no key_file: none is sent)
    key_file     file that holds the key, instead
    rpm, tpm     requests and tokens per minute (None: no limit of ours)
    concurrency  requests in flight, whatever the number of cores
    timeout, deadline, retries, bad_retries, base, cap    see `culmen.llm.caller.Policy`; seconds
    patience     seconds of an outage after which the run stops
    prices       the provider's name in genai-prices ("": none)
    endpoints    addresses of its other wire formats (responses, messages, gemini), where `base_url` does not lead there
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

    @property
    def key(self) -> Key:
        """Where its key is found."""
        return Key(self.key_env, self.key_file)

    @property
    def policy(self) -> Policy:
        """How patient a call is."""
        return Policy(self.timeout, self.deadline, self.retries, self.bad_retries, self.base, self.cap)

    @property
    def address(self) -> str | None:
        """The address in use, None for OpenAI's own."""
        return self.base_url or (os.environ.get("OPENAI_BASE_URL") or None if self.name == "openai" else None)


class Model(msgspec.Struct, frozen=True):
    """One model with its settings.

    samples          most samples asked for in one request (`n`); 1 where the server knows no `n`
    json             ask for the server's JSON mode (whole rewrites then come as one JSON object)
    send_seed        pass the seed on to the server
    max_tokens       tokens of one reply, reasoning included; doubled once when a reply was cut
    max_tokens_name  how the server calls that limit
    price            dollars per million tokens, instead of the price library
    extra            further fields of the request body
    backend          an object with `complete(call)`, instead of a provider
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
    extra: dict[str, Any] = {}
    backend: Backend | None = None

    @property
    def name(self) -> str:
        """provider/model, as recorded with each candidate."""
        return f"{self.provider.name}/{self.model}"

    @property
    def key(self) -> str:
        """Tells this model's replies from those of the same name elsewhere."""
        return f"{self.name} {self.provider.address or ''}"

    @property
    def price_list(self) -> PriceList:
        """What it costs."""
        redirected = self.provider.base_url is None and self.provider.address is not None
        return PriceList(self.model, "" if redirected else self.provider.prices, self.price)


class Weighted(msgspec.Struct, frozen=True):
    """A member of an ensemble."""

    model: Model
    weight: float = 1.0


class Roles(msgspec.Struct, frozen=True):
    """Which models answer for which role; the entry "default" answers for all roles without one."""

    table: dict[str, tuple[Weighted, ...]] = {}

    def pick(self, role: str, seed: int) -> Model | None:
        """The role's model, of an ensemble the one that the seed draws; None if the role has none.

        A step of a role (`advisor.generate`) has the model of the role, unless it has one of its own.
        """
        names = (role, role.partition(".")[0], OTHERS)
        members = next((self.table[name] for name in names if name in self.table), ())
        if not members:
            return None
        rng = Random(f"{role}:{seed}")  # a text seeds it the same on every machine
        return rng.choices([m.model for m in members], [m.weight for m in members])[0]

    def models(self) -> tuple[Model, ...]:
        """All models named."""
        return tuple(member.model for members in self.table.values() for member in members)


def _provider(name: str, base_url: str | None, key_env: str, prices: str = "") -> Provider:
    return Provider(name=name, base_url=base_url, key_env=key_env, prices=prices)


PROVIDERS: dict[str, Provider] = {
    p.name: p
    for p in (
        _provider("openai", None, "OPENAI_API_KEY", "openai"),
        _provider("anthropic", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY", "anthropic"),
        _provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/", "GEMINI_API_KEY", "google"),
        _provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter"),
        _provider("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek"),
        _provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral"),
        _provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "groq"),
        _provider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together"),
        _provider("ollama", "http://localhost:11434/v1", ""),
        _provider("vllm", "http://localhost:8000/v1", ""),
        _provider("litellm", None, ""),
    )
}
