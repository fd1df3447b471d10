"""A folder of runs that cannot be written: reading works, writing is refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.store.journal import SqlJournal
from culmen.store.views import run_meta

from .conftest import Place

CULMEN = ("-m", "culmen.cli.main")
MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
PAGES = """
from pathlib import Path
from starlette.testclient import TestClient
from culmen.extensions.web.server import Dashboard
with TestClient(Dashboard(Path("runs")).app, base_url="http://127.0.0.1") as client:
    for page in ("overview", "candidates", "lineage", "timeline", "trust"):
        assert client.get(f"/api/runs/first/{page}").status_code == 200, page
    assert client.get("/api/runs").json()["runs"]
"""


def where_nothing_can_be_written(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    """A process in the working folder; for root, who may write anything, a mount refuses it."""
    command = [sys.executable, *words]
    if os.geteuid() == 0:
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        command = ["unshare", "-m", "sh", "-c", MOUNT, str(place.root / "runs"), *command]
    folders = [Path(folder) for folder, _, _ in os.walk(place.root / "runs")]
    for folder in folders:
        folder.chmod(0o500)
    try:
        return subprocess.run(command, cwd=place.root, capture_output=True, text=True, timeout=100)
    finally:
        for folder in folders:
            folder.chmod(0o700)


@pytest.mark.slow
@pytest.mark.jail
def test_runs_that_cannot_be_written_are_read(place: Place) -> None:
    place.task("peak")
    budget = ("--budget", "evaluations=6")
    made = place.culmen("run", "peak", *budget, "--run-dir", "runs/first", "--json")
    assert made.code == 0, made.err
    begun = run_meta(place.root / "runs/first")
    SqlJournal.create(place.root / "runs/begun", begun).close()
    for verb in ("status", "best", "story"):
        done = where_nothing_can_be_written(place, *CULMEN, verb, "runs/first", "--json")
        assert done.returncode == 0 and done.stdout, done.stderr
    done = where_nothing_can_be_written(place, "-c", PAGES)
    assert done.returncode == 0, done.stderr
    writing = [
        (("resume", "runs/begun"), "the run's folder cannot be written"),
        (("runs", "tell", "runs/begun", "--hint", "x"), "the message cannot be left"),
        (("run", "peak", *budget, "--run-dir", "runs/new"), "no run can be written here"),
    ]
    for words, why in writing:
        done = where_nothing_can_be_written(place, *CULMEN, *words)
        assert done.returncode == 2 and why in done.stderr and "next" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and "a bug" not in done.stderr
