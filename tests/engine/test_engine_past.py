"""Additions of the engine to the briefs of every strategy.

Earlier attempts, counts and intervals, metrics.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.brief import (
    LONG,
    UNREAD,
    Attempt,
    Brief,
    Exhibit,
    Measured,
    Proposal,
    resolve_format,
)
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine import record
from culmen.engine.record import SHOWN, PromptHistory, describe_change, describe_failure
from culmen.evidence.account import Account, fact_of
from culmen.strategies import catalog
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import simulate
from tests.strategies.helpers import Witness

PARENT = Candidate.of({"p": "a = 1\nb = 2\n"})


def t(degrees: float) -> float:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    return float(stats.t.ppf(0.975, degrees))


class Known:
    """A past that receives results as the search gives them."""

    def __init__(self, deterministic: bool = False, cases: tuple[Case, ...] = ()) -> None:
        self.task = Task("t", deterministic=deterministic, cases=cases)
        self.account = Account(self.task)
        self.past = PromptHistory(self.task, self.account)

    def score(self, candidate: Candidate, *scores: float, **more: Any) -> None:
        for score in scores:
            self.see(candidate, Observation(candidate.id, Status.OK, score, **more))

    def see(self, candidate: Candidate, observation: Observation) -> None:
        self.account.observe(fact_of(self.task, candidate, observation, ""))
        self.past.add_observation(candidate, observation)

    def child(self, text: str, note: str = "", hypothesis: str = "") -> Candidate:
        child = Candidate.of({"p": text}, (PARENT.id,), Origin("diff", note=note))
        self.past.add_answer(Brief(PARENT), Proposal((child,), hypothesis))
        return child

    def attempts(self) -> tuple[Attempt, ...]:
        return self.past.complete_brief(Brief(PARENT)).attempts

    def margin(self) -> float | None:
        return self.past.complete_brief(Brief(PARENT)).measured.margin


def test_why_a_reply_could_not_be_read_is_told_in_the_next_request_of_its_role() -> None:
    known = Known()
    detail = "unclosed: a fenced block is not closed: ```p"
    known.past.add_answer(Brief(PARENT), Proposal(fault="unclosed", detail=detail))
    told = Attempt(detail, fault=UNREAD)
    other = Candidate.of({"p": "c = 3\n"})
    for brief in (Brief(PARENT), Brief(other), Brief()):
        assert known.past.complete_brief(brief).attempts == (told,)
    assert known.past.complete_brief(Brief(PARENT, role="implementer")).attempts == ()
    known.past.add_answer(Brief(PARENT), Proposal((other,)))
    assert told not in known.attempts() and len(known.attempts()) == 1


def test_attempts_on_a_parent_are_told_with_what_came_of_them() -> None:
    known = Known()
    known.score(known.child("a = 3\nb = 2\n", hypothesis="Larger\na."), 0.5, 0.7)
    failed = known.child("a = 1\nc = 2\nwhile True: 0\n")
    known.see(
        failed,
        Observation(failed.id, Status.ERROR, reason="exception", feedback="Trace\nNameError: b"),
    )
    known.child("a = 9\nb = 2\n", note="Nine.")
    first, second, third = known.attempts()
    assert (first.change, first.reward, first.measured.count) == (
        "Larger a.",
        pytest.approx(0.6),
        2,
    )
    assert second.change == "2 lines in, 1 out: c = 2; while True: 0" and second.reward is None
    assert second.fault == "error (exception) NameError: b" and second.measured.failures == 1
    assert third == Attempt("Nine.")  # not evaluated yet


def test_a_reply_without_a_candidate_is_an_attempt_if_the_change_was_to_blame() -> None:
    known = Known()
    for fault in ("diff_mismatch", "unchanged", "refused", "empty"):
        known.past.add_answer(Brief(PARENT), Proposal((), "Swap rows.", fault))
    assert [each.change for each in known.attempts()] == [
        "Swap rows. (the edits did not fit the text)",
        "Swap rows. (nothing was changed)",
    ]


def test_attempts_are_few_the_newest_and_each_once() -> None:
    known = Known()
    for n in range(3 * SHOWN):
        known.child(f"a = {n + 2}\nb = 2\n", hypothesis="x" * 1000)
    known.child("a = 19\nb = 2\n", hypothesis="again")
    told = known.attempts()
    assert (
        len(told) == SHOWN == 6
        and told[-1].change == "again"
        and all(len(each.change) <= 240 for each in told)
    )
    assert known.past.complete_brief(Brief(Candidate.of({"p": "other"}))).attempts == ()


def test_means_have_counts_and_intervals_pooled_over_candidates() -> None:
    known, other = Known(), Candidate.of({"p": "other"})
    known.score(PARENT, 0.5)
    assert (
        known.past.complete_brief(Brief(PARENT)).measured.margin is None
    )  # nothing was evaluated twice yet
    known.score(other, 0.4, 0.6, metrics={"width": 3.0, "bad": float("nan")})
    brief = known.past.complete_brief(
        Brief(PARENT, reward=9.0, inspirations=(Exhibit(other, 9.0),))
    )
    assert brief.reward == 0.5 and brief.measured.count == 1
    spread = (0.02) ** 0.5
    assert brief.measured.margin == pytest.approx(t(1) * spread)
    (exhibit,) = brief.inspirations
    assert exhibit.reward == pytest.approx(0.5) and exhibit.metrics == {"width": 3.0}
    assert exhibit.measured.margin == pytest.approx(t(1) * spread / 2**0.5)


def test_exact_scores_have_no_interval() -> None:
    known = Known(deterministic=True)
    known.score(PARENT, 0.5)
    assert known.past.complete_brief(Brief(PARENT)).measured.margin == 0.0


def test_exact_scores_on_some_of_the_cases_have_an_interval_until_all_were_seen() -> None:
    known, other = (
        Known(deterministic=True, cases=(Case("a"), Case("b"))),
        Candidate.of({"p": "other"}),
    )
    known.score(other, 0.4, 0.6)
    known.score(PARENT, 0.5)
    assert known.margin() == pytest.approx(t(1) * 0.02**0.5)
    known.score(PARENT, 0.7)
    assert known.margin() == 0.0


def test_intervals_are_those_of_students_t() -> None:
    """Each further candidate adds one degree of freedom and squares of 2.

    Its two evaluations differ by 2.
    """
    known = Known()
    known.score(PARENT, 2.0, 2.0)
    for degrees in range(2, 200):
        known.score(Candidate.of({"p": str(degrees)}), 1.0, 3.0)
        assert known.margin() == pytest.approx(t(degrees) * ((degrees - 1) / degrees) ** 0.5)


def test_a_strategy_that_says_how_well_it_knows_a_number_keeps_both() -> None:
    known, mine = Known(), Measured(5, 1, 0.25)
    known.score(PARENT, 0.5, 0.7)
    brief = known.past.complete_brief(
        Brief(PARENT, reward=0.3, measured=mine, inspirations=(Exhibit(PARENT, 0.2, "", mine),))
    )
    assert (brief.reward, brief.measured) == (0.3, mine)
    assert (brief.inspirations[0].reward, brief.inspirations[0].measured) == (0.2, mine)
    unsaid = known.past.complete_brief(Brief(PARENT, reward=0.3, measured=Measured(0, 0, None)))
    assert unsaid.reward == pytest.approx(0.6) and unsaid.measured.count == 2


def test_reasons_are_one_line_of_160_characters_at_most_and_metrics_twelve_of_the_finite_ones() -> (
    None
):
    words = "exception " * 13
    for length, ends in ((160, "x"), (161, "…"), (500, "…")):
        feedback = words + "x" * (length - len("error " + words))
        said = describe_failure(
            Observation(PARENT.id, Status.ERROR, feedback=f"first\n{feedback}\n\n")
        )
        assert len(said) == 160 and said.startswith("error exception") and said.endswith(ends)
    cut = describe_failure(
        Observation(PARENT.id, Status.ERROR, feedback="y" * 152 + " " + "z" * 20)
    )
    assert cut == "error " + "y" * 152 + "…"  # not a blank before the dots
    known = Known()
    known.score(
        PARENT, 0.5, metrics={"bad": float("inf"), **{f"m{n}": float(n) for n in range(14)}}
    )
    (exhibit,) = known.past.complete_brief(Brief(inspirations=(Exhibit(PARENT),))).inspirations
    assert list(exhibit.metrics) == [f"m{n}" for n in range(12)]


def test_what_was_not_touched_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_KEPT", 2)
    known, others = Known(), [Candidate.of({"p": str(n)}) for n in range(3)]
    for candidate in (others[0], others[1], others[0], others[2]):
        known.score(candidate, 0.5, metrics={"width": 1.0})
    exhibits = known.past.complete_brief(
        Brief(inspirations=tuple(map(Exhibit, others)))
    ).inspirations
    assert [bool(exhibit.metrics) for exhibit in exhibits] == [True, False, True]


STRATEGIES = ["polca", "openevolve", "puct", "gepa", "map_elites", "best_of_n", "pacevolve"]


def briefs_of(name: str, error: float, seed: int = 3) -> list[Brief]:
    witness = Witness(Landscape(sigma=0.1, faults=Faults(error=error)))
    simulate(catalog.make_strategy(name), task(), witness, Budget(evaluations=200), seed=seed)
    assert all(brief.measured.count for brief in witness.briefs if brief.reward is not None)
    return witness.briefs


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_tells_what_was_tried(name: str) -> None:
    briefs = [brief for seed in (3, 4, 5) for brief in briefs_of(name, 0.2, seed)]
    told = [attempt for brief in briefs for attempt in brief.attempts]
    assert any(attempt.reward is not None for attempt in told) and any(
        "error" in attempt.fault for attempt in told
    )
    assert any(brief.measured.margin for brief in briefs)  # the engine looks again at what failed


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_failures_intervals_are_known_under_every_strategy(name: str) -> None:
    """The engine repeats the leader until the noise is known, even if a strategy never does."""
    assert any(brief.measured.margin for brief in briefs_of(name, 0.0))


def test_long_parents_are_edited_and_short_ones_rewritten() -> None:
    long = Candidate.of({"p": "x" * (LONG + 1), "q": "y"})
    for form, short_form, long_form in (
        ("auto", "rewrite", "diff"),
        ("verbalized_auto", "verbalized", "verbalized_diff"),
    ):
        assert (
            resolve_format(form, PARENT)
            == resolve_format(form, None)
            == resolve_format(form, long, ("p",))
            == short_form
        )
        assert resolve_format(form, long) == long_form
    assert resolve_format("rewrite", long) == "rewrite"


def test_briefs_of_earlier_journals_are_still_read() -> None:
    old = msgspec.json.encode(
        {"parent": None, "k": 2, "format": "rewrite", "inspirations": [{"candidate": PARENT}]}
    )
    brief = msgspec.json.decode(old, type=Brief)
    assert brief.attempts == () and brief.inspirations[0].metrics == {} and brief.k == 2


LINES = st.lists(st.sampled_from(["a", " b", "", "c "]), max_size=7)


@given(LINES, LINES)
def test_what_changed_is_told_by_the_lines_that_came_and_went_wherever_they_stand(old, new):
    """Old journals were written with these words: a replay must find the same."""
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    first = [line.strip() for line in new if line in come and line.strip()][:3]
    first = first or [line.strip() for line in old if line in gone and line.strip()][:3]
    parent, child = (
        Candidate.of({"x": "\n".join(lines) + "\n" if lines else ""}) for lines in (old, new)
    )
    told = describe_change(parent, child, Proposal((child,)))
    assert told == " ".join(
        f"{come.total()} lines in, {gone.total()} out: {'; '.join(first)}".split()
    )


def test_one_failure_beside_scores_is_no_reason_to_call_an_attempt_failed() -> None:
    known = Known()
    child = known.child("a = 3\nb = 2\n")
    known.score(child, 0.5)
    failure = Observation(child.id, Status.ERROR, reason="exception", feedback="NameError: b")
    known.see(child, failure)
    assert known.attempts()[0].fault == ""
    known.see(child, failure)
    assert known.attempts()[0].fault == "error (exception) NameError: b"


def test_a_change_that_comes_again_is_one_attempt() -> None:
    known = Known()
    for text in ("a = 3\n", "a = 4\n", "a = 3\n"):
        known.child(text, note=text.strip())
    assert [each.change for each in known.attempts()] == ["a = 4", "a = 3"]
