"""The result of a run, for engine, journal, views, pages, reports and Python."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from culmen.core.json import JsonObject

MODELLED = 50_000
"""Evaluations up to which a run is read one by one, and has a value model.

Longer searches use shrunken means.
"""

Z = 1.959963984540054
"""Standard errors to either side of the 95 % interval of a normal mean."""


COVERAGE = 0.6
"""Share of the evaluations below which nothing is said of candidates: who is left was luck."""


def coverage_of(failed: Mapping[str, int], evaluations: int) -> float:
    """See `RunResult.coverage`."""
    return 1.0 - (failed.get("scorer", 0) + failed.get("provider", 0)) / max(1, evaluations)


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate's score, in the task's own direction and unit, over `count` evaluations.

    `se` is its standard error and `margin` half the width of its 95 % interval (None: unknown).
    `fresh`: measured by the final choice; `failures` of the `count` then gave no score and count
    at the floor. `expected`: the posterior mean of the value model, from these evaluations and
    those of relatives; otherwise the plain mean.
    """

    id: str
    score: float
    count: int
    se: float | None = None
    margin: float | None = None
    failures: int = 0
    fresh: bool = False
    expected: bool = False


class FrontPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a Pareto front.

    `metrics` are means in the task's own direction, `margins` half the widths of their 95 %
    intervals (a metric without one: unknown), over `count` evaluations, of which `failures` gave
    none. `feasible`: its means meet every constraint. `confirmed`: the evaluations were made
    after the search.
    """

    id: str
    metrics: dict[str, float]
    margins: dict[str, float] = {}
    count: int = 0
    failures: int = 0
    feasible: bool = True
    confirmed: bool = False


class NoiseReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Estimated evaluator noise.

    `exact` is True if equal evaluations are known or were shown to give equal scores, False if they
    were seen to differ, None if the `repeats` made so far could not show a difference. `sd` is the
    standard deviation of one evaluation in units of the score; `differing_rate` bounds from above
    (95 %) the share of repeats that differ, if none did. `draws`: evaluations drew random numbers,
    so equal repeats prove nothing. `one_draw`: all evaluations on a case had one random seed, and
    scores are not known to be the same with others.
    """

    exact: bool | None = None
    sd: float = 0.0
    repeats: int = 0
    differing_rate: float | None = None
    draws: bool = False
    one_draw: bool = False


class RunResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidate that a run reports, with its statistics and the reservations about it.

    `id` is the candidate to use. `score` is its mean over `count` evaluations, failures at the
    floor: those of the final choice (made after the candidate was chosen) if `confirmed`, otherwise
    the search's own estimate. `se` is its standard error, `margin` half the width of its 95 %
    interval for the `cases` of the `of` cases of `split` that were evaluated (0: no data set), and
    `new_margin` the same for new cases of the kind. `failures` of the `count` gave no score.

    `initial` is the initial program (of several the best) on the same evaluations, `gain` the
    difference of the scores, paired by case, and `gain_margin` half the width of its interval.
    `kept_initial`: no candidate was shown to be better, so `id` is the initial program;
    `challenger` is then the best of the others, and `gain` is its difference.

    `search_score` over `search_count` evaluations is the search's own estimate. `finalists` were
    compared by the final choice. `trust` is the level of the weakest evaluation
    (`core.evaluation`). `verified`: confirmed, at least at that level, and each output passed the
    task's verifier unchanged, if there is one. `certified` is the worst value that the verifier
    certified (None: none asked, or not accepted); `strict`: every output passed unchanged (None:
    not asked). `tolerance` is the result of the test without the evaluator's tolerances, in words
    that begin with held, rounding, doubtful, used, pushed or not checked ("": not tried).

    With several objectives `front` is reported, and `id` is the member with the best combined
    score. `noise` is the estimated evaluator noise; `failed` counts failed evaluations of the whole
    run by culprit (candidate, scorer, provider, machine, budget), `evaluations` all.

    Scores are better in `direction` (max, min) and lie within `bounds` (None: none declared). Of
    the `scored` candidates of the search, `equal` have exactly the initial program's mean.
    `drift` is the change of all scores during the run, whatever is evaluated (0: none seen).
    `deciding_case` is the case that makes up most of the gain, `deciding_share` its share of the
    changes of all cases (0..1).
    """

    id: str
    score: float
    count: int
    se: float | None = None
    margin: float | None = None
    new_margin: float | None = None
    failures: int = 0
    confirmed: bool = False
    verified: bool = False
    split: str = ""
    cases: int = 0
    of: int = 0
    search_score: float | None = None
    search_count: int = 0
    finalists: tuple[str, ...] = ()
    initial: Score | None = None
    gain: float | None = None
    gain_margin: float | None = None
    kept_initial: bool = False
    challenger: Score | None = None
    certified: float | None = None
    strict: bool | None = None
    trust: str = ""
    tolerance: str = ""
    front: tuple[FrontPoint, ...] = ()
    noise: NoiseReport = NoiseReport()
    failed: dict[str, int] = {}
    evaluations: int = 0
    direction: str = "max"
    bounds: tuple[float | None, float | None] = (None, None)
    scored: int = 0
    equal: int = 0
    deciding_case: str = ""
    deciding_share: float = 0.0
    drift: float = 0.0

    @property
    def coverage(self) -> float:
        """Share of the evaluations that the evaluator judged.

        In the others it, or a service that it asks, failed by no fault of the candidate.
        """
        return coverage_of(self.failed, self.evaluations)

    @property
    def has_verdict(self) -> bool:
        """True if enough evaluations were judged to compare candidates."""
        return self.coverage >= COVERAGE

    @property
    def value(self) -> float:
        """The certified value if there is one, otherwise the score."""
        return self.score if self.certified is None else self.certified

    def score_difference(self, score: float, than: float) -> float:
        """Difference of two scores, positive if `score` is better than `than`."""
        return score - than if self.direction == "max" else than - score


# Explanation of one evaluation of a run, as plain values for all displays.


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
