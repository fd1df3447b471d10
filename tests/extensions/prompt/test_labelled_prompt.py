"""`culmen prompt` and `culmen.optimize_prompt`: from a table to a better prompt.

Against a scripted model.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import UserError
from culmen.core.evaluation import OUTPUT
from culmen.core.usage import Budget, Usage
from culmen.extensions.prompt.search import PromptStudy, budget_after
from culmen.models.call import Call, Completion, Reply, Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.store import views
from tests.cli.conftest import Place
from tests.extensions.prompt.world import (
    LINES,
    PROMPT,
    answer_ticket,
    csv_of,
    scripted,
    tickets,
    write_tickets,
)
from tests.servers.model_script import Asked, Turn
from tests.servers.model_server import ModelServer

MODELS = """\
[providers.mine]
base_url = "{url}/v1"
base = 0.001
cap = 0.002
[models.small]
provider = "mine"
max_tokens = 200
price = {{ input = 0.2, output = 0.8 }}
"""
MODEL = ("--models", "models.toml", "--model", "small")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(scripted) as running:
        yield running
        assert not running.errors


@pytest.fixture
def place(tmp_path: Path, server: ModelServer) -> Place:
    (tmp_path / "models.toml").write_text(MODELS.format(url=server.url))
    return Place(tmp_path)


def spec(server: ModelServer) -> ModelSpec:
    provider = Provider("mine", f"{server.url}/v1", base=0.001, cap=0.002)
    return ModelSpec(provider, "small", max_tokens=200, price=Price(input=0.2, output=0.8))


@pytest.mark.slow
def test_a_table_becomes_a_better_prompt_and_a_report(place: Place) -> None:
    write_tickets(place.root, 60)
    done = place.here(
        "prompt", PROMPT, "tickets.csv", "--label", "team", *MODEL, "--run-dir", "run"
    )
    assert done.code == 0, done.err
    assert (
        "split   30 train, 15 val, 15 test" in done.err
        and "with 15 test cases gains above 0.36" in done.err
    )
    assert done.err.index("gains above") < done.err.index(
        "evaluations"
    )  # the plan comes before the first call
    for words in (
        "before  0",
        "account  billing  technical  other",
        "+" + LINES["billing"],
        "used ",
    ):
        assert words in done.out, done.out
    assert {each.name for each in place.root.iterdir()} == {
        "tickets.csv",
        "models.toml",
        "run",
        "cache",
    }
    again = place.here("resume", "run", "--json")
    report = again.document["prompt"]
    assert (
        report["split"] == "test"
        and report["cases"] == 15
        and report["after"]["score"] > report["before"]["score"]
    )
    assert sum(map(sum, report["confusion"]["counts"])) == 15
    assert (
        place.here("best", "run").out.startswith(PROMPT) and place.here("status", "run").code == 0
    )
    assert place.here("report", "run", "-o", "report.html").code == 0
    forked = place.here(
        "runs", "fork", "run", "--budget", "evaluations=+20", "--run-dir", "more", "--json"
    )
    assert forked.code == 0 and forked.document["prompt"]["cases"] == 15, forked.err
    assert forked.document["isolation"] == "not needed"


def test_json_has_the_plan_and_the_report(place: Place) -> None:
    write_tickets(place.root, 24)
    (place.root / "prompt.md").write_text("Team of {ticket}?\n")
    command = (
        "prompt",
        "prompt.md",
        "tickets.csv",
        "--label",
        "team",
        *MODEL,
        "--budget",
        "evaluations=100",
        "--json",
    )
    document = place.here(*command).document
    plan, report = document["plan"], document["prompt"]
    assert plan["metric"] == "exact" and plan["labels"] == ["account", "billing", "technical"]
    assert (
        plan["split"] == {"train": 12, "val": 6, "test": 6} and plan["budget"]["evaluations"] == 100
    )
    assert (
        plan["power"]["gain"] > 0.4
        and plan["likely"]["answers"]["calls"] == 100
        and plan["likely"]["dollars"] > 0
    )
    assert report["before"]["text"] == "Team of {ticket}?\n" and len(report["worst"]) <= 3
    assert document["usage"]["dollars"] > 0


def test_the_test_cases_are_asked_about_at_the_end_only(
    tmp_path: Path, server: ModelServer
) -> None:
    study = culmen.optimize_prompt(
        PROMPT,
        tickets(60),
        "team",
        model=spec(server),
        run_dir=tmp_path / "run",
        budget=200,
        progress=False,
    )
    tested = {case.id for case in study.meta.task.split("test")}
    seen = [each.case in tested for each in study.evaluations()]
    assert any(seen) and not any(seen[: seen.index(True)]) and seen.index(True) > 100
    assert study.report.split == "test" and "confusion" in str(study.report)
    first = study.evaluations()[0]
    assert first.asked[0].role == "answer" and first.usage.calls == 1 and first.artifacts[OUTPUT]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_result_of_one_that_was_not(
    tmp_path: Path, server: ModelServer
) -> None:
    (tmp_path / "models.toml").write_text(MODELS.format(url=server.url))
    write_tickets(tmp_path, 60)
    command = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "prompt",
        PROMPT,
        "tickets.csv",
        "--label",
        "team",
        *MODEL,
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "other"), "HOME": str(tmp_path)}
    options = ["--workers", "1", "--run-dir", "cut"]
    running = subprocess.Popen(
        [*command, *options],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.asked) < 40:
        assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "confusion" not in out
    place, asked = Place(tmp_path), len(server.asked)
    resumed = place.here("resume", "cut", "--json")
    assert resumed.code == 0 and resumed.document["prompt"]["cases"] == 15
    whole = place.here(*command[3:], "--workers", "1", "--run-dir", "whole", "--json")
    assert whole.document["prompt"]["after"] == resumed.document["prompt"]["after"]
    assert whole.document["evaluations"] == resumed.document["evaluations"]
    assert asked < resumed.document["usage"]["calls"]
    assert place.here("runs", "replay", "cut", "--verify").code == 0


@pytest.mark.slow
def test_a_judge_that_agrees_is_shown_and_one_that_does_not_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tickets(place.root, 24)
    command = (
        "prompt",
        PROMPT,
        "tickets.csv",
        "--label",
        "team",
        *MODEL,
        "--metric",
        "judge",
        "--budget",
        "40",
    )
    done = place.here(*command)
    assert done.code == 0, done.err
    assert "agrees with 12 of 12 known answers" in done.err and "agrees with 12 of 12" in done.out
    assert "confusion" not in done.out
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "another"))
    limited = place.here(*command[:-1], "evaluations=40,calls=60", "--run-dir", "limited", "--json")
    agreement = limited.document["prompt"]["agreement"]
    assert agreement["usage"]["calls"] == agreement["asked"] == 12
    assert views.run_meta(place.root / "limited").budget.calls == 60 - 12

    for reply, told in (
        ("right", "agrees with 6 of 12 known answers: "),
        ("It is not quite right.", "agrees with 0 of 12 known answers (12 replies leave it open)"),
    ):

        def judge(asked: Asked, reply: str = reply) -> Turn:
            return Turn(reply) if "You grade answers" in str(asked.body) else scripted(asked)

        with ModelServer(judge) as other:
            (place.root / "models.toml").write_text(MODELS.format(url=other.url))
            refused = place.here(*command, "--run-dir", "refused")
        assert refused.code == 2 and told in refused.err
        assert not (place.root / "refused").exists()


def test_asking_the_judge_beforehand_is_paid_from_the_budget() -> None:
    used = Usage(calls=12, input_tokens=900, output_tokens=24, dollars=0.01, uncertain_dollars=0.01)
    left = budget_after(Budget(evaluations=40, calls=60, dollars=0.5), used)
    assert left == Budget(evaluations=40, calls=48, dollars=0.48)
    with pytest.raises(UserError, match="has spent the budget of calls"):
        budget_after(Budget(evaluations=40, calls=12), used)


def test_without_a_model_the_plan_is_shown_and_no_run_made(place: Place) -> None:
    write_tickets(place.root, 24)
    done = place.here("prompt", PROMPT, "tickets.csv", "--label", "team")
    assert done.code == 2 and "12 train" in done.err and "which model answers" in done.err
    assert not (place.root / "runs").exists()


def test_another_model_answers_than_writes(place: Place, server: ModelServer) -> None:
    write_tickets(place.root, 24)
    models = place.root / "models.toml"
    models.write_text(
        models.read_text()
        + models.read_text().partition("[models.small]")[2].join(["[models.tiny]", ""])
    )
    command = (
        "prompt",
        PROMPT,
        "tickets.csv",
        "--label",
        "team",
        *MODEL,
        "--answer-model",
        "tiny",
        "--budget",
        "30",
    )
    assert place.here(*command, "--json").code == 0
    assert {asked.model for asked in server.asked} == {"small", "tiny"}


def test_python_names_mistakes_as_the_command_line_does(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'team'"):
        culmen.optimize_prompt(PROMPT, tickets(3), "tean", model=lambda prompt: "x")
    with pytest.raises(UserError, match="all cases have the label"):
        culmen.optimize_prompt(
            PROMPT, [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}], "b", model=lambda prompt: "x"
        )


def test_a_data_frame_is_a_table(tmp_path: Path, server: ModelServer) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        [{**row, "when": pandas.Timestamp(2024, 1, n + 1)} for n, row in enumerate(tickets(6))]
    )
    study = culmen.optimize_prompt(
        "{ticket} of {when}",
        frame,
        "team",
        model=spec(server),
        budget=12,
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert study.report.split == "train" and "of 2024-01-0" in server.asked[0].text


@pytest.mark.slow
def test_three_cases_and_ten_thousand(tmp_path: Path, server: ModelServer) -> None:
    few = culmen.optimize_prompt(
        PROMPT,
        tickets(3),
        "team",
        model=spec(server),
        budget=20,
        run_dir=tmp_path / "few",
        progress=False,
    )
    assert few.report.split == "train" and "no case was held out" in str(few.report)
    many = culmen.optimize_prompt(
        PROMPT,
        tickets(10_000),
        "team",
        model=spec(server),
        budget=100,
        run_dir=tmp_path / "many",
        progress=False,
    )
    assert many.status.evaluations <= 100 and many.report.cases == 12


def test_a_task_folder_takes_a_table_of_cases(tmp_path: Path, place: Place) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "tickets.csv").write_text(csv_of(tickets(6), ";"))
    (folder / "rules.txt").write_text("billing\n")
    (folder / "evaluator.py").write_text(
        "def score(parts, case):\n    return float(case.info in parts['rules.txt'] and 'ticket' in case.input)\n"
    )
    toml = 'goal = "g"\ncases = "tickets.csv"\n{}[seed]\nfiles = ["rules.txt"]\n[evaluator]\nentry = ""\n'
    (folder / "task.toml").write_text(toml.format('label = "team"\n'))
    found = place.here("check", "task", "--json")
    assert found.code == 0 and not found.err, found.out
    (folder / "task.toml").write_text(toml.format('label = "tean"\n'))
    wrong = place.here("check", "task")
    assert wrong.code == 2 and "did you mean 'team'" in wrong.err and "task.toml:3" in wrong.err


class Answering:
    """A model in this process whose replies may have 16,384 tokens, and have `tokens`."""

    def __init__(self, tokens: int = 4) -> None:
        self.tokens = tokens

    async def complete(self, call: Call) -> Reply:
        text = answer_ticket(call.messages[0].content, call.messages[-1].content)
        size = sum(len(message.content) for message in call.messages) // 4
        is_cut = self.tokens > call.max_tokens
        used = Tokens(size, min(self.tokens, call.max_tokens))
        return Reply((Completion(text, "length" if is_cut else "stop"),), used)


def search_offline(backend: Answering, tmp_path: Path, dollars: float) -> PromptStudy:
    """A search with blind proposals; a whole reply may cost ten times the budget."""
    provider = Provider("custom", base=0.001, cap=0.002)
    model = ModelSpec(provider, "big", price=Price(input=2.5, output=20.0), backend=backend)
    return culmen.optimize_prompt(
        PROMPT,
        tickets(60),
        "team",
        model={"default": "offline", "answer": model},
        run_dir=tmp_path / "run",
        budget=Budget(dollars=dollars),
        progress=False,
    )


def test_a_small_budget_is_used_although_a_reply_might_cost_more(tmp_path: Path) -> None:
    status = search_offline(Answering(), tmp_path, 0.03).status
    assert 0.8 * 0.03 < status.usage.dollars <= 0.03
    assert status.reason == "dollars" and status.candidates > 20


def test_a_shortened_answer_that_is_cut_off_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(culmen.NothingScored, match="longer than the 4,096 tokens"):
        search_offline(Answering(tokens=8_000), tmp_path, 0.2)


def test_a_budget_below_one_request_says_the_least_sum(place: Place) -> None:
    write_tickets(place.root, 24)
    (place.root / "models.toml").write_text(
        (place.root / "models.toml").read_text().replace("max_tokens = 200\n", "")
    )
    command = ("prompt", PROMPT, "tickets.csv", "--label", "team", "--models", "models.toml")
    poor = ("--budget", "dollars=0.0005")
    asked = place.here(*command, "--model", "small", *poor)
    assert asked.code != 0 and "one request for a candidate may cost $0.00" in asked.err
    assert "give more than $0.00" in asked.err and "max_tokens" in asked.err
    answered = place.here(*command, "--model", "offline", "--answer-model", "small", *poor)
    assert answered.code != 0 and "one question to 'answer' (mine/small) may cost" in answered.err
    assert "--budget dollars=0.0005" in answered.err and "max_tokens" in answered.err
    assert "evaluator" not in answered.err.partition("Error:")[2]
