"""For the whole suite: where CULMEN_REQUIRE_JAIL=1 says so, a jail test that would be skipped fails instead."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and item.get_closest_marker("jail") and os.environ.get("CULMEN_REQUIRE_JAIL") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: a jail test was skipped where all of them must run: {report.longrepr}"
    return report
