"""The Compare page has the words of `culmen compare`."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import quantiles

import pytest

from culmen.core.evaluation import Status
from culmen.extensions.bench.compare import compare_runs
from culmen.extensions.bench.page import compare_page
from culmen.extensions.bench.records import read_compared
from culmen.extensions.web.runs import Digest
from culmen.store import views
from tests.extensions.web.conftest import Site, Tab, served
from tests.extensions.web.test_web_pages import rows, series
from tests.store.runs import new_run, observed, program, proposed, state

NAMES = ("polca-1", "polca-2", "turboevolve-1")


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_says_whether_the_data_can_tell(site: Site, tab: Tab):
    paths = [site.run(name) for name in NAMES]
    assert [views.run_status(path).state for path in paths] == ["finished"] * 3
    page = tab.open(site, "/compare?" + "&".join(f"run={name}" for name in NAMES))
    told = page.locator("section[aria-label='Can the data tell?']")
    told.wait_for()
    text = told.inner_text()
    classes = {
        views.run_meta(path).strategy["path"]: name.partition("-")[0]
        for path, name in zip(paths, NAMES)
    }
    made = compare_runs([read_compared(path) for path in paths], classes)
    (part,) = made.tasks
    for sentence in (*(pair.sentence for pair in part.pairs), *made.remarks):
        assert sentence in text
    assert part.task in text and all(row.strategy in text for row in part.rows)
    tab.open(site, "/compare?run=polca-1").get_by_text("It takes two finished runs").wait_for()


@pytest.mark.slow
@pytest.mark.browser
def test_bands_and_profiles_are_drawn_from_the_runs(site: Site, tab: Tab):
    page = tab.open(site, "/compare?run=polca-1&run=polca-2&run=turboevolve-1")
    page.wait_for_selector("c-chart svg")
    drawn = series(page)
    assert page.locator("c-chart").count() == 1  # nor a profile
    assert [
        each for each in drawn if each["kind"] == "band"
    ] == []  # two runs have no quartiles worth a band
    assert "so few can differ by luck alone" in page.locator("main").inner_text()
    ends = [views.progress_points(site.run(name))[-1].mean for name in ("polca-1", "polca-2")]
    (middle,) = (each for each in drawn if each["name"] == "polca, median of n = 2")
    assert middle["points"][-1][1] == pytest.approx(sum(ends) / 2)


@pytest.mark.slow
@pytest.mark.browser
def test_a_profile_is_drawn_of_five_runs(site: Site, tab: Tab, tmp_path: Path):
    for n in range(5):
        shutil.copytree(site.run(f"polca-{1 + n % 2}"), tmp_path / f"polca-{n}")
    page = tab.open(served(tmp_path), "/compare")
    page.wait_for_function("() => document.querySelectorAll('c-chart svg').length === 2")
    lines = [each for each in series(page, 1) if each["name"]]
    assert [each["name"] for each in lines] == ["polca, n = 5"]
    made = compare_runs([read_compared(tmp_path / f"polca-{n}") for n in range(5)], {})
    steps = [[list(step) for step in row.steps] for row in made.tasks[0].rows]
    assert [each["points"][:-1] for each in lines] == steps  # the last one goes on to the edge
    assert [each["points"][-1][1] for each in lines] == [row[-1][1] for row in steps]


def test_steps_are_counted_from_the_journal(site: Site):
    digest = Digest(site.run("turboevolve-1"))
    moments = read_compared(digest.run).moments
    for _ in range(2):  # the second time nothing is read again
        (row,) = compare_page([digest], {"x": "evaluation_steps"})["runs"]
        assert row["points"][-1]["evaluation_steps"] == moments[-1].evaluation_steps


@pytest.mark.slow
@pytest.mark.browser
def test_steps_are_axes_too(site: Site, tab: Tab):
    moments = read_compared(site.run("turboevolve-1")).moments
    page = tab.open(site, "/compare?run=polca-1&run=turboevolve-1&x=evaluation_steps")
    page.wait_for_function("() => document.querySelectorAll('c-chart svg').length === 1")
    ends = {each["name"]: each["points"][-1][0] for each in series(page)}
    assert ends["turboevolve-1"] == moments[-1].evaluation_steps
    assert "side by side are one step" in page.locator("main").inner_text()
    page.locator("select[name=x]").select_option("proposals")
    page.wait_for_function(
        "end => document.querySelector('c-chart').spec.series.some(each => each.points.at(-1)[0] === end)",
        arg=moments[-1].proposals,
    )


@pytest.mark.slow
@pytest.mark.browser
def test_a_group_of_five_runs_has_a_band(runs: Path, tmp_path: Path, tab: Tab):
    ends: list[float] = []
    for number in range(5):
        shutil.copytree(runs / f"polca-{1 + number % 2}", tmp_path / f"run-{number}")
        ends.append(views.progress_points(tmp_path / f"run-{number}")[-1].mean)
    page = tab.open(served(tmp_path), "/compare")
    page.wait_for_selector("c-chart svg path.band")
    (band,) = (each for each in series(page) if each["kind"] == "band")
    low, _, high = quantiles(ends, n=4, method="inclusive")
    assert band["points"][-1][1:] == pytest.approx([low, high])
    drawn = page.locator("c-chart").first.locator("svg path.band").bounding_box()
    assert drawn["height"] > 1 and drawn["width"] > 50


def test_a_median_ends_where_the_first_of_its_runs_ended(tmp_path: Path) -> None:
    for number, many in enumerate((4, 9)):
        with new_run(tmp_path, f"run-{number}") as journal:
            journal.append([state("running"), proposed(1, program(1))])
            journal.append(
                [observed(2 + n, program(1), float(number), elapsed=1.0 + n) for n in range(many)]
            )
    digests = [Digest(tmp_path / f"run-{number}") for number in range(2)]
    (group,) = compare_page(digests, {})["groups"]
    assert group["scored"] == 2 and group["bands"]["evaluations"][-1][:2] == (4, 0.5)
    assert group["bands"]["seconds"][-1][0] == pytest.approx(4.0)


@pytest.mark.slow
@pytest.mark.browser
def test_many_tasks_are_compared_one_at_a_time(tmp_path: Path, tab: Tab):
    """A picture for each of a suite's tasks would be a page of thousands of pixels.

    They would be under one another.
    """
    for number in range(4):
        with new_run(tmp_path, f"run-{number}", called=f"task-{number}") as journal:
            journal.append(
                [state("running"), proposed(1, program(1)), observed(2, program(1), float(number))]
            )
            journal.append([observed(3, program(1), float(number))])
    with new_run(tmp_path, "broken", called="a-task") as journal:  # the first by its name
        failed = observed(2, program(1), None, Status.ERROR)
        journal.append(
            [
                state("running"),
                proposed(1, program(1)),
                failed,
                state("finished", reason="always_fails"),
            ]
        )
    shutil.copytree(tmp_path / "broken", tmp_path / "broken-2")
    page = tab.open(served(tmp_path), "/compare")
    page.wait_for_selector("c-chart svg")
    assert (
        page.locator("c-chart").count() == 1
        and page.evaluate("() => document.body.scrollHeight") < 2000
    )
    assert page.locator("select[name=task]").input_value() == "task-0"  # a failed one shows nothing
    table = {row[0]: row for row in rows(page, "Runs")}
    assert "nothing scored" in table["broken"] and table["broken"][-1] == "failed"
    told = page.locator("section[aria-label='Can the data tell?']")
    assert "Nothing scored" in told.inner_text() and told.locator("c-chart").count() == 0
    page.locator("select[name=task]").select_option("a-task")
    page.wait_for_selector("section[aria-label='Best so far: a-task']")
    assert "None of these runs has a score" in page.locator("main").inner_text()
    page.locator("select[name=task]").select_option("task-3")
    page.wait_for_selector("section[aria-label='Best so far: task-3']")
    assert series(page)[0]["points"][-1][1] == 3.0


@pytest.mark.slow
@pytest.mark.browser
def test_every_run_can_be_compared_and_names_are_short(tmp_path: Path, tab: Tab):
    """One run after the forty that were shown once; and more than a page holds, page by page."""
    for number in range(202):
        with new_run(tmp_path, f"sweep-of-polca-{number:03}", direction="max") as journal:
            journal.append(
                [state("running"), proposed(1, program(1))]
                + [observed(2, program(1), float(number))] * 2
            )
    own = served(tmp_path)
    chosen = "&".join(f"run=sweep-of-polca-{number:03}" for number in (0, 41, 201))
    page = tab.open(own, f"/compare?{chosen}")
    assert {row[0] for row in rows(page, "Runs")} == {
        f"sweep-of-polca-{number:03}" for number in (0, 41, 201)
    }
    page = tab.open(own, "/compare")
    page.get_by_text("Runs 1 to 200 of 202").wait_for()
    page.get_by_role("button", name="Next").click()
    page.get_by_text("Runs 201 to 202 of 202").wait_for()
    assert [row[0] for row in rows(page, "Runs")] == ["sweep-of-polca-200", "sweep-of-polca-201"]


@pytest.mark.browser
def test_runs_that_cannot_be_read_are_named_with_why(tmp_path: Path, tab: Tab):
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "journal.db").write_text(
        "no database <b>at all</b>, but long enough to be taken for one" * 40
    )
    own = served(tmp_path)
    page = tab.open(own, "/")
    (row,) = rows(page, "Runs")
    assert (
        row[:2] == ["junk", "damaged"]
        and "the journal is damaged" in row[2]
        and "culmen runs recover" in row[2]
    )
    assert page.locator("main td a").count() == 0
    page = tab.open(own, "/compare")
    text = page.locator("main").inner_text()
    assert (
        "Left out, because it cannot be read: junk (the journal is damaged" in text
        and "no runs to compare" in text
    )
