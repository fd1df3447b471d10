"""Exactness: whether equal evaluations give equal scores, by all repeats of a run."""

from __future__ import annotations

import math

from culmen.core.result import NoiseReport
from culmen.evidence.account import (
    EXACT_CANDIDATES,
    UNLIKELY,
    Account,
    is_fine,
    rewards_by_case,
)
from culmen.evidence.spread import spread_of


def noise_report(account: Account, variance: float) -> NoiseReport:
    """Estimated evaluator noise, from all repeats of the search and of the final choice.

    `variance` is that of one evaluation at the level that is reported.
    """
    repeats, differs = account.repeated.repeats, variance > 0.0
    for kept in (account.looks, account.fresh):
        for case in (each for seen in kept.values() for each in rewards_by_case(seen)):
            repeats += len(case) - 1
            differs |= spread_of(case)[1] > 0.0
    sd = math.sqrt(variance) if differs else 0.0
    draws = account.repeated.has_drawn
    known = account.is_exact is True or _compared_agree(account)
    exact = False if differs or draws or account.is_flaky else known or None
    rate = 1.0 - UNLIKELY ** (1.0 / repeats) if repeats and not (exact or differs) else None
    one_draw = account.is_on_one_draw and not differs
    return NoiseReport(exact, sd, repeats, None if one_draw else rate, draws, one_draw)


def _compared_agree(account: Account) -> bool:
    """True if the candidates of the final choice gave equal scores throughout.

    Those of the search are included: repeats of two different scores, one of them fine, or
    two of each of `EXACT_CANDIDATES` if unrelated scores of the run agree too rarely for
    luck and have more than a few values. A score that others have, too, counts here: it is the
    candidate's own that is reported. Not for cases, nor with one draw for all.
    """
    if account.task.cases or account.repeated.has_differed or account.task.is_evaluated_once:
        return False
    found = [_equal_repeats(account, name) for name in {*account.looks, *account.fresh}]
    equal = {score for score, many in found if many}
    if len(equal) >= EXACT_CANDIDATES and any(map(is_fine, equal)):
        return True
    agreeing = [many for _, many in found if many >= 2]
    is_unlikely = account.repeated.agreement ** sum(map(int, agreeing)) < UNLIKELY
    return len(agreeing) >= EXACT_CANDIDATES and is_unlikely and not account.has_few_values


def _equal_repeats(account: Account, name: str) -> tuple[float, int]:
    """Score and repeats of a candidate if all its evaluations gave it; 0 if any differs."""
    later = [fact.reward for kept in (account.looks, account.fresh) for fact in kept.get(name, ())]
    tally = account.tally(name)
    before = 0 if tally is None else tally.count
    known = tally.mean if tally is not None and before else next(iter(later), None)
    steady = tally is None or not (tally.squares or tally.failures)
    if known is None or not steady or any(each != known for each in later):
        return 0.0, 0
    return known, before + len(later) - 1
