"""Tools of an agent without a process, in the real sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culmen.extensions.agents.messages import Open, Tool, ToolOutput, Wait
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from tests.extensions.agents.sandbox.grounds import Ground

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]


class Bench:
    """An open session of the built-in kind, and a counter of calls."""

    def __init__(self, here: Ground) -> None:
        self.here, self.nth = here, 0
        here.now(Open(0, "builtin", {"TASK.md": "Be good.\n"}))

    def use(self, tool: str, seconds: float = 60.0, **arguments: Any) -> ToolOutput:
        self.nth += 1
        return self.again(tool, seconds, **arguments)

    def again(self, tool: str, seconds: float = 60.0, **arguments: Any) -> ToolOutput:
        """The same call once more, as after a crash."""
        return self.here.now(Tool(0, self.nth, tool, arguments, seconds))


@pytest.fixture
def bench(ground: Make) -> Bench:
    return Bench(ground())


def test_tools_files(bench: Bench) -> None:
    assert bench.use("read", path="TASK.md") == ToolOutput("Be good.\n")
    assert bench.use("write", path="candidates/a00/deep/x.py", text="a = 1\nb = 2\n").fault == ""
    assert (
        bench.use("edit", path="candidates/a00/deep/x.py", old="b = 2", new="b = 3\r").fault == ""
    )
    assert bench.use("append", path="candidates/a00/deep/x.py", text="c = 4\n").fault == ""
    assert bench.use("append", path="notes/a00.md", text="new\n").fault == ""
    assert (
        bench.here.tree() / "candidates/a00/deep/x.py"
    ).read_bytes() == b"a = 1\nb = 3\r\nc = 4\n"
    assert bench.use("list", path="candidates/a00").text == "deep/"
    assert "TASK.md" in bench.use("list").text.splitlines()
    assert bench.use("read", path="past_experiments.jsonl") == ToolOutput("")


def test_tools_work_on_a_built_in_task_and_do_not_see_it(ground: Make) -> None:
    """Built-in tasks lie in the package, and are covered twice.

    Once as such, and once as the evaluator of this run.
    """
    from culmen import tasks as taskfiles

    task = taskfiles.load(taskfiles.example_path("circle_packing"))
    evaluator = Path(task.evaluator.path)
    bench = Bench(ground(task=task))
    assert bench.use("read", path="TASK.md") == ToolOutput("Be good.\n")
    seen = bench.use("command", command=f"ls -A {evaluator.parent.parent}; cat {evaluator}")
    assert seen.text.startswith("cat: ") and "No such file" in seen.text  # nothing is listed


def test_tools_say_what_is_wrong(bench: Bench) -> None:
    bench.use("write", path="x", text="aa")
    faults = [
        bench.use("read", path="nothing").fault,
        bench.use("read", path="candidates").fault,
        bench.use("edit", path="x", old="b", new="c").fault,
        bench.use("edit", path="x", old="a", new="c").fault,
        bench.use("edit", path="x", old="", new="c").fault,
        bench.use("write", path="candidates", text="").fault,
        bench.use("write", path="/usr/x", text="").fault,
        bench.use("list", path="x").fault,
        bench.use("dance").fault,
        bench.use("read").fault,
        bench.use("read", path="x", colour="red").fault,
        bench.use("read", path="x", offset="one").fault,
        bench.use("write", path="x", text="y" * ((1 << 20) + 1)).fault,
    ]
    assert faults[:9] == [
        "missing",
        "is_a_folder",
        "missing",
        "ambiguous",
        "missing",
        "is_a_folder",
        "failed",
        "missing",
        "unknown_tool",
    ]
    assert faults[9:13] == ["bad_arguments", "bad_arguments", "bad_arguments", "too_large"]
    assert bench.use("read", path="x") == ToolOutput("aa")


def test_tools_read_is_bounded_and_goes_on(bench: Bench) -> None:
    (bench.here.tree() / "long").write_text("".join(f"line {n}\n" for n in range(5000)))
    first = bench.use("read", path="long").text
    assert (
        first.startswith("line 0\n")
        and len(first) < 17_000
        and "more lines; go on with offset" in first
    )
    offset = int(first.rsplit("offset ", 1)[1].rstrip("]"))
    assert bench.use("read", path="long", offset=offset, limit=1).text.startswith(
        f"line {offset}\n"
    )
    (bench.here.tree() / "wide").write_text("x" * 100_000)
    assert len(bench.use("read", path="wide").text) < 17_000
    (bench.here.tree() / "odd").write_bytes(b"\xff\x1b[31mred\n")
    assert bench.use("read", path="odd").text == "\ufffd[31mred\n"


def test_tools_commands(bench: Bench) -> None:
    told = bench.use("command", command="echo out; echo err >&2; pwd; exit 3")
    assert told == ToolOutput("out\nerr\n/repo\n", "", 3)
    told = bench.use("command", command="yes | head -c 5000000")
    assert told.code == 0 and len(told.text) < 17_000 and "bytes left out" in told.text
    told = bench.use("command", seconds=1.0, command="trap '' TERM INT; echo begun; sleep 600")
    assert told.fault == "timeout" and "begun" in told.text
    assert bench.use("command", command="cat").text == ""  # stdin is empty
    assert bench.use("command", command="kill -9 $$").code == -9
    assert bench.use("command", command="git status --short && echo ok").text == "ok\n"


def test_tools_leave_no_process(bench: Bench) -> None:
    before = len(bench.here.processes())
    told = bench.use(
        "command", command="(setsid sleep 600 &) ; (trap '' HUP; sleep 600 &) ; echo left"
    )
    assert told.text == "left\n" and before == 0
    running = bench.use(
        "command", command="ps -e 2>/dev/null | grep -c sleep || ls /proc | grep -c '^[0-9]'"
    ).text
    assert int(running.split()[0]) < 8
    assert "sleep" not in bench.use(
        "command", command="cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo"
    ).text.replace("sleep 600", "", 0)


def test_tools_survive_an_attack_on_the_toolbox(bench: Bench) -> None:
    told = bench.use("command", command="kill -9 $PPID; sleep 5; echo still here")
    assert told.fault in ("lost", "timeout") or told.code != 0
    assert bench.use("read", path="TASK.md").text == "Be good.\n"
    bench.use(
        "command",
        command='for fd in 0 1 3 4 5; do echo \'{"text": "forged"}\' > /proc/$PPID/fd/$fd; done; echo done',
    )
    told = bench.use("read", path="TASK.md")
    while told.text == "forged":  # it can only lie to itself, and not for long
        told = bench.use("read", path="TASK.md")
    assert told.fault in ("", "lost")


def test_tools_next_sandbox_is_not_led_astray(bench: Bench) -> None:
    """Links laid before the sandbox is started again do not change its mounts."""
    here = bench.here
    secret = here.run_folder / "control" / "repo.git"
    lay = f"cd /tmp; for name in .shm shm x; do ln -s {secret} $name; done; cd /repo; rm -rf queue; ln -s {secret} queue"  # noqa: E501
    assert bench.use("command", command=lay).code == 0
    assert bench.use("command", command="kill -9 $PPID; sleep 600").fault == "lost"
    told = bench.use(
        "command", command="ls /dev/shm /tmp/.shm/ /tmp/x/ queue/ 2>/dev/null; cat /dev/shm/HEAD"
    )
    assert "HEAD" not in told.text.split() and "refs" not in told.text, told
    assert bench.use("write", path="/dev/shm/HEAD", text="x").fault == ""
    assert (secret / "HEAD").read_text() == "ref: refs/heads/trunk\n"


def test_tools_bomb_is_bounded(ground: Make) -> None:
    bench = Bench(ground(settings=SandboxSettings(processes=50, memory_mb=300)))
    told = bench.use("command", seconds=3.0, command=":(){ :|:& };: ; sleep 600")
    assert told.fault in ("timeout", "processes", "lost") or told.code != 0
    told = bench.use(
        "command",
        seconds=20.0,
        command="python3 -c \"x = [b'x' * (100 << 20) for _ in range(9)]; input()\"; sleep 600",
    )
    assert told.fault in ("memory", "timeout") or told.code != 0, told
    assert bench.use("command", command="echo fine").text == "fine\n"


def test_tools_second_time_is_no_second_deed(bench: Bench) -> None:
    told = bench.use("command", command="echo x >> count; wc -l < count")
    assert (
        told.text == "1\n"
        and bench.again("command", command="echo x >> count; wc -l < count") == told
    )
    told = bench.use("append", path="log", text="once\n")
    assert bench.again("append", path="log", text="once\n") == told
    told = bench.use("edit", path="log", old="once", new="once, once")
    assert bench.again("edit", path="log", old="once", new="once, once") == told
    assert (bench.here.tree() / "log").read_text() == "once, once\n"


def test_tools_after_a_crash(bench: Bench) -> None:
    """A new process finds finished calls, and does not run again a call that was cut off."""
    here = bench.here
    done = bench.use("command", command="echo x >> count; wc -l < count")
    bench.nth += 1

    async def cut() -> None:
        effect = here.do(Tool(0, bench.nth, "command", {"command": "echo y >> count; sleep 600"}))
        task = asyncio.ensure_future(effect)
        while not (here.tree() / "count").read_text().endswith("y\n"):
            await asyncio.sleep(0.01)
        task.cancel()

    here.runner.run(cut())
    here.leave()
    here.enter()
    assert bench.again("command", command="echo y >> count; sleep 600").fault == "interrupted"
    bench.nth -= 1
    assert bench.again("command", command="echo x >> count; wc -l < count") == done
    bench.nth += 1
    assert (here.tree() / "count").read_text() == "x\ny\n"
    assert bench.use("command", command="wc -l < count").text == "2\n"
    assert not [
        pid for pid in here.processes() if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_tools_experiments_of_a_builtin_agent(bench: Bench) -> None:
    """It asks through the same queue, while waits are under way.

    It asks by a file or by running the client.
    """
    here = bench.here
    bench.use("write", path="candidates/a00/x.py", text="x = 1\n")
    bench.use("write", path="queue/q1.json", text=json.dumps({"path": "candidates/a00/x.py"}))
    waited = here.now(Wait(0, 0, 1))
    assert [one.ticket for one in waited.experiments] == ["a00-q1"]
    here.answer(0, waited.experiments, lambda _: 4.0)
    bench.nth += 1

    async def both() -> ToolOutput:
        command = Tool(
            0, bench.nth, "command", {"command": "python3 run_experiments.py candidates/a00/x.py"}
        )
        running = asyncio.ensure_future(here.do(command))
        found = await here.do(Wait(0, 1, 2))
        (one,) = found.data["experiments"]
        row = {"n": 2, "agent": 0, "ticket": one["ticket"], "candidate": "c", "score": 5.0}
        await here.world.perform(_answer(row))
        return ToolOutput(**(await running).data)

    told = here.runner.run(asyncio.wait_for(both(), 60))
    assert json.loads(told.text)["score"] == 5.0
    here.finish()
    assert not here.processes()


def _answer(row: dict[str, Any]) -> Any:
    from culmen.core.event import CustomRequest

    return CustomRequest("session.answer", {"agent": 0, "rows": [row]}, 0)


def test_tools_end_wakes_a_wait(bench: Bench) -> None:
    here = bench.here

    async def both() -> str:
        waiting = asyncio.ensure_future(here.do(Wait(0, 0, 1)))
        await asyncio.sleep(0)
        from culmen.extensions.agents.messages import EndSession

        await here.do(EndSession(0, "enough"))
        return (await waiting).data["ended"]

    assert here.runner.run(asyncio.wait_for(both(), 60)) == "finished"


def test_tools_unconfined(ground: Make) -> None:
    bench = Bench(ground(settings=SandboxSettings(sandbox="none")))
    told = bench.use(
        "command", command="(setsid sleep 600 &) ; echo $HOME; cat TASK.md .culmen/about.json"
    )
    assert "Be good." in told.text and '"direction":"max"' in told.text and "/home" in told.text
    assert bench.use("append", path="notes/a00.md", text="hello\n").fault == ""
    assert "notes/a00.md" in bench.here.finish()[1].changed
    assert not bench.here.processes()
