"""Listed prices beside genai-prices, of which culmen's snapshot is made."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.core.usage import Budget
from culmen.models import spec
from culmen.models.call import Tokens
from culmen.models.roles import ModelBook, check_models
from culmen.models.spec import ListedPrice, PriceList

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
data = pytest.importorskip("genai_prices.data", reason="the extra `prices` is not installed")
SNAPSHOT = spec._snapshot()
pytestmark = pytest.mark.skipif(
    version("genai-prices") != SNAPSHOT.version,
    reason=f"genai-prices is {version('genai-prices')}, the snapshot of {SNAPSHOT.version}",
)


def assert_equal(provider: str, model: str, tokens: Tokens, at: datetime = NOW) -> float | None:
    """Both have the same price, or none."""
    ours = PriceList(model, provider).dollars_for(tokens, at)
    theirs = spec._package_dollars(model, provider, tokens, at)
    where = provider, model, tokens, at
    if ours is None or theirs is None:
        assert ours is theirs, where
    else:
        assert math.isclose(ours, theirs, rel_tol=1e-12), where
    return ours


def names_for(pattern: str) -> Iterator[str]:
    """Names as users write them, which the pattern fits, nearly fits, or does not."""
    text = pattern.strip("~^$")
    if pattern[0] == "~":  # dates and counts are all that the expressions leave open
        text = text.replace(r"\d{8}", "20260101").replace(r"\d{4}-\d{2}-\d{2}", "2026-01-01")
        text = re.sub(r"\(\?!.*|[\^$\\()?]", "", text.replace(r"\d", "7"))
    yield from (text, text.upper(), text[:-1], f"{text}-20251211", f"{text}-2025-12-11:free")
    yield from (f"openai/{text}", f"us.{text}-v1:0", f"{text}-latest", f"{text}-tts-1")


def times_for(price: ListedPrice) -> Iterator[datetime]:
    """Moments around the first day and the hours of a price, in UTC and another zone."""
    day = max(price.since, datetime(2024, 1, 2).date())
    for hour in {price.first, price.last}:
        edge = datetime.combine(day, hour, UTC)
        for moment in (edge - timedelta(microseconds=1), edge, edge + timedelta(days=400)):
            yield moment
            yield moment.astimezone(timezone(timedelta(hours=-9)))


def usages_for(price: ListedPrice) -> Iterator[Tokens]:
    """Token counts at the edge of a tier, with all splits of the cache."""
    for given in {0, 1, max(0, price.above), price.above + 1, 12_345}:
        yield Tokens(given, 777)
        yield Tokens(given, 0, given // 3)
        yield Tokens(given, 5, 0, given)
        yield Tokens(given, 5, given // 2, given)


@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(each.id, marks=[pytest.mark.slow] * (len(each.models) > 500))
        for each in data.providers
    ],
)
def test_every_model_costs_what_the_package_says(provider: str) -> None:
    draws, known = random.Random(provider), 0
    theirs = next(each for each in data.providers if each.id == provider)
    assert len(theirs.models) <= len(SNAPSHOT.models[provider])
    for patterns, prices in SNAPSHOT.models[provider]:
        names = [name for pattern in patterns for name in names_for(pattern)]
        for name in names:
            known += assert_equal(provider, name, Tokens(1000, 100, 300, 200)) is not None
        for price in prices:
            cases = [(tokens, at) for tokens in usages_for(price) for at in times_for(price)]
            for tokens, at in draws.sample(cases, min(len(cases), 40)):
                assert_equal(provider, names[0], tokens, at)
    assert known >= len(theirs.models)


def test_providers_are_found_as_the_package_finds_them() -> None:
    models = ("gpt-5-mini", "CLAUDE-sonnet-4-5", "gemini-2.5-pro", "x", "mistral-large", "o3", "")
    names = {" OpenAI ", "bedrock", "vertex", "huggingface-groq", "LiteLLM", "no-such", "xai", ""}
    names |= {pattern.strip("~^$") for patterns, _ in SNAPSHOT.providers for pattern in patterns}
    found = 0
    for provider in sorted(names):
        for model in models:
            for name in (model, f"azure/{model}", f"no-such/{model}", f"/{model}"):
                found += assert_equal(provider, name, Tokens(250_000, 10, 10)) is not None
    assert found > 30


def test_an_unknown_price_is_told_with_the_age_of_the_list(tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text('[providers.near]\nbase_url = "http://127.0.0.1:9/v1"\nprices = "openai"\n')
    for name, prices in (("near/gpt-99", True), ("vllm/gpt-99", False)):
        with pytest.raises(UserError, match=f"the price of {name} is unknown") as caught:
            check_models(ModelBook(models).parse_roles(name), Budget(dollars=1.0))
        advice = f"prices are of {SNAPSHOT.date}, newer ones: pip install -U 'culmen[prices]'"
        assert (advice in str(caught.value)) == prices
    assert SNAPSHOT.date in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_snapshot_is_what_the_generator_makes() -> None:
    made_from = spec_from_file_location("make_prices", ROOT / "bench" / "make_prices.py")
    assert made_from is not None and made_from.loader is not None
    script = module_from_spec(made_from)
    made_from.loader.exec_module(script)
    assert script.snapshot(SNAPSHOT.date) == script.TARGET.read_text(encoding="utf-8")


def test_a_newer_package_is_used_in_place_of_the_snapshot(tmp_path: Path) -> None:
    package = tmp_path / "genai_prices"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace as Usage\n"
        "def calc_price(*_, **__): return Usage(total_price=7)\n"
    )
    code = (
        "from culmen.models.spec import *;"
        "print(PriceList('gpt-4o-mini', 'openai').dollars_for(Tokens(10, 10)),"
        " PriceList('x', 'openai').advice)"
    )
    for number, dollars in (("0.0.99", "7.5e-06 "), ("0.10", "7.0 ")):
        information = tmp_path / "genai_prices-1.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Name: genai-prices\nVersion: {number}\n")
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        words = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert words.startswith(dollars), words
        assert ("genai-prices 0.10" in words) == (dollars == "7.0 ")
        assert "pip install -U 'culmen[prices]'" in words
