"""Forecast of a run's cost: its value, its correction from the run's spending, and its text.

`culmen.run.forecast` makes the first one, before the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.json import JsonObject
from culmen.core.usage import Budget, Usage, total_usage
from culmen.report.figures import count_text, dollars_text, duration_text, join_nonempty
from culmen.store import views
from culmen.store.views import RunStatus

PRIOR = 20
"""Evaluations that the first forecast of proposals counts as, beside those made."""
FIRST, SHARE = 4, 0.02
"""Evaluations, and share of all, after which a forecast is corrected."""
CHANGED = 1.5
"""Factor of calls or dollars from which a correction is news."""


class Cost(msgspec.Struct, frozen=True):
    """Evaluations, and calls of models with their tokens and dollars.

    `unpriced` is true if the price of a model is unknown, so that `dollars` are too few.
    """

    evaluations: float = 0.0
    calls: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0
    unpriced: bool = False

    @property
    def amounts(self) -> tuple[float, float, float, float]:
        """The amounts, in the order of the fields."""
        return self.evaluations, self.calls, self.tokens, self.dollars

    def __add__(self, other: Cost) -> Cost:
        sums = (one + more for one, more in zip(self.amounts, other.amounts))
        return Cost(*sums, unpriced=self.unpriced or other.unpriced)

    def times(self, count: float) -> Cost:
        """The same `count` times."""
        return Cost(*(each * count for each in self.amounts), unpriced=self.unpriced)


def cost_of(usage: Usage) -> Cost:
    """The cost of a usage, without evaluations."""
    return Cost(0.0, usage.calls, usage.tokens, usage.dollars, usage.unpriced > 0)


class RunForecast(msgspec.Struct, frozen=True):
    """Expected cost of a whole run that spends its budget.

    proposals   calls that write candidates and prose for the search
    answers     calls that evaluations make
    seconds     wall time; None: unknown
    after       evaluations that it rests on; 0 before the start
    lacks       what it does not know, in words
    """

    evaluations: float
    proposals: Cost = Cost()
    answers: Cost = Cost()
    seconds: float | None = None
    after: int = 0
    lacks: tuple[str, ...] = ()

    @property
    def total(self) -> Cost:
        """Proposals and answers together."""
        both = self.proposals + self.answers
        return msgspec.structs.replace(both, evaluations=self.evaluations)

    def times(self, count: float) -> RunForecast:
        """The forecast for `count` times the evaluations."""
        return msgspec.structs.replace(
            self,
            evaluations=self.evaluations * count,
            proposals=self.proposals.times(count),
            answers=self.answers.times(count),
            seconds=None if self.seconds is None else self.seconds * count,
        )


def within_budget(forecast: RunForecast, budget: Budget) -> RunForecast:
    """The forecast, cut down to the limit that ends the run first."""
    total = forecast.total
    pairs = [
        (budget.evaluations, total.evaluations),
        (budget.calls, total.calls),
        (budget.tokens, total.tokens),
        (None if total.unpriced else budget.dollars, total.dollars),
        (budget.seconds, forecast.seconds),
    ]
    shares = [limit / need for limit, need in pairs if limit is not None and need]
    return forecast.times(min([1.0, *shares]))


def correct_forecast(first: RunForecast, run: Path, now: RunStatus) -> RunForecast:
    """The forecast for the whole of a run, corrected by its spending so far.

    What an evaluation costs is what those made have cost. The rate of proposals is that of the run,
    too, while the first forecast counts as `PRIOR` evaluations.
    """
    made, whole = now.evaluations, max(first.evaluations, float(now.evaluations))
    if not made:
        return first
    proposals, answers = spent_so_far(run)
    left = whole - made
    rate = (proposals.calls + _rate_of(first) * PRIOR) / (made + PRIOR)
    calls = proposals.calls + rate * left
    each = proposals if proposals.calls else first.proposals
    more = each.times((calls - proposals.calls) / each.calls) if each.calls else Cost()
    corrected = RunForecast(
        whole,
        proposals + more,
        answers.times(whole / made),
        now.elapsed_seconds * whole / made or None,
        made,
    )
    budget = msgspec.structs.replace(now.budget, evaluations=None)
    return within_budget(corrected, budget)


def _rate_of(first: RunForecast) -> float:
    return first.proposals.calls / first.evaluations if first.evaluations else 0.0


def spent_so_far(run: Path) -> tuple[Cost, Cost]:
    """Spending of the run on proposals and on answers."""
    rows = views.call_costs(run)

    def spent(asked: bool) -> Cost:
        return cost_of(total_usage(row.usage for row in rows if (row.effect == "ask") is asked))

    return spent(False), spent(True)


class ForecastNews:
    """Corrected forecasts of one run, each once, and only if they are news."""

    def __init__(self, first: RunForecast) -> None:
        self._first, self._told = first, first
        self._due = max(FIRST, math.ceil(SHARE * first.evaluations))
        self._spoken = False

    def take_news(self, run: Path, now: RunStatus) -> str:
        """A sentence on the corrected forecast, "" for no news."""
        if now.state != "running" or now.evaluations < self._due:
            return ""
        self._due = 2 * now.evaluations
        corrected = correct_forecast(self._first, run, now)
        if self._spoken and not _is_news(self._told.total, corrected.total):
            return ""
        self._spoken, self._told = True, corrected
        words = forecast_text(corrected)
        return f"Likely by the first {count_text(now.evaluations, 'evaluation')}: {words}."


def _is_news(before: Cost, after: Cost) -> bool:
    pairs = ((before.calls, after.calls), (before.dollars, after.dollars))
    return any(max(pair) > CHANGED * min(pair) for pair in pairs)


def forecast_text(forecast: RunForecast) -> str:
    """`70 calls (40 proposals, 30 answers), 81,000 tokens, $0.12, 3 min`; "" without any."""
    total = forecast.total
    if not total.calls:
        return join_nonempty(forecast.lacks, "; ")
    made, answered = round(forecast.proposals.calls), round(forecast.answers.calls)
    money = dollars_text(total.dollars)
    if total.unpriced:
        money = f"{money} and calls without a price" if total.dollars else "price unknown"
    parts = [
        calls_text(round(total.calls), made, answered),
        count_text(int(float(f"{total.tokens:.2g}")), "token") if total.tokens else "",
        money,
        "" if forecast.seconds is None else duration_text(forecast.seconds),
    ]
    return join_nonempty([join_nonempty(parts), *forecast.lacks], "; ")


def calls_text(calls: int, proposals: int, answers: int) -> str:
    """`70 calls (40 proposals, 30 answers)`; the parts only if there are both."""
    both = f" ({count_text(proposals, 'proposal')}, {count_text(answers, 'answer')})"
    return count_text(calls, "call") + (both if proposals and answers else "")


def forecast_data(forecast: RunForecast) -> JsonObject:
    """The forecast as plain data; `dollars` null if a price is unknown."""
    total = forecast.total
    return {
        "evaluations": round(forecast.evaluations),
        **_cost_data(total),
        "proposals": _cost_data(forecast.proposals),
        "answers": _cost_data(forecast.answers),
        "seconds": forecast.seconds,
        "after": forecast.after,
        "lacks": list(forecast.lacks),
    }


def _cost_data(cost: Cost) -> Mapping[str, float | None]:
    return {
        "calls": round(cost.calls, 1),
        "tokens": round(cost.tokens),
        "dollars": None if cost.unpriced else round(cost.dollars, 6),
    }
