"""Cost of an action, as the largest share that it takes of any remaining budget."""

from __future__ import annotations

import math

from culmen.core.brief import Proposal
from culmen.core.ports import Lab
from culmen.core.usage import Usage

# cost of an output token, in input tokens, if only the price of a whole call is known
_OUTPUT = 4.0
# cost of a call, and of each candidate in it, in questions of evaluations, if it is not limited: a
# proposal shows several answers and writes a whole prompt, mostly by a dearer model
_FIXED, _EACH = 4.0, 6.0
# least number of rounds of requests that learn from one another, where calls are limited
_ROUNDS = 16.0
_MONEY = ("calls", "tokens", "dollars")  # budgets that limit what calls cost
NOTHING = Usage()


class Costs:
    """Costs of evaluations and of requests for `k` candidates, learnt from those made so far."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._evaluations = self._calls = self._candidates = self._paid = 0
        self._seconds = self._waited = self._input = self._output = self._dollars = 0.0
        self._asked = Usage()  # what evaluations cost that ask models

    def add_evaluation(self, seconds: float, usage: Usage = NOTHING) -> None:
        """Enter the seconds of one evaluation, and what it cost if it asked models."""
        self._evaluations += 1
        self._seconds += seconds
        self._asked = self._asked + usage

    def add_answer(self, answer: Proposal, asked: int, seconds: float) -> None:
        """Enter one answer to a request for `asked` candidates, and its duration in seconds."""
        usage = answer.usage
        self._calls += 1
        self._paid += usage != NOTHING
        self._candidates += max(len(answer.candidates), 1)
        self._waited += max(seconds, 0.0)
        self._input, self._output = (
            self._input + usage.input_tokens,
            self._output + usage.output_tokens,
        )
        self._dollars += usage.dollars

    def evaluation_amounts(self) -> dict[str, float]:
        """Cost of one evaluation, by budget."""
        made = max(self._evaluations, 1)
        return {
            "calls": self._asked.calls / made,
            "tokens": self._asked.at_most("tokens") / made,
            "dollars": self._asked.at_most("dollars") / made,
            "evaluations": 1.0,
            "seconds": self._seconds / made / self._lab.workers,
        }

    def request_amounts(self, k: int) -> dict[str, float]:
        """Cost of one call that asks for `k` candidates, by budget, their first evaluations too."""
        calls, each = max(self._calls, 1), max(self._candidates, 1)
        fixed, growing = self._input / calls, self._output / each
        tokens = fixed + growing * k
        worth, usual = fixed + _OUTPUT * growing * k, fixed + _OUTPUT * self._output / calls
        dollars = self._dollars / calls * (worth / usual if usual else 1.0)
        call = {
            "calls": 1.0,
            "tokens": tokens,
            "dollars": dollars,
            "evaluations": 0.0,
            "seconds": self._waited / calls / self._lab.workers,
        }
        first = self.evaluation_amounts()
        return {name: amount + k * first[name] for name, amount in call.items()}

    def evaluation_share(self) -> float:
        """Share of one evaluation: of the evaluations left, or of the seconds."""
        return self._largest_share(self.evaluation_amounts())

    def request_share(self, k: int) -> float:
        """Share of one call that asks for `k` candidates, their first evaluations included.

        If evaluations ask models and no budget limits what calls cost, the call counts against
        the evaluations, too (`assumed_evaluations`), unless proposals ask no model.
        """
        amounts = self.request_amounts(k)
        if self._asked != NOTHING and self._is_free() and not self._are_proposals_free():
            amounts["evaluations"] += self.assumed_evaluations(k)
        return self._largest_share(amounts) or 1.0

    def assumed_evaluations(self, k: int) -> float:
        """Assumed cost of one call for `k` candidates, in evaluations that ask models.

        Replies from the cache count as others do, so that a repeated run decides alike.
        """
        questions = (self._asked.calls + self._asked.cache_hits) / max(self._evaluations, 1)
        return (_FIXED + _EACH * k) / max(questions, 1.0)

    def most_requests(self) -> float:
        """Most calls for candidates under way at a time.

        Where evaluations ask models the budget may hold few calls, each far dearer than an answer;
        those under way together learn nothing from one another. Without a limit of calls, tokens or
        dollars, and where evaluations or proposals ask no models, any number.
        """
        if self._asked == NOTHING or self._is_free() or self._are_proposals_free():
            return math.inf
        return max(1.0, 1.0 / (_ROUNDS * self.request_share(1)))

    def should_wait(self, requests: int, repeats: int) -> bool:
        """True if the calls under way are to be learnt from before the next one.

        There are `requests`; `repeats` were begun after the last: they may cost as much as a call.
        """
        if requests < self.most_requests():
            return False
        return repeats * self.evaluation_share() < self.request_share(1)

    def tightest_budget(self, amounts: dict[str, float]) -> str:
        """The budget of which these amounts take the largest share; "" without a limit."""
        shares = {name: self._budget_share(name, amount) for name, amount in amounts.items()}
        name = max(shares, key=lambda each: shares[each])
        return name if shares[name] else ""

    def _is_free(self) -> bool:
        """True if no budget limits what calls cost."""
        return all(math.isinf(self._lab.left(name)) for name in _MONEY)

    def _are_proposals_free(self) -> bool:
        """True if no proposal so far asked a model: that of edits without one costs nothing."""
        return self._calls > 0 and not self._paid

    def _largest_share(self, amounts: dict[str, float]) -> float:
        # an amount of 0 takes no share, and asking for what is left costs more than all else here
        return max(
            [self._budget_share(name, amount) for name, amount in amounts.items() if amount],
            default=0.0,
        )

    def _budget_share(self, budget: str, amount: float) -> float:
        return amount / max(self._lab.left(budget), 1e-9)  # a share of infinity is 0
