"""Cost of an action, as the largest share that it takes of any remaining budget."""

from __future__ import annotations

from culmen.core.brief import Proposal
from culmen.core.ports import Lab

# cost of an output token, in input tokens, if only the price of a whole call is known
_OUTPUT = 4.0


class Costs:
    """Costs of evaluations and of requests for `k` candidates, learnt from those made so far."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._evaluations = self._calls = self._candidates = 0
        self._seconds = self._waited = self._input = self._output = self._dollars = 0.0

    def add_evaluation(self, seconds: float) -> None:
        """Enter the seconds of one evaluation."""
        self._evaluations += 1
        self._seconds += seconds

    def add_answer(self, answer: Proposal, asked: int, seconds: float) -> None:
        """Enter one answer to a request for `asked` candidates, and its duration in seconds."""
        usage = answer.usage
        self._calls += 1
        self._candidates += max(len(answer.candidates), 1)
        self._waited += max(seconds, 0.0)
        self._input, self._output = (
            self._input + usage.input_tokens,
            self._output + usage.output_tokens,
        )
        self._dollars += usage.dollars

    def evaluation_amounts(self) -> dict[str, float]:
        """Cost of one evaluation, by budget."""
        seconds = self._seconds / max(self._evaluations, 1) / self._lab.workers
        return {"evaluations": 1.0, "seconds": seconds}

    def request_amounts(self, k: int) -> dict[str, float]:
        """Cost of one call that asks for `k` candidates, by budget, their first evaluations too."""
        calls, each = max(self._calls, 1), max(self._candidates, 1)
        fixed, growing = self._input / calls, self._output / each
        tokens = fixed + growing * k
        worth, usual = fixed + _OUTPUT * growing * k, fixed + _OUTPUT * self._output / calls
        dollars = self._dollars / calls * (worth / usual if usual else 1.0)
        seconds = (
            self._waited / calls + k * self._seconds / max(self._evaluations, 1)
        ) / self._lab.workers
        return {
            "calls": 1.0,
            "tokens": tokens,
            "dollars": dollars,
            "evaluations": float(k),
            "seconds": seconds,
        }

    def evaluation_share(self) -> float:
        """Share of one evaluation: of the evaluations left, or of the seconds."""
        return self._largest_share(self.evaluation_amounts())

    def request_share(self, k: int) -> float:
        """Share of one call that asks for `k` candidates, their first evaluations included."""
        return self._largest_share(self.request_amounts(k)) or 1.0

    def tightest_budget(self, amounts: dict[str, float]) -> str:
        """The budget of which these amounts take the largest share; "" without a limit."""
        shares = {name: self._budget_share(name, amount) for name, amount in amounts.items()}
        name = max(shares, key=lambda each: shares[each])
        return name if shares[name] else ""

    def _largest_share(self, amounts: dict[str, float]) -> float:
        return max(self._budget_share(name, amount) for name, amount in amounts.items())

    def _budget_share(self, budget: str, amount: float) -> float:
        return amount / max(self._lab.left(budget), 1e-9)  # a share of infinity is 0
