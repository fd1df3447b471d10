"""Costs of an agent's model calls reach the journal exactly once; limits end the session."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from culmen.core.usage import Usage
from culmen.extensions.agents.messages import EndSession, Nudge, Open, Wait, Waited
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.models.call import Tokens
from tests.extensions.agents.sandbox.grounds import PYTHON, Ground
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]
SECRET = "sk-upstream-0123456789abcdefSECRET"

CALL = """
import json, os, sys, time, urllib.error, urllib.request

def call(text="hi"):
    body = {"model": "whatever", "max_tokens": 10, "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        return json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return str(error.code)
"""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([Turn("hello", tokens=Tokens(30, 10))]) as made:
        yield made


@pytest.fixture
def metered(
    ground: Make, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Make:
    """Grounds with the scripted model.

    It costs a dollar a million tokens of input, two of output.
    """
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UPSTREAM_KEY", SECRET)
    file = tmp_path / "models.toml"
    file.write_text(
        f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
        '[models.big]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
    )
    return lambda **options: ground(models=("big", str(file)), **options)


def to_the_end(here: Ground, first: int = 1) -> tuple[Waited, Usage]:
    """All waits and the end; the usage that they reported, together."""
    total, nth = Usage(), first
    while True:
        done = here.runner.run(here.do(Wait(0, 0, nth)))
        again = here.runner.run(here.do(Wait(0, 0, nth)))
        assert again == done  # told twice, counted once by whoever journals it
        total, nth = total + done.usage, nth + 1
        if done.data.get("ended"):
            break
    waited = Waited(
        **{name: value for name, value in done.data.items() if name in ("ended", "word")}
    )
    ended = here.runner.run(here.do(EndSession(0, "x")))
    assert here.runner.run(here.do(EndSession(0, "x"))) == ended
    return waited, total + ended.usage


def test_metered_usage_is_told_once(metered: Make, server: ModelServer) -> None:
    here = metered()
    opened = here.open(
        CALL
        + """
keys = [name for name, value in os.environ.items() if "SECRET" in value]
print(call(), call(), call(), keys, os.environ["OPENAI_API_KEY"].startswith("sk-culmen-"))
"""
    )
    assert opened.metered
    waited, usage = to_the_end(here)
    assert waited.word == "hello hello hello [] True"
    assert usage == Usage(
        calls=3, input_tokens=90, output_tokens=30, dollars=pytest.approx(0.00015)
    )
    assert server.keys == {f"Bearer {SECRET}"}
    transcript = (here.run_folder / "transcripts" / "agent-a00.jsonl").read_text()
    assert transcript.count("\n") == 3 and "SECRET" not in transcript


@pytest.mark.slow
def test_metered_usage_after_a_crash(metered: Make, server: ModelServer) -> None:
    """Calls that no wait reported before the process died are reported by the next one."""
    here = metered()
    here.open(
        CALL
        + """
call()
while True:
    time.sleep(0.01)
    if os.path.exists("go"):
        os.unlink("go")
        call()
"""
    )
    told = Usage()
    nth = 0
    while told.calls < 1:  # usage is told within a bounded time
        nth += 1
        told = told + here.runner.run(here.do(Wait(0, 0, nth))).usage
    (here.tree() / "go").write_text("")

    async def until_counted() -> None:
        end = time.monotonic() + 60
        while server.ended["ok"] < 2 and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)

    here.runner.run(until_counted())
    here.leave()
    calls = server.ended["ok"]
    here.enter()
    waited, usage = to_the_end(here, nth + 1)
    assert waited.ended == "interrupted"
    assert (told + usage).calls == calls == 2
    here.leave()
    here.enter()
    assert to_the_end(here, nth + 1)[1] == usage  # asked again in yet another process: the same


@pytest.mark.parametrize(
    ("limits", "ended"),
    [({"calls": 2}, "calls"), ({"dollars": 0.0004}, "dollars"), ({"tokens": 400}, "tokens")],
)
def test_metered_limits_end_the_session(
    metered: Make, limits: dict[str, float], ended: str
) -> None:
    here = metered()
    here.open(CALL + "while True:\n    call()\n", limits=limits)
    waited, usage = to_the_end(here)
    assert waited.ended == ended
    assert usage.calls >= 1 and all(getattr(usage, name) <= limit for name, limit in limits.items())
    assert not here.processes()


def test_metered_run_budget_ends_the_session(metered: Make) -> None:
    here = metered(permit=lambda usage: usage.calls <= 2)
    here.open(CALL + "while True:\n    call()\n")
    waited, usage = to_the_end(here)
    assert (waited.ended, usage.calls) == ("budget", 2)
    assert not here.processes()


def test_metered_program_without_a_model_is_told_so(
    ground: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may do without; a program that is made for a provider needs its key or a model."""
    here = ground()
    here.open("import os\nprint(os.environ.get('OPENAI_BASE_URL', 'nothing'))\n")
    assert here.serve()[0].word == "nothing"
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    opened = here.now(Open(1, "claude", {}, "x"))
    assert "the key for" in opened.fault or "not installed" in opened.fault
    wrong = here.now(Open(2, PYTHON, {}, "x", model="no-such-provider/x"))
    assert "unknown provider" in wrong.fault


def test_metered_end_counts_what_came_after_the_last_wait(metered: Make) -> None:
    here = metered()
    here.open(CALL + "call()\nwhile True:\n    time.sleep(1)\n")

    async def until_called() -> Any:
        meter = here.world._meter  # pyright: ignore[reportPrivateUsage]
        while meter.usage(0).calls < 1:
            await asyncio.sleep(0.01)
        return await here.do(EndSession(0, "enough"))

    ended = here.runner.run(asyncio.wait_for(until_called(), 60))
    assert ended.usage.calls == 1


FAKE = """#!{python}
import json, sys, time
words = sys.argv[1:]
said = words[words.index("-p") + 1]
again = words[words.index("--resume") + 1] if "--resume" in words else ""
print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s-1"}}), flush=True)
cost = {{"usage": {{"input_tokens": 10, "output_tokens": 1}}, "total_cost_usd": 0.25, "num_turns": 1}}
if again:
    result = {{"subtype": "success", "session_id": again, "result": f"{{again}} heard {{said}}"}}
    print(json.dumps({{"type": "result", **result, **cost}}), flush=True)
else:
    print(json.dumps({{"type": "result", "subtype": "error_during_execution", **cost}}), flush=True)
    print(json.dumps({{"type": "system", "session_id": "s-1"}}), flush=True)
    time.sleep(600)
"""


def test_metered_nudge_goes_on_in_the_same_session(
    metered: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that does not listen is ended and started again.

    It has its session's name; what both claim adds up.
    """
    fake = tmp_path / "bin" / "claude"
    fake.parent.mkdir()
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    here = metered()
    here.open("begin", kind="claude", limits={"idle": 0.5})
    transcript, nth = here.run_folder / "transcripts" / "a00.jsonl", 0
    while True:
        nth += 1
        begun = transcript.exists()  # slow to start is idle, too
        waited = here.now(Wait(0, 0, nth))
        assert not waited.ended, waited
        if begun and waited.idle:
            break
    assert here.now(Nudge(0, 1, "are you there?")).delivered
    while not waited.ended:
        nth += 1
        waited = here.now(Wait(0, 0, nth))
    assert (waited.ended, waited.word) == ("finished", "s-1 heard are you there?")
    ended = here.now(EndSession(0, "finished"))
    assert ended.claimed == {
        "input_tokens": 20.0,
        "output_tokens": 2.0,
        "dollars": 0.5,
    }
    assert here.now(Nudge(0, 2, "still there?")).delivered is False
    assert not here.processes()


def test_metered_without_a_sandbox(metered: Make, server: ModelServer) -> None:
    """The relay is there even so, on a port of the machine's own loopback."""
    here = metered(settings=SandboxSettings(sandbox="none"))
    here.open(CALL + "print(call())\n")
    waited, usage = to_the_end(here)
    assert waited.word == "hello" and usage.calls == 1
    assert server.keys == {f"Bearer {SECRET}"}
