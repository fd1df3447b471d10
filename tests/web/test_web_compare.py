"""The Compare page says what `culmen compare` says."""

from __future__ import annotations

import pytest

from culmen.report.compare import compare
from culmen.report.compare_read import entries
from culmen.store import views
from tests.web.conftest import Site, Tab

NAMES = ("polca-1", "polca-2", "turboevolve-1")


@pytest.mark.browser
def test_the_page_says_whether_the_data_can_tell(site: Site, tab: Tab):
    paths = [site.run(name) for name in NAMES]
    assert [views.status(path).state for path in paths] == ["finished"] * 3
    page = tab.open(site, "/compare?" + "&".join(f"run={name}" for name in NAMES))
    told = page.locator("section[aria-label='Can the data tell?']")
    told.wait_for()
    text = told.inner_text()
    classes = {views.meta(path).strategy["path"]: name.partition("-")[0] for path, name in zip(paths, NAMES)}
    made = compare(entries(paths), classes)
    (part,) = made.tasks
    for sentence in (*(pair.sentence for pair in part.pairs), *made.remarks):
        assert sentence in text
    assert part.task in text and all(row.strategy in text for row in part.rows)
    tab.open(site, "/compare?run=polca-1").get_by_text("It takes two finished runs").wait_for()
