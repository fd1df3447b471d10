"""Every analysis against values worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.ports import Lab
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.evidence.evidence import Evidence
from culmen.extensions.bench.analyses import (
    best_so_far,
    coverage_table,
    distance_by_k,
    quantile_bins,
    quartile_columns,
    rank_correlation,
    rank_groups,
    rank_profile,
    top_m,
    width_by_island,
    width_table,
)
from culmen.extensions.bench.analyze import analyze_runs
from culmen.extensions.bench.records import Moment, RunRecord, read_run
from culmen.store.database import RunMeta
from culmen.store.evidence import FollowedLeader
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.testing import landscape
from culmen.testing.virtual import simulate
from tests.extensions.bench.worlds import Asking, Noting, Told, note, run


def noted(folder: Path, notes: list[dict[str, Any]], name: str = "run") -> RunRecord:
    """A record of these notes, all behind the first evaluation."""
    return read_run(run(folder, Noting((0.0,), (tuple(notes),)), name=name))


def column(table: Any, name: str, **where: Any) -> list[Any]:
    """One column of the rows that have these values."""
    return [
        row[name] for row in table.rows if all(row[key] == value for key, value in where.items())
    ]


def test_best_so_far_counts_failures_and_keeps_to_the_direction(tmp_path: Path):
    up = read_run(run(tmp_path, Noting((1.0, None, 3.0, 2.0)), name="up"))
    assert up.evaluations == 6  # four of the search, two of the final choice
    table = best_so_far([up], "evaluations", steps=6)
    assert column(table, "evaluations") == [1, 2, 3, 4, 5, 6]
    assert column(table, "score") == [1.0, 1.0, 3.0, 3.0, 3.0, 3.0]
    down = read_run(run(tmp_path, Noting((3.0, None, 1.0, 2.0)), name="down", direction="min"))
    assert column(best_so_far([down], "evaluations", steps=6), "score") == [
        3.0,
        3.0,
        1.0,
        1.0,
        1.0,
        1.0,
    ]


def test_a_best_so_far_that_falls_says_why(tmp_path: Path):
    @dataclass
    class Run:
        direction: str
        moments: list[Moment]
        unpriced: int = 0

    def table(direction: str, *best: float) -> Any:
        moments = [Moment(n + 1, 0.0, 0.0, score) for n, score in enumerate(best)]
        return best_so_far([Run(direction, moments)], "evaluations")

    assert "measured again and scored less" in table("max", 0.5, 0.7, 0.6).notes[0]
    assert "measured again and scored more" in table("min", 0.7, 0.5, 0.6).notes[0]
    assert table("max", 0.5, 0.6, 0.7).notes == table("min", 0.7, 0.6, 0.5).notes == ()


def test_best_so_far_over_runs_is_a_median_with_quartiles(tmp_path: Path):
    runs = [read_run(run(tmp_path, Noting((float(n), 10.0 * n)), name=str(n))) for n in (1, 2, 3)]
    rows = best_so_far(runs, "evaluations", steps=3).rows
    first, last = rows[0], rows[-1]
    assert (first["score_q1"], first["score"], first["score_q3"]) == (1.5, 2.0, 2.5)
    assert (last["score_q1"], last["score"], last["score_q3"], last["runs"]) == (
        15.0,
        20.0,
        25.0,
        3,
    )


def test_best_so_far_against_seconds_and_dollars(tmp_path: Path):
    record = read_run(run(tmp_path, Asking(2), Told([[5.0], [7.0]])))
    seconds = best_so_far(
        [record], "seconds", steps=7
    )  # initial 1, ask 2, child 3, ask 4, child 5, choice 6, 7
    assert column(seconds, "seconds") == [1, 2, 3, 4, 5, 6, 7]
    assert column(seconds, "score") == [1.0, 1.0, 5.0, 5.0, 7.0, 7.0, 7.0]
    dollars = best_so_far([record], "dollars", steps=2)
    assert column(dollars, "dollars") == [1.0, 2.0]
    assert column(dollars, "score") == [5.0, 7.0]


@dataclass(frozen=True)
class Batches:
    """Evaluates the initial program, then asks `width` times side by side.

    All that comes is evaluated side by side.
    """

    width: int

    async def search(self, lab: Lab) -> None:
        await lab.evaluate(lab.seeds[0])
        answers = await lab.gather(
            *(lab.propose(Brief(lab.seeds[0], k=2)) for _ in range(self.width))
        )
        await lab.gather(
            *(lab.evaluate(child) for answer in answers for child in answer.candidates)
        )


def test_what_runs_side_by_side_is_one_step(tmp_path: Path):
    record = read_run(run(tmp_path, Batches(2), Told([[5.0, 6.0], [7.0, 4.0]]), workers=4))
    steps = [
        (m.evaluations, m.evaluation_steps, m.proposal_steps, m.proposals) for m in record.moments
    ]
    assert steps[0] == (1, 1, 0, 0)
    assert steps[1:5] == [
        (n, 2, 1, 4) for n in (2, 3, 4, 5)
    ]  # two requests at once, then four evaluations at once
    table = best_so_far([record], "evaluation_steps", steps=9)
    assert column(table, "score")[:2] == [1.0, 7.0]
    alone = read_run(
        run(tmp_path, Batches(2), Told([[5.0, 6.0], [7.0, 4.0]]), name="alone", workers=1)
    )
    assert [m.evaluation_steps for m in alone.moments[:5]] == [1, 2, 3, 4, 5]
    assert [m.proposal_steps for m in alone.moments[1:5]] == [
        1,
        1,
        1,
        1,
    ]  # requests do not wait for a worker
    none = read_run(run(tmp_path, Noting((1.0,)), name="none"))
    assert "no candidate" in best_so_far([none], "proposals").skipped


def test_dollars_are_not_told_where_they_are_unknown_or_nothing(tmp_path: Path):
    unpriced = read_run(run(tmp_path, Asking(2), Told([[5.0], [7.0]], unpriced=1), name="unpriced"))
    assert "price of 2 calls is unknown" in best_so_far([unpriced], "dollars").skipped
    free = read_run(run(tmp_path, Noting((1.0,)), name="free"))
    assert "nothing was paid" in best_so_far([free], "dollars").skipped


def test_nothing_scored_is_a_sentence(tmp_path: Path):
    record = read_run(run(tmp_path, Noting((None, None))))
    assert best_so_far([record], "evaluations").skipped == "nothing has scored yet"


def test_coverage_adds_cells_over_islands_and_weighs_their_quality(tmp_path: Path):
    grid = {"kind": "grid", "quality": 1.0}
    notes = (
        ({**grid, "island": 0, "cells": 1},),
        ({**grid, "island": 1, "cells": 3, "quality": 3.0},),
        ({**grid, "island": 0, "cells": 2, "quality": 8.0},),
    )
    record = read_run(run(tmp_path, Noting((0.0, 1.0, 2.0), notes)))
    table = coverage_table([record], snapshots=5)
    assert column(table, "evaluations") == [1, 2, 3, 4, 5]
    assert column(table, "cells") == [1, 4, 5, 5, 5]
    assert column(table, "quality") == [1.0, (1 + 9) / 4, (16 + 9) / 5, 5.0, 5.0]


def test_top_m_keeps_the_first_m_and_looks_at_the_widest_requests(tmp_path: Path):
    notes = [note([-1.0, 2.0, None]), note([None, None, 4.0]), note([9.0], k=1)]
    table = top_m([noted(tmp_path, notes)])
    assert column(table, "m", tier="all") == [1, 2, 3]
    assert column(table, "improve", tier="all") == [0.0, 0.5, 1.0]
    assert column(table, "best_gain", tier="all") == [-1.0, 2.0, 3.0]
    assert column(table, "scored", tier="all") == [0.5, 0.5, 1.0]
    assert "K = 3 candidates: 2 in 1 runs" in table.notes[0]
    assert column(top_m([noted(tmp_path, notes, "again")], k=1), "improve") == [1.0]


def test_top_m_by_tier_of_the_best_inspiration(tmp_path: Path):
    notes = [note([gain, gain], shown=(-5.0, float(gain))) for gain in (1, 2, 3, 4, 5)]
    table = top_m([noted(tmp_path, notes)])
    assert [column(table, "best_gain", tier=tier, m=1) for tier in (1, 2, 3, 4, 5)] == [
        [1],
        [2],
        [3],
        [4],
        [5],
    ]


def test_runs_weigh_alike_however_many_requests_they_made(tmp_path: Path):
    many = noted(tmp_path, [note([1.0, 1.0])] * 9, "many")
    few = noted(tmp_path, [note([-1.0, -1.0])], "few")
    (row,) = [row for row in top_m([many, few]).rows if row["m"] == 1]
    assert (row["improve_q1"], row["improve"], row["improve_q3"]) == (0.25, 0.5, 0.75)
    assert (row["requests"], row["runs"]) == (10, 2)


def test_rank_profile_and_its_groups(tmp_path: Path):
    notes = [
        note([7.0, 6.0, None, 4.0, -3.0, 2.0, None]),
        note([1.0, None, None, 2.0, 3.0, 4.0, None]),
    ]
    record = noted(tmp_path, notes)
    ranks = rank_profile([record])
    assert column(ranks, "rank") == ["1", "2", "3", "4", "5", "6", "7"]
    assert column(ranks, "valid") == [1.0, 0.5, 0.0, 1.0, 1.0, 1.0, 0.0]
    assert column(ranks, "gain") == [4.0, 6.0, None, 3.0, 0.0, 3.0, None]
    assert column(ranks, "distance") == [1, 2, None, 4, 5, 6, None]
    groups = rank_groups([record])
    assert column(groups, "group") == ["head 1-2", "mid 3-5", "tail 6-7"]
    assert column(groups, "valid") == [3 / 4, 4 / 6, 2 / 4]
    assert column(groups, "improve") == [3 / 4, 3 / 6, 2 / 4]
    assert column(groups, "gain") == [14 / 3, 6 / 4, 3.0]
    assert column(groups, "candidates") == [4, 6, 4]


def test_repeats_neither_count_as_valid_nor_as_failed(tmp_path: Path):
    asked = note([1.0, 2.0])
    asked["candidates"][1] = {"id": "1", "rank": 1, "status": "known"}
    table = rank_profile([noted(tmp_path, [asked])])
    assert column(table, "valid") == [1.0, None]
    assert column(table, "improve") == [1.0, 0.0]


def test_distance_by_k(tmp_path: Path):
    notes = [note([float(far) - 5], shown=(0.0,), far=float(far)) for far in range(1, 11)]
    notes += [
        note([1.0, 3.0, None], shown=(0.0,), far=1.0),
        note([-1.0, -2.0, None], shown=(0.0,), far=1.0),
    ]
    table = distance_by_k([noted(tmp_path, notes)])
    assert column(table, "best_gain", k=3, decile=1) == [1.5]
    assert column(table, "improve", k=3, decile=1) == [0.5]
    assert column(table, "requests", k=3) == [2]
    assert column(table, "best_gain", k=1, decile=1) == [
        0.0
    ]  # what is worse than the parent is no gain
    assert column(table, "best_gain", k=1, decile=10) == [5.0]
    assert sum(column(table, "requests")) == 12


def test_width_is_the_mean_over_islands(tmp_path: Path):
    one = note([0.0] * 5, island=0, next_k=7)
    two = note([0.0] * 5, island=1, next_k=5)
    three = note([0.0] * 7, island=0, turn=2, next_k=3)
    record = read_run(run(tmp_path, Noting((0.0, 1.0), ((one, two), (three,)))))
    assert column(width_table([record], steps=3), "k") == [6.0, 4.0, 4.0]
    rows = width_by_island([record]).rows
    assert [(row["island"], row["turn"], row["k"]) for row in rows] == [
        (0, 1, 5),
        (0, 2, 7),
        (1, 1, 5),
    ]


def test_replies_in_the_journal_serve_where_a_strategy_notes_nothing(tmp_path: Path):
    record = read_run(run(tmp_path, Asking(2), Told([[0.0, 4.0], [3.0, None]])))
    assert [ask.k for ask in record.asks] == [2, 2]
    assert [ask.parent for ask in record.asks] == [1.0, 1.0]
    assert column(top_m([record]), "best_gain", tier="all") == [0.5, 2.5]
    assert column(rank_profile([record]), "valid") == [1.0, 0.5]


def test_what_a_strategy_cannot_tell_is_skipped_with_a_sentence(tmp_path: Path):
    (group,) = analyze_runs([run(tmp_path, Asking(1), Told([[2.0]]))])
    skipped = {table.name: table.skipped for table in group.tables if table.skipped}
    assert set(skipped) == {
        "coverage",
        "top_m",
        "rank_profile",
        "rank_groups",
        "distance_by_k",
        "width",
    } | {"width_by_island"}
    assert "does not keep a grid" in skipped["coverage"]
    assert "asked for one candidate" in skipped["top_m"]
    assert all(not table.rows for table in group.tables if table.skipped)


def test_runs_are_grouped_by_settings_and_labelled_by_what_differs(tmp_path: Path):
    paths = [
        run(tmp_path, Noting((1.0,)), name=f"{n}", islands=islands)
        for n, islands in enumerate((5, 5, 3))
    ]
    groups = analyze_runs(paths, {"tests.extensions.bench.worlds:Noting": "noting"})
    assert [group.label for group in groups] == [
        "told noting (islands=5)",
        "told noting (islands=3)",
    ]
    assert groups[0].runs == ("0", "1")


def test_no_run_is_an_error(tmp_path: Path):
    with pytest.raises(UserError):
        analyze_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize("name", ["turboevolve", "openevolve", "polca"])
def test_real_strategies_can_be_analysed(tmp_path: Path, name: str):
    strategy, budget = catalog.make_strategy(name), Budget(evaluations=60)
    task = landscape.task(deterministic=True, seeds=(0.0, 0.1))
    meta = RunMeta(
        name,
        task,
        catalog.strategy_config(strategy),
        models={"default": "landscape"},
        budget=budget,
    )
    with SqlJournal.create(tmp_path / name, meta) as journal:
        simulate(strategy, task, landscape.Landscape(blur=0.3), budget, workers=2, journal=journal)
    record = read_run(tmp_path / name)
    (group,) = analyze_runs([tmp_path / name])
    told = {table.name for table in group.tables if table.rows}
    assert "best_by_evaluations" in told
    assert ("coverage" in told) == (name != "polca")
    assert ({"top_m", "rank_groups"} <= told) == (name == "turboevolve")
    assert ({"width", "distance_by_k"} <= told) == (name in ("turboevolve", "openevolve"))
    if name == "turboevolve":
        children = [
            (ask, child) for ask in record.asks for child in ask.children if child.status == "ok"
        ]
        assert children and all(
            child.cell is not None and ask.gain(child) is not None for ask, child in children
        )
        assert record.asks[0].k == 5 and all(state.quality is not None for state in record.filled)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(1, 10))
def test_bins_follow_the_order_and_keep_ties_together(values: list[float], count: int):
    found = quantile_bins(values, count)
    assert all(1 <= place <= count for place in found)
    pairs = sorted(zip(values, found))
    assert [place for _, place in pairs] == sorted(found)
    assert len(set(pairs)) == len(set(values))


def test_spread_and_rank_correlation():
    assert quartile_columns("x", [4.0, None, 1.0, 2.0, 3.0]) == {
        "x": 2.5,
        "x_q1": 1.75,
        "x_q3": 3.25,
    }
    assert quartile_columns("x", [None]) == {"x": None, "x_q1": None, "x_q3": None}
    assert quartile_columns("x", [7.0]) == {"x": 7.0, "x_q1": 7.0, "x_q3": 7.0}
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-3, 3)), max_size=25),
    st.sampled_from(["max", "min"]),
)
def test_the_leader_of_a_moment_is_the_one_that_the_search_would_report_then(
    seen: list[tuple[int, int | None]], direction: Literal["max", "min"]
):
    pool = [Candidate.of({"main.py": str(number)}) for number in range(4)]
    task = Task("a task", "a goal", objective=Objective(direction))
    followed, evidence = FollowedLeader(RunMeta("run", task)), Evidence(task)
    followed.enter_entry(Entry("note", 1, effect="candidates", result=Proposal(tuple(pool))))
    for key, (place, score) in enumerate(seen):
        status = Status.ERROR if score is None else Status.OK
        found = Observation(pool[place].id, status, None if score is None else float(score))
        followed.enter_entry(Entry("done", key, "aa", "evaluate", result=found))
        evidence.observe(pool[place], found)
        leader = evidence.leader()
        told = None if leader is None else evidence.verdict.score_of(leader)
        assert followed.best == (None if told is None else (told.score, told.id))
    assert (followed.best is None) == all(score is None for _, score in seen)
