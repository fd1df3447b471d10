"""Planted faults: each run has one thing wrong with it, and its first sentence names it.

The sentence and the next command are the same in terminal, page, report, JSON (which agents get
over MCP) and Python.
"""

from __future__ import annotations

import contextlib
import errno
import html
import io
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import culmen
from culmen.cli.main import main
from culmen.core.errors import CulmenError
from culmen.core.task import Case, Objective
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.report import gather_report, report_page
from culmen.extensions.web.runs import Digest
from culmen.models.call import RateLimited
from culmen.run import options
from culmen.run.study import Study

SEED = "v = 0"


def value(text: str) -> float:
    """The number that a candidate holds."""
    return float(text.partition("=")[2])


def numbers(first: float = 1.0, step: float = 1.0) -> Callable[[str], str]:
    """A model that answers with ever larger numbers."""
    state = [first - step]

    def reply(prompt: str) -> str:
        state[0] += step
        return f"```\nv = {state[0]}\n```"

    return reply


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs lie in ./runs, so that commands call them by their names."""
    monkeypatch.chdir(tmp_path)


def ran(
    evaluator: Any,
    model: Any = None,
    *,
    budget: Any = 40,
    cases: Any = (),
    direction: Any = "max",
    deterministic: bool | None = None,
    limits: Any = None,
    objective: dict[str, Any] | None = None,
    **more: Any,
) -> Study:
    """A run made for real, also where it ends without a score; with one worker."""
    task = options.function_task(
        SEED, cases, "", direction, "planted", deterministic, limits, evaluator
    )
    if objective:
        task = msgspec.structs.replace(task, objective=Objective(direction=direction, **objective))
    budget = culmen.Budget.from_value(budget)
    study = Study.create(
        task,
        evaluator=evaluator,
        model=model or numbers(),
        budget=budget,
        run_dir="runs/run",
        workers=1,
        **more,
    )
    with contextlib.suppress(CulmenError):
        study.run(progress=False)
    return Study.open("runs/run")


def printed(*words: str) -> str:
    """The output of a command that runs in this process."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]


def first_words(study: Study) -> tuple[str, str]:
    """First sentence and next command, the same on every surface."""
    told, run = study.summary, study.path
    first, command = told.lines[0], told.command
    assert str(told).startswith(first) and str(told).endswith(told.next)
    shown = printed("status", str(run)).splitlines()
    assert shown[0] == first and [line for line in shown if line.startswith("next")] == [told.next]
    document = msgspec.json.decode(printed("status", str(run), "--json"))
    assert document["next"] == [command] and document["summary"]["cause"] == told.cause
    page = overview_page(Digest(run), {})["summary"]
    assert page["lines"] == list(told.lines) and page["command"] == command
    assert html.escape(first) in report_page(gather_report(Digest(run)))
    return first, command


def test_a_name_error_in_the_evaluator():
    def evaluator(text: str) -> float:
        return value(text) * scale  # noqa: F821  # pyright: ignore

    first, command = first_words(ran(evaluator))
    assert first.startswith(
        "the initial program gives no score: NameError: name 'scale' is not defined (test_planted_"
    )
    assert first.endswith("in 3 of 3 evaluations") and command == "culmen.check(seed, evaluator)"


def test_a_missing_file():
    def evaluator(text: str) -> float:
        return value(text) + len(Path("answers.csv").read_text())

    first, command = first_words(ran(evaluator))
    assert (
        "FileNotFoundError" in first
        and "answers.csv" in first
        and first.endswith("in 3 of 3 evaluations")
    )
    assert command == "culmen.check(seed, evaluator)"


@pytest.mark.slow
def test_a_scorer_that_loses_its_simulator():
    def evaluator(text: str) -> float:
        if random.random() < 0.3:
            raise RuntimeError("connection to the simulator lost")
        return value(text)

    first, command = first_words(ran(evaluator, numbers(-1.2, -0.01), budget=80, direction="min"))
    assert first.startswith("the evaluator itself failed in ") and "simulator lost" in first
    assert 15 <= int(first.split()[5]) <= 45 and command == "culmen.check(seed, evaluator)"


def lost_at_random(rate: float) -> Callable[[str], float]:
    def evaluator(text: str) -> float:
        if random.random() < rate:
            raise RuntimeError("simulator lost")
        return value(text) + random.gauss(0.0, 0.05)

    return evaluator


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rate", "budget"), [(0.3, 40), (0.1, 80)])
def test_random_failures_at_a_line_of_the_evaluator_are_the_evaluators(
    rate: float, budget: int, seed: int
) -> None:
    numbers_of = random.Random(seed)
    study = ran(
        lost_at_random(rate),
        lambda prompt: f"```\nv = {numbers_of.uniform(0, 2):.4f}\n```",
        budget=budget,
        random_seed=seed,
    )
    topics = ("scorer_fails", "fails_by_chance")
    (found,) = [each for each in study.summary.findings if each.topic in topics]
    assert found.what.startswith("the evaluator ") and "simulator lost" in found.what
    assert "failing" not in [each.topic for each in study.summary.findings]


def refusing_from(level: float) -> Callable[[str], dict[str, Any]]:
    """An evaluator whose judge is away for values from a level on."""

    def evaluator(text: str) -> dict[str, Any]:
        if value(text) >= level:
            return {"score": 0.0, "status": "external_missing_judge", "note": "start the judge"}
        return {"score": value(text), "status": "ok"}

    return evaluator


def test_an_initial_program_that_is_refused() -> None:
    study = ran(refusing_from(0.0))
    first, command = first_words(study)
    assert first == (
        "the initial program is refused: status: external_missing_judge; start the judge, "
        "in 8 of 8 evaluations"
    )
    assert command == "culmen.check(seed, evaluator)"
    with pytest.raises(culmen.NothingScored, match="the initial program is refused"):
        culmen.optimize(SEED, refusing_from(0.0), model=numbers(), budget=20, run_dir="runs/again")


def test_answers_that_say_that_they_failed_are_no_scores_and_have_their_share() -> None:
    study = ran(refusing_from(26.0), numbers(0.5, 1.0), budget=40)
    first, _ = first_words(study)
    assert first.startswith("the evaluator itself failed in ")
    assert first.endswith(" of evaluations: status: external_missing_judge; start the judge")
    assert study.best is not None and study.best.failed.keys() == {"provider"}
    assert study.best.has_verdict and 0 < study.best.score < 26


def test_below_a_coverage_of_three_fifths_there_is_no_verdict() -> None:
    study = ran(refusing_from(5.0), numbers(0.5, 1.0), budget=40)
    assert study.best is not None and study.best.coverage < 0.6
    assert study.best.kept_initial and not study.best.has_verdict
    first, _ = first_words(study)
    assert first.startswith("the evaluator itself failed in ")
    assert study.summary.verdict.headline.startswith("No verdict: only ")
    assert main(["status", "runs/run"]) == 0


def test_honest_zeros_are_scores_of_candidates() -> None:
    def evaluator(text: str) -> dict[str, Any]:
        return {"score": max(0.0, value(text) - 10.0), "status": "ok", "error": ""}

    study = ran(evaluator, budget=30)
    assert study.status.statuses == {"ok": study.status.evaluations}


@pytest.mark.parametrize("direction", ["max", "min"])
def test_failing_candidates_that_score_above_the_initial_program(direction: str) -> None:
    """The evaluator calls them invalid and gives them a number that working ones never reach."""
    sign = 1.0 if direction == "max" else -1.0

    def evaluator(text: str) -> dict[str, Any]:
        if value(text) > 3:
            return {"score": sign * -1.0, "error": "ValueError: too large"}
        return {"score": sign * (value(text) - 9.5)}

    study = ran(evaluator, direction=direction)
    first, command = first_words(study)
    above = "above" if direction == "max" else "better than"
    assert first.startswith("failing pays: ") and f"scored {above} the initial" in first
    assert "error: ValueError: too large" in first and command == "culmen.check(seed, evaluator)"


def test_programs_that_do_nothing_and_score_above_the_initial_one() -> None:
    texts = ["return 3", "pass", "return 5", "return 1 / 0"]
    made = [0]

    def reply(prompt: str) -> str:
        made[0] += 1
        return f"```python\ndef run():\n    {texts[made[0] % 4]}  # {made[0]}\n```"

    def evaluator(text: str) -> float:
        try:
            names: dict[str, Any] = {}
            exec(text, names)
            return -abs(names["run"]() - 9.5)
        except Exception:  # noqa: BLE001 - as evaluators do
            return 0.0

    task = options.function_task(
        {"main.py": "def run():\n    return 4\n"}, (), "", "max", "planted", True, None, evaluator
    )
    study = Study.create(
        task,
        evaluator=lambda parts: evaluator(parts["main.py"]),
        model=reply,
        budget=16,
        run_dir="runs/run",
        workers=1,
    )
    study.run(progress=False)
    (found,) = [each for each in study.summary.findings if each.topic == "failing_pays"]
    assert "the functions of main.py do nothing" in found.what


def test_an_evaluator_that_fails_on_any_candidate_but_the_initial_one():
    """No culprit is certain, so the result leads; the failures are reported with it."""

    def evaluator(text: str) -> float:
        if value(text) and random.random() < 0.35:
            raise RuntimeError("the rig was not ready")
        return value(text) + random.gauss(0.0, 0.5)

    told = ran(evaluator, numbers(0.1, 0.02), budget=60).summary
    (line,) = [each.what for each in told.findings if "failed by chance" in each.what]
    assert "RuntimeError: the rig was not ready (test_planted_faults.py line " in line
    assert 10 <= int(line.split(" %")[0].split()[-1]) <= 60 and "also scored" in line


def test_hangs_that_strike_now_and_then_are_no_candidates_fault():
    """The programs that ran into the limit also score: the limit is not for them to keep."""

    def evaluator(text: str) -> float:
        if random.random() < 0.4:
            time.sleep(1000)
        return value(text)

    told = ran(evaluator, numbers(0.9, 0.1), budget=24, limits=culmen.Limits(seconds=0.5)).summary
    topics = {each.topic: each for each in told.findings}
    assert "failing" not in topics
    assert "ran into the limit of 0.5 s by chance" in topics["hangs_by_chance"].what
    assert topics["hangs_by_chance"].do.endswith("no candidate is to blame")


@pytest.mark.slow
def test_an_evaluator_that_hangs_until_the_time_is_over():
    def evaluator(text: str) -> float:
        if value(text) > 1:
            time.sleep(1000)
        return value(text)

    told = ran(evaluator, numbers(0.9, 0.1), budget="seconds=8").summary
    (found,) = [each for each in told.findings if each.topic == "cut_off"]
    assert (
        " % of the time went into 1 evaluation " in found.what
        and "limits=culmen.Limits(seconds=10)" in found.do
    )


def test_candidates_that_always_fail_do_not_fail_by_chance():
    def evaluator(text: str) -> float:
        if round(10 * value(text)) % 3 == 1:
            raise RuntimeError("three does not divide it")
        return value(text)

    told = ran(evaluator, numbers(0.1, 0.1), budget=60).summary
    assert "fails_by_chance" not in [each.topic for each in told.findings]


@pytest.mark.slow
def test_a_service_of_the_evaluator_that_is_away():
    def evaluator(text: str) -> float:
        if random.random() < 0.4 and value(text):
            raise ConnectionError("no route to host")
        return value(text)

    first, command = first_words(ran(evaluator))
    assert "% of evaluations were lost: the service that the evaluator asks did not answer" in first
    assert command.startswith(
        'culmen.Study.fork("run", evaluator=evaluator, model=model, budget="evaluations='
    )


def test_a_model_that_never_gives_a_program():
    first, command = first_words(
        ran(value, lambda prompt: "I am sorry.", budget="evaluations=40,calls=40")
    )
    assert re.search(r"gave no usable answer: 100 % of \d+ answers held no text in the", first)
    assert command.startswith('culmen.Study.fork("run", evaluator=evaluator, model="NAME"')


@pytest.mark.slow
def test_a_model_that_ignores_the_format_mostly():
    calls, good = [0], numbers()

    def reply(prompt: str) -> str:
        calls[0] += 1
        return good(prompt) if calls[0] % 33 == 0 else "Try a larger number."

    first, command = first_words(ran(value, reply, budget="evaluations=40,calls=100"))
    share = int(first.partition(" %")[0])
    assert (
        90 <= share < 100
        and "held no text in the format asked for" in first
        and 'model="NAME"' in command
    )


def test_replies_that_are_cut_off(monkeypatch: pytest.MonkeyPatch):
    from culmen.models.call import Completion, Reply, Tokens

    class Short:
        """A model whose replies end before the program does."""

        async def complete(self, call: Any) -> Reply:
            return Reply((Completion("```\nv = 1", "length"),), Tokens(10, 10))

    first, command = first_words(ran(value, Short(), budget="evaluations=40,calls=40"))
    assert (
        "gave no usable answer: 100 % of " in first
        and first.endswith("were cut off")
        and 'models_file="FILE"' in command
    )


@pytest.mark.slow
def test_children_that_are_all_the_same():
    first, command = first_words(
        ran(value, lambda prompt: "```\nv = 5\n```", budget="evaluations=40,calls=40")
    )
    assert "gave what is known already" in first and int(first.partition(" %")[0]) >= 80
    assert 'model="A|B"' in command


@pytest.mark.slow
def test_children_that_all_fail_the_same_import():
    state = [0]

    def reply(prompt: str) -> str:
        state[0] += 1
        return f"```\nimport torchvision_of_tomorrow\nv = {state[0]}\n```"

    def evaluator(text: str) -> float:
        found: dict[str, Any] = {}
        exec(compile(text, "candidate.py", "exec"), found)
        return found["v"]

    first, command = first_words(ran(evaluator, reply))
    assert (
        "% of candidates fail: ModuleNotFoundError: No module named 'torchvision_of_tomorrow'"
        in first
    )
    assert command.startswith("culmen show run ")


@pytest.mark.slow
def test_noise_larger_than_any_gain():
    study = ran(lambda text: value(text) * 1e-4 + random.gauss(0, 1), budget=60)
    first, command = first_words(study)
    assert first.startswith("noise hides any gain: one evaluation deviates by ")
    assert "is within the noise, whose margin is ± " in first
    assert command == "culmen.check(seed, evaluator)" or "evaluations=" in command


@pytest.mark.slow
def test_a_flat_score():
    first, command = first_words(
        ran(lambda text: -1.0 if value(text) in (7, 8) else 0.0, deterministic=True)
    )
    assert "% of " in first and first.endswith(
        "got the very score of the initial one, 0: it is flat"
    )
    assert command == "culmen.check(seed, evaluator)"


@pytest.mark.slow
def test_a_score_at_its_bound():
    study = ran(
        lambda text: 1.0 / (1.0 + value(text)), objective={"bounds": (0.0, 1.0)}, deterministic=True
    )
    first, command = first_words(study)
    assert first.startswith(
        "the initial program scores 1, the best that the task's bounds allow (100 %)"
    )
    assert command == "culmen.check(seed, evaluator)"


@pytest.mark.slow
def test_a_target_that_is_met_early():
    study = ran(value, objective={"target": 5.0}, deterministic=True)
    first, command = first_words(study)
    assert first.startswith("the target, 5, was met after ") and " of 40 evaluations (1" in first
    assert command == "culmen best run" and "--stop-at 5" in study.summary.next


@pytest.mark.slow
def test_too_few_evaluations_for_the_cases():
    cases = [Case(str(n), input=n) for n in range(100)]
    first, command = first_words(
        ran(lambda text, case: value(text) * case.input, cases=cases, budget=60)
    )
    assert (
        first.startswith("too few evaluations: ")
        and "%" in first
        and 'budget="evaluations=' in command
    )


@pytest.mark.slow
def test_one_case_that_decides_all():
    cases = [Case(f"case{n}", input=n) for n in range(8)]
    study = ran(
        lambda text, case: value(text) if case.input == 3 else 1.0,
        cases=cases,
        budget=300,
        deterministic=True,
    )
    first, command = first_words(study)
    assert first == "one case decides: case3 makes up 100 % of all change of the score"
    assert command == "culmen show run best --diff seed"


def test_a_time_limit_that_hits_every_second_candidate():
    def evaluator(text: str) -> float:
        if value(text) % 2:
            raise TimeoutError("candidate took too long")
        return value(text)

    first, command = first_words(ran(evaluator))
    assert "% of candidates fail: " in first and "the limit of 60 s" in first
    assert command == "culmen.check(seed, evaluator)"


def test_the_wrong_direction():
    first, command = first_words(
        ran(lambda text: {"score": value(text), "accuracy": value(text)}, direction="min")
    )
    assert first.startswith(
        "the direction looks wrong: the score is accuracy, and lower is taken for better"
    )
    assert command == "culmen.check(seed, evaluator)"
    assert "direction" in ran_again_with_a_target()


def ran_again_with_a_target() -> str:
    """The first sentence where the initial program meets the target already."""
    task = options.function_task("v = 3", (), "", "min", "planted", True, None, value)
    task = msgspec.structs.replace(task, objective=Objective(direction="min", target=90.0))
    study = Study.create(
        task, evaluator=value, model=numbers(), budget=10, run_dir="runs/again", workers=1
    )
    study.run(progress=False)
    return study.summary.lines[0]


def test_a_fork_that_begins_with_what_was_found_has_no_wrong_direction():
    """Its initial programs meet the target because the first run found them."""
    study = ran(value, deterministic=True, objective={"target": 20.0})
    assert study.best is not None and study.best.score > 20.0
    forked = Study.fork(
        study.path,
        "runs/again",
        carry=3,
        evaluator=value,
        model=numbers(50.0),
        budget=culmen.Budget(evaluations=12),
    )
    forked.run(progress=False)
    assert "direction" not in "\n".join(forked.summary.lines)


@pytest.mark.slow
def test_an_evaluator_that_gives_every_program_the_same():
    first, command = first_words(ran(lambda text: 0.5, deterministic=True))
    assert first.startswith("all ") and "programs got the same score, 0.5 (100 %)" in first
    assert command == "culmen.check(seed, evaluator)"


@pytest.mark.slow
def test_a_disk_that_is_full():
    def evaluator(text: str) -> float:
        if value(text) % 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return value(text)

    first, command = first_words(ran(evaluator))
    assert (
        first.startswith("no space is left on the disk: ")
        and "% of evaluations failed for that reason" in first
    )
    assert command == 'culmen.Study.fork("run", evaluator=evaluator, model=model).run()'


def test_a_budget_that_went_into_retries():
    calls, good = [0], numbers()

    class Limited:
        """A model of which four requests in five are refused for the rate."""

        async def complete(self, call: Any) -> Any:
            from culmen.models.call import Completion, Reply, Tokens

            calls[0] += 1
            if calls[0] % 5:
                raise RateLimited("slow down", retry_after=0.001)
            return Reply((Completion(good(""), "stop"),), Tokens(10, 10))

    first, command = first_words(ran(value, Limited(), budget="evaluations=60,calls=12,seconds=20"))
    assert (
        "attempts to ask" in first
        and first.endswith("failed: they met the provider's rate limit")
        and "%" in first
    )
    assert "workers=1" in command
