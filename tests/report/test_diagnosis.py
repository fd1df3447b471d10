"""Diagnosis of a run from its journal, and the three lines that begin every look at a run."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.cli.pages import show_status, uncertain_text
from culmen.cli.screen import Screen
from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry, EvaluateRequest
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.report.facts import check_command, read_facts
from culmen.report.sentences import Finding, find_problems
from culmen.report.summary import summarize_run
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.testing.virtual import simulate


def program(score: float | str, serial: int = 0, parents: tuple[str, ...] = ()) -> Candidate:
    """A candidate that scores this, or fails with these last words."""
    return Candidate.of({"program": f"{score}\n{serial}"}, parents, Origin("told"))


class Scripted:
    """Evaluates the number written in a candidate, with noise; answers `replies` in turn."""

    def __init__(
        self, noise: float = 0.0, replies: Any = (), fault: str = "", unpriced: int = 0
    ) -> None:
        self.noise, self.replies, self.fault, self.unpriced = noise, list(replies), fault, unpriced

    def perform(self, effect, rng: Random):
        request = effect.request
        if isinstance(request, EvaluateRequest):
            return 1.0, self.observed(request.candidate, Random(request.seed))
        usage = Usage(calls=1, dollars=0.0 if self.unpriced else 0.01, unpriced=self.unpriced)
        told = self.replies.pop(0) if self.replies else ()
        made = tuple(
            program(each, effect.key * 100 + i, (request.brief.parent.id,))
            for i, each in enumerate(told)
        )
        return 1.0, Proposal(
            made,
            fault="" if made else self.fault,
            faults={} if made else {self.fault: 1},
            usage=usage,
        )

    def observed(self, candidate: Candidate, rng: Random) -> Observation:
        text = candidate.parts["program"].partition("\n")[0]
        if text.startswith("half "):
            text = text.removeprefix("half ") if rng.random() < 0.5 else "KeyError: 'half'"
        try:
            score = float(text) + rng.gauss(0.0, self.noise)
        except ValueError:
            reason = (
                ""
                if text.startswith("lost")
                else "provider_away"
                if text == "away"
                else "exception"
            )
            status = (
                Status.LOST
                if text in ("away", "lost")
                else Status.TIMEOUT
                if text == "slow"
                else Status.ERROR
            )
            reason = "timeout" if status is Status.TIMEOUT else reason
            return Observation(candidate.id, status, reason=reason, feedback=f"Traceback\n{text}")
        return Observation(candidate.id, Status.OK, score, trust="verified")


class Asking:
    """Evaluates the initial program, then asks and evaluates what comes, `repeats` times each."""

    def __init__(self, repeats: int = 1) -> None:
        self.repeats = repeats

    async def search(self, lab) -> None:
        await lab.evaluate(lab.seeds[0], repeats=self.repeats)
        while True:
            for child in (await lab.propose(Brief(lab.seeds[0]))).candidates:
                await lab.evaluate(child, repeats=self.repeats)


def recorded(
    folder: Path,
    world: Any,
    *,
    budget: int = 100,
    dollars: float | None = None,
    model: str = "gpt-5-mini",
    repeats: int = 1,
    state: str = "finished",
    first: float | str = 1.0,
    deterministic: bool | None = None,
    error: str = "",
    **more: Any,
) -> tuple[Path, dict[str, Finding]]:
    """A run on a virtual clock, and its findings by topic."""
    task = Task(
        "told",
        objective=Objective(**more),
        seeds=(program(first).parts,),
        deterministic=deterministic,
    )
    limits = Budget(evaluations=budget, calls=300, dollars=dollars)
    meta = RunMeta("run", task, {"path": "x:Asking"}, models={"default": model}, budget=limits)
    with SqlJournal.create(folder / "run", meta) as journal:
        journal.append(
            [
                Entry(
                    "note",
                    effect="seeds",
                    body={"note": "seeds"},
                    result=Proposal(task.initial_candidates()),
                )
            ]
        )
        done = simulate(Asking(repeats), task, world, limits, seed=1, journal=journal)
        body = {"state": state, "reason": done.search.reason}
        if done.verdict is not None and state == "finished":
            body["winner"] = msgspec.to_builtins(done.verdict)
        if error:
            body["error"] = error
        journal.append([Entry("state", body=body)])
    run = folder / "run"
    return run, {finding.topic: finding for finding in find_problems(read_facts(run))}


def test_a_search_that_goes_well_is_told_nothing(tmp_path: Path):
    run, found = recorded(
        tmp_path, Scripted(replies=[(1.0 + n / 100,) for n in range(300)]), deterministic=True
    )
    assert found == {}
    result, used, following = summarize_run(run).lines
    assert "initial 1 → best 1." in result and used.startswith("used ") and "calls" in used
    assert following.startswith("next: culmen best ")


def test_a_stall_is_told_with_the_evaluation_it_began_at(tmp_path: Path):
    replies = [(2.0,) if n == 9 else (0.5,) for n in range(300)]
    _, found = recorded(tmp_path, Scripted(replies=replies), deterministic=True)
    assert found["stalled"].what.startswith("stalled since evaluation 11 of ")
    assert "--strategy" in found["stalled"].command


def test_a_stall_offline_is_advised_a_model_and_one_that_runs_a_hint(tmp_path: Path):
    replies = [(2.0,) if n == 9 else (0.5,) for n in range(300)]
    (tmp_path / "a").mkdir()
    _, found = recorded(
        tmp_path / "a", Scripted(replies=list(replies)), deterministic=True, model="offline"
    )
    assert "--model NAME" in found["stalled"].command
    (tmp_path / "b").mkdir()
    _, found = recorded(
        tmp_path / "b", Scripted(replies=list(replies)), deterministic=True, target=1.5
    )
    assert "stalled" not in found  # the target is reached


def test_candidates_that_fail_are_told_with_what_most_of_them_fail_of(tmp_path: Path):
    words = [
        "SyntaxError: invalid syntax",
        "SyntaxError: '(' was never closed",
        "KeyError: 'x'",
        1.5,
        1.6,
    ]
    run, found = recorded(
        tmp_path, Scripted(replies=[(words[n % 5],) for n in range(300)]), deterministic=True
    )
    what = found["failing"].what
    assert what.endswith(" % of candidates fail: SyntaxError (67 % of failures)")
    assert 50 <= int(what.partition("%")[0]) <= 65 and "--model" in found["failing"].command
    assert what in [each.what for each in summarize_run(run).findings]


def test_time_limits_have_a_remedy_of_their_own(tmp_path: Path):
    _, found = recorded(
        tmp_path, Scripted(replies=[("slow",) if n % 2 else (1.5,) for n in range(300)])
    )
    assert (
        found["failing"].what.endswith("fail: timeout, the limit of 60 s")
        and "[limits] seconds" in found["failing"].do
    )


def test_a_final_value_below_the_searchs_is_told_with_the_noise(tmp_path: Path):
    replies = [(1.0,) for n in range(300)]
    run, found = recorded(tmp_path, Scripted(noise=0.5, replies=replies), budget=120)
    best = views.run_status(run).best
    assert best is not None and best.search_score is not None
    told = [found[topic] for topic in ("fallen", "within_noise") if topic in found]
    assert told and all("noise" in finding.what for finding in told)
    assert summarize_run(run).cause.startswith(
        "noise hides any gain: one evaluation deviates by 0."
    )
    # the initial program is not behind: there is no gain for more measurements to tell
    assert (
        "--carry" not in summarize_run(run).next and "evaluations=+120" in summarize_run(run).next
    )


def test_bounds_that_make_failures_costly_are_named_where_they_hide_a_gain(tmp_path: Path):
    replies = [("half 1.0",) if n % 10 == 0 else (1.2,) for n in range(300)]
    found = {}
    for name, end in (("far", -100.0), ("open", None)):
        world = Scripted(noise=0.1, replies=replies)
        found[name] = recorded(tmp_path / name, world, repeats=3, bounds=(end, None))[1].get(
            "within_noise"
        )
    assert found["far"] is not None and found["far"].do.startswith(
        "a failed evaluation counts as -100, the bad end of"
    )
    assert found["open"] is None or "bounds" not in found["open"].do


def test_a_fall_names_both_values_and_the_noise_of_one_evaluation(tmp_path: Path):
    run, _ = recorded(
        tmp_path, Scripted(noise=0.3, replies=[(1.0,) for _ in range(300)]), repeats=2
    )
    now = views.run_status(run)
    assert now.best is not None
    lucky = msgspec.structs.replace(
        now.best, confirmed=True, search_score=1.0, score=0.54, margin=0.1
    )
    found = {
        f.topic: f for f in find_problems(read_facts(run, msgspec.structs.replace(now, best=lucky)))
    }
    assert found["fallen"].what.startswith("the final value fell from 1.00 to 0.54 ± 0.1: noise 0.")
    assert not found["fallen"].command, "the final value is the answer: nothing is to be measured"


def test_answers_of_which_nothing_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, found = recorded(tmp_path, Scripted(fault="diff_mismatch"))
    show_status(Screen(), views.run_status(run), run)
    assert "diff mismatch (100 %)" in capsys.readouterr().out
    what = found["unanswered"].what
    assert "gave no usable answer: 100 % of " in what
    assert what.endswith("answers quoted text that is not in the program")
    assert "quotes exactly" in found["unanswered"].do


def test_lost_evaluations_and_a_service_that_is_away(tmp_path: Path):
    replies = [("away",) if n % 3 == 0 else (1.0 + n / 100,) for n in range(300)]
    _, found = recorded(tmp_path, Scripted(replies=replies), deterministic=True)
    assert "the service that the evaluator asks did not answer" in found["lost"].what
    assert "failing" not in found  # nobody's fault here


def test_calls_without_a_price_are_told_where_dollars_were_to_limit_them(tmp_path: Path):
    replies = [(1.0 + n / 100,) for n in range(300)]
    _, found = recorded(
        tmp_path, Scripted(replies=replies, unpriced=1), dollars=5.0, deterministic=True
    )
    assert "had no known price" in found["unpriced"].what


def test_nothing_scored_is_the_first_line_and_the_check_the_next_step(tmp_path: Path):
    run, found = recorded(tmp_path, Scripted(), first="KeyError: 'x'")
    assert "nothing_scored" in found
    told = summarize_run(run)
    assert told.cause == "the initial program gives no score: KeyError: 'x', in 3 of 3 evaluations"
    assert told.verdict.headline == "Failed: the initial program gives no score"
    assert (
        told.verdict.details == ("evaluations without a score: 3 error",)
        and told.command == f"culmen show {run} --log"
    )
    assert told.ending == (told.cause, told.used, told.next)  # one sentence


def test_what_an_error_ended_before_any_score_is_to_be_checked_first(tmp_path: Path):
    """The same texts would end it again."""
    run, _ = recorded(
        tmp_path, Scripted(), first="KeyError: 'x'", state="paused", error="no text left"
    )
    told = summarize_run(run)
    assert told.command == f"culmen show {run} --log"
    assert any(command.startswith("culmen resume ") for command, _ in told.also)


def test_a_search_that_goes_on_tells_what_it_believes(tmp_path: Path):
    replies = [(1.0 + n / 100,) for n in range(300)]
    run, _ = recorded(tmp_path, Scripted(replies=replies), deterministic=True, state="paused")
    told = summarize_run(run)
    assert "initial 1 → best 1." in told.result
    assert told.next.startswith("next: culmen resume ")


def test_a_run_that_goes_on_is_not_to_be_watched_by_who_looks_at_it(tmp_path: Path):
    replies = [(1.0 + n / 100,) for n in range(300)]
    run, _ = recorded(tmp_path, Scripted(replies=replies), deterministic=True, state="paused")
    running = msgspec.structs.replace(views.run_status(run), state="running", recorded="running")
    told = summarize_run(run, running, "mine")
    assert told.command == "culmen best mine" and "so far" in told.next
    assert not any("watch" in command for command, _ in told.also)


def test_a_model_that_reports_no_usage_is_said_to_report_none(tmp_path: Path):
    run, _ = recorded(tmp_path, Scripted(replies=[(1.0,) for _ in range(300)]), deterministic=True)
    now = views.run_status(run)
    silent = msgspec.structs.replace(
        now.usage, uncertain=Usage(uncertain_tokens=1_264_608, input_tokens=1_264_608)
    )
    said = uncertain_text(msgspec.structs.replace(now, usage=silent))
    assert said.startswith("the model reports no usage: tokens of ") and "1,264,608" not in said
    told = msgspec.structs.replace(silent, input_tokens=7)
    assert "1,264,608 tokens more" in uncertain_text(msgspec.structs.replace(now, usage=told))


def test_the_command_that_checks_a_task_is_one_that_works(tmp_path: Path) -> None:
    """Of a skill without a task's folder, `root` is that of its Harbor tasks."""
    assert check_command("function", "") == "culmen.check(seed, evaluator)"
    assert check_command("call", "") == "" == check_command("rollout", str(tmp_path))
    (tmp_path / "task.toml").touch()
    assert check_command("rollout", str(tmp_path)) == f"culmen check {tmp_path}"
