"""Budgets of calls, tokens and money against a provider that bills what it likes.

Malformed and broken replies, a token a byte, replies that come too late. The provider itself counts
its bills.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

import culmen
from culmen.engine.driver import replay_journal
from culmen.models.call import BadResponse, Call, Completion, Interrupted, Reply, Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.run.assemble import rebuild_search
from culmen.store.journal import SqlJournal

SEED = "VALUE = 1.0\n"
PRICE = Price(input=10.0, output=40.0)


def score(candidate: str) -> float:
    return -abs(float(re.findall(r"VALUE = ([-\d.]+)", candidate)[0]) - 1e6)


@dataclass
class Billing:
    """A provider's own meter, with faults.

    Of each ten requests, `malformed` and `broken` come to a bad end; a token is `bytes` bytes long.
    """

    malformed: int = 0
    broken: int = 0
    bytes: float = 4.0
    longer: int = 0  # tokens of output beyond the limit of the request
    usual: int = 0  # tokens of a reply, more or less; 0: as many as it may have
    price: Price = PRICE
    pause: float = 0.001
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    rng: Random = field(default_factory=lambda: Random(4))

    async def complete(self, call: Call) -> Reply:
        prompt = sum(len(message.content.encode()) for message in call.messages)
        each = call.max_tokens + self.longer
        if self.usual:
            each = min(each, round(self.usual * (0.5 + self.rng.random())))
        used = Tokens(round(prompt / self.bytes) + 8, each * call.samples)
        self.calls += 1
        self.tokens += used.input + used.output
        self.dollars += self.price.cost_of_tokens(used)
        await asyncio.sleep(self.pause * self.rng.random())
        end = self.rng.randrange(10)
        if end < self.malformed:
            raise BadResponse("not_json", raw="{")
        if end < self.malformed + self.broken:
            raise Interrupted("cut")
        text = f"A step.\n```python\nVALUE = {self.rng.random() * 1e6}\n```"
        return Reply(tuple(Completion(text) for _ in range(call.samples)), used)


def billed(
    backend: Billing,
    tmp_path: Path,
    budget: str,
    strategy: str = "best_of_n",
    workers: int = 6,
    **more,
):
    provider = Provider("custom", base=0.001, cap=0.002, retries=3, bad_retries=2)
    model = ModelSpec(provider, "billing", max_tokens=100, samples=8, price=PRICE, backend=backend)
    return culmen.optimize(
        SEED,
        evaluator=score,
        strategy=strategy,
        model=model,
        budget=culmen.Budget.parse(budget),
        workers=workers,
        run_dir=tmp_path / "run",
        progress=False,
        deterministic=True,
        **more,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "calls"),
    [("pacevolve", 30), ("turboevolve", 20), ("turboevolve", 25), ("beam", 25)],
)
def test_calls_are_never_exceeded_with_malformed_replies_and_several_workers(
    tmp_path: Path, strategy: str, calls: int
) -> None:
    backend = Billing(malformed=4)
    study = billed(backend, tmp_path, f"evaluations=500,calls={calls}", strategy)
    assert backend.calls == study.status.usage.calls <= calls
    assert backend.calls >= calls - 4 and study.status.reason == "calls"


@pytest.mark.parametrize(("budget", "limit"), [("dollars", 0.2), ("tokens", 15_000)])
def test_replies_that_break_off_are_paid_for(tmp_path: Path, budget: str, limit: float) -> None:
    backend = Billing(broken=4)
    study = billed(backend, tmp_path, f"evaluations=500,{budget}={limit}")
    usage, open_end = study.status.usage, study.status.usage.uncertain
    assert getattr(backend, budget) <= limit
    assert backend.calls == usage.calls
    assert usage.dollars < backend.dollars <= usage.dollars + open_end.dollars
    assert usage.input_tokens + usage.output_tokens < backend.tokens
    assert backend.tokens <= usage.input_tokens + usage.output_tokens + open_end.tokens


def test_a_token_may_be_as_short_as_a_byte(tmp_path: Path) -> None:
    backend = Billing(bytes=1.0)
    billed(backend, tmp_path, "evaluations=500,tokens=20000")
    assert 15_000 < backend.tokens <= 20_000


def test_a_provider_that_breaks_its_own_limit_is_told_and_no_more_is_lost(tmp_path: Path) -> None:
    backend = Billing(longer=50)
    study = billed(backend, tmp_path, "evaluations=500,tokens=20000")
    assert backend.tokens <= 20_000 + 50 * 6  # what was in flight at that time
    assert study.status.faults["over_limit"] == backend.calls


def test_what_was_in_flight_when_the_seconds_ended_is_counted(tmp_path: Path) -> None:
    backend = Billing(pause=1000.0)
    study = billed(backend, tmp_path, "evaluations=500,dollars=100,seconds=5")
    usage = study.status.usage
    assert study.status.reason == "seconds" and usage.calls == 0
    assert usage.possibly_lost.calls >= backend.calls > 0
    assert usage.possibly_lost.dollars >= backend.dollars


@pytest.mark.parametrize("budget", ["calls=25", "dollars=0.2", "tokens=15000"])
def test_a_run_that_was_refused_money_replays_to_the_same_end(tmp_path: Path, budget: str) -> None:
    study = billed(Billing(malformed=3, broken=2, bytes=1.5), tmp_path, f"evaluations=500,{budget}")
    search, estimate = rebuild_search(study.meta, study._objects)
    journal = SqlJournal.open(study.path, write=False)
    replay_journal(search, journal.read(), estimate)
    journal.close()
    assert search.is_done and search.reason == study.status.reason == budget.partition("=")[0]
    assert search.ledger.spent.calls == study.status.usage.calls


CHEAP = Price(input=1.0, output=4.0)


def strong(backend: Billing, tmp_path: Path, budget: str):
    """A run with a model that may reply at length, one reply a request."""
    provider = Provider("custom", base=0.001, cap=0.002, retries=3, bad_retries=2)
    model = ModelSpec(provider, "billing", price=CHEAP, backend=backend)
    return culmen.optimize(
        SEED,
        evaluator=score,
        model=model,
        budget=culmen.Budget.parse(budget),
        workers=4,
        run_dir=tmp_path / "run",
        progress=False,
        deterministic=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dollars", [0.02, 0.05, 0.5])
def test_a_small_budget_is_used_although_a_reply_may_be_long(
    tmp_path: Path, dollars: float
) -> None:
    backend = Billing(usual=300, price=CHEAP)
    study = strong(backend, tmp_path, f"evaluations=2000,dollars={dollars}")
    # a call is 7 % of the least budget, and whether one more fits depends on the order of replies
    assert dollars - max(0.2 * dollars, 0.006) <= backend.dollars <= dollars
    assert study.status.reason == "dollars"
    search, estimate = rebuild_search(study.meta, study._objects)
    journal = SqlJournal.open(study.path, write=False)
    replay_journal(search, journal.read(), estimate)
    journal.close()
    assert search.is_done and search.reason == "dollars"


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_handful_of_calls_is_made(tmp_path: Path, calls: int) -> None:
    backend = Billing(usual=300)
    study = strong(backend, tmp_path, f"evaluations=200,calls={calls}")
    assert backend.calls == study.status.usage.calls == calls


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_most_of_a_budget_is_used_although_half_of_the_replies_break_off(
    tmp_path: Path, seed: int
) -> None:
    backend = Billing(broken=5, usual=300, price=CHEAP, rng=Random(seed))
    study = strong(backend, tmp_path, "evaluations=4000,dollars=0.5")
    assert 0.8 * 0.5 <= backend.dollars <= 0.5
    assert study.status.reason == "dollars"
