"""culmen runs stop, runs tell, ui: real processes that get messages while they run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from culmen.core.errors import CulmenError, UserError
from culmen.run.assemble import InboxWatcher
from culmen.store import inbox, views
from culmen.store import inbox as sending
from tests.cli.conftest import EVALUATOR, TOML, Place

NOISY = TOML.replace("deterministic = true", "deterministic = false")
UNHURRIED = "import time\n" + EVALUATOR.replace("    return", "    time.sleep(0.05)\n    return", 1)
OWN = "def run():\n    return 6.875  # by hand\n"


def wait(until: Callable[[], object], why: str, seconds: float = 60.0) -> None:
    """Until it is so; generous, for machines that are busy."""
    ends = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < ends, why
        time.sleep(0.05)


@contextmanager
def running(place: Place, name: str = "long") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that goes on until it is stopped, some evaluations old."""
    place.task("peak", toml=NOISY, evaluator=UNHURRIED)
    command = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "run",
        "peak",
        "--budget",
        "evaluations=1000000",
        "--quiet",
    ]
    env = {**os.environ, "HOME": str(place.root)}
    process = subprocess.Popen(
        [*command, "--run-dir", f"runs/{name}", "--json"],
        cwd=place.root,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    run = place.root / "runs" / name
    try:
        wait(lambda: begun(run), "it never began")
        yield process, run
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def begun(run: Path) -> bool:
    """True once some evaluations are made; while its tables are made a journal cannot be read."""
    with contextlib.suppress(CulmenError):
        return views.run_status(run).evaluations > 3
    return False


@pytest.mark.slow
def test_a_running_search_is_told_and_stopped_and_replays(place: Place):
    with running(place) as (process, run):
        (place.root / "own.py").write_text(OWN)
        told = place.here("runs", "tell", "long", "--candidate", "own.py", "--json")
        assert told.code == 0 and told.document["taken"] is True, told.out + told.err
        assert place.here("runs", "tell", "long", "--hint", "think of seven").code == 0

        def mine() -> list[views.CandidateRow]:
            return views.candidate_rows(run, operator="person")

        wait(lambda: mine() and mine()[0].count > 0, "the candidate was never evaluated")
        wait(
            lambda: len(views.log_events(run, kinds=("tell",))) == 2, "the hint was never journaled"
        )
        wait(lambda: inbox.waiting_messages(run) == [], "what was journaled was not forgotten")
        log = place.here("show", "long", "--log", "--all").out
        assert (
            f"received a candidate: {mine()[0].id}" in log
            and "received a hint: think of seven" in log
        )
        stopped = place.here("runs", "stop", "long")
        assert stopped.code == 0, stopped.err
        out, _ = process.communicate(timeout=120)
    document = json.loads(out)
    assert (document["state"], document["reason"]) == ("finished", "user")
    assert views.candidate_detail(run, mine()[0].id).parts == {"guess.py": OWN}
    verified = place.here("runs", "replay", "long", "--verify")
    assert verified.code == 0, verified.out + verified.err


@pytest.mark.slow
def test_a_paused_search_is_told_while_it_rests_and_resumed(place: Place):
    with running(place) as (process, run):
        assert place.here("runs", "stop", "long", "--pause").code == 0
        process.communicate(timeout=120)
    assert process.returncode == 130 and views.run_status(run).state == "interrupted"
    assert [event.entry.body["tell"] for event in views.log_events(run, kinds=("tell",))] == [
        "pause"
    ]
    told = place.here("runs", "tell", "long", "--hint", "for later", "--json")
    assert told.code == 0 and told.document["taken"] is False
    resumed = subprocess.Popen(
        [sys.executable, "-m", "culmen.cli.main", "resume", "long", "--quiet"],
        cwd=place.root,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait(lambda: len(views.log_events(run, kinds=("tell",))) == 2, "the hint was not taken in")
        wait(
            lambda: views.run_status(run).state == "running",
            "it does not go on: the old pause was taken again",
        )
        assert place.here("runs", "stop", "long").code == 0
        assert resumed.wait(120) == 0
    finally:
        if resumed.poll() is None:
            resumed.kill()
            resumed.wait()
    assert views.run_status(run).reason == "user"


def test_mistakes_are_said_at_once(done: Place):
    run = "runs/first"
    over = done.here("runs", "tell", run, "--hint", "more", "--json")
    assert over.code == 2 and "finished" in over.document["error"]["what"]
    idle = done.here("runs", "stop", run, "--json")
    assert idle.code == 2 and idle.document["error"]["next"].startswith("culmen resume")
    assert done.here("runs", "tell", run, "--json").code == 2
    assert (
        done.here("runs", "tell", run, "--hint", "a", "--candidate", "peak/guess.py", "--json").code
        == 2
    )
    assert not (done.root / run / "inbox").exists()


def test_a_message_that_is_journaled_already_is_not_taken_again(tmp_path: Path):
    """Killed after the journal had it and before its file was gone."""
    from culmen.core.event import Entry
    from tests.store.runs import new_run

    with new_run(tmp_path) as journal:
        run = tmp_path / "run-1"
        first, second = (
            inbox.leave_message(run, "hint", "one"),
            inbox.leave_message(run, "hint", "two"),
        )
        journal.append([Entry("tell", body={"tell": "hint", "id": first.id, "text": "one"})])
        InboxWatcher(run)
        assert [message.id for message in inbox.waiting_messages(run)] == [second.id]


def test_the_inbox_keeps_its_order_and_leaves_alone_what_is_no_message(tmp_path: Path):
    sent = [inbox.leave_message(tmp_path, "hint", str(n)).id for n in range(5)]
    (tmp_path / "inbox" / "0.json").write_text("{")
    (tmp_path / "inbox" / "readme.txt").write_text("hello")
    assert [message.id for message in inbox.waiting_messages(tmp_path)] == sent
    inbox.remove_message(tmp_path, sent[0])
    inbox.remove_message(tmp_path, sent[0])
    assert [message.text for message in inbox.waiting_messages(tmp_path)] == ["1", "2", "3", "4"]
    assert inbox.waiting_messages(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("kind", "text", "parts"), [("hint", "  ", {}), ("hint", "x" * 5000, {}), ("candidate", "", {})]
)
def test_empty_and_endless_messages_are_refused(
    tmp_path: Path, kind: inbox.Kind, text: str, parts: dict[str, str]
):
    with pytest.raises(UserError):
        inbox.leave_message(tmp_path, kind, text, parts)
    assert not (tmp_path / "inbox").exists()


def test_a_candidate_needs_the_parts_of_the_seed(tmp_path: Path):
    from culmen.store.database import RunMeta
    from culmen.store.journal import SqlJournal
    from tests.store.runs import Task

    SqlJournal.create(
        tmp_path / "two", RunMeta("two", Task("t", seeds=({"a.py": "1", "b.py": "2"},)))
    ).close()
    with pytest.raises(UserError, match=r"a\.py"):
        sending.send_candidate(tmp_path / "two", {"a.py": "3"})
    sent = sending.send_candidate(tmp_path / "two", {"b.py": "4", "a.py": "3"})
    assert not sent.live and list(sent.message.parts) == ["a.py", "b.py"]


def test_the_dashboard_says_where_it_is_and_ends_on_interrupt(done: Place):
    command = [sys.executable, "-m", "culmen.cli.main", "ui", "runs", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=done.root, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "it ended before it said anything"
            text += line
        document = json.loads(text)
        assert document["url"].startswith(document["address"] + "#token=")
        with urllib.request.urlopen(document["address"] + "api/runs", timeout=30) as answer:
            assert [run["run"] for run in json.load(answer)["runs"]] == ["first"]
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert rest == "" and process.returncode in (0, 130)


@pytest.mark.slow
def test_a_run_is_watched_from_elsewhere_until_it_ends(place: Place) -> None:
    with running(place) as (process, run):
        env = {**os.environ, "HOME": str(place.root)}
        command = [sys.executable, "-m", "culmen.cli.main", "runs", "watch", str(run)]
        watching = subprocess.Popen(
            command,
            cwd=place.root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        sending.send_stop(run, pause=False)
        out, err = watching.communicate(timeout=120)
        assert process.wait(timeout=120) == 0
    assert watching.returncode == 0 and "the initial program" in out and "initial -16" in out, err
    again = place.here("runs", "watch", str(run), "--json").document
    assert again["state"] == "finished" and again["best"]["id"]


@pytest.mark.slow
def test_leaving_a_watch_leaves_the_run_alone(place: Place) -> None:
    with running(place) as (process, run):
        env = {**os.environ, "HOME": str(place.root)}
        command = [sys.executable, "-m", "culmen.cli.main", "runs", "watch", str(run)]
        watching = subprocess.Popen(
            command,
            cwd=place.root,
            env=env,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stderr is not None and watching.stderr.readline()  # it shows something
        watching.send_signal(signal.SIGINT)
        out, _ = watching.communicate(timeout=60)
        assert watching.returncode == 0 and "better than the initial program so far" in out
        assert process.poll() is None and views.run_status(run).state == "running"
