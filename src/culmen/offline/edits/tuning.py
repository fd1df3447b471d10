"""Black-box tuning of a text's numbers by CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv 1604.00772).

Stateless: the optimiser is rebuilt from the seed and the rewards so far, so the journal suffices to continue.
"""

from __future__ import annotations

import ast
import math
from random import Random
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.event import Edits
from culmen.offline.edits.changes import Literal, literals, shifted, write
from culmen.offline.edits.source import EditableText, EditContext, valid

_ROW = 4  # floats in a list that have a scale in common
_MOST = 40  # numbers tuned at once; the covariance of more would not be learnt in the evaluations there are


def tune(source: EditableText, options: dict[str, Any]) -> list[str]:
    """The next generation of texts.

    options: seed (int), size (texts per generation, >= 4), step (initial deviation, relative), generations (list of
    lists of rewards, higher is better, None for a failure, one list per earlier generation).
    """
    import numpy as np

    chosen = _chosen(literals(source), int(options["seed"]))
    if not chosen:
        return []
    size, draw = int(options["size"]), np.random.default_rng(int(options["seed"]))
    if len(chosen) == 1:  # CMA-ES needs two dimensions
        edit = EditContext(Random(f"{options['seed']}/{len(options['generations'])}"), float(options["step"]))
        return [_with(source, chosen, [shifted(chosen[0].value, chosen, edit)]) for _ in range(size)]
    scales = _scales(source, chosen)
    strategy = _strategy(len(chosen), float(options["step"]), size, draw)
    for rewards in options["generations"]:
        points = strategy.ask()
        finite = [-reward for reward in rewards if reward is not None]
        worst = max(finite, default=0.0) + 1.0
        strategy.tell(points, [worst if reward is None else -reward for reward in rewards])
    return [_with(source, chosen, _values(chosen, scales, point)) for point in strategy.ask()]


def _strategy(width: int, step: float, size: int, draw: Any) -> Any:
    import cma

    options = {"popsize": size, "verbose": -9, "seed": math.nan, "randn": lambda n, m: draw.standard_normal((n, m))}
    return cma.CMAEvolutionStrategy([0.0] * width, step, options)


def _chosen(found: list[Literal], seed: int) -> list[Literal]:
    if len(found) <= _MOST:
        return found
    return sorted(Random(seed).sample(found, _MOST), key=lambda literal: literal.span)


def _scales(source: EditableText, chosen: list[Literal]) -> list[float]:
    """The size of one step of each number: its own (1 for a zero), or that of its list if that is larger:
    in a list of coordinates a small one is no less free to move than a large one."""
    tree = source.tree is not None
    lists = [source.span(node) for node in source.nodes() if isinstance(node, ast.List | ast.Tuple)] if tree else []
    scales = [abs(one.value) or 1.0 for one in chosen]
    for low, high in lists:
        inside = [n for n, one in enumerate(chosen) if low <= one.span[0] and one.span[1] <= high]
        if len(inside) < _ROW or not all(isinstance(chosen[n].value, float) for n in inside):
            continue
        usual = math.sqrt(sum(chosen[n].value ** 2 for n in inside) / len(inside))
        for n in inside:
            scales[n] = max(scales[n] if chosen[n].value else 0.0, usual) or 1.0
    return scales


def _values(chosen: list[Literal], scales: list[float], point: Any) -> list[int | float]:
    """Coordinates count in steps; ints are rounded."""
    moved = [one.value + float(z) * scale for one, scale, z in zip(chosen, scales, point)]
    return [round(new) if isinstance(one.value, int) else float(f"{new:.8g}") for one, new in zip(chosen, moved)]


def _with(source: EditableText, chosen: list[Literal], values: list[int | float]) -> str:
    text = source.replace(*((one.span, write(source, value)) for one, value in zip(chosen, values)))
    return text if text is not None and valid(source, text) else source.text


def population(candidate: Candidate, name: str, marked: bool, options: dict[str, Any]) -> Edits:
    """One part of the candidate, tuned: whole candidates, in the order the rewards are to come back."""
    texts = tune(EditableText(name, candidate.parts[name], marked), options)
    return Edits(tuple({**candidate.parts, name: text} for text in texts), fault="" if texts else "inapplicable")
