"""What a call costs: the user's own table first, else the offline data of the genai-prices library."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

from culmen.core.usage import Usage
from culmen.llm.call import Tokens


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens; `cached_input` and `cache_write` None: such tokens cost what others do."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def of(self, tokens: Tokens) -> float:
        """Dollars of one request."""
        cached = min(tokens.cached, tokens.input)
        written = min(tokens.cache_write, tokens.input - cached)
        read_rate = self.input if self.cached_input is None else self.cached_input
        write_rate = self.input if self.cache_write is None else self.cache_write
        plain = tokens.input - cached - written
        return (self.input * plain + read_rate * cached + write_rate * written + self.output * tokens.output) / 1e6


class PriceList:
    """The price of one model. `known` models have dollars; all others are said to be unpriced, never free.

    `provider` is the library's name of the provider ("" if it has none: then only the user's table counts).
    """

    def __init__(self, model: str, provider: str = "", table: Price | None = None) -> None:
        self._model, self._provider, self._table = model, provider, table

    def dollars(self, tokens: Tokens) -> float | None:
        """Dollars of one request, None if the price is unknown."""
        if self._table is not None:
            return self._table.of(tokens)
        return _listed(self._model, self._provider, tokens) if self._provider else None

    def usage(self, tokens: Tokens | None, dollars: float | None = None) -> Usage:
        """The ledger's view of one request: `tokens` None if nobody knows them, `dollars` if the backend said so.

        The user's own table overrules the backend.
        """
        if tokens is None:
            known = dollars is not None
            return Usage(calls=1, dollars=dollars or 0.0, unpriced=0 if known else 1)
        cost = self.dollars(tokens) if dollars is None or self._table is not None else dollars
        return Usage(
            calls=1,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            dollars=cost or 0.0,
            unpriced=1 if cost is None else 0,
        )


@lru_cache(4096)
def _listed(model: str, provider: str, tokens: Tokens) -> float | None:
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    counted = Counted(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=min(tokens.cached, tokens.input) or None,
        cache_write_tokens=min(tokens.cache_write, tokens.input - min(tokens.cached, tokens.input)) or None,
    )
    try:
        dollars = float(calc_price(counted, model, provider_id=provider).total_price)
    except (LookupError, ValueError):  # unknown model, or a price without the unit we need
        return None
    return dollars if math.isfinite(dollars) else None
