"""Budgets against servers that report what they bill in odd ways, or not at all.

The servers count their bills themselves.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import UserError
from culmen.report.facts import read_facts
from culmen.report.sentences import find_problems
from tests.servers.billing_server import PRICE, REPORTS, BillingServer

MODELS = """
[providers.own]
base_url = "{url}/v1"
base = 0.001
cap = 0.002
{provider}
[models.m]
provider = "own"
max_tokens = 2000
price = {{ input = {price.input}, output = {price.output} }}
{model}
"""


def score(candidate: str) -> float:
    return -abs(float(re.findall(r"VALUE = ([-\d.]+)", candidate)[0]) - 1e6)


def search(
    server: BillingServer, folder: Path, budget: str, provider: str = "", model: str = ""
) -> culmen.Study:
    file = folder / "models.toml"
    file.write_text(MODELS.format(url=server.url, provider=provider, model=model, price=PRICE))
    return culmen.optimize(
        "VALUE = 1.0\n",
        evaluator=score,
        model="m",
        models_file=str(file),
        strategy="best_of_n",
        budget=culmen.Budget.parse(f"evaluations=2000,{budget}"),
        workers=4,
        run_dir=folder / "run",
        progress=False,
        deterministic=True,
    )


@pytest.fixture(autouse=True)
def no_shared_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "report", ["counts as texts", "the total alone", "the reply and the total"]
)
def test_a_total_or_counts_as_texts_are_counts(report: str, tmp_path: Path) -> None:
    with BillingServer(report) as server:
        study = search(server, tmp_path, "tokens=30000")
    usage = study.status.usage
    assert server.tokens == usage.input_tokens + usage.output_tokens <= 30_000
    assert server.tokens >= 0.8 * 30_000 and usage.unpriced == 0


@pytest.mark.parametrize(
    ("token_bytes", "named"), [(1.5, ""), (4.0, ""), (4.0, "token_bytes = 3.9")]
)
def test_totals_use_most_of_a_budget_of_dollars(
    token_bytes: float, named: str, tmp_path: Path
) -> None:
    with BillingServer("the total alone", token_bytes=token_bytes) as server:
        study = search(server, tmp_path, "dollars=0.08", model=named)
    usage = study.status.usage
    assert 0.064 <= server.dollars <= 0.08 and usage.uncertain.dollars >= 0
    assert server.tokens == usage.input_tokens + usage.output_tokens and not usage.unpriced
    assert bool(study.status.faults.get("truncated")) == (not named)


@pytest.mark.parametrize("token_bytes", [1.0, 4.0])
@pytest.mark.parametrize("report", ["nothing", "zeros", "words"])
@pytest.mark.parametrize(("budget", "limit"), [("tokens", 50_000), ("dollars", 0.1)])
def test_without_a_report_replies_that_are_cut_off_tell_the_length_of_tokens(
    report: str, budget: str, limit: float, token_bytes: float, tmp_path: Path
) -> None:
    with BillingServer(report, token_bytes=token_bytes) as server:
        study = search(server, tmp_path, f"{budget}={limit:g}")
    assert 0.8 * limit <= getattr(server, budget) <= limit
    assert study.status.usage.calls == server.calls
    found = {each.topic: each for each in find_problems(read_facts(study.path))}
    assert "token_bytes" in found["unreported"].do and "unpriced" not in found
    if token_bytes > 1:  # else a cut reply may show too little to tell
        assert "replies that were cut off" in found["unreported"].what


@pytest.mark.parametrize(("budget", "limit"), [("tokens", 50_000), ("dollars", 0.1)])
def test_without_a_report_or_a_cut_reply_a_token_counts_as_a_byte(
    budget: str, limit: float, tmp_path: Path
) -> None:
    with BillingServer("nothing") as server:
        study = search(server, tmp_path, f"{budget}={limit:g},calls=5")
    found = {each.topic: each for each in find_problems(read_facts(study.path))}
    assert server.calls == 5 and getattr(server, budget) < 0.3 * limit
    unused = 0.75 * getattr(study.status.usage.uncertain, budget)
    told = f"about {unused:,.0f} tokens of" if budget == "tokens" else f"about ${unused:.4f} of"
    assert told in found["unreported"].what


@pytest.mark.parametrize(("budget", "limit"), [("tokens", 30_000), ("dollars", 0.06)])
def test_without_a_report_the_length_of_tokens_may_be_named(
    budget: str, limit: float, tmp_path: Path
) -> None:
    with BillingServer("nothing") as server:
        study = search(server, tmp_path, f"{budget}={limit:g}", model="token_bytes = 3.9")
    assert 0.8 * limit <= getattr(server, budget) <= limit
    assert not any(each.topic == "unreported" for each in find_problems(read_facts(study.path)))


@pytest.mark.parametrize(
    ("report", "budget", "is_told"),
    [
        ("the total alone", "dollars=0.04", True),
        ("the total alone", "tokens=20000", False),
        ("counts", "dollars=0.04", False),
        ("nothing", "calls=4", False),
    ],
)
def test_a_run_says_where_budgets_count_more_than_is_billed(
    report: str, budget: str, is_told: bool, tmp_path: Path
) -> None:
    with BillingServer(report) as server:
        study = search(server, tmp_path, budget)
    told = [e for e in find_problems(read_facts(study.path)) if e.topic == "unreported"]
    assert bool(told) == is_told
    assert not told or ("dearest split" in told[0].what and "token_bytes" in told[0].do)


def test_replies_that_were_counted_tell_of_the_others(tmp_path: Path) -> None:
    with BillingServer("nothing", counted=3) as server:
        search(server, tmp_path, "dollars=0.1")
    assert 0.08 <= server.dollars <= 0.1


@pytest.mark.parametrize("report", REPORTS)
def test_calls_are_calls_whatever_is_reported(report: str, tmp_path: Path) -> None:
    with BillingServer(report) as server:
        search(server, tmp_path, "calls=8")
    assert server.calls == 8


@pytest.mark.parametrize(("budget", "limit"), [("calls", 15), ("dollars", 0.05)])
def test_errors_that_are_billed_are_counted(budget: str, limit: float, tmp_path: Path) -> None:
    with BillingServer(errors=3) as server:
        study = search(server, tmp_path, f"{budget}={limit:g}", provider="bills_errors = true")
    assert 0.7 * limit <= getattr(server, budget) <= limit
    assert study.status.usage.calls == server.calls and study.status.usage.unpriced > 0
    assert not any(each.topic == "server_errors" for each in find_problems(read_facts(study.path)))


def test_a_run_that_met_errors_says_what_they_may_have_cost(tmp_path: Path) -> None:
    with BillingServer(errors=3) as server:
        study = search(server, tmp_path, "calls=15")
    errors = study.status.server_errors
    assert study.status.usage.calls == 15 and server.calls == 15 + errors > 15
    (found,) = [e for e in find_problems(read_facts(study.path)) if e.topic == "server_errors"]
    assert f"{errors} request" in found.what and "$0.0" in found.what
    assert "bills_errors" in found.do


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e9"])
def test_a_length_of_tokens_that_none_have_is_refused(value: str, tmp_path: Path) -> None:
    with BillingServer() as server, pytest.raises(UserError, match="token_bytes"):
        search(server, tmp_path, "calls=1", model=f"token_bytes = {value}")
    assert server.calls == 0


@pytest.mark.parametrize("value", ["-5", "0", "nan", "inf"])
def test_a_time_that_none_can_be_is_refused(value: str, tmp_path: Path) -> None:
    with BillingServer() as server, pytest.raises(UserError, match=r"own\.timeout"):
        search(server, tmp_path, "calls=1", provider=f"timeout = {value}")
    assert server.calls == 0
