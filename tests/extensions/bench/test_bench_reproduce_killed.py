"""`culmen paper reproduce`, killed and run again: the same table, nothing made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.extensions.bench.fresh_scores import fresh_scores
from culmen.store import views
from tests.cli.conftest import Done, Place

pytestmark = pytest.mark.jail
COMMAND = (
    "paper",
    "reproduce",
    "polca/fig3b",
    "--toy",
    "--seeds",
    "1",
    "--budget",
    "evaluations=24",
    "--workers",
    "1",
)
RUNS = 3  # one for each threshold


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the command that was left alone."""
    root = tmp_path_factory.mktemp("whole")
    assert Place(root).culmen(*COMMAND).code == 0
    return root


def journals(root: Path) -> dict[str, Path]:
    """Folders of the runs by their place below the folder of runs."""
    return {
        str(file.parent.relative_to(root)): file.parent for file in sorted(root.rglob("journal.db"))
    }


def made(root: Path) -> dict[str, tuple[int, list[tuple[object, ...]]]]:
    """Results of each run: the number of its evaluations, and its final measurement's."""
    found: dict[str, tuple[int, list[tuple[object, ...]]]] = {}
    for name, run in journals(root).items():
        measured = [(each.candidate, *each.evaluation_key) for each in fresh_scores(run)]
        assert len(measured) == len(set(measured))
        found[name] = (views.run_status(run).evaluations, sorted(measured))
    return found


def calls(root: Path) -> int:
    """Calls of all runs, by their journals."""
    return sum(views.run_status(run).usage.calls for run in journals(root).values())


def events(run: Path) -> list[str]:
    """The journal's events in order, without the times at which they were written."""
    return [f"{event.seq} {event.entry}" for event in views.log_events(run, limit=1_000_000)]


def table(root: Path) -> object:
    """The document of the place as written, without the cost of its runs."""
    (file,) = root.rglob("places/fig3b.json")
    return {**json.loads(file.read_text()), "spent": None}


def interrupted(root: Path, after: int, wanted: signal.Signals) -> Done:
    """The command, given a signal in the middle of a run.

    The signal comes once `after` runs have ended and the next one has evaluated something.
    """
    command = [sys.executable, "-m", "culmen.cli.main", *COMMAND]
    env = {**os.environ, "COLUMNS": "80", "HOME": str(root)}
    process = subprocess.Popen(
        command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    heard = ""
    for line in process.stderr:
        heard += line
        if f"[{after}/{RUNS}]" in line:
            break
    while process.poll() is None and not is_next_under_way(root, after):
        pass
    process.send_signal(wanted)
    out, err = process.communicate(timeout=120)
    return Done(process.returncode, out, heard + err)


def is_next_under_way(root: Path, after: int) -> bool:
    """True if one more than the first `after` runs has evaluated something."""
    return sum(views.run_status(run).evaluations > 1 for run in journals(root).values()) > after


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [signal.SIGKILL, signal.SIGINT])
def test_a_place_that_was_cut_off_twice_ends_in_the_same_table_and_makes_nothing_twice(
    wanted: signal.Signals, whole: Path, tmp_path: Path
):
    midway = 0
    for after in (1, 2):
        cut = interrupted(tmp_path, after, wanted)
        assert cut.code == (-signal.SIGKILL if wanted == signal.SIGKILL else 130), cut.err
        assert (wanted == signal.SIGINT) == ("run the same command again" in cut.out)
        before = {name: events(run) for name, run in journals(tmp_path).items()}
        ended = [
            name
            for name, run in journals(tmp_path).items()
            if views.run_status(run).state == "finished"
        ]
        assert len(ended) >= after
        midway += len(before) > len(ended)
    assert midway  # a run of a moment may end before the signal comes
    done = Place(tmp_path).culmen(*COMMAND)
    assert done.code == 0, done.err
    assert all(
        events(journals(tmp_path)[name])[: len(kept)] == kept for name, kept in before.items()
    )
    assert all(events(journals(tmp_path)[name]) == before[name] for name in ended)
    assert table(tmp_path) == table(whole)
    assert made(tmp_path) == made(whole)
    # a reply that a kill kept from the journal lies in the run's folder: it is not asked for again,
    # and not counted
    lost = calls(whole) - calls(tmp_path)
    assert 0 <= lost <= (2 if wanted == signal.SIGKILL else 0)
