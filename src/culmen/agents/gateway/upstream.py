"""Where requests go: addresses, keys and prices of the configured models, and the connections to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from culmen.agents.gateway.formats import Refused
from culmen.core.errors import UserError
from culmen.core.usage import Usage
from culmen.llm.call import Tokens
from culmen.llm.limits import RateLimiter
from culmen.llm.spec import ModelSpec, Provider

ANY = "*"  # the entry for every model name that has none of its own
_PRICE = "price = { input = ..., output = ... } (dollars per million tokens)"


def chosen(models: Mapping[str, ModelSpec | Provider], asked: str) -> ModelSpec:
    """The model that answers for the name an agent asks for. Raises `Refused` (403) if there is none."""
    entry = models.get(asked, models.get(ANY))
    if entry is None:
        raise Refused(
            403, f"the model '{asked[:200]}' is not open to this agent; it may use {', '.join(sorted(models))}"
        )
    if isinstance(entry, ModelSpec):
        return entry
    if not asked:
        raise Refused(400, "the request names no model")
    return ModelSpec(entry, asked)


def checked(models: Mapping[str, ModelSpec | Provider]) -> dict[str, ModelSpec | Provider]:
    """The models, if each of them can be reached and paid. Raises `UserError` naming what is missing."""
    for name, entry in models.items():
        provider = entry.provider if isinstance(entry, ModelSpec) else entry
        if provider.name == "litellm" or (isinstance(entry, ModelSpec) and entry.backend is not None):
            raise UserError(
                f"the model '{name}' has no address that an agent could be routed to",
                where=f"provider '{provider.name}'",
                fix="name a model of a provider with an address, or define one in a models file",
            )
        if not provider.key.found():
            provider.key.reveal()  # raises, with what to do
        if isinstance(entry, ModelSpec) and priced(entry, Tokens()) is None:
            raise UserError(
                f"the price of the model '{entry.name}' is not known, so no budget in dollars can hold it",
                where="agents' models",
                fix=f"put {_PRICE} under its [models.NAME] in a models file; a price of 0 is one, too",
            )
    return dict(models)


def priced(model: ModelSpec, tokens: Tokens) -> float | None:
    """Dollars for so many tokens, None without a known price."""
    return model.price_list.dollars(tokens)


def most(model: ModelSpec, size: int, output: int) -> Usage:
    """The most a request of `size` bytes may cost: a token for three bytes, written to the cache or not, and `output`.

    Raises `Refused` (403) without a known price.
    """
    tokens = -(-(size // 3 + 16) // 256) * 256  # rounded up, so that few different prices need to be worked out
    costs = [priced(model, Tokens(tokens, output)), priced(model, Tokens(tokens, output, 0, tokens))]
    dollars = [cost for cost in costs if cost is not None]
    if not dollars:
        raise Refused(403, f"the price of the model '{model.name}' is not known; put {_PRICE} into the models file")
    return Usage(calls=1, input_tokens=tokens, output_tokens=output, dollars=max(dollars))


def cost(model: ModelSpec, tokens: Tokens | None, complete: bool) -> Usage:
    """The ledger's view of a request that was answered: what is not known for sure makes it an unpriced call."""
    usage = model.price_list.usage(tokens)
    return usage if complete else msgspec.structs.replace(usage, unpriced=1)


def address(provider: Provider, form: str) -> str:
    """Where a provider serves a wire format, without a slash at the end."""
    if form in provider.endpoints:
        return provider.endpoints[form].rstrip("/")
    base = (provider.address or "https://api.openai.com/v1").rstrip("/")
    if form != "gemini":
        return base
    if base.endswith("/openai"):
        return base.removesuffix("/openai")  # Google's own: the compatible address is below the native one
    return f"{base}beta" if base.endswith("/v1") else base


def credentials(provider: Provider, form: str) -> dict[str, str]:
    """The headers that carry the key, as the format has it; elsewhere than at its inventor's also as a bearer token."""
    if not provider.key.needed:
        return {}
    key = provider.key.reveal()
    own = {"messages": ("x-api-key", "anthropic"), "gemini": ("x-goog-api-key", "gemini")}.get(form)
    headers = {own[0]: key} if own else {}
    if own is None or provider.name != own[1]:
        headers["authorization"] = f"Bearer {key}"
    return headers


class Line:
    """The way to one provider: its connections, and the limits that all agents share."""

    def __init__(self, provider: Provider) -> None:
        import httpx2

        self.lanes = asyncio.Semaphore(provider.concurrency)
        self.limiter = RateLimiter(provider.rpm, provider.tpm)
        self.client: Any = httpx2.AsyncClient(
            timeout=httpx2.Timeout(provider.timeout, connect=30.0, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16),
            follow_redirects=False,
        )


class Lines:
    """One line to each provider, made when first needed."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def to(self, provider: Provider) -> Line:
        """The line to this provider."""
        key = f"{provider.name} {provider.address}"
        if key not in self._lines:
            self._lines[key] = Line(provider)
        return self._lines[key]

    async def close(self) -> None:
        """Close all connections."""
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            await line.client.aclose()
