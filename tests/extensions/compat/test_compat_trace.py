"""A Trace module's trainable parameters optimised by a guide."""

from __future__ import annotations

import pytest

import culmen

trace = pytest.importorskip("opto.trace")

REPLY = "prompt\n```\nDouble it.\n```\noffset\n```\n0\n```"


@trace.model
class Agent:
    def __init__(self):
        self.prompt = trace.node("Guess.", trainable=True)
        self.offset = trace.node(0, trainable=True)
        self.fixed = trace.node("fixed")

    def forward(self, x):
        return x * 2 if "double" in self.prompt.data.lower() else x + self.offset.data


class Guide:
    def get_feedback(self, query, response, reference=None):
        return -abs(response - reference), f"wanted {reference}, got {response}"


def test_parameters_are_parts_and_the_guide_is_the_evaluator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Agent()
    study = culmen.trace.optimize(
        agent,
        Guide(),
        inputs=[1, 2, 3],
        infos=[2, 4, 6],
        budget=40,
        deterministic=True,
        model=lambda _: REPLY,
        progress=False,
    )
    assert set(study.best.parts) == {"prompt", "offset"} and study.best.score == 0
    assert any("wanted 2, got 1" in each.feedback for each in study.evaluations())
    assert agent.prompt.data == "Guess."
    culmen.trace.load(agent, study.best.parts)
    assert agent(3) == 6 and agent.offset.data == 0
    with pytest.raises(culmen.Invalid):
        culmen.trace.load(agent, {"prompt": "x", "offset": "many"})


def test_a_module_without_parameters_is_refused():
    @trace.model
    class Nothing:
        pass

    with pytest.raises(culmen.UserError, match="no trainable parameters"):
        culmen.trace.optimize(Nothing(), Guide())


def test_parameters_keep_their_types():
    agent = trace.modules.Module()
    values = {"flag": True, "rows": [1, "a"], "table": {"a": 1.5}, "none": None, "many": (1, 2)}
    for name, value in values.items():
        setattr(agent, name, trace.node(value, trainable=True))
    agent.again = agent.flag
    nodes = culmen.trace.trainable_nodes(agent)
    assert nodes.keys() == {"again", *values} - {"flag"}  # one node, by the first of its names
    texts = {name: repr(node.data) for name, node in nodes.items()} | {"again": "False"}
    culmen.trace.load(agent, texts)
    assert {name: getattr(agent, name).data for name in values} == values | {"flag": False}
    with pytest.raises(culmen.Invalid, match="a list is expected, not a tuple"):
        culmen.trace.load(agent, texts | {"rows": "(1, 2)"})


def test_every_input_has_an_info(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Told:
        def get_feedback(self, query, response, reference=None):
            return float(response), f"{query} {reference}"

    given = {"budget": 4, "deterministic": True, "model": lambda _: REPLY, "progress": False}
    study = culmen.trace.optimize(Agent(), Told(), inputs=[1, 2, 3], **given)
    assert len(study.meta.task.cases) == 3
    with pytest.raises(culmen.UserError, match="3 inputs and 2 infos"):
        culmen.trace.optimize(Agent(), Told(), inputs=[1, 2, 3], infos=[1, 2], **given)
    agent = Agent()
    agent.thing = trace.node(object(), trainable=True)
    with pytest.raises(culmen.UserError, match="thing is of type object"):
        culmen.trace.optimize(agent, Told(), **given)
