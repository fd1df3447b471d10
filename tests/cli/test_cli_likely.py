"""The likely cost of a run, printed before it starts."""

from __future__ import annotations

import re

import pytest

from tests.servers.openai_server import SCRIPTED, OpenAIServer

from .conftest import Place

MODELS = """[providers.mine]
base_url = "http://127.0.0.1:9/v1"
retries = 0
patience = 0.1
[models.big]
provider = "mine"
price = { input = 3.0, output = 15.0 }
"""


@pytest.mark.slow
def test_calls_tokens_and_dollars_are_told_before_the_first_call(place: Place) -> None:
    place.task("peak")
    (place.root / "m.toml").write_text(MODELS)
    chosen = ("--models", "m.toml", "--model", "big")
    told = place.culmen("run", "peak", *chosen, "--budget", "evaluations=30,dollars=0.5").err
    assert re.search(r"likely +\d+ calls, [\d,]+ tokens, \$0\.\d+", " ".join(told.split())), told
    assert "likely" not in place.culmen("run", "peak", "--budget", "evaluations=3").err


def test_the_forecast_is_in_json_too_and_holds(place: Place) -> None:
    place.task("peak")
    with OpenAIServer("```python\ndef run():\n    return 4.0\n```") as server:
        (place.root / "m.toml").write_text(SCRIPTED.format(url=server.url))
        limits = ("--budget", "evaluations=9,dollars=0.01", "--json")
        chosen = ("--models", "m.toml", "--model", "scripted")
        likely = place.here("run", "peak", *chosen, *limits).document["likely"]
    assert 5 <= likely["calls"] <= 10 and likely["answers"]["calls"] == 0
    assert likely["proposals"]["calls"] == likely["calls"] and likely["tokens"] > 100
    assert 0 < likely["dollars"] <= 0.01
    assert (
        place.here("run", "peak", "--budget", "evaluations=3", "--json").document["likely"] is None
    )


def test_the_end_says_what_was_spent_of_the_money_and_for_what(place: Place) -> None:
    place.task("peak")
    with OpenAIServer("```python\ndef run():\n    return 4.0\n```") as server:
        (place.root / "m.toml").write_text(SCRIPTED.format(url=server.url))
        chosen = (
            "--models",
            "m.toml",
            "--model",
            "scripted",
            "--budget",
            "evaluations=9,dollars=0.5",
        )
        done = place.here("run", "peak", *chosen)
    said = re.search(r"(\d+) calls?, .*\$([\d.]+) of \$0\.50, ", done.out)
    assert said, done.out + done.err
    usage = place.here("status", "--json").document["usage"]
    assert int(said[1]) == usage["calls"] > 0 and float(said[2]) == pytest.approx(
        usage["dollars"], abs=1e-4
    )
