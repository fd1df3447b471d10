"""Pages, runs, candidates and their texts are found and opened by the keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest

from culmen.store import views
from tests.extensions.web.conftest import Site, Tab

pytestmark = pytest.mark.browser

FOCUSED = (
    "() => document.activeElement.innerText || document.activeElement.getAttribute('placeholder')"
)


def options(page: Any) -> list[str]:
    """Options that the palette lists."""
    return page.locator(".palette [role=option]").all_inner_texts()


@pytest.mark.slow
def test_the_palette_finds_pages_runs_candidates_and_texts(site: Site, tab: Tab):
    run = site.run("map_elites-1")
    page = tab.open(site, "/r/map_elites-1/overview")
    page.keyboard.press("Control+k")
    page.wait_for_function("() => document.querySelectorAll('.palette [role=option]').length > 12")
    assert options(page)[:2] == ["Result", "Candidates"] and "How it got there: Lineage" in options(
        page
    )
    page.keyboard.type("what it cost time")
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-key="map_elites-1/timeline"]:not([aria-busy])')
    page.wait_for_function("() => document.activeElement.tagName === 'H1'")
    sought = views.candidate_rows(run, limit=1)[0]
    found = views.search_candidates(run, "skill =")
    for text, expected in (
        (sought.id[:6], sought.id),
        ("SKILL =", found.lines[0].text),
        ("polca-2", "polca-2"),
    ):
        page.keyboard.press("Control+k")
        page.keyboard.type(text)
        page.wait_for_function(
            "text => document.querySelector('.palette [role=option]')?.innerText.startsWith(text)",
            arg=expected,
        )
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        chosen = page.locator(
            f"#{page.locator('.palette input').get_attribute('aria-activedescendant')}"
        )
        assert chosen.get_attribute("aria-selected") == "true" and expected in chosen.inner_text()
        page.keyboard.press("Enter")
        wanted = (
            expected
            if expected == "polca-2"
            else f"id={sought.id if text == sought.id[:6] else found.lines[0].id}"
        )
        page.wait_for_function("text => location.hash.includes(text)", arg=wanted)
    page.keyboard.press("Control+k")
    page.keyboard.type("<img src=x onerror=window.pwned=1>")
    page.wait_for_function(
        "() => document.querySelector('.palette [role=status]').innerText === 'Nothing found.'"
    )
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog')")


def test_rows_filter_and_keys(site: Site, tab: Tab):
    page = tab.open(site, "/r/turboevolve-1/candidates")
    ids = page.locator("tbody td:first-child .id").all_inner_texts()
    for key, expected in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        assert page.evaluate(FOCUSED) == ids[expected]
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-key="turboevolve-1/candidate"]:not([aria-busy])')
    tab.open(site, "/")
    page.keyboard.press("/")
    page.keyboard.type("polca jk?/")  # written, not obeyed
    page.wait_for_function("() => location.hash.includes('polca')")
    assert page.locator("main input[type=search]").input_value() == "polca jk?/"
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("?")
    assert "the next and the previous row" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog')")


def test_a_search_is_bounded_and_counts_what_lines_share(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("culmen.store.views.listing._AT_ONCE", 50)
    run = site.run("map_elites-1")
    every = views.candidate_rows(run, "old", limit=None)
    found = views.search_candidates(run, "Radii = []")
    assert [(each.text, each.id, each.count) for each in found.lines] == [
        ("radii = []", every[0].id, len(every))
    ]
    assert found.searched == found.all == len(every) and not found.remarks
    short = views.search_candidates(run, "skill", limit=3, max_bytes=1)
    assert len(short.lines) == 3 and short.searched == 50 < short.all
    remark = views.search_candidates(site.run("hostile"), "ONERROR").remarks[0]
    assert "onerror" in remark.text and not remark.part and remark.line == 0
    assert views.search_candidates(run, every[5].id[:5]).ids[0] == every[5].id
