"""Explanations of evaluations: decisions derived again are those of the journal.

They agree with the numbers of the equations, too.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

import culmen
from culmen.cli.main import main
from culmen.core.errors import UserError
from culmen.core.result import Explanation
from culmen.extensions.web.server import Dashboard
from culmen.report.reasons import explanation_lines
from culmen.run.explain import explain_evaluation, explain_for_dashboard
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.store.writer import JournalWriter
from culmen.strategies import knowledge_gradient
from culmen.testing.scripted import ScriptedModel

SEED = "A = 2.0\nB = 1.0\n\ndef run():\n    return A * B\n"


def value(text: str) -> float:
    space: dict[str, Any] = {}
    exec(text, space)
    return float(space["run"]())


def noisy(seed: int):
    """The nearer to 7 the better, with noise; some evaluations fail."""
    draws = Random(seed)

    def score(text: str) -> float:
        if draws.random() < 0.08:
            raise RuntimeError("fell over")
        return -abs(value(text) - 7.0) + draws.gauss(0, 0.3)

    return score


def several(text: str) -> dict[str, float]:
    size = abs(value(text))
    return {"accuracy": 1 - 1 / (1 + size), "latency": 2 + size}


def search(run: Path, evaluator: Any, evaluations: int, **more: Any) -> Path:
    budget = culmen.Budget(evaluations=evaluations)
    culmen.optimize(SEED, evaluator, budget=budget, run_dir=run, progress=False, **more)
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return search(tmp_path_factory.mktemp("runs") / "noisy", noisy(3), 60, workers=1)


@pytest.fixture(scope="module")
def explained(finished: Path) -> dict[int, Explanation]:
    """Every third evaluation of the search, and all of the final choice."""
    count = views.run_status(finished).evaluations
    numbers = [*range(1, count - 7, 3), *range(count - 7, count + 1)]
    return {number: explain_evaluation(finished, str(number)) for number in numbers}


def test_every_decision_is_the_one_of_the_journal(
    finished: Path, explained: dict[int, Explanation]
) -> None:
    noted = [note.body for note in views.strategy_notes(finished) if note.kind == "pedigree"]
    decided = [each for each in explained.values() if each.decision is not None]
    assert len(decided) > 2 and all(each.recomputed and not each.why_not for each in decided)
    for each in decided:
        assert each.decision is not None
        chosen = each.decision.chosen
        action = "children" if chosen.k else "again"
        same = [note for note in noted if (note["action"], note["of"]) == (action, chosen.of)]
        assert same and (not chosen.k or any(note["k"] == chosen.k for note in same))
        if not chosen.k:
            assert each.candidate == chosen.of and each.nth > 1
        else:
            assert each.origin["parents"][0] == chosen.of or each.origin["operator"].endswith(
                "crossover"
            )


def test_chosen_actions_have_the_largest_rate(explained: dict[int, Explanation]) -> None:
    compared = [
        each.decision
        for each in explained.values()
        if each.decision and each.decision.reason == "gain"
    ]
    assert compared
    for facts in compared:
        rates = [each.rate for each in facts.options]
        assert rates == sorted(rates, reverse=True) and facts.options[0].chosen
        assert facts.chosen == facts.options[0]
        for each in facts.options:
            assert each.rate == pytest.approx(each.weight * each.gain / each.share)
            assert each.share == pytest.approx(each.cost["evaluations"] / facts.left["evaluations"])


def test_a_wait_for_dear_calls_is_told(finished: Path, explained: dict[int, Explanation]) -> None:
    one = next(
        each for each in explained.values() if each.decision and each.decision.reason == "gain"
    )
    assert one.decision is not None
    waited = msgspec.structs.replace(
        one, decision=msgspec.structs.replace(one.decision, reason="wait")
    )
    task, now = views.run_meta(finished).task, views.run_status(finished)
    said = " ".join(explanation_lines(waited, task, now))
    assert "few calls are left" in said and "few calls are left" not in " ".join(
        explanation_lines(one, task, now)
    )


def expected_gain(gap: float, deviation: float) -> float:
    """The knowledge gradient of docs/strategies/pedigree.md for one evaluation."""
    bell = NormalDist()
    return deviation * (bell.pdf(gap / deviation) - gap / deviation * bell.cdf(-gap / deviation))


@pytest.mark.slow
def test_gains_are_those_of_the_equations(tmp_path: Path) -> None:
    draws = Random(5)
    sound = lambda text: -abs(value(text) - 7.0) + draws.gauss(0, 0.3)  # noqa: E731
    run = search(tmp_path / "sound", sound, 40, workers=1, deterministic=False)
    repeats = children = 0
    for number in range(12, 34, 3):
        facts = explain_evaluation(run, str(number)).decision
        if facts is None or facts.reason != "gain" or facts.leader_score is None:
            continue
        assert not facts.repeating and not facts.expecting  # one at a time
        for each in facts.options:
            if each.expected is None or each.sd is None or each.gain < 1e-4 or each.k > 1:
                continue
            gap, variance = facts.leader_score - each.expected, each.sd**2
            gain = expected_gain(gap, variance / math.sqrt(variance + facts.noise**2))
            if each.k:  # times the chance that a child scores and is not ruined
                assert 0.2 * gain < each.gain < 1.4 * gain
                children += 1
            elif each.of != facts.leader:
                # the noise that is told is that at the leader's level, decisions take the model's
                assert 0.3 * gain < each.gain < 1.4 * gain
                repeats += 1
    assert repeats > 2 and children > 2


def test_another_rule_is_not_taken_for_the_journals(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = next(n for n in range(20, 150) if explain_evaluation(finished, str(n)).decision)
    monkeypatch.setattr(knowledge_gradient, "AGAIN", 50.0)
    other = explain_evaluation(finished, str(number))
    assert not other.recomputed and other.decision is None and other.why_not
    assert any("was not derived again" in line for line in other.lines)


def test_causes_and_outcomes_are_told(finished: Path, explained: dict[int, Explanation]) -> None:
    assert explained[1].cause == "initial"
    ok, failed = (
        [each for each in explained.values() if (each.status == "ok") is good]
        for good in (True, False)
    )
    assert any(line.startswith("It scored -") for line in ok[0].lines)
    assert not failed or any("It gave no score (error" in line for line in failed[0].lines)
    first = [each for each in explained.values() if each.nth == 1 and not each.purpose]
    assert {each.cause for each in first} <= {"initial", "decision", "proposer"}
    last = explained[max(explained)]
    assert last.cause == "final" and last.finalists and {"final"} >= {last.purpose}
    believed = [each.score for each in last.finalists]
    assert believed == sorted(believed, reverse=True)
    assert any(line.startswith("What the run reports: ") for line in last.lines)
    assert explain_evaluation(finished) == last


def test_a_candidate_stands_for_its_first_evaluation(finished: Path) -> None:
    best = views.best_result(finished)
    assert best is not None
    by_name, by_id = explain_evaluation(finished, "best"), explain_evaluation(finished, best.id[:8])
    assert by_name == by_id and by_name.candidate == best.id and by_name.nth == 1
    assert explain_evaluation(finished, "seed").evaluation == 1


@pytest.mark.parametrize("wanted", ["#0", "999", "-3", "#4000"])
def test_a_number_that_does_not_exist_is_a_mistake(finished: Path, wanted: str) -> None:
    with pytest.raises(
        UserError, match=f"no evaluation {wanted}: the run has evaluations 1 to"
    ) as error:
        explain_evaluation(finished, wanted)
    assert re.fullmatch(r"culmen show \S+ 60 --explain", error.value.fix)


def test_the_command_line_prints_words_and_json(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(finished), "30", "--explain"]) == 0
    told = capsys.readouterr().out
    assert "Evaluation 30 of" in told and "/noisy 29 --explain" in told
    assert main(["show", str(finished), "30", "--explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert msgspec.convert(document, Explanation).evaluation == 30
    assert main(["show", str(finished), "zzz", "--explain"]) == 2
    assert "there is no candidate 'zzz'" in capsys.readouterr().err


def test_other_strategies_are_explained_by_their_notes(tmp_path: Path) -> None:
    run = search(tmp_path / "map", noisy(3), 16, strategy="map_elites")
    found = [explain_evaluation(run, str(number)) for number in range(4, 12)]
    assert all(
        each.cause == "strategy" and not each.recomputed and not each.why_not for each in found
    )
    assert any(any(line.startswith("- grid ") for line in each.lines) for each in found)
    assert all("map_elites" in " ".join(each.lines) for each in found)


@pytest.mark.slow
def test_a_front_is_explained_by_what_it_gains(tmp_path: Path) -> None:
    run = search(tmp_path / "front", several, 48, objectives={"accuracy": "max", "latency": "min"})
    decided = [facts for n in range(8, 38) if (facts := explain_evaluation(run, str(n)).decision)]
    facts = next(each for each in decided if each.reason == "gain" and each.front > 1)
    assert facts.leader == "" and facts.chosen.expected is None
    last = explain_evaluation(run)
    assert last.cause == "final" and any("trade-offs between" in line for line in last.lines)


def test_a_run_that_was_interrupted_is_explained_too(tmp_path: Path, finished: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    with SqlJournal.open(finished) as journal:
        events, meta = list(journal.read(whole=True)), journal.meta
    done = [
        event.seq
        for event in events
        if event.entry.effect == "evaluate" and event.entry.kind == "done"
    ]
    kept = [event for event in events if event.seq <= done[19]]
    writer, _ = JournalWriter.open(cut, meta)
    writer.append([event.entry for event in kept], [event.time for event in kept])
    writer.close()
    during, after = explain_evaluation(cut), explain_evaluation(finished, "20")
    assert views.run_status(cut).state == "interrupted" and (during.evaluation, during.of) == (
        20,
        20,
    )
    assert during.decision == after.decision and during.lines[1:] == after.lines[1:]


def test_a_fork_begins_without_decisions_and_tells_what_it_took_over(tmp_path: Path) -> None:
    def improve(call: Any) -> str:
        number = float(re.findall(r"A = ([-\d.]+)", call.prompt)[-1])
        return f"```python\nA = {number + 0.25}\nB = 1.0\n\ndef run():\n    return A * B\n```"

    def near(text: str) -> float:
        return -abs(value(text) - 7.0)

    run = search(tmp_path / "run", near, 12, model=ScriptedModel(improve), workers=1)
    fork = culmen.Study.fork(
        run,
        run_dir=tmp_path / "fork",
        evaluator=near,
        model=ScriptedModel(improve),
        budget="evaluations=+6",
    )
    with pytest.raises(UserError, match="no evaluation has finished yet"):
        explain_evaluation(fork.path)
    fork.run(progress=False)
    first, old = explain_evaluation(fork.path, "5"), explain_evaluation(run, "5")
    assert first.origin["inherited"] and not old.origin["inherited"]
    assert "was taken over from the run" in first.lines[1]
    assert first.candidate == old.candidate


def test_the_dashboard_serves_the_same(finished: Path) -> None:
    board = Dashboard(finished, explain=explain_for_dashboard)
    client = TestClient(board.app, base_url="http://127.0.0.1")
    found = client.get(f"/api/runs/{finished.name}/explain", params={"evaluation": "50"}).json()
    own = explain_evaluation(finished, "50")
    assert found["lines"] == list(own.lines) and found["evaluation"] == 50
    assert len(found["rows"]) == (len(own.decision.options) if own.decision else 0)
    wrong = client.get(f"/api/runs/{finished.name}/explain", params={"evaluation": "999"})
    assert wrong.status_code == 404 and "no evaluation 999" in wrong.json()["error"]["what"]
    assert client.get(f"/api/runs/{finished.name}/nothing").status_code == 404
