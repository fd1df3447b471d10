"""Comparison of two workers' answers: who is found out, and who must not be."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.cluster import messages
from culmen.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.cluster.queue_audit import (
    FEW_PAIRS,
    STRIKES,
    Auditor,
    Rechecks,
    Vote,
    name_voters,
    vet_answer,
    vet_greeting,
)
from culmen.core.evaluation import EVALUATOR_LOG, Observation, RoleUsage, Scoring, Status
from culmen.core.task import Task
from culmen.core.usage import Usage

EXACT, NOISY = Task("exact", deterministic=True), Task("noisy", deterministic=False)


def vote(worker: str, score: float | None, candidate: str = "c", trusted: bool = False, **more: Any) -> Vote:
    status = Status.ERROR if score is None else Status.OK
    return Vote(worker, trusted, Observation(candidate, status, score, **more))


def decided(auditor: Auditor, *votes: Vote) -> Vote | None:
    """The decision on the first two votes, then on all."""
    return auditor.decide(list(votes[:2])) or auditor.decide(list(votes))


def test_a_third_decides_and_a_liar_is_marked_after_strikes_on_different_candidates():
    auditor = Auditor(EXACT)
    for turn in range(STRIKES):
        assert not auditor.suspects()
        votes = [vote("liar", 9.0, f"c{turn}"), vote("a", 1.0, f"c{turn}")]
        assert auditor.decide(votes) is None
        assert auditor.decide([*votes, vote("b", 1.0, f"c{turn}")]).worker == "a"
    assert set(auditor.suspects()) == {"liar"} and not auditor.suspects()


def test_one_candidate_alone_marks_nobody():
    auditor = Auditor(EXACT)
    for _ in range(10):
        decided(auditor, vote("a", 1.0), vote("b", 2.0), vote("c", 2.0))
    assert not auditor.suspects()


def test_a_candidate_that_does_not_repeat_itself_marks_nobody():
    """Three different scores give the median; a coin's two scores speak against all workers alike."""
    auditor = Auditor(EXACT)
    assert decided(auditor, vote("a", 3.0), vote("b", 1.0), vote("c", 2.0)).observation.score == 2.0
    chance = random.Random(3)
    for turn in range(200):
        names = chance.sample(["a", "b", "c", "d"], 3)
        decided(auditor, *(vote(name, float(chance.random() < 0.5), f"c{turn}") for name in names))
    assert not auditor.suspects()


def test_a_trusted_worker_decides_alone():
    auditor = Auditor(EXACT)
    assert auditor.decide([vote("mine", 1.0, trusted=True)]).worker == "mine"
    both = [vote("a", 9.0), vote("mine", 1.0, trusted=True)]
    assert auditor.decide(both).worker == "mine"


def test_a_status_a_metric_of_the_objective_and_rounding():
    task = msgspec.convert({"name": "t", "deterministic": True, "objective": {"metrics": [{"name": "size"}]}}, Task)
    auditor = Auditor(task)
    one = vote("a", 1.0, metrics={"size": 2.0, "time": 1.0})
    assert auditor.decide([one, vote("b", 1.0 + 1e-9, metrics={"size": 2.0, "time": 7.0})]).worker == "a"
    assert auditor.decide([one, vote("b", 1.0, metrics={"size": 3.0})]) is None
    assert auditor.decide([one, vote("b", None)]) is None
    assert auditor.decide([vote("a", None), vote("b", None)]) is not None


def noisy_rounds(shift: float, turns: int, workers: str = "abcd", seed: int = 0) -> Auditor:
    """Pairs of noisy scores, those of worker "a" shifted."""
    auditor, chance = Auditor(NOISY), random.Random(seed)
    for turn in range(turns):
        truth = chance.gauss(0, 5)
        chosen = chance.sample(workers, min(3, len(workers)))
        decided(auditor, *(vote(w, truth + chance.gauss(0, 1) + shift * (w == "a"), f"c{turn}") for w in chosen))
    return auditor


def test_noise_marks_nobody_and_a_shift_is_found_among_three():
    assert not any(noisy_rounds(0.0, 400, seed=seed).suspects() for seed in range(5))
    assert set(noisy_rounds(3.0, 400).suspects()) == {"a"}
    assert not noisy_rounds(3.0, 400, "ab").suspects(), "of two, nobody can say which one is shifted"


def test_a_far_score_among_noisy_ones_is_decided_by_a_third():
    auditor = noisy_rounds(0.0, 2 * FEW_PAIRS)
    near, far = [vote("b", 0.0), vote("c", 0.5)], [vote("b", 0.0), vote("c", 500.0)]
    assert auditor.decide(near) is not None and auditor.decide(far) is None


def test_results_are_made_again_once_and_counted():
    rechecks, auditor = Rechecks[str](), Auditor(EXACT)
    for number in range(3):
        rechecks.keep("liar", bytes([number]), f"item{number}", Observation(f"cand{number}", Status.OK, 9.0))
    assert rechecks.begin("liar") == ["item0", "item1", "item2"] and rechecks.begin("liar") == []
    assert rechecks.pending(b"\0") == "item0" and rechecks.pending(b"\7") is None
    assert rechecks.compare(b"\0", Observation("cand0", Status.OK, 1.0), auditor)[1] == ""
    assert rechecks.compare(b"\1", Observation("cand1", Status.OK, 9.0), auditor)[1] == ""
    text = rechecks.compare(b"\2", None, auditor)[1]
    assert text.startswith("2 results of worker liar") and text.endswith("1 differ, of candidates cand0")


JOB = EvaluationJob("c", {}, "one", 7, False, 0)
GOOD = Observation("c", Status.OK, 1.0, "one", seed=7, evaluator="e", trust="verified", seconds=1.0)


def vetted(seen: Observation, job: EvaluationJob = JOB) -> Observation | None:
    return vet_answer(messages.dump_struct(NodeReply(observation=seen)), job, "e", Scoring("verified"))


@pytest.mark.parametrize(
    "change",
    [{"candidate": "d"}, {"case": "two"}, {"seed": 8}, {"evaluator": "f"}, {"score": float("nan")}, {"score": None},
     {"status": Status.ERROR}, {"status": Status.LOST, "score": None}, {"trust": "certified"}, {"trust": "holy"},
     {"seconds": float("inf")}],
)  # fmt: skip
def test_an_answer_to_something_else_is_refused(change: dict[str, Any]):
    assert vetted(GOOD) == GOOD
    assert vetted(msgspec.structs.replace(GOOD, **change)) is None


def test_a_certificate_counts_only_where_it_was_asked_for():
    claimed = msgspec.structs.replace(GOOD, trust="certified", certified=1.0)
    assert vetted(claimed) is None and vetted(claimed, msgspec.structs.replace(JOB, certify=True)) == claimed


def test_costs_that_a_worker_claims_are_dropped():
    spent = Usage(calls=10**15, dollars=1e300)
    seen = vetted(msgspec.structs.replace(GOOD, usage=spent, asked=(RoleUsage("judge", "m", 1, spent),)))
    assert seen is not None and seen.usage == Usage() and seen.asked == ()


@given(st.binary(max_size=60) | st.recursive(st.none() | st.floats() | st.text(max_size=4), st.lists).map(
    lambda value: messages.dump_struct({"observation": value})
))  # fmt: skip
def test_any_bytes_are_an_answer_or_none(raw: bytes):
    assert vet_answer(raw, JOB, "e", Scoring("verified")) is None


@pytest.mark.parametrize(
    "reply",
    [b"", b"[", b"{}", b'{"level": "holy"}', b'{"level": "limits"}', b'{"level": "namespaces", "lost": "x"}',
     b'{"level": "namespaces", "scoring": {"trust": "holy"}}', b'{"level": "namespaces", "error": {}}'],
)  # fmt: skip
def test_a_greeting_is_known_words_and_the_level_required(reply: bytes):
    terms = NodeTerms(require="restricted")
    assert vet_greeting(messages.dump_struct(NodeReply(level="namespaces")), terms) == NodeReply(level="namespaces")
    assert vet_greeting(reply, terms) is None


def test_the_log_names_who_came_to_another_result():
    votes = [vote("a", 1.0), vote("liar", 9.0), vote("b", 1.0)]
    named = name_voters(votes, votes[0], Auditor(EXACT))
    assert "liar came to other results" in named.artifacts[EVALUATOR_LOG]
    assert name_voters(votes[:1], votes[0], Auditor(EXACT)) == votes[0].observation
