"""The value model's numbers: one look's lessons and thresholds.

The lessons by the dense solution and by hand, the thresholds by examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from culmen.evidence.pedigree import StepLaw, ValueModel
from culmen.evidence.pedigree import tree as trees
from culmen.evidence.pedigree.learning import (
    Learner,
    Parameters,
    _find_ruined,
    scatter_within,
    tree_posterior,
)
from culmen.evidence.pedigree.scale import RewardScale, ScaledScores
from culmen.evidence.pedigree.tree import FamilyTree

from .test_evidence_pedigree import marginals, solved
from .test_evidence_pedigree_laws import family


def quantile(values: Sequence[float], share: float) -> float:
    """The value with this share of the others below."""
    return sorted(values)[int(share * len(values))]


class Look:
    """One look at everything observed, with the parameters of the last turn, and its fit."""

    def __init__(self, model: ValueModel, told: StepLaw | None = None) -> None:
        found = marginals(model)
        self.known, self.scores = found.parameters, found.scores
        self.fitted = Learner(told)._fit_parameters(self.known, found.posterior, found.scores)
        self.mean, self.covariance = solved(self.scores, self.known)


def first_guess(model: ValueModel, most: int = 8) -> float:
    """Half the mean square between children and parents by the first observations, far ones cut."""
    seen: dict[int, list[float]] = {}
    scores = marginals(model).scores
    for node, value in list(zip(scores.rows.tolist(), scores.values.tolist()))[:most]:
        seen.setdefault(node, []).append(value)
    mean = {node: sum(values) / len(values) for node, values in seen.items()}
    kin = [
        (node, parent)
        for node, parent in enumerate(scores.parents.tolist())
        if {node, parent} <= set(mean)
    ]
    gaps = [(mean[node] - mean[parent]) ** 2 for node, parent in kin]
    return 0.5 * float(np.mean(np.minimum(gaps, 9 * quantile(gaps, 0.5))))


def steps(look: Look, start: float, count: float, drift: float) -> tuple[float, float, list[float]]:
    """Mean drift, variance of steps and the drift of each parent from one EM step.

    EM is expectation maximisation, with `count` pseudo-steps of variance `start` and mean `drift`.
    """
    mean, covariance, scores, ruined = look.mean, look.covariance, look.scores, look.known.ruined
    sound = [
        n for n in range(len(mean)) if scores.parents[n] >= 0 and scores.counts[n] and not ruined[n]
    ]
    kin = [(node, int(scores.parents[node])) for node in sound]
    by_parent: dict[int, list[float]] = {}
    for node, parent in kin:
        by_parent.setdefault(parent, []).append(mean[node] - mean[parent])
    mu = (0.85 * sum(map(sum, by_parent.values())) + count * drift) / (len(kin) + count)
    drifts = [
        (sum(own) + 6 * mu) / (len(own) + 6)
        for own in (by_parent.get(n, []) for n in range(len(mean)))
    ]
    rest = [(mean[node] - mean[parent] - drifts[parent]) ** 2 for node, parent in kin]
    far = 9 * quantile(rest, 0.8)
    unsure = [covariance[n, n] + covariance[p, p] - 2 * covariance[n, p] for n, p in kin]
    lost = 0.6 * sum(len(own) / (len(own) + 6) for own in by_parent.values())
    total = sum(min(one, far) for one in rest) + sum(unsure) + count * start
    return mu, total / (len(kin) + count - lost), drifts


def noise(look: Look, start: float, effects: np.ndarray, told: StepLaw | None = None) -> float:
    """Variance of one evaluation from the same step.

    From repeats, all observations as 12 more, and the first guess; those out of reach (ruined
    children, sixteen deviations below) tell nothing.
    """
    mean, covariance, scores = look.mean, look.covariance, look.scores
    own: dict[int, list[float]] = {}
    for node, case, value in zip(
        scores.rows.tolist(), scores.cases.tolist(), scores.values.tolist()
    ):
        if scores.near[node]:
            own.setdefault(node, []).append(value - effects[case])
    within = sum(
        sum((value - sum(values) / len(values)) ** 2 for value in values) for values in own.values()
    )
    df = sum(len(values) - 1 for values in own.values())
    every = [
        (value - mean[node]) ** 2 + covariance[node, node] for node in own for value in own[node]
    ]
    doubt = 12 * min(1, len(every) / 40)
    few, guess = (10.0, told.noise**2) if told else (max(0, 1 - df / 4), 0.5 * start)
    return (within + doubt * sum(every) / len(every) + few * guess) / (df + doubt + few)


def cases_apart(look: Look) -> np.ndarray:
    """Effects of the cases from the same step.

    They are means of the rest on each case, shrunk, and their sum is zero.
    """
    mean, scores, s2 = look.mean, look.scores, look.known.noise
    cases = scores.case_count
    if cases == 1:
        return np.zeros(1)
    left: list[list[float]] = [[] for _ in range(cases)]
    for node, case, value in zip(
        scores.rows.tolist(), scores.cases.tolist(), scores.values.tolist()
    ):
        left[case].append(value - mean[node])
    seen = [case for case in range(cases) if left[case]]
    raw, counts = (
        np.array([np.mean(left[case]) for case in seen]),
        np.array([len(left[case]) for case in seen]),
    )
    spread = max(float(np.mean(raw**2 - s2 / counts)), 0.05 * float(np.mean(raw**2)))
    effects, shrunk = np.zeros(cases), raw * counts / (counts + s2 / spread)
    effects[seen] = shrunk - shrunk.mean()
    return effects


def grown(
    size: int,
    repeats: int = 2,
    seed: int = 3,
    told: StepLaw | None = None,
    exact: bool | None = False,
) -> ValueModel:
    """A tree of which every seventh node was never scored."""
    rng, model = Random(seed), ValueModel(exact=exact, prior=told)
    for _ in range(repeats):
        model.observe("0", rng.gauss(0, 0.1))
    for i in range(1, size):
        model.add_candidate(str(i), (str(rng.randrange(max(i - 5, 0), i)),))
        if i % 7:
            model.observe(str(i), 0.1 * rng.gauss(0, 1 + 3 * (i % 9 == 0)) + 0.01 * i)
    return model


def two_cases(effect: float = 0.5) -> ValueModel:
    """Twelve children of one, on one of two cases or both, and the third case seen once."""
    rng, model = Random(8), ValueModel(exact=False)
    for i in range(13):
        model.add_candidate(str(i), ("0",) if i else ())
        for case in (["a"], ["b"], ["a", "b"])[i % 3]:
            model.observe(str(i), 0.1 * i + effect * (case == "a") + rng.gauss(0, 0.1), case)
    return model


def third_case(score: float) -> ValueModel:
    model = two_cases()
    model.observe("5", score, "c")
    return model


TOLD = StepLaw(0.2, 0.05, -0.03)
FILLS: dict[str, tuple[Callable[[], ValueModel], StepLaw | None]] = {
    "two repeats": (lambda: grown(30), None),
    "no repeats": (lambda: grown(30, repeats=1), None),
    "six repeats": (lambda: grown(60, repeats=6), None),
    "four children": (lambda: grown(5, repeats=3), None),
    "five children": (lambda: grown(6, repeats=3), None),
    "an earlier run": (lambda: grown(30, told=TOLD), TOLD),
    "ruined children": (lambda: family(4, looks=2), None),
    "cases alike": (lambda: two_cases(0.0), None),
    "two cases": (two_cases, None),
    "a case seen once": (lambda: third_case(1.5), None),
    "a case of an absurd score": (lambda: third_case(-1e12), None),
}


@pytest.mark.parametrize("name", FILLS)
def test_a_fit_is_a_step_of_expectation_maximisation(name: str) -> None:
    fill, told = FILLS[name]
    model = fill()
    look = Look(model, told)
    start = told.step**2 if told else look.known.first_step
    mu, step, drifts = steps(look, start, *(10, told.drift) if told else (2, 0.0))
    effects = cases_apart(look)
    fitted = look.fitted
    assert fitted.drift == pytest.approx(mu, rel=1e-6)
    assert fitted.drifts == pytest.approx(drifts, rel=1e-6)
    assert (fitted.noise, fitted.step) == pytest.approx(
        (noise(look, start, effects, told), step), rel=1e-6
    )
    assert fitted.effects == pytest.approx(effects, rel=1e-6, abs=1e-12)


def test_the_first_guess_is_that_of_the_first_eight() -> None:
    model = ValueModel(exact=False)
    rng = Random(4)
    for i in range(30):
        model.add_candidate(str(i), (str(max(i - 2, 0)),) if i else ())
        model.observe(str(i), rng.gauss(0, 0.1))
    assert marginals(model).parameters.first_step == pytest.approx(first_guess(model), rel=1e-9)


@pytest.mark.parametrize(
    ("scores", "step"),
    [
        ([[0.0], [1.0]], 0.25),  # without children: as candidates differ
        ([[0.0, 1.0, 2.0], [1.0]], 1.0),  # or repeats do, if that is more
        ([[3.0]], 9e-12),  # as what differs by less than a millionth is rounding
        ([[0.0]], 1.0),
    ],
)
def test_before_any_child_a_step_is_what_scores_differ_by(
    scores: list[list[float]], step: float
) -> None:
    model = ValueModel(exact=False)
    for node, seen in enumerate(scores):
        for score in seen:
            model.observe(str(node), score)
    assert model.noise_step_variances[1] / step == pytest.approx(1)


def test_one_evaluation_alone_is_known_as_well_as_noise_and_origin_leave_it() -> None:
    model = ValueModel(exact=False)
    model.observe("a", 2.0)
    s2, t2 = model.noise_step_variances
    assert model.variance[0] * (1 / s2 + 1 / (1e4 * t2)) == pytest.approx(1, rel=1e-9)


def test_noise_is_told_in_units_of_the_score() -> None:
    assert ValueModel().noise == (True, 0.0, 0) and ValueModel(exact=False).noise.sd == 0.0
    model = grown(30)
    assert (
        model.noise == (False, math.sqrt(model.noise_step_variances[0]), 1)
        and 0.05 < model.noise.sd < 0.5
    )
    assert ValueModel().noise_degrees() == 0.0 and model.noise_degrees() == 1.0


@pytest.mark.parametrize(
    "told", [StepLaw(0.3, 0.0, 5.0), StepLaw(0.3, 0.2, 5.0, 1), StepLaw(0.3, 0.2, 5.0, -1)]
)
def test_what_an_earlier_run_learnt_of_no_step_or_on_another_scale_is_passed_over(
    told: StepLaw,
) -> None:
    assert grown(30, told=told).step_law == grown(30).step_law


def test_an_earlier_run_without_noise_tells_nothing_of_noise() -> None:
    model = grown(30, told=StepLaw(0.0, 0.1, 0.0))
    look = Look(model, StepLaw(0.0, 0.1, 0.0))
    assert look.fitted.noise == pytest.approx(noise(look, 0.1**2, np.zeros(1)), rel=1e-6)


def test_chances_to_fail_are_shrunk_to_that_of_candidates_that_also_scored() -> None:
    model = ValueModel(-1.0)
    for name, scores in (
        ("a", [1.0, 1.1, None]),
        ("b", [1.2]),
        ("c", [None, None]),
        ("d", [1.0, -1e12]),
    ):
        for score in scores:
            model.observe(name, score)
    worth = model.scaled_worths()
    rate = (1 + 1) / (
        3 + 1 + 2 - 3 + 2
    )  # two failures; evaluations beyond the first of each, and two more
    chances = np.array([(1 + 2 * rate) / 5, 2 * rate / 3, (2 + 2 * rate) / 4, (1 + 2 * rate) / 4])
    assert model._inference.value_beliefs().failing == pytest.approx(chances)
    assert worth == pytest.approx(
        np.where(model.scored_counts > 0, model.mean - chances * (model.mean + 1), -math.inf)
    )
    assert worth[0] == pytest.approx(model.value_of("a").mean)


def test_a_child_whose_only_score_is_absurd_was_tried_in_vain() -> None:
    model = ValueModel(0.0)
    for name, score in (("p", 1.0), ("a", 1.1), ("b", 1.2), ("c", -1e12)):
        model.add_candidate(name, ("p",) if name != "p" else ())
        model.observe(name, score)
    share = (2 + 1) / (3 + 1)
    assert model.child_success_chances()[0] == pytest.approx((2 + 2 * share) / 5)


def with_fallen(
    up: int, fallen: dict[float, int], far: int = 0, cases: int = 1, exact: bool = False
) -> ValueModel:
    """Children that gain 0.1, others that fell, others that gain 10.

    `fallen` has how many fell by how much; their parent is known well.
    """
    model = ValueModel(exact=exact)
    for i in range(200):
        model.observe("parent", 0.0, str(i % cases))
    gaps = [0.1] * up + [-by for by, times in fallen.items() for _ in range(times)] + [10.0] * far
    for i, gap in enumerate(gaps):
        model.add_candidate(str(i), ("parent",))
        model.observe(str(i), gap, "0")
    return model


def judged(model: ValueModel) -> tuple[ScaledScores, Parameters]:
    """The model's parameters, with ruined children found anew as a turn does that comes now."""
    found = marginals(model)
    return found.scores, _find_ruined(found.parameters, found.posterior, found.scores)


@pytest.mark.parametrize(
    ("model", "many"),
    [
        (with_fallen(10, {0.32: 6}), 6),  # below three times what the others gain
        (with_fallen(10, {0.28: 6}), 0),
        (with_fallen(5, {0.32: 5}), 5),  # at least five, and five that gained, of ten
        (with_fallen(6, {0.32: 4}), 0),
        (with_fallen(4, {0.32: 6}), 0),
        (with_fallen(20, {0.32: 5}), 5),  # a fifth of all
        (with_fallen(21, {0.32: 5}), 0),
        (with_fallen(20, {0.32: 7, 0.17: 7}), 7),  # as many between half as far and there: a tail
        (with_fallen(20, {0.32: 7, 0.17: 8}), 0),
        (with_fallen(20, {0.32: 7, 0.13: 8}), 7),
        (
            with_fallen(9, {0.42: 6}, far=1),
            6,
        ),  # one that gains far more counts as three times the usual
        (with_fallen(9, {0.38: 6}, far=1), 0),
        (with_fallen(10, {0.32: 6}, exact=True), 0),  # what was measured exactly is believed
        (with_fallen(10, {0.32: 6}, cases=2), 0),
    ],
)
def test_ruined_is_what_fell_by_three_times_what_others_gain_where_a_fifth_did(
    model: ValueModel, many: int
) -> None:
    assert judged(model)[1].ruined.sum() == many


def test_who_was_ruined_a_look_ago_tells_the_same_however_nodes_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list[tuple[float, float]]()
    for group in (1, 10_000):
        monkeypatch.setattr(trees, "GROUP", group)
        rng, model = Random(1), ValueModel()
        for i in range(50):
            name = "parent" if i < 10 else str(i)
            model.add_candidate(name, ("parent",))
            model.observe(
                name, (0.4 if i < 10 else rng.choice([0.1, 0.2, 0.3, 0.4])) + rng.gauss(0, 0.05)
            )
        found.append(model.noise_step_variances)
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("group", [1, 10_000])
def test_who_stood_alone_tells_nothing_of_steps_even_if_it_is_sound_after_all(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "GROUP", group)
    look = Look(family(4, looks=2))
    mu, step, _ = steps(look, look.known.first_step, 2, 0.0)
    assert look.known.ruined.any()
    sound = look.known._replace(ruined=np.zeros(look.scores.size, bool))
    fitted = Learner()._fit_parameters(
        sound, tree_posterior(look.known, look.scores, FamilyTree()), look.scores
    )
    assert (fitted.step, fitted.drift) == pytest.approx((step, mu), rel=1e-6)


def test_where_few_children_are_done_one_by_one_a_ruined_one_stands_alone_too() -> None:
    scores, known = judged(with_fallen(6, {0.32: 5}))  # too few to be done at once
    assert known.ruined.sum() == 5
    found = tree_posterior(known, scores, FamilyTree())
    mean, covariance = solved(scores, known)
    assert found.mean == pytest.approx(mean) and found.variance == pytest.approx(
        np.diag(covariance)
    )


def test_a_child_that_falls_as_far_as_the_ruined_is_ruined_at_once() -> None:
    """The parameters of the last turn tell how far that is; the next turn finds out anew."""
    model = with_fallen(40, {0.5: 15})
    while model._inference._next_turn - model.evaluations < 3:
        model.observe("parent", 0.0, "0")
    before = model.child_success_chances()[0]
    for name, score in (("like it", 0.0), ("ruined", -0.5)):
        model.add_candidate(name, ("parent",))
        model.observe(name, score, "0")
    assert model.evaluations < model._inference._next_turn
    assert model._inference.value_beliefs().ruined[-2:].tolist() == [False, True]
    assert model.child_success_chances()[0] == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize(
    ("first", "odd", "failed"), [(50, -2049, 0), (50, -2051, 1), (-50, -3019, 0), (-50, -3021, 1)]
)
def test_a_score_thirty_spreads_below_the_median_and_the_first_is_absurd(
    first: int, odd: int, failed: int
) -> None:
    """The spread is 70, or how far the first is off.

    70 is from the lower quarter to the upper twentieth of the ranks.
    """
    model = ValueModel()
    ranks = range(1, 101) if first > 0 else range(1, 100)
    for score in (first, odd, *(rank for rank in ranks if rank != first)):
        model.observe(str(score), float(score))
    sample = model._observations.sample_of_first(101)
    sound = RewardScale.from_sample(sample).is_sound(sample.rewards)
    assert (~sound).tolist() == [False, bool(failed)] + [False] * 99


def growing(
    ratio: float, steps: int, last: Sequence[float] = (1.0,), sign: float = 1.0
) -> ValueModel:
    """A row of candidates, each of which scores `ratio` times its predecessor."""
    model = ValueModel(exact=True)
    for i in range(steps + 1):
        model.add_candidate(str(i), (str(i - 1),))
        for share in last if i == steps else (1.0,):
            model.observe(str(i), sign * share * ratio**i)
    return model


@pytest.mark.parametrize("ratio", [2.2, 2.3, 2.4, 2.8])
@pytest.mark.parametrize("last", [(1.0,), (0.9, 1.1)])
def test_six_steps_are_taken_as_logarithms_where_these_are_e_cubed_as_likely(
    ratio: float, last: Sequence[float]
) -> None:
    steps = [ratio**i - ratio ** (i - 1) for i in range(1, 7)]
    plain = -6 * math.log(sum(steps) / 6)
    logs = -6 * math.log(math.log(ratio)) - sum(math.log(ratio**i) for i in range(1, 7))
    law = growing(ratio, 6, last).step_law
    assert law is not None and law.sign == int(logs > plain + 3)
    assert 2 < logs - plain < 5


def test_five_steps_tell_nothing_of_logarithms() -> None:
    five, six = growing(10.0, 5).step_law, growing(10.0, 6).step_law
    assert five is not None and six is not None and (five.sign, six.sign) == (0, 1)


def test_until_the_scale_is_looked_at_again_logarithms_end_at_a_hundredth_of_the_least() -> None:
    model = growing(0.5, 18, sign=-1.0)  # after 18 scores it is looked at, then after 22
    model.add_candidate("tiny", ("18",))
    model.observe("tiny", -1e-30)
    assert model.value_of("tiny").mean == pytest.approx(-0.01 * 0.5**17, rel=1e-3)


def test_values_next_to_the_largest_numbers_are_finite() -> None:
    model = growing(1e34, 9)
    model.add_candidate("child", ("9",))
    assert math.isfinite(model.value_of("child").mean)
    model.observe("child", 1e307)
    mean, _ = model.expected_rewards()
    assert model.value_of("child").mean == mean[-1] == pytest.approx(math.exp(700.0))


def test_the_scale_is_looked_at_again_when_a_quarter_more_was_seen() -> None:
    model = ValueModel()
    for i in range(40):
        model.observe(str(i), 1.0)
    model.observe("odd", -1e12)  # the 41st score: it is looked at, and nothing is absurd yet
    for i in range(9):
        model.observe(f"better {i}", 2.0)
    assert model.failed_counts[40] == 0
    model.observe("better", 2.0)
    assert model.failed_counts[40] == 1


def test_the_floor_that_was_seen_follows_what_is_seen() -> None:
    model = ValueModel()
    floors = list[float]()
    for score in (1.0, 0.9, 1.2, 0.7):
        model.observe("a", score)
        floors += [model.floor, model.floor]
    assert floors == [1.0, 1.0, 0.9, 0.9, 0.9, 0.9, 0.7, 0.7]


def pairs(first: float, others: Sequence[float], told: StepLaw | None) -> ValueModel:
    """Brothers seen twice, with so much between, and such as were seen once."""
    model = ValueModel(exact=False, prior=told)
    model.observe("parent", 0.0)
    for i, between in enumerate((first, *others)):
        model.add_candidate(str(i), ("parent",))
        model.observe(str(i), 0.01 * i - between / 2)
        model.observe(str(i), 0.01 * i + between / 2)
    for i in range(30):
        model.add_candidate(f"alone {i}", ("parent",))
        model.observe(f"alone {i}", 0.01 * i)
    return model


USUAL = (0.16, 0.18, 0.2, 0.2, 0.2, 0.22, 0.24)


@pytest.mark.parametrize(
    ("first", "others", "told", "off"),
    [
        (6.3 * 1.4826 * 0.2, USUAL, None, True),  # the median of half the differences is 0.1
        (5.7 * 1.4826 * 0.2, USUAL, None, False),
        (2.0, USUAL, None, True),
        (2.0, USUAL[:-1], None, False),  # seven repeats tell too little
        (2.0, USUAL, StepLaw(0.01, 0.05, 0.0), True),  # noise is no less than what most repeats say
        (1.0, (0.0,) * 8, None, False),  # where most are equal nothing is known of a tail
    ],
)
def test_what_is_six_deviations_off_counts_as_student_noise_would_have_it(
    first: float, others: Sequence[float], told: StepLaw | None, off: bool
) -> None:
    found = marginals(pairs(first, others, told))
    scale = 1.4826 * quantile([each / 2 for each in (first, *others)], 0.5)
    rest = [
        0.0,
        *(each / 2 for each in (first, *others) for _ in range(2)),
        *(0.0 for _ in range(30)),
    ]
    heavy = [(5 + 1) / (5 + one**2 / max(found.parameters.noise, scale**2)) for one in rest]
    weights = scatter_within(found.scores, found.parameters).weights
    assert weights == pytest.approx(heavy) if off else weights is None
    mean, _ = solved(found.scores, found.parameters)
    assert found.posterior.mean == pytest.approx(mean)


def roots(*scores: float) -> ValueModel:
    model = ValueModel(exact=True)
    for i, score in enumerate(scores):
        model.observe(f"root {i}", score)
    return model


def test_three_candidates_without_parents_have_an_origin_in_common() -> None:
    two, three = roots(1.0, 3.0), roots(1.0, 3.0, 5.0)
    three.add_candidate("unseen")
    assert math.isnan(three.expected_rewards()[0][-1])
    assert three.value_of("unseen").mean == pytest.approx(3.0) and three.value_of(
        "unseen"
    ).sd == pytest.approx(2.0)
    two.add_candidate("unseen")
    assert two.value_of("unseen").sd > 50


def test_where_candidates_without_parents_are_equal_another_may_still_differ_by_a_thousandth_of_all() -> (
    None
):
    model = roots(1.0, 1.0, 1.0)
    for i, score in enumerate((1.5, 2.0, 501.0)):
        model.add_candidate(str(i), ("root 0",))
        model.observe(str(i), score)
    model.add_candidate("unseen")
    assert model.value_of("unseen").sd == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("hopeless", [0, 3, 12])
def test_hopeless_candidates_tell_nothing_of_the_noise(hopeless: int) -> None:
    """They are thirty deviations and more below, and vary ten times as much."""
    rng, model = Random(1), ValueModel(exact=False)
    for i in range(20):
        model.add_candidate(str(i), ("0",) if i else ())
        for _ in range(3):
            model.observe(str(i), rng.gauss(0.0, 0.1))
    for i in range(hopeless):
        model.add_candidate(f"far {i}", ("0",))
        for _ in range(3):
            model.observe(f"far {i}", -3.0 * (i + 1) + rng.gauss(0.0, 1.0))
    assert 0.08 < model.noise.sd < 0.13 and model.noise_degrees() == 40
