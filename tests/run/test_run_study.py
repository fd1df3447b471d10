"""The public API: a function as evaluator, a scripted model, resume and fork.

Also strategies and proposers of one's own.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from dataclasses import dataclass

import pytest

import culmen
from culmen.core.brief import Brief, Proposal
from culmen.strategies.polca import Polca
from culmen.testing.scripted import ScriptedModel

SEED = "VALUE = 1.0\n"


def closeness(candidate: str) -> float:
    """The nearer VALUE is to 7, the better."""
    space: dict[str, float] = {}
    exec(candidate, space)
    return -abs(space["VALUE"] - 7.0)


def far(candidate: str) -> float:
    """As `closeness`, with the top out of reach."""
    return closeness(candidate.replace("VALUE = ", "VALUE = -100.0 + "))


def improve(call) -> str:
    """A model that adds one to the number it is shown."""
    value = float(re.findall(r"VALUE = ([-\d.]+)", call.prompt)[-1])
    return f"A step up.\n```python\nVALUE = {value + 1.0}\n```"


def test_a_function_and_a_scripted_model_climb_to_the_top(tmp_path):
    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        strategy=Polca(explore=1, batch=1, epsilon=0.0, summarizer=None),
        model=ScriptedModel(improve),
        budget=culmen.Budget(evaluations=40),
        deterministic=True,
        run_dir=tmp_path / "run",
    )
    assert study.best is not None
    assert study.best.text == "VALUE = 7.0\n"
    assert study.best.score == 0.0
    assert study.best.confirmed
    assert not study.best.verified  # the function shares a process with the candidate
    assert study.status.state == "finished"
    assert study.status.usage.calls > 5
    made = sum(1 + one.usage.evaluations for one in study.observations())  # with its pushes
    assert made == study.status.evaluations
    assert study.candidates()[0].id == study.best.id


def test_it_works_where_a_loop_already_runs(tmp_path):
    async def notebook_cell():
        return culmen.optimize(
            SEED,
            evaluator=closeness,
            model=ScriptedModel(improve),
            budget=culmen.Budget(evaluations=12),
            run_dir=tmp_path / "run",
        )

    assert asyncio.run(notebook_cell()).best is not None


class Axes:
    """Axes that remember the drawn lines: those of matplotlib have the same methods."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[list, list]] = {}
        self.title = ""

    def step(self, x: list, y: list, where: str, label: str) -> None:
        self.lines[label] = (x, y)

    def set(self, **words: str) -> None: ...

    def legend(self) -> None: ...

    def set_title(self, text: str, fontsize: str) -> None:
        self.title = text


def test_a_study_is_plotted_as_its_best_so_far(tmp_path, monkeypatch):
    model = ScriptedModel(improve)
    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        model=model,
        deterministic=True,
        budget=40,
        run_dir=tmp_path / "a",
    )
    axes = Axes()
    assert study.plot(axes) is axes and study.plot(axes, label="again") is axes
    spent, scores = axes.lines["a"]
    assert axes.lines["again"] == (spent, scores) and axes.title == ""
    assert len(spent) == len(scores) and spent[-1] == study.status.evaluations
    assert scores == sorted(scores) and scores[-1] == study.best.score
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(culmen.UserError, match=re.escape("needs the package matplotlib")):
        study.plot()


def test_next_steps_of_a_run_with_a_function_are_python(tmp_path):
    """The command line has neither the function nor a task folder."""
    study = culmen.optimize(
        SEED, evaluator=lambda text: 1.0, budget=20, run_dir=tmp_path / "a", progress=False
    )
    steps = [study.summary.command, *(command for command, _ in study.summary.also)]
    assert not [step for step in steps if re.match("culmen (check|fork|resume|run) ", step)]
    assert any(
        step.startswith('culmen.Study.fork("') and 'budget="evaluations=' in step for step in steps
    )


def test_a_strategy_and_a_proposer_of_ones_own(tmp_path):
    @dataclass(frozen=True)
    class Doubling:
        async def search(self, lab):
            current = lab.seeds[0]
            for _ in range(4):
                (current,) = (await lab.propose(Brief(current))).candidates
                await lab.evaluate(current)

    class Double:
        async def propose(self, lab, brief):
            value = float(brief.parent.text.partition("=")[2])
            return Proposal(
                (culmen.Candidate.of({"candidate": f"VALUE = {value * 2}\n"}, (brief.parent.id,)),)
            )

    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        strategy=Doubling(),
        proposer=Double(),
        run_dir=tmp_path / "run",
        deterministic=True,
    )
    assert study.best is not None
    assert study.best.text == "VALUE = 8.0\n"
    assert study.status.state == "finished"


def test_cases_reach_the_evaluator_and_the_hold_out_decides(tmp_path):
    def judge(candidate: str, case) -> float:
        space: dict[str, float] = {}
        exec(candidate, space)
        return -abs(space["VALUE"] - case.input)

    cases = [culmen.Case(str(i), i, split="test" if i > 6 else "train") for i in range(1, 10)]
    study = culmen.optimize(
        SEED,
        evaluator=judge,
        cases=cases,
        model=ScriptedModel(improve),
        budget=culmen.Budget(evaluations=60, final=0.3),
        run_dir=tmp_path / "run",
    )
    seen = {observation.case for observation in study.observations()}
    assert {"7", "8", "9"} <= seen
    assert study.best is not None


def test_an_interrupted_study_is_resumed_and_a_fork_pays_for_nothing_twice(tmp_path):
    first = culmen.optimize(
        SEED,
        evaluator=far,
        strategy=Polca(explore=1, batch=1, epsilon=0.0, summarizer=None),
        model=ScriptedModel(improve),
        budget=culmen.Budget(evaluations=20),
        deterministic=True,
        run_dir=tmp_path / "run",
    )
    model = ScriptedModel(improve)
    longer = culmen.Study.fork(
        first.path,
        tmp_path / "fork",
        budget=culmen.Budget(evaluations=40),
        evaluator=far,
        model=model,
    )
    assert longer.run() == "finished"
    assert longer.status.evaluations > first.status.evaluations
    assert longer.best is not None
    assert len(model.calls) < longer.status.evaluations - first.status.evaluations + 3
    before = [o for o in first.observations()][:-2]  # the last two are the final choice's
    assert [o for o in longer.observations()][: len(before)] == before
    with pytest.raises(culmen.UserError, match="reading"):
        culmen.Study.open(first.path).run()


def test_mistakes_say_what_where_and_what_next(tmp_path):
    with pytest.raises(culmen.UserError, match="nothing ends this run"):
        culmen.optimize(SEED, evaluator=closeness, budget=culmen.Budget(), run_dir=tmp_path / "a")
    with pytest.raises(culmen.UserError, match="without an initial program"):
        culmen.optimize(None, evaluator=closeness, run_dir=tmp_path / "b")
    with pytest.raises(culmen.UserError, match="polka"):
        culmen.optimize(SEED, evaluator=closeness, strategy="polka", run_dir=tmp_path / "c")
    with pytest.raises(culmen.UserError):
        culmen.Study.open(tmp_path / "nothing")


@pytest.mark.parametrize("budget", [{"dollars": 5}, {"calls": 9, "tokens": 10}])
def test_a_budget_that_the_offline_model_never_spends_is_refused(tmp_path, budget):
    from culmen.models.offline.proposer import UNTIMED, OfflineProposer

    for place, parts in enumerate(
        ({}, {"proposer": OfflineProposer(UNTIMED)}, {"embedder": "hashing"})
    ):
        with pytest.raises(
            culmen.UserError, match=f"offline model spends no {next(iter(budget))}"
        ) as error:
            culmen.optimize(
                SEED,
                evaluator=closeness,
                budget=culmen.Budget(**budget),
                run_dir=tmp_path / str(place),
                **parts,
            )
        assert "evaluations=200" in error.value.fix and not (tmp_path / str(place)).exists()


def test_a_budget_of_calls_ends_where_calls_are_made(tmp_path):
    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        model=ScriptedModel(improve),
        budget=culmen.Budget(calls=3),
        run_dir=tmp_path / "a",
    )
    assert study.status.state == "finished" and study.status.usage.calls <= 3


def test_a_run_made_with_a_function_asks_for_it_on_resume(tmp_path):
    study = culmen.optimize(
        SEED,
        evaluator=closeness,
        model=ScriptedModel(improve),
        budget=culmen.Budget(evaluations=10),
        run_dir=tmp_path / "r",
    )
    with pytest.raises(culmen.UserError, match="evaluator cannot be found by name"):
        culmen.Study.resume(study.path, model=ScriptedModel(improve)).run()


def test_templates_of_ones_own_are_asked_with_and_kept_for_the_resumed_run(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "improve.md").write_text("MY WORDS $parent $reply")
    second = ScriptedModel(improve)

    class Enough(Exception):
        pass

    def stop(call):
        if len(first.calls) > 3:
            raise Enough
        return improve(call)

    first = ScriptedModel(stop)
    budget = culmen.Budget(evaluations=12)
    run = tmp_path / "run"
    with pytest.raises(culmen.UserError, match="Enough"):
        culmen.optimize(
            SEED,
            evaluator=closeness,
            strategy="best_of_n",
            model=first,
            budget=budget,
            run_dir=run,
            templates=folder,
        )
    (folder / "improve.md").unlink()
    culmen.Study.resume(run, evaluator=closeness, model=second).run()
    assert first.calls and second.calls
    assert all(
        call.messages[1].content.startswith("MY WORDS") for call in (*first.calls, *second.calls)
    )


@pytest.mark.parametrize("strategy", ["pedigree", "best_of_n"])
def test_the_course_recorded_by_a_search_is_the_one_computed_from_its_journal(
    tmp_path, strategy: str
):
    from culmen.store import views

    draws = random.Random(3)

    def noisy(candidate: str) -> float:
        return far(candidate) + random.gauss(0.0, 0.5)

    def step(call) -> str:
        value = float(re.findall(r"VALUE = ([-\d.]+)", call.prompt)[-1])
        return f"A step.\n```python\nVALUE = {value + draws.gauss(0.2, 1.0)}\n```"

    run = tmp_path / "run"
    culmen.optimize(
        SEED,
        noisy,
        strategy=strategy,
        model=ScriptedModel(step),
        budget=culmen.Budget(evaluations=120),
        run_dir=run,
        progress=False,
    )
    recorded = views.progress_points(run)
    course = views.LeaderCourse(run, views.run_meta(run), steps=(1000, 1)).points()
    assert len(recorded) >= 30
    for point in recorded[:-1]:  # recorded with the last event of its transaction
        last = max((each for each in course if each.seq <= point.seq), key=lambda each: each.seq)
        assert (last.candidate, last.score, last.count) == (
            point.candidate,
            point.mean,
            point.count,
        )
