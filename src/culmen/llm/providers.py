"""Makes the callers of a run; all models of one provider share its lanes, limits and health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from culmen.llm.call import Backend
from culmen.llm.caller import Caller
from culmen.llm.clock import Clock, RealClock
from culmen.llm.health import Health
from culmen.llm.limiter import RateLimiter
from culmen.llm.spec import Model, Provider


def _log(sentence: str) -> None:
    import logging

    logging.getLogger("culmen.llm").warning("%s", sentence)


class Providers:
    """One `Caller` for each provider and backend, made when first needed. `tell` hears of outages."""

    def __init__(self, clock: Clock | None = None, tell: Callable[[str], None] = _log) -> None:
        self._clock, self._tell = clock or RealClock(), tell
        self._callers: dict[object, Caller] = {}

    def caller(self, model: Model) -> Caller:
        """The caller for this model."""
        key = id(model.backend) if model.backend else (model.provider.name, model.max_tokens_name, model.send_seed)
        caller = self._callers.get(key)
        if caller is None:
            shared = next(
                (c for k, c in self._callers.items() if isinstance(k, tuple) and k[0] == model.provider.name), None
            )
            caller = self._callers[key] = self._make(model, None if model.backend else shared)
        return caller

    async def close(self) -> None:
        """Close all backends."""
        callers, self._callers = list(self._callers.values()), {}
        for caller in callers:
            await caller.close()

    def _make(self, model: Model, shared: Caller | None) -> Caller:
        provider = model.provider
        if shared is not None:
            return shared.sibling(make_backend(model))
        return Caller(
            model.backend or make_backend(model),
            policy=provider.policy,
            lanes=asyncio.Semaphore(provider.concurrency),
            limiter=RateLimiter(provider.rpm, provider.tpm, self._clock),
            health=self._health(provider),
            scrub=provider.key.scrub,
            clock=self._clock,
        )

    def _health(self, provider: Provider) -> Health:
        longest = max(provider.base, provider.cap)
        return Health(
            f"provider '{provider.name}'",
            first_pause=provider.base,
            longest_pause=longest,
            patience=provider.patience,
            clock=self._clock,
            tell=self._tell,
        )


def make_backend(model: Model) -> Backend:
    """The backend of a model's provider."""
    provider = model.provider
    if provider.name == "litellm":
        from culmen.llm.litellm import LiteLLMBackend

        return LiteLLMBackend(provider.key, base_url=provider.base_url, send_seed=model.send_seed)
    from culmen.llm.openai import Endpoint, OpenAIBackend

    endpoint = Endpoint(provider.key, provider.address, provider.timeout)
    return OpenAIBackend(endpoint, max_tokens_name=model.max_tokens_name, send_seed=model.send_seed)
