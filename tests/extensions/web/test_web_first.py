"""The first screen of a run: verdict, state and the chart.

For every way in which a run may stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from culmen.core.result import NoiseReport, Score
from culmen.extensions.web.pages.trust import belief_marks
from culmen.extensions.web.runs import Digest
from culmen.report.summary import summarize_run
from culmen.store import views
from tests.extensions.web import worlds
from tests.extensions.web.conftest import Site, Tab, served

FIRST = {  # headline, tone, state
    "better": ("+0.25 (33 %) better than the initial program", "good", "finished"),
    "spent": ("+0.15 (20 %) better than the initial program", "good", "finished"),
    "within": (
        "Not clearly better than the initial program: +0.08, within noise",
        "warn",
        "finished",
    ),
    "kept": ("Nothing better than the initial program was found", "warn", "finished"),
    "minimised": ("8 (40 %) lower than the initial program", "good", "finished"),
    "doubted": ("8 (40 %) lower than the initial program", "warn", "finished"),
    "crossing-zero-with-a-name-of-some-length": (
        "+4 better than the initial program",
        "good",
        "finished",
    ),
    "flaky": ("+0.3 (60 %) better than the initial program", "warn", "finished"),
    "stopped": ("+0.3 (60 %) better than the initial program", "good", "stopped"),
    "failed": ("Failed: the initial program gives no score", "bad", "failed"),
    "broken": ("Failed: the disk <i>broke</i>", "bad", "failed"),
    "paused": ("+0.3 (60 %) better than the initial program so far", "quiet", "paused"),
    "interrupted": ("+0.3 (60 %) better than the initial program so far", "quiet", "interrupted"),
    "running": ("+0.3 (60 %) better than the initial program so far", "live", "running"),
    "begun": ("Nothing has scored yet", "quiet", "running"),
    "several": ("2 trade-offs between accuracy and latency so far", "quiet", "paused"),
}


@pytest.mark.parametrize(("search", "words"), [(0.95, "is within noise"), (2.0, "too hopeful")])
def test_luck_of_few_evaluations_of_the_search_is_noise(
    tmp_path: Path, search: float, words: str
) -> None:
    fields = {"se": 0.02, "search_score": search, "search_count": 1, "noise": NoiseReport(sd=0.1)}
    run = Digest(worlds.ended(tmp_path / "run", [0.5, 0.8], winner=fields)).refresh()
    first = belief_marks(run, views.run_status(run.run))[0]
    assert words in first["text"] and first["healthy"] == (search < 1)


def test_an_initial_score_of_which_0_may_be_true_gives_no_per_cent(tmp_path: Path) -> None:
    initial = {"initial": Score("a", 0.04, 24, 0.05, 0.1), "gain": 0.4, "gain_margin": 0.2}
    run = worlds.ended(tmp_path / "run", [0.04, 0.44], winner=initial)
    assert summarize_run(run).verdict.headline == "+0.40 better than the initial program"


def test_a_front_is_what_is_printed(tmp_path: Path) -> None:
    run = worlds.ended(tmp_path / "run", [0.5, 0.8, 0.7], state="paused", metrics=True)
    told = summarize_run(run)
    assert "print the front" in (told.purpose, *dict(told.also).values())


HIGH = 310  # pixels above the first chart, at most, at 1440 x 900
SIZE = "e => parseFloat(getComputedStyle(e).fontSize)"


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A dashboard over one run of each kind."""
    folder = tmp_path_factory.mktemp("verdicts")
    assert set(worlds.verdicts(folder)) == set(FIRST)
    return served(folder)


def part(page: Any, role: str) -> str:
    """The text of a part of the verdict with plain spaces; "" if it is missing."""
    found = page.locator(f".first [data-role={role}]")
    return found.inner_text().replace("\u00a0", " ") if found.count() else ""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_the_first_screen_says_what_came_of_the_run(every: Site, tab: Tab, name: str):
    tab.resize(1440, 900)
    page = tab.open(every, f"/r/{name}/overview")
    headline, tone, state = FIRST[name]
    assert part(page, "headline") == headline
    assert page.locator(".first").get_attribute("data-tone") == tone
    pill = page.locator(".top .state")
    assert pill.inner_text() == state and pill.get_attribute("title")
    assert page.title() == f"{state} · {name} · Result · culmen"
    told = summarize_run(every.run(name), name=name)
    assert part(page, "details").replace("−", "-") == " · ".join(told.verdict.details)
    assert part(page, "next") == told.command and page.locator(".first .next code").count() == 1
    largest = page.locator(".page :is(h1, h2, p, dd, .value, .headline)").evaluate_all(
        "all => Math.max(...all.filter(e => !e.matches('.headline'))"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert 28 <= page.locator(".headline").evaluate(SIZE) <= 32
    assert page.locator(".headline").evaluate(SIZE) > largest
    chart = page.locator("main c-chart").first
    if name in ("failed", "begun"):
        assert chart.count() == 0
    else:
        assert chart.bounding_box()["y"] < HIGH
    order = page.evaluate(
        "() => [...document.querySelectorAll('main .stack > *')].flatMap(e => e.matches('.where') ?"
        " [...e.children] : [e]).map(e => e.getAttribute('aria-label') ?? e.dataset.key)"
    )
    assert order[0] == "Verdict" and order[-1] == "rest"
    assert chart.count() == 0 or order[1] in ("Scores", "Pareto front")
    assert ("May I believe it?" in order) == (views.run_status(every.run(name)).best is not None)


@pytest.mark.browser
def test_four_bands_answer_the_four_questions(every: Site, tab: Tab):
    """The verdict, the source of the gain, its evidence, and a fold: within one screen."""
    page = tab.open(every, "/r/minimised/overview")
    assert page.locator(".way").get_attribute("aria-label") == (
        "20 at the start, 12 now, target 10"
    )
    assert page.locator(".way-now").evaluate("e => e.style.width") == "80%"
    made = page.locator("section[aria-label='What made it']")
    assert made.locator("ol.story > li").count() == 1
    assert made.locator(".code li.add").inner_text() == "+RADIUS = 2"
    marks = page.locator("section[aria-label='May I believe it?'] li")
    assert "scored apart" in marks.all_inner_texts()
    fold = page.locator("details.rest")
    assert fold.get_attribute("open") is None and fold.bounding_box()["y"] < 900
    within = tab.open(every, "/r/within/overview")
    best = within.locator("section[aria-label='What the best changes']")
    assert "The gain is within noise" in best.inner_text() and within.locator(".way").count() == 0
    doubted = tab.open(every, "/r/flaky/overview")
    assert doubted.locator(
        "section[aria-label='May I believe it?'] li.warn"
    ).first.inner_text() == ("failed in 2 of 12 evaluations, counted as a low score")


@pytest.mark.browser
@pytest.mark.slow
def test_a_failed_run_shows_the_evaluators_own_traceback_as_text(every: Site, tab: Tab):
    page = tab.open(every, "/r/failed/overview")
    told = page.locator("pre[data-role=failure]")
    assert (
        "line 12, in evaluate\n    return radii[\"sum\"]\nKeyError: '<b>sum</b>'"
        in told.inner_text()
    )
    assert told.locator("b").count() == 0 and told.bounding_box()["y"] < 300
    assert (
        part(page, "cause") == "KeyError: '<b>sum</b>' (evaluate.py line 12), in 1 of 1 evaluation"
    )
    red, ink = (
        page.evaluate(f"() => getComputedStyle(document.querySelector('{at}')).color")
        for at in (".headline", "h1")
    )
    assert red != ink
    assert (
        page.get_by_role("button", name="Hint").count() == 0
    )  # it is over, though without a score
    page = tab.open(every, "/r/broken/overview")
    assert page.get_by_role("button", name="Hint").count() == 1  # culmen resume may go on
    page = tab.open(every, "/r/better/overview")
    assert page.locator("pre[data-role=failure]").count() == 0 and part(page, "cause") == ""


@pytest.mark.browser
@pytest.mark.slow
def test_shares_of_the_way_and_per_cent_only_where_the_scale_has_them(every: Site, tab: Tab):
    assert part(tab.open(every, "/r/doubted/overview"), "cause").startswith(
        "the direction looks wrong"
    )
    for name, expected in {
        "spent": "60 % of the way to the best known value 1",
        "minimised": "80 % of the way to the target 10",
        "flaky": "failed in 2 of 12 evaluations, counted as a low score",
        "within": "true gain −0.02 to 0.18 (95 % interval), so there may be none",
    }.items():
        assert expected in part(tab.open(every, f"/r/{name}/overview"), "details")
    page = tab.open(every, "/r/within/overview")
    ends = page.evaluate(
        "() => document.querySelector('c-chart').spec.series.find(s => s.kind === 'links').points"
    )
    assert [y for _, y in ends] == pytest.approx([0.54, 0.6])  # within the bounds of honest scores
    crossing = tab.open(every, "/r/crossing-zero-with-a-name-of-some-length/overview")
    assert "%" not in part(crossing, "headline") + part(crossing, "details")


@pytest.mark.browser
def test_the_next_command_is_copied(every: Site, tab: Tab):
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=every.base)
    page = tab.open(every, "/r/paused/overview")
    page.get_by_role("button", name="Copy culmen resume paused").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == "culmen resume paused"


@pytest.mark.browser
def test_the_list_shows_states_and_scores_also_on_a_phone(every: Site, tab: Tab):
    page = tab.open(every, "/")
    tab.resize(390)
    for name, (_, _, state) in FIRST.items():
        row = page.locator(f'tr[data-key="{name}"]')
        pill, best = row.locator(".state"), row.locator("td.num").first
        assert pill.inner_text() == state
        for box in (pill.bounding_box(), best.bounding_box()):
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.locator('tr[data-key="minimised"] td.num').first.inner_text() == "12.00"
    assert (
        page.locator('tr[data-key="failed"] .state').get_attribute("class") == "pill state pill-bad"
    )
    page.locator("select[name=state]").select_option("stopped")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
