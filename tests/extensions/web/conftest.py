"""The dashboard's server on a free port over recorded runs, and a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from culmen.extensions.web.report import installed_browser
from culmen.extensions.web.server import Dashboard, bind_port, serve_dashboard
from culmen.strategies.catalog import strategy_paths
from tests.extensions.web import worlds

PAGES = (
    "overview",
    "candidates",
    "candidate",
    "story",
    "lineage",
    "memory",
    "mechanism",
    "sessions",
    "calls",
    "timeline",
    "trust",
)


@dataclass
class Site:
    """A running dashboard."""

    folder: Path
    base: str
    token: str

    def run(self, name: str) -> Path:
        """A run's folder."""
        return self.folder / name

    def url(self, path: str) -> str:
        """The address of a page of the front end."""
        return f"{self.base}/#{path}"


def served(folder: Path) -> Site:
    """Start a dashboard on a thread; it ends with the tests."""
    dashboard = Dashboard(folder, names={path: name for name, path in strategy_paths().items()})
    listening, ready = bind_port(0), threading.Event()
    threading.Thread(
        target=serve_dashboard, args=(dashboard, listening, ready.set), daemon=True
    ).start()
    assert ready.wait(60)
    return Site(folder, f"http://127.0.0.1:{listening.getsockname()[1]}", dashboard.token)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A dashboard over recorded runs, which tests only read."""
    folder = tmp_path_factory.mktemp("runs")
    worlds.recorded(folder)
    worlds.hostile(folder)
    worlds.agents(folder)
    worlds.empty(folder)
    worlds.advisors(folder)
    return served(folder)


@pytest.fixture(scope="module")
def runs(site: Site) -> Path:
    """The recorded runs, in their folder."""
    return site.folder


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, started once."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = installed_browser()
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium-headless-shell, or chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page of the browser, with everything it complained about."""

    page: Any
    complaints: list[str]

    def open(self, site: Site, path: str) -> Any:
        """Go to a page of the front end and wait until it stands."""
        if not self.page.url.startswith(site.base):
            self.page.goto(f"{site.base}/#token={site.token}")
            self.page.wait_for_selector("[data-ready]")
        parts = path.strip("/").partition("?")[0].split("/")
        key = f"{parts[1]}/{parts[2]}" if parts[0] == "r" else f"/{parts[0] or 'runs'}"
        self.page.evaluate("path => { location.hash = path }", path)
        self.page.wait_for_selector(f'main[data-key="{key}"]:not([aria-busy])')
        return self.page

    def resize(self, width: int, height: int = 844) -> None:
        """Change the window's size and wait until the page, charts included, is no wider."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function(
            "width => innerWidth === width && document.documentElement.scrollWidth <= width",
            arg=width,
        )


@pytest.fixture
def tab(chromium: Any) -> Iterator[Tab]:
    """A fresh page, 1280 wide; what it complains about fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: message.type in ("error", "warning") and complaints.append(message.text),
    )
    yield Tab(page, complaints)
    context.close()
    assert complaints == []
