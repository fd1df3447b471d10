"""Explanation of one evaluation of a run, as plain values for all displays."""

from __future__ import annotations

import msgspec

from culmen.core.json import JsonObject


class ConsideredAction(msgspec.Struct, frozen=True):
    """One action that a decision compared.

    `k` = 0: evaluate candidate `of` again; otherwise ask for `k` children of it. `expected` ± `sd`
    is the score of the candidate, or of one child, that the model expects (None: unknown, or
    several objectives). `gain` is the expected improvement of the best estimate, in units of the
    score (with several objectives: a share of the front's span), `weight` the factor it counts
    with. `cost` has the amounts by budget, `share` the largest share of any remaining budget that
    they take, of `budget` ("": no limit), and `rate` = weight · gain / share.
    """

    of: str
    k: int
    expected: float | None
    sd: float | None
    gain: float
    weight: float
    cost: dict[str, float]
    share: float
    budget: str
    rate: float
    chosen: bool = False


class DecisionFacts(msgspec.Struct, frozen=True):
    """One decision of the default strategy: its knowledge, its options, its choice.

    `number` counts decisions from 1. It was made after `evaluations` of the search, at `elapsed`
    active seconds, with `repeating` evaluations and `expecting` children under way. `reason`:
    no_score, measure, lineage, gain or wait (`culmen.strategies.knowledge_gradient`). `leader` had
    the expected score `leader_score` ± `leader_sd`; `noise` is the standard deviation of one
    evaluation (0 while scores are taken as exact: `exact`; `one_draw`: since all evaluations on a
    case have one random seed), from `repeats` repeats. `wait` is the
    number of evaluations without a record, `wait_chance` the chance of such a wait. `left` has
    the rest of each limited budget. Of `considered` actions, `options` are the first by rate,
    the chosen one and the best of the other kind included; `chosen` is the action taken.
    """

    number: int
    evaluations: int
    elapsed: float
    reason: str
    leader: str
    leader_score: float | None
    leader_sd: float | None
    front: int
    exact: bool
    noise: float
    repeats: int
    repeating: int
    expecting: int
    wait: int
    wait_chance: float
    left: dict[str, float]
    considered: int
    options: tuple[ConsideredAction, ...]
    chosen: ConsideredAction
    one_draw: bool = False


class FinalistFacts(msgspec.Struct, frozen=True):
    """A finalist before an evaluation of the final choice.

    `score` ± `sd` by the search and all looks so far; `looks` of the final choice, of which
    `failed` gave no score. `initial`: an initial program.
    """

    id: str
    score: float
    sd: float
    looks: int
    failed: int
    initial: bool


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of one evaluation.

    Evaluation number `evaluation` of `of` finished ones was the `nth` of `candidate`, on `case`.
    `cause`: decision (of the default strategy), initial, person, engine, final (the final choice,
    in the part `purpose`) or strategy (any other strategy). `origin` is how the candidate came
    about, `before` how its evaluations before this one ended. `recomputed`: the decision was
    derived again from the journal and agrees with it; `why_not` is why that was not possible.
    `notes` are the strategy's own notes on the candidate. `lines` are sentences in display order;
    the table of options or finalists belongs behind the first `table_at`.
    """

    run: str
    strategy: str
    evaluation: int
    of: int
    seq: int
    candidate: str
    nth: int
    case: str
    purpose: str
    cause: str
    status: str
    score: float | None
    reason: str
    origin: JsonObject
    before: tuple[str, ...] = ()
    decision: DecisionFacts | None = None
    finalists: tuple[FinalistFacts, ...] = ()
    notes: tuple[JsonObject, ...] = ()
    recomputed: bool = False
    why_not: str = ""
    lines: tuple[str, ...] = ()
    table_at: int = 0
