"""The Lineage page of a run of many candidates whose descent is known.

Also glances at the changes of a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.extensions.web.pages.lineage import lineage_page
from culmen.extensions.web.report import gather_report, write_report
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import encode_document
from tests.extensions.web import worlds
from tests.extensions.web.conftest import Site, Tab, served
from tests.extensions.web.test_web_pages import rows
from tests.extensions.web.worlds import CHAIN, FAMILY, PATH, family_score


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, list[Candidate]]:
    """The run `family` and its candidates, and one whose first screen has a story."""
    folder = tmp_path_factory.mktemp("family")
    candidates = worlds.family(folder)
    worlds.verdicts(folder)
    return served(folder), candidates


def beside(step: int) -> list[int]:
    """Candidates that descend from a step of the path without being on it."""
    found = [n for n in range(PATH + CHAIN, FAMILY) if n * 7 % PATH == step]
    return [*range(PATH, PATH + CHAIN), *found] if step == 2 else found


def test_the_document_counts_every_candidate_and_stays_small(
    made: tuple[Site, list[Candidate]],
) -> None:
    site, candidates = made
    digest = Digest(site.run("family"))
    for params, end in (
        ({}, PATH - 1),
        ({"all": "1"}, PATH - 1),
        ({"to": candidates[PATH + 9].id}, PATH + 9),
    ):
        doc = lineage_page(digest, params)
        assert (
            len(encode_document(doc)) < 300_000
            and len(doc["ids"]) < FAMILY // 2
            and not doc["whole"]
        )
        assert sum(item["steps"] + item["tried"] for item in doc["line"]) == doc["total"] == FAMILY
        assert sum(doc["cells"]["count"]) == FAMILY and doc["to"] == candidates[end].id
        assert doc["unscored"] == sum(family_score(n) is None for n in range(FAMILY))
    whole = lineage_page(digest, {"all": "1"})
    assert [whole["ids"][place] for place in whole["path"]] == [
        each.id for each in candidates[:PATH]
    ]
    for item in whole["line"]:
        scores = [family_score(n) for n in beside(item["step"])]
        scored = [score for score in scores if score is not None]
        assert (item["tried"], item["lost"], item["top"]) == (
            len(scores),
            scores.count(None),
            max(scored, default=None),
        )
        assert sum(item["shape"]) == len(scored)
    short = lineage_page(digest, {})
    gaps = [item["steps"] for item in short["line"] if item["node"] < 0]
    assert len(short["path"]) < 24 and len(short["path"]) + sum(gaps) == PATH and min(gaps) > 1
    further: dict[str, Any] = lineage_page(digest, {"below": candidates[2].id, "offset": "0"})
    direct = [candidates[n].id for n in beside(2) if n not in range(PATH + 1, PATH + CHAIN)]
    assert further["total"] == len(direct) and set(further["ids"]) == set(direct)
    assert "there is no candidate 'abcdef'" in lineage_page(digest, {"to": "abcdef"})["unknown"]
    names = short["groups"]["operator"]
    assert (
        len(names["names"]) == 7 and sum(n for _, n in names["names"]) + names["more"][1] == FAMILY
    )


@pytest.mark.slow
@pytest.mark.browser
def test_a_large_family_is_folded_and_any_candidate_is_found_in_it(
    made: tuple[Site, list[Candidate]], tab: Tab
) -> None:
    site, candidates = made
    page = tab.open(site, "/r/family/lineage?by=operator")
    height = "() => document.documentElement.scrollHeight"
    assert page.evaluate(height) < 2.6 * 900
    key = page.locator(".family-key span").all_inner_texts()
    assert len(key) == 8 and key[-1].startswith("24 others (")
    colours = page.locator(".family-key i").evaluate_all(
        "all => all.map(i => getComputedStyle(i).backgroundColor)"
    )
    assert len(set(colours)) == 8
    merged = page.locator(f"[data-key='step-{candidates[PATH // 2].id}']")
    assert merged.count() == 0
    page.get_by_role("button", name="show all").first.click()
    merged.wait_for()
    assert [row[1] for row in rows(page, "Path to the best")] == [
        each.id[:8] for each in candidates[:PATH]
    ]
    assert f"with {candidates[1].id[:8]}" in merged.inner_text()  # the second parent of a merge
    assert f"island {(PATH // 2 - 1) % 3} → {PATH // 2 % 3}" in merged.inner_text()
    # of the third step all branches can be reached, more than were sent
    page.get_by_role("button", name=f"Unfold {candidates[2].id[:8]}").click()
    under = page.locator(f"[data-key='node-{candidates[2].id}'] > ul > li > div > .id")
    direct = {candidates[n].id[:8] for n in beside(2) if n not in range(PATH + 1, PATH + CHAIN)}
    assert under.count() == 12 and set(under.all_inner_texts()) < direct
    page.locator(f"[data-key='more-{candidates[2].id}'] button").click()
    page.locator(f"[data-key='more-{candidates[2].id}']").wait_for(state="detached")
    assert set(under.all_inner_texts()) == direct
    # down the chain, levels far below are no further to the right
    for n in range(PATH, PATH + CHAIN - 1):
        page.get_by_role("button", name=f"Unfold {candidates[n].id[:8]}").click()
        page.locator(f"[data-key='node-{candidates[n + 1].id}']").wait_for()
    lefts = [
        page.locator(f"[data-key='node-{candidates[n].id}'] > div").bounding_box()["x"]
        for n in (PATH + 9, PATH + 15)
    ]
    assert (
        lefts[0] == lefts[1] and page.evaluate("() => document.documentElement.scrollWidth") <= 1280
    )
    # one far down the chain, by its first digits
    far = candidates[PATH + CHAIN - 1]
    page.get_by_label("Path to", exact=True).fill(far.id[:9])
    page.get_by_label("Path to", exact=True).press("Enter")
    page.get_by_role("heading", name=f"Path to {far.id[:8]}").wait_for()
    line = [*range(3), *range(PATH, PATH + CHAIN)]
    page.wait_for_function(
        "n => document.querySelectorAll('.tree .winning').length === n", arg=len(line)
    )
    assert page.locator(".tree .winning > div > .id").all_inner_texts() == [
        candidates[n].id[:8] for n in line
    ]
    page.get_by_label("Path to", exact=True).fill("abcdef")
    page.get_by_label("Path to", exact=True).press("Enter")
    page.locator("[role=alert]", has_text="There is no candidate 'abcdef'").wait_for()
    tab.resize(390)


@pytest.mark.browser
def test_cells_tell_how_many_they_hold_and_open_the_best_of_them(
    made: tuple[Site, list[Candidate]], tab: Tab
) -> None:
    site, candidates = made
    page = tab.open(site, "/r/family/lineage")
    cell = page.locator("c-family").evaluate(
        "f => { const c = f.spec.doc.cells;"
        " const at = c.count.findIndex((n, i) => n > 1 && c.row[i] > 0 && c.column[i] > 40);"
        " const [l, t, r, b] = f.box(at);"
        " return { n: c.count[at], best: c.best[at], mean: c.mean[at], x: (l + r) / 2, y: (t + b) / 2 }; }"
    )
    canvas = page.locator("c-family canvas")
    canvas.hover(position={"x": cell["x"], "y": cell["y"]})
    assert page.locator(".family-tip").inner_text().startswith(f"{cell['n']} candidates")
    assert cell["mean"] == family_score([each.id for each in candidates].index(cell["best"]))
    canvas.click(position={"x": cell["x"], "y": cell["y"]})
    page.locator("aside.pane h2", has_text=cell["best"]).wait_for()
    page.get_by_role("button", name="Its path").click()
    page.get_by_role("heading", name=f"Path to {cell['best'][:8]}").wait_for()


@pytest.mark.browser
def test_a_change_is_seen_by_pointing_at_it_and_by_focus(
    made: tuple[Site, list[Candidate]], tab: Tab
) -> None:
    site, _ = made
    page, glance = tab.open(site, "/r/family/lineage"), tab.page.locator(".peek")
    change = page.get_by_role("button", name="lines").first
    change.hover()
    glance.wait_for()
    assert glance.locator("li.del").inner_text() == "RADIUS = 0"
    assert glance.locator("li.add").inner_text() == "RADIUS = 1"
    glance.hover()  # it stays while one reads it
    page.wait_for_timeout(400)
    assert glance.count() == 1
    page.mouse.move(5, 5)
    glance.wait_for(state="detached")
    page = tab.open(site, "/r/better/story")
    summary = page.locator(".story summary").first
    page.locator(".story .id").first.focus()
    page.keyboard.press("Tab")
    glance.wait_for()
    assert (
        summary.evaluate("s => s === document.activeElement")
        and "+RADIUS = 3" in glance.inner_text()
    )
    page.keyboard.press("Escape")
    glance.wait_for(state="detached")
    assert page.locator(".story details[open]").count() == 0
    summary.click()  # a click still opens it for good
    assert page.locator(".story details[open] .patch").count() == 1


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_report_paths_are_found_among_what_it_holds(
    made: tuple[Site, list[Candidate]], tab: Tab, tmp_path: Path
) -> None:
    site, candidates = made
    file = write_report(gather_report(Digest(site.run("family")), 3), tmp_path / "family.html")
    assert file < 2_000_000
    tab.page.goto(f"file://{tmp_path}/family.html#/r/family/lineage?to={candidates[PATH].id}")
    page = tab.page
    page.get_by_role("heading", name=f"Path to {candidates[PATH].id[:8]}").wait_for()
    shown = page.locator(".tree .winning > div > .id").all_inner_texts()
    assert shown == [candidates[n].id[:8] for n in (0, 1, 2, PATH)]
    page.get_by_label("Path to", exact=True).fill(candidates[PATH + 9].id)
    page.get_by_label("Path to", exact=True).press("Enter")
    page.locator("[role=alert]", has_text="culmen ui shows it").wait_for()
