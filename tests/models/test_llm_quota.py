"""Limits learnt from headers, and refusals at random kept apart from a limit."""

from __future__ import annotations

import asyncio
import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import NoAnswer
from culmen.models.call import Call, ChatMessage
from culmen.models.caller import Providers
from culmen.models.limits import LONGEST_WAIT, Health, Quota, read_allowances, seconds_until_reset
from culmen.models.spec import ModelSpec, Price, PriceList, Provider
from tests.models.conftest import FakeClock
from tests.servers.openai_server import OpenAIServer

PRICES = PriceList("m", table=Price(1.0, 2.0))


def openai_headers(
    limit: str, remaining: str, reset: str, kind: str = "requests"
) -> dict[str, str]:
    fields = {"limit": limit, "remaining": remaining, "reset": reset}
    return {f"x-ratelimit-{name}-{kind}": value for name, value in fields.items()}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360), ("120ms", 0.12), ("7.66s", 7.66), ("1h2m3s", 3723), ("9", 9)],
)
def test_resets_are_durations_or_numbers(text: str, seconds: float) -> None:
    assert seconds_until_reset(text) == pytest.approx(seconds)


def test_resets_are_dates_too() -> None:
    date = datetime.datetime.fromtimestamp(time.time() + 30, datetime.UTC)
    for text in (date.isoformat(), date.isoformat().replace("+00:00", "Z")):
        assert seconds_until_reset(text) == pytest.approx(30, abs=1)


def test_a_request_waits_until_the_allowance_has_grown_back() -> None:
    quota = Quota()
    quota.note_headers(openai_headers("60", "2", "58s"), now=100.0)  # one comes back each second
    assert [quota.seconds_to_wait(n, 0, 100.0) for n in (1, 2, 3, 5)] == [0.0, 0.0, 1.0, 3.0]
    assert quota.seconds_to_wait(3, 0, 100.4) == pytest.approx(0.6)
    quota.note_headers(openai_headers("1000", "100", "9s", "tokens"), now=101.0)
    assert quota.seconds_to_wait(1, 300, 101.0) == pytest.approx(2.0)
    assert quota.seconds_to_wait(1, 10**9, 101.0) == pytest.approx(
        9.0
    )  # as long as for a full allowance


def test_the_names_of_anthropic_are_read() -> None:
    date = datetime.datetime.fromtimestamp(time.time() + 10, datetime.UTC).isoformat()
    fields = {"limit": "50", "remaining": "0", "reset": date}
    quota = Quota()
    quota.note_headers(
        {f"anthropic-ratelimit-requests-{name}": value for name, value in fields.items()}, now=0.0
    )
    assert quota.seconds_to_wait(1, 0, 0.0) == pytest.approx(0.2, abs=0.05)


@given(*[st.one_of(st.text(max_size=8), st.floats().map(str), st.integers().map(str))] * 3)
def test_whatever_a_server_sends_the_wait_is_short(limit: str, remaining: str, reset: str) -> None:
    quota = Quota()
    quota.note_headers(openai_headers(limit, remaining, reset), now=5.0)
    assert 0.0 <= quota.seconds_to_wait(10**6, 10**9, 5.0) <= LONGEST_WAIT


def test_malformed_headers_are_left_out() -> None:
    for fields in (
        ("10", "11", "1s"),
        ("10", "-1", "1s"),
        ("nan", "1", "1s"),
        ("10", "1", "soon"),
        ("10", "1", ""),
    ):
        assert list(read_allowances(openai_headers(*fields), 0.0)) == []


def test_calls_keep_to_the_limit_in_the_headers(clock: FakeClock) -> None:
    async def main(url: str) -> None:
        providers = Providers(clock)
        spec = ModelSpec(Provider("local", base_url=url), "m")
        for _ in range(3):
            outcome = await providers.caller_for(spec).call(
                Call("m", (ChatMessage("user", "hi"),), max_tokens=9), PRICES
            )
            assert not outcome.fault
        await providers.close()

    with OpenAIServer() as server:
        server.headers = openai_headers("10", "0", "40s")  # one comes back in four seconds
        asyncio.run(main(server.url))
    assert sum(clock.slept) == pytest.approx(8.0)


def refuse(health: Health, pattern: str, wait: float) -> None:
    for letter in pattern:
        health.report_refusal("rate_limited", wait) if letter == "r" else health.report_success()


async def turn(health: Health) -> None:
    async with health.attempt_turn():
        pass


@pytest.mark.parametrize(
    ("pattern", "waited"), [("r", 0), ("srssrs", 0), ("srrss", 0), ("srsrsr", 20), ("rrr", 20)]
)
def test_all_wait_only_where_most_requests_are_refused(
    clock: FakeClock, pattern: str, waited: float
) -> None:
    health = Health(clock=clock)
    refuse(health, pattern, wait=20.0)
    asyncio.run(turn(health))
    assert sum(clock.slept) == waited


def test_replies_of_earlier_requests_do_not_end_the_wait(clock: FakeClock) -> None:
    health = Health(clock=clock)
    refuse(health, "rrrs", wait=20.0)
    asyncio.run(turn(health))
    assert sum(clock.slept) == 20.0


def test_refusals_alone_are_an_outage_after_a_while(clock: FakeClock) -> None:
    health = Health(clock=clock, threshold=4, patience=100.0)
    refuse(health, "r" * 10, wait=0.0)
    assert not health.is_down
    clock.time += 31
    refuse(health, "r", wait=0.0)
    assert health.is_down
    clock.time += 100
    with pytest.raises(NoAnswer):
        asyncio.run(turn(health))


def test_faults_among_refusals_are_an_outage_at_once(clock: FakeClock) -> None:
    health = Health(clock=clock, threshold=4)
    refuse(health, "rrr", wait=0.0)
    health.report_failure("server_error")
    assert health.is_down
