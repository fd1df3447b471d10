"""Tools that edit texts: pure functions `(candidates, options, rng) -> Edits`, the same result for the same seed.

The first candidate is edited, the others lend material. They know no task: each is an operation on any text or any
Python program, and whether it helps is decided by evaluation alone. Common options (all optional): count (texts
wanted, default 1), step (relative size of changes of numbers), frozen (part names), marked (EVOLVE-BLOCK markers
bound what may change, default true), seconds and most (wall time an inserted loop starts with and may grow to),
chars (longest whole candidate).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.event import Edits
from culmen.proposers.edits import expressions, numbers, statements, wrapping
from culmen.proposers.edits.source import Edit, Source, valid
from culmen.proposers.edits.tuning import population

Operator = Callable[[Source, Edit], str | None]
Tool = Callable[[tuple[Candidate, ...], dict[str, Any], Random], Edits]
_TRIES = 12  # draws per wanted text; many draws meet no place where they apply

ANY_TEXT: dict[str, Operator] = {
    "numbers": numbers.numbers,
    "lines": statements.lines,
    "crossover": statements.crossover,
}
PYTHON: dict[str, Operator] = {
    "statements": statements.statements,
    "operators": expressions.operators,
    "bounds": expressions.bounds,
    "cheaper": expressions.cheaper,
    "refine": wrapping.refine,
    "restart": wrapping.restart,
    "effort": wrapping.effort,
}


def apply(operator: Operator, candidates: tuple[Candidate, ...], options: dict[str, Any], rng: Random) -> Edits:
    """Up to `count` different edits of the first candidate, none of them equal to it; fault `inapplicable` if none."""
    parent, mates = candidates[0], candidates[1:]
    sources = _sources(parent, options)
    found: dict[str, dict[str, str]] = {}
    wanted = int(options.get("count", 1))
    for _ in range(_TRIES * wanted if sources else 0):
        source = rng.choice(sources)
        others = tuple(mate.parts[source.name] for mate in mates if source.name in mate.parts)
        edit = Edit(rng, options.get("step", 0.3), others, options.get("seconds", 0.5), options.get("most", 10.0))
        text = operator(source, edit)
        if text is None or text == source.text or text in found or not valid(source, text):
            continue
        parts = {**parent.parts, source.name: text}
        if sum(map(len, parts.values())) <= options.get("chars", 200_000):
            found[text] = parts
        if len(found) == wanted:
            break
    return Edits(tuple(found.values()), fault="" if found else "inapplicable")


def cma(candidates: tuple[Candidate, ...], options: dict[str, Any], rng: Random) -> Edits:
    """One generation of CMA-ES over the numbers of one part (see `tuning.tune` for its options)."""
    names = [source.name for source in _sources(candidates[0], options) if len(numbers.literals(source)) > 0]
    if not names:
        return Edits(fault="inapplicable")
    name = Random(options["seed"]).choice(names)
    return population(candidates[0], name, options.get("marked", True), options)


def _sources(parent: Candidate, options: dict[str, Any]) -> list[Source]:
    frozen = options.get("frozen", ())
    names = [name for name in parent.parts if name not in frozen and parent.parts[name]]
    return [Source(name, parent.parts[name], options.get("marked", True)) for name in names]


def _tool(operator: Operator) -> Tool:
    return lambda candidates, options, rng: apply(operator, candidates, options, rng)


TOOLS: dict[str, Tool] = {name: _tool(operator) for name, operator in (ANY_TEXT | PYTHON).items()} | {"cma": cma}
