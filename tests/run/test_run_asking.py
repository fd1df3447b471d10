"""Evaluators that ask models: metered, within hard budgets, through outages and kills.

The server bills on its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

import culmen
from culmen.cli.pages import by_role
from culmen.core.errors import Unavailable, UserError
from culmen.core.evaluation import CONVERSATION
from culmen.engine.driver import replay_journal
from culmen.extensions.web.pages.effects import calls_page
from culmen.extensions.web.runs import Digest
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.run.assemble import rebuild_search
from culmen.run.options import RunObjects
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.strategies.polca import Polca
from culmen.strategies.summarizer import Summarizer
from tests.servers.model_script import Asked, ToolCall, Turn
from tests.servers.model_server import ModelServer

PRICE = Price(input=10.0, output=40.0)
SEED = "x = 1\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def spec(server: ModelServer, name: str = "big", **more) -> ModelSpec:
    settings = {
        "base": 0.001,
        "cap": 0.002,
        "retries": 1,
        "bad_retries": 1,
        "timeout": 20.0,
        **more,
    }
    provider = Provider("mine", f"{server.url}/v1", **settings)
    return ModelSpec(provider, name, max_tokens=50, price=PRICE)


def graded(asked: Asked) -> Turn:
    return Turn(str(len(asked.text) % 10), tokens=Tokens(len(asked.text.encode()), 5))


def judge(candidate: str, ask) -> tuple[float, str]:
    first = ask(f"Grade this:\n{candidate}")
    second = ask(
        [
            {"role": "user", "content": "shorter"},
            first.message,
            {"role": "user", "content": "sure?"},
        ]
    )
    return float(first.text) + float(second.text) / 100, "graded"


def searched(server: ModelServer, folder: Path, evaluator=judge, budget: object = 12, **more):
    models = {"default": "offline", "judge": spec(server, **more.pop("provider", {}))}
    options = {
        "model": models,
        "budget": budget,
        "workers": 3,
        "run_dir": folder / "run",
        "progress": False,
    }
    return culmen.optimize(SEED, evaluator, **{**options, **more})


def spent(server: ModelServer) -> float:
    return PRICE.cost_of_tokens(Tokens(server.billed["input"], server.billed["output"]))


def test_what_an_evaluator_asks_is_counted_on_the_observation_and_by_role(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        study = searched(server, tmp_path)
    now, (row,) = study.status, [row for row in views.call_costs(study.path) if row.effect == "ask"]
    assert (row.role, row.model, row.effects) == ("judge", "mine/big", len(server.asked))
    assert now.usage.calls == len(
        server.asked
    ) == 2 * study.status.evaluations and now.usage.dollars == pytest.approx(spent(server))
    seen = study.evaluations()
    assert all(one.usage.calls == 2 and one.asked[0].asked == 2 for one in seen)
    said = seen[0].artifacts[CONVERSATION]
    assert (
        said.startswith("[user to judge] Grade this:")
        and "[judge] " in said
        and said.count("sure?") == 1
    )


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "limit"), [("calls", 15), ("tokens", 2_000), ("dollars", 0.06)])
def test_budgets_stay_hard_and_end_the_search(tmp_path: Path, budget: str, limit: float) -> None:
    with ModelServer(graded) as server:
        study = searched(
            server, tmp_path, budget=culmen.Budget(evaluations=500, **{budget: limit}), workers=4
        )
    cost = {"calls": len(server.asked), "tokens": server.billed.total(), "dollars": spent(server)}
    assert 0.3 * limit < cost[budget] <= limit and study.status.reason == budget
    assert study.status.usage.calls == len(server.asked)
    assert (
        study.status.best and study.status.best.confirmed
    )  # a share was kept for the final choice


def lenient(candidate: str, ask) -> float:
    try:
        return float(ask(candidate).text)
    except Exception:  # noqa: BLE001 - as users write it
        return -1.0


def test_an_outage_is_lost_and_never_held_against_the_candidate(tmp_path: Path) -> None:
    with ModelServer(graded, ["", "", *["html"] * 40]) as server:
        study = searched(server, tmp_path, lenient, budget=6, workers=1, provider={"cap": 0.001})
    told = study.status
    assert told.statuses.get("lost") and set(told.statuses) <= {"ok", "lost"}
    assert told.failures == {"provider_away": told.statuses["lost"]}
    assert all(one.score != -1.0 for one in study.evaluations())


def refused(candidate: str, ask) -> float:
    try:
        ask(candidate, n=2)
    except culmen.AskFailed as error:
        return 1.0 if error.kind == "bad_request" else 0.0
    return -1.0


def test_what_no_provider_would_take_is_the_evaluators_to_handle(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        study = searched(server, tmp_path, refused, budget=2)
    assert study.status.statuses == {"ok": 2} and study.best.score == 1.0 and not server.asked


def test_a_role_without_a_model_is_named(tmp_path: Path) -> None:
    with ModelServer(graded) as server, pytest.raises(UserError, match="'critic'"):
        searched(
            server, tmp_path, lambda candidate, ask: ask(candidate, role="critic").text, budget=3
        )
    with pytest.raises(UserError, match="'judge'"):
        culmen.optimize(SEED, judge, budget=3, run_dir=tmp_path / "none", progress=False)


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def agent(asked: Asked) -> Turn:
    if asked.results:
        return Turn(f"It is {asked.results[0]}.")
    return Turn("", (ToolCall("weather", {"city": "Bern"}),))


async def toured(candidate: str, ask) -> float:
    async def one(city: str) -> str:
        messages = [{"role": "user", "content": f"Weather in {city}?"}]
        reply = await ask(messages, role="agent", tools=[WEATHER])
        call = reply.tool_calls[0]
        told = {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": json.loads(call["function"]["arguments"])["city"],
        }
        return (await ask([*messages, reply.message, told], role="agent", tools=[WEATHER])).text

    found = await asyncio.gather(*(one(city) for city in ("Bern", "Rome", "Oslo")))
    return float(sum(text == "It is Bern." for text in found))


def test_tools_and_several_turns_side_by_side(tmp_path: Path) -> None:
    with ModelServer(agent) as server:
        model = {"default": "offline", "agent": spec(server)}
        study = searched(server, tmp_path, toured, budget=2, model=model)
    assert study.best.score == 3.0 and study.status.usage.calls == 12
    said = study.evaluations()[0].artifacts[CONVERSATION]
    assert 'calls weather({"city": "Bern"})' in said and "[tool to agent] Bern" in said


def test_any_model_answers_also_a_function(tmp_path: Path) -> None:
    study = culmen.optimize(
        SEED,
        judge,
        model={"default": "offline", "judge": lambda prompt: "7"},
        budget=2,
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert study.best.score == pytest.approx(7.07) and study.status.usage.calls == 4


def test_a_replay_asks_nobody(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        models = {"default": "offline", "judge": spec(server)}
        study = searched(server, tmp_path, model=models)
    journal = SqlJournal.open(study.path)
    search, estimate = rebuild_search(study.meta, RunObjects(model=models, evaluator=judge))
    done = replay_journal(search, journal.read(), estimate)
    assert search.is_done and not done.pending and not done.missing
    assert search.ledger.spent.calls == len(server.asked) > 10
    journal.close()


# Killed while a call is in flight: what it may have cost is held, what was answered is not paid for
# again.


def killable(url: str, folder: str) -> None:
    model = ModelSpec(Provider("mine", f"{url}/v1"), "big", max_tokens=50, price=PRICE)
    culmen.optimize(
        SEED,
        judge,
        model={"default": "offline", "judge": model},
        workers=1,
        run_dir=folder,
        budget=culmen.Budget(evaluations=12, calls=40),
        progress=False,
    )


@pytest.mark.slow
def test_killed_in_a_call_and_resumed_it_ends_where_it_would_have(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        straight = searched(
            server, tmp_path / "straight", workers=1, budget=culmen.Budget(evaluations=12, calls=40)
        )
    script = "import sys; from tests.run.test_run_asking import killable; killable(*sys.argv[1:])"
    with ModelServer(graded, [*[""] * 7, "hang"]) as server:
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "other")}
        run = subprocess.Popen(
            [sys.executable, "-c", script, server.url, str(tmp_path / "cut")], env=env
        )
        while len(server.asked) < 8:
            assert run.poll() is None
            time.sleep(0.02)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        server.release()
        os.environ["XDG_CACHE_HOME"] = str(tmp_path / "other")
        models = {"default": "offline", "judge": spec(server)}
        study = culmen.Study.resume(tmp_path / "cut", evaluator=judge, model=models)
        study.run(progress=False)
    assert study.best.id == straight.best.id and study.best.score == straight.best.score
    now = study.status
    assert (
        now.usage.possibly_lost.calls == 2
    )  # of the evaluation that was cut off: one answered, one in flight
    assert now.usage.calls + now.usage.possibly_lost.calls >= len(server.asked)
    assert now.usage.cache_hits == 1  # its first question, asked again
    kinds = [event.entry.kind for event in SqlJournal.open(study.path).read()]
    assert "held" in kinds


# A folder: text candidates in the jail's place, the scorer a process of its own.


def folder(place: Path, evaluator: str, **table: object) -> Path:
    place.mkdir()
    (place / "evaluator.py").write_text(textwrap.dedent(evaluator))
    (place / "prompt.txt").write_text("Answer briefly.")
    cases = [{"id": "a", "input": "1+1", "info": "2"}, {"id": "b", "input": "2+2", "info": "4"}]
    (place / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    (place / "task.toml").write_text(
        textwrap.dedent("""
        name = "sums"
        goal = "instruct the model"
        cases = "cases.jsonl"
        [seed]
        files = ["prompt.txt"]
        [evaluator]
        entry = ""
        roles = ["student"]
    """)
    )
    return place


SUMS = """
    def score(parts, case, ask):
        told = [{"role": "system", "content": parts["prompt.txt"]}, {"role": "user", "content": case.input}]
        return {"score": float(case.info in ask(told, role="student").text), "feedback": "wanted " + case.info}
"""


def test_a_trusted_scorer_asks_from_its_own_process(tmp_path: Path) -> None:
    task = folder(tmp_path / "task", SUMS)
    with ModelServer(lambda asked: Turn(str(eval(asked.text)))) as server:
        study = culmen.Study.create(
            task,
            model={"default": "offline", "student": spec(server)},
            budget=6,
            run_dir=tmp_path / "run",
            workers=2,
        )
        study.run(progress=False)
    seen = study.evaluations()
    assert seen and all(one.ok and one.score == 1.0 and one.trust == "verified" for one in seen)
    assert {row.role for row in views.call_costs(study.path) if row.effect == "ask"} == {"student"}
    assert study.status.usage.calls == len(server.asked) == len(seen)


def test_the_time_that_models_take_is_not_the_evaluators(tmp_path: Path) -> None:
    def slow(asked: Asked) -> Turn:
        time.sleep(1.2)
        return graded(asked)

    with ModelServer(slow) as server:
        study = searched(server, tmp_path, budget=1, limits=culmen.Limits(seconds=1.0))
    assert study.status.statuses == {"ok": 1}


def test_usage_survives_the_journal(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        study = searched(server, tmp_path, budget=2)
    (one, *_) = study.evaluations()
    assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one


def test_a_check_asks_the_models_it_is_given_and_says_which_are_missing(tmp_path: Path) -> None:
    task = folder(tmp_path / "task", SUMS)
    with pytest.raises(UserError, match="no model is named for student"):
        culmen.check(None, task)
    with ModelServer(lambda asked: Turn(str(eval(asked.text)))) as server:
        report = culmen.check(None, task, times=2, model={"student": spec(server)})
    assert report.fit and any(
        "asked mine/big as student" in finding.what for finding in report.findings
    )


def test_proposer_and_summarizer_read_what_was_asked_and_said(tmp_path: Path) -> None:
    def scripted(asked: Asked) -> Turn:
        if asked.model == "student":
            return Turn("3" if len(server.asked) % 2 else str(eval(asked.text)))
        told[asked.model].append(asked.text)
        if asked.model == "summarizer":
            return Turn("<summary>Add the numbers.</summary>")
        return Turn(f"```\nAnswer with number {len(server.asked)}.\n```")

    told: dict[str, list[str]] = {"proposer": [], "summarizer": []}
    task = folder(tmp_path / "task", SUMS)
    with ModelServer(scripted) as server:
        study = culmen.Study.create(
            task,
            Polca(batch=2, summarizer=Summarizer(every=1)),
            model={role: spec(server, role) for role in ("student", "proposer", "summarizer")},
            budget=24,
            run_dir=tmp_path / "run",
            workers=1,
        )
        study.run(progress=False)
    for role in told:
        assert any("[user to student] 1+1" in text and "[student] " in text for text in told[role])
    assert {row.role for row in views.call_costs(study.path) if row.effect == "ask"} == {"student"}


def test_outputs_of_cases_are_kept(tmp_path: Path) -> None:
    task = folder(
        tmp_path / "task", "def score(output, case):\n    return float(output == case.info)\n"
    )
    (task / "prompt.txt").rename(task / "main.py")
    (task / "main.py").write_text("def run(text):\n    return text[::-1]\n")
    table = (
        (task / "task.toml")
        .read_text()
        .replace("prompt.txt", "main.py")
        .replace('entry = ""', 'entry = "run"')
    )
    (task / "task.toml").write_text(table.replace('roles = ["student"]', ""))
    study = culmen.Study.create(task, budget=2, run_dir=tmp_path / "run", workers=1)
    study.run(progress=False)
    assert {one.artifacts["output"] for one in study.evaluations()} <= {
        "1+1",
        "2+2",
    } and study.evaluations()


def test_status_and_dashboard_tell_what_each_role_cost(tmp_path: Path) -> None:
    with ModelServer(graded) as server:
        study = searched(server, tmp_path, budget=3)
    assert by_role(study.path).startswith(f"judge {study.status.usage.calls} calls, ")
    page = calls_page(Digest(study.path), {})
    (row,) = [row for row in page["rows"] if row["effect"] == "ask"]
    assert (row["role"], row["calls"]) == ("judge", study.status.usage.calls)
    assert page["series"][-1]["dollars"] == pytest.approx(study.status.usage.dollars)


@pytest.mark.slow
def test_an_outage_that_lasts_stops_the_run_and_it_is_resumed_where_it_stood(
    tmp_path: Path,
) -> None:
    with ModelServer(graded) as server:
        straight = searched(server, tmp_path / "straight", workers=1)
    with ModelServer(graded) as server:
        server.fail(*[""] * 5, *["500"] * 2_000)
        with pytest.raises(Unavailable):
            searched(server, tmp_path, workers=1, provider={"patience": 0.05})
        asked = len(server.asked)
    with ModelServer(graded) as server:
        models = {"default": "offline", "judge": spec(server)}
        study = culmen.Study.resume(tmp_path / "run", evaluator=judge, model=models)
        study.run(progress=False)
    assert "lost" not in study.status.statuses and asked < 200
    assert [(one.candidate, one.score) for one in study.evaluations()] == [
        (one.candidate, one.score) for one in straight.evaluations()
    ]


def test_replies_from_the_cache_do_not_make_an_evaluator_repeatable(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ModelServer(graded) as server:
        report = culmen.check(SEED, judge, times=3, model={"judge": spec(server)})
    assert any(
        call.usage.cache_hits
        for seed in report.seeds
        for each in seed.observations
        for call in each.asked
    )
    assert report.repeatable is None and report.fit
