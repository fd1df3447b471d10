"""The dashboard over a database.

Runs that are copied there stand beside one that another process is making just now.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import encode_document
from culmen.store import inbox, transfer, views
from culmen.store.address import local_folder, parse_address
from culmen.store.lease import current_owner
from tests.cli.conftest import Place
from tests.cli.test_cli_attend import NOISY, begun, wait
from tests.extensions.web.conftest import Site, Tab, served
from tests.extensions.web.test_web_live import COUNT
from tests.extensions.web.test_web_pages import rows
from tests.postgres import PASSWORD, Server

pytestmark = [pytest.mark.browser, pytest.mark.postgres, pytest.mark.slow]
COPIED = ("polca-1", "turboevolve-1", "gepa-1")
PATIENCE = 240.0  # seconds, for a machine that is busy


@contextmanager
def owned(place: Place, address: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run in a database by a process that knows nothing of this one's folders.

    It goes on until it is stopped.
    """
    place.task("peak", toml=NOISY)
    command = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "run",
        "peak",
        "--budget",
        "evaluations=1000000",
        "--quiet",
    ]
    env = {**os.environ, "HOME": str(place.root), "XDG_CACHE_HOME": str(place.root / "owner")}
    command += ["--run-dir", "elsewhere", "--db", address, "--json"]
    process = subprocess.Popen(command, cwd=place.root, env=env, stdout=subprocess.PIPE, text=True)
    run = local_folder(parse_address(address))
    try:
        wait(lambda: begun(run), "it never began", PATIENCE)
        yield process, run
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def database_and_site(
    site: Site, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Site]:
    """The URL of a database with three finished runs, and a dashboard over all of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "looking"))
    database = postgres_server.new_database()
    for name in COPIED:
        transfer.copy_run(site.run(name), parse_address(database, name))
    return database, served(local_folder(parse_address(database)))


@pytest.mark.timeout(600)
def test_a_run_that_another_process_makes_is_followed_told_and_stopped(
    database_and_site: tuple[str, Site], tmp_path: Path, tab: Tab
) -> None:
    database, dashboard = database_and_site
    page = tab.open(dashboard, "/")
    assert {row[0]: row[1] for row in rows(page, "Runs")} == dict.fromkeys(COPIED, "finished")
    with owned(Place(tmp_path), f"{database}#long") as (process, run):
        assert current_owner(run).pid == process.pid
        page.wait_for_selector("main td a >> text=long")  # the list brings itself up to date
        page.wait_for_function(
            "() => document.querySelector('main tbody tr').innerText.includes('running')"
        )
        assert len(rows(page, "Runs")) == 4

        page = tab.open(dashboard, "/r/long/overview")
        page.wait_for_function("() => document.querySelector('.live').innerText === 'live'")
        before = page.evaluate(COUNT)
        page.evaluate("() => { window.kept = document.querySelector('c-chart') }")
        page.wait_for_function(f"before => ({COUNT})() > before + 5", arg=before)
        assert page.evaluate("() => window.kept === document.querySelector('c-chart')")
        page.locator("details.rest > summary").click()
        assert (
            PASSWORD not in page.content()
            and str(parse_address(database)) in page.locator("body").inner_text()
        )

        page.get_by_role("button", name="Hint").click()
        page.get_by_label("What should be tried, or left?").fill("the answer is near seven <b>")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(
            lambda: views.log_events(run, kinds=("tell",)),
            "the hint did not reach the owner",
            PATIENCE,
        )
        assert (
            views.log_events(run, kinds=("tell",))[0].entry.body["text"]
            == "the answer is near seven <b>"
        )

        page.get_by_role("button", name="Candidate", exact=True).click()
        page.get_by_label("guess.py", exact=True).fill("def run():\n    return 6.9375\n")
        page.get_by_role("button", name="Send").click()
        page.wait_for_selector("dialog", state="detached")
        wait(
            lambda: any(row.count for row in views.candidate_rows(run, operator="person")),
            "never evaluated",
            PATIENCE,
        )
        mine = views.candidate_rows(run, operator="person")[0].id

        page = tab.open(dashboard, f"/r/long/candidate?id={mine}")
        page.wait_for_selector("text=6.9375")
        page = tab.open(dashboard, f"/r/long/lineage?id={mine}")
        page.wait_for_selector("c-family canvas")

        page = tab.open(dashboard, "/r/long/overview")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Send").click()
        process.communicate(timeout=PATIENCE)
        assert (views.run_status(run).state, views.run_status(run).reason) == ("finished", "user")
        page.wait_for_function(
            "() => document.querySelector('.top .state').innerText === 'stopped'"
        )
        assert inbox.waiting_messages(run) == [] and process.returncode == 0


def test_pages_of_a_run_in_a_database_say_what_those_of_its_folder_do(
    database_and_site: tuple[str, Site], site: Site, tab: Tab
):
    database, dashboard = database_and_site
    for name in ("polca-1", "gepa-1"):
        best = views.run_status(site.run(name)).best
        assert best is not None
        found: list[dict[str, object]] = []
        for run in (site.run(name), local_folder(parse_address(database, name))):
            params = {"id": best.id, "sort": "mean", "text": "a"}
            pages = {
                page: make(Digest(run).refresh(), params) for page, make in page_makers().items()
            }
            for page in ("head", "overview"):
                del pages[page]["path"]
            found.append(rounded(msgspec.json.decode(encode_document(pages))))
        for page in page_makers():
            assert found[0][page] == found[1][page], page
    page = tab.open(dashboard, "/compare?run=polca-1&run=turboevolve-1")
    page.wait_for_function("() => document.querySelectorAll('c-chart svg').length > 0")


def rounded(value: Any) -> Any:
    """Databases add up in ways of their own: means may differ in the last digit."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
