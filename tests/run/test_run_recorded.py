"""Recorded runs of released versions replay and go on here, or their difference is named.

A run that fails here after a change of an engine, a strategy or a proposer asks for a raised
`version` of it, with a sentence in `changes` (docs/extending.md). Before 0.1.0 is released, it is
recorded anew instead (`tests/run/recorded.py`).
"""

from pathlib import Path

import pytest

from culmen.cli.keep import replay_run
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.engine import search
from culmen.report.summary import summarize_run
from culmen.run.options import RunObjects
from culmen.run.recheck import Decider, deciders_of, require_same_versions
from culmen.run.study import Study
from culmen.store import views
from culmen.store.archive import restore_archive
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies.pedigree import PedigreeSearch
from culmen.strategies.polca import Polca
from tests.run.recorded import objects, resume

RELEASED = Path(__file__).parent / "journals"
JOURNALS = sorted(RELEASED.glob("*/*.culmen.tar.xz"))


def restored(archive, folder):
    """The run in an archive, and the name of its strategy."""
    restore_archive(archive, folder / "run")
    return folder / "run", archive.name.partition("-")[0]


def announced(run):
    """The message about different versions on resuming or replaying; "" if they are equal."""
    from culmen.run.assemble import check_versions

    try:
        check_versions(views.run_meta(run), RunObjects())
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "archive", JOURNALS, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}"
)
def test_a_recorded_run_replays_and_goes_on_or_says_what_differs(archive, tmp_path):
    run, name = restored(archive, tmp_path)
    if text := announced(run):
        assert "since version" in text and "culmen runs fork" in text
        return
    assert replay_run(run, verify=True).data["differences"] == []
    if "interrupted" in archive.name:
        before = list(SqlJournal.open(run).read())
        assert resume(run, name) == "finished"
        assert list(SqlJournal.open(run).read())[: len(before)] == before
        assert replay_run(run, verify=True).data["matches"]


def test_a_run_of_another_version_is_refused_at_once_with_what_differs(tmp_path, monkeypatch):
    run, name = restored(RELEASED / "0.1.0" / "pedigree-interrupted.culmen.tar.xz", tmp_path)
    before = views.run_status(run).events
    monkeypatch.setattr(PedigreeSearch, "version", 3, raising=False)
    changes = {2: "it looks twice", 3: "it asks for shorter programs"}
    monkeypatch.setattr(PedigreeSearch, "changes", changes, raising=False)
    for attempt in (lambda: resume(run, name), lambda: replay_run(run, verify=True)):
        with pytest.raises(
            UserError, match=r"(?s)pedigree was version 1, and is version 3 now.*twice.*shorter"
        ) as caught:
            attempt()
        assert (
            caught.value.exit_code == 2
            and "culmen runs fork" in caught.value.fix
            and "0.1.0" in caught.value.fix
        )
    assert views.run_status(run).events == before
    fork = Study.fork(run, tmp_path / "fork", **objects(name))
    assert fork.meta.versions["strategy"] == 3 and fork.run(progress=False) == "finished"


@pytest.mark.extension("baselines")
def test_a_run_names_its_versions_in_its_settings_and_in_each_session(tmp_path):
    run, name = restored(RELEASED / "0.1.0" / "gepa-interrupted.culmen.tar.xz", tmp_path)
    resume(run, name)
    states = [
        e.entry.body for e in SqlJournal.open(run).read() if e.entry.body.get("state") == "running"
    ]
    assert len(states) == 2 and all(
        each["versions"] == {"engine": 1, "strategy": 1, "proposer": 1} and each["culmen"]
        for each in states
    )
    assert views.run_meta(run).versions == states[0]["versions"]


def test_a_recorded_run_is_read(tmp_path):
    run, _ = restored(RELEASED / "0.1.0" / "gepa-finished.culmen.tar.xz", tmp_path)
    status, events = views.run_status(run), list(SqlJournal.open(run).read(whole=True))
    evaluations = sum(isinstance(event.entry.result, Observation) for event in events)
    assert (status.state, status.evaluations, status.events) == (
        "finished",
        evaluations,
        len(events),
    )
    assert status.best is not None and status.best.confirmed and summarize_run(run).result


def test_the_proposer_and_the_engine_count_too():
    parts = deciders_of(Polca(), None, "culmen.strategies.polca:Polca")
    assert [(key, part.name) for key, part in parts.items()] == [
        ("engine", "the engine"),
        ("strategy", "polca"),
    ]
    parts["proposer"] = Decider("the proposer", 2, {2: "it draws other numbers"})
    with pytest.raises(UserError, match=r"(?s)the proposer was version 1.*it draws other numbers"):
        require_same_versions(RunMeta("run", Task("task"), versions={"strategy": 1}), parts)
    require_same_versions(
        RunMeta("run", Task("task"), versions={"engine": search.VERSION, "proposer": 2}), parts
    )
