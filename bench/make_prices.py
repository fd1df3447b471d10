"""Write src/culmen/models/prices.json from the installed genai-prices.

    python bench/make_prices.py    # then the version in requirements.lock and docs/models.md

The file has figures and patterns of names alone. A price of genai-prices that depends on the time or on the number of
tokens becomes several, of which the first that applies counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import data, types

TARGET = Path(__file__).resolve().parents[1] / "src" / "culmen" / "models" / "prices.json"
SOURCE = "https://github.com/pydantic/genai-prices (MIT)"
RATES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
ANY_NUMBER = -1  # of tokens: a price for more than that
ALWAYS = "0001-01-01", "00:00:00", "23:59:59.999999"  # since a day, from and to a time of a day
DEFAULTS = [None, None, 0, ANY_NUMBER, *ALWAYS]  # of a row behind the rates of input and output


def patterns(clause: Any) -> list[str]:
    """Patterns, one of which a lower-case name has to match.

    A pattern is a part of `^name$`, or `~` and a regular expression.
    """
    if clause is None:
        return []
    if isinstance(clause, types.ClauseOr):
        return [each for part in clause.or_ for each in patterns(part)]
    if isinstance(clause, types.ClauseAnd):
        parts = ("|".join(map(expression, patterns(part))) for part in clause.and_)
        return ["~^" + "".join(f"(?=.*(?:{part}))" for part in parts)]
    (kind, text), *_ = vars(clause).items()
    if kind == "regex":
        return ["~" + text]
    begin, end = kind in ("equals", "starts_with"), kind in ("equals", "ends_with")
    return ["^" * begin + text.lower() + "$" * end]


def expression(pattern: str) -> str:
    """A pattern as a regular expression."""
    if pattern[0] == "~":
        return pattern[1:]
    return re.escape(pattern).replace(r"\^", "^").replace(r"\$", "$")


def listed_prices(model: Any) -> list[list[Any]]:
    """Rows of a `ListedPrice`, the first that applies first; the last applies always."""
    prices = (
        model.prices
        if isinstance(model.prices, list)
        else [types.ConditionalPrice(prices=model.prices)]
    )
    always = [types.ConditionalPrice(prices=prices[0].prices)] if prices else []
    rows: list[list[Any]] = []
    for each in [*reversed(prices), *always]:
        rows += rows_of(each)
        if each.constraint is None:
            break
    return rows


def rows_of(price: Any) -> Iterator[list[Any]]:
    """One row for each tier of tokens, the dearest tier first, and each condition."""
    found = vars(price.prices)
    tiered = [value.tiers for value in found.values() if isinstance(value, types.TieredPrices)]
    call = float(found.get("requests_kcount") or 0) / 1000 or 0
    for above in sorted(
        {ANY_NUMBER, *(tier.start for tiers in tiered for tier in tiers)}, reverse=True
    ):
        given, written, *cached = (rate_above(found.get(name), above) for name in RATES)
        for condition in conditions(price.constraint):
            row = [given or 0, written or 0, *cached, call, above, *condition]
            while row[2:] and row[-1] == DEFAULTS[len(row) - 3]:
                row.pop()
            yield row


def rate_above(rate: Any, above: int) -> float | int | None:
    """The rate for more tokens than that, up to the next tier."""
    if isinstance(rate, types.TieredPrices):
        rate = next((tier.price for tier in reversed(rate.tiers) if above >= tier.start), rate.base)
    return None if rate is None else int(rate) if rate == int(rate) else float(rate)


def conditions(constraint: Any) -> Iterator[tuple[str, str, str]]:
    """First days, and first and last times of a day, at which a price applies, in UTC."""
    if isinstance(constraint, types.StartDateConstraint):
        yield constraint.start_date.isoformat(), *ALWAYS[1:]
    elif isinstance(constraint, types.TimeOfDateConstraint):
        begin, end = time_in_utc(constraint.start_time), time_in_utc(constraint.end_time)
        last = (datetime.combine(date(2000, 1, 1), end) - timedelta(microseconds=1)).time()
        spans = (
            [(begin, last)]
            if begin < end
            else [(begin, time.max), (time.min, last)]
            if end < begin
            else []
        )
        yield from (
            (ALWAYS[0], first.isoformat(), final.isoformat())
            for first, final in spans
            if first <= final
        )
    else:
        yield ALWAYS


def time_in_utc(value: time) -> time:
    """A time of day without its zone."""
    there = datetime.combine(date(2000, 1, 1), value)
    return (there.astimezone(UTC) if value.tzinfo else there).time()


def snapshot(day: str) -> str:
    """The text of the file: JSON, a line for each model."""
    own = {
        provider.id: [[patterns(each.match), listed_prices(each)] for each in provider.models]
        for provider in data.providers
    }
    known = {provider.id: provider.fallback_model_providers or [] for provider in data.providers}
    head = {
        "source": SOURCE,
        "version": version("genai-prices"),
        "date": day,
        "providers": [[[f"^{name}$"], name] for name in own] + rows_by_name("provider_match"),
        "prefixes": rows_by_name("model_match"),
    }
    rows = []
    for name, others in known.items():
        models = [row for each in (name, *others) for row in own.get(each, ())]
        rows.append(f"{compact(name)}:[\n" + ",\n".join(map(compact, models)) + "]")
    return f'{compact(head)[:-1]},"models":{{\n' + ",\n".join(rows) + "}}\n"


def rows_by_name(field: str) -> list[list[Any]]:
    """Patterns of each provider, and its name."""
    found = ((patterns(getattr(provider, field)), provider.id) for provider in data.providers)
    return [[texts, name] for texts, name in found if texts]


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    TARGET.write_text(snapshot(datetime.now(UTC).date().isoformat()), encoding="utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, genai-prices {version('genai-prices')}")
