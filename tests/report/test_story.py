"""The story of a run: planted steps are found with their gains.

Where nothing was found, nothing is reported.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.task import MetricGoal, Objective, Task, Way
from culmen.core.usage import Budget, Usage
from culmen.extensions.web.factors.levels import run_factors
from culmen.report.edits import describe_edit, describe_python_edit
from culmen.report.story import (
    FEWEST,
    MOST,
    TINY,
    Story,
    choose_steps,
    first_sentence,
    gain_text,
    keep_way,
    run_story,
    step_facts,
    way_line,
)
from culmen.store import sidecar, views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal

SEED = Candidate.of({"main.py": "def f():\n    return 0\n"})


class Planted:
    """A run written by hand, with costs.

    Each candidate costs a call of half a dollar and a second, each evaluation a second.
    """

    def __init__(
        self,
        folder: Path,
        direction: Way = "max",
        exact: bool = True,
        target: float | None = None,
        metrics: tuple[MetricGoal, ...] = (),
    ) -> None:
        task = Task(
            "planted",
            "climb",
            seeds=(SEED.parts,),
            objective=Objective(direction, target=target, metrics=metrics),
            deterministic=exact or None,
        )
        meta = RunMeta(
            "planted",
            task,
            {"path": "x:Y", "config": {}},
            budget=Budget(evaluations=500),
            created=1.0,
        )
        self.path, self.sign, self.now, self.key = (
            folder / "planted",
            1 if direction == "max" else -1,
            0.0,
            0,
        )
        self.journal = SqlJournal.create(self.path, meta)
        self.append(
            Entry(
                "note", effect="seeds", body={"note": "seeds"}, result=Proposal(candidates=(SEED,))
            )
        )

    def append(self, entry: Entry) -> None:
        self.journal.append([entry])

    def made(
        self, value: int, *parents: Candidate, operator: str = "rewrite", note: str = ""
    ) -> Candidate:
        candidate = Candidate.of(
            {"main.py": f"def f():\n    return {value}\n"},
            tuple(each.id for each in parents),
            Origin(operator, "small", note=note),
        )
        self.key, self.now = self.key + 1, self.now + 1.0
        proposal = Proposal((candidate,), "", model="small", usage=Usage(calls=1, dollars=0.5))
        self.append(
            Entry("done", self.key, "m", "propose", {"role": "proposer"}, proposal, self.now)
        )
        return candidate

    def scored(
        self,
        candidate: Candidate,
        reward: float | None,
        feedback: str = "",
        metrics: dict[str, float] | None = None,
        phase: str = "",
    ) -> Candidate:
        self.key, self.now = self.key + 1, self.now + 1.0
        body = {"phase": phase} if phase else {}
        status = Status.ERROR if reward is None else Status.OK
        score = None if reward is None else self.sign * reward
        reason = "" if score is not None else "exception"
        seen = Observation(
            candidate.id, status, score, metrics=metrics or {}, reason=reason, feedback=feedback
        )
        self.append(
            Entry("done", self.key, "m", "evaluate", body=body, result=seen, elapsed=self.now)
        )
        return candidate

    def tried(
        self, value: int, reward: float | None, *parents: Candidate, **origin: str
    ) -> Candidate:
        return self.scored(
            self.made(value, *parents, **origin), reward, "NameError: name 'np' is not defined"
        )

    def story(self) -> Story:
        return run_story(self.path)


def climbed(run: Planted) -> tuple[Candidate, ...]:
    """Gains of 0.1, 0.005 (tiny), 0.3 and 0.1 over the initial program, with others beside them."""
    run.scored(SEED, 0.2)
    one = run.tried(1, 0.3, SEED, note="Hypothesis: a wider ring. It should help.")
    low = run.tried(2, 0.05, SEED, note="shrink")
    tiny = run.tried(3, 0.305, one)
    run.tried(4, None, tiny)
    run.tried(5, 0.25, tiny, operator="mutate")
    big = run.tried(6, 0.605, low, tiny, operator="merge")  # the first parent is the worse one
    run.tried(7, 0.5, big, operator="mutate")
    return one, tiny, big, run.tried(8, 0.705, big)


@pytest.mark.parametrize("exact", [True, False])
def test_a_kept_way_tells_the_same_story_until_the_journal_goes_on(
    tmp_path: Path, exact: bool
) -> None:
    run = Planted(tmp_path, exact=exact)
    *_, last = climbed(run)
    computed = run.story()
    keep_way(run.path)
    assert (run.path / sidecar.KEPT).is_dir() and run.story() == computed
    further = run.tried(9, 0.9, last)
    assert run.story().end == further.id


@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_planted_steps_are_found_in_order_with_their_shares(
    tmp_path: Path, direction: Way
) -> None:
    run = Planted(tmp_path, direction)
    one, _, big, last = climbed(run)
    story = run.story()
    assert [step.id for step in story.steps] == [one.id, big.id, last.id] and not story.why
    assert [step.base for step in story.steps] == [SEED.id, one.id, big.id]
    assert [step.merged for step in story.steps] == [0, 1, 0]
    assert [run.sign * step.gain for step in story.steps] == pytest.approx([0.1, 0.305, 0.1])
    assert [step.share for step in story.steps] == pytest.approx(
        [0.1 / 0.505, 0.305 / 0.505, 0.1 / 0.505]
    )
    assert [step.gain_margin for step in story.steps] == [0, 0, 0]
    assert [run.sign * step.score for step in story.steps] == pytest.approx([0.3, 0.605, 0.705])
    assert run.sign * (story.gain or 0) == pytest.approx(0.505) and story.direction == direction
    assert gain_text(story.steps[0]) == ("+0.1" if direction == "max" else "-0.1")


def test_a_step_costs_what_was_spent_since_the_one_before(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    climbed(run)
    story = run.story()
    assert [step.at_evaluations for step in story.steps] == [2, 7, 9]
    assert [step.evaluations for step in story.steps] == [1, 5, 2]
    assert [step.dollars for step in story.steps] == pytest.approx([0.5, 2.5, 1.0])
    assert [step.seconds for step in story.steps] == pytest.approx([2.0, 10.0, 4.0])
    assert step_facts(story, story.steps[1])[-1] == "after 5 evaluations, $2.50, 10 s"


def test_shares_of_the_way_are_measured_to_the_target(tmp_path: Path) -> None:
    run = Planted(tmp_path, "min", target=-1.2)
    climbed(run)
    story = run.story()
    assert story.goal_name == "target" and [step.way for step in story.steps] == pytest.approx(
        [0.1, 0.305, 0.1]
    )
    assert "30 % of the way to the target" in step_facts(story, story.steps[1])
    assert way_line(story).startswith(f"3 steps from {SEED.id[:8]} at -0.2 to ")


def test_a_remark_comes_before_the_change(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    climbed(run)
    said = [(step.sentence, step.remark) for step in run.story().steps]
    assert said == [("a wider ring.", True), ("f(): 3 → 6", False), ("f(): 6 → 8", False)]


def test_what_was_tried_in_vain_is_grouped_with_its_best(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    climbed(run)
    groups = {group.name: group for group in run.story().vain}
    assert list(groups) == ["mutate, small", "rewrite, small", "failed"]
    mutated = groups["mutate, small"]
    assert (mutated.count, mutated.best) == (2, 0.5) and mutated.behind == pytest.approx(0.205)
    assert groups["rewrite, small"].sentence == "shrink" and groups["rewrite, small"].count == 1
    assert groups["failed"].count == 1 and "name 'np' is not defined" in groups["failed"].sentence


def test_many_kinds_of_trials_become_few_groups(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    climbed(run)
    for number in range(10):
        run.tried(100 + number, 0.1, SEED, operator=f"kind {number}")
    vain = run.story().vain
    assert len(vain) == 6 and vain[-2].name.endswith("other ways") and vain[-1].name == "failed"
    assert sum(group.count for group in vain) == 10 + 4


def test_repeated_ideas_are_what_groups_are_made_by(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, 0.2)
    for number in range(8):
        run.tried(10 + number, 0.1, SEED, note="widen" if number % 2 else "shrink")
    assert {group.name: group.count for group in run.story().vain} == {"widen": 4, "shrink": 4}


def test_members_of_the_front_were_not_tried_in_vain(tmp_path: Path) -> None:
    goals = MetricGoal("quality", "max"), MetricGoal("seconds", "min")
    run = Planted(tmp_path, metrics=goals)
    run.scored(SEED, 0.2, metrics={"quality": 0.2, "seconds": 9.0})
    quick, poor, best = run.made(1, SEED), run.made(2, SEED), run.made(3, SEED)
    run.scored(quick, 0.1, metrics={"quality": 0.1, "seconds": 1.0})
    run.scored(poor, 0.05, metrics={"quality": 0.1, "seconds": 9.5})
    run.scored(best, 0.7, metrics={"quality": 0.9, "seconds": 8.0})
    story = run.story()
    assert [step.id for step in story.steps] == [best.id] and "the default choice" in " ".join(
        story.notes
    )
    assert [(group.count, group.id) for group in story.vain] == [(1, poor.id)]


@pytest.mark.parametrize("direction", ["max", "min"])
def test_nothing_found_is_said(tmp_path: Path, direction: Way) -> None:
    run = Planted(tmp_path, direction)
    run.scored(SEED, 0.2)
    run.tried(1, 0.1, SEED)
    story = run.story()
    assert (str(story.gain), story.gain_margin) == ("0.0", 0.0)  # no -0.0
    assert story.steps == () and story.why == "nothing better than the initial program was found"
    assert [group.count for group in story.vain] == [1]


def test_no_score_at_all_is_said(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, None, "NameError: name 'np' is not defined")
    run.tried(1, None, SEED)
    story = run.story()
    assert (
        story.steps == ()
        and "nothing has scored" in story.why
        and story.result.startswith("Nothing has scored yet: ")
    )
    assert [(group.name, group.count) for group in story.vain] == [("failed", 2)]


def test_a_best_without_a_scored_ancestor_has_no_steps(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, None)
    run.tried(1, 0.5)
    assert "no ancestor that scored" in run.story().why


def test_an_ancestor_that_failed_is_passed_over(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, 0.2)
    failed = run.tried(1, None, SEED)
    best = run.tried(2, 0.7, failed)
    (step,) = run.story().steps
    assert (step.base, step.id, step.share) == (SEED.id, best.id, 1.0)


def test_parents_in_a_circle_end_the_way(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, 0.2)
    two = Candidate.of({"main.py": "def f():\n    return 2\n"}, (), Origin("rewrite"))
    one = run.tried(1, 0.3, two)
    run.tried(2, 0.5, one)
    assert [each.id for each in views.ascent_to(run.path, two.id)] == [one.id, two.id]


def test_noise_gives_margins_and_a_small_step_is_named_uncertain(tmp_path: Path) -> None:
    run, chance = Planted(tmp_path, exact=False), Random(3)
    one, two = run.made(1, SEED), None
    two = run.made(2, one)
    for _ in range(40):
        for candidate, reward in ((SEED, 0.2), (one, 0.22), (two, 0.8)):
            run.scored(candidate, reward + chance.gauss(0.0, 0.1))
    story = run.story()
    big = story.steps[-1]
    assert abs(big.gain - 0.58) < (big.gain_margin or 0.0) < 0.1 and not big.is_within_noise
    small = [step for step in story.steps if step.id == one.id]
    assert all("within noise on its own" in step_facts(story, step) for step in small)
    assert sum(step.gain for step in story.steps) == pytest.approx(story.gain)


def lucky(run: Planted, truth: float) -> tuple[Candidate, Candidate]:
    """A noisy search whose luck flatters its best by a half, and fresh scores near the truth."""
    chance = Random(5)
    one = run.made(1, SEED)
    two = run.made(2, one, operator="mutate")
    for _ in range(6):
        run.scored(SEED, chance.gauss(0.0, 0.2))
    for candidate, level in ((one, 0.5 * truth), (two, truth + 0.5)):
        for _ in range(6):
            run.scored(candidate, level + chance.gauss(0.0, 0.2))
    for candidate, level in ((SEED, 0.0), (two, truth)):
        for _ in range(12):
            run.scored(candidate, level + chance.gauss(0.0, 0.2), phase="final")
    return one, two


@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_story_divides_the_gain_that_the_headline_has(tmp_path: Path, direction: Way) -> None:
    run = Planted(tmp_path, direction, exact=False)
    lucky(run, 1.0)
    best, story = views.best_result(run.path), run.story()
    assert best is not None and best.confirmed and best.initial is not None
    assert story.gain == pytest.approx(best.gain)
    assert story.gain_margin == best.gain_margin and not story.is_own
    assert (story.start_score, story.end_score) == (best.initial.score, best.score)
    assert sum(step.gain for step in story.steps) == pytest.approx(story.gain)
    assert story.steps[-1].score == pytest.approx(best.score)
    assert sum(step.share for step in story.steps) == pytest.approx(1.0)


def test_no_step_made_a_gain_within_noise(tmp_path: Path) -> None:
    run = Planted(tmp_path, exact=False)
    lucky(run, 0.18)
    for number in range(12):
        run.tried(10 + number, -0.4, SEED, operator=("mutate", "rewrite")[number % 2])
    best, story = views.best_result(run.path), run.story()
    assert best is not None and not best.kept_initial and abs(best.gain or 0) <= best.gain_margin
    assert story.steps == () and "within noise" in story.why
    factors = run_factors(run.path, lambda _: Usage())
    assert factors and not any(level.share for each in factors for level in each.levels)


def test_a_way_from_a_carried_candidate_has_a_gain_of_its_own(tmp_path: Path) -> None:
    run, chance = Planted(tmp_path, exact=False), Random(5)
    carried = run.made(1, operator="carried")
    child = run.made(2, carried)
    for _ in range(3):
        for candidate, level in ((SEED, 0.0), (carried, 2.0), (child, 2.3)):
            run.scored(candidate, level + chance.gauss(0.0, 0.2))
    best, story = views.best_result(run.path), run.story()
    assert best is not None and best.id == child.id and story.is_own
    assert story.steps == () and story.why.startswith("the gain over the carried candidate is")


def test_a_step_tells_its_island(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, 0.2)
    origin = Origin("rewrite", "small", island=2)
    child = Candidate.of({"main.py": "def f():\n    return 3\n"}, (SEED.id,), origin)
    run.append(Entry("done", 90, "m", "propose", {}, Proposal((child,)), 5.0))
    run.scored(child, 0.5)
    (step,) = run.story().steps
    assert "rewrite, small, island 2" in step_facts(run.story(), step)


def test_no_kind_of_change_made_less_than_nothing_or_more_than_all(tmp_path: Path) -> None:
    run = Planted(tmp_path)
    run.scored(SEED, 0.2)
    up = run.tried(1, 0.5, SEED, operator="up")
    down = run.tried(2, 0.3, up, operator="down")  # lost on the way to the best
    run.tried(3, 0.8, down, operator="far")
    for number in range(12):
        run.tried(10 + number, 0.1, SEED, operator=("up", "down", "far")[number % 3])
    shares = [
        level.share for each in run_factors(run.path, lambda _: Usage()) for level in each.levels
    ]
    assert sorted(shares) == pytest.approx([0.0, 0.5, 0.5])


@pytest.mark.parametrize("direction", ["max", "min"])
def test_steps_have_the_sign_of_the_score_in_the_lineage_and_the_story(
    tmp_path: Path, direction: Way
) -> None:
    run = Planted(tmp_path, direction)
    *_, last = climbed(run)
    line = views.lineage_steps(run.path, last.id)
    assert [step.gain is not None and run.sign * step.gain > 0 for step in line[1:]] == [
        step.row.mean > before.row.mean if direction == "max" else step.row.mean < before.row.mean
        for before, step in pairwise(line)
    ]
    assert all(run.sign * step.gain > 0 for step in run.story().steps)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 0.5) | st.none()), min_size=1, max_size=40)
)
def test_every_link_belongs_to_one_step_and_every_step_gains(
    links: list[tuple[float, float | None]],
) -> None:
    gains, margins = [gain for gain, _ in links], [margin for _, margin in links]
    steps, total = choose_steps(gains, margins), sum(gains)
    if total <= 0:
        assert steps == []
        return
    begin = 0
    for main, end in steps:
        assert begin <= main <= end
        assert len(steps) == 1 or sum(gains[begin : end + 1]) >= TINY * total
        begin = end + 1
    assert begin == len(gains) and 1 <= len(steps) <= MOST


def test_clear_links_are_steps_of_their_own_and_noise_fills_up_to_the_fewest() -> None:
    assert choose_steps([1.0] * 5, [0.1] * 5) == [(n, n) for n in range(5)]
    assert len(choose_steps([1.0] * 12, [0.1] * 12)) == MOST
    assert len(choose_steps([1.0] * 12, [9.0] * 12)) == FEWEST
    assert choose_steps([0.5, -0.4, 1.0], [0.0, 0.0, 0.0]) == [(0, 0), (2, 2)]
    assert choose_steps([-0.5, 1.0, 0.001], [None, None, None]) == [(1, 2)]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("N = 5\n", "N = 7\n", "N 5 → 7"),
        ("def f(a):\n    return g(a, k=1)\n", "def f(a):\n    return g(a, k=2)\n", "f(): k 1 → 2"),
        (
            "def f(a):\n    return min(a)\n",
            "def f(a):\n    return max(a)\n",
            "f(): return min(a) → return max(a)",
        ),
        (
            "def f(a):\n    return a\n",
            "def f(a):\n    for b in range(3):\n        a = sorted(a)\n    return a\n",
            "f(): adds a loop, calls range, sorted (2 lines)",
        ),
        (
            "def f():\n    return 1\n",
            "def f():\n    return 1\n\ndef g():\n    return 2\n",
            "adds g()",
        ),
        ("x = 1\n", "# why\nx = 1\n", "only comments, docstrings or the layout changed"),
        (
            "class A:\n    def f(self):\n        return 1\n",
            "class A:\n    def f(self):\n        return 2\n",
            "A.f(): 1 → 2",
        ),
        ("def f(:\n", "def f():\n    pass\n", ""),
    ],
)
def test_changes_of_python_are_described_by_its_syntax(
    before: str, after: str, sentence: str
) -> None:
    assert describe_python_edit(before, after) == sentence


def test_other_texts_are_described_by_lines() -> None:
    assert (
        describe_edit({"prompt.md": "a\nb\n"}, {"prompt.md": "a\nc\nd\n"})
        == "2 lines changed in prompt.md"
    )
    assert (
        describe_edit({"main.py": "def f(:\n"}, {"main.py": "def g(:\n"})
        == "main.py: def f(: → def g(:"
    )
    assert describe_edit({"a": "1"}, {"a": "1", "b": "2\n"}) == "adds b (1 line)"
    assert describe_edit({"a": "1"}, {"a": "1"}) == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("**Hypothesis:** Use `sorted` first. Then more.", "Use sorted first."),
        (
            "Sure! Here is the program:\n\nA finer step near the corners.\n```python\nx\n```",
            "A finer step near the corners.",
        ),
        ("Here is the improved program:\n```python\nx = 1\n```", ""),
        ("", ""),
        ("w" * 300, "w" * 139 + "…"),
    ],
)
def test_the_first_sentence_that_says_something(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("one\ntwo\n", "two\none\n", "rules.txt: its lines in another order"),
        ("one\n", "one", "rules.txt: only the ends of lines changed"),
    ],
)
def test_no_change_is_one_of_no_lines(before: str, after: str, sentence: str) -> None:
    assert describe_edit({"rules.txt": before}, {"rules.txt": after}, "text") == sentence
    swapped = "def f():\n    a()\n    b()\n", "def f():\n    b()\n    a()\n"
    assert describe_python_edit(*swapped) == "f(): its lines in another order"
