"""For the whole suite: where CULMEN_REQUIRE_JAIL=1, CULMEN_REQUIRE_BROWSER=1, CULMEN_REQUIRE_POSTGRES=1,
CULMEN_REQUIRE_SLURM=1 or CULMEN_REQUIRE_CONTAINER=1 says so, a test of that kind that
would be skipped fails instead."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres

# on a busy machine an example takes as long as it takes: no test says anything about time
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    for kind in ("jail", "browser", "postgres", "slurm", "container"):
        required = os.environ.get(f"CULMEN_REQUIRE_{kind.upper()}") == "1"
        if report.skipped and required and item.get_closest_marker(kind):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: a {kind} test was skipped where all of them must run: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def postgres_server():
    """A server of this test process; skips where there is none to start."""
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL's server is not installed")
    with postgres.server() as running:
        yield running


@pytest.fixture
def database(postgres_server):
    """The URL of an empty database."""
    return postgres_server.new_database()
