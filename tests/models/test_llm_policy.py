"""The policy above the backends, on a clock that does not tick by itself."""

from __future__ import annotations

import asyncio
import math
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from culmen.core.errors import NoAnswer, Unavailable, UserError
from culmen.core.usage import Usage
from culmen.models.call import (
    BadResponse,
    Call,
    ChatMessage,
    Completion,
    Declined,
    Interrupted,
    RateLimited,
    Reply,
    ServerFailed,
    Tokens,
)
from culmen.models.caller import Caller, CallOutcome, RequestSpending, clean_text
from culmen.models.limits import Health, RateLimiter
from culmen.models.spec import Price, PriceList, Provider, RetryPolicy
from culmen.testing.scripted import ScriptedModel
from tests.models.conftest import FakeClock

CALL = Call("m", (ChatMessage("user", "hi"),), max_tokens=100)
PRICES = PriceList("m", table=Price(1.0, 2.0))
GOOD = Reply((Completion("fine"),), Tokens(10, 5))


class Playing:
    """A backend that plays a list of replies and errors, then GOOD for ever."""

    def __init__(self, *acts: Any) -> None:
        self.acts, self.count, self.running, self.most = list(acts), 0, 0, 0

    async def complete(self, call: Call) -> Reply:
        self.count += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            act = self.acts.pop(0) if self.acts else GOOD
            if isinstance(act, Exception):
                raise act
            return act
        finally:
            self.running -= 1


def caller(backend: Any, clock: FakeClock, **options: Any) -> Caller:
    health = options.pop("health", None) or Health(clock=clock)
    return Caller(backend, health=health, clock=clock, rng=random.Random(0), **options)


def run(backend: Any, clock: FakeClock, **options: Any) -> CallOutcome:
    return asyncio.run(caller(backend, clock, **options).call(CALL, PRICES))


def test_success_is_priced(clock: FakeClock) -> None:
    outcome = run(Playing(), clock)
    assert outcome.choices == (Completion("fine"),)
    assert outcome.usage == Usage(calls=1, input_tokens=10, output_tokens=5, dollars=20e-6)


def test_bad_responses_are_retried_twice_kept_raw_and_paid(clock: FakeClock) -> None:
    bad = BadResponse("no_choices", raw="{}", tokens=Tokens(10, 0))
    good = run(Playing(bad, bad), clock)
    assert (good.fault, good.faults, good.usage.calls) == ("", {"no_choices": 2}, 3)
    assert good.usage.input_tokens == 30
    worse = run(Playing(bad, bad, bad, bad), clock)
    assert (worse.fault, worse.usage.calls, worse.choices) == ("no_choices", 3, ())
    assert worse.raws == ("[no_choices] {}",) * 3


def test_unknown_cost_is_said(clock: FakeClock) -> None:
    faults = Interrupted("cut"), BadResponse("html", raw="<html>")
    most = Usage(
        uncertain_tokens=2 * 118, uncertain_dollars=2 * 218e-6
    )  # 18 tokens of prompt, 100 of reply
    lost = run(Playing(*faults, Declined("too_long")), clock)
    assert lost.usage == Usage(calls=2, unpriced=2) + most
    # a reply of 5 tokens to 10 of prompt: the others may have had 27 each, see Unreported
    likely = Usage(uncertain_tokens=2 * 37, uncertain_dollars=2 * 64e-6)
    paid = Usage(calls=3, input_tokens=10, output_tokens=5, dollars=20e-6, unpriced=2)
    outcome = run(Playing(*faults), clock)
    assert outcome.usage.uncertain_dollars == pytest.approx(likely.uncertain_dollars)
    assert outcome.usage == msgspec.structs.replace(
        paid + likely, uncertain_dollars=outcome.usage.uncertain_dollars
    )


def test_failures_that_cost_nothing_are_no_calls(clock: FakeClock) -> None:
    outcome = run(Playing(RateLimited(), ServerFailed("server_error")), clock)
    assert (outcome.usage.calls, outcome.faults) == (1, {"rate_limited": 1, "server_error": 1})


def test_pauses_grow_with_jitter_and_end(clock: FakeClock) -> None:
    acts = [ServerFailed("server_error")] * 9
    health = Health(threshold=100, clock=clock)
    outcome = run(
        Playing(*acts), clock, health=health, policy=RetryPolicy(retries=5, base=1.0, cap=4.0)
    )
    assert outcome.fault == "server_error"
    assert len(clock.slept) == 5
    for slept, most in zip(clock.slept, (1, 2, 4, 4, 4), strict=True):
        assert most / 2 <= slept <= most


def test_retry_after_is_honoured_by_all_up_to_the_cap(clock: FakeClock) -> None:
    async def main() -> None:
        one = caller(Playing(RateLimited(retry_after=20.0)), clock)
        await one.call(CALL, PRICES)
        assert clock.time == pytest.approx(1020.0)
        two = one.with_backend(Playing(RateLimited(retry_after=9999.0)))
        await two.call(CALL, PRICES)
        assert clock.time == pytest.approx(1080.0)

    asyncio.run(main())


def test_an_outage_pauses_everyone_and_burns_no_call(clock: FakeClock) -> None:
    told: list[str] = []

    async def main() -> list[CallOutcome]:
        health = Health(
            "p",
            threshold=4,
            first_pause=1,
            longest_pause=30,
            patience=3600,
            clock=clock,
            tell=told.append,
        )
        backend = Playing(*[ServerFailed("no_connection")] * 40)
        one = caller(backend, clock, health=health, policy=RetryPolicy(retries=5))
        outcomes = await asyncio.gather(*(one.call(CALL, PRICES) for _ in range(8)))
        assert not health.is_down
        return outcomes

    outcomes = asyncio.run(main())
    assert [o.fault for o in outcomes] == [""] * 8
    assert sum(o.usage.calls for o in outcomes) == 8
    assert told == ["p does not answer (no_connection): pausing", "p answers again"]
    assert clock.time - 1000 > 100


def test_only_one_tries_while_it_is_down(clock: FakeClock) -> None:
    class Down(Playing):
        probing = 0

        async def complete(self, call: Call) -> Reply:
            if health.is_down and self.running:
                self.probing += 1
            return await super().complete(call)

    health = Health(threshold=2, clock=clock, patience=10_000)
    backend = Down(*[ServerFailed("server_error")] * 30)

    async def main() -> None:
        one = caller(backend, clock, health=health)
        await one.call(CALL, PRICES)  # alone until the provider is known to be down and up again
        backend.acts = [ServerFailed("server_error")] * 20
        await asyncio.gather(*(one.call(CALL, PRICES) for _ in range(6)))

    asyncio.run(main())
    assert backend.probing == 0


def test_an_outage_without_end_stops_the_run(clock: FakeClock) -> None:
    for has_served, error in ((True, Unavailable), (False, NoAnswer)):
        began = clock.time
        health = Health("p", threshold=2, patience=600, clock=clock, has_served=has_served)
        with pytest.raises(error, match="p has not answered for 600 s"):
            run(Playing(*[ServerFailed("no_connection")] * 1000), clock, health=health)
        assert 600 < clock.time - began < 800


def test_a_cancelled_probe_lets_others_try(clock: FakeClock) -> None:
    async def main() -> None:
        health = Health(threshold=1, first_pause=1, clock=clock, patience=10_000)
        health.report_failure("x")
        hang = asyncio.Event()

        async def probe() -> None:
            async with health.attempt_turn():
                await hang.wait()

        first = asyncio.ensure_future(probe())
        while not clock.slept:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.ensure_future(caller(Playing(), clock, health=health).call(CALL, PRICES))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).fault == ""

    asyncio.run(asyncio.wait_for(main(), 20))


def test_declined_requests_are_not_repeated_and_settings_that_never_work_are_an_error(
    clock: FakeClock,
) -> None:
    assert run(Playing(Declined("too_long")), clock).fault == "too_long"

    async def main() -> None:
        one = caller(Playing(*[Declined("bad_request", "temperature unsupported")] * 3), clock)
        assert (await one.call(CALL, PRICES)).fault == "bad_request"
        assert (await one.call(CALL, PRICES)).fault == "bad_request"
        with pytest.raises(UserError, match="temperature unsupported"):
            await one.call(CALL, PRICES)

    asyncio.run(main())


def test_deadline_bounds_all_attempts_together(clock: FakeClock) -> None:
    outcome = run(
        Playing(*[RateLimited()] * 1000),
        clock,
        policy=RetryPolicy(deadline=100.0, base=8.0, cap=16.0),
        health=Health(threshold=10_000, clock=clock),
    )
    assert outcome.fault == "deadline"
    assert clock.time - 1000 <= 100


def test_a_hanging_backend_is_left(clock: FakeClock) -> None:
    class Hanging:
        async def complete(self, call: Call) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    outcome = run(
        Hanging(),
        clock,
        policy=RetryPolicy(timeout=0.01, retries=2),
        health=Health(threshold=99, clock=clock),
    )
    assert (outcome.fault, outcome.faults) == ("timeout", {"timeout": 3})
    assert msgspec.structs.replace(outcome.usage, uncertain_dollars=0.0) == Usage(
        calls=3, unpriced=3, uncertain_tokens=3 * 118
    )


def test_a_retry_that_is_not_permitted_is_left_out(clock: FakeClock) -> None:
    asked: list[Usage] = []

    def no(usage: Usage) -> bool:
        asked.append(usage)
        return False

    one = caller(Playing(BadResponse("html"), BadResponse("html")), clock)
    spending = RequestSpending(no)
    spending.begin_attempts(one.largest_cost(CALL, PRICES))
    outcome = asyncio.run(one.call(CALL, PRICES, spending))
    assert (outcome.fault, outcome.usage.calls) == ("html", 1)
    assert (asked[0].calls, asked[0].output_tokens, asked[0].uncertain_tokens) == (2, 100, 118)
    assert spending.flight == Usage() and spending.cost == outcome.usage


def test_a_prompt_is_reckoned_at_a_token_a_byte_or_what_the_provider_once_counted(
    clock: FakeClock,
) -> None:
    class Dense:
        async def complete(self, call: Call) -> Reply:
            return Reply((Completion("ok"),), Tokens(3 * call.most_prompt_tokens(), 1))

    one = caller(Dense(), clock)
    call = Call("m", (ChatMessage("user", "\N{GREEK SMALL LETTER ALPHA}" * 50),), max_tokens=10)
    assert one.largest_cost(call, PRICES).input_tokens == 100 + 16
    asyncio.run(one.call(call, PRICES))
    assert one.largest_cost(call, PRICES).input_tokens == 3 * 116
    assert (
        one.largest_cost(msgspec.structs.replace(call, model="other"), PRICES).input_tokens == 116
    )


def test_a_prompt_may_have_to_be_stored_at_a_price(clock: FakeClock) -> None:
    plain, stored = (
        PriceList("m", table=Price(1.0, 2.0)),
        PriceList("m", table=Price(1.0, 2.0, cache_write=4.0)),
    )
    one = caller(Playing(), clock)
    assert one.largest_cost(CALL, stored).dollars == pytest.approx(
        one.largest_cost(CALL, plain).dollars + 18 * 3e-6
    )


def test_lanes_are_shared(clock: FakeClock) -> None:
    async def main() -> None:
        backend, other = Playing(), Playing()
        one = caller(backend, clock, lanes=asyncio.Semaphore(3))
        two = one.with_backend(other)
        await asyncio.gather(*(c.call(CALL, PRICES) for c in (one, two) * 10))
        assert backend.count == other.count == 10
        assert backend.most + other.most <= 4 and max(backend.most, other.most) >= 2

    asyncio.run(main())


def test_rate_limits_hold_in_every_window(clock: FakeClock) -> None:
    times: list[tuple[float, int]] = []

    async def main() -> None:
        limiter = RateLimiter(rpm=5, tpm=1000, clock=clock)

        async def one(tokens: int) -> None:
            slot = await limiter.acquire(tokens)
            times.append((slot.time, tokens))

        await asyncio.gather(
            *(one(tokens) for tokens in [100] * 12 + [400] * 6 + [5000] + [10] * 3)
        )

    asyncio.run(main())
    assert len(times) == 22
    for start, _ in times:
        window = [tokens for time, tokens in times if start <= time < start + 60]
        assert len(window) <= 5
        assert sum(window) <= 1000 or len(window) == 1
    assert times[0][0] == times[4][0] == 1000.0  # no waiting while there is room


def test_true_token_counts_replace_estimates(clock: FakeClock) -> None:
    limiter = RateLimiter(tpm=1000, clock=clock)
    one = Caller(Playing(), limiter=limiter, clock=clock, health=Health(clock=clock))
    call = Call("m", (ChatMessage("user", "hi"),), max_tokens=800)

    async def main() -> None:
        for _ in range(10):
            await one.call(call, PRICES)

    asyncio.run(main())
    assert clock.slept == []  # 10 x 15 tokens, not 10 x 820


def test_what_a_user_class_may_return(clock: FakeClock) -> None:
    class Plain:
        def __init__(self, value: Any) -> None:
            self.value = value

        async def complete(self, call: Call) -> Any:
            return self.value

    assert run(Plain("text"), clock).choices == (Completion("text"),)
    assert run(Plain(["a", "b"]), clock).choices == (Completion("a"), Completion("b"))
    assert run(Plain("text"), clock).usage == Usage(
        calls=1, unpriced=1, uncertain_tokens=30, uncertain_dollars=pytest.approx(42e-6)
    )
    with pytest.raises(TypeError, match="must return"):
        run(Plain(7), clock)


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        (Reply((Completion("12345678"),)), 8 + 8),
        (Reply((Completion("é" * 4), Completion("1234"))), 8 + 4 + 2 * 8),
        (Reply((Completion("1234"),), size=40), 40 + 8),  # with reasoning that is shown
        (Reply((Completion("1234" * 100),)), 100),  # no more than was allowed
        (Reply((Completion("1234", "length"),)), 100),
        (Reply((Completion("", "stop"),)), 100),  # it may have been thought at length
        (Reply((Completion("1234", "reasoning_only"),)), 100),
    ],
)
def test_bytes_of_a_reply_without_a_report_bound_its_tokens(
    reply: Reply, output: int, clock: FakeClock
) -> None:
    usage = run(Playing(reply), clock).usage
    assert (usage.unpriced, usage.tokens, usage.uncertain_tokens) == (1, 0, 18 + output)
    long = PriceList("m", table=Price(1.0, 2.0), token_bytes=4.0)
    usage = asyncio.run(caller(Playing(reply), clock).call(CALL, long)).usage
    assert usage.uncertain_tokens == 5 + (math.ceil(output / 4) if output < 100 else 100)


@pytest.mark.parametrize(("total", "likely"), [(20, Tokens(14, 6)), (60, Tokens(42, 18))])
def test_a_total_is_split_by_bytes_and_may_have_cost_the_dearest_split(
    total: int, likely: Tokens, clock: FakeClock
) -> None:
    usage = run(Playing(Reply((Completion("12345678"),), total=total)), clock).usage
    assert (usage.input_tokens, usage.output_tokens) == (likely.input, likely.output)
    assert usage.dollars == pytest.approx(PRICES.dollars_for(likely)) and not usage.unpriced
    # the reply may have had reasoning that it does not show
    assert usage.at_most("dollars") == pytest.approx(PRICES.dollars_for(Tokens(0, total)))
    absurd = run(Playing(Reply((Completion("12345678"),), total=10**9)), clock).usage
    assert absurd.unpriced == 1 and absurd.uncertain_tokens == 18 + 16


def test_the_dearest_split_of_a_total_is_within_what_prompt_and_reply_can_have() -> None:
    assert PRICES.dearest_split(20, 18, 16) == Tokens(4, 16)
    assert PRICES.dearest_split(20, 18, 16, 8) == Tokens(8, 12)
    assert PRICES.dearest_split(60, 18, 16) == Tokens(18, 42)  # what neither shows was thought
    assert PriceList("m", table=Price(2.0, 1.0)).dearest_split(20, 18, 16) == Tokens(18, 2)


def test_a_reply_that_its_limit_cut_off_tells_how_totals_split(clock: FakeClock) -> None:
    async def costs(*replies: Reply) -> list[Usage]:
        asked = caller(Playing(*replies), clock)
        return [(await asked.call(CALL, PRICES)).usage for _ in replies]

    whole, cut = Completion("12345678" * 10), Completion("1234" * 10, "length")
    before, exact, after = asyncio.run(
        costs(
            *(Reply((each,), total=total) for each, total in ((whole, 50), (cut, 110), (whole, 50)))
        )
    )
    assert before.at_most("dollars") == pytest.approx(PRICES.dollars_for(Tokens(0, 50)))
    assert (exact.input_tokens, exact.output_tokens) == (10, 100)
    # nine of the ten tokens of the same prompt are certain enough, for the reply before it as well
    assert before.at_most("dollars") + exact.at_most("dollars") + after.at_most(
        "dollars"
    ) == pytest.approx(
        2 * PRICES.usage_for(Tokens(9, 41)).dollars + PRICES.usage_for(Tokens(10, 100)).dollars
    )


def test_errors_are_billed_if_the_provider_does_that(clock: FakeClock) -> None:
    acts = [ServerFailed("server_error"), ServerFailed("no_connection"), RateLimited()]
    for bills, calls in ((False, 1), (True, 2)):
        outcome = run(Playing(*acts), clock, provider=Provider("p", bills_errors=bills))
        assert (outcome.usage.calls, outcome.usage.unpriced) == (calls, calls - 1)
        assert outcome.faults["billed_error" if bills else "server_error"] == 1


def test_texts_are_made_storable(clock: FakeClock) -> None:
    assert clean_text("a\r\nb\0\ud800") == "a\nb?"
    assert run(ScriptedModel(["x\ud800\0"]), clock).choices[0].text == "x?"


def test_prices() -> None:
    table = PriceList("m", table=Price(2.0, 8.0, cached_input=0.5))
    assert table.dollars_for(Tokens(1_000_000, 500_000, 400_000)) == pytest.approx(1.2 + 0.2 + 4.0)
    assert table.usage_for(None) == Usage(calls=1, unpriced=1)
    assert table.usage_for(None, dollars=0.5) == Usage(calls=1, dollars=0.5)
    listed = PriceList("gpt-4o-mini", "openai")
    assert listed.dollars_for(Tokens(1_000_000, 0)) == pytest.approx(0.15)
    for unknown in (
        PriceList("no-such-model", "openai"),
        PriceList("gpt-4o-mini", ""),
        PriceList("x", "no-such"),
    ):
        assert unknown.dollars_for(Tokens(10, 10)) is None
        assert unknown.usage_for(Tokens(10, 10)) == Usage(
            calls=1, input_tokens=10, output_tokens=10, unpriced=1
        )


def test_policy_listed_prices_are_those_of_the_hour() -> None:
    """DeepSeek's list has a lower price from 16:30 to 00:30 UTC; no earlier answer is kept."""
    listed, tokens = PriceList("deepseek-chat", "deepseek"), Tokens(1_000_000, 1_000_000)
    day, night = (
        listed.dollars_for(tokens, datetime(2025, 7, 1, hour, tzinfo=UTC)) for hour in (12, 20)
    )
    assert day is not None and night == pytest.approx(day / 2)
    assert listed.dollars_for(tokens, datetime(2025, 7, 2, 12, tzinfo=UTC)) == day
    for hour, minute in ((12, 0), (16, 25), (0, 25)):  # before, at the fall, at the rise
        begin = datetime(2025, 7, 2, hour, minute, tzinfo=UTC)
        assert listed.largest_usage(tokens, begin).dollars == day
    assert listed.largest_usage(tokens, datetime(2025, 7, 2, 20, tzinfo=UTC)).dollars == night
