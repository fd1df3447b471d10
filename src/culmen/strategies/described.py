"""Facts about one decision of the default strategy, for people."""

from __future__ import annotations

import math

from culmen.core.ports import Lab
from culmen.core.result import ConsideredAction, DecisionFacts
from culmen.evidence.evidence import evidence_of
from culmen.evidence.pedigree import ValueModel
from culmen.strategies.front_gradient import FrontGradient
from culmen.strategies.knowledge_gradient import AGAIN, KnowledgeGradient, WeighedMove

_BUDGETS = ("evaluations", "calls", "tokens", "dollars", "seconds")


class DecisionDescriber:
    """Describes the decisions of one search, each at the moment it is made.

    Of the actions compared, the first six by gain per share are described.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab, self._number = lab, 0

    def describe(self, choice: KnowledgeGradient, decision: WeighedMove) -> DecisionFacts:
        """Facts about this decision; to be called before anything is observed after it."""
        self._number += 1
        model, move, ids = choice.model, decision.move, choice.model.ids
        pair = model.index.get(move.again or move.parent, -1), 0 if move.again else move.k
        weighed = self._weighed_pairs(decision)
        rates = {each: rate for each, (_, rate) in weighed.items()}
        ordered = sorted(rates, key=lambda each: -rates[each])
        other_kind = [each for each in ordered if bool(each[1]) != bool(pair[1])]
        shown = [*ordered[:6], *other_kind[:1], *([pair] if pair in rates else [])]
        shown = sorted(dict.fromkeys(shown), key=lambda each: -rates[each])
        actions = {
            each: self._action(choice, decision, each, *weighed.get(each, (0.0, 0.0)), each == pair)
            for each in dict.fromkeys([*shown, pair])
        }
        leader = ids[decision.best] if decision.best >= 0 else ""
        score, sd = self._expected(model, decision.best, 0)
        records, evidence = choice.stall.records, evidence_of(self._lab)
        report = evidence.ranking.noise_report
        is_front = isinstance(choice, FrontGradient)
        return DecisionFacts(
            number=self._number,
            evaluations=model.evaluations,
            elapsed=self._lab.elapsed,
            reason=decision.reason,
            leader="" if is_front else leader,
            leader_score=None if is_front else score,
            leader_sd=None if is_front else sd,
            front=len(choice.front.front_rows()) if is_front else 0,
            exact=model.is_exact,
            noise=0.0 if model.is_exact else report.sd,
            repeats=report.repeats,
            repeating=sum(map(int, choice.flying.repeats.values())),
            expecting=sum(map(int, choice.flying.children.values())),
            wait=0 if is_front else max(0, model.evaluations - records.at),
            wait_chance=1.0 if is_front else records.wait_chance(model.evaluations),
            left={name: left for name in _BUDGETS if math.isfinite(left := self._lab.left(name))},
            considered=len(weighed),
            options=tuple(actions[each] for each in shown),
            chosen=actions[pair],
            one_draw=evidence.account.is_on_one_draw,
        )

    def _weighed_pairs(self, decision: WeighedMove) -> dict[tuple[int, int], tuple[float, float]]:
        """(gain, rate) of each pair of candidate and k; of requests, each parent's best k."""
        weighed: dict[tuple[int, int], tuple[float, float]] = {}
        if decision.repeats is not None:
            share = decision.repeats.share
            for row, gain in zip(decision.repeats.rows, decision.repeats.gains):
                weighed[row, 0] = gain, AGAIN * gain / share
        if decision.requests is not None:
            requests = decision.requests
            for place, row in enumerate(requests.rows):
                rates = [
                    float(gains[place]) / share
                    for gains, share in zip(requests.gains, requests.shares)
                ]
                k = rates.index(max(rates)) + 1
                weighed[row, k] = float(requests.gains[k - 1][place]), rates[k - 1]
        return weighed

    def _action(
        self,
        choice: KnowledgeGradient,
        decision: WeighedMove,
        pair: tuple[int, int],
        gain: float,
        rate: float,
        chosen: bool,
    ) -> ConsideredAction:
        (row, k), costs, model = pair, choice.costs, choice.model
        amounts = costs.request_amounts(k) if k else costs.evaluation_amounts()
        share = costs.request_share(k) if k else costs.evaluation_share()
        is_front = isinstance(choice, FrontGradient)
        expected, sd = (None, None) if is_front else self._expected(model, row, k)
        return ConsideredAction(
            of=model.ids[row] if row >= 0 else "",
            k=k,
            expected=expected,
            sd=sd,
            gain=gain if is_front else self._gain_in_scores(model, decision.best, gain),
            weight=1.0 if k else AGAIN,
            cost={name: amount for name, amount in amounts.items() if amount},
            share=share,
            budget=costs.tightest_budget(amounts),
            rate=rate if is_front else self._gain_in_scores(model, decision.best, rate),
            chosen=chosen,
        )

    def _expected(self, model: ValueModel, row: int, k: int) -> tuple[float | None, float | None]:
        """Expected score of a candidate (k = 0) or of one child, and its standard deviation."""
        if row < 0 or not model.scored_counts[row]:
            return None, None
        if not k:
            value = model.value_of(model.ids[row])
            mean, sd = value.mean, value.sd
        else:
            step = model.noise_step_variances[1]
            mean, sd = model.reward_of_scaled(
                float(model.mean[row] + model.drift[row]),
                math.sqrt(float(model.variance[row]) + step),
            )
        return self._lab.task.objective.score(mean), 0.0 if model.is_noiseless and not k else sd

    def _gain_in_scores(self, model: ValueModel, best: int, gain: float) -> float:
        """A gain on the model's scale in units of the score, at the leader's value."""
        if best < 0:
            return gain
        return model.reward_of_scaled(float(model.scaled_worths()[best]), gain)[1]
