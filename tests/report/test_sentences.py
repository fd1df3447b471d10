"""The table of sentences: each has facts that call for it, and surfaces show the same."""

from __future__ import annotations

import ast
import contextlib
import html
import inspect
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.cli.main import main
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.result import FrontPoint, NoiseReport, RunResult, Score
from culmen.core.task import Constraint, MetricGoal, Objective
from culmen.core.usage import Budget, Usage
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.report import gather_report, report_page
from culmen.extensions.web.runs import Digest
from culmen.report import sentences
from culmen.report.facts import Facts
from culmen.report.figures import difference_text, plus_minus, score_with_margin
from culmen.report.sentences import (
    best_score_text,
    end_reason,
    find_problems,
    noise_sentence,
    percent_gain,
    reported_score_text,
    reserve_sentence,
    result_sentence,
    run_verdict,
    say,
    say_all,
    state_label,
)
from culmen.report.words import describe_entry
from culmen.run.study import Study
from culmen.store.views import Front, ProgressPoint
from culmen.store.views.evaluations import FailureCauses
from culmen.store.views.run import Spent, Unanswered
from tests.extensions.web import worlds

INITIAL = Score("a", 0.44, 6, 0.04, 0.09, fresh=True)
NOISY, EXACT = NoiseReport(False, 0.1, 5), NoiseReport(True)


def better(**fields: Any) -> RunResult:
    """A confirmed result that is better than its initial program."""
    given = {"id": "b", "score": 0.52, "count": 6, "se": 0.017, "margin": 0.035, "confirmed": True}
    more = {
        "initial": INITIAL,
        "gain": 0.08,
        "gain_margin": 0.05,
        "noise": NOISY,
        "trust": "verified",
    }
    return RunResult(**{**given, **more, **fields})


def exact(first: float, best: float, **fields: Any) -> RunResult:
    """A confirmed result of an exact score."""
    initial, gain = Score("a", first, 4, 0.0, 0.0), {"gain": best - first, "gain_margin": 0.0}
    return better(
        **{
            "score": best,
            "margin": 0.0,
            "initial": initial,
            "noise": EXACT,
            "count": 4,
            **gain,
            **fields,
        }
    )


def facts(result: RunResult | None = None, **fields: Any) -> Facts:
    """Facts of a finished run with 100 evaluations, none of which failed."""
    return Facts(
        **{"result": result, "evaluations": 100, "statuses": {"ok": 100}, "run": "r", **fields}
    )


def failing(words: str = "KeyError: 'x'", many: int = 10, **fields: Any) -> dict[str, Any]:
    """Failed evaluations of as many candidates."""
    given = {
        "status": Status.ERROR,
        "reason": "exception",
        "feedback": f"Traceback\n{words}",
        **fields,
    }
    return {"failed": tuple(Observation(f"c{n}", **given) for n in range(many))}


RAISED = 'Traceback (most recent call last):\n  File "/home/me/evaluator.py", line 6, in evaluate\nRuntimeError: not ready'  # noqa: E501
SCORED = tuple(Observation(f"c{n}", Status.OK, 1.0) for n in range(10))
STRUCK = tuple(
    Observation(f"c{n}", Status.INVALID, reason="scorer_raised", feedback=RAISED) for n in range(6)
)
HUNG = tuple(Observation(f"c{n}", Status.TIMEOUT, reason="timeout") for n in range(6))
GOALS = Objective(metrics=(MetricGoal("accuracy"), MetricGoal("latency", "min")))
MEMBER = FrontPoint("b", {"accuracy": 0.81, "latency": 3.0}, {"accuracy": 0.02}, 4, confirmed=True)
LEVEL = msgspec.structs.replace(MEMBER, id="c", metrics={"accuracy": 0.81, "latency": 3.1})
BEGUN = FrontPoint("a", {"accuracy": 0.8, "latency": 5.0}, {"accuracy": 0.02}, 4)
UNSURE = {"confirmed": False, "gain": None, "gain_margin": None}


def several(
    *members: FrontPoint, confirmed: bool = True, start: FrontPoint | None = None
) -> dict[str, Any]:
    """Facts of a front whose default choice is its first member."""
    choice = members[0].id
    front = Front(GOALS.metrics, (), members, {}, 1.0, confirmed, choice=choice, start=start)
    return {"result": better(front=members), "front": front, "objective": GOALS}


def points(*scores: tuple[int, str, float]) -> tuple[ProgressPoint, ...]:
    return tuple(ProgressPoint(at, float(at), name, score, 1) for at, name, score in scores)


STALE = {"points": points((1, "a", 1.0), (9, "b", 2.0), (100, "b", 2.0))}
CASES: dict[str, Facts] = {
    # headlines
    "error": facts(None, state="failed", error="Traceback\nKeyError: 'x'"),
    "initial_fails": facts(None, statuses={"error": 3}, evaluations=3, reason="initial_fails"),
    "failed": facts(None, statuses={"error": 3}, evaluations=3),
    "unscored": facts(None, state="running", statuses={}, evaluations=0),
    "front": facts(**several(MEMBER)),
    "untried": facts(better(id="a", kept_initial=True)),
    "others_failed": facts(better(id="a", kept_initial=True), statuses={"ok": 5, "error": 3}),
    "alone": facts(better(initial=None, gain=None)),
    "no_gain": facts(better(gain=-0.08)),
    "within_noise_headline": facts(better(gain_margin=0.1)),
    "gain": facts(better()),
    "estimated_gain": facts(better(**UNSURE, score=0.9), state="running"),
    # details
    "counts": facts(None, statuses={"error": 3}, evaluations=3),
    "choice": facts(**several(MEMBER, start=BEGUN)),
    "spans": facts(**several(MEMBER)),
    "level_members": facts(**several(MEMBER, LEVEL)),
    "infeasible": facts(**several(msgspec.structs.replace(MEMBER, feasible=False))),
    "confirmed": facts(**several(MEMBER)),
    "scores": facts(better()),
    "reached": facts(exact(0.5, 1.0), objective=Objective(target=1.0)),
    "way": facts(exact(0.5, 0.75), objective=Objective(target=1.0)),
    "measured": facts(better(kept_initial=True)),
    "sure": facts(better()),
    "one_draw": facts(better(gain_margin=0.0, noise=NoiseReport(draws=True, one_draw=True))),
    "exact": facts(exact(0.5, 0.75)),
    "agreed": facts(better(gain_margin=None, noise=NoiseReport(None, 0.0, 8, 0.31))),
    "noise_unknown": facts(better(gain_margin=None)),
    "unconfirmed": facts(better(**UNSURE)),
    "estimate": facts(better(**UNSURE), state="running"),
    "unfinished": facts(better(**UNSURE), state="paused"),
    "drift": facts(better(drift=-0.3)),
    "self_reported": facts(better(trust="self-reported")),
    "failures": facts(better(failures=2, count=12)),
    "not_certified": facts(better(strict=False)),
    "tolerance": facts(better(tolerance="used: 1e-6")),
    "gaming": facts(better(), findings=2),
    "ended_early": facts(better(), reason="user"),
    # how it was measured, trust, certificate, signs
    "of_search": facts(better(confirmed=False)),
    "of_choice": facts(better()),
    "level": facts(better()),
    "refused": facts(better(strict=False)),
    "as_given": facts(better(strict=True, certified=9.0)),
    "repaired": facts(better(strict=False, certified=9.0)),
    "signs": facts(better(), findings=2, best_before_first_finding=better()),
    # noise
    "drawn_once": facts(noise=NoiseReport(draws=True, one_draw=True)),
    "seeded_once": facts(noise=NoiseReport(one_draw=True)),
    "shown_exact": facts(noise=NoiseReport(True, 0.0, 12)),
    "declared_exact": facts(noise=EXACT),
    "draws": facts(noise=NoiseReport(draws=True, repeats=3)),
    "fails_at_times": facts(noise=NoiseReport(False, 0.0, 9)),
    "noisy": facts(noise=NOISY),
    "never_repeated": facts(noise=NoiseReport()),
    "few_repeats": facts(noise=NoiseReport(None, 0.0, 3, 0.63)),
    "no_verdict": facts(better(failed={"provider": 50}, evaluations=100)),
    # problems
    "disk_full": facts(
        better(), causes=FailureCauses(9, 3, {"exception\nOSError: No space left on device": 30})
    ),
    "nothing_scored": facts(None, statuses={"error": 10}, evaluations=10, **failing()),
    "bank_empty": facts(better(), reason="bank_empty", bank=12),
    "scorer_fails": facts(better(failed={"scorer": 20}, evaluations=100), **failing()),
    "fails_by_chance": facts(better(), seen=(*SCORED, *STRUCK)),
    "hangs_by_chance": facts(better(), seen=(*SCORED, *HUNG)),
    "failing_pays": facts(better(), paying=SCORED),
    "lost": facts(better(), statuses={"ok": 70, "lost": 30}),
    "cut_off": facts(better(), budget=Budget(seconds=10.0), reason="seconds", cut=(6.0, 2.0)),
    "retried": facts(better(), faults={"rate_limited": 40}, usage=Spent(calls=50)),
    "unanswered": facts(better(), unanswered=(Unanswered("gpt", "reasoning_cut", 9, 12),)),
    "nothing_accepted": facts(
        better(), faults={"unparsable": 40}, requests=50, models={"default": "gpt"}
    ),
    "failing": facts(better(), causes=FailureCauses(50, 30, {"exception\nKeyError: 'x'": 30})),
    "direction": facts(better(), first_score=3.0, objective=Objective(target=2.0)),
    "constant": facts(better(kept_initial=True, scored=20, equal=20)),
    "flat": facts(better(kept_initial=True, scored=20, equal=18)),
    "at_bound": facts(better(), first_score=1.0, objective=Objective(bounds=(0.0, 1.0))),
    "target_met": facts(
        exact(0.5, 1.0),
        objective=Objective(target=1.0),
        budget=Budget(evaluations=100),
        points=points((10, "b", 1.0), (100, "b", 1.0)),
    ),
    "few_turns": facts(better(), cases=80),
    "one_case": facts(better(deciding_share=0.95, deciding_case="c3")),
    "declared_draws": facts(better(), deterministic=True, drew={"evaluator.rng": 40}),
    "within_noise": facts(better(gain_margin=0.1)),
    "fallen": facts(better(search_score=0.9)),
    "stalled": facts(better(), **STALE),
    "unpriced": facts(better(), usage=Spent(unpriced=3), budget=Budget(dollars=1.0)),
    "unreported": facts(
        better(),
        usage=Spent(calls=3, unpriced=3, uncertain=Usage(input_tokens=900)),
        budget=Budget(tokens=5000),
        faults={"by_bytes": 3},
    ),
    "server_errors": facts(better(), usage=Spent(calls=3), server_errors=2),
}


def table_names() -> set[str]:
    """Names of all sentences in the table."""
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(sentences)))
        if isinstance(node, ast.Call)
    ]
    made = [call for call in calls if getattr(call.func, "id", "") in ("Told", "Finding")]
    return {
        str(call.args[0].value)
        for call in made
        if call.args and isinstance(call.args[0], ast.Constant)
    }


def names_said(case: Facts) -> set[str]:
    """Names of the sentences that are shown for these facts."""
    shown = {each.name for place in sentences.PLACES for each in say_all(place, case)[:1]}
    return (
        shown
        | {each.name for each in say_all("detail", case)}
        | {each.topic for each in find_problems(case)}
    )


def test_each_sentence_is_said_in_a_case_of_its_own():
    assert table_names() == {name.removesuffix("_headline") for name in CASES}
    for name, case in CASES.items():
        assert name.removesuffix("_headline") in names_said(case), name


def test_a_sound_result_has_neither_doubts_nor_problems():
    sound = facts(better(gain_margin=0.01))
    assert find_problems(sound) == [] and run_verdict(sound).doubts == ()
    assert run_verdict(sound).tone == "good" and run_verdict(sound, has_cause=True).tone == "warn"
    assert (
        run_verdict(CASES["failures"]).tone == "warn"
        and run_verdict(CASES["noise_unknown"]).tone == "quiet"
    )


def test_a_run_made_to_measure_did_not_stall() -> None:
    """As the fork that `next` names to tell a gain: nearly all evaluations are of its end."""
    to_measure = facts(better(gain_margin=0.01), budget=Budget(evaluations=100, final=0.9), **STALE)
    assert find_problems(to_measure) == []


def test_no_other_model_is_advised_where_nothing_better_is_possible() -> None:
    repeats = {"requests": 20, "faults": {"duplicate": 19}, "models": {"default": "m"}, **STALE}
    bounded = Objective(bounds=(0.0, 1.0))
    below, met = (facts(better(score=s), objective=bounded, **repeats) for s in (0.9, 1.0))
    found = {each.topic: each for each in find_problems(below)}
    assert found["nothing_accepted"].command == "culmen runs fork r --model 'm|NAME'"
    assert "gave what is known already" in found["nothing_accepted"].what
    assert not {each.topic for each in find_problems(met)} & {"nothing_accepted", "stalled"}


def test_prompts_and_rollouts_are_no_programs() -> None:
    alike = {"result": better(kept_initial=True, scored=20, equal=20)}
    steps = {form: find_problems(facts(**alike, form=form))[0] for form in ("rollout", "call")}
    assert steps["rollout"].command == "culmen show r best" and "tests" in steps["rollout"].do
    assert "returns" in steps["call"].do
    away = Observation("c", Status.LOST, reason="provider_away")
    lost = facts(None, failed=(away,), form="prompt", statuses={"lost": 100})
    first = find_problems(lost)[0]
    assert "the model's server did not answer" in first.what and "evaluator" not in first.do


def printed(*words: str) -> str:
    """The output of a command, in this process."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run for each kind of end and result."""
    return worlds.verdicts(tmp_path_factory.mktemp("ends") / "runs")


ENDS = [
    "better",
    "within",
    "kept",
    "minimised",
    "doubted",
    "flaky",
    "failed",
    "broken",
    "paused",
    "several",
]


@pytest.mark.parametrize("name", ENDS)
def test_terminal_page_report_document_and_python_say_the_same(
    made: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
):
    run = made[name]
    monkeypatch.chdir(run.parent.parent)  # so that commands call runs by their names
    summary = Study.open(run).summary
    status = printed("status", str(run))
    assert status.splitlines()[: len(summary.lines)] == list(summary.lines)
    plain = " ".join(status.split())  # lines are broken where the paths are long
    assert all(each.what in plain and each.do in plain for each in summary.other_findings)
    document = msgspec.json.decode(printed("status", str(run), "--json"))["summary"]
    page = overview_page(Digest(run), {})["summary"]
    for shown in (document, page):
        assert (
            shown["verdict"]["headline"] == summary.verdict.headline
            and shown["result"] == summary.result
        )
        assert shown["command"] == summary.command
        assert list(shown["findings"]) == list(msgspec.to_builtins(summary.findings))
    report = gather_report(Digest(run))
    assert html.escape(". ".join(summary.lines)) in report_page(report)
    evidence = dict(report.documents["pages"]["report"]["evidence"])
    assert evidence.get("doubts", "") == "; ".join(summary.verdict.doubts)
    assert evidence.get("measured", "") in plain or name == "several"
    best = Study.open(run).best
    assert best is None or best.result == summary.result


# The result in a sentence.


def test_the_result_is_one_sentence_with_its_certainty():
    line = (
        "+0.080 (18 %) better than the initial program: initial 0.440 ± 0.09 → best 0.520 ± 0.035; "
    )
    sure = "true gain 0.030 to 0.130 (95 % interval), beyond noise (6 fresh evaluations)"
    assert result_sentence(better()) == line + sure
    noisy = result_sentence(better(gain_margin=0.1))
    assert noisy.startswith(
        "Not clearly better than the initial program: +0.08, within noise; initial "
    )
    assert ", so there may be none (6 fresh evaluations)" in noisy
    unknown = result_sentence(better(gain_margin=None))
    assert unknown.endswith("how much scores vary by chance is not known (6 fresh evaluations)")
    assert result_sentence(better(direction="min")).startswith(
        "Nothing better than the initial program was found: "
    )
    assert result_sentence(exact(0.27, 0.52)) == (
        "+0.25 (93 %) better than the initial program: initial 0.27 → best 0.52; scores are exact (4 fresh evaluations)"
    )
    equal = NoiseReport(None, 0.0, 8, 0.31)
    agreed = "equal in 8 of 8 repeats, so up to 31 % of repeats may differ"
    few = {"gain_margin": None, "margin": None, "noise": equal, "bounds": (0.0, 1.0)}
    assert result_sentence(better(**few)).endswith(f"{agreed} (6 fresh evaluations)")
    assert " ± " not in result_sentence(better(**few)).partition("best")[2]
    most = better(**few | {"count": 60, "gain": 0.6})
    assert result_sentence(most).endswith(
        f"{agreed}, too few to explain the gain (60 fresh evaluations)"
    )
    assert run_verdict(facts(most)).tone == "good"
    unshown = result_sentence(exact(0.27, 0.52, noise=NoiseReport()))
    assert unshown.endswith("how much scores vary by chance is not known (4 fresh evaluations)")


def test_it_says_that_the_initial_program_was_kept_and_how_often_the_best_failed():
    other = Score("c", 0.523456, 6, 0.02, 0.04)
    kept = result_sentence(better(score=0.5, margin=0.1, kept_initial=True, challenger=other))
    assert kept == (
        "Nothing better than the initial program was found: initial 0.50 ± 0.1, best other 0.523 ± 0.04; "
        "measured by 6 fresh evaluations"
    )
    first = {"id": "a", "kept_initial": True}
    untried = run_verdict(facts(better(**first), reason="seconds")).headline
    assert untried == "Only the initial program was evaluated: the budget of seconds is spent"
    failed = run_verdict(facts(better(**first), statuses={"ok": 5, "error": 3})).sentence
    assert failed.startswith(
        "No other candidate gave a score: evaluations without a score: 3 error; initial "
    )
    assert "failed in 2 of 12 evaluations" in result_sentence(better(failures=2, count=12))
    running = run_verdict(facts(better(**UNSURE), state="running")).sentence
    assert running.startswith(
        "Not clearly better than the initial program so far: +0.080, within noise; "
    )
    assert running.endswith("an estimate of the search, which fresh evaluations confirm at the end")


def test_how_it_was_measured_names_both_intervals():
    assert say("basis", facts(better())) == "mean of 6 evaluations made after it was chosen"
    some = better(split="test", cases=10, of=100, count=10, new_margin=0.09)
    assert say("basis", facts(some)) == (
        "mean of 10 evaluations made after it was chosen, on 10 of 100 test cases; "
        "0.520 ± 0.035 for the cases of this task, 0.520 ± 0.09 for new cases of the kind"
    )
    whole = say("basis", facts(better(split="val", cases=25, of=25, count=25, failures=3)))
    assert whole.endswith("on all 25 val cases; 3 of them failed, counted as the floor")


@pytest.mark.parametrize("direction", ["max", "min"])
def test_doubts_follow_the_direction(direction: Any):
    sign, worst = (1, "low") if direction == "max" else (-1, "high")

    def verdict(**fields: Any) -> sentences.RunVerdict:
        best = better(direction=direction, gain=sign * 0.3, **fields)
        return run_verdict(facts(best, objective=Objective(direction)))

    assert verdict().tone == "good" and verdict().doubts == ()
    assert verdict(failures=2).doubts == (
        f"failed in 2 of 6 evaluations, counted as a {worst} score",
    )
    several = (FrontPoint("a", {"x": 1.0}, count=6, failures=2),)
    assert verdict(failures=2, front=several).doubts == (
        "failed in 2 of 6 evaluations, which its means leave out",
    )
    small = better(direction=direction, gain=sign * 0.05, gain_margin=0.1)
    gain = "+0.05" if sign > 0 else "0.05"  # a minus would say that it got worse
    (found,) = find_problems(facts(small, objective=Objective(direction)))
    assert f"the gain of {gain} is within the noise" in found.what
    fallen = better(direction=direction, gain=sign * 0.3, search_score=0.52 + sign * 0.4)
    assert "fallen" in names_said(facts(fallen, objective=Objective(direction)))
    risen = better(direction=direction, gain=sign * 0.3, search_score=0.52 - sign * 0.4)
    assert find_problems(facts(risen, objective=Objective(direction))) == []


@pytest.mark.parametrize(
    ("before", "after", "margin", "text"),
    [
        (0.75, 1.0, None, " (33 %)"),
        (20.0, 12.0, None, " (40 %)"),
        (-12.0, -9.0, None, " (25 %)"),
        (100.0, 100.5, None, " (0.5 %)"),
        (100.0, 103.25, None, " (3.2 %)"),
        (10.0, 12.34, 0.01, " (23.4 %)"),
        (-1.0, 3.0, None, ""),
        (0.0, 3.0, None, ""),
        (0.5, 0.0, None, ""),
        (0.001, 0.9, None, ""),
        (1.0, 1.0, None, ""),
    ],
)
def test_per_cent_only_where_the_scale_has_it(
    before: float, after: float, margin: float | None, text: str
):
    assert percent_gain(before, after, margin) == text


def way(result: RunResult, goal: Objective) -> list[str]:
    """The sentence on target and best known value."""
    said = say_all("detail", facts(result, objective=goal))
    return [each.text for each in said if each.name in ("reached", "way")]


def test_the_way_to_target_and_best_known():
    aim = Objective(target=1.0)
    assert way(exact(0.5, 0.75), aim) == ["50 % of the way to the target 1"]
    assert way(exact(0.5, 1.0), aim) == ["the target 1 is reached"]
    assert way(exact(0.5, 0.9999), aim) == ["99 % of the way to the target 1"]  # not reached
    assert way(exact(0.5, 0.4), aim) == [] == way(exact(0.5, 0.6), Objective())
    assert way(exact(0.5, 0.55, gain_margin=0.1), aim) == []  # within noise
    both = Objective(target=0.7, known=1.0)
    assert way(exact(0.5, 0.75), both) == [
        "the target 0.7 is reached",
        "50 % of the way to the best known value 1",
    ]
    assert way(exact(0.5, 1.1), both) == [
        "the target 0.7 is reached, beyond the best known value 1"
    ]
    assert way(exact(0.5, 1.0), Objective(known=1.0)) == ["as good as the best known value 1"]
    down = Objective("min", target=10.0)
    assert way(exact(20.0, 12.0, direction="min"), down) == ["80 % of the way to the target 10"]


def test_a_front_is_told_by_its_spans():
    other = FrontPoint("c", {"accuracy": 0.95, "latency": 20.0}, {}, 4)
    told = run_verdict(facts(**several(MEMBER, other, confirmed=False), state="paused"))
    assert told.headline == "2 trade-offs between accuracy and latency so far"
    assert told.details[0] == "accuracy 0.81 to 0.95, latency 3 to 20"
    assert "an estimate of the search" in told.details[1]
    limited = Objective(
        metrics=(MetricGoal("accuracy"),), constraints=(Constraint("latency", "<=", 2.0),)
    )
    broken = FrontPoint("c", {"accuracy": 0.95}, {}, 4, feasible=False)
    front = Front(limited.metrics, limited.constraints, (broken,), {}, 1.0, True)
    alone = run_verdict(facts(better(front=(broken,)), front=front, objective=limited))
    assert alone.headline == "1 trade-off of accuracy" and alone.doubts == (
        "none meets every constraint",
    )


def test_the_default_choice_is_told_beside_the_initial_program():
    told = run_verdict(facts(**several(MEMBER, start=BEGUN)))
    moves = "accuracy 0.80 → 0.81 (within noise), latency 5 → 3 (better)"
    assert told.details[0] == f"initial program → default choice: {moves}"
    worse = msgspec.structs.replace(BEGUN, metrics={"accuracy": 0.9, "latency": 3.0})
    told = run_verdict(facts(**several(MEMBER, start=worse)))
    assert "0.90 → 0.81 (worse), latency 3 → 3 (level)" in told.details[0]
    told = run_verdict(facts(**several(MEMBER, start=MEMBER)))
    assert told.details[0] == "the default choice is the initial program"


# Numbers, noise and ends.


@pytest.mark.parametrize(
    ("value", "margin", "text"),
    [
        (0.52312, 0.035, "0.523 ± 0.035"),
        (1234.5, 20.0, "1234 ± 20"),
        (0.5, None, "0.5"),
        (2.5, 0.0, "2.5"),
        (0.123456, 0.14, "0.12 ± 0.14"),
        (1234.5, 123.4, "1234 ± 120"),
    ],
)
def test_a_score_has_the_digits_that_its_interval_tells(
    value: float, margin: float | None, text: str
):
    assert score_with_margin(value, margin) == text


def test_an_interval_ends_at_the_bounds_of_the_score():
    assert score_with_margin(1.0, 0.35, (0.0, 1.0)) == "1.00 (0.65 to 1)"
    assert score_with_margin(0.1, 0.35, (0.0, 1.0)) == "0.10 (0 to 0.45)"
    assert score_with_margin(0.5, 0.35, (0.0, 1.0)) == "0.50 ± 0.35"
    assert (
        score_with_margin(-1.36, 0.14, (-1.3579, None)) == "-1.36 (-1.3579 to -1.22)"
    )  # it is beyond
    assert (
        score_with_margin(-1.3567, 0.14, (-1.3579, None)) == "-1.357 (-1.3579 to -1.22)"
    )  # not -1.36, beyond it
    assert (
        reported_score_text(better(score=1.0, margin=0.35, bounds=(None, 1.0)))
        == "1.00 (0.65 to 1)"
    )


def test_differences_have_the_digits_of_their_margins():
    assert (
        difference_text(0.083456, 0.14) == "+0.08" and difference_text(-0.0834, 0.011) == "-0.083"
    )
    assert difference_text(0.083456, None) == "+0.0835" and difference_text(0.25, 0.0) == "+0.25"
    assert plus_minus(0.0) == "" and plus_minus(None) == ""


def test_noise_in_one_sentence():
    assert (
        noise_sentence(NoiseReport(True, 0.0, 12))
        == "Scores are exact, as 12 repeated evaluations showed."
    )
    assert noise_sentence(NoiseReport(False, 0.4912, 7)) == (
        "Scores are noisy: one evaluation deviates by about 0.49 (7 repeated evaluations)."
    )
    unknown = noise_sentence(NoiseReport(None, 0.0, 3, 0.63))
    assert unknown == (
        "Noise is not known: equal in 3 of 3 repeats, so up to 63 % of repeats may differ."
    )
    drawn = noise_sentence(NoiseReport(False, 0.0, 3, 0.63, draws=True))
    assert drawn.endswith(
        "draw random numbers; equal in 3 of 3 repeats, so up to 63 % of repeats may differ."
    )


def test_a_note_on_noise_is_told_in_the_same_sentence():
    for exactly, sd in ((True, 0.0), (False, 0.31), (None, 0.0)):
        body = {
            "note": "noise",
            "exact": exactly,
            "sd": sd,
            "repeats": 4,
            "told": "as strategies once said",
        }
        assert describe_entry(Entry("note", body=body)) == noise_sentence(
            NoiseReport(exactly, sd, 4)
        )


def test_ends_states_and_lines_of_progress():
    assert end_reason(facts(state="running")) == ""
    assert end_reason(facts(state="interrupted")) == "nothing is lost"
    spent = {"reason": "evaluations", "budget": Budget(evaluations=100)}
    assert end_reason(facts(**spent)) == "the budget of evaluations is spent"
    assert end_reason(facts(**spent | {"evaluations": 97})).endswith("is spent but for 3")
    assert end_reason(facts(state="failed", error="KeyError")) == "KeyError"
    assert (
        best_score_text(None) == "no score yet"
        and best_score_text(better(margin=0.14)) == "best 0.52 ± 0.14"
    )
    ends = ("evaluations", "dollars", "budget", "target")
    assert {state_label("finished", reason) for reason in ends} == {"finished"}
    assert state_label("finished", "user") == "stopped"
    assert (
        state_label("failed", "evaluations") == "failed" and state_label("running", "") == "running"
    )


def test_a_drift_the_reserve_and_the_budget_that_ended_unconfirmed_are_said() -> None:
    said = run_verdict(facts(better(drift=-0.3))).sentence
    assert "scores fell by 0.3 during the run, whatever was evaluated" in said
    ended = run_verdict(facts(better(**UNSURE), reason="seconds")).sentence
    assert "not confirmed by fresh evaluations: the budget of seconds is spent" in ended
    assert reserve_sentence(62, 300, 5.9, 5.1) == (
        "The final choice kept 62 of 300 evaluations: what telling a gain of 5.9 takes, where one "
        "evaluation deviates by 5.1."
    )
    assert "scores changed in the course of the run" in reserve_sentence(60, 300, 0.0, 0.0)
    assert "the search saw no gain that more could surely tell" in reserve_sentence(60, 300, 0, 5.1)


def test_evaluations_that_a_budget_refused_are_not_laid_on_the_machine() -> None:
    """A machine with more memory would lose as many; only questions that cost less help."""
    statuses, refused = {"ok": 70, "lost": 30}, {"budget_dollars": 30}
    (lost,) = find_problems(facts(better(), statuses=statuses, failures=refused))
    assert lost.culprit == "budget" and "the budget of dollars did not hold" in lost.what
    assert "max_tokens" in lost.do and "--workers" not in lost.command
    (lost,) = find_problems(facts(better(), statuses=statuses, failures={"machine_busy": 30}))
    assert lost.culprit == "machine" and "--workers 1" in lost.command
