"""Every page passes axe-core, at no more than minor findings, light and dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.web.conftest import Site, Tab
from tests.extensions.web.test_web_care import EVERY

SCRIPT = os.environ.get("CULMEN_TEST_AXE")  # the file axe.min.js of the package axe-core

FAULTS = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.filter((each) => ["moderate", "serious", "critical"].includes(each.impact))
    .map((each) => [each.id, each.impact, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))]);
}"""


def faults(page: Any) -> list[Any]:
    """Rules of axe-core that the page breaks, with elements."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(Path(str(SCRIPT)).read_text(encoding="utf-8"))
    return page.evaluate(FAULTS)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(not SCRIPT, reason="CULMEN_TEST_AXE names no axe.min.js")
@pytest.mark.timeout(600)
def test_axe_finds_nothing_of_weight(site: Site, tab: Tab) -> None:
    found: dict[str, Any] = {}
    for path in EVERY:
        page = tab.open(site, path)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for fault in faults(page):
                found.setdefault(f"{fault[0]} ({fault[1]})", {})[f"{path}, {theme}"] = fault[2]
    assert found == {}
