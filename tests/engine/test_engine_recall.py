"""The memory of a search: the past that it keeps, and how little room that takes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, request_mark
from culmen.core.usage import Budget
from culmen.engine.record import EvaluationCache, MemoryStore
from culmen.evidence.evidence import Evidence
from culmen.testing.virtual import simulate
from tests.store.contracts import ObservationStoreContract

from .worlds import EXACT, TASK, Hill


class TestMemoryStore(ObservationStoreContract):
    def make(self, folder):
        return MemoryStore(), lambda *_: None


def test_a_key_is_the_beginning_of_a_digest():
    one = Candidate.of({"x": "1"})
    assert key_of(one.digest) == int(one.digest[:16], 16)
    assert f"{key_of(one.id):012x}" == one.id


seen = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(st.none(), st.floats(-100, 100)),
        st.sampled_from(["", "verified", "self-reported"]),
        st.sampled_from([None, True, False]),
        st.booleans(),
    ),
    max_size=40,
)


@given(seen)
def test_tallies_are_what_was_seen(observations):
    evidence, held = Evidence(TASK), {}
    for which, score, trust, strict, barred in observations:
        one = Candidate.of({"x": str(which)})
        barred = barred and score is None
        status = Status.REJECTED if barred else Status.ERROR if score is None else Status.OK
        strict = None if score is None else strict
        certified = score if strict else None
        reason = "integrity_frames" if barred else ""
        evidence.observe(
            one,
            Observation(
                one.id,
                status,
                score,
                reason=reason,
                trust=trust,
                strict=strict,
                certified=certified,
            ),
        )
        held.setdefault(one.id, []).append((score, trust, strict, certified, barred))
    account, ranking = evidence.account, evidence.ranking
    tallies = list(account.tallies())
    assert [tally.id for tally in tallies] == list(held) and len(account) == len(held)
    for tally in tallies:
        assert account.tally(tally.id) == tally
        mine = held[tally.id]
        scores = [score for score, *_ in mine if score is not None]
        assert (tally.count, tally.failures) == (len(scores), len(mine) - len(scores))
        assert not scores or abs(tally.mean - sum(scores) / len(scores)) < 1e-9 * (
            1 + max(map(abs, scores))
        )
        assert tally.certified == min((c for *_, c, _ in mine if c is not None), default=None)
        assert tally.refused == any(strict is False for _, _, strict, _, _ in mine)
        assert tally.barred == any(barred for *_, barred in mine)
        doubtful = any(trust != "verified" for score, trust, *_ in mine if score is not None)
        assert tally.trust == ("" if not scores else "self-reported" if doubtful else "verified")
    best = ranking.best_ids(1000)
    assert ranking.best_ids(3) == best[:3]
    assert set(best) == {tally.id for tally in tallies if tally.count and not tally.barred}
    refused = [next(tally.refused for tally in tallies if tally.id == name) for name in best]
    assert refused == sorted(refused)  # those last


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "scores", [(None, None, 1.5e-150), (None, None, None, 3.5e-305, 0.0, 3.5e-305)]
)
def test_scores_whose_squares_are_nothing_are_ranked(scores):
    """Also where a verifier vouched for the last."""
    evidence = Evidence(TASK)
    for number, score in enumerate(scores):
        one = Candidate.of({"x": str(number >= 4)})
        status, last = Status.ERROR if score is None else Status.OK, number == 5
        evidence.observe(
            one,
            Observation(
                one.id, status, score, strict=last or None, certified=score if last else None
            ),
        )
    assert evidence.ranking.best_ids(10)


@pytest.mark.parametrize(("task", "known"), [(EXACT, True), (TASK, False)])
def test_only_evaluations_of_a_deterministic_task_are_found_again(task, known):
    candidate = Candidate.of({"x": "a"})
    memo, request = EvaluationCache(task, MemoryStore(), {}), EvaluateRequest(candidate, None, 1)
    memo.record_request(Effect(1, request_mark(request), request))
    seen = Observation(candidate.id, Status.OK, 1.0)
    memo.record_delivery(request_mark(request), candidate, seen)
    assert memo.remembered_future(EvaluateRequest(candidate, None, 2)) is None
    again = memo.remembered_future(request)
    assert (again is not None and again.result() == seen) == known


class AgainAndAgain:
    """Asks for the same evaluations, while they run and long after."""

    async def search(self, lab):
        first, other = lab.seeds[0], Candidate.of({"x": "0.7"})
        twice = await lab.gather(lab.evaluate(first), lab.evaluate(first))
        later = await lab.evaluate(first)
        assert twice[0] == twice[1] == later
        assert (await lab.evaluate(other)).observations != later.observations
        assert await lab.evaluate(first) == later


def test_what_a_deterministic_task_said_comes_from_the_observation_store():
    run = simulate(AgainAndAgain(), EXACT, Hill(), Budget(evaluations=9, final=0.0), seed=1)
    made = [
        e.entry
        for e in run.journal.read()
        if e.entry.kind == "done" and e.entry.effect == "evaluate"
    ]
    searched = [entry for entry in made if entry.body.get("phase") not in ("choice", "final")]
    assert run.search.reason == "strategy_done"
    assert len(searched) == 2 * (len(EXACT.split("train")) or 1)


def test_the_noise_of_repeats_on_a_case_is_their_squared_distance_from_their_mean():
    evidence = Evidence(msgspec.structs.replace(TASK, cases=(Case("a"), Case("b"))))
    candidate = Candidate.of({"x": "1"})
    for case, score in (("a", 1.0), ("b", 10.0), ("a", 3.0), ("a", 8.0)):
        evidence.observe(candidate, Observation(candidate.id, Status.OK, score, case=case))
    noise = evidence.account.pooled_noise()
    assert (noise.repeats, noise.squares) == (2, pytest.approx(9 + 1 + 16))
