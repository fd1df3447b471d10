"""A session from its work tree to the trunk.

Its programs are real processes in real sandboxes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.errors import IsolationError
from culmen.extensions.agents.messages import (
    AnswerExperiments,
    Commit,
    EndSession,
    ExperimentRow,
    Nudge,
    Open,
    Tool,
    Wait,
)
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from tests.extensions.agents.sandbox.grounds import (
    ASK,
    PYTHON,
    Ground,
    everything,
    need_confinement,
)

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]

GOOD = (
    ASK
    + """
one, two = propose("one.py", "x = 1\\n"), propose("two.py", "x = 2\\n")
rows = ask(one, two, "--note", "both", "--parents", "abc,def")
with open("notes/a00.md", "w") as file:
    json.dump(rows, file)
with open("reflections.md", "a") as file:
    file.write("Two is better than one.\\n")
print("done")
"""
)


def test_sessions_program_experiments_and_commit(ground: Make) -> None:
    here = ground()
    opened = here.open(GOOD)
    assert opened.isolation == "jailed"
    waited, asked = here.serve()
    assert (waited.ended, waited.word) == ("finished", "done")
    assert [one.path for one in asked] == ["candidates/a00/one.py", "candidates/a00/two.py"]
    assert [one.parts for one in asked] == [{"main.py": "x = 1\n"}, {"main.py": "x = 2\n"}]
    assert asked[0].note == "both" and asked[0].parents == ("abc", "def")
    ended, committed = here.finish()
    assert ended.reflections.endswith("Two is better than one.\n")
    rows = json.loads(ended.notes)
    assert [row["ticket"] for row in rows] == [one.ticket for one in asked]
    assert all(row["score"] == 21.0 and row["status"] == "ok" for row in rows)
    assert set(committed.changed) == {
        "candidates/a00/one.py",
        "candidates/a00/two.py",
        "notes/a00.md",
        "reflections.md",
    }
    assert committed.dropped == () and committed.conflicts == ()
    assert here.git("log", "--format=%s", "trunk").split("\n")[:2] == ["Agent 0", "Task: test"]
    assert "Experiments: 1" in here.git("log", "-1", "--format=%(trailers)", "trunk")
    assert here.git("show", "trunk:candidates/a00/two.py") == "x = 2\n"
    assert not here.processes() and not here.tree().exists()


def test_sessions_every_effect_twice_is_once(ground: Make) -> None:
    here = ground()
    request = Open(
        0, PYTHON, {"TASK.md": "t"}, ASK + "ask(propose('one.py', 'x = 1'))\nprint('bye')\n"
    )
    assert here.now(request) == here.now(request)
    first = here.now(Wait(0, 0, 1))
    assert first == here.now(Wait(0, 0, 1)) and len(first.experiments) == 1
    ticket = first.experiments[0].ticket
    answer = AnswerExperiments(
        0, (ExperimentRow(0, 0, ticket, "c1", score=1.0),), {"c1": {"main.py": "x = 1"}}
    )
    assert here.now(answer) == here.now(answer)
    second = here.now(Wait(0, 1, 2))
    assert second.ended == "finished" and second == here.now(Wait(0, 1, 2))
    assert here.now(EndSession(0, "finished")) == here.now(EndSession(0, "other"))
    commit = Commit(0, "Agent 0", {})
    assert here.now(commit) == here.now(commit)
    history = (here.run_folder / "view" / "past_experiments.jsonl").read_text().splitlines()
    assert [json.loads(line)["ticket"] for line in history] == [ticket]
    assert here.git("rev-list", "--count", "trunk").strip() == "2"


def test_sessions_next_agent_reads_what_the_first_left(ground: Make) -> None:
    here = ground()
    here.open(GOOD)
    here.serve()
    here.finish()
    here.open(
        ASK
        + """
assert open("candidates/a00/one.py").read() == "x = 1\\n"
assert "Two is better" in open("reflections.md").read()
rows = [json.loads(line) for line in open("past_experiments.jsonl")]
assert [row["path"] for row in rows] == ["candidates/a00/one.py", "candidates/a00/two.py"]
best = ask("--best")[0]
assert best["score"] == 21.0
shown = subprocess.run([sys.executable, "run_experiments.py", "--history", "--show", best["candidate"]],
                       capture_output=True, text=True).stdout
assert shown == "x = 1\\n\\n", shown
print(open("TASK.md").read() == open("CLAUDE.md").read() == open("AGENTS.md").read() == open("GEMINI.md").read())
""",
        agent=1,
    )
    waited, _ = here.serve(1)
    assert (waited.ended, waited.word) == ("finished", "True"), waited


def test_sessions_two_at_once_are_merged(ground: Make) -> None:
    here = ground()
    for agent in (0, 1):
        here.open(
            ASK
            + f"""
with open("reflections.md", "a") as file:
    file.write("From {agent}.\\n")
propose("mine.py", "x = {agent}\\n")
""",
            agent=agent,
        )
    for agent in (0, 1):
        here.serve(agent)
        _, committed = here.finish(agent)
        assert committed.conflicts == ()
    text = here.git("show", "trunk:reflections.md")
    assert "From 0.\n" in text and "From 1.\n" in text
    assert here.git("show", "trunk:candidates/a00/mine.py") == "x = 0\n"
    assert here.git("show", "trunk:candidates/a01/mine.py") == "x = 1\n"
    subjects = here.git("log", "--format=%s", "trunk").splitlines()
    assert sorted(subjects) == ["Agent 0", "Agent 1", "Merge a01", "Task: test"]


def test_sessions_its_own_word_ends_it(ground: Make) -> None:
    here = ground()
    here.open(
        ASK
        + "ask('--report', 'the tolerance is 1e-6')\nask('--finish', 'nothing left')\nimport time\ntime.sleep(600)\n"
    )
    reports: list[str] = []
    nth = 0
    while True:
        nth += 1
        waited = here.now(Wait(0, 0, nth))
        reports += waited.reports
        if waited.ended:
            break
    assert (waited.ended, waited.word) == ("finished", "nothing left")
    assert reports == ["the tolerance is 1e-6"]
    here.finish()
    assert not here.processes()


def test_sessions_failing_program_is_a_value(ground: Make) -> None:
    here = ground()
    here.open("raise SystemExit('no way')")
    waited, _ = here.serve()
    assert waited.ended == "crashed" and "no way" in waited.word
    missing = here.now(Open(1, "cmd: no-such-program-at-all", {}, "x"))
    assert "not installed" in missing.fault
    unknown = here.now(Open(2, "no-such-agent", {}, "x"))
    assert "no-such-agent" in unknown.fault
    here.finish(1)


def test_sessions_seconds_end_the_whole_namespace(ground: Make) -> None:
    here = ground()
    here.open(
        """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"], start_new_session=True)
time.sleep(600)
""",
        limits={"seconds": 0.5},
    )
    waited, _ = here.serve()
    assert waited.ended == "seconds"
    assert not here.processes()


def test_sessions_idle_is_told_and_ends_nothing(ground: Make) -> None:
    here = ground()
    here.open("import time\ntime.sleep(600)\n", limits={"idle": 0.3})
    for nth in (1, 2):
        waited = here.now(Wait(0, 0, nth))
        assert waited.ended == "" and waited.idle >= 0.3
    assert here.processes()
    assert here.now(Nudge(0, 1, "hello?")).delivered is False  # a plain command does not listen
    here.finish()
    assert not here.processes()


def test_sessions_who_waits_for_a_result_does_not_idle(ground: Make) -> None:
    here = ground()
    here.open(ASK + "ask(propose('one.py', 'x = 1'))\n", limits={"idle": 0.2})
    nth, waited = 1, here.now(Wait(0, 0, 1))
    while not waited.experiments:  # slow to start is idle, too
        nth += 1
        waited = here.now(Wait(0, 0, nth))

    async def quiet() -> None:
        await asyncio.wait_for(here.do(Wait(0, 1, nth + 1)), 1.5)

    with pytest.raises(TimeoutError):
        here.runner.run(quiet())


def test_sessions_end_of_the_search_ends_programs(ground: Make) -> None:
    on = True
    here = ground(going=lambda: on)
    here.open("import time\ntime.sleep(600)\n")
    assert here.processes()
    on = False
    waited, _ = here.serve()
    assert (waited.ended, waited.word) == ("crashed", "stopped")
    assert not here.processes()


def test_sessions_abandoned_wait_ends_the_program(ground: Make) -> None:
    here = ground()
    here.open("import time\ntime.sleep(600)\n")

    async def impatient() -> None:
        await asyncio.wait_for(here.do(Wait(0, 0, 1)), 0.2)

    with pytest.raises(TimeoutError):
        here.runner.run(impatient())
    assert not here.processes()


def test_sessions_orderly_stop_and_return(ground: Make) -> None:
    """Requests made before the stop come after it, then the word that the program is gone.

    Results are kept.
    """
    here = ground()
    here.open(
        ASK + "a = propose('one.py', 'x = 1')\nask('--no-wait', a)\nimport time\ntime.sleep(600)\n"
    )
    first = here.now(Wait(0, 0, 1))
    here.answer(0, first.experiments, lambda _: 5.0)
    queue = here.tree() / "queue"
    (queue / "late.json").write_text('{"path": "candidates/a00/one.py"}')
    here.leave()
    assert not here.processes()
    view = here.run_folder / "view"
    before = everything(view)
    (view / "past_experiments.jsonl").write_text("torn")
    (view / "programs" / f"c-{first.experiments[0].ticket}" / "main.py").unlink()
    here.enter()
    assert here.now(Wait(0, 0, 1)) == first
    waited, asked = here.serve(first=2, seen=1)
    assert [one.ticket for one in asked] == ["a00-late"] and waited.ended == "interrupted"
    after = everything(view)
    assert (
        before.items()
        <= {**after, "past_experiments.jsonl": before["past_experiments.jsonl"]}.items()
    )
    assert after["past_experiments.jsonl"].startswith(before["past_experiments.jsonl"])
    _, committed = here.finish(reason="interrupted")
    assert "candidates/a00/one.py" in committed.changed


def test_sessions_unconfined_only_on_request(tmp_path: Path, ground: Make) -> None:
    here = ground(settings=SandboxSettings(sandbox="none"))
    opened = here.open(GOOD)
    assert opened.isolation == "none"
    waited, asked = here.serve()
    assert waited.ended == "finished" and len(asked) == 2, waited
    _, committed = here.finish()
    assert "candidates/a00/one.py" in committed.changed and committed.dropped == ()
    agent = ground("other", settings=SandboxSettings(sandbox="agent"))
    assert agent.open("pass").isolation == "restricted"


def test_sessions_unconfined_strays_are_ended(ground: Make) -> None:
    here = ground(settings=SandboxSettings(sandbox="none"))
    here.open(
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    )
    here.serve()
    here.finish()
    assert not here.processes()


def test_sessions_user_namespace_way(monkeypatch: pytest.MonkeyPatch, ground: Make) -> None:
    """The sandbox of ordinary users, also where the tests run as root."""
    need_confinement()
    monkeypatch.setattr("culmen.extensions.agents.sandbox.confinement.os.geteuid", lambda: 1000)
    here = ground()
    here.open(GOOD)
    waited, _ = here.serve()
    assert waited.ended == "finished", waited
    assert "candidates/a00/one.py" in here.finish()[1].changed


def test_sessions_unconfined_view_is_mended(ground: Make) -> None:
    here = ground(settings=SandboxSettings(sandbox="none"))
    here.open(
        ASK
        + """
ask(propose("one.py", "x = 1"))
open(".culmen/past_experiments.jsonl", "w").write("forged")
import shutil
shutil.rmtree(".culmen/programs")
open(".culmen/results/a00-forged.json", "w").write("{}")
"""
    )
    _, asked = here.serve()
    here.finish()
    here.open(ASK + "print(json.dumps(ask('--history')[0]['ticket']))\n", agent=1)
    waited, _ = here.serve(1)
    assert json.loads(waited.word) == asked[0].ticket
    view = here.run_folder / "view"
    assert not (view / "results" / "a00-forged.json").exists() and any(
        (view / "programs").iterdir()
    )


def test_sessions_without_a_sandbox_only_the_harmless_agent_works(
    ground: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine without bubblewrap.

    The offline agent runs nothing, so it may work; all others are refused.
    """
    here = Ground(tmp_path / "run")
    programs = {name: shutil.which(name) or "" for name in ("git", "sh")}
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in programs:
        (tmp_path / name).symlink_to(programs[name])
    opened = here.now(Open(0, "offline", {"TASK.md": "t"}))
    assert (opened.fault, opened.isolation) == ("", "none")
    assert (
        here.now(Tool(0, 1, "write", {"path": "candidates/a00/x.py", "text": "x = 1"})).fault == ""
    )
    with pytest.raises(IsolationError, match="cannot be confined"):
        here.now(Open(1, PYTHON, {}, "pass"))
    with pytest.raises(IsolationError):
        here.now(Open(1, "builtin", {}))
    assert here.finish()[1].changed == ("candidates/a00/x.py",)
    here.leave()
