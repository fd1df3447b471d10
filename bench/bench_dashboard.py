"""Times of the dashboard on a long run.

A journal of 20,000 candidates is made and, as at the end of a search, read for its pages. Every
page's document is timed and, where Chromium is installed, how long the table of candidates takes in
a browser from its address to its rows. `--unprepared`: without the reading at the end.

    python bench/bench_dashboard.py [--candidates 20000] [--folder DIR] [--browser /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.gallery import Gallery, record, task

from culmen.core.usage import Budget
from culmen.extensions.web.pages import page_makers, prepare_pages
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import Dashboard, bind_port, encode_document, serve_dashboard
from culmen.store import sidecar
from culmen.strategies import catalog

T = TypeVar("T")


def made(folder: Path, candidates: int) -> Path:
    """A finished run of about this number of candidates, made on a virtual clock."""
    run = folder / f"long-{candidates}"
    if not run.exists():
        started = time.perf_counter()
        budget = Budget(evaluations=candidates)
        record(
            run,
            catalog.make_strategy("turboevolve", {}),
            budget=budget,
            about=task(deterministic=True),
            world=Gallery(sigma=0.0),
        )
        print(f"made {run} in {time.perf_counter() - started:.0f} s")
    return run


def page_times(run: Path, name: str) -> str:
    """Seconds and size of a page's document: as the first page of this process, and again."""
    page, digest = page_makers()[name], Digest(run)
    first, raw = clocked(lambda: encode_document(page(digest.refresh(), {})))
    again, raw = clocked(lambda: encode_document(page(digest.refresh(), {})))
    return f"{name:<12}  {first}  then {again}  {len(raw) / 1e3:9.1f} kB"


def documents(run: Path, prepared: bool) -> None:
    """Seconds of every page, each first in a process of its own; in brackets processor time."""
    if prepared:
        print(f"read at the end: {clocked(lambda: prepare_pages(run))[0]}")
    for name in page_makers():
        if not prepared:
            shutil.rmtree(run / sidecar.KEPT, ignore_errors=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            print(apart.submit(page_times, run, name).result())
    digest = Digest(run).refresh()
    for sort in ("mean", "count", "island", "trust", "operator"):
        wanted = {"sort": sort, "order": "desc", "offset": "10000"}
        took, _ = clocked(lambda wanted=wanted: page_makers()["candidates"](digest, wanted))
        print(f"candidates by {sort:<9} from 10,000 on {took}")


def clocked(make: Callable[[], T]) -> tuple[str, T]:
    """The document, and the seconds that making it took."""
    started, worked = time.perf_counter(), time.process_time()
    made = make()
    return f"{time.perf_counter() - started:6.3f} s ({time.process_time() - worked:5.3f})", made


def browser(run: Path, path: str) -> None:
    """Seconds until pages stand in a real browser, the server just started."""
    from playwright.sync_api import sync_playwright

    dashboard, listening, ready = Dashboard(run), bind_port(0), threading.Event()
    threading.Thread(
        target=serve_dashboard, args=(dashboard, listening, ready.set), daemon=True
    ).start()
    ready.wait()
    base = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    with sync_playwright() as playwright:
        chromium: Any = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = chromium.new_page()
        for name, wanted in (
            ("candidates", "tbody tr"),
            ("overview", "c-chart svg"),
            ("lineage", "c-family canvas"),
            ("memory", ".card"),
        ):
            started = time.perf_counter()
            page.goto(f"{base}#/r/{run.name}/{name}")
            page.wait_for_selector(f'main[data-key="{run.name}/{name}"] {wanted}')
            print(f"browser: {name:<10} {time.perf_counter() - started:6.3f} s")
        for label, act in (
            (
                "sorted by event",
                lambda: page.get_by_role("button", name="event", exact=True).click(),
            ),
            ("filtered", lambda: page.get_by_label("Status").select_option("failed")),
        ):
            page.goto(f"{base}#/r/{run.name}/candidates")
            page.wait_for_selector(f'main[data-key="{run.name}/candidates"] tbody tr')
            before = page.inner_text("tbody tr:first-child")
            started = time.perf_counter()
            act()
            page.wait_for_function(
                "before => document.querySelector('tbody tr').innerText !== before", arg=before
            )
            print(f"browser: {label:<15} {time.perf_counter() - started:6.3f} s")
        chromium.close()


def main() -> None:
    """Make the run, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--unprepared", action="store_true")
    parser.add_argument("--browser", default=shutil.which("chromium") or "")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder:
        run = made(chosen.folder or Path(folder), chosen.candidates)
        documents(run, not chosen.unprepared)
        if chosen.browser:
            browser(run, chosen.browser)


if __name__ == "__main__":
    main()
