"""Faults become proposed tasks; a person confirms them.

Nothing recorded is run, nothing secret is written.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import bench_mining as world
from bench.bench_mining import Said

from culmen.core.errors import UserError
from culmen.extensions.skills.mining.faults import FaultEvidence, RecurringFault
from culmen.extensions.skills.mining.proposals import (
    accept_proposals,
    mine_sessions,
    read_record,
    replay,
    rule_text,
)
from culmen.extensions.skills.rollouts import harbor
from tests.cli.conftest import Place

PIP = "error: externally-managed-environment"


def session(request: str, *more: Said, name: str = "x") -> list[Said]:
    """A session in which pip fails and uv works."""
    failed, worked = (
        Said("agent", "", f"pip install {name}", PIP, 1),
        Said("agent", "", f"uv add {name}", "ok"),
    )
    return [Said("user", request), failed, *more, worked]


def write(folder: Path, sessions: Sequence[list[Said]]) -> Path:
    """Logs of all formats with these sessions."""
    for number, steps in enumerate(sessions):
        source, writer = list(world.WRITERS.items())[number % 4]
        (folder / source).mkdir(parents=True, exist_ok=True)
        writer(folder / source / f"s{number}", steps)
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Four sessions with the same fault, of different requests."""
    return write(
        tmp_path / "logs",
        [session(f"we need the package number {n}", name=f"p{n}") for n in range(4)],
    )


FAULT = "use-uv-add-not-pip-install"


def test_proposals_are_harbor_tasks_of_all_splits(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = mine_sessions([logs], out)
    assert report.new == [FAULT] and report.sessions == {
        "atif": 1,
        "claude": 1,
        "codex": 1,
        "opencode": 1,
    }
    assert [(each.name, each.state, each.sessions) for each in report.faults] == [
        (FAULT, "proposed", 4)
    ]
    found = harbor.read_tasks(out / "proposed" / FAULT)
    assert [(task.name, task.split) for task in found] == [
        (f"{FAULT}-{n + 1}", split) for n, split in enumerate(("train", "val", "test", "train"))
    ]
    assert not any(task.gaps or task.ignored for task in found)
    instruction = found[0].instruction
    assert "we need the package number" in instruction
    assert "uv" not in instruction.split() and "pip" not in instruction.split()
    evidence = (out / "proposed" / FAULT / "evidence.md").read_text()
    assert evidence.count("| `pip install p") == 4 and PIP in evidence


def test_proposals_are_cases_only_when_confirmed(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mine_sessions([logs], out)
    assert not (out / "tasks").exists()
    for wrong in ("other", "../proposed"):
        with pytest.raises(UserError, match="is proposed"):
            accept_proposals(out, [wrong])
    assert accept_proposals(out, [FAULT]) == [f"{FAULT}-{n}" for n in (1, 2, 3, 4)]
    assert len(harbor.read_tasks(out / "tasks")) == 4
    assert [each.state for each in read_record(out).faults] == ["confirmed"]
    again = mine_sessions([logs], out)
    assert (
        again.new == []
        and again.fresh == 0
        and [each.state for each in again.faults] == ["confirmed"]
    )


def test_proposals_that_a_person_removes_do_not_come_again(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mine_sessions([logs], out)
    shutil.rmtree(out / "proposed" / FAULT)
    world.write_claude(logs / "claude" / "s9", session("one more", name="p9"))
    report = mine_sessions([logs], out)
    assert report.fresh == 1 and report.new == []
    assert [each.state for each in report.faults] == ["removed"] and not (
        out / "proposed" / FAULT
    ).exists()


def test_a_record_that_cannot_be_read_is_an_error(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "faults.json").write_text("{")
    with pytest.raises(UserError, match="record of mined faults"):
        mine_sessions([logs], tmp_path / "out")


def test_requests_that_give_the_answer_make_no_task(tmp_path: Path) -> None:
    told = write(
        tmp_path / "a", [session(f"please uv add package {n}", name=f"p{n}") for n in range(4)]
    )
    report = mine_sessions([told], tmp_path / "out")
    assert [each.why_not for each in report.faults] == ["the request says itself what to use"]
    assert report.new == [] and not (tmp_path / "out" / "proposed").exists()
    same = write(tmp_path / "b", [session("add it", name=f"p{n}") for n in range(4)])
    mine_sessions([same], tmp_path / "two")
    assert len(harbor.read_tasks(tmp_path / "two" / "proposed" / FAULT)) == 1


def test_checks_are_replayed_on_what_was_wrong_and_right(tmp_path: Path) -> None:
    """A session that goes back to the faulty command has no right outcome."""
    back = Said("agent", "", "pip install again", PIP, 1)
    logs = write(
        tmp_path / "logs", [[*session(f"number {n}", name=f"p{n}"), back] for n in range(4)]
    )
    report = mine_sessions([logs], tmp_path / "out")
    by_name = {each.name: each for each in report.faults}
    assert by_name[FAULT].why_not == "the check fails on what was right"
    evidence = FaultEvidence(
        "s", "r", "", "pip install x", "uv add x", "", ["ls", "pip install x"], ["uv add x", "ls"]
    )
    fault = RecurringFault("failed", ["pip", "install"], ["uv", "add"], "e", 3, [evidence])
    rule = rule_text(fault, str)
    assert (replay(rule, evidence.before), replay(rule, evidence.after)) == (False, True)


def test_checks_that_pass_on_what_was_wrong_are_left_out(tmp_path: Path) -> None:
    """Two of four sessions failed with the words that worked elsewhere: they are no tasks."""
    steps = [
        [
            Said("user", f"ship number {n}"),
            Said("agent", "", f"deploy up a{n}" + (" --now z" if n < 2 else ""), "error: x", 1),
            Said("agent", "", "deploy up --now z", "ok"),
        ]
        for n in range(4)
    ]
    report = mine_sessions([write(tmp_path / "logs", steps)], tmp_path / "out")
    (name,) = report.new
    found = harbor.read_tasks(tmp_path / "out" / "proposed" / name)
    assert sorted(task.instruction[-1] for task in found) == ["2", "3"]


def test_no_recorded_command_is_run(tmp_path: Path) -> None:
    marks = [tmp_path / f"run-{n}" for n in range(4)]
    logs = write(
        tmp_path / "logs",
        [session(f"number {n}", name=f"x; touch {mark}") for n, mark in enumerate(marks)],
    )
    report = mine_sessions([logs], tmp_path / "out")
    assert report.new and not any(mark.exists() for mark in marks)


def test_names_from_logs_lead_nowhere(tmp_path: Path) -> None:
    """Commands name folders: none of them may leave the folder of proposals."""
    steps = [
        [
            Said("user", f"go {n}"),
            Said("agent", "", "../../../evil a", "error: x", 1),
            Said("agent", "", "../../../good a", "ok"),
        ]
        for n in range(4)
    ]
    mine_sessions([write(tmp_path / "logs", steps)], tmp_path / "in" / "out")
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["out"]
    (made,) = (tmp_path / "in" / "out" / "proposed").iterdir()
    assert made.name == "use-good-a-not-evil-a"


@pytest.mark.slow
def test_the_bar_of_the_made_world(tmp_path: Path) -> None:
    """200 sessions, 12 planted faults: at least 9 cases, 5 cured.

    No planted secret is in a file or a request.
    """
    row = world.measure(1, tmp_path, sessions=200, rollouts=300)
    assert row["sessions"] == 200 and row["unread"] == 0
    assert row["cases"] >= 9 and row["false"] == 0
    assert row["cured"] >= 5
    assert row["planted"] > 500 and row["asked"] > 20 and row["secrets"] == 0


def test_planted_secrets_are_found_where_nothing_is_cut(tmp_path: Path) -> None:
    """The count of secrets can be other than 0."""
    secrets = world.write_sessions(tmp_path, 120, 3)
    raw = [
        json.loads(line)
        for file in (tmp_path / "claude").glob("*")
        for line in file.read_text().splitlines()
    ]
    assert len(world.leaked(secrets.made, iter([str(raw)]))) > 50


def test_mine_on_the_command_line(logs: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    out = tmp_path / "out"
    shown = place.here("skill", "mine", str(logs), "--out", str(out))
    assert shown.code == 0 and FAULT in shown.out and "1 claude" in shown.out, shown.err
    told = place.here("skill", "mine", str(logs), "--out", str(out), "--json").document
    assert told["faults"][0]["state"] == "proposed" and told["new"] == []
    confirmed = place.here("skill", "mine", "--out", str(out), "--accept", FAULT, "--json").document
    assert len(confirmed["confirmed"]) == 4
    assert place.here("skill", "mine", str(logs), "--accept", FAULT).code == 2
    assert place.here("skill", "mine", str(tmp_path / "none")).code == 2


def test_proposals_survive_odd_texts(tmp_path: Path) -> None:
    """Half a pair of surrogates in a request and in a command."""
    sessions = [session(f"fix this \ud83d, number {n}", name=f"p{n}\ud83d") for n in range(4)]
    logs = tmp_path / "logs" / "claude"
    logs.mkdir(parents=True)
    for number, steps in enumerate(sessions):
        world.WRITERS["claude"](logs / f"s{number}", steps)
    assert mine_sessions([logs], tmp_path / "out").new == [FAULT]


def test_proposals_that_lie_there_are_not_written_again(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mine_sessions([logs], out)
    for _ in range(2):
        (out / "faults.json").unlink()
        report = mine_sessions([logs], out)
        assert report.faults[0].state == "proposed" and report.new == []
        assert not (out / "proposed" / FAULT / FAULT).exists()


def working(number: int) -> list[Said]:
    """A session in which pip works."""
    return [Said("user", f"more, {number}"), Said("agent", "", f"pip install q{number}", "ok")]


def test_proposals_stay_removed_and_confirmed_whatever_comes(logs: Path, tmp_path: Path) -> None:
    removed, confirmed = tmp_path / "removed", tmp_path / "confirmed"
    for out in (removed, confirmed):
        mine_sessions([logs], out)
    shutil.rmtree(removed / "proposed" / FAULT)
    accept_proposals(confirmed, [FAULT])
    more = write(tmp_path / "more", [working(number) for number in range(8)])
    for out, state in ((removed, "removed"), (confirmed, "confirmed")):
        for places in ([logs, more], [logs]):
            assert [
                one.state for one in mine_sessions(places, out).faults if one.name == FAULT
            ] == [state]
    assert not (removed / "proposed" / FAULT).exists()


def test_proposals_take_one_task_of_a_session(tmp_path: Path) -> None:
    twice = [
        session(f"first {n}", name=f"p{n}") + session(f"second {n}", name=f"q{n}") for n in range(3)
    ]
    mine_sessions([write(tmp_path / "logs", twice)], tmp_path / "out")
    evidence = [
        path.read_text() for path in (tmp_path / "out").glob(f"proposed/{FAULT}/*/instruction.md")
    ]
    assert len(evidence) == 3


def test_proposals_rules_stay_json_when_cut(tmp_path: Path) -> None:
    hook = "https://hooks.slack.com/services/T00/B00/abcdef1234"
    steps = [
        [
            Said("user", f"announce it, {n}"),
            Said("agent", "", f"wget {hook} --post-data x{n}", "wget: error: no route", 4),
            Said("agent", "", f"curl {hook} -d x{n}", "ok"),
        ]
        for n in range(4)
    ]
    out = tmp_path / "out"
    mine_sessions([write(tmp_path / "logs", steps)], out)
    rules = list(out.glob("proposed/*/*/tests/rule.json"))
    assert rules and all("avoid" in json.loads(rule.read_text()) for rule in rules)
    assert not any("T00/B00" in path.read_text() for path in out.rglob("*") if path.is_file())


def test_mining_waits_for_nobody(tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    with (house / ".mine.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = Place(tmp_path).culmen("skill", "mine", str(tmp_path), "--out", str(house), "--json")
        assert (done.code, done.document["error"]["kind"]) == (3, "run_locked")
    lost = Place(tmp_path).culmen("skill", "mine", str(tmp_path / "nowhere"), "--json")
    assert lost.code == 2 and "no such file" in lost.document["error"]["what"]
