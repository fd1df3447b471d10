"""Trainable parameters of a Trace (`trace-opt`) module as parts of a candidate.

A guide's feedback is the evaluator's feedback.

    study = culmen.trace.optimize(agent, guide, inputs=xs, infos=answers,
                                  model="gpt-5-mini", budget=100)
    culmen.trace.load(agent, study.best.parts)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate import Invalid
from culmen.extensions.compat.example_cases import Asked, cases_of, shortened_text

if TYPE_CHECKING:
    from culmen.run.study import Study


def optimize(
    module: Any,
    guide: Any,
    *,
    inputs: Iterable[object] = (None,),
    infos: Iterable[object] = (None,),
    **keywords: object,
) -> Study:
    """Search for better values of the module's trainable parameters.

    The module itself is not changed. `guide(input, output, info)` or its method `get_feedback`
    returns `(score, feedback)`; it is called for each input with its info. The other keywords are
    those of `culmen.optimize`. Raises `UserError` if no parameter is trainable.
    """
    from culmen.run import study

    parts = {name: str(node.data) for name, node in trainable_nodes(module).items()}
    if not parts:
        fix = "mark parameters with node(..., trainable=True) or @bundle(trainable=True)"
        raise UserError("the module has no trainable parameters", where="module", fix=fix)
    cases, examples = cases_of(zip(inputs, infos), None)
    asked = _Module(getattr(guide, "get_feedback", guide), examples, module)
    arguments: JsonObject = {"name": type(module).__name__, **keywords}
    return study.optimize(parts, asked, cases=cases, **arguments)


def trainable_nodes(module: Any) -> JsonObject:
    """Trainable nodes by name; those of inner modules under `outer.inner`."""
    nodes: JsonObject = {}
    for name, node in module.parameters_dict().items():
        if hasattr(node, "parameters_dict"):
            nodes |= {
                f"{name}.{inner}": inner_node for inner, inner_node in trainable_nodes(node).items()
            }
        elif node.trainable:
            nodes[name] = node
    return nodes


def _value_like(old: object, text: str) -> int | float | str:
    """The text as a number of the old value's kind; the text itself if that was none."""
    if type(old) is int:
        return int(text)
    return float(text) if type(old) is float else text


def load(module: Any, parts: Mapping[str, str]) -> None:
    """Set the module's parameters to these values; numbers stay numbers.

    Raises `Invalid` for a text that is not a number.
    """
    for name, node in trainable_nodes(module).items():
        try:
            node._data = _value_like(node.data, parts[name])
        except ValueError as error:
            raise Invalid(f"{name}: {error}") from None


class _Module(Asked[Mapping[str, str]]):
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
        output = getattr(output, "data", output)
        score, feedback = self.guide(query, output, info)
        return score, {"feedback": shortened_text(str(feedback))}
