"""Questions over paragraphs and their scores, with a stand-in for the model.

The stand-in obeys certain sentences only.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from culmen.tasks import example_path, load, write_new
from tests.servers.model_script import Asked, Turn
from tests.servers.model_server import ModelServer
from tests.tasks.folder import modules, scripted_search

SHORT = "Answer with the fewest words possible."
CASES = load(example_path("hotpotqa")).cases


def stand_in(text: str) -> str:
    """Knows all answers. It is brief only on request, and repeats everything on request."""
    case = next(case for case in CASES if case.input in text)
    if "Repeat the context" in text:
        return text
    if SHORT in text:
        return f" {case.info}.\n"
    return f"I believe it is {case.info}." if len(case.input) % 2 else "I cannot say."


def scored(prompt: str, case: Any, seen: list[str] | None = None) -> dict[str, Any]:
    (evaluator,) = modules("hotpotqa", "evaluator")

    def ask(text: str, role: str, **options: Any) -> SimpleNamespace:
        assert role == "qa"
        if seen is not None:
            seen.append(text)
        return SimpleNamespace(text=stand_in(text))

    return evaluator.score({"prompt.txt": prompt}, case, ask)


def test_there_are_a_hundred_questions_with_ten_paragraphs_that_reach_the_model() -> None:
    (evaluator,) = modules("hotpotqa", "evaluator")
    assert len(CASES) == 100 and all(len(evaluator.PARAGRAPHS[case.id]) == 10 for case in CASES)
    seen: list[str] = []
    scored("Do it.", CASES[0], seen)
    assert seen[0].startswith("Do it.\n\nContext:\n") and seen[0].endswith(CASES[0].input)
    assert all(text in seen[0] for _, text in evaluator.PARAGRAPHS[CASES[0].id])


def test_exact_and_containment_are_both_shown() -> None:
    case = next(case for case in CASES if len(case.input) % 2)
    brief, wordy = scored(SHORT, case), scored("Answer.", case)
    assert (brief["metrics"]["exact"], brief["metrics"]["contains"], brief["score"]) == (
        1.0,
        1.0,
        1.0,
    )
    assert (wordy["metrics"]["exact"], wordy["metrics"]["contains"], wordy["score"]) == (
        0.0,
        1.0,
        1.0,
    )


def test_repeating_the_context_pays_by_containment_and_is_told() -> None:
    within = [case for case in CASES if scored("Repeat the context.", case)["score"] == 1.0]
    assert len(within) > 80  # all but those answered by yes or no
    found = scored("Repeat the context.", within[0])
    assert found["metrics"]["exact"] == 0.0 and "that is no answer" in found["feedback"]


def test_a_search_with_the_papers_preset_finds_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_new(tmp_path / "task", "hotpotqa")
    preset = load(tmp_path / "task").defaults.presets["paper"]
    assert (preset.strategy, preset.settings) == ("polca", {"batch": "2", "epsilon": "0.1"})

    def script(asked: Asked) -> Turn:
        if "prompt.txt" in asked.text or not re.search(r"\nQuestion: .*\Z", asked.text):
            return Turn(f"```\n{SHORT}\n```")
        return Turn(stand_in(asked.text))

    with ModelServer(script) as server:
        study = scripted_search(server, tmp_path / "task", "polca", tmp_path / "run")
    seen = study.evaluations()
    assert {str(one.status) for one in seen} == {"ok"} and {one.asked[0].role for one in seen} == {
        "qa"
    }
    assert {one.metrics["exact"] for one in seen} == {0.0, 1.0}
    assert json.dumps(study.status.best.score) == "1.0"


@pytest.mark.parametrize(
    ("said", "right", "exact", "contained", "f1"),
    [
        ("Beatles", "The Beatles", 1.0, 1.0, 1.0),
        ('"U.S.A."', "usa", 1.0, 1.0, 1.0),
        ("I do not know", "no", 0.0, 0.0, 0.0),
        ("No.", "no", 1.0, 1.0, 1.0),
        ("yes, it is", "yes", 0.0, 0.0, 0.0),
        ("the Beatles of Liverpool", "Beatles", 0.0, 1.0, 0.5),
        ("a theatre", "heat", 0.0, 0.0, 0.0),
        ("", "x", 0.0, 0.0, 0.0),
    ],
)
def test_answers_count_as_in_the_benchmark_s_script(
    said: str, right: str, exact: float, contained: float, f1: float
) -> None:
    """Articles and all punctuation are no part of an answer; yes and no count only alone."""
    (evaluator,) = modules("hotpotqa", "evaluator")
    found, wanted = evaluator.plain(said), evaluator.plain(right)
    counted = (float(found == wanted), float(evaluator.contains(found, wanted)))
    assert counted == (exact, contained) and evaluator.f1(found, wanted) == f1
