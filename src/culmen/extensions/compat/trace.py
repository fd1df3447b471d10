"""Trainable parameters of a Trace (`trace-opt`) module as parts of a candidate.

A guide's feedback is the evaluator's feedback.

    study = culmen.trace.optimize(agent, guide, inputs=xs, infos=answers,
                                  model="gpt-5-mini", budget=100)
    culmen.trace.load(agent, study.best.parts)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate import Invalid
from culmen.extensions.compat.example_cases import (
    Asked,
    cases_of,
    plain_number,
    shortened_text,
)

if TYPE_CHECKING:
    from culmen.run.study import Study


def optimize(
    module: Any,
    guide: Any,
    *,
    inputs: Iterable[object] = (None,),
    infos: Iterable[object] | None = None,
    **keywords: object,
) -> Study:
    """Search for better values of the module's trainable parameters.

    The module itself is not changed; its parameters' constraints join the goal. `guide(input,
    output, info)` or its method `get_feedback` returns `(score, feedback)`; it is called for each
    input with its info (None without `infos`). The other keywords are those of `culmen.optimize`.
    Raises `UserError` if no parameter is trainable, for one that is neither text nor number nor
    plain data, and for `infos` of another number than `inputs`.
    """
    from culmen.run import study

    given = list(inputs)
    told = [None] * len(given) if infos is None else list(infos)
    if len(given) != len(told):
        what = f"{len(given)} inputs and {len(told)} infos"
        raise UserError(what, where="infos", fix="give one info for each input")
    nodes = trainable_nodes(module)
    parts = {name: _text_of(name, node.data) for name, node in nodes.items()}
    if not parts:
        fix = "mark parameters with node(..., trainable=True) or @bundle(trainable=True)"
        raise UserError("the module has no trainable parameters", where="module", fix=fix)
    cases, examples = cases_of(zip(given, told, strict=True), None)
    asked = _Module(getattr(guide, "get_feedback", guide), examples, module)
    wanted = [f"{name}: {node._constraint}" for name, node in nodes.items() if node._constraint]
    goal = "\n\n".join(filter(None, [str(keywords.pop("goal", "")), *wanted]))
    arguments: JsonObject = {"name": type(module).__name__, "goal": goal, **keywords}
    return study.optimize(parts, asked, cases=cases, **arguments)


def trainable_nodes(module: Any) -> JsonObject:
    """Trainable nodes by name; those of inner modules under `outer.inner`.

    A node that several names share has the first of them; one without a name `item` and its place.
    """
    return {name: node for name, node in _first_names(module, "", {}) if node.trainable}


def _first_names(module: Any, outer: str, seen: dict[int, object]) -> Iterator[tuple[str, Any]]:
    """Names and nodes, each node and each inner module once; `seen` has them by identity."""
    for place, (key, node) in enumerate(module.parameters_dict().items()):
        # members of a Seq have names with a counter or an address, which another run lacks
        name = f"item{place}" if set(":<") & set(str(key)) else key
        if id(node) in seen:
            continue
        seen[id(node)] = node
        if hasattr(node, "parameters_dict"):
            yield from _first_names(node, f"{outer}{name}.", seen)
        else:
            yield f"{outer}{name}", node


_PLAIN = (bool, int, float, list, tuple, dict, set, NoneType)  # data that Python's literals write


def _text_of(name: str, data: object) -> str:
    if type(data) is str:
        return data
    try:
        if type(data) in _PLAIN and _value_like(data, repr(data)) == data:
            return repr(data)
    except ValueError:
        pass
    raise UserError(
        f"the parameter {name} is of type {type(data).__name__}, which has no text",
        where="module",
        fix="give it a text, a number or plain data, or make it not trainable",
    )


def _value_like(old: object, text: str) -> object:
    """The text as a value of the old one's type; ValueError if it is none of these."""
    if type(old) is str:
        return text
    if type(old) in (int, float):
        return int(text) if type(old) is int else float(text)
    try:
        value = ast.literal_eval(text.strip())
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"no {type(old).__name__}: {error}") from None
    if old is not None and type(value) is not type(old):
        raise ValueError(f"a {type(old).__name__} is expected, not a {type(value).__name__}")
    return value


def load(module: Any, parts: Mapping[str, str]) -> None:
    """Set the module's parameters to these values, each of the type that it had.

    Raises `Invalid` for a text that is no value of this type.
    """
    for name, node in trainable_nodes(module).items():
        try:
            node._data = _value_like(node.data, parts[name])
        except ValueError as error:
            raise Invalid(f"{name}: {error}") from None


class _Module(Asked[Mapping[str, str]]):
    differences = (
        "Trace: a text that is no value of the parameter's type makes the candidate invalid; there "
        "the old value is kept",
        "Trace: suggested code is not formatted",
    )

    def __init__(
        self,
        guide: Callable[..., tuple[object, object]],
        examples: Mapping[str, object],
        module: Any,
    ) -> None:
        super().__init__(guide, examples)
        self.guide, self.module = guide, module

    def judge_example(
        self, candidate: Mapping[str, str], has_example: bool, example: tuple[object, object]
    ) -> tuple[object, JsonObject]:
        query, info = example
        load(self.module, candidate)
        output = self.module() if query is None else self.module(query)
        score, feedback = self.guide(query, _plain_output(output), info)
        return plain_number(score), {"feedback": shortened_text(str(feedback))}


def _plain_output(output: Any) -> object:
    """The data of a node; any other output unchanged."""
    from opto.trace.nodes import Node  # pyright: ignore

    return output.data if isinstance(output, Node) else output
