"""Going on with a run whose budget is spent: the fork's budget and its beginning."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.usage import Budget
from culmen.run import fork
from culmen.store import views
from culmen.store.database import RunMeta
from tests.servers.openai_server import OpenAIServer

from .conftest import TOML, Place


@pytest.fixture
def meta(done: Place) -> RunMeta:
    """Of a run with the offline proposer and 14 evaluations."""
    return views.run_meta(done.root / "runs/first")


def asked(meta: RunMeta) -> RunMeta:
    """The same with a model and a limit of dollars."""
    budget = Budget(evaluations=200, dollars=2.0)
    return msgspec.structs.replace(meta, model="openai/any", budget=budget)


def test_a_budget_without_a_plus_is_taken_as_it_stands(meta: RunMeta):
    assert fork.settle_fork_budget(asked(meta), 190, "evaluations=50") == (
        Budget(evaluations=50),
        0,
    )
    assert fork.settle_fork_budget(meta, 14, "evaluations=50", 3) == (Budget(evaluations=50), 3)


def test_a_run_that_can_be_retraced_gets_more_on_top_of_what_it_had(meta: RunMeta):
    assert fork.settle_fork_budget(asked(meta), 190, "evaluations=+50") == (
        Budget(evaluations=250, dollars=2.0),
        0,
    )
    assert fork.settle_fork_budget(asked(meta), 190, "dollars=+1.5,final=0.2")[0] == Budget(
        200, dollars=3.5, final=0.2
    )


def test_the_offline_proposer_begins_with_what_was_found(meta: RunMeta):
    budget, carry = fork.settle_fork_budget(meta, 14, "evaluations=+100")
    assert (budget, carry) == (Budget(evaluations=100), 25)  # a quarter is for looking at them
    assert fork.settle_fork_budget(meta, 14, "evaluations=+1000")[1] == fork.MOST_CARRIED
    cases = msgspec.structs.replace(meta.task, cases=tuple(Case(str(i)) for i in range(10)))
    with_cases = msgspec.structs.replace(meta, task=cases)
    assert fork.settle_fork_budget(with_cases, 14, "evaluations=+100") == (
        Budget(evaluations=100),
        2,
    )
    assert fork.settle_fork_budget(meta, 14, "evaluations=+100", 0) == (Budget(evaluations=114), 0)


@pytest.mark.parametrize(
    "text", ["dollars=+1", "seconds=+60", "final=+0.1", "evaluations=+x", "evals=+3"]
)
def test_more_of_what_was_not_limited_is_a_mistake(meta: RunMeta, text: str):
    with pytest.raises(UserError):
        fork.settle_fork_budget(meta, 14, text, 0)


def test_a_fork_that_begins_anew_may_limit_what_was_not_limited(meta: RunMeta):
    assert fork.settle_fork_budget(meta, 14, "dollars=+1", 1)[0].dollars == 1


def test_agents_do_not_retrace(meta: RunMeta):
    from culmen.strategies import catalog

    assert fork.retraces_parent(asked(meta))
    strategy = catalog.strategy_config(catalog.make_strategy("cato", {"agent": "builtin"}))
    assert not fork.retraces_parent(msgspec.structs.replace(asked(meta), strategy=strategy))
    strategy = {
        **meta.strategy,
        "config": {"setting_of_before": 1},
    }  # only a fork goes on from there
    assert fork.retraces_parent(msgspec.structs.replace(asked(meta), strategy=strategy))


def test_a_fork_with_more_begins_with_the_best_and_ends_no_worse(done: Place, tmp_path: Path):
    before = done.here("status", "first", "--json").document
    assert (
        f"culmen runs fork first --budget evaluations=+{before['budget']['evaluations']}"
        in before["also"]
    )
    assert before["next"] == ["culmen best first"]
    further = tmp_path / "further"
    asked = done.here(
        "runs", "fork", "first", "--budget", "evaluations=+12", "--run-dir", str(further), "--json"
    )
    forked = asked.document
    seeds = {row.id for row in views.candidate_rows(further, "old", operator="carried")}
    assert before["best"]["id"] in seeds
    assert forked["best"]["score"] >= before["best"]["score"]
    assert forked["evaluations"] <= 12


def test_a_carried_candidate_is_judged_by_fresh_evaluations_at_the_end(place: Place):
    """Evaluations that made it one of the best may not be those its score is reported from."""
    noisy = "def score(output, seed):\n    return -(output - 7.0) ** 2 + seed % 997 / 100\n"
    place.task(
        "noisy",
        evaluator=noisy,
        toml=TOML.replace("deterministic = true\n", "").replace("0.0]", "1e9]"),
    )
    place.here("run", "noisy", "--budget", "evaluations=40", "--run-dir", "runs/first", "--quiet")
    made = place.here(
        "runs", "fork", "first", "--budget", "evaluations=+40", "--run-dir", "runs/more", "--json"
    )
    assert made.code == 0, made.out

    def looks(run: str, *phases: str | None) -> set[tuple[str, int]]:
        events = place.here("show", run, "--log", "--all", "--json").document["events"]
        found = [e for e in events if e["kind"] == "done" and e["effect"] == "evaluate"]
        return {
            (e["result"]["candidate"], e["result"]["seed"])
            for e in found
            if e["body"].get("phase") in phases
        }

    known = looks("first", None, "final")
    carried = {candidate for candidate, _ in known} & {
        candidate for candidate, _ in looks("more", None)
    }
    assert len(carried) > 3 and looks("more", "final")
    assert not looks("more", None, "final") & known
    error = place.here("runs", "fork", "first", "--carry", "3", "--seed", "0", "--json").document[
        "error"
    ]
    assert "--seed 1" in error["next"]


def test_a_finished_run_is_not_touched_by_resuming_it(done: Place):
    run = done.root / "runs/first"
    events = len(list(views.log_events(run)))
    told = done.here("resume", "first")
    assert (
        told.code == 0
        and "nothing left to do" in told.err
        and "culmen runs fork first --budget" in " ".join(told.err.split())
    )
    assert done.here("resume", "first", "--json").document["state"] == "finished"
    assert len(list(views.log_events(run))) == events


def test_who_would_resume_with_more_is_told_to_fork(done: Place):
    error = done.here("resume", "first", "--budget", "evaluations=100", "--json").document["error"]
    assert error["next"] == "culmen runs fork first --budget evaluations=+100"
    error = done.here("run", "peak", "--budget", "evaluations=+100", "--json").document["error"]
    assert "culmen runs fork RUN --budget evaluations=+100" in error["next"]


def another_number(body: dict) -> str:
    """A scripted model."""
    draw = int(hashlib.sha256(body["messages"][-1]["content"].encode()).hexdigest()[:6], 16)
    return f"Another number.\n\n```guess.py\ndef run():\n    return {draw % 1000 / 100}\n```\n"


def test_with_a_model_the_fork_retraces_the_run_and_goes_on_behind_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    place.task("peak")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    with OpenAIServer(another_number) as server:
        book = f'[providers.local]\nbase_url = "{server.url}"\n[models.m]\nprovider = "local"\n'
        (place.root / "models.toml").write_text(book)
        model = ("--model", "m", "--models", "models.toml", "--workers", "1")
        limits = ("--budget", "evaluations=20,calls=100")
        first = place.here(
            "run", "peak", *model, *limits, "--run-dir", "runs/first", "--json"
        ).document
        asked = len(server.requests)
        more = ("--budget", "evaluations=+10", "--run-dir", "runs/more", "--json")
        second = place.here("runs", "fork", "first", *more).document
        anew = len(server.requests) - asked
    before, after = (
        [row.id for row in views.candidate_rows(place.root / "runs" / name, "old", limit=None)]
        for name in ("first", "more")
    )
    assert second["budget"]["evaluations"] == 30 and second["budget"]["calls"] == 100
    assert first["usage"]["calls"] == asked and second["usage"]["calls"] == asked + anew
    assert len(before) > 5 and after[: len(before)] == before and len(after) > len(before)
    assert second["evaluations"] > first["evaluations"]
