"""The cost of a new candidate in model calls: at most 1.25.

With every strategy's defaults and the default budget.
"""

from __future__ import annotations

import pytest

from culmen.core.options import DEFAULT_BUDGET
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness

OTHERS = (
    "cato",
    "ask_tell",
)  # agents ask models by themselves; an optimiser of one's own asks none
ONE_REPLY = (
    "verbalized",
    "verbalized_diff",
    "blocks",
)  # formats that carry all candidates of a request
NEEDS = {"pacevolve_plus_plus": {"worst": "0", "best": "1"}}


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["noisy", "exact"])
@pytest.mark.parametrize("name", [name for name in catalog.strategy_paths() if name not in OTHERS])
def test_a_new_candidate_costs_little_more_than_one_call(name: str, exact: bool) -> None:
    witness = Witness(Landscape(sigma=0.0 if exact else 0.1))
    strategy = catalog.make_strategy(name, NEEDS.get(name))
    simulate(strategy, task(deterministic=exact), witness, DEFAULT_BUDGET, seed=2, workers=4)
    asked = sum(1 if brief.format in ONE_REPLY else brief.k for brief in witness.briefs)
    new = {request.candidate.id for request in witness.evaluations if request.candidate.parents}
    assert asked + len(witness.summaries) <= 1.25 * len(new)
