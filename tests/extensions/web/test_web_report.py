"""A report: one file from disk, with nothing from elsewhere.

It has the right numbers, and texts that stay texts.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import JournalDamaged, UserError
from culmen.extensions.web import report
from culmen.extensions.web import report as gathering
from culmen.extensions.web import report as paper
from culmen.extensions.web.pages.report import report_page
from culmen.extensions.web.report import gather_report, module_addresses, write_report
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import STATIC
from culmen.store import views
from culmen.strategies import catalog
from tests.cli.conftest import EVALUATOR, SEED, Place
from tests.extensions.web.conftest import PAGES
from tests.extensions.web.test_web_pages import facts, rows
from tests.extensions.web.worlds import EVERYTHING


class Elements(HTMLParser):
    """A parser's view of a page: elements with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.within = False
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))
        self.within = True

    def handle_endtag(self, tag: str) -> None:
        self.within = False

    def handle_data(self, data: str) -> None:
        if self.found and self.within:
            self.found[-1][2].append(data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, "".join(text)) for name, attrs, text in self.found if name == tag]


def made(run: Path, **limits: int) -> tuple[str, Any]:
    """The text of a report and its documents, as a browser would parse them."""
    text = report.report_page(gather_report(Digest(run), **limits))
    whole = next(
        text
        for attrs, text in Elements(text).of("script")
        if attrs.get("type") == "application/json"
    )
    return text, json.loads(whole)


def test_hostile_texts_add_no_element(runs: Path):
    text, documents = made(runs / "hostile")
    elements = Elements(text)
    tags = [tag for tag, _, _ in elements.found]
    assert (tags.count("script"), tags.count("style"), tags.count("img"), tags.count("svg")) == (
        3,
        1,
        0,
        0,
    )
    assert not any(name.startswith("on") for _, attrs, _ in elements.found for name in attrs)
    embedded = text.partition('id="culmen-documents">')[2].partition("</script>")[0]
    assert "<" not in embedded
    whole = documents["candidates"][views.candidate_rows(runs / "hostile", "new", limit=1)[0].id]
    assert whole["prompt"] == EVERYTHING and whole["parts"][EVERYTHING] == EVERYTHING + "\nmore"


@pytest.mark.slow
def test_its_policy_allows_its_own_scripts_and_style_and_nothing_else(runs: Path):
    nonces = set[str]()
    for run in ("polca-1", "turboevolve-1"):
        elements = Elements(made(runs / run)[0])
        policy = next(a["content"] or "" for a, _ in elements.of("meta") if a.get("http-equiv"))
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        kinds = {attrs["type"]: attrs.get("nonce") for attrs, _ in elements.of("script")}
        assert kinds["importmap"] == kinds["module"] and kinds["application/json"] is None
        assert rules["script-src"] == f"'nonce-{kinds['module']}'"
        nonces.add(rules["script-src"])
        ((_, style),) = elements.of("style")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert rules["style-src"] == f"'sha256-{digest}'"
    assert len(nonces) == 2  # no text of a run can know the nonce of the file that holds it
    assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
    links = [
        value
        for _, attrs, _ in elements.found
        for name, value in attrs.items()
        if name in ("src", "href")
    ]
    assert links and all(link and link.startswith("data:") for link in links)
    assert "url(" not in style and "@import" not in style


def test_nothing_tells_of_the_machine_it_was_made_on(runs: Path):
    text, _ = made(runs / "polca-1")
    assert str(runs) not in text


def test_a_journal_that_another_program_changed_makes_no_report(runs: Path, tmp_path: Path):
    run = tmp_path / "copy"
    shutil.copytree(runs / "polca-1", run)
    with contextlib.closing(sqlite3.connect(run / "journal.db")) as raw, raw:
        raw.execute("UPDATE observation SET score = score + 1 WHERE score IS NOT NULL")
    with pytest.raises(JournalDamaged, match="is not the one in the event"):
        gather_report(Digest(run))


@pytest.mark.slow
def test_what_is_bounded_is_said(runs: Path, monkeypatch: pytest.MonkeyPatch):
    run = runs / "turboevolve-1"
    whole = gather_report(Digest(run), full=10_000)
    every = views.candidate_page(run, views.CandidateQuery(limit=1)).all
    assert (whole.left_out, whole.full, whole.rows) == ([], every, every)
    some = gather_report(Digest(run), full=3, rows=20)
    assert [row["id"] for row in some.documents["pages"]["candidates"]["rows"]] == [
        row.id for row in views.candidate_rows(run, limit=20)
    ]
    assert some.left_out == [
        f"Candidates, the table: all but the best 20 of {every}.",
        f"Texts, evaluations and prompts of {every - some.full} of {every} candidates.",
    ]
    best = views.best_result(run)
    assert best is not None
    line = {step.row.id for step in views.lineage_steps(run, best.id)}
    leaders = {row.id for row in views.candidate_rows(run, limit=3)}
    assert line | leaders <= set(some.documents["candidates"]) and some.full < every
    monkeypatch.setattr(gathering, "_BOUNDS", (8_000_000, 1_000_000, 20_000))
    assert gather_report(Digest(run)).full < some.full
    monkeypatch.setattr(gathering, "_BOUNDS", (10, 1_000_000, 20_000))
    assert any(
        each.startswith("Overview: the ends") for each in gather_report(Digest(run)).left_out
    )


def test_long_texts_are_cut_and_marked(runs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathering, "_BOUNDS", (8_000_000, 1_000, 24_000_000))
    monkeypatch.setattr(gathering, "_TEXTS", (100,))
    found = gather_report(Digest(runs / "hostile"))
    child = found.documents["candidates"][
        views.candidate_rows(runs / "hostile", "new", limit=1)[0].id
    ]
    assert (
        child["prompt"]
        == f"{EVERYTHING[:100]}\n... {len(EVERYTHING) - 100} characters are not in this report"
    )
    assert any("The ends of the longest texts" in each for each in found.left_out)


@pytest.mark.slow
@pytest.mark.browser
def test_a_full_report_holds_every_text_uncut_and_compressed(
    runs: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    run = runs / "hostile"
    for name, value in (("_BOUNDS", (10, 10, 10)), ("_TEXTS", (1,))):
        monkeypatch.setattr(gathering, name, value)
    plain = write_report(
        gather_report(Digest(runs / "turboevolve-1"), 10_000), disk.folder / "plain.html"
    )
    full = write_report(
        gather_report(Digest(runs / "turboevolve-1"), None), disk.folder / "full.html"
    )
    assert full < plain  # though it holds more
    told = gather_report(Digest(run), None)
    assert (told.full, told.left_out) == (told.candidates, [])
    disk.report(run, full=None)
    child = views.candidate_rows(run, "new", limit=1)[0].id
    page = disk.show("hostile", f"candidate?id={child}")
    assert EVERYTHING in page.evaluate("() => document.querySelector('main').textContent")
    assert "Nothing was left out" in page.inner_text("footer")


def test_modules_import_each_other_by_their_names_in_the_map():
    found = module_addresses(STATIC)
    assert list(found) == [
        f"culmen/{path.relative_to(STATIC)}" for path in sorted(STATIC.rglob("*.js"))
    ]
    imports = 0
    for address in found.values():
        assert address.startswith("data:text/javascript;base64,")
        text = base64.b64decode(address.partition(",")[2]).decode()
        named = re.findall(r'^import\b.*"([^"]*)";$', text, re.M)
        assert {*named} <= {*found} and not re.search(r'from "\.|import "\.|import\("', text)
        imports += len(named)
    assert imports > 50


def culmen(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "culmen.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


@pytest.mark.slow
def test_the_verb(runs: Path, tmp_path: Path):
    done = culmen("report", str(runs / "polca-1"), "-o", "here/report.html", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (
        done.returncode == 0
        and told["run"] == "polca-1"
        and told["left_out"] == []
        and told["pdf"] is None
    )
    assert told["bytes"] == (tmp_path / "here" / "report.html").stat().st_size
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["report.html"]
    assert culmen("report", str(runs / "polca-1"), "--full", "all", cwd=tmp_path).returncode == 0
    wrong = culmen("report", str(runs / "polca-1"), "--full", "most", cwd=tmp_path)
    assert wrong.returncode == 2 and "--full all" in wrong.stderr
    plain = culmen("report", str(runs / "turboevolve-1"), "--full", "2", cwd=tmp_path)
    assert (tmp_path / "turboevolve-1-report.html").is_file() and "Not in it:" in plain.stdout
    assert culmen("report", str(runs / "polca-1"), "-o", ".", cwd=tmp_path).returncode == 2
    (tmp_path / "file").write_text("")
    assert (
        culmen("report", str(runs / "polca-1"), "-o", "file/report.html", cwd=tmp_path).returncode
        == 2
    )


def test_without_a_browser_there_is_no_pdf_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no Chromium"):
        paper.find_browser()


class Disk:
    """A browser page on a report from disk, without a network."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(60_000)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text)
        )

    def report(self, run: Path, **limits: int | None) -> str:
        """Write a report and open it; its address."""
        path = self.folder / f"{run.name}.html"
        report.write_report(gather_report(Digest(run), **limits), path)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("[data-ready]")
        return path.as_uri()

    def show(self, run: str, path: str) -> Any:
        """Go to a page of the run."""
        self.page.evaluate("path => { location.hash = path }", f"/r/{run}/{path}")
        key = f"{run}/{path.partition('?')[0]}"
        self.page.wait_for_selector(f'main[data-key="{key}"]:not([aria-busy])')
        return self.page


@pytest.fixture
def disk(chromium: Any, tmp_path: Path) -> Iterator[Disk]:
    """A browser without network: requests beyond the file and complaints fail the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    found = Disk(context.new_page(), tmp_path)
    yield found
    context.close()
    assert found.complaints == []
    assert found.asked and all(address.startswith(("file://", "data:")) for address in found.asked)
    assert {
        address.partition("#")[0] for address in found.asked if address.startswith("file:")
    } <= {path.as_uri() for path in tmp_path.glob("*.html")}


@pytest.mark.slow
@pytest.mark.browser
def test_every_page_from_disk(runs: Path, disk: Disk):
    """Right numbers on each page, also after a reload and by the links of the pages themselves."""
    run = runs / "polca-1"
    address = disk.report(run)
    now, best = views.run_status(run), views.best_result(run)
    assert now.best is not None and best is not None
    page = disk.show("polca-1", "overview")
    standing = page.locator("[data-role=standing]").inner_text()
    assert standing.startswith(now.best.id[:8]) and f"{now.candidates:,} candidates" in standing
    assert page.locator(".actions button").count() == 0  # nobody can be told anything
    assert "culmen ui" in page.locator("footer.made").inner_text()
    for name in PAGES:
        text = disk.show("polca-1", name).locator("main").inner_text()
        assert len(text) > 60 and not any(odd in text for odd in ("undefined", "NaN", "[object")), (
            name
        )
    page.keyboard.press("Control+k")
    page.keyboard.type("skill =")
    found = views.search_candidates(run, "skill =").lines
    page.wait_for_function(
        "n => document.querySelectorAll('.palette code').length === n", arg=len(found)
    )
    assert page.locator(".palette code").all_inner_texts() == [each.text for each in found]
    page.keyboard.press("Escape")
    assert facts(disk.show("polca-1", "timeline"))["workers"] == str(now.workers)
    path = rows(disk.show("polca-1", "lineage"), "Path to the best")
    assert [row[1] for row in path] == [
        step.row.id[:8] for step in views.lineage_steps(run, best.id)
    ]
    page.get_by_role("button", name=re.compile(r"\d lines$")).last.click()
    page.wait_for_selector(".code.diff")
    disk.show("polca-1", "calls")
    page.reload()
    page.wait_for_selector('main[data-key="polca-1/calls"]:not([aria-busy])')
    page.goto(f"{address}#/compare")
    page.wait_for_function(
        "() => document.querySelector('main').innerText.includes('This report holds')"
    )


@pytest.mark.slow
@pytest.mark.browser
def test_the_table_from_disk_sorts_filters_and_turns_pages(runs: Path, disk: Disk):
    run = runs / "turboevolve-1"
    disk.report(run, full=2)
    page = disk.show("turboevolve-1", "candidates")

    def first(row: str) -> None:
        page.wait_for_function(
            "id => document.querySelector('tbody .id')?.innerText === id", arg=row
        )

    assert [row[0].split()[0] for row in rows(page, "Candidates")] == [
        r.id[:8] for r in views.candidate_rows(run, limit=50)
    ]
    page.get_by_role("button", name="Next").click()
    first(views.candidate_rows(run, offset=50, limit=1)[0].id[:8])
    page.get_by_role("button", name="mean", exact=True).click()
    first(views.candidate_rows(run, "score", limit=1)[0].id[:8])
    failed = [
        row.id
        for row in views.candidate_rows(run, "old", limit=None)
        if row.failed and not row.count
    ]
    page.get_by_label("Status").select_option("failed")
    page.wait_for_function(
        "n => document.querySelectorAll('tbody tr').length === n", arg=len(failed)
    )
    missing = views.candidate_rows(run, "worst", limit=1)[0].id
    page.evaluate("path => { location.hash = path }", f"/r/turboevolve-1/candidate?id={missing}")
    page.wait_for_function(
        "() => document.querySelector('main').innerText.includes('does not hold the texts')"
    )
    assert "Texts, evaluations and prompts of" in page.locator("footer.made").inner_text()


@pytest.mark.browser
def test_hostile_texts_stay_texts_from_disk(runs: Path, disk: Disk):
    disk.report(runs / "hostile")
    seen = ""
    for name in (*PAGES, "print"):
        page = disk.show("hostile", name)
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("() => window.pwned") is None, name
        odd = "main img, main script, main style, main iframe, main [onerror], main [onload]"
        assert page.locator(odd).count() == 0, name
        seen += page.evaluate("() => document.getElementById('app').textContent")
    assert seen.count(EVERYTHING) > 20
    refused = disk.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } }"
    )
    assert refused
    disk.complaints[:] = [
        text for text in disk.complaints if "TrustedHTML" not in text
    ]  # what was just refused


@pytest.mark.browser
@pytest.mark.parametrize("name", ["empty", "agents"])
def test_runs_without_candidates_from_disk(runs: Path, disk: Disk, name: str):
    disk.report(runs / name)
    for each in PAGES:
        if each != "candidate":
            assert len(disk.show(name, each).locator("main").inner_text()) > 30
    disk.page.evaluate("path => { location.hash = path }", f"/r/{name}/candidate")
    disk.page.wait_for_function(
        "() => document.querySelector('main').innerText.includes('does not hold')"
    )


@pytest.mark.browser
def test_the_pdf_holds_every_page(runs: Path, tmp_path: Path):
    if paper.installed_browser() is None:
        pytest.skip("there is no Chromium: apt-get install chromium-headless-shell, or chromium")
    size = paper.print_pdf(gather_report(Digest(runs / "polca-1")), tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert size == len(data) and data.startswith(b"%PDF")
    assert max(int(n) for n in re.findall(rb"/Count (\d+)", data)) >= 6
    assert b"file://" not in data


@pytest.mark.browser
def test_sheets_follow_one_another_and_the_appendix_begins_early(runs: Path, disk: Disk):
    disk.report(runs / "map_elites-1")
    page = disk.show("map_elites-1", "print")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 1047})  # an A4 sheet within its margins
    breaks = page.locator(".sheet").evaluate_all(
        "all => all.map(e => getComputedStyle(e).breakBefore)"
    )
    assert breaks[:2] == ["auto", "page"] and {*breaks[2:]} == {"auto"}  # none is left half empty
    assert page.locator(".appendix").evaluate("e => e.getBoundingClientRect().top") < 6 * 1047
    long = page.locator(".card:not(.one-page > .card):not(:has(c-chart))")
    assert {*long.evaluate_all("all => all.map(e => getComputedStyle(e).breakInside)")} == {"auto"}


def test_a_large_report_is_compressed(runs: Path, monkeypatch: pytest.MonkeyPatch):
    plain = gather_report(Digest(runs / "polca-1"))
    monkeypatch.setattr(gathering, "_PLAIN", 10)
    packed = gather_report(Digest(runs / "polca-1"))
    assert (plain.packed, packed.packed) == (False, True)
    assert len(report.report_page(packed)) < len(report.report_page(plain))


@pytest.mark.parametrize("task", ["peak", "alone.py"])
def test_the_command_of_a_report_makes_the_same_run_again(tmp_path: Path, task: str) -> None:
    """The task as it was given, and every setting that is not the default."""
    place = Place(tmp_path)
    place.task("peak")
    (place.root / "alone.py").write_text(f'SEED = """{SEED}"""\n' + EVALUATOR)
    settings = ("--strategy", "map_elites", "--set", "features=off, complexity", "--set", "bins=4")
    settings = ("--strategy", "best_of_n", "--set", "lanes=1") if task == "alone.py" else settings
    limits = ("--budget", "evaluations=12", "--workers", "1", "--run-dir", "first", "--json")
    made = place.here("run", task, *settings, *limits)
    assert made.code == 0, made.err + made.out
    with contextlib.chdir(place.root):
        run = Digest(
            place.root / "first", catalog.names_by_path(), settings=catalog.stored_settings
        )
        page = report_page(run, {})
    ((_, command),) = [pair for pair in page["reproduce"] if "search anew" in pair[0]]
    words = shlex.split(command)
    assert words[:3] == ["culmen", "run", task]
    again = place.here(*words[1:], "--run-dir", "second", "--json")
    assert again.code == 0, again.err + again.out
    first, second = (json.loads(each.out) for each in (made, again))
    assert (first["best"]["id"], first["evaluations"]) == (
        second["best"]["id"],
        second["evaluations"],
    )
    first, second = (views.run_meta(place.root / name).strategy for name in ("first", "second"))
    assert first == second
