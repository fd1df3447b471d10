"""A DSPy program optimised: instructions, demonstrations, and its own calls metered."""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace

import pytest

import culmen
from culmen.core.usage import Budget
from culmen.extensions.compat.dspy import _program_parts, with_parts
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

dspy = pytest.importorskip("dspy")
TEXTS = [
    ("great film", "positive"),
    ("a bore", "negative"),
    ("I loved it", "positive"),
    ("what a mess", "negative"),
]


class Reader(dspy.BaseLM):
    """Reads sentiment only where its instructions or demonstrations speak of praise."""

    def __init__(self):
        super().__init__("reader", "chat", 0.0, 1000, False)

    def forward(self, prompt=None, messages=None, **kwargs):
        told = "\n".join(str(each["content"]) for each in messages[:-1])
        last = str(messages[-1]["content"])
        liked = "praise" in told.lower() and ("great" in last or "loved" in last)
        text = f"[[ ## label ## ]]\n{'positive' if liked else 'negative'}\n\n[[ ## completed ## ]]"
        message = SimpleNamespace(content=text, tool_calls=None, reasoning_content=None)
        return SimpleNamespace(
            choices=[SimpleNamespace(message=message, finish_reason="stop")],
            usage={},
            model="reader",
        )


class Classify(dspy.Module):
    def __init__(self):
        super().__init__()
        self.step = dspy.Predict("text -> label")

    def forward(self, text):
        return self.step(text=text)


def metric(example, prediction, trace=None):
    right = example.label == prediction.label
    return dspy.Prediction(score=float(right), feedback="" if right else "look for praise")


def examples():
    return [dspy.Example(text=text, label=label).with_inputs("text") for text, label in TEXTS]


def improved(prompt: str) -> str:
    return "step\n```\nPositive if there is praise, else negative.\n```"


def test_instructions_are_optimised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dspy.context(lm=Reader()):
        student = Classify()
        optimizer = culmen.dspy.Optimizer(
            metric, model=improved, budget=60, deterministic=True, progress=False
        )
        better = optimizer.compile(student, trainset=examples()[:2], valset=examples()[2:])
        assert "praise" in better.step.signature.instructions
        assert "praise" not in student.step.signature.instructions
        assert better(text="I loved it").label == "positive"
    assert optimizer.study.best.score == 1.0
    assert any(
        "look for praise" in each.feedback and "step:" in each.feedback
        for each in optimizer.study.evaluations()
    )


def test_demonstrations_are_parts_where_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demos = '[{"text": "such praise", "label": "positive"}]'
    with dspy.context(lm=Reader()):
        reply = f"step.demos\n```\n{demos}\n```\nstep\n```\nSay it.\n```"
        settings = {
            "model": lambda prompt: reply,
            "budget": 60,
            "deterministic": True,
            "progress": False,
        }
        optimizer = culmen.dspy.Optimizer(metric, demos=1, **settings)
        better = optimizer.compile(Classify(), trainset=examples())
    assert set(optimizer.study.best.parts) == {"step", "step.demos"}
    assert optimizer.study.best.score == 1.0 and better.step.signature.instructions == "Say it."
    assert better.step.demos[0].text == "such praise"
    with pytest.raises(culmen.Invalid):
        culmen.dspy.with_parts(Classify(), {"step.demos": "{"})


def test_demonstrations_of_the_program_come_first():
    program, own = Classify(), {"text": "such praise", "label": "positive"}
    program.step.demos = [dspy.Example(**own)]
    rows = [{"text": "awful", "label": "negative"}, {"text": "fine", "label": "positive"}]
    for number, wanted in ((1, [own]), (2, [own, rows[1]])):
        (_, text) = _program_parts(program, [dspy.Example(**row) for row in rows[:number]]).values()
        assert json.loads(text) == wanted
    assert [dict(each) for each in with_parts(program, {"step": "Say it."}).step.demos] == [own]


def five(a, b, c, d, e):
    assert c is d is e is None
    return a.label == b.label


class AsObject:
    def __call__(self, a, b, c, d, e):
        return five(a, b, c, d, e)


@pytest.mark.parametrize(
    "judge",
    [
        five,
        AsObject(),
        functools.partial(five),
        lambda *args: args[0].label == args[1].label and len(args) == 2,
        lambda gold, pred, trace=None, share=0.5, k=1: 2 * share * k * (gold.label == pred.label),
        lambda gold, pred: gold.label == pred.label,
        lambda gold, pred, trace=None: gold.label == pred.label,
    ],
)
def test_metrics_of_every_form(judge):
    (example, *_) = examples()
    with dspy.context(lm=Reader()):
        program = culmen.dspy._Program(judge, {}, Classify())
        score, _ = program.judge_example({"step": "Look for praise."}, True, example)
    assert score == 1.0


def test_demonstrations_keep_the_types_of_their_values():
    row = {"text": ["great", "film"], "label": True}
    parts = culmen.dspy._program_parts(Classify(), [dspy.Example(**row)])
    (demo,) = culmen.dspy.with_parts(Classify(), parts).step.demos
    assert demo.toDict() == row


def test_a_metric_that_cannot_be_called_is_refused():
    with pytest.raises(culmen.UserError, match="the metric cannot be called"):
        culmen.dspy.Optimizer(lambda gold: 1.0)


def test_objectives_are_metrics_and_no_feedback_is_no_text():
    def judge(gold, pred, trace=None):
        return dspy.Prediction(score=0.5, feedback=None, objective_scores={"cost": 2})

    with dspy.context(lm=Reader()):
        program = culmen.dspy._Program(judge, {}, Classify())
        score, facts = program.judge_example({}, True, examples()[0])
    assert score == 0.5 and facts["cost"] == 2.0 and "None" not in facts["feedback"]


def test_calls_of_the_program_are_metered(monkeypatch, tmp_path):
    reply = "[[ ## label ## ]]\npositive\n\n[[ ## completed ## ]]"
    with ModelServer([Turn(reply)] * 5) as server:
        models = tmp_path / "models.toml"
        provider = f'[providers.mine]\nbase_url = "{server.url}/v1"\n'
        models.write_text(
            f'{provider}[models.big]\nprovider = "mine"\nprice = {{ input = 3.0, output = 15.0 }}\n'
        )
        with culmen.dspy.metered(
            "big", Budget(calls=2), str(models), cache=False, num_retries=0
        ) as lm:
            with dspy.context(lm=lm):
                for _ in range(2):
                    assert Classify()(text="great").label == "positive"
                assert lm.spent().calls == 2 and lm.spent().dollars > 0
                with pytest.raises(Exception, match=r"budget|calls"):
                    Classify()(text="again")
