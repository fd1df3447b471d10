"""The value model depends on the observations in their order alone: bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.evidence.pedigree import StepLaw, ValueModel
from culmen.evidence.pedigree.learning import EVERY, next_turn


class Seen(NamedTuple):
    """One evaluation; None: it failed."""

    id: str
    reward: float | None
    case: str = ""


class History(NamedTuple):
    """Parents of all candidates, in order of their birth, and evaluations."""

    parents: dict[str, tuple[str, ...]]
    seen: list[Seen]
    exact: bool | None = None
    floor: float | None = None
    prior: StepLaw | None = None


def reward(kind: str, rng: Random, above: float) -> float:
    """A child's true reward by its parent's."""
    if kind == "ties":
        return max(0.0, above + rng.choice([-0.25, 0.0, 0.0, 0.0, 0.25]))
    if kind == "decades":
        return above * rng.choice([0.5, 0.8, 1.05])
    if kind == "ruined" and rng.random() < 0.4:
        return above - 5.0
    return above + rng.gauss(-0.02, 0.1)


@st.composite
def histories(draw: Callable[..., object], most: int = 160) -> History:
    """Runs with failures, cases, equal scores, losses over decades, ruined children.

    Also with absurd scores and several roots.
    """
    rng = Random(draw(st.integers(0, 10**9)))  # type: ignore[arg-type]
    kind = str(draw(st.sampled_from(["plain", "ties", "decades", "ruined"])))
    noise = float(draw(st.sampled_from([0.0, 0.05, 0.4])))  # type: ignore[arg-type]
    cases = int(draw(st.sampled_from([1, 1, 3])))  # type: ignore[call-overload]
    failing = float(draw(st.sampled_from([0.0, 0.3])))  # type: ignore[arg-type]
    size = rng.randint(1, most)
    truths, parents, seen = dict[str, float](), dict[str, tuple[str, ...]](), list[Seen]()
    for i in range(size):
        above = rng.choice(list(truths)[-6:]) if truths and rng.random() < 0.95 else None
        name, base = f"c{i}", -1000.0 if kind == "decades" else 1.0
        truths[name] = reward(kind, rng, truths[above]) if above else base
        parents[name] = (above,) if above else ()
        if rng.random() < 0.15:
            continue  # never evaluated, or later
        for id in [name] * rng.choice([1, 1, 1, 2]) + [rng.choice(list(truths))] * (
            rng.random() < 0.3
        ):
            factor = np.exp(noise * rng.gauss(0, 1)) if kind == "decades" else 1.0
            score = float(
                truths[id] * factor + (noise * rng.gauss(0, 1) if kind != "decades" else 0.0)
            )
            if rng.random() < 0.01:
                score = -1e9
            case = str(rng.randrange(cases)) if cases > 1 else ""
            seen.append(Seen(id, None if rng.random() < failing else score + (case == "1"), case))
    exact = draw(st.sampled_from([None, None, None, True, False]))
    floor = draw(st.sampled_from([None, None, -1e4]))
    prior = draw(st.sampled_from([None, None, StepLaw(0.1, 0.2, 0.01)]))
    return History(parents, seen, exact, floor, prior)  # type: ignore[arg-type]


def empty(history: History) -> ValueModel:
    return ValueModel(history.floor, history.exact, history.prior)


def enter(model: ValueModel, history: History, id: str) -> None:
    """Add a candidate, its ancestors first."""
    for parent in history.parents[id]:
        if parent not in model.index:
            enter(model, history, parent)
    model.add_candidate(id, history.parents[id])


def told_once(history: History) -> ValueModel:
    """Candidates are added when they are first evaluated; nothing is asked before the end."""
    model = empty(history)
    for seen in history.seen:
        enter(model, history, seen.id)
        model.observe(*seen)
    return model


def told_and_asked(history: History, rng: Random, often: float) -> ValueModel:
    """A model to which all candidates are added at the beginning, in another order.

    It is asked now and then.
    """
    model, ids = empty(history), list(history.parents)
    rng.shuffle(ids)
    for id in ids:
        enter(model, history, id)
    asked: list[Callable[[], object]] = [
        model.scaled_worths,
        model.expected_rewards,
        model.child_success_chances,
        model.noise_degrees,
        lambda: model.step_law,
        lambda: model.noise,
        lambda: model.floor,
        lambda: model.value_of(ids[0]),
    ]
    for seen in history.seen:
        model.observe(*seen)
        while rng.random() < often:
            rng.choice(asked)()
    return model


def believed(model: ValueModel, ids: Sequence[str]) -> dict[str, object]:
    """Everything that a model reports, candidates in this order."""
    rows = [model.index[id] for id in ids]
    means, deviations = model.expected_rewards()
    columns = (
        model.mean,
        model.variance,
        model.drift,
        model.scored_counts,
        model.failed_counts,
        model.scaled_worths(),
        means,
        deviations,
    )
    told = {str(place): column[rows].tobytes() for place, column in enumerate(columns)}
    values = [model.value_of(id) for id in ids]
    return {
        **told,
        "values": np.array([(v.mean, v.sd, v.count, v.failures) for v in values]).tobytes(),
        "numbers": (
            repr(model.step_law),
            repr(model.noise_step_variances),
            repr(model.noise),
            model.floor,
            model.noise_degrees(),
        ),
        "exact": (
            model.is_exact,
            model.is_noiseless,
            model.confirmed_repeats,
            model.has_differed,
            model.evaluations,
        ),
    }


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(0, 10**9), st.sampled_from([0.02, 0.3, 0.7]))
def test_who_asks_and_when_changes_nothing(history: History, seed: int, often: float) -> None:
    once, asked = told_once(history), told_and_asked(history, Random(seed), often)
    ids = list(once.index)
    assert believed(once, ids) == believed(asked, ids)
    born = asked.child_success_chances()[[asked.index[id] for id in ids]]
    assert once.child_success_chances().tobytes() == born.tobytes()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(histories(60), st.integers(0, 10**9))
def test_requests_that_brought_nothing_change_the_chances_of_births_alone(
    history: History, seed: int
) -> None:
    plain, barren, rng = told_once(history), told_once(history), Random(seed)
    ids = list(plain.index)
    asked = {rng.choice(ids) for _ in range(3)} if ids else set[str]()
    for id in asked:
        barren.count_barren_request(id)
    assert believed(plain, ids) == believed(barren, ids)
    for id, before, after in zip(
        ids, plain.child_success_chances(), barren.child_success_chances()
    ):
        assert after < before if id in asked else after == before


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(histories(60))
def test_candidates_that_were_not_evaluated_change_nothing_for_the_others(history: History) -> None:
    plain, more = told_once(history), told_once(history)
    ids = list(plain.index)
    plain.scaled_worths(), more.scaled_worths()
    for i in range(5):
        more.add_candidate(f"new {i}", (f"new {i - 1}", *ids[i : i + 1]))
    assert believed(plain, ids) == believed(more, ids)
    assert (
        plain.child_success_chances().tobytes()
        == more.child_success_chances()[: len(ids)].tobytes()
    )
    assert np.isnan(more.expected_rewards()[0][len(ids) :]).all()


@pytest.mark.slow
def test_five_thousand_at_once_are_believed_as_one_by_one() -> None:
    rng, once, asked = Random(3), ValueModel(), ValueModel()
    truths = [0.0]
    for i in range(5000):
        parent = max(rng.sample(range(len(truths)), min(4, len(truths))), key=lambda j: truths[j])
        truths.append(truths[parent] + rng.gauss(-0.02, 0.05))
        seen = None if rng.random() < 0.1 else truths[-1] + rng.gauss(0, 0.1)
        for model in (once, asked):
            model.add_candidate(str(i), (str(parent - 1),))
            model.observe(str(i), seen)
        asked.scaled_worths()
    assert believed(once, once.ids) == believed(asked, once.ids)


def test_parameters_are_learnt_when_a_share_more_was_seen() -> None:
    turns = [1]
    while turns[-1] < 50_000:
        turns.append(next_turn(turns[-1]))
    assert turns[:EVERY] == list(range(1, EVERY + 1))
    assert all(later <= max(now + 1, 1.04 * now) for now, later in itertools.pairwise(turns))
    assert len(turns) < 400


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_parent_that_was_never_evaluated_joins_its_children(sign: float) -> None:
    """Children of a candidate that nothing is known of tell of one another through it."""
    model = ValueModel(exact=False)
    for i in range(40):
        model.add_candidate(f"p{i}")
        for k in range(4):
            model.add_candidate(f"{i} {k}", (f"p{i}",))
            model.observe(f"{i} {k}", sign * i + 0.1 * k)
    assert model.value_of("p7").mean == pytest.approx(sign * 7 + 0.15, abs=0.2)
    assert model.value_of("p7").count == 0 and model.scaled_worths()[model.index["p7"]] == -np.inf
