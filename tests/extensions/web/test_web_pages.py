"""Every page in a real browser shows the journal's data.

Each test fails if the page's data is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from culmen.core.brief import Proposal
from culmen.core.evaluation import SHOWN
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from culmen.report.figures import dollars_text, margin_decimals, number_text
from culmen.report.story import cost_text, gain_text, run_story
from culmen.report.summary import summarize_run
from culmen.store import views
from tests.extensions.web.conftest import Site, Tab

pytestmark = pytest.mark.browser


def rows(page: Any, caption: str) -> list[list[str]]:
    """The cells of a table's body, by its caption."""
    return page.evaluate(
        "caption => [...document.querySelectorAll('table')].find(t => t.caption?.innerText === caption"
        " || t.caption?.textContent === caption)?.tBodies[0].rows.length ?"
        " [...[...document.querySelectorAll('table')].find(t => t.caption.textContent === caption).tBodies[0].rows]"
        ".map(r => [...r.cells].map(c => c.innerText.trim())) : []",
        caption,
    )


def facts(page: Any) -> dict[str, str]:
    """Labels and values of the lists of facts."""
    return page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.facts > div')].map("
        "d => [d.children[0].innerText, d.children[1].innerText]))"
    )


def shown(text: str) -> float:
    """The number in a printed text."""
    return float(text.replace("−", "-").replace(",", "").split()[0])


def series(page: Any, place: int = 0) -> list[dict[str, Any]]:
    """Series that a chart was given to draw."""
    return page.evaluate(
        "place => [...document.querySelectorAll('c-chart')][place].spec.series"
        ".map(s => ({name: s.name, kind: s.kind, points: s.points}))",
        place,
    )


def tells(score: Any) -> float:
    """Half a step of the last digit that the margin of a score allows, at most."""
    return (
        0.05 * score.margin
        if score.margin
        else 1e-5 * abs(getattr(score, "score", None) or score.mean)
    )


def test_the_result_marks_the_steps_of_the_story(site: Site, tab: Tab):
    told = run_story(site.run("map_elites-1"))
    page = tab.open(site, "/r/map_elites-1/overview")
    marks = next(each for each in series(page) if each["name"] == "steps of the story")
    line = next(each for each in series(page) if each["name"] == "expected of the leader")
    assert marks["points"] == [
        [step.at_evaluations, next(y for x, y in line["points"] if x >= step.at_evaluations)]
        for step in told.steps
    ]
    assert page.locator(".numbered text").all_text_contents() == [
        str(step.number) for step in told.steps
    ]
    for full in (False, True):  # in short, then with costs, changes, and what was tried in vain
        steps = page.locator("ol[aria-label='Steps that made the gain'] > li")
        assert steps.count() == len(told.steps) >= 3
        for place, step in enumerate(told.steps):
            shown = steps.nth(place).inner_text()
            assert gain_text(step) in shown and step.sentence in shown and step.id[:8] in shown
            assert (cost_text(step) in shown) == full
        if not full:
            page.get_by_role("link", name="The whole story").click()
            page.wait_for_selector('main[data-key="map_elites-1/story"]:not([aria-busy])')
    vain = page.locator("ul.vain > li")
    assert [vain.nth(n).locator("strong").inner_text() for n in range(vain.count())] == [
        g.name for g in told.vain
    ]
    steps.first.locator("summary").click()
    assert "+SKILL" in steps.first.inner_text()
    steps.nth(1).locator("a.id").click()
    page.wait_for_url(f"**candidate?id={told.steps[1].id}*")


PLACES = {
    "Result": ["overview"],
    "Candidates": ["candidates"],
    "How it got there": ["story", "lineage", "memory", "sessions"],
    "What it cost": ["calls", "timeline"],
    "Can I trust it": ["trust"],
}


@pytest.mark.slow
def test_five_places_lead_to_every_page(site: Site, tab: Tab):
    """Each page stands in its place, also by its address alone.

    A candidate stands among the candidates.
    """
    page = tab.open(site, "/r/polca-1/overview")
    for place, names in PLACES.items():
        page.locator(".side").get_by_role("link", name=place, exact=True).click()
        page.wait_for_selector(f'main[data-key="polca-1/{names[0]}"]:not([aria-busy])')
        links = page.locator(".within a").evaluate_all("all => all.map(a => a.hash.split('/')[3])")
        assert page.locator("h1").inner_text() == place and links == (
            names if len(names) > 1 else []
        )
        for name in names[1:]:
            tab.open(site, f"/r/polca-1/{name}")
            assert page.locator("[aria-current=page]").all_inner_texts()[0] == place
            assert (
                page.locator(".within [aria-current=page]")
                .get_attribute("href")
                .endswith(f"/{name}")
            )
    tab.open(site, "/r/polca-1/candidate?id=best")
    assert page.locator("[aria-current=page]").all_inner_texts() == ["Candidates"]


def test_the_list_of_runs(site: Site, tab: Tab):
    page = tab.open(site, "/")
    found = {row[0]: row for row in rows(page, "Runs")}
    assert set(found) == {line.path.rpartition("/")[2] for line in views.list_runs(site.folder)}
    best = views.run_status(site.run("polca-1")).best
    assert best is not None and shown(found["polca-1"][2]) == pytest.approx(
        best.score, abs=tells(best)
    )
    assert found["polca-1"][1] == "finished" and found["map_elites-1"][8] == "map_elites"
    assert found["hostile"][1] == "failed"
    now = views.run_status(site.run("polca-1"))
    assert shown(found["polca-1"][4]) == now.evaluations
    assert now.budget.evaluations and shown(found["polca-1"][5]) == round(
        100 * now.evaluations / now.budget.evaluations
    )
    course = views.progress_points(site.run("polca-1"))
    drawn = page.locator('tr[data-key="polca-1"] .spark')
    assert drawn.get_attribute("aria-label").startswith("Best so far") and len(course) > 1
    assert shown(drawn.get_attribute("aria-label").rpartition(" to ")[2]) == pytest.approx(
        course[-1].mean, rel=1e-5
    )
    page.get_by_role("button", name="evaluations").click()
    page.wait_for_selector('th[aria-sort="descending"]')
    counts = [shown(row[4]) for row in rows(page, "Runs") if len(row) > 5 and row[4] != "–"]
    assert counts == sorted(counts, reverse=True) and len(set(counts)) > 1
    page.get_by_role("searchbox").fill("polca-")
    page.wait_for_function("() => document.querySelector('h2').textContent.startsWith('2 of ')")
    assert {row[0] for row in rows(page, "Runs")} == {"polca-1", "polca-2"}
    for name in ("polca-1", "polca-2"):
        page.get_by_label(f"Pick {name}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.wait_for_selector('main[data-key="/compare"]:not([aria-busy])')
    assert {row[0] for row in rows(page, "Runs")} == {"polca-1", "polca-2"}
    page.go_back()
    page.wait_for_selector('main[data-key="/runs"]:not([aria-busy])')
    page.get_by_role("link", name="polca-1", exact=True).click()
    page.wait_for_selector('main[data-key="polca-1/overview"]')


def test_headings_and_pills_are_explained(site: Site, tab: Tab):
    """By one table of terms, where one points at them."""
    for path in ("/", "/compare", "/r/polca-1/candidates"):
        page = tab.open(site, path)
        said = page.locator("main th, main .pill").evaluate_all(
            "all => all.map(e => [e.textContent, e.title])"
        )
        bare = {text.strip(" ↑↓") for text, title in said if not title}
        assert len(said) > 5 and not bare, path


def test_on_a_phone_the_navigation_shows_the_current_page(site: Site, tab: Tab):
    page = tab.open(site, "/r/polca-1/overview")
    tab.resize(390)
    tall = page.locator(".side").bounding_box()["height"]
    assert tall < 80
    tab.open(site, "/r/polca-1/trust")
    page.wait_for_function(
        "() => { const box = document.querySelector('.side [aria-current]').getBoundingClientRect();"
        " return box.left >= 0 && box.right <= innerWidth && box.top >= 0 }"
    )
    assert page.locator(".side").bounding_box()["height"] == tall


def shown_text(within, place="xpath=."):
    """The text of a place as it stands on the page, gaps that do not break as plain ones."""
    return within.locator(place).inner_text().replace("\u00a0", " ")


def test_overview(site: Site, tab: Tab):
    page = tab.open(site, "/r/polca-1/overview")
    now = views.run_status(site.run("polca-1"))
    assert now.best is not None
    told = summarize_run(site.run("polca-1"), name="polca-1")
    assert shown_text(page, "[data-role=headline]") == told.verdict.headline
    assert shown_text(page, "[data-role=details]") == " · ".join(told.verdict.details)
    assert shown_text(page, "[data-role=cost]") == told.used
    assert shown_text(page, "[data-role=next]") == told.command
    page.locator("details.rest > summary").click()
    ails = [shown_text(each) for each in page.locator(".ails li").all()]
    assert len(ails) == len(told.other_findings) and all(
        f.what in each for f, each in zip(told.other_findings, ails)
    )
    standing = page.locator("[data-role=standing]").inner_text()
    assert standing.startswith(now.best.id[:8])
    assert f"{now.candidates:,} candidates" in standing
    drawn = {each["name"]: each["points"] for each in series(page)}
    made = views.search_evaluations(site.run("polca-1"))
    scored = [each for each in made if each.score is not None]
    assert drawn["evaluations"] == [[each.n, each.score] for each in scored] and len(scored) > 100
    for kind in {each.status for each in made} - {"ok"}:
        assert drawn[kind] == [[each.n] for each in made if each.status == kind]
    page.get_by_role("button", name="Operator", exact=True).click()
    page.wait_for_function(
        "() => !document.querySelector('c-chart').spec.series.some(s => s.name === 'evaluations')"
    )
    drawn = {each["name"]: each["points"] for each in series(page)}
    for operator, n in Counter(each.operator for each in scored).most_common(3):
        mine = drawn[operator]
        assert (
            mine == [[each.n, each.score] for each in scored if each.operator == operator]
            and len(mine) == n
        )
    dot = page.evaluate(
        "() => { const { plot, shown } = document.querySelector('c-chart');"
        " const [x, y] = shown.series[0].points[5]; return [plot.x(x), plot.y(y)] }"
    )
    page.locator("c-chart").first.hover(position={"x": dot[0], "y": dot[1]})
    tip = page.locator("c-chart .tip").first.inner_text()
    assert (
        "evaluation " in tip and "expected of the leader" in tip
    )  # the dot, and the lines at its place
    known = views.LeaderCourse(site.run("polca-1"), views.run_meta(site.run("polca-1"))).points()
    line = [[point.evaluations, point.score] for point in known]
    assert (
        drawn["expected of the leader"][:-1] == line
        and drawn["expected of the leader"][-1][0] == now.evaluations
    )
    band = next(each["points"] for each in series(page) if each["kind"] == "band")
    assert band[:-1] == [[point.evaluations, point.low, point.high] for point in known]
    assert drawn["confirmed"] == [[now.evaluations, now.best.score]]
    assert page.locator("c-chart .ref text").all_text_contents() == [
        "target 0.95",
        f"initial {round(now.best.initial.score, margin_decimals(now.best.initial.margin)):g}",
    ]
    told = facts(page)
    assert told["strategy"] == "polca" and told["explore"] == "5"
    assert page.locator(".budget").count() == 0  # nothing is left to spend
    page.get_by_role("button", name="Dollars").click()
    page.wait_for_function("() => document.querySelector('c-chart').spec.x.label === 'Dollars'")
    assert series(page)[0]["points"][-1][0] == pytest.approx(now.usage.dollars)
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function("() => document.querySelector('c-chart').spec.x.label === 'Time'")
    line = next(each["points"] for each in series(page) if each["name"] == "expected of the leader")
    assert line[-2][0] == pytest.approx(known[-1].elapsed)


def test_the_story_shows_what_changed_in_the_best(site: Site, tab: Tab):
    now = views.run_status(site.run("polca-1"))
    assert now.best is not None
    page = tab.open(site, "/r/polca-1/story")
    change = page.locator("section[aria-label='What changed in the best']")
    first = views.candidate_rows(site.run("polca-1"), "old", operator="seed", limit=1)[0].id
    before, after = (
        views.candidate_detail(site.run("polca-1"), name).parts["program.py"]
        for name in (first, now.best.id)
    )
    added = change.locator(".code li.add").evaluate_all("lines => lines.map(l => l.textContent)")
    assert added and [
        line for line in after.splitlines() if line in added and line not in before
    ] == [line for line in added if line not in before]
    assert change.locator("a").get_attribute("href").endswith(f"id={now.best.id}&against={first}")


def test_candidates_sort_filter_and_page(site: Site, tab: Tab):
    run = site.run("turboevolve-1")
    page = tab.open(site, "/r/turboevolve-1/candidates")

    def ids() -> list[str]:
        return [row[0].split()[0] for row in rows(page, "Candidates")]

    def first(row: str) -> None:
        page.wait_for_function(
            "id => document.querySelector('tbody .id')?.innerText === id", arg=row
        )

    best = views.candidate_rows(run, limit=50)
    assert ids() == [row.id[:8] for row in best]
    assert [shown(row[1]) for row in rows(page, "Candidates")] == pytest.approx(
        [row.mean for row in best], abs=1e-6
    )
    page.get_by_role("button", name="Next").click()
    first(views.candidate_rows(run, offset=50, limit=1)[0].id[:8])
    page.get_by_role("button", name="mean", exact=True).click()
    first(views.candidate_rows(run, "score", limit=1)[0].id[:8])
    page.get_by_role("button", name="mean", exact=True).click()
    first(views.candidate_rows(run, "worst", limit=1)[0].id[:8])
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    failed = [
        row.id[:8]
        for row in views.candidate_rows(run, "old", limit=None)
        if row.failed and not row.count
    ]
    page.get_by_label("Status").select_option("failed")
    page.wait_for_function(
        "n => document.querySelectorAll('tbody tr').length === n", arg=len(failed)
    )
    assert sorted(ids()) == sorted(failed)
    page.get_by_label("Status").select_option("")
    shown_as_parents = {
        name for row in views.candidate_rows(run, limit=None) for name in row.parents
    }
    child = next(row for row in best if row.parents and row.id not in shown_as_parents)
    page.get_by_label("Find").fill(child.id)
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    assert ids() == [child.id[:8]]
    page.get_by_label("Find").fill("nothing of the kind")
    page.get_by_role("button", name="Clear the filters").click()
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 50")


def test_candidates_tell_what_is_expected_and_what_they_took(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/candidates")
    head = [text.lower() for text in page.locator("thead th").all_inner_texts()]
    paid = {cost.seq: cost.usage.dollars for cost in views.effect_costs(run)}
    every = views.candidate_rows(run, "old", limit=None)
    known, born = {row.id[:8]: row for row in every}, Counter(row.seq for row in every)
    for told in rows(page, "Candidates"):
        line = dict(zip(head, told))
        row = known[told[0].split()[0]]
        detail = views.candidate_detail(run, row.id)
        for name, value in (("expected", row.mean), ("mean", row.search_mean)):
            assert (
                line[name] == "–"
                if value is None
                else shown(line[name]) == pytest.approx(value, abs=1e-4)
            )
        assert shown(line["size"]) == sum(map(len, detail.parts.values()))
        seconds = [made.seconds for made in detail.observations]
        assert (
            shown(line["time"]) == pytest.approx(sum(seconds) / len(seconds), abs=0.006)
            if seconds
            else not line["time"]
        )
        if cost := paid.get(row.seq, 0.0) / born[row.seq]:
            assert shown(line["cost"].lstrip("$")) == pytest.approx(cost, rel=0.06)
        else:
            assert not line["cost"]
    assert any(
        row.expected and abs(row.mean - row.search_mean) > 1e-3
        for row in every
        if row.mean and row.search_mean
    )


def test_candidates_are_compared_case_by_case(site: Site, tab: Tab):
    run = site.run("gepa-1")
    page = tab.open(site, "/r/gepa-1/candidates")
    chosen = sorted(
        (r for r in views.candidate_rows(run, limit=12) if r.count > 2), key=lambda row: row.seq
    )[:2]
    for row in reversed(
        chosen
    ):  # the order of the ticks does not matter: changes go from the older to the newer
        page.get_by_label(f"Compare {row.id[:8]}").check()
    page.wait_for_selector("section[data-key=beside]")
    assert ",".join(row.id for row in reversed(chosen)) in page.url.replace("%2C", ",")
    told = rows(page, "Scores of the candidates compared")
    assert [shown(text) for text in told[0][1:]] == pytest.approx(
        [row.mean for row in chosen], abs=1e-4
    )
    for line in told[1:]:
        for row, text in zip(chosen, line[1:]):
            made = [
                o.score
                for o in views.candidate_detail(run, row.id).observations
                if o.case == line[0]
            ]
            scores = [score for score in made if score is not None]
            assert (
                shown(text) == pytest.approx(sum(scores) / len(scores), abs=1e-4)
                if scores
                else text == "–"
            )
    one, other = (
        next(iter(views.candidate_detail(run, row.id).parts.values())) for row in chosen
    )  # by age
    added = page.locator("section[data-key=beside] .code li.add").evaluate_all(
        "ls => ls.map(l => l.textContent)"
    )
    assert (
        added and set(added) <= set(other.splitlines()) and not set(added) <= set(one.splitlines())
    )
    page.get_by_role("button", name="Clear").click()
    page.wait_for_selector("section[data-key=beside]", state="detached")


def test_candidate(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/candidate?id=best")
    best = views.best_result(run)
    assert best is not None
    detail = views.candidate_detail(run, best.id)
    assert page.locator(".code.diff").count() == 1  # it opens on what it changed of its parent
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()
    assert waiting.value.path().read_text() == detail.parts["program.py"]
    page.get_by_label("Show").select_option("whole")
    page.wait_for_selector(".code:not(.diff)")
    text = page.evaluate(
        "() => [...document.querySelectorAll('[data-key=text] .code li')].map(l => l.textContent + '\\n').join('')"
    )
    assert text == detail.parts["program.py"]
    assert "return" in page.locator(".k-keyword").all_inner_texts()
    told = facts(page)
    assert shown(told["mean score"]) == pytest.approx(detail.row.mean, abs=tells(detail.row))
    assert told["model"] == detail.row.model and told["cost of the request"].startswith("$0.0031")
    made = rows(page, "Evaluations one by one")
    newest = list(reversed(detail.observations))[: len(made)]
    assert [row[0] for row in made] == [number_text(o.score, 6) if o.ok else "–" for o in newest]
    assert newest[0].feedback in page.locator(".plain").first.inner_text()
    for name, whole in (("Prompt", detail.prompt), ("Reply", detail.reply)):
        page.locator("summary", has_text=name).click()
        box = (
            page.locator("details", has=page.locator("summary", has_text=name))
            .locator(".plain")
            .last
        )
        assert box.evaluate("box => box.textContent") == whole
    line = views.lineage_steps(run, best.id)
    assert [row[1] for row in rows(page, "Ancestors")] == [step.row.id[:8] for step in line]


def test_many_evaluations_of_a_candidate_are_a_histogram(site: Site, tab: Tab):
    run, most = max(
        (
            (name, views.candidate_rows(site.run(name), "count", limit=1)[0])
            for name in ("polca-1", "polca-2", "gepa-1")
        ),
        key=lambda found: found[1].search_count,
    )
    page = tab.open(site, f"/r/{run}/candidate?id={most.id}")
    made = [
        o.score
        for o in views.candidate_detail(site.run(run), most.id).observations
        if o.ok and o.score is not None
    ]
    assert len(made) >= 20
    bars = next(each["points"] for each in series(page) if each["kind"] == "band")
    edges = [x for x, _, _ in bars]
    assert (edges[0], edges[-1]) == pytest.approx((min(made), max(made))) and sum(
        n for *_, n in bars
    ) == len(made)
    for left, right, n in zip(edges, edges[1:], (n for *_, n in bars)):
        assert n == sum(left <= score < right or score == right == edges[-1] for score in made)


def test_candidate_change_from_any_ancestor(site: Site, tab: Tab):
    run = site.run("polca-1")
    best = views.best_result(run)
    assert best is not None
    line = views.lineage_steps(run, best.id)
    now = views.candidate_detail(run, best.id).parts["program.py"].splitlines()
    page = tab.open(site, "/r/polca-1/candidate?id=best")
    for ancestor, value in ((line[-2].row.id, "parent"), (line[0].row.id, line[0].row.id)):
        page.get_by_label("Show").select_option(value)
        page.wait_for_function(
            "id => document.querySelector('.card > .note')?.innerText && "
            "[...document.querySelectorAll('.note')].some(n => n.innerText.includes(id))",
            arg=f"since {ancestor[:8]}",
        )
        before = views.candidate_detail(run, ancestor).parts["program.py"].splitlines()
        added = page.locator("[data-key=text] .code li.add").evaluate_all(
            "lines => lines.map(l => l.textContent)"
        )
        removed = page.locator("[data-key=text] .code li.del").evaluate_all(
            "lines => lines.map(l => l.textContent)"
        )
        assert added and [line for line in now if line in added] == added
        assert removed and [line for line in before if line in removed] == removed
        kept = page.locator("[data-key=text] .code li:not(.add):not(.del):not(.fold)").evaluate_all(
            "ls => ls.map(l => l.textContent)"
        )
        assert set(kept) <= set(before) & set(now)


def test_differences_are_the_shortest_ones(site: Site, tab: Tab):
    """Against the length of the longest common subsequence, computed here, of random texts."""
    from random import Random

    rng = Random(3)
    pairs = [
        [[rng.choice("abcd") for _ in range(rng.randrange(14))] for _ in range(2)]
        for _ in range(150)
    ]
    page = tab.open(site, "/")
    made = page.evaluate(
        "async pairs => { const { diff } = await import('/static/code.js'); return pairs.map(([a, b]) => diff(a, b)) }",
        pairs,
    )
    for (a, b), told in zip(pairs, made, strict=True):
        assert [a[row["old"] - 1] for row in told if row["sign"] != "+"] == a
        assert [b[row["new"] - 1] for row in told if row["sign"] != "-"] == b
        kept = [row for row in told if row["sign"] == " "]
        assert all(a[row["old"] - 1] == b[row["new"] - 1] for row in kept) and len(kept) == common(
            a, b
        )


def common(a: list[str], b: list[str]) -> int:
    lengths = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for place, y in enumerate(b, 1):
            before, lengths[place] = (
                lengths[place],
                before + 1 if x == y else max(lengths[place], lengths[place - 1]),
            )
    return lengths[-1]


def test_colours_lose_no_character(site: Site, tab: Tab):
    texts = [
        'x = """a\n# b\n"""  # c\n',
        "'unclosed\n",
        "f'{1e-5}' /* no */ `t`\n",
        "\t\\\n",
        "def f():\n  return 0x1F",
        "",
    ]
    page = tab.open(site, "/")
    for language in ("py", "curly", "sh", "toml", "json", ""):
        joined = page.evaluate(
            "async ([texts, language]) => { const { lex } = await import('/static/code.js');"
            " return texts.map(t => lex(t, language).map(p => p[1]).join('')) }",
            [texts, language],
        )
        assert joined == texts


def _descends(every: dict[str, Any], name: str, ancestor: str) -> bool:
    while every[name].parents:
        name = every[name].parents[0]
        if name == ancestor:
            return True
    return False


def test_lineage(site: Site, tab: Tab):
    run = site.run("turboevolve-1")
    page = tab.open(site, "/r/turboevolve-1/lineage")
    best = views.best_result(run)
    assert best is not None
    line = views.lineage_steps(run, best.id)
    assert [row[1] for row in rows(page, "Path to the best")] == [step.row.id[:8] for step in line]
    assert page.locator(".tree .winning > div > .id").all_inner_texts() == [
        step.row.id[:8] for step in line
    ]
    gains = [shown(row[3]) for row in rows(page, "Path to the best")[1:]]
    assert gains == [pytest.approx(step.gain, abs=1e-4) for step in line[1:]]
    every = {row.id: row for row in views.candidate_rows(run, "old", limit=None)}
    middle = line[len(line) // 2].row.id
    kin = page.locator("c-family").evaluate(
        "(f, id) => { const k = f.kin(f.spec.doc.ids.indexOf(id)), name = p => f.spec.doc.ids[p];"
        " return [k.ancestors.map(name), k.descendants.map(name)]; }",
        middle,
    )
    above = [step.row.id for step in views.lineage_steps(run, middle)][:-1]
    below = {name for name in every if name != middle and _descends(every, name, middle)}
    assert (kin[0][::-1], set(kin[1])) == (above, below) and above and below
    at = page.locator("c-family").evaluate("(f, id) => f.spot(f.spec.doc.ids.indexOf(id))", best.id)
    page.locator("c-family canvas").click(position={"x": at[0], "y": at[1]})
    pane = page.locator("aside.pane")
    pane.wait_for()
    detail = views.candidate_detail(run, pane.locator("h2").first.inner_text())
    assert detail.row.id == best.id or detail.row.search_mean == pytest.approx(
        best.search_mean, rel=0.02
    )
    text = next(iter(detail.parts.values())).strip().splitlines()[0]
    assert (
        text in pane.inner_text() and pane.get_by_text("One by one, the newest first").count() == 1
    )
    pane.get_by_role("button", name="Close").click()
    assert pane.count() == 0
    page.get_by_role("button", name="Unfold all").click()
    fold = page.locator(".tree li:not(.winning) .fold[aria-expanded=false]").first
    name = fold.get_attribute("aria-label").split()[1]
    fold.click()
    parent = views.find_candidate(run, name)
    page.wait_for_selector(f"[aria-label='Fold {name}']")
    under = page.locator(
        "li", has=page.locator(f"> div > [aria-label='Fold {name}']")
    ).last.locator("> ul > li > div .id")
    children = {
        row.id[:8]
        for row in views.candidate_rows(run, "old", limit=None)
        if row.parents[:1] == (parent,)
    }
    assert set(under.all_inner_texts()) <= children and under.count() == min(12, len(children))


def test_memory_of_a_grid(site: Site, tab: Tab):
    run = site.run("turboevolve-1")
    page = tab.open(site, "/r/turboevolve-1/memory")
    notes = [note.entry.body for note in views.note_events(run, "event")]
    last = {body["island"]: body for body in notes}
    table = rows(page, "Islands")
    assert [shown(row[2]) for row in table] == [last[island]["cells"] for island in sorted(last)]
    placed = {
        child["id"]: child["reward"]
        for body in notes
        for child in body["candidates"]
        if "reward" in child
    }
    seeds = {
        s["id"]: s["reward"]
        for n in views.note_events(run, "seeded")
        for s in n.entry.body["seeds"]
    }
    labels = page.locator(".cells a").evaluate_all(
        "links => links.map(l => l.getAttribute('aria-label'))"
    )
    assert len(labels) > 20
    for label in labels:
        name, reward = re.match(r"(\w+): reward (\S+),", label).groups()  # pyright: ignore[reportOptionalMemberAccess]
        assert shown(reward) == pytest.approx({**seeds, **placed}[name], rel=1e-5)
    top = max(placed.values())
    assert any(
        shown(label.split("reward ")[1].split(",")[0]) == pytest.approx(top, rel=1e-5)
        for label in labels
    )


def test_memory_of_a_net(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/memory")
    embedded = {
        name for e in views.effect_results(run, "embed") for name in e.entry.body["candidates"]
    }
    drawn = [each for each in series(page) if each["name"] != "the best"]
    assert sum(len(each["points"]) for each in drawn) == len(embedded)
    size = views.note_events(run, "memory")[-1].entry.body["size"]
    assert shown(facts(page)["Programs in memory"]) == size
    assert "% of the spread" in page.locator("c-chart .axis-label").first.text_content()


def test_memory_of_ideas(site: Site, tab: Tab):
    """Pools island by island, from the newest note of each."""
    for name, islands in (("pace", 3), ("advisor", 4)):
        page = tab.open(site, f"/r/{name}/memory")
        newest = {
            note.entry.body["island"]: note.entry.body["ideas"]
            for note in views.note_events(site.run(name), "experiment")
        }
        expected = [
            [str(island), str(idea["number"]), idea["description"], str(idea["tries"])]
            for island, ideas in sorted(newest.items())
            for idea in ideas
        ]
        assert len(newest) == islands and len(expected) > islands
        assert rows(page, "Idea pool") == expected


def test_mechanism_of_training(site: Site, tab: Tab):
    """Alpha, advantages, rewards and versions barrier by barrier, as the strategy noted them."""
    page = tab.open(site, "/r/advisor/mechanism")
    barriers = [note.entry.body for note in views.note_events(site.run("advisor"), "barrier")]
    titles = page.locator(".plots h2").all_inner_texts()
    for title, values in (
        ("Alpha: weight of the late phase's advantages", [told["alpha"] for told in barriers]),
        ("Advantages", [each for told in barriers for each in told["advantages"]]),
        ("Rewards of the decisions", [each for told in barriers for each in told["rewards"]]),
        ("Policy version", [told["version"] for told in barriers]),
    ):
        assert len(set(values)) > 1
        assert [y for _, y in series(page, titles.index(title))[0]["points"]] == pytest.approx(
            values
        ), title
    page = tab.open(site, "/r/pace/mechanism")
    momenta = [note.entry.body for note in views.note_events(site.run("pace"), "experiment")]
    drawn = series(page, page.locator(".plots h2").all_inner_texts().index("Momentum"))
    told = {f"island {i}": [m["momentum"] for m in momenta if m["island"] == i] for i in range(3)}
    assert {each["name"]: [y for _, y in each["points"]] for each in drawn} == told


def test_memory_of_a_front(site: Site, tab: Tab):
    run = site.run("gepa-1")
    page = tab.open(site, "/r/gepa-1/memory")
    leads = views.note_events(run, "pareto")[-1].entry.body["leads"]
    found = {row[0]: int(row[1]) for row in rows(page, "Pareto front")}
    assert found == {name[:8]: count for name, count in leads.items()}
    titles = page.locator("td.cell").evaluate_all("cells => cells.map(c => c.title)")
    means = views.case_means(run, list(leads))
    assert len(titles) == sum(len(each) for each in means.values())
    some = next(iter(leads))
    assert f"case-0: {number_text(means[some]['case-0'])}" in [
        title.replace("−", "-") for title in titles
    ]


def test_mechanism(site: Site, tab: Tab):
    run = site.run("turboevolve-1")
    page = tab.open(site, "/r/turboevolve-1/mechanism")
    assert page.locator("h2").first.inner_text() == "K: candidates asked for at once"
    widths: dict[str, list[int]] = {}
    for note in views.note_events(run, "event"):
        widths.setdefault(f"island {note.entry.body['island']}", []).append(note.entry.body["k"])
    assert {each["name"]: [y for _, y in each["points"]] for each in series(page)} == widths
    assert {each["kind"] for each in series(page)} == {"step"}  # a count stays until it changes
    assert (
        facts(page)["Migrants that took a cell"] == "0"
        and "Migrants" not in page.locator(".plots").inner_text()
    )
    xs = [x for each in series(page) for x, _ in each["points"]]
    assert min(xs) >= 0 and max(xs) <= views.run_status(run).evaluations
    page = tab.open(site, "/r/polca-1/mechanism")
    page.wait_for_selector("h2:has-text('Mean rewards of the programs explored')")
    explored = [
        p["mean"]
        for n in views.note_events(site.run("polca-1"), "priority")
        for p in n.entry.body["parents"]
    ]
    place = (
        page.locator(".plots h2").all_inner_texts().index("Mean rewards of the programs explored")
    )
    assert [y for _, y in series(page, place)[0]["points"]] == [
        mean for mean in explored if mean is not None
    ]


def test_sessions(site: Site, tab: Tab):
    page = tab.open(site, "/r/agents/sessions")
    assert page.locator("h2").all_inner_texts()[:2] == ["In all", "Agent 0: builtin"]
    totals = page.locator("section[aria-label='In all'] .facts").inner_text().split()
    assert totals == [
        "agents",
        "2",
        "steps",
        "7",
        "experiments",
        "1",
        "tokens",
        "840",
        "dollars",
        "$0.0700",
    ]
    assert "The ring is loose." not in page.locator("main").inner_text()  # folded
    page.get_by_role("button", name="Read agent 0").click()
    page.get_by_role("button", name="Unfold these", exact=True).click()
    page.locator(".message-body").first.wait_for()
    text = page.locator("[data-key='agent-0']").inner_text()
    for expected in (
        "The ring is loose.",
        "candidates/a00/one.py, a wider ring",
        "notes/a00.md",
        "evaluator.py",
        "finished",
    ):
        assert expected in text
    assert page.locator(".patch li.add").all_inner_texts() == ["+Corners <b>matter</b>."]
    page.get_by_text("Transcript of its program").click()
    assert page.get_by_text("I read TASK.md first.").is_visible()
    assert "not part of the run" not in page.content()  # a transcript outside the run's folder
    assert (
        facts(page)["tokens"] == "240"
        or "600" in page.locator("[data-key='agent-0'] .facts").inner_text()
    )
    page = tab.open(site, "/r/agents/sessions?kind=wait")
    page.wait_for_function("() => document.querySelectorAll('.message').length === 1")
    page = tab.open(site, "/r/agents/sessions?text=circles.py")
    page.wait_for_function(
        "() => document.querySelector('.message')?.innerText.includes('TASK.md')"
    )
    assert page.locator(".message").count() == 1
    page = tab.open(site, "/r/polca-1/sessions")
    assert "No agent had a session" in page.locator("main").inner_text()


def test_calls(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/calls")
    costs = [each for each in views.call_costs(run) if each.usage.calls]
    table = rows(page, "Calls by role and model")
    assert [(row[0], row[1], shown(row[3])) for row in table] == [
        (c.role, c.model, c.usage.calls) for c in costs
    ]
    assert [shown(row[4]) for row in table] == [c.usage.input_tokens for c in costs]
    dear = sorted(
        r.usage.dollars
        for e in views.effect_results(run, "")
        if (r := e.entry.result) and hasattr(r, "usage")
    )
    paid = [float(row[3].lstrip("$")) for row in rows(page, "The dearest calls")]
    assert paid == [pytest.approx(each, abs=1e-4) for each in dear[::-1][:10]]
    now = views.run_status(run)
    bars = page.locator(".budget dd:not(:has(.meter))").all_inner_texts()
    assert bars == [f"{now.evaluations} of 160", f"{dollars_text(now.usage.dollars)} of $2.00"]
    assert page.locator("[data-role=pace]").count() == 0  # it goes nowhere any more
    told = facts(page)
    assert shown(told["calls"]) == sum(c.usage.calls for c in costs)
    assert told["dollars"] == dollars_text(sum(c.usage.dollars for c in costs))
    faults = {row[0]: (int(row[1]), int(row[2])) for row in rows(page, "Failures by kind")}
    results = [event.entry.result for event in views.effect_results(run, "propose")]
    asked = [result for result in results if isinstance(result, Proposal)]
    tried = sum(result.faults.get("rate_limited", 0) for result in asked)
    assert faults["unparsable"][1] == sum(result.fault == "unparsable" for result in asked) > 0
    assert faults["rate limited"] == (tried, 0) and tried > 0
    drawn = series(page)
    assert drawn[0]["points"][-1][1] == pytest.approx(sum(c.usage.dollars for c in costs))
    paid_by = sorted((c.usage.dollars for c in costs), reverse=True)
    assert len(paid_by) > 1 and [each["points"][-1][1] for each in drawn[1:]] == [
        pytest.approx(p) for p in paid_by
    ]
    assert {each["name"] for each in drawn[1:]} == {f"{c.role} · {c.model}" for c in costs}


def test_timeline(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/timeline")
    started = [mark for mark in views.effect_marks(run) if mark.kind == "started"]
    assert page.locator(".lanes rect").count() == len(started) == shown(facts(page)["effects"])
    drawn = {each["name"]: each["points"] for each in series(page)}
    assert set(drawn) == {mark.effect for mark in started}
    width = drawn["evaluate"][1][0] - drawn["evaluate"][0][0]
    ends = {mark.key: mark.elapsed for mark in views.effect_marks(run) if mark.kind == "done"}
    ran = sum(
        ends.get(mark.key, mark.elapsed) - mark.elapsed
        for mark in started
        if mark.effect == "propose"
    )
    assert sum(y for _, y in drawn["propose"]) * width == pytest.approx(ran, rel=0.02)
    assert rows(page, "Times without an evaluation")
    page.get_by_role("button", name="Closer").click()
    page.wait_for_function(
        "n => document.querySelectorAll('.lanes rect').length < n", arg=len(started)
    )
    assert 0 < page.locator(".lanes rect").count() < len(started)


def test_trust(site: Site, tab: Tab):
    run = site.run("polca-1")
    page = tab.open(site, "/r/polca-1/trust")
    verdict, seen = views.final_choice(run), views.run_integrity(run)
    assert verdict is not None
    told = facts(page)
    assert shown(told["fresh score"]) == pytest.approx(
        verdict["score"], abs=0.05 * verdict["margin"]
    )
    assert shown(told["standard deviation"]) == pytest.approx(seen.noise.sd, rel=0.05)
    tells_to = 0.05 * verdict["margin"]
    assert shown(told["search believed"]) == pytest.approx(verdict["search_score"], abs=tells_to)
    assert shown(told["gap, as reward"]) == pytest.approx(
        verdict["score"] - verdict["search_score"], abs=tells_to
    )
    assert page.locator("section[aria-label=Isolation] .pill").inner_text() == "namespaces"
    levels = rows(page, "Evaluations by level of trust")
    assert {row[0]: int(row[1]) for row in levels} == {
        SHOWN.get(name, name): n for name, n in seen.levels.items()
    }
    assert [row[0].split()[0] for row in rows(page, "Finalists")] == [
        name[:8] for name in verdict["finalists"]
    ]
    outcomes = {row[0]: int(row[1]) for row in rows(page, "Outcomes")}
    assert outcomes == views.run_status(run).statuses
    assert (
        "None was noticed"
        in page.locator("section[aria-label='Signs against integrity']").inner_text()
    )
    page = tab.open(site, "/r/hostile/trust")
    known = views.run_integrity(site.run("hostile"))
    kinds = page.locator("details[data-sign]").evaluate_all(
        "all => all.map(d => [d.dataset.sign, d.open, d.innerText])"
    )
    grave = {each.sign for each in known.findings if each.grave}
    times = Counter(each.sign for each in known.findings)
    assert grave and {name for name, _, _ in kinds} == set(times)
    assert [name in grave for name, _, _ in kinds] == sorted(
        (name in grave for name, _, _ in kinds), reverse=True
    )
    for name, is_open, text in kinds:
        assert is_open == (name in grave)  # notes are folded
        assert name not in grave or f"{times[name]} evaluation" in text


def test_compare(site: Site, tab: Tab):
    page = tab.open(site, "/compare?run=polca-1&run=polca-2&run=turboevolve-1")
    table = {row[0]: row for row in rows(page, "Runs")}
    assert set(table) == {"polca-1", "polca-2", "turboevolve-1"}
    for name, row in table.items():
        best = views.run_status(site.run(name)).best
        assert best is not None and shown(row[3]) == pytest.approx(best.score, rel=1e-5)
    drawn = [each for each in series(page) if each["name"]]
    assert [each["name"] for each in drawn] == ["polca, median of n = 2", "turboevolve, n = 1"]
    ends = [views.progress_points(site.run(name))[-1].mean for name in ("polca-1", "polca-2")]
    assert drawn[0]["points"][-1][1] == pytest.approx(sum(ends) / 2)
    page.get_by_label("turboevolve-1").uncheck()
    page.wait_for_function(
        "() => [...document.querySelectorAll('table')].at(-1).tBodies[0].rows.length === 2"
    )


def test_a_report_sorts_and_filters_as_the_server_does(site: Site, tab: Tab):
    """`pageOf` works on embedded rows; it must answer like the table of the database."""
    page = tab.open(site, "/")
    whole = {"rows": [], "offset": 0}
    asked: list[dict[str, str]] = [
        {"sort": sort, "order": order, "limit": "30", "offset": "10"}
        for sort in (
            "best",
            "mean",
            "count",
            "id",
            "island",
            "parents",
            "model",
            "expected",
            "seconds",
            "size",
            "dollars",
        )
        for order in ("asc", "desc")
        if (sort, order) != ("best", "desc")
    ]
    asked += [
        {"status": "failed"},
        {"status": "scored", "model": "small-model"},
        {"island": "2"},
        {"text": "a1"},
    ]
    asked += [{"trust": "verified"}, {"trust": "certified"}]
    answers = page.evaluate(
        """async asked => {
          const { pageOf } = await import("/static/data.js");
          const table = "/api/runs/turboevolve-1/candidates?";
          const get = async params => (await fetch(table + new URLSearchParams(params))).json();
          const whole = { rows: [] };
          for (let offset = 0; ; offset += 100) {
            const part = await get({ limit: 100, offset });
            whole.rows.push(...part.rows);
            if (!part.rows.length) break;
          }
          const ids = doc => [doc.total, doc.rows.map(row => row.id)];
          return Promise.all(asked.map(async params => [ids(pageOf(whole, params)), ids(await get(params))]));
        }""",
        asked,
    )
    assert whole["rows"] == [] and len(answers) == len(asked)
    for params, (mine, server) in zip(asked, answers, strict=True):
        assert mine == server, params


def test_the_gain_for_each_dollar_is_drawn_and_steps_are_qualified(site: Site, tab: Tab):
    doc = overview_page(Digest(site.run("polca-1")), {})
    page = tab.open(site, "/r/polca-1/overview?y=paid")
    drawn = page.evaluate("() => document.querySelector('c-chart').spec.series[0].points")
    paid = [point for point in doc["course"] if point["dollars"] > 0]
    gains = [(each["score"] - doc["lines"]["initial"]) / each["dollars"] for each in paid]
    assert gains and [y for _, y in drawn] == pytest.approx(gains)
    steps, told = doc["story"]["steps"], page.locator("[data-role=qualified]").all_inner_texts()
    assert len(told) == len(steps) > 0
    for text, step in zip(told, steps, strict=True):
        assert ("within noise on its own" in text) == (step["gain"] <= (step["gain_margin"] or 0))
        assert step["operator"].replace("_", " ") in text
