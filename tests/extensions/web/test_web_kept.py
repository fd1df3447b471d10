"""Readings of long runs that are kept: the same answers, and never those of another journal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.bench_dashboard import made

import culmen
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import encode_document
from culmen.run.options import function_task
from culmen.store import evidence, sidecar, views
from culmen.store.views import course
from culmen.testing.scripted import ScriptedModel
from tests.run.test_run_draws import Drawing, climb

PAGES = ("overview", "candidates", "lineage", "trust", "timeline")


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs count as long ones, and this user has a key of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("culmen.store.evidence.LONG", 10)
    monkeypatch.setattr("culmen.store.sidecar.EVENTS", 10)


def pages_of(run: Path) -> dict[str, bytes]:
    """Documents as a process that has read nothing yet makes them."""
    evidence._kept.clear()
    course._kept.clear()
    return {name: encode_document(page_makers()[name](Digest(run), {})) for name in PAGES}


def test_pages_are_the_same_from_what_was_kept(tmp_path: Path) -> None:
    run = made(tmp_path, 120)
    first = pages_of(run)
    files = sorted((run / sidecar.KEPT).iterdir())
    assert len(files) > len(PAGES)
    changed = {path: path.stat().st_mtime_ns for path in files}
    assert pages_of(run) == first
    assert {path: path.stat().st_mtime_ns for path in changed} == changed
    shutil.rmtree(run / sidecar.KEPT)
    assert pages_of(run) == first


def test_the_end_of_a_long_run_prepares_its_first_page(tmp_path: Path) -> None:
    def made_files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (run / sidecar.KEPT).iterdir()}

    run = tmp_path / "run"
    about = function_task("1.0", (), "climb", "max", "t", None, None, float)
    study = culmen.Study.create(
        about,
        run_dir=run,
        budget=30,
        model=ScriptedModel(climb),
        backend=Drawing(0.0),
        evaluator=float,
    )
    study.run(progress=False)
    prepared = made_files()
    assert len(prepared) > len(PAGES)
    pages_of(run)
    assert made_files() == prepared


def test_what_follows_from_another_journal_is_not_read(tmp_path: Path) -> None:
    long, short = made(tmp_path, 120), made(tmp_path, 60)
    pages_of(long)
    own = pages_of(short)
    shutil.rmtree(short / sidecar.KEPT)
    shutil.copytree(long / sidecar.KEPT, short / sidecar.KEPT)
    assert pages_of(short) == own
    assert sidecar.load_kept(short, "another run", "evidence") is None


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    run = made(tmp_path, 60)
    (run / sidecar.KEPT).write_text("")  # no folder can be made here
    assert pages_of(run)["overview"]


def test_the_course_is_computed_on_the_evidence_that_all_share(tmp_path: Path) -> None:
    run = made(tmp_path, 200)
    evidence._kept.clear()
    points = views.LeaderCourse(run, views.run_meta(run))
    found = points.points()
    assert points._evidence is None and found
    apart = views.LeaderCourse(run, views.run_meta(run))
    with evidence.open_snapshot(run) as connection, evidence.evidence_of(connection) as shared:
        shared.courses.clear()
    assert apart.points() == found and apart._evidence is not None
