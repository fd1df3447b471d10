"""`culmen mcp` as the official SDK's client meets it, and the folders it keeps to.

They meet over standard input and output.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.core.errors import UserError
from culmen.extensions.mcp.cli import AllowedFolders, Tools
from culmen.store import views

TOOLS = [
    "new",
    "check",
    "audit",
    "judge",
    "run",
    "resume",
    "status",
    "best",
    "story",
    "diff",
    "explain",
    "tell",
    "stop",
]
Call = Callable[..., Awaitable[dict[str, Any]]]


class Refused(Exception):
    """The tool refused; the text is what the agent reads."""


def talk(home: Path, conversation: Callable[[Call], Awaitable[None]], *options: str) -> None:
    """Run a server for `home` and a conversation with it."""
    sdk = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    stdio = pytest.importorskip("mcp.client.stdio")

    async def session() -> None:
        command = stdio.StdioServerParameters(
            command=sys.executable,
            args=["-m", "culmen.cli.main", "mcp", str(home), *options],
            cwd=str(home),
        )
        async with sdk.Client(command) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS

            async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                answer = await client.call_tool(tool, arguments)
                if answer.is_error:
                    raise Refused(getattr(answer.content[0], "text", ""))
                assert answer.structured_content is not None
                return answer.structured_content

            await conversation(call)

    asyncio.run(session())


async def ended(call: Call, run: str, home: Path) -> dict[str, Any]:
    """The answer of `status` when the run is over.

    Each call is a process, so looks are made without it.
    """
    for _ in range(600):
        if views.run_status(home / "runs" / run).state != "running":
            now = await call("status", run=run)
            if now["state"] != "running":
                return now
        await asyncio.sleep(0.1)
    raise AssertionError("the run goes on for ever")


def test_arguments_that_do_not_fit_are_refused_in_plain_words(tmp_path: Path):
    async def conversation(call: Call) -> None:
        with pytest.raises(Refused) as unknown:
            await call("best", run="first", folder="won")
        with pytest.raises(Refused) as missing:
            await call("best")
        with pytest.raises(Refused) as unfit:
            await call("audit", task="mine", seconds="soon")
        texts = [str(each.value) for each in (unknown, missing, unfit)]
        assert "has no argument 'folder'" in texts[0] and "it takes run, out" in texts[0]
        assert "needs the argument 'run'" in texts[1] and "known runs: none" in texts[1]
        assert "tool audit do not fit: 'seconds'" in texts[2]
        assert not any("pydantic" in text for text in texts)

    talk(tmp_path, conversation)


@pytest.mark.parametrize("name", ["templates", "backend.address", "allow-failing"])
def test_settings_of_the_run_are_not_an_agents(tmp_path: Path, name: str):
    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        with pytest.raises(Refused, match=f"'{name}' is not a setting of a strategy"):
            await call("run", task="mine", evaluations=3, settings={name: "/"})
        assert not (tmp_path / "runs").exists()

    talk(tmp_path, conversation)


def test_an_agent_asks_for_a_verdict_and_a_hold_out_has_the_last_word(tmp_path: Path):
    for name, value in (("old", "5"), (".", "6")):
        (tmp_path / "work" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name / "value").write_text(value)

    async def conversation(call: Call) -> None:
        asked = {"folder": "work", "edit": ["value"], "command": ["cat", "value"]}
        told = await call("judge", **asked, against="old")
        assert told["verdict"] == "no difference that matters" and told["held_out"]
        assert told["session"]["asks"] == 1 and "secret" not in str(told)
        with pytest.raises(Refused, match="outside the folders"):
            await call("judge", **asked, against="/usr")
        with pytest.raises(Refused, match="outside the folder"):
            await call("judge", **{**asked, "edit": ["../value"]}, against="old")

    talk(tmp_path, conversation, "--confirm", "sh -c 'echo 1 # secret'")


@pytest.mark.slow
@pytest.mark.jail
def test_an_agent_goes_from_nothing_to_a_result(tmp_path: Path):
    async def conversation(call: Call) -> None:
        made = await call("new", folder="mine")
        assert {Path(file).name for file in made["files"]} == {
            "task.toml",
            "search.py",
            "evaluator.py",
        }
        checked = await call("check", task="mine")
        assert checked["fit"] and checked["findings"] == []
        assert (await call("audit", task="mine", seconds=2))["kind"] == "task"
        started = await call("run", task="mine", evaluations=30, name="first")
        assert started["run"] == "first"
        assert (await ended(call, "first", tmp_path))["state"] == "finished"
        best = await call("best", run="first", out="won")
        assert (tmp_path / "won/search.py").read_text() == best["parts"]["search.py"]
        told = await call("story", run="first")
        assert told["end"] == best["best"]["id"] and (told["steps"] or told["why"])
        changed = await call("diff", run="first")
        assert (changed["first"], changed["second"]) == (
            best["best"]["initial"]["id"],
            best["best"]["id"],
        )
        assert [run["run"] for run in (await call("status"))["runs"]] == ["first"]

    talk(tmp_path, conversation)


@pytest.mark.slow
@pytest.mark.jail
def test_a_running_search_is_told_things_and_stopped(tmp_path: Path):
    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        (tmp_path / "idea.py").write_text(
            (tmp_path / "mine/search.py").read_text() + "\n# an idea\n"
        )
        run = (await call("run", task="mine", seconds=600))["run"]
        for _ in range(300):
            if views.run_status(tmp_path / "runs" / run).evaluations:
                break
            await asyncio.sleep(0.1)
        assert (await call("tell", run=run, candidate="idea.py"))["taken"]
        assert (await call("tell", run=run, hint="try a grid"))["kind"] == "hint"
        await call("stop", run=run)
        assert (await ended(call, run, tmp_path))["state"] == "finished"

    talk(tmp_path, conversation)


@pytest.mark.slow
@pytest.mark.jail
def test_an_interrupted_run_is_resumed_and_goes_on_with_more_budget(tmp_path: Path):
    async def refused(call: Call, because: str, **arguments: Any) -> None:
        with pytest.raises(Refused, match=because):
            await call("resume", **arguments)

    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        await call("run", task="mine", evaluations=80, name="first")
        for _ in range(100):
            holder = views.run_status(tmp_path / "runs/first").owner
            if holder is not None:
                break
            await asyncio.sleep(0.1)
        assert holder is not None, views.run_status(tmp_path / "runs/first")
        os.kill(holder.pid, signal.SIGKILL)
        before = await ended(call, "first", tmp_path)
        assert before["state"] == "interrupted"
        assert (await call("resume", run="first"))["run"] == "first"
        after = await ended(call, "first", tmp_path)
        assert after["state"] == "finished" and after["evaluations"] >= before["evaluations"]
        await refused(call, "the run is finished", run="first")
        await refused(call, "more than a run may be given here", run="first", evaluations=100)
        await refused(call, "is negative", run="first", evaluations=-10)
        more = await call("resume", run="first", evaluations=20, name="second")
        assert (
            more["run"] == "second"
            and (await ended(call, "second", tmp_path))["state"] == "finished"
        )
        old, new = (views.run_meta(tmp_path / "runs" / name).budget for name in ("first", "second"))
        assert (new.dollars, new.seconds) == (old.dollars, old.seconds)
        settings = tmp_path / "mine/task.toml"
        settings.write_text(settings.read_text() + '\n[evaluator]\nfile = "/etc/passwd"\n')
        (tmp_path / "mine/link").symlink_to("/etc/passwd")
        await refused(call, "outside the folders", run="second", evaluations=5)

    talk(tmp_path, conversation, "--evaluations", "100")


@pytest.mark.slow
@pytest.mark.jail
def test_a_run_whose_evaluator_fails_says_where(tmp_path: Path):
    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        (tmp_path / "mine/evaluator.py").write_text(
            "def score(output):\n    return output / None\n"
        )
        run = (await call("run", task="mine", evaluations=30))["run"]
        now = await ended(call, run, tmp_path)
        assert (
            "the initial program gives no score" in now["problem"]
            and "evaluator.py" in now["problem"]
        )

    talk(tmp_path, conversation)


def test_mistakes_come_back_as_what_to_do(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()

    async def refused(call: Call, tool: str, because: str, **arguments: Any) -> None:
        with pytest.raises(Refused, match=because):
            await call(tool, **arguments)

    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        await refused(call, "run", "nothing ends this run", task="mine")
        await refused(
            call, "run", "more than a run may be given here", task="mine", evaluations=500
        )
        await refused(
            call,
            "run",
            "there is no strategy 'cato' here",
            task="mine",
            evaluations=5,
            strategy="cato",
        )
        await refused(
            call, "run", "is not a name for a run", task="mine", evaluations=5, name="../a"
        )
        await refused(call, "status", "there is no run 'nothing'", run="nothing")
        await refused(call, "check", "outside the folders", task=str(tmp_path))
        await refused(call, "new", "outside the folders", folder="../elsewhere")
        await refused(call, "diff", "there is no run", run="x", first="--json")
        (home / "mine/task.toml").write_text("nonsense = [")
        await refused(call, "run", "task.toml", task="mine", evaluations=5)
        assert not (home / "runs").exists() and not (tmp_path / "elsewhere").exists()

    talk(home, conversation, "--evaluations", "100")


ODD = ("a\0b", "n" * 300, "--run-dir=/", "$(touch pwned)", "\x1b]0;x\x07", "{" * 200_000)


@pytest.mark.slow
def test_whatever_an_argument_says_is_refused_in_words(tmp_path: Path):
    """No text of an agent ends a call as a bug, becomes an option or a command, or leaves home."""
    home = tmp_path / "home"
    home.mkdir()
    needed: dict[str, dict[str, Any]] = {name: {"run": "x"} for name in TOOLS}
    needed |= {name: {"task": "x"} for name in ("check", "audit")} | {
        "new": {"folder": "mine"},
        "judge": {"folder": "mine", "edit": ["search.py"], "command": ["true"]},
        "run": {"task": "mine", "evaluations": 500},  # refused at last, as beyond the limit
    }

    async def conversation(call: Call) -> None:
        await call("new", folder="mine")
        for tool, given in needed.items():
            parameters = inspect.signature(getattr(Tools, tool)).parameters.items()
            for n, (name, known) in enumerate(parameters):
                is_number = isinstance(known.default, int | float)
                odd = (-1, "1;2", None) if is_number else (ODD[0], ODD[1 + n % len(ODD[1:])])
                for text in odd if name not in ("self", "seed") else ():
                    if tool == "new" and name == "folder" and text in ODD[2:5]:
                        continue  # these are names
                    listed = [text] if name in ("edit", "command") else text
                    value = {"bins": text} if name == "settings" else listed
                    with pytest.raises(Refused) as told:
                        await call(tool, **{**given, name: value})
                    words = str(told.value).removeprefix(f"Error executing tool {tool}")
                    assert len(words) > 5 and not re.search("Traceback|a bug|pydantic", words)
        assert [path.name for path in home.iterdir()] == ["mine"]
        assert [path.name for path in tmp_path.iterdir()] == ["home"]

    talk(home, conversation, "--evaluations", "100")


@pytest.fixture
def folders(tmp_path: Path) -> AllowedFolders:
    (tmp_path / "home/task").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    return AllowedFolders([tmp_path / "home"])


@pytest.mark.parametrize(
    "given", ["..", "../secret.txt", "/etc/passwd", "task/../../secret.txt", "", "a\0b"]
)
def test_paths_elsewhere_are_refused(folders: AllowedFolders, given: str):
    with pytest.raises(UserError):
        folders.resolve_path(given)


@pytest.mark.parametrize("model", ["bank:{}", "proposer=2*bank:{}#M|offline", "bank:../banks"])
def test_recorded_programs_elsewhere_are_refused(
    folders: AllowedFolders, tmp_path: Path, model: str
):
    (tmp_path / "banks/M").mkdir(parents=True)
    tools = Tools(folders, {"evaluations": 9.0, "dollars": 1.0, "seconds": 9.0})
    with pytest.raises(UserError, match="lies outside the folders"):
        asyncio.run(tools.run("task", evaluations=2, model=model.format(tmp_path / "banks")))


def test_a_run_that_stands_there_is_never_taken_for_a_new_one(folders: AllowedFolders):
    culmen.optimize("1", float, budget=1, run_dir=folders.runs / "mine", progress=False)
    with pytest.raises(UserError, match="there is a run 'mine'"):
        folders.new_run("mine")


def test_links_that_lead_out_are_refused(folders: AllowedFolders, tmp_path: Path):
    (folders.home / "task/cases.jsonl").symlink_to(tmp_path / "secret.txt")
    (folders.home / "door").symlink_to(tmp_path)
    with pytest.raises(UserError, match="outside"):
        folders.resolve_task("task")
    with pytest.raises(UserError, match="outside"):
        folders.resolve_path("door/secret.txt")


@pytest.mark.parametrize(
    "line",
    [
        'cases = "../../secret.txt"',
        '[seed]\nfiles = ["../../secret.txt"]',
        '[seed]\nglob = "../../*.txt"',
        '[seed]\nfolders = ["/etc"]',
        '[evaluator]\nfile = "/etc/passwd"',
        '[evaluator.options]\nreadable = ["/root", "/home"]',
    ],
)
def test_files_elsewhere_that_a_task_names_are_refused(folders: AllowedFolders, line: str):
    (folders.home / "task/task.toml").write_text(f'goal = "Steal."\n{line}\n')
    with pytest.raises(UserError, match="lies outside the folders that are open to you"):
        folders.resolve_task("task")


def test_a_task_that_stays_inside_is_taken(folders: AllowedFolders):
    (folders.home / "shared.py").write_text("x = 1\n")
    text = 'goal = "See ../ and /nowhere/at/all."\n[seed]\nfiles = ["../shared.py"]\n[evaluator]\ncommand = ["/bin/sh"]\n'  # noqa: E501
    (folders.home / "task/task.toml").write_text(text)
    assert folders.resolve_task("task") == folders.home / "task"


HOSTILE = ("n" * 300, "../" * 40 + "etc/passwd", "a\x00b", "--help", "$(touch pwned)", "")


def test_hostile_names_are_refused_before_anything_runs(tmp_path: Path):
    folders = AllowedFolders([tmp_path])
    for text in HOSTILE:
        for resolve in (folders.resolve_run, folders.resolve_task):
            with pytest.raises(UserError):
                resolve(text)
    assert list(tmp_path.iterdir()) == []
