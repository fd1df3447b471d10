"""The rule of the referee: its verdicts on simulated pairs, and receipts that were changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from culmen.extensions.judge import verify
from culmen.extensions.judge.referee import NO_JOURNAL, seal_document

Sample = Callable[[random.Random], float]
KINDS: dict[str, tuple[Sample, float]] = {  # samples and their standard deviation
    "noisy": (lambda r: 10.0 + r.gauss(0.0, 1.0), 1.0),
    "timing": (lambda r: 10.0 + r.lognormvariate(0.0, 1.0), 2.16),
    "flaky": (lambda r: float(r.random() < 0.45), 0.5),
}


def make_bar(**changes: Any) -> dict[str, Any]:
    """A bar for a metric that grows."""
    bar = {"direction": "max", "gain": 0.01, "relative": True, "passes": False, "exact": False}
    bar |= {"error": 0.02, "ask": 1, "alpha": 0.01, "pairs": 60, "seed": 7}
    return bar | changes


def judge_pairs(bar: dict[str, Any], draw: Callable[[], tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Pairs until there is a verdict."""
    pairs: list[dict[str, Any]] = []
    while not verify.verdict(bar, pairs):
        before, after = draw()
        swapped = verify.is_swapped(bar["seed"], len(pairs))
        pairs.append({"before": before, "after": after, "swapped": swapped})
    return pairs


def bar_of(kind: str) -> dict[str, Any]:
    """The bar of a kind of metric."""
    return make_bar(passes=True, relative=False, gain=0.05) if kind == "flaky" else make_bar()


@pytest.mark.parametrize("kind", KINDS)
def test_edits_that_change_nothing_are_seldom_called_better(kind: str):
    """At most a share alpha of them, one in a hundred here; chance has room."""
    sample, bar, r = KINDS[kind][0], bar_of(kind), random.Random(1)
    told = [
        verify.verdict(bar, judge_pairs(bar, lambda: (sample(r), sample(r)))) for _ in range(120)
    ]
    assert told.count(verify.BETTER) <= 4 and told.count(verify.WORSE) <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_edits_worth_one_standard_deviation_are_found(kind: str):
    (sample, sd), bar, r = KINDS[kind], bar_of(kind), random.Random(2)

    def draw() -> tuple[float, float]:
        after = float(r.random() < 0.95) if kind == "flaky" else sample(r) + sd
        return sample(r), after

    found = [verify.verdict(bar, judge_pairs(bar, draw)) for _ in range(40)]
    assert found.count(verify.BETTER) >= 36


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (5.0, 6.0, verify.BETTER),
        (5.0, 4.0, verify.WORSE),
        (5.0, 5.0, verify.EQUAL),
        (0.0, 0.0, verify.EQUAL),
        (5.0, 5.01, verify.EQUAL),
        (None, 5.0, verify.BETTER),
        (5.0, None, verify.WORSE),
        (None, None, verify.UNTOLD),
    ],
)
def test_exact_values_and_failures_have_a_verdict(before: Any, after: Any, wanted: str):
    bar = make_bar()
    pairs = judge_pairs(bar, lambda: (before, after))
    assert verify.verdict(bar, pairs) == wanted
    assert wanted == verify.UNTOLD or len(pairs) <= 12


def test_a_lower_value_is_better_where_less_is_better():
    bar = make_bar(direction="min")
    assert verify.verdict(bar, judge_pairs(bar, lambda: (5.0, 4.0))) == verify.BETTER


def test_values_of_zero_and_one_are_not_called_equal_because_most_pairs_are():
    """A rise of a rate from 0.5 to 0.7 leaves six pairs of ten without a gain."""
    bar, r = make_bar(gain=0.1, relative=False, pairs=200), random.Random(3)
    told = [
        verify.verdict(
            bar, judge_pairs(bar, lambda: (float(r.random() < 0.5), float(r.random() < 0.7)))
        )
        for _ in range(30)
    ]
    assert verify.EQUAL not in told


def test_the_interval_holds_the_gain():
    bar, r = make_bar(relative=False, gain=0.1), random.Random(4)
    inside = 0
    for _ in range(60):
        pairs = judge_pairs(bar, lambda: (r.gauss(0.0, 1.0), r.gauss(1.0, 1.0)))
        low, high = verify.interval(bar, pairs)
        inside += (low is None or low <= 1.0) and (high is None or high >= 1.0)
    assert inside >= 57


def honest_receipt(seed: int) -> dict[str, Any]:
    """A judgement of a noisy metric."""
    r = random.Random(seed)
    bar = make_bar(seed=seed, gain=0.3, relative=False)
    pairs = judge_pairs(bar, lambda: (r.gauss(0.0, 1.0), r.gauss(seed % 3 - 0.5, 1.0)))
    one = {"bar": bar, "pairs": pairs, "links": verify.chain(bar, pairs), "failure": ""}
    one |= {"verdict": verify.verdict(bar, pairs), "interval": verify.interval(bar, pairs)}
    return seal_document("judgement", [one], NO_JOURNAL)


def mutated(receipt: dict[str, Any], kind: str, r: random.Random) -> dict[str, Any]:
    """A receipt with one change that keeps its form, and with a seal that fits it."""
    new = copy.deepcopy(receipt)
    one = new["comparisons"][0]
    pairs, place = one["pairs"], r.randrange(len(one["pairs"]))
    if kind == "value":
        pairs[place][r.choice(["before", "after"])] += r.choice([-1, 1]) * r.uniform(0.01, 1.0)
    elif kind == "dropped repeat":
        del pairs[place]
        one["links"].pop()
    elif kind == "swapped case":
        pairs[place]["before"], pairs[place]["after"] = (
            pairs[place]["after"],
            pairs[place]["before"],
        )
    elif kind == "later bar":
        one["bar"]["gain"] *= r.uniform(0.1, 0.9)
    else:
        one["pairs"], one["links"] = pairs[:place], one["links"][: place + 1]
    new["seal"] = verify.digest({key: value for key, value in new.items() if key != "seal"})
    return new


KINDS_OF_CHANGE = ("value", "dropped repeat", "swapped case", "later bar", "cut")


def test_honest_receipts_pass_and_a_thousand_changed_ones_are_refused():
    """The changed ones have a seal of their own; the chain of the values refuses them."""
    r, passed = random.Random(5), 0
    for seed in range(40):
        receipt = honest_receipt(seed)
        assert list(verify.faults(receipt)) == []
        for kind in 5 * KINDS_OF_CHANGE:
            passed += not next(verify.faults(mutated(receipt, kind, r)), "")
    assert passed == 0


def test_a_bar_with_more_than_its_share_of_the_error_rate_is_refused():
    receipt = honest_receipt(1)
    one = receipt["comparisons"][0]
    one["bar"]["ask"] = 2
    one["links"] = verify.chain(one["bar"], one["pairs"])
    assert "the error rate is not the one that the session had left" in verify.faults(receipt)
