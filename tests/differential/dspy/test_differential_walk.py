"""The page From DSPy, walked: the published example, then the same with our optimizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.published import example, scripted_openai
from tests.servers.model_script import Asked, Turn

dspy = pytest.importorskip("dspy", reason="python -m tests.differential")
pytestmark = pytest.mark.timeout(900)

BETTER = "Answer with one word."
OLD = 'dspy.GEPA(\n    metric=your_metric,\n    max_metric_calls=150,\n    reflection_lm="openai/gpt-5",\n)'
OURS = 'culmen.dspy.Optimizer(your_metric, model="openai/gpt-5", budget=20)'  # as on the page
PAIRS = [("Is two even?", "yes"), ("Is four even?", "yes"), ("Is six even?", "yes")]


class MyProgram(dspy.Module):  # type: ignore[misc]
    """The program that the example leaves to its reader."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        return self.say(question=question)


def your_metric(
    gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None
) -> Any:
    """1 for the right answer, with a word on it."""
    return dspy.Prediction(score=float(gold.answer == pred.answer), feedback="one word is wanted")


def model(asked: Asked) -> Turn:
    """The program's answer, or a better instruction in whatever form it is asked for."""
    text = "\n".join(item.text for item in asked.items)
    if asked.model != "gpt-5":
        word = "yes" if BETTER in text else "It seems that it is."
        return Turn(f"[[ ## answer ## ]]\n{word}\n\n[[ ## completed ## ]]")
    if "new_instruction" in text:
        return Turn(json.dumps({"new_instruction": BETTER}))
    return Turn(f"```\n{BETTER}\n```")


def test_the_published_example_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    published = example("gepa", "your_metric")
    assert OLD in published
    theirs = published.replace('"openai/gpt-5"', "dspy.LM('openai/gpt-5')").replace("150", "20")
    ours = "import culmen\n" + published.replace(OLD, OURS)
    data = [dspy.Example(question=q, answer=a).with_inputs("question") for q, a in PAIRS]
    for text in (theirs, ours):
        with scripted_openai(model), dspy.context(lm=dspy.LM("openai/gpt-4o-mini", cache=False)):
            space: dict[str, Any] = {"trainset": data, "valset": data, **globals()}
            exec(text, space)
            better = space["optimized_program"]
            assert better.say.signature.instructions == BETTER
            score = dspy.Evaluate(devset=data, metric=your_metric, display_progress=False)(better)
            assert score.score == 100.0
            better.save("program.json")
            loaded = MyProgram()
            loaded.load("program.json")
            assert loaded.say.signature.instructions == BETTER
