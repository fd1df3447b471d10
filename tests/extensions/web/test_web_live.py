"""The dashboard over a run that goes on: it follows, and a person acts from the page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from culmen.store import inbox, views
from culmen.store.journal import SqlJournal
from tests.cli.conftest import Place
from tests.cli.test_cli_ask import started
from tests.cli.test_cli_attend import running, wait
from tests.extensions.web import worlds
from tests.extensions.web.conftest import Tab, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]
COUNT = (
    "() => Number((document.querySelector('[data-role=cost]')?.innerText.match(/[0-9,]+/)?.[0]"
    " ?? '0').replaceAll(',', ''))"
)


def test_a_live_run_is_followed_told_and_stopped(tmp_path: Path, tab: Tab):
    place = Place(tmp_path)
    with running(place) as (process, run):
        site = served(tmp_path / "runs")
        page = tab.open(site, "/r/long/overview")
        page.wait_for_function("() => document.querySelector('.live').innerText === 'live'")
        before = page.evaluate(COUNT)
        page.evaluate("() => { window.kept = document.querySelector('c-chart') }")
        page.wait_for_function(f"before => ({COUNT})() > before + 5", arg=before)
        assert page.evaluate(
            "() => window.kept === document.querySelector('c-chart')"
        )  # drawn on, not anew

        pace = page.locator("[data-role=pace]").inner_text()
        assert "evaluations a minute" in pace and "are spent in about" in pace
        now = views.run_status(run)
        told = float(pace.split()[0].replace(",", ""))
        assert 0.5 < told / (60 * now.evaluations / now.elapsed_seconds) < 2

        page.get_by_role("button", name="Hint").click()
        page.get_by_label("What should be tried, or left?").fill("the answer is near seven <b>")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(
            lambda: [e.entry.body.get("text") for e in views.log_events(run, kinds=("tell",))],
            "the hint was not journaled",
        )

        page.get_by_role("button", name="Candidate", exact=True).click()
        page.locator("dialog").get_by_label("guess.py").fill("def run():\n    return 6.9375\n")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(
            lambda: any(row.count for row in views.candidate_rows(run, operator="person")),
            "it was not evaluated",
        )
        mine = views.candidate_rows(run, operator="person")[0]
        assert views.candidate_detail(run, mine.id).parts["guess.py"].endswith("6.9375\n")

        page = tab.open(site, "/r/long/candidates")
        find = page.get_by_label("Find")
        find.fill("person")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
        assert page.locator("tbody .id").inner_text() == mine.id[:8]
        page.wait_for_function(
            "() => document.activeElement.name === 'text'"
        )  # updates leave the focus alone

        page = tab.open(site, "/r/long/timeline")
        page.wait_for_selector("c-chart svg")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Send").click()
        process.communicate(timeout=120)
        assert (views.run_status(run).state, views.run_status(run).reason) == ("finished", "user")
        page.wait_for_function(
            "() => document.querySelector('.top .state').innerText === 'stopped'"
        )
        assert (
            page.get_by_role("button", name="Stop", exact=True).count() == 0
        )  # nothing to stop any more
        assert inbox.waiting_messages(run) == []


def test_a_person_answers_a_prompt_from_the_page(tmp_path: Path, tab: Tab):
    place = Place(tmp_path)
    place.task("peak")
    words = (
        "run",
        "peak",
        "--model",
        "ask",
        "--strategy",
        "best_of_n",
        "--workers",
        "1",
        "--run-dir",
        "runs/mine",
    )
    process = started(place, *words, "--budget", "evaluations=3,calls=1")
    try:
        wait((tmp_path / "runs" / "mine" / "journal.db").exists, "it did not begin")
        page = tab.open(served(tmp_path / "runs"), "/r/mine/overview")
        page.get_by_role(
            "button", name="Answer"
        ).wait_for()  # the prompt came while the page was open
        age = page.locator("section[aria-label='In flight'] [data-since]").first
        page.wait_for_function(
            "([node, before]) => node.innerText !== before",
            arg=[age.element_handle(), age.inner_text()],
        )
        assert (
            " already" in place.culmen("status", "runs/mine").out
        )  # nothing happens, and time goes on
        page.get_by_role("button", name="Answer").click()
        assert "guess.py" in page.locator("dialog pre").inner_text()
        page.get_by_label("Your answer").fill("```python\ndef run():\n    return 6.5\n```")
        page.locator("dialog").get_by_role("button", name="Send").click()
        page.wait_for_selector("section[aria-label='1 prompt for you']", state="detached")
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert "return 6.5" in place.culmen("best", "runs/mine").out


def test_runs_are_tagged_found_by_tag_and_put_away(runs: Path, tmp_path: Path, tab: Tab):
    for name in ("polca-1", "polca-2", "gepa-1"):
        shutil.copytree(runs / name, tmp_path / name)
    page = tab.open(served(tmp_path), "/")
    page.get_by_role("button", name="Tags and remark of polca-2").click()
    page.get_by_label("Tags, with commas between them").fill("paper, <b>bold</b>")
    page.locator("dialog").get_by_label("Remark").fill("the one of table 2")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector("dialog", state="detached")
    assert page.locator('tr[data-key="polca-2"] .labels .pill').all_inner_texts() == [
        "paper",
        "<b>bold</b>",
    ]
    page.locator("select[name=tag]").select_option("paper")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    page.get_by_role("link", name="polca-2").click()
    page.wait_for_selector(".top .sub .pill")
    assert "the one of table 2" in page.locator(".top .sub").inner_text()

    page = tab.open(served(tmp_path), "/")
    page.get_by_label("Pick gepa-1").check()
    page.get_by_label("Pick polca-2").check()
    page.get_by_role("link", name="Compare 2 runs").wait_for()  # both are picked
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type 2 to delete these 2 runs").fill("1")
    page.locator("dialog").get_by_role("button", name="Delete").click()
    assert (
        page.locator("dialog").is_visible() and (tmp_path / "gepa-1").exists()
    )  # not what it asked for
    page.get_by_label("Type 2 to delete these 2 runs").fill("2")
    page.locator("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    page.get_by_label("Pick polca-1").check()
    page.get_by_role("link", name="Compare 1 run").wait_for()
    page.get_by_role("button", name="Archive").click()
    page.locator("dialog").get_by_role("button", name="Archive").click()
    page.wait_for_selector("dialog", state="detached", timeout=60_000)
    assert [path.name for path in tmp_path.iterdir()] == ["polca-1.culmen.tar.xz"]


def test_without_the_token_a_page_can_look_but_not_act(tmp_path: Path, tab: Tab):
    place = Place(tmp_path)
    with running(place) as (_, run):
        site = served(tmp_path / "runs")
        tab.page.goto(site.url("/r/long/overview"))
        tab.page.wait_for_selector("[data-ready]")
        tab.page.wait_for_function(f"() => ({COUNT})() > 3")
        stop = tab.page.get_by_role("button", name="Stop", exact=True)
        assert stop.is_disabled() and "token" in stop.get_attribute("title")
        answer = tab.page.evaluate(
            "async () => (await fetch('/api/runs/long/stop', { method: 'POST', body: '{}',"
            " headers: { 'content-type': 'application/json' } })).status"
        )
        assert answer == 401 and inbox.waiting_messages(run) == []
    tab.page.wait_for_function(
        "() => document.querySelector('.top .state').innerText === 'interrupted'"
    )  # killed
    tab.complaints[:] = [text for text in tab.complaints if "status of 401" not in text]


@pytest.mark.parametrize("name", ["overview", "candidates", "lineage", "timeline"])
def test_hostile_texts_that_arrive_while_a_page_is_open_stay_texts(
    name: str, tmp_path: Path, tab: Tab
) -> None:
    done = worlds.hostile(tmp_path)
    first, *rest = (event.entry for event in SqlJournal.open(done).read(whole=True))
    with SqlJournal.create(tmp_path / "runs" / "live", views.run_meta(done)) as journal:
        journal.append([first])
        page = tab.open(served(tmp_path / "runs"), f"/r/live/{name}")
        before = page.locator(".top .state").inner_text()
        journal.append(rest)
    page.wait_for_function(
        "before => document.querySelector('.top .state').innerText !== before", arg=before
    )
    page.wait_for_function(
        "text => { document.querySelectorAll('details').forEach(d => { d.open = true });"
        " return document.body.textContent.includes(text) }",
        arg=worlds.EVERYTHING,
    )
    odd = "main img, main script, main style, main iframe, main [onerror], main [onload]"
    assert page.locator(odd).count() == 0 and page.evaluate("() => window.pwned") is None
