"""One number for one candidate, wherever it is shown.

Scores of the final choice are apart from the search's.
"""

from __future__ import annotations

import msgspec
import pytest

from culmen.core.brief import Proposal
from culmen.core.evaluation import Status
from culmen.core.event import Entry
from culmen.core.result import RunResult, Score
from culmen.extensions.web.pages.candidates import candidate_detail_page as candidate_page
from culmen.extensions.web.pages.candidates import candidates_page as table_page
from culmen.extensions.web.pages.lineage import lineage_page as lineage_page
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from culmen.store import views
from tests.store.runs import new_run, observed, program, state


def late(key, candidate, score, **fields):
    """An evaluation of the final choice."""
    return msgspec.structs.replace(
        observed(key, candidate, score, **fields), body={"phase": "final"}
    )


def searched(tmp_path, *more):
    """An initial program (mean 0.4 of 2) and a child (mean 0.9 of 2), then `more`."""
    journal = new_run(tmp_path)
    first = program(0, operator="seed")
    child = program(1, [first.id])
    journal.append(
        [Entry("note", 1, effect="c", body={"note": "c"}, result=Proposal((first, child)))]
    )
    scores = [(first, 0.3), (first, 0.5), (child, 0.8), (child, 1.0)]
    journal.append([observed(key, each, score) for key, (each, score) in enumerate(scores, 1)])
    journal.append([entry(first, child) for entry in more])
    return journal, first, child


def chosen(first, child, **fields):
    initial = Score(first.id, 0.44, 4, 0.04, 0.09, fresh=True)
    winner = RunResult(
        child.id,
        0.52,
        6,
        0.015,
        0.035,
        confirmed=True,
        search_score=0.9,
        search_count=2,
        finalists=(child.id, first.id),
        initial=initial,
        gain=0.08,
        gain_margin=0.1,
    )
    return state("finished", winner=msgspec.to_builtins(msgspec.structs.replace(winner, **fields)))


def test_evaluations_of_the_final_choice_are_not_mixed_into_the_mean_of_the_search(tmp_path):
    """The reported score is the mean of fresh evaluations, a failure at the floor.

    The floor is here the lowest mean of the search.
    """
    journal, first, child = searched(
        tmp_path,
        lambda first, child: late(10, child, 0.5),
        lambda first, child: late(11, child, None, status=Status.ERROR),
    )
    row = views.candidate_detail(journal.run_dir, child.id).row
    assert (row.search_mean, row.search_count, row.failed) == (pytest.approx(0.9), 2, 0)
    best = views.run_status(journal.run_dir).best
    assert best is not None and best.finalists == (child.id,) and best.evaluations == 6
    assert views.run_status(journal.run_dir).evaluations == 6
    measured = next(
        each for each in (best, best.challenger) if each is not None and each.id == child.id
    )
    assert (measured.count, measured.failures) == (2, 1) and measured.score < 0.5
    assert (row.mean, row.count, row.fresh, row.fresh_failures) == (measured.score, 2, True, 1)
    assert views.candidate_detail(journal.run_dir, first.id).row.search_mean == pytest.approx(0.4)
    journal.close()


def test_every_view_gives_the_same_number_for_one_candidate_with_its_count(tmp_path):
    journal, first, child = searched(tmp_path, lambda first, child: late(10, child, 0.52), chosen)
    run = journal.run_dir
    best, digest = views.run_status(run).best, Digest(run, {})
    assert best is not None
    for one, score, count in ((child, 0.52, 6), (first, 0.44, 4)):
        row = views.candidate_detail(run, one.id).row
        step = next(
            each.row for each in views.lineage_steps(run, child.id) if each.row.id == one.id
        )
        node = next(each for each in views.family_tree(run) if each.id == one.id)
        listed = next(each for each in views.candidate_rows(run) if each.id == one.id)
        page = candidate_page(digest, {"id": one.id})
        line = next(each for each in table_page(digest, {})["rows"] if each["id"] == one.id)
        found = [(each.mean, each.count) for each in (row, step, node, listed)]
        found += [(each["mean"], each["count"]) for each in (page, line)]
        assert found == [(score, count)] * 6
        assert row.fresh and row.search_count == 2
    tree = lineage_page(digest, {})
    assert tree["means"][tree["ids"].index(child.id)] == 0.52
    assert (best.score, best.count) == (0.52, 6) and views.progress_points(run)[-1].mean == 0.52
    assert overview_page(digest, {})["lines"]["initial"] == 0.44
    assert best.value == 0.52
    assert views.lineage_steps(run, child.id)[-1].gain == pytest.approx(0.08)
    assert views.candidate_rows(run)[0].id == child.id
    journal.close()


def test_before_the_final_choice_it_is_what_the_search_lets_expect(tmp_path):
    journal, _, child = searched(tmp_path)
    best, row = (
        views.best_result(journal.run_dir),
        views.candidate_detail(journal.run_dir, child.id).row,
    )
    assert best is not None and (best.score, best.count) == (row.mean, row.count)
    assert row.expected and 0.4 < row.mean < row.search_mean and row.count == 2
    assert best.margin == row.margin and not row.fresh and not best.confirmed
    journal.close()
