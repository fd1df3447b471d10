"""The next step of the default strategy: against all that could be done, and by hand.

By hand: when a leader is looked at again, when a search counts as stalled and where it then goes
on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.usage import Usage
from culmen.evidence.pedigree import ValueModel
from culmen.strategies.costs import Costs
from culmen.strategies.knowledge_gradient import GAIN, WAIT, KnowledgeGradient, Move, Records

from .test_strategies_pedigree import Left

EXACT, NOISY, UNKNOWN = True, False, None
Z = np.linspace(-9.0, 9.0, 20_001)
BELL = np.exp(-0.5 * Z**2) / math.sqrt(2 * math.pi)
BELOW = np.cumsum(BELL) * (Z[1] - Z[0])


def gradient(
    model: ValueModel, cases: int = 1, left: dict[str, float] | None = None
) -> KnowledgeGradient:
    costs = Costs(Left(**({"evaluations": 100.0} if left is None else left)))  # type: ignore[arg-type]
    return KnowledgeGradient(model, costs, cases, 4, Random(1))


def expected(gap: float, deviation: float, k: int = 1) -> float:
    """The rise of the best that the best of `k` draws should bring, all `gap` below it.

    It is a sum over their density.
    """
    density = k * BELL * BELOW ** (k - 1)
    return float((np.maximum(deviation * Z - gap, 0) * density).sum() * (Z[1] - Z[0]))


def search(seed: int, noise: float, broken: int) -> ValueModel:
    """A run of thirty candidates, some broken, one never evaluated, whose leader was seen often."""
    rng, model = Random(seed), ValueModel(0.0, NOISY)
    for i in range(30):
        model.add_candidate(str(i), (str(rng.randrange(max(i - 4, 0), max(i, 1))),))
        for _ in range(12 if i == 20 else 1):
            model.observe(str(i), (2.0 if i == 20 else 1.0 + 0.02 * i) + rng.gauss(0, noise))
    for i in range(broken):
        model.add_candidate(f"broken {i}", (str(i % 30),))
        model.observe(f"broken {i}", None)
    model.add_candidate("pending", ("20",))
    return model


def best_repeat(one: KnowledgeGradient) -> tuple[float, str]:
    """The largest half of the gain per share that a repeat is expected to bring.

    Repeats in flight have given some knowledge already.
    """
    model, worth = one.model, one.model.scaled_worths()
    noise, best = model.noise_step_variances[0], int(worth.argmax())
    rates = list[tuple[float, str]]()
    for node in np.flatnonzero(np.isfinite(worth)).tolist():
        variance = 1 / (1 / model.variance[node] + one.flying.repeats.get(node, 0) / noise)
        other = sorted(worth)[-2] if node == best else worth[best]
        gap = abs(other - worth[node])
        rates.append((0.5 * expected(gap, variance / math.sqrt(variance + noise)), model.ids[node]))
    share = one.costs.evaluation_share() or 1.0
    return max((rate / share, id) for rate, id in rates)


def best_children(
    one: KnowledgeGradient, among: Sequence[int], lead: float
) -> tuple[float, str, int]:
    """The largest gain per share that up to four children of each are expected to bring."""
    model, worth, (noise, step) = (
        one.model,
        one.model.scaled_worths(),
        one.model.noise_step_variances,
    )
    rates = list[tuple[float, str, int]]()
    for node in among:
        spread = model.variance[node] + step
        gap = lead - worth[node] - model.drift[node]
        weight = model.child_success_chances()[node] / (1 + 0.3 * one.flying.children.get(node, 0))
        for k in range(1, one.most + 1):
            gain = expected(gap, spread / math.sqrt(spread + noise), k) * weight
            rates.append((gain / one.costs.request_share(k), model.ids[node], k))
    return max(rates)


@pytest.mark.slow
@pytest.mark.parametrize(
    "left",
    [
        {"evaluations": 50.0},
        {"evaluations": 50.0, "calls": 5.0},
        {"evaluations": 500.0, "calls": 5.0},
        {"calls": 5.0},
        {},
    ],
)
@pytest.mark.parametrize("run", [(2, 0.2, 1), (3, 0.2, 1), (2, 0.7, 90), (3, 0.7, 90)])
def test_decisions_are_the_largest_gain_per_share_of_all_what_is_in_flight_counted(
    left: dict[str, float], run: tuple[int, float, int]
) -> None:
    one = gradient(search(*run), left=left)
    worth = one.model.scaled_worths()
    scored = np.flatnonzero(np.isfinite(worth)).tolist()
    for _ in range(8):
        again, children = best_repeat(one), best_children(one, scored, float(worth.max()))
        move = one.decide().move
        if again[0] > children[0]:
            assert (move.gain, move.again) == (pytest.approx(again[0], rel=1e-3), again[1])
        else:
            assert (move.gain, move.parent, move.k) == (
                pytest.approx(children[0], rel=1e-3),
                *children[1:],
            )
        one.begin_move(move)


def test_where_few_calls_are_left_known_candidates_are_evaluated_until_one_under_way_is_learnt_from() -> (
    None
):
    """A call costs ten answers.

    It is waited for until as much is spent on repeats, then the next one is made.
    """
    one = gradient(search(2, 0.2, 1), left={"dollars": 100.0})
    one.costs.add_answer(
        Proposal((Candidate.of({"x": "1"}),), usage=Usage(calls=1, dollars=9.0)), 1, 0.0
    )
    one.costs.add_evaluation(0.0, Usage(calls=1, dollars=1.0))
    request = Move(parent="20", gain=1.0)
    assert one.decide().move.parent and one.decide().reason == GAIN
    one.begin_move(request)
    for _ in range(10):
        waits = one.decide()
        assert waits.reason == WAIT and waits.move.again
        one.begin_move(waits.move)
    assert one.decide().reason == GAIN and one.decide().move.parent
    one.begin_move(request)
    assert one.decide().reason == WAIT
    one.end_move(request, [])
    assert one.decide().reason == WAIT
    one.end_move(request, [])
    assert one.decide().reason == GAIN and one.decide().move.parent


def test_exact_scores_leave_nothing_to_do_while_calls_are_under_way() -> None:
    model = scores(ValueModel(0.0, EXACT), a=[1.0], b=[2.0])
    one = gradient(model, left={"dollars": 100.0})
    one.costs.add_answer(Proposal((), usage=Usage(calls=1, dollars=9.0)), 1, 0.0)
    one.costs.add_evaluation(0.0, Usage(calls=1, dollars=1.0))
    for _ in range(3):
        one.begin_move(Move(parent="b", gain=1.0))
        assert one.decide().move.parent


def scores(model: ValueModel, **seen: Sequence[float | None]) -> ValueModel:
    """A model with these evaluations of candidates without parents, a case each."""
    for id, values in seen.items():
        for value in values:
            model.observe(id, value)
    return model


def looks(model: ValueModel, cases: int = 1, flying: Sequence[Move] = ()) -> str:
    """The leader that is looked at again whatever that gains."""
    one = gradient(model, cases)
    for move in flying:
        one.begin_move(move)
    move = one.decide().move
    return move.again if move.gain == 0 else ""


def confirmed(leaders: int, evaluations: int) -> ValueModel:
    """`leaders` leaders that repeated their score, then one that was seen once."""
    model = scores(ValueModel(), **{f"l{i}": [float(i), float(i)] for i in range(leaders)})
    for _ in range(evaluations - model.evaluations - 1):
        model.observe("broken", None)
    return scores(model, new=[100.0])


@pytest.mark.parametrize(
    ("model", "leader"),
    [
        (scores(ValueModel(), a=[1.0], b=[2.0]), "b"),  # exactness is a hypothesis
        (scores(ValueModel(), a=[1.0], b=[2.0, 2.0]), ""),
        (scores(ValueModel(0.0), a=[1.0], b=[3.0, None]), ""),  # a failure is a look
        (scores(ValueModel(exact=True), a=[1.0], b=[2.0]), ""),
        (confirmed(4, 20), "new"),
        (confirmed(5, 20), ""),  # after five
        (confirmed(5, 100), ""),
        (confirmed(5, 101), "new"),  # one evaluation in twenty
        (confirmed(6, 120), ""),
        (scores(ValueModel(), a=[1.0, 1.1], b=[2.0, 2.1]), "b"),  # noisy: up to three looks
        (scores(ValueModel(), a=[1.0, 1.1], b=[2.0, 2.1, 2.0]), ""),
        (scores(ValueModel(0.0), a=[1.0, 1.1], b=[9.0, 9.0, None]), ""),
        (scores(ValueModel(), a=[1.0, 1.1] * 4, b=[2.0]), "b"),  # seven repeats
        (scores(ValueModel(), a=[1.0, 1.1] * 4, b=[2.0, 2.1]), ""),  # eight tell what noise is
    ],
)
def test_a_leader_is_looked_at_again_until_noise_is_known(model: ValueModel, leader: str) -> None:
    assert looks(model) == leader


def test_looks_in_flight_count() -> None:
    assert looks(scores(ValueModel(), a=[1.0], b=[2.0]), flying=[Move(again="b")]) == ""
    noisy = scores(ValueModel(exact=False), a=[1.0, 1.1] * 4, b=[2.0])
    assert looks(noisy) == "b" and looks(noisy, flying=[Move(again="a")]) == ""
    few = scores(ValueModel(exact=False), a=[1.0, 1.1], b=[2.0, 2.1])
    assert looks(few) == "b" and looks(few, flying=[Move(again="b")]) == ""


def on_cases(exact: bool | None, looks: int, others: int = 0) -> ValueModel:
    """A leader seen on `looks` cases, and another candidate."""
    model = ValueModel(exact=exact)
    for i in range(max(looks, others)):
        if i < looks:
            model.observe("leader", 2.0 + 0.1 * (i % 2), f"case {i}")
        if i < others:
            model.observe("other", 0.1 * (i % 2), f"case {i}")
    return model


@pytest.mark.parametrize(
    ("model", "cases", "leader"),
    [
        (on_cases(EXACT, 7), 20, "leader"),  # up to eight looks tell cases and candidates apart
        (on_cases(EXACT, 8), 20, ""),
        (on_cases(NOISY, 7), 20, "leader"),
        (on_cases(NOISY, 8), 20, ""),
        (on_cases(NOISY, 5, 36), 20, "leader"),  # 39 repeats
        (on_cases(NOISY, 6, 36), 20, ""),
        (on_cases(UNKNOWN, 1, 42), 60, "leader"),  # exactness is a hypothesis here, too
        (on_cases(UNKNOWN, 2, 42), 60, ""),
        (on_cases(EXACT, 4), 5, "leader"),
        (on_cases(EXACT, 5), 5, ""),  # every case was seen
        (scores(on_cases(EXACT, 3), leader=[None, None]), 5, ""),  # or failed on
        (on_cases(UNKNOWN, 5), 5, "leader"),  # and the first once more
        (on_cases(UNKNOWN, 6), 5, ""),
    ],
)
def test_on_a_data_set_a_leader_is_looked_at_on_more_cases(
    model: ValueModel, cases: int, leader: str
) -> None:
    assert looks(model, cases) == leader


def test_an_exact_data_set_is_not_looked_at_beyond_its_cases() -> None:
    """Two are known on every case; the third is looked at.

    It is not looked at if that is in flight, or if it failed there.
    """
    model = ValueModel(0.75, exact=True)
    for id, seen in (
        ("first", [1.1, 1.3, 0.8]),
        ("second", [0.9, 1.2, 1.0]),
        ("third", [1.2, 0.8]),
    ):
        for case, score in zip("abc", seen):
            model.observe(id, score, case)
    left = {"evaluations": 1e6, "calls": 1.0}
    one = gradient(model, 3, left)
    move = one.decide().move
    assert move.again == "third" and move.gain > 0
    one.begin_move(move)
    assert one.decide().move.again == ""
    model.observe("third", None, "c")
    assert gradient(model, 3, left).decide().move.again == ""


def test_of_many_that_are_as_good_the_one_whose_children_were_sound_is_asked() -> None:
    model = ValueModel(exact=True)
    for i in range(61):
        model.add_candidate(str(i), ("0",))
        model.observe(str(i), 1.0 if i == 60 else 1.0 - 0.1 * (i % 2))
        for _ in range(20 if i < 60 else 0):
            model.count_barren_request(str(i))
    assert gradient(model).decide().move.parent == "60"


@pytest.mark.parametrize(
    ("more", "leader"), [(0.0, "first"), (0.7e-6, "first"), (1.5e-6, "second")]
)
def test_of_exact_scores_that_differ_by_less_than_a_millionth_of_a_step_the_first_leads(
    more: float, leader: str
) -> None:
    def model(more: float) -> ValueModel:
        found = ValueModel()
        for id, score in (
            ("root", 0.0),
            ("first", 100.0),
            ("second", 100.0 + more),
            ("third", -50.0),
        ):
            found.add_candidate(id, ("root",))
            found.observe(id, score)
        return found

    step = math.sqrt(model(0.0).noise_step_variances[1])
    assert looks(model(more * step)) == leader


def test_what_begins_is_in_flight_until_it_ends() -> None:
    one = gradient(search(2, 0.2, 1))
    moves = [
        Move(again="3"),
        Move(again="3"),
        Move(parent="4", k=3),
        Move(parent="4", k=2),
        Move(parent="", k=4),
    ]
    for move in moves:
        one.begin_move(move)
    assert (one.flying.repeats, one.flying.children) == ({3: 2}, {4: 5})
    for move in moves[1:4]:
        one.end_move(move, [])
    assert (one.flying.repeats, one.flying.children) == ({3: 1}, {})


def test_while_nothing_was_scored_children_are_asked_of_the_first_or_from_scratch() -> None:
    assert gradient(ValueModel()).decide().move == Move(parent="", k=1)
    assert gradient(scores(ValueModel(), a=[None], b=[None])).decide().move == Move(parent="a")
    assert (
        gradient(scores(ValueModel(exact=True), a=[None], b=[1.0], c=[None])).decide().move.parent
        == "b"
    )


def test_leaders_are_the_best_first_and_a_barren_one_is_asked_less() -> None:
    one = gradient(scores(ValueModel(exact=True), a=[1.0], b=[3.0], c=[2.0]))
    assert one.leader_ids(2) == ["b", "c"]
    before = one.model.child_success_chances()[1]
    one.count_barren_request("b")
    assert one.model.child_success_chances()[1] < before


class Waiting:
    """A search with `records` records, a candidate each, that then waits.

    `evaluate` brings nothing new.
    """

    def __init__(self, records: int, exact: bool = EXACT) -> None:
        self.model = ValueModel(exact=exact)
        self.one = gradient(
            self.model, left={"evaluations": 1e6, "calls": 1.0}
        )  # a call costs far more
        for i in range(0 if exact else 20):
            self.model.observe("0", float(i % 2))
        for i in range(records + 1):
            self.model.add_candidate(str(i), (str(i - 1),))
            self.model.observe(str(i), float(i))
            self.move = self.one.decide().move
        for name in ("lower", "low"):
            self.model.add_candidate(name, (str(records),))
        self.waited = 0

    def evaluate(self) -> Move:
        self.model.observe("low" if self.waited % 2 else "lower", -5.0 - self.waited % 2)
        self.waited += 1
        self.move = self.one.decide().move
        return self.move


@pytest.mark.parametrize(("records", "first"), [(9, 20), (2, 28)])
def test_a_wait_of_chance_below_one_percent_is_a_stall_but_not_before_twenty_evaluations(
    records: int, first: int
) -> None:
    """Two records in three evaluations, 27 more without one: (1 + 27/3)⁻² is 1 %."""
    search = Waiting(records)
    while not search.evaluate().stalled:
        assert search.waited < 100
    assert search.waited == first
    assert (
        search.one.stall.lineages.number == 1
        and search.move.parent == search.model.ids[search.one.stall.lineages.members[0]]
    )


def test_every_other_child_is_of_the_other_lineage_and_every_one_when_the_wait_is_beyond_doubt() -> (
    None
):
    search = Waiting(2)
    while not search.evaluate().stalled:
        pass
    assert search.one.decide().move.parent == search.move.parent  # the second turn
    sides = list[bool]()
    while search.waited < 310:
        move = search.evaluate()
        sides.append(search.model.index[move.parent] in search.one.stall.lineages.members)
    doubt = 297 - 28  # (1 + 297/3)⁻² is 0.01 %
    assert sides[:doubt] == [False, True] * (doubt // 2) + [False] * (doubt % 2) and all(
        sides[doubt:]
    )


def stalled(records: int = 2) -> Waiting:
    search = Waiting(records)
    while not search.evaluate().stalled:
        pass
    return search


def test_children_of_the_lineage_that_is_followed_are_of_it() -> None:
    search = stalled()
    one, model = search.one, search.model
    (node,) = one.stall.lineages.members
    model.add_candidate("child", (model.ids[node],))
    model.add_candidate("stranger", ("0",))
    one.begin_move(search.move)
    one.end_move(search.move, ["child"])
    one.stall.grow_lineage("0", ["stranger"])
    one.stall.grow_lineage("", ["stranger"])
    assert one.stall.lineages.members == [node, model.index["child"]]


def test_within_a_lineage_a_child_is_to_pass_its_best_alone() -> None:
    search = stalled()
    one, model = search.one, search.model
    (node,) = one.stall.lineages.members
    model.add_candidate("child", (model.ids[node],))
    model.observe("child", -4.9)
    one.stall.grow_lineage(search.move.parent, ["child"])
    members = one.stall.lineages.members
    rate, parent, k = best_children(
        one, members, max(float(model.scaled_worths()[each]) for each in members)
    )
    move = one.decide().move
    assert (move.gain, move.parent, move.k) == (
        pytest.approx(rate, rel=1e-3),
        parent,
        k,
    ) and not move.stalled


def test_a_lineage_without_a_record_is_given_up_for_another_that_nobody_tries() -> None:
    """Two records in three evaluations before it.

    (1 + 7/3)⁻² is below a tenth, (1 + 6/3)⁻² is not.
    """
    search = stalled()
    one, model = search.one, search.model
    first = search.move.parent
    other = next(name for name in ("low", "lower") if name != first)
    for i in range(7):
        assert not one.decide().move.stalled
        model.add_candidate(f"child {i}", (first,))
        model.observe(f"child {i}", -9.0)
        one.stall.grow_lineage(first, [f"child {i}"])
        one.begin_move(Move(parent=f"child {i}"))  # so only the other is left to begin with
    move = one.decide().move
    assert move.stalled and move.parent == other and one.stall.lineages.number == 2


def test_a_lineage_with_records_is_followed_on() -> None:
    search = stalled()
    one, model, parent = search.one, search.model, search.move.parent
    for i in range(12):
        model.add_candidate(f"child {i}", (parent,))
        model.observe(f"child {i}", -4.0 + 0.1 * i)
        one.stall.grow_lineage(parent, [f"child {i}"])
        parent = f"child {i}"
        assert not one.decide().move.stalled


def test_where_every_candidate_was_a_parent_a_stalled_search_goes_on_as_before() -> None:
    search = Waiting(2)
    search.model.add_candidate("failed", ("2",))
    search.model.observe("failed", None)
    for name in ("low", "lower"):
        search.one.begin_move(Move(parent=name))
    while search.waited < 60:
        assert not search.evaluate().stalled
    assert search.one.stall.lineages.number == 0
    search.model.add_candidate("once", ("2",))
    search.model.observe("once", -1.0)
    move = search.one.decide().move
    assert move.stalled and move.parent == "once"


def test_a_noisy_search_that_goes_on_elsewhere_asks_for_children_even_where_looks_are_cheap() -> (
    None
):
    """Nine records in thirty evaluations, 21 more without one.

    (1 + 21/30)⁻⁹ is below 1 %, (1 + 20/30)⁻⁹ is not.
    """
    search = Waiting(9, NOISY)
    moves = [search.evaluate() for _ in range(30)]
    assert [bool(move.parent) for move in moves] == [False] * 20 + [True] + [True, False] * 4 + [
        True
    ]
    assert [move.stalled for move in moves].index(True) == 20


@pytest.mark.parametrize(("exact", "steps"), [(NOISY, 0.5), (EXACT, 1e-6)])
def test_a_record_passes_the_last_by_half_a_step_under_noise(exact: bool, steps: float) -> None:
    rng, records = Random(7), Records()
    one = gradient(ValueModel(exact=exact))
    for _ in range(12):  # noise is known
        one.model.observe("0", 0.0 if exact else rng.gauss(0, 0.3))
    for i in range(80):
        one.model.add_candidate(str(i), (str(i - 1),))
        one.model.observe(
            str(i), 1e-6 * i * rng.random() if exact else 0.03 * i + rng.gauss(0, 0.3)
        )
        one.decide()
        worth, step = (
            float(one.model.scaled_worths().max()),
            math.sqrt(one.model.noise_step_variances[1]),
        )
        records.record_best(worth, one.model.evaluations, steps * step)
        assert (one.stall.records.count, one.stall.records.at, one.stall.records.level) == (
            records.count,
            records.at,
            records.level,
        )
    assert 3 < records.count < 60
