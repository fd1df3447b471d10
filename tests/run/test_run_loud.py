"""Mistakes that a person can make in Python are reported at once, in plain words.

They are reported before a run is made or money is spent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import culmen
from culmen.cli.main import main
from culmen.core.errors import NothingScored, UserError
from culmen.core.options import parse_amount
from culmen.core.task import Limits, check_limits
from culmen.core.usage import Budget
from culmen.run.options import function_task
from culmen.store import views
from culmen.strategies.best_of_n import BestOfN

SEED = "a = 1\n"


def length(program: str) -> float:
    return float(len(program))


def broken(program: str) -> float:
    scores: dict[str, float] = {}
    return scores["area"]


def dying(program: str) -> float:
    os._exit(3)


def dated(program: str) -> dict[str, object]:
    return {"value": 3, "quality": 2}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def replies(text: str) -> str:
    return "```\nabcdef\n```"


class Counting:
    """A model that counts its calls."""

    calls = 0

    async def complete(self, call) -> str:
        self.calls += 1
        return replies("")


def said(**keywords) -> str:
    """The error of a run with these arguments, which leaves no run behind."""
    with pytest.raises(culmen.UserError) as caught:
        culmen.optimize(SEED, **{"evaluator": length, "budget": 6, **keywords})
    assert not list(Path().glob("runs/*"))
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        (broken, "KeyError: 'area'"),
        (dying, "the evaluator's process exited with status 3"),
        (dated, "a dict without 'score' (its keys: value, quality)"),
        (lambda program: None, "the evaluator returned None as the score"),
        (lambda program: [1.0], "returned <list> as the score, which is not a number"),
        (lambda program: "high", "returned <str: 'high'> as the score, which is not a number"),
        (lambda program: float("nan"), "returned nan as the score, which is not finite"),
    ],
)
def test_an_evaluator_that_always_fails_stops_the_run_before_a_model_is_asked(evaluator, words):
    model = Counting()
    with pytest.raises(NothingScored) as caught:
        culmen.optimize(
            SEED, evaluator=evaluator, model=model, budget=culmen.Budget(calls=60, evaluations=200)
        )
    assert words in str(caught.value) and "no model was asked" in str(caught.value)
    assert model.calls == 0 and NothingScored.exit_code == 1
    now = views.run_status(next(Path().glob("runs/*")))
    assert now.reason == "initial_fails" and now.evaluations == 3


def test_a_search_without_a_score_has_failed_on_every_surface(capsys):
    with pytest.raises(NothingScored):
        culmen.optimize(SEED, evaluator=broken, budget=20, progress=False)
    run = next(Path().glob("runs/*"))
    now = culmen.Study.open(run).status
    assert (now.state, now.recorded, now.is_finished) == ("failed", "finished", True)
    assert [line.state for line in views.list_runs()] == [now.state]
    assert "state        failed" in str(now)
    assert main(["status", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == now.state
    assert main(["resume", str(run)]) == 1  # there is nothing left to do in it
    assert "finished" in capsys.readouterr().err


def test_the_error_has_the_evaluators_own_traceback_and_the_line_to_change():
    with pytest.raises(NothingScored) as caught:
        culmen.optimize(SEED, evaluator=broken, budget=20)
    text = str(caught.value)
    assert (
        'scores["area"]' in text and "in broken" in text and "correct test_run_loud.py line" in text
    )
    for foreign in ("event loop", "During handling", "/culmen/evaluate/", "asyncio"):
        assert foreign not in text
    run = next(Path().glob("runs/*"))
    feedback = next(iter(views.stream_observations(run))).feedback
    assert feedback.count("File ") == 1 and "event loop" not in feedback
    with pytest.raises(NothingScored):
        culmen.Study.resume(run, evaluator=broken).run()


def test_a_run_may_be_told_to_search_from_a_failing_program():
    study = culmen.optimize(
        SEED,
        evaluator=lambda p: 1.0 if p != SEED else broken(p),
        model=lambda prompt: "```\na = 2\n```",
        budget=8,
        allow_failing=True,
    )
    assert study.best is not None and study.best.score == 1.0


def test_check_tries_a_function_without_a_search():
    def chatty(program: str) -> float:
        print("looking at", len(program))
        return broken(program)

    report = culmen.check(SEED, chatty)
    text = repr(report)
    assert (
        not report.fit
        and "KeyError: 'area'" in text
        and "looking at 6" in text
        and "test_run_loud.py line" in text
    )
    assert culmen.check(SEED, length).fit
    assert "6" in repr(culmen.check(SEED, length, cases=[1, 2], times=2))


@pytest.mark.slow
@pytest.mark.parametrize("word", ["min", "minimize", "minimise", "MIN", "Minimize "])
def test_a_search_goes_the_way_it_was_told(word):
    study = culmen.optimize(
        "abc", evaluator=length, model=lambda text: "```\na\n```", budget=6, direction=word
    )
    assert study.status.direction == "min" and study.best is not None and study.best.score < 3


def test_another_direction_is_refused():
    assert "unknown direction 'up'" in said(direction="up")
    assert "unknown direction None" in said(direction=None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (6, Budget(evaluations=6)),
        ({"evaluations": 6, "dollars": 2}, Budget(evaluations=6, dollars=2.0)),
        ("200", Budget(evaluations=200)),
        ("1e3", Budget(evaluations=1000)),
        ("5m", Budget(seconds=300.0)),
        ("$5", Budget(dollars=5.0)),
        ("evaluations=1e3,seconds=2h", Budget(evaluations=1000, seconds=7200.0)),
    ],
)
def test_budgets_as_people_write_them(given, meant):
    assert Budget.from_value(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        "x",
        "1.5",
        "-1",
        "evaluations=1.5",
        "5 apples",
        "nan",
        0,
        "0s",
        "seconds=0",
        "evaluations=5,6",
    ],
)
def test_budgets_that_say_nothing_are_refused(given):
    with pytest.raises(culmen.UserError):
        Budget.from_value(given)


class Searchless(culmen.Strategy):
    async def run(self, lab) -> None: ...


@pytest.mark.parametrize("seed", [12, [12], b"x = 1", len])
def test_what_is_no_program_is_refused(seed):
    with pytest.raises(culmen.UserError, match="cannot be an initial program"):
        culmen.optimize(seed, evaluator=length, budget=6)


def test_wrong_arguments_are_named_and_leave_no_run():
    assert "did you mean budget=" in said(iterations=6)
    assert "did you mean strategy=?" in said(stratgy="polca")
    assert "goal" in said(whatever=1)
    for name in ("seed_candidate", "objective", "reflection_lm", "trainset", "adapter"):
        assert "did you mean" in said(**{name: "x"})
    assert "evaluations for iterations" in said(budget={"iterations": 6})
    assert "a budget cannot be a list" in said(budget=[6])
    assert "a dict is no strategy" in said(strategy=dict)
    assert "it has no method search(lab)" in said(strategy=Searchless)
    assert "budget 'evaluations' needs a whole number from 0 to 1e+15, not '-1'" in said(budget=-1)
    assert "evaluations=200" in said(budget=-1)
    assert "a int is not a model" in said(model=5)
    assert "no API key found" in said(model="gpt-5-mini")


def test_a_strategys_class_stands_for_its_defaults():
    study = culmen.optimize("abc", evaluator=length, strategy=BestOfN, model=replies, budget=6)
    assert study.meta.strategy["path"].endswith(":BestOfN")


async def answers(text: str) -> str:
    return replies(text)


@pytest.mark.parametrize("model", [replies, answers])
def test_a_function_is_a_model(model):
    study = culmen.optimize("abc", evaluator=length, model=model, budget=6)
    assert study.best is not None and study.best.text.strip() == "abcdef"
    assert study.status.models == {"default": f"{__name__}:{model.__name__}"}


class Wrong:
    async def search(self, lab) -> None:
        await lab.evaluate(lab.seeds[0])
        raise KeyError("mine")


def muddled(text: str) -> str:
    return {}[text]


@pytest.mark.parametrize(
    ("keywords", "place"),
    [({"strategy": Wrong()}, "in search"), ({"model": muddled}, "in muddled")],
)
def test_a_bug_of_the_users_is_told_with_their_file_and_line(keywords, place):
    with pytest.raises(culmen.UserError, match="your code raised KeyError") as caught:
        culmen.optimize(SEED, evaluator=length, budget=6, **keywords)
    assert "test_run_loud.py line" in caught.value.where and place in caught.value.where
    assert isinstance(caught.value.__cause__, KeyError)
    assert str(Path(culmen.__file__).parent) not in caught.value.what  # no frame of ours


def test_a_folder_that_holds_something_else_is_not_written_to(place):
    (place / "mine").mkdir()
    (place / "mine" / "thesis.txt").write_text("much work")
    assert "holds other files (thesis.txt)" in said(run_dir=place / "mine")
    (place / "file").write_text("")
    assert "no run can be written here" in said(run_dir=place / "file" / "run")
    assert [path.name for path in (place / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.extension("compat")
def test_an_evaluator_that_does_not_load_leaves_no_run_and_spends_nothing(place):
    (place / "evaluator.py").write_text(
        "import nothere_at_all\n\ndef evaluate(output):\n    return 1.0\n"
    )
    with pytest.raises(culmen.UserError, match="No module named 'nothere_at_all'") as caught:
        culmen.optimize("def run():\n    return 1.0\n", "evaluator.py", budget=6)
    assert "the module 'nothere_at_all'" in str(caught.value) and not list(Path().glob("runs/*"))
    study = culmen.optimize(SEED, length, budget=6, run_dir="mine", progress=False)
    (place / "mine" / "kept.txt").write_text("")
    again = culmen.Study.resume(study.path, evaluator=length)
    assert again.run(progress=False) == "finished" and (place / "mine" / "kept.txt").exists()


def test_a_models_file_with_roles_is_used_without_naming_a_model(place):
    from culmen.core.options import RunOptions
    from culmen.run.options import CreateKeywords, read_keywords

    (place / "models.toml").write_text(
        textwrap.dedent("""
            [providers.mine]
            base_url = "http://localhost:1/v1"
            [models.fast]
            provider = "mine"
            [roles]
            default = "fast"
            proposer = [{ model = "fast", weight = 3 }, "mine/other"]
        """)
    )
    options, _ = read_keywords(
        {"models_file": str(place / "models.toml")}, RunOptions(), CreateKeywords
    )
    assert (
        options.model == "default=fast,proposer=3*fast|mine/other" and not options.searches_offline
    )


def test_a_dict_given_as_initial_program_reaches_the_evaluator_as_one_also_with_one_part():
    def judged(candidate: dict[str, str]) -> float:
        return float(len(candidate["main.py"]))

    study = culmen.optimize(
        {"main.py": "abc"}, evaluator=judged, model=lambda text: "```\nabcdef\n```", budget=6
    )
    assert study.best is not None and study.best.score > 3
    assert culmen.check([{"main.py": "abc"}], judged).fit
    assert culmen.check({"a": "x", "b": "y"}, lambda parts: float(len(parts["b"]))).fit


async def forgets(text: str):
    replies(text)


@pytest.mark.parametrize(
    ("model", "what"),
    [(forgets, "None: is a return missing?"), (lambda text: {"text": text}, "a dict, not a text")],
)
def test_a_model_that_returns_no_text_is_told_with_its_file_and_line(model, what):
    with pytest.raises(culmen.UserError) as caught:
        culmen.optimize("abc", evaluator=length, model=model, budget=6)
    assert what in caught.value.what and "test_run_loud.py line" in caught.value.where


OWN_ENDPOINT = """[providers.mine]
base_url = "http://127.0.0.1:9/v1"
[models.small]
provider = "mine"
"""


def test_dollars_that_would_limit_nothing_are_refused_with_the_remedies(place, monkeypatch):
    models = place / "models.toml"
    models.write_text(OWN_ENDPOINT)
    words = said(model="small", models_file=str(models), budget=culmen.Budget(dollars=0.5))
    for part in (
        "the price of mine/small is unknown",
        "calls=100",
        "price = {",
        "price_unknown = true",
    ):
        assert part in words
    assert "the price of" in said(model=lambda prompt: prompt, budget=culmen.Budget(dollars=0.5))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert "openai/gpt-5-mini is unknown" in said(
        model="gpt-5-mini", budget=culmen.Budget(dollars=0.5)
    )
    for table, limit in (
        ("price_unknown = true", {}),
        ("price = { input = 1.0, output = 2.0 }", {}),
        ("", {"calls": 3}),
    ):
        models.write_text(OWN_ENDPOINT + table)
        budget = culmen.Budget(dollars=0.5, **limit)
        task = function_task(SEED, (), "", "max", "priced", None, None, length, None, ())
        keywords = {"model": "small", "models_file": str(models), "budget": budget}
        assert (
            culmen.Study.create(
                task, evaluator=length, run_dir=place / f"{table}{limit}", **keywords
            ).meta.budget
            == budget
        )


def test_a_number_as_seed_is_told_the_name_of_the_random_seed(place):
    with pytest.raises(culmen.UserError, match="random_seed=1"):
        culmen.optimize(SEED, length, seed=1)  # pyright: ignore[reportCallIssue]


LOOP = """
import time
import culmen
from culmen.cli.main import main

def slow(program):
    time.sleep(0.02)
    return float(len(program) % 97)

for seed in range(3):
    culmen.optimize("a = 1\\n", slow, budget=100_000, random_seed=seed, run_dir=f"run-{seed}", workers=1)
print("the loop went on to its end")
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_a_loop_over_random_seeds_and_its_journal_is_safe(place, number, code):
    (place / "loop.py").write_text(LOOP)
    process = subprocess.Popen(
        [sys.executable, "loop.py"],
        cwd=place,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run, end = place / "run-0", time.monotonic() + 60
    while not (
        run.exists() and (run / "journal.db").exists() and views.run_status(run).evaluations > 2
    ):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert not out and not (place / "run-1").exists()
    assert views.run_status(run).state == "interrupted"


def test_a_run_with_a_model_of_ones_own_says_what_to_pass_again(tmp_path: Path):
    """Its place in the program is not taken for a provider's model, whose key would be missing."""

    def evaluator(text: str) -> float:
        return float(len(text))

    def model(prompt: str) -> str:
        raise RuntimeError("not today")

    run = tmp_path / "run"
    with pytest.raises(UserError, match="not today"):
        culmen.optimize(
            "x = 1\n", evaluator=evaluator, model=model, budget=5, run_dir=run, progress=False
        )
    assert "evaluator=evaluator, model=model" in culmen.Study.open(run).summary.command
    with pytest.raises(UserError, match="passed a Python object") as stopped:
        culmen.Study.resume(run, evaluator=evaluator).run(progress=False)
    assert "model=" in stopped.value.fix and "evaluator=" not in stopped.value.fix
    with pytest.raises(UserError, match="passed a Python object") as stopped:
        culmen.Study.resume(run).run(progress=False)
    assert "evaluator=" in stopped.value.fix
    again = culmen.Study.resume(run, evaluator=evaluator, model=lambda prompt: "```\nx = 10\n```")
    assert again.run(progress=False) == "finished"


@pytest.mark.parametrize("number", [1e300, 1e308, float("inf"), float("nan"), -1, 10**400])
@pytest.mark.parametrize("name", ["evaluations", "calls", "tokens", "dollars", "seconds", "final"])
def test_amounts_that_no_budget_has_are_refused(name, number):
    with pytest.raises(culmen.UserError, match=f"budget '{name}' needs a"):
        Budget.from_value({name: number})


@pytest.mark.parametrize("number", [1e300, float("inf"), float("nan"), -1, 0, True, 10**400])
@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_amounts_that_no_limit_has_are_refused(name, number):
    with pytest.raises(culmen.UserError, match=f"{name} must be"):
        check_limits(Limits(**{name: number}))


@pytest.mark.parametrize("text", ["9" * 300 + "TB", "inf", "nan", "-1", "1e300", "9" * 5000])
@pytest.mark.parametrize("name", ["cpu", "memory", "wait", "retries"])
def test_amounts_that_no_machine_has_are_refused(name, text):
    with pytest.raises(culmen.UserError, match="is not a"):
        parse_amount(name, text, "--set backend")


@pytest.mark.parametrize("number", [10**12, 10**400, 1e300])
def test_settings_beyond_every_use_are_refused(number):
    for setting in ({"proposals": number}, {"lanes": number}):
        with pytest.raises(culmen.UserError, match="is out of range"):
            BestOfN(**setting)
