"""Activities of agents in plain words, and their progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from culmen.core.event import Custom, Entry
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.cato import Cato
from culmen.report.displays import usage_texts
from culmen.report.words import describe_entry
from culmen.run.study import Study
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.testing.landscape import landscape_program
from culmen.testing.virtual import simulate
from tests.extensions.agents.team.worlds import Desks


def done(what: str, data: dict[str, Any], usage: Usage | None = None, **body: Any) -> str:
    result = Custom(data, usage or Usage())
    return describe_entry(
        Entry("done", 1, effect=f"session.{what}", body={"agent": 3, **body}, result=result)
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            done("open", {"isolation": "namespaces", "version": "1.2"}, kind="claude"),
            "begins (claude, 1.2, namespaces)",
        ),
        (done("open", {"fault": "not\ninstalled\x1b[2J"}), "cannot begin: not installed\\x1b[2J"),
        (done("wait", {}), "is at work"),
        (
            done("wait", {"experiments": [1, 2], "reports": ["x"]}),
            "asks for 2 experiments, has 1 report",
        ),
        (
            done("wait", {}, Usage(calls=2, input_tokens=1500, dollars=0.25)),
            "used 1,500 tokens, $0.25",
        ),
        (done("wait", {"idle": 610.4}), "has been silent for 610 s"),
        (done("wait", {"ended": "crashed", "word": "w" * 100}), f"is over: crashed: {'w' * 77}..."),
        (done("answer", {}), "was answered"),
        (done("answer", {}, closing="threshold"), "was answered; no more experiments: threshold"),
        (done("tool", {"code": 2}, tool="command"), "used command: exit code 2"),
        (done("tool", {"fault": "missing"}, tool="read"), "used read: missing"),
        (done("nudge", {"delivered": False}), "was nudged, which was not delivered"),
        (done("end", {}, reason="idle"), "was ended: idle"),
        (
            done("commit", {"changed": ["a"], "dropped": list("bcdef")}),
            "committed 1 file, dropped b, c, d, and 2 more",
        ),
        (done("commit", {"conflicts": ["x"]}), "committed 0 files, kept both of x"),
        (done("other", {}), "session.other done"),
    ],
)
def test_effects(said: str, expected: str) -> None:
    assert said == f"agent a03 {expected}"


def test_notes_of_a_whole_run(tmp_path: Path) -> None:
    task = Task("t", "climb", seeds=(landscape_program(0.1), landscape_program(0.05)))
    strategy = Cato(agents=2, agent="offline")
    study = Study.create(task, strategy, budget=Budget(evaluations=30), run_dir=tmp_path / "run")
    journal = SqlJournal.open(study.path, write=True)
    simulate(strategy, task, Desks(), Budget(evaluations=30), journal=journal)
    journal.close()
    lines = [describe_entry(event.entry) for event in views.log_events(study.path, limit=10_000)]
    assert any(line.startswith("experiment 1, given: ") for line in lines)
    assert any(line.startswith("agent a01 of 2 is at work (experiments ") for line in lines)
    assert any(line.startswith("agent a00 of 2: experiments; ") for line in lines)
    now = views.run_status(study.path)
    assert now.agents is not None
    told = [line for line in lines if line.startswith("experiment ")]
    assert (now.agents.begun, now.agents.of, now.agents.ended, now.agents.program) == (
        2,
        2,
        2,
        "offline",
    )
    assert now.agents.experiments == len(told) and now.agents.best is not None
    assert f"agent 2/2, {len(told)} experiments" in usage_texts(now)


def test_other_strategies_have_no_agents(tmp_path: Path) -> None:
    study = Study.create(
        Task("t", seeds=(landscape_program(0.1),)), "beam", run_dir=tmp_path / "run"
    )
    assert views.run_status(study.path).agents is None
    assert (
        describe_entry(Entry("note", body={"note": "agent", "colour": "red"}))
        == "agent  colour red"
    )
    assert (
        describe_entry(Entry("note", body={"note": "stand-in", "agent": 1, "why": "no model"}))
        == "agent a01: no model"
    )
    assert (
        describe_entry(Entry("note", body={"note": "report", "agent": 1, "text": "a\nb"}))
        == "agent a01 reports: a b"
    )
