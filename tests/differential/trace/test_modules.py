"""Modules: which parameters are trainable, and values that are set and stored."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy
from hypothesis import given
from hypothesis import strategies as st
from opto.trace import bundle, node
from opto.trace.containers import Map, Seq
from opto.trace.modules import Module

from culmen.core.errors import UserError
from culmen.evaluate import Invalid
from culmen.extensions.compat import trace as ours
from tests.differential.comparing import answer_or_error, inputs, same

NAMES = ("alpha", "beta", "gamma", "delta")
VALUES = st.one_of(
    st.text(max_size=9),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.lists(st.integers(-9, 9), max_size=3),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=3), max_size=2),
    st.tuples(st.integers(), st.text(max_size=3)),
)


@st.composite
def modules(draw: st.DrawFn, depth: int = 0) -> Module:
    """Modules with nodes of every kind of value, inner modules, and nodes under two names."""
    module = Module()
    own: list[Any] = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        kind = draw(st.sampled_from(("node", "fixed", "plain", "inner", "again")))
        if kind == "inner" and depth < 2:
            setattr(module, name, draw(modules(depth + 1)))
        elif kind == "again" and own:
            setattr(module, name, draw(st.sampled_from(own)))
        elif kind == "plain":
            setattr(module, name, draw(VALUES))
        else:
            own.append(node(draw(VALUES), trainable=kind != "fixed"))
            setattr(module, name, own[-1])
    return module


def trainable(module: Module) -> dict[int, Any]:
    return {id(each): each for each in module.parameters() if each.trainable}


@inputs(1200)
@given(modules())
def test_the_trainable_parameters(module: Module) -> None:
    mine = ours.trainable_nodes(module)
    same("modules: trainable parameters", set(trainable(module)), set(map(id, mine.values())))
    assert len({id(each) for each in mine.values()}) == len(mine)


def values_of(module: Module) -> list[Any]:
    return [(type(each.data).__name__, repr(each.data)) for each in module.parameters()]


@inputs(1200)
@given(modules())
def test_a_value_written_and_set_again_is_the_same(module: Module) -> None:
    before = values_of(module)
    nodes = ours.trainable_nodes(module)
    texts = answer_or_error(
        lambda: {name: ours._text_of(name, each.data) for name, each in nodes.items()}
    )
    assert isinstance(texts, dict), texts
    for each in nodes.values():
        each._data = type(each.data)() if each.data is not None else None
    ours.load(module, texts)
    same("modules: values written and set", before, values_of(module), texts)


@inputs(400)
@given(st.data(), VALUES)
def test_values_of_other_types(data: st.DataObject, value: Any) -> None:
    """A text of the value's own type becomes the value of the package's optimizer."""
    other = data.draw(VALUES.filter(lambda each: type(each) is type(value)))
    if value is None:
        return
    module = Module()
    module.alpha = node(value, trainable=True)
    ours.load(module, {"alpha": ours._text_of("alpha", other)})
    same("modules: suggestions", type(value)(other), module.alpha.data, (value, other))
    if not isinstance(value, str):
        assert answer_or_error(lambda: ours.load(module, {"alpha": "no value of it ("})) == (
            f"raised {Invalid.__name__}"
        )


@inputs(100)
@given(st.integers(), st.text(max_size=9))
def test_files_of_the_package(number: int, text: str) -> None:
    """A module that culmen has set is stored and loaded by the package."""

    def made() -> Module:
        module = Module()
        module.alpha, module.beta = node(0, trainable=True), node("", trainable=True)
        return module

    module, other = made(), made()
    ours.load(module, {"alpha": str(number), "beta": text})
    with tempfile.TemporaryDirectory() as folder:
        module.save(str(Path(folder, "module.pkl")))
        other.load(str(Path(folder, "module.pkl")))
    same("modules: files", values_of(module), values_of(other), (number, text))


def test_code_and_objects() -> None:
    @bundle(trainable=True)
    def act(x: Any) -> Any:
        return x + 1

    module = Module()
    module.act = act
    (code,) = ours.trainable_nodes(module).values()
    assert "return x + 1" in code.data
    module.alpha = node(object(), trainable=True)
    assert answer_or_error(lambda: ours.optimize(module, None)) == f"raised {UserError.__name__}"


def test_an_output_that_is_no_node_reaches_the_guide_as_it_is() -> None:
    array = numpy.arange(3)
    assert ours._plain_output(array) is array and ours._plain_output(node(5)) == 5


def kept() -> Module:
    """A module whose nodes lie in containers, one with a node as its key."""
    module = Module()
    inner = [Seq([node(number, trainable=True)]) for number in (1, 2)]
    keyed = {node("key", trainable=True): node("value", trainable=True), "x": node(3.5)}
    module.many, module.keyed = Seq([node("a", trainable=True), *inner]), Map(keyed)
    return module


def test_nodes_in_containers_have_the_same_names_in_every_run() -> None:
    module, other = kept(), kept()
    mine = ours.trainable_nodes(module)
    assert set(map(id, mine.values())) == set(trainable(module)) and len(mine) == 5
    ours.load(other, {name: ours._text_of(name, each.data) for name, each in mine.items()})
    assert not [name for name in mine if "0x" in name or ":" in name]
