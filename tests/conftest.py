"""The whole suite's set-up: kinds of tests that must not be skipped.

Where CULMEN_REQUIRE_JAIL=1, CULMEN_REQUIRE_BROWSER=1, CULMEN_REQUIRE_POSTGRES=1,
CULMEN_REQUIRE_SLURM=1 or CULMEN_REQUIRE_CONTAINER=1 is set, a test of that kind that
would be skipped fails instead.
"""

from __future__ import annotations

import compileall
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres, present

# modules are compiled once, not by every process that a test starts
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
_PROGRAMS = re.compile(r"/culmen/extensions/(builtin|audit/attacks|audit/jail_attacks)/")

# on a busy machine an example takes as long as it takes: no test says anything about time
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Compile culmen, as an installation does.

    Processes of the jail never write what they compile. Replies are kept in a folder of this
    session: what an earlier one asked scripted models is no answer to this one's questions.
    """
    if "XDG_CACHE_HOME" not in os.environ:
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="culmen-cache-")
        config.add_cleanup(lambda: _remove_cache(os.environ.pop("XDG_CACHE_HOME")))
    package = find_spec("culmen")
    if not hasattr(config, "workerinput") and package is not None and package.origin is not None:
        compileall.compile_dir(Path(package.origin).parent, rx=_PROGRAMS, quiet=2, workers=0)


def _remove_cache(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out tests of extensions that are not there."""
    absent = present.missing()  # where all are there, no file is read a second time for its imports
    return (
        bool(
            absent and collection_path.suffix == ".py" and absent & present.used_by(collection_path)
        )
        or None
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while modules are imported, and later not among what they hold."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests more time: only what hangs is to fail by it, also on a busy machine.

    Tests with a browser come last: Playwright's event loop runs in this thread as long as the
    browser does, and `asyncio.run` refuses to start another one.
    """
    items.sort(key=lambda item: "chromium" in getattr(item, "fixturenames", ()))
    if present.missing():  # examples with a strategy or a form of an extension
        items[:] = [item for item in items if not present.PARTS & _words_of_example(item)]
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


def _words_of_example(item: pytest.Item) -> set[str]:
    """The words of a parametrised test's id."""
    return set(re.split(r"[\[\],-]", item.name)[1:])


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = {name for mark in item.iter_markers("extension") for name in mark.args}
    absent = (
        wanted | ({"cluster"} if item.get_closest_marker("postgres") else set())
    ) & present.missing()
    if absent:
        pytest.skip(f"needs the extensions {', '.join(sorted(absent))}")


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
