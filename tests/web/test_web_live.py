"""The dashboard over a run that goes on: it follows, and a person acts on the run from the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.store import inbox, views
from tests.cli.conftest import Place
from tests.cli.test_cli_attend import running, wait
from tests.web.conftest import Tab, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]
COUNT = "() => Number((document.querySelectorAll('.tile .value')[1]?.innerText ?? '0').replaceAll(',', ''))"


def test_a_live_run_is_followed_told_and_stopped(tmp_path: Path, tab: Tab):
    place = Place(tmp_path)
    with running(place) as (process, run):
        site = served(tmp_path / "runs")
        page = tab.open(site, "/r/long/overview")
        page.wait_for_function("() => document.querySelector('.live').innerText === 'live'")
        before = page.evaluate(COUNT)
        page.evaluate("() => { window.kept = document.querySelector('c-chart') }")
        page.wait_for_function(f"before => ({COUNT})() > before + 5", arg=before)
        assert page.evaluate("() => window.kept === document.querySelector('c-chart')")  # drawn on, not anew

        pace = page.locator("[data-role=pace]").inner_text()
        assert "evaluations a minute" in pace and "are spent in about" in pace
        now = views.status(run)
        told = float(pace.split()[0].replace(",", ""))
        assert 0.5 < told / (60 * now.evaluations / now.elapsed_seconds) < 2

        page.get_by_role("button", name="Hint").click()
        page.get_by_label("What should be tried, or left?").fill("the answer is near seven <b>")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(lambda: [e.entry.body.get("text") for e in views.log(run, kinds=("tell",))], "the hint was not journaled")

        page.get_by_role("button", name="Candidate", exact=True).click()
        page.locator("dialog").get_by_label("guess.py").fill("def run():\n    return 6.9375\n")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(lambda: any(row.count for row in views.candidates(run, operator="person")), "it was not evaluated")
        mine = views.candidates(run, operator="person")[0]
        assert views.candidate(run, mine.id).parts["guess.py"].endswith("6.9375\n")

        page = tab.open(site, "/r/long/candidates")
        find = page.get_by_label("Find")
        find.fill("person")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
        assert page.locator("tbody .id").inner_text() == mine.id[:8]
        page.wait_for_function("() => document.activeElement.name === 'text'")  # updates leave the focus alone

        page = tab.open(site, "/r/long/timeline")
        page.wait_for_selector("c-chart svg")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Send").click()
        process.communicate(timeout=120)
        assert (views.status(run).state, views.status(run).reason) == ("finished", "user")
        page.wait_for_function("() => document.querySelector('.top .pill').innerText === 'finished'")
        assert page.get_by_role("button", name="Stop").count() == 0  # nothing to stop any more
        assert inbox.waiting(run) == []


def test_without_the_token_a_page_can_look_but_not_act(tmp_path: Path, tab: Tab):
    place = Place(tmp_path)
    with running(place) as (_, run):
        site = served(tmp_path / "runs")
        tab.page.goto(site.url("/r/long/overview"))
        tab.page.wait_for_selector("[data-ready]")
        tab.page.wait_for_function(f"() => ({COUNT})() > 3")
        stop = tab.page.get_by_role("button", name="Stop")
        assert stop.is_disabled() and "token" in stop.get_attribute("title")
        answer = tab.page.evaluate(
            "async () => (await fetch('/api/runs/long/stop', { method: 'POST', body: '{}',"
            " headers: { 'content-type': 'application/json' } })).status"
        )
        assert answer == 401 and inbox.waiting(run) == []
    tab.page.wait_for_function("() => document.querySelector('.top .pill').innerText === 'interrupted'")  # killed
    tab.complaints[:] = [text for text in tab.complaints if "status of 401" not in text]
