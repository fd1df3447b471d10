"""Forecasts of a run's cost, against what the run with scripted models then cost."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from culmen import tasks as taskfiles
from culmen.core.brief import Brief, Proposal, Text
from culmen.core.evaluation import Observation, RoleUsage, Status
from culmen.core.task import Asks, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.bench.reproduce.toy import ToyAgent, ToyCustomer, ToyReader, changed_text
from culmen.models.call import Call, Completion, Reply, Tokens
from culmen.models.roles import ModelBook
from culmen.models.spec import ModelSpec, Price, Provider
from culmen.report.forecast import (
    Cost,
    ForecastNews,
    RunForecast,
    correct_forecast,
    spent_so_far,
    within_budget,
)
from culmen.run.forecast import CheckMeasurement, likely_answers, recall_check, remember_check
from culmen.run.study import Study
from culmen.strategies.best_of_n import BestOfN

PRICE = Price(input=0.3, output=2.5)
PART = re.compile(r"^(`{3,})(?:[\w+]+ )?([\w./-]+\.\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
COMMENTS = {".c": "// ", ".dfy": "// ", ".lean": "-- ", ".md": ""}
WHY = "The candidate fails where its second step meets the bound that the first one has moved. " * 4


class Scripted:
    """A priced model that counts a token for four characters, tools included."""

    def __init__(self, answer: Callable[[Call, int], Completion]) -> None:
        self._answer = answer

    async def complete(self, call: Call) -> Reply:
        made = tuple(self._answer(call, number) for number in range(call.samples))
        tools = json.dumps(call.extra.get("tools", ""))
        written = sum(len(one.text) + len(json.dumps(one.tool_calls)) for one in made)
        return Reply(made, Tokens((len(call.prompt) + len(tools)) // 4, written // 4))


def write_candidate(call: Call, number: int) -> Completion:
    """A program with other numbers and a new line; one in four is broken."""
    rng = Random(f"{call.seed}/{number}/{call.sample_digest()}")
    parent, _, task = call.prompt.partition("# Current candidate")[2].partition("# Your task")
    parts = {name: text for _, name, text in PART.findall(parent)}
    if not parts:
        return Completion(f"<summary>{WHY}{rng.random()}</summary>")
    name = next((each for each in parts if each in task), next(iter(parts)))
    lines = parts[name].splitlines()
    start = next((i for i, line in enumerate(lines) if "EVOLVE-BLOCK-START" in line), -1) + 1
    end = next((i for i, line in enumerate(lines) if "EVOLVE-BLOCK-END" in line), len(lines))
    comment = COMMENTS.get(Path(name).suffix, "# ")
    added = "((( no end" if rng.random() < 0.25 else f"{comment}variant {rng.getrandbits(30)}"
    if "<<<<<<< SEARCH" in task:
        old = lines[max(start, end - max(1, len(lines) // 8)) : end]
        edit = "\n".join(["<<<<<<< SEARCH", *old, "=======", *old, added, ">>>>>>> REPLACE"])
        return Completion(f"{WHY}\n{edit}")
    body = changed_text("\n".join(lines[start:end]) + "\n", rng).splitlines()
    return Completion(
        "\n".join([f"{WHY}\n\n```{name}", *lines[:start], *body, added, *lines[end:], "```"])
    )


SPECIAL = {"agent": ToyAgent(), "user": ToyCustomer(), "qa": ToyReader()}


def answer_as(role: str) -> Callable[[Call, int], Completion]:
    """The scripted answers of one of the evaluators' roles."""
    model = SPECIAL[role]
    return lambda call, _: model.answer_call(call)


def scripted_models(task: Task) -> dict[str, object]:
    answers = {
        "default": write_candidate,
        **{role: answer_as(role) for role in task.evaluator.options.get("roles", ())},
    }
    return {
        role: ModelSpec(Provider("custom"), role, price=PRICE, backend=Scripted(answer))
        for role, answer in answers.items()
    }


def missing_of(name: str) -> str:
    """The requirement of a built-in task that is missing on this machine; "" for nothing."""
    if name in ("harness", "mcp", "skill", "tools", "veribench"):
        return {"veribench": "Lean, and a copy of the benchmark"}.get(name, "a coding agent")
    if name == "python_to_dafny":
        return (
            "more than the two to four calls of the few slow evaluations that a test has time for"
        )
    packages = taskfiles.load(taskfiles.example_path(name)).evaluator.packages
    return next((package for package in packages if importlib.util.find_spec(package) is None), "")


NAMES = [name for name, _ in taskfiles.examples() if not missing_of(name)]
EVALUATIONS = 60
FEWER = {  # tasks of slow evaluations
    **dict.fromkeys(("erdos_min_overlap", "first_autocorr_ineq", "second_autocorr_ineq"), 12),
    "kernel_matmul": 24,
}
LOOSER = ("kernel_matmul", "tide_forecast", "eplb")
"""Tasks whose slow evaluations allow hardly more here than one of each case: the rest is chance.

Also one whose scripted replies, most of them no programs, cost by chance up to 2.2 times as much.
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_study(
    task: Task, tmp_path: Path, evaluations: int = EVALUATIONS, name: str = "run"
) -> Study:
    return Study.create(
        task,
        model=scripted_models(task),
        budget=evaluations,
        workers=1,
        run_dir=tmp_path / name,
        random_seed=1,
    )


def assert_holds(forecast: RunForecast | None, study: Study, factor: float = 2.0) -> None:
    assert forecast is not None
    likely, real = forecast.total, sum(spent_so_far(study.path), start=Cost())
    for name in ("calls", "dollars"):
        ratio = getattr(likely, name) / getattr(real, name)
        assert 1 / factor <= ratio <= factor, (
            f"{name}: {getattr(likely, name):g} for {getattr(real, name):g}"
        )


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("name", NAMES)
def test_calls_and_dollars_hold_within_a_factor_of_two_on_the_built_in_tasks(
    name: str, tmp_path: Path
) -> None:
    task = taskfiles.load(taskfiles.example_path(name))
    study = make_study(task, tmp_path, FEWER.get(name, EVALUATIONS))
    forecast = study.forecast
    study.run(progress=False)
    assert_holds(forecast, study, 2.5 if name in LOOSER else 2.0)


@pytest.mark.slow
@pytest.mark.jail
def test_the_first_evaluations_correct_a_forecast_that_knew_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = msgspec.structs.replace(taskfiles.load(taskfiles.example_path("tau_retail")), asks={})
    study, short = make_study(task, tmp_path, 30), make_study(task, tmp_path, 6, "short")
    first = study.forecast
    assert first is not None and "agent, user" in first.lacks[0] and first.answers.calls == 60
    study.run(progress=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))  # its replies are in the first
    short.run(progress=False)
    corrected = correct_forecast(first, short.path, short.status)
    assert not corrected.lacks and corrected.seconds and corrected.after == short.status.evaluations
    assert_holds(corrected, study)
    with pytest.raises(AssertionError):
        assert_holds(first, study)
    running = msgspec.structs.replace(short.status, state="running", evaluations=6)
    news = ForecastNews(first)
    told = news.take_news(short.path, running)
    assert told.startswith("Likely by the first 6 evaluations: ") and "answers" in told
    assert news.take_news(short.path, running) == ""


def test_a_budget_of_calls_or_dollars_bounds_the_forecast() -> None:
    found = RunForecast(100, Cost(0, 50, 5_000, 1.0), Cost(0, 150, 5_000, 1.0), seconds=60.0)
    assert within_budget(found, Budget(calls=20)).total == Cost(10, 20, 1_000, 0.2)
    assert within_budget(found, Budget(dollars=1.0, seconds=15)).evaluations == 25
    assert within_budget(found, Budget(evaluations=400)) == found


def test_nothing_is_foretold_of_a_strategy_of_ones_own(tmp_path: Path) -> None:
    class Own(BestOfN):
        """A strategy that the catalog does not have."""

    task = taskfiles.load(taskfiles.example_path("circle_packing"))
    own = Study.create(task, Own(), model=scripted_models(task), budget=9, run_dir=tmp_path / "own")
    offline = Study.create(task, budget=9, run_dir=tmp_path / "offline")
    assert own.forecast is None and offline.forecast is None
    assert make_study(task, tmp_path).forecast is not None


def test_nothing_is_foretold_of_a_person_and_of_a_gateway_of_ones_own(tmp_path: Path) -> None:
    class Own:
        """A gateway that answers nothing."""

        async def propose(self, brief: Brief, seed: int) -> Proposal:
            return Proposal()

        async def write(self, role: str, slots: dict[str, object], seed: int) -> Text:
            return Text()

        async def close(self) -> None:
            """Close nothing."""

    task = taskfiles.load(taskfiles.example_path("circle_packing"))
    for name, model in (("ask", "ask"), ("own", Own())):
        assert Study.create(task, model=model, budget=9, run_dir=tmp_path / name).forecast is None


def test_a_check_is_remembered_for_its_task_alone(tmp_path: Path) -> None:
    task = taskfiles.load(taskfiles.example_path("hotpotqa"))
    usage = Usage(calls=3, input_tokens=300, output_tokens=30)
    row = Observation("c", Status.OK, 1.0, asked=(RoleUsage("qa", "m", 3, usage),), seconds=2.0)
    cached = RoleUsage("qa", "m", 3, Usage(cache_hits=3))
    remember_check(task, [row, msgspec.structs.replace(row, asked=(cached,))])
    assert recall_check(task) == CheckMeasurement({"qa": Asks(3, 300, 30)}, 2.0)
    assert recall_check(msgspec.structs.replace(task, digest="other")) is None
    cost, lacks = likely_answers(task, ModelBook().parse_roles(scripted_models(task)))
    assert (cost.calls, cost.tokens, lacks) == (3, 330, ())
