"""Tools that edit texts: pure functions `(candidates, options, rng) -> Edits`.

The same seed gives the same result. They run in worker processes. The first candidate is edited,
the others provide material. No tool knows the task: each is an operation on any text or any Python
program, and only evaluation shows its gain. Common options (all optional): step (relative size of
changes of numbers), frozen (part names), marked (True if EVOLVE-BLOCK markers bound the editable
text, the default), calls and most (of its criterion, that an inserted loop starts with and may grow
to), pace (seconds of processor time per call that it may take), sense (1 or -1: the task wants its
score high or low), chars (longest whole candidate), skills (most skills of a set, 0 if none),
headed (True if the YAML at the head of a text stays).
"""

from __future__ import annotations

import ast
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from culmen.core.candidate import Candidate, frontmatter, skill_names
from culmen.core.event import EditRequest, Edits
from culmen.core.json import JsonObject
from culmen.core.task import SKILL_FILE
from culmen.models.offline import changes, loops
from culmen.models.offline.changes import Literal, editable_literals, numeral_text, shifted_number
from culmen.models.offline.source import EditableText, EditContext, Span, is_well_formed

if TYPE_CHECKING:
    import numpy as np


# Changes of names: a variable or an attribute exchanged for another, or combined with one.

_COMBINED = 0.4  # probability that the other name joins the value instead of replacing it
_SIGNS = ("+", "-", "*", "/")
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def exchange_name(source: EditableText, edit: EditContext) -> str | None:
    """One variable or attribute that is read, exchanged for another or combined with it.

    A variable gives way to another of the functions around it, an attribute to another that the
    program reads from the same variable. Combined means their sum, difference, product or quotient.
    """
    places = list(_exchangeable_places(source))
    if not places:
        return None
    span, others = edit.rng.choice(places)
    other, own = edit.rng.choice(others), source.text[slice(*span)]
    if edit.rng.random() < _COMBINED:
        return source.replace_spans((span, f"({own} {edit.rng.choice(_SIGNS)} {other})"))
    return source.replace_spans((span, other))


def _exchangeable_places(source: EditableText) -> Iterator[tuple[Span, list[str]]]:
    """The places where a value is read from a name, each with the texts that may stand there."""
    editable = {id(node) for node in source.editable_nodes()}
    attributes = _attributes_read(source.tree) if source.tree else {}
    for node, visible in _values_read(source.tree) if source.tree else ():
        match node:
            case ast.Name(id=name):
                others = sorted(visible - {name}) if name in visible else []
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in visible:
                others = [f"{owner}.{other}" for other in sorted(attributes[owner] - {name})]
            case _:
                continue
        if others and id(node) in editable:
            yield source.node_span(node), others


def _values_read(tree: ast.Module) -> Iterator[tuple[ast.expr, frozenset[str]]]:
    """Names and attributes that are read as values, each with the variables of its functions.

    What is called, and the owner of an attribute, are no values.
    """
    queue: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while queue:
        node, visible = queue.pop()
        if isinstance(node, _FUNCTIONS):
            visible |= _variables(node)
        skipped: ast.AST | None = None
        match node:
            case ast.Call(func=ast.Name() | ast.Attribute() as called):
                skipped = called
            case ast.Attribute(value=ast.Name() as owner, ctx=ast.Load()):
                skipped = owner
                yield node, visible
            case ast.Name(ctx=ast.Load()):
                yield node, visible
            case _:
                pass
        queue += [
            (child, visible)
            for child in ast.iter_child_nodes(node)
            if child is not skipped and not isinstance(child, ast.JoinedStr)
        ]


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """The parameters of a function and the names that it assigns."""
    nodes = list(ast.walk(function))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    assigned = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(parameters | assigned)


def _attributes_read(tree: ast.Module) -> dict[str, set[str]]:
    """Attributes that the program reads as values, by the name of their owner."""
    found: dict[str, set[str]] = {}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if id(node) not in called:
                found.setdefault(owner, set()).add(name)
            case _:
                pass
    return found


Operator = Callable[[EditableText, EditContext], str | None]
Tool = Callable[[tuple[Candidate, ...], JsonObject, Random], Edits]
_TRIES = 8  # draws per edit; some find no place to apply
_LONGEST = 4  # operators in a row
_ALLOWED = ("calls", "most", "pace", "sense")

ANY_TEXT: dict[str, Operator] = {
    "numbers": changes.change_numbers,
    "lines": changes.change_line,
    "crossover": changes.crossover_lines,
}
PYTHON: dict[str, Operator] = {
    "statements": changes.change_statement,
    "operators": changes.exchange_operator,
    "names": exchange_name,
    "bounds": changes.bound_value,
    "refine": loops.insert_loop,
    "effort": loops.raise_loop_calls,
}
OPERATORS = ANY_TEXT | PYTHON
SKILLS = "skills"  # the operator that changes which skills a set has


def apply_operator(operator: Operator, source: EditableText, edit: EditContext) -> str | None:
    """One well-formed edit that changes the text, None if no draw gave one."""
    for _ in range(_TRIES):
        text = operator(source, edit)
        if text is not None and text != source.text and is_well_formed(source, text):
            return text
    return None


def edited_child(
    operators: Mapping[str, float],
    candidates: tuple[Candidate, ...],
    options: JsonObject,
    rng: Random,
) -> tuple[str, Candidate] | None:
    """One child and the operator that made it, drawn by weight.

    Another operator is drawn if one does not apply.
    """
    parent, mates = candidates[0], candidates[1:]
    left, sources = dict(operators), _editable_sources(parent, options)
    while left and sources:
        name = rng.choices(list(left), list(left.values()))[0]
        del left[name]
        if name == SKILLS:
            parts = change_skills(parent, mates, options.get("skills", 0), rng)
            if parts is not None and _has_room(parts, options):
                return name, Candidate.of(parts)
            continue
        for source in rng.sample(sources, len(sources)):
            others = tuple(mate.parts[source.name] for mate in mates if source.name in mate.parts)
            edit = EditContext(
                rng,
                options.get("step", 0.3),
                others,
                **{k: options[k] for k in _ALLOWED if k in options},
            )
            text = apply_operator(OPERATORS[name], source, edit)
            parts = {**parent.parts, source.name: text or ""}
            if text is not None and _has_room(parts, options):
                return name, Candidate.of(parts)
    return None


def _has_room(parts: Mapping[str, str], options: JsonObject) -> bool:
    return sum(map(len, parts.values())) <= options.get("chars", 200_000)


def vary_candidate(candidates: tuple[Candidate, ...], options: JsonObject, rng: Random) -> Edits:
    """Up to `count` different children of the first candidate.

    Each is made by one operator, and by a further one with probability `again`. `weights` maps
    operators to their relative probabilities; with `rung` the loops of each child get that many
    calls together. `notes` names the operators of each child, joined by +. Fault `inapplicable` if
    nothing can be edited.
    """
    weights = {
        name: float(weight)
        for name, weight in options["weights"].items()
        if name in OPERATORS or (name == SKILLS and options.get("skills"))
    }
    found: dict[str, tuple[str, Candidate]] = {}
    for _ in range(2 * int(options.get("count", 1))):
        child, names = candidates[0], list[str]()
        while len(names) < _LONGEST and (not names or rng.random() < options.get("again", 0.0)):
            fresh = {name: weight for name, weight in weights.items() if name not in names}
            edit = edited_child(
                fresh, (child, *candidates[1:]), options, rng
            )  # of several, each on top of the last
            if edit is None:
                break
            names.append(edit[0])
            child = edit[1]
        child = (
            _candidate_with_calls(child, options["rung"], options) if "rung" in options else child
        )
        if names and child.id != candidates[0].id:
            found.setdefault(child.id, ("+".join(names), child))
        if len(found) == int(options.get("count", 1)):
            break
    children = tuple(found.values())
    fault = "" if children else "inapplicable"
    return Edits(
        tuple(child.parts for _, child in children),
        tuple(names for names, _ in children),
        fault=fault,
    )


def cma_generation(candidates: tuple[Candidate, ...], options: JsonObject, rng: Random) -> Edits:
    """One generation of CMA-ES over the numbers of one part.

    See `tuning.tune` for its options.
    """
    names = [
        source.name
        for source in _editable_sources(candidates[0], options)
        if len(changes.editable_literals(source)) > 0
    ]
    if not names:
        return Edits(fault="inapplicable")
    name = Random(options["seed"]).choice(names)
    limits = options.get("marked", True), options.get("headed", False)
    return tuned_candidates(
        EditableText(name, candidates[0].parts[name], *limits), candidates[0], options
    )


def candidates_with_calls(
    candidates: tuple[Candidate, ...], options: JsonObject, rng: Random
) -> Edits:
    """Each candidate with `calls` calls for the inserted loops of each part.

    A candidate without loops stays the same.
    """
    return Edits(
        tuple(
            _candidate_with_calls(candidate, options["calls"], options).parts
            for candidate in candidates
        )
    )


def _candidate_with_calls(candidate: Candidate, calls: int, options: JsonObject) -> Candidate:
    changed = {
        source.name: loops.text_with_calls(source, calls)
        for source in _editable_sources(candidate, options)
        if source.tree
    }
    return Candidate.of({**candidate.parts, **changed})


def _editable_sources(parent: Candidate, options: JsonObject) -> list[EditableText]:
    frozen = options.get("frozen", ())
    names = [name for name in parent.parts if name not in frozen and parent.parts[name]]
    limits = options.get("marked", True), options.get("headed", False)
    return [EditableText(name, parent.parts[name], *limits) for name in names]


# Black-box tuning of a text's numbers by CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial",
# arXiv 1604.00772).
#
# Stateless: the optimiser is rebuilt from the seed and the rewards so far, so the journal suffices
# to continue.

_ROW = 4  # floats in a list that have a scale in common
# numbers tuned at once; the usual evaluations do not suffice to learn the covariance of more
_MOST = 40


def tuned_texts(source: EditableText, options: JsonObject) -> list[str]:
    """The next generation of texts.

    options: seed (int), size (texts per generation, >= 4), step (initial deviation, relative),
    generations (list of lists of rewards, higher is better, None for a failure, one list per
    earlier generation).
    """
    import numpy as np

    chosen = _tuned_literals(editable_literals(source), int(options["seed"]))
    if not chosen:
        return []
    size, draw = int(options["size"]), np.random.default_rng(int(options["seed"]))
    if len(chosen) == 1:  # CMA-ES needs two dimensions
        edit = EditContext(
            Random(f"{options['seed']}/{len(options['generations'])}"), float(options["step"])
        )
        return [
            _text_with_values(source, chosen, [shifted_number(chosen[0].value, chosen, edit)])
            for _ in range(size)
        ]
    scales = _step_sizes(source, chosen)
    strategy = _cma_strategy(len(chosen), float(options["step"]), size, draw)
    for rewards in options["generations"]:
        points = strategy.ask()
        finite = [-reward for reward in rewards if reward is not None]
        worst = max(finite, default=0.0) + 1.0
        strategy.tell(points, [worst if reward is None else -reward for reward in rewards])
    return [
        _text_with_values(source, chosen, _values_at_point(chosen, scales, point))
        for point in strategy.ask()
    ]


class NumberOptimiser(Protocol):
    """An optimiser of numbers by their rewards, to be minimised."""

    def ask(self) -> Sequence[Sequence[float]]: ...

    def tell(self, points: Sequence[Sequence[float]], values: Sequence[float], /) -> None: ...


def _cma_strategy(width: int, step: float, size: int, draw: np.random.Generator) -> NumberOptimiser:
    import cma

    options = {
        "popsize": size,
        "verbose": -9,
        "seed": math.nan,
        "randn": lambda n, m: draw.standard_normal((n, m)),
    }
    return cma.CMAEvolutionStrategy([0.0] * width, step, options)


def _tuned_literals(literals: list[Literal], seed: int) -> list[Literal]:
    if len(literals) <= _MOST:
        return literals
    return sorted(Random(seed).sample(literals, _MOST), key=lambda literal: literal.span)


def _step_sizes(source: EditableText, chosen: list[Literal]) -> list[float]:
    """The size of one step of each number: its own size, or that of its list if larger.

    The size of a zero is 1. In a list of coordinates small numbers are no less free to move than
    large ones.
    """
    tree = source.tree is not None
    lists = (
        [
            source.node_span(node)
            for node in source.editable_nodes()
            if isinstance(node, ast.List | ast.Tuple)
        ]
        if tree
        else []
    )
    scales = [abs(one.value) or 1.0 for one in chosen]
    for low, high in lists:
        inside = [n for n, one in enumerate(chosen) if low <= one.span[0] and one.span[1] <= high]
        if len(inside) < _ROW or not all(isinstance(chosen[n].value, float) for n in inside):
            continue
        usual = math.sqrt(sum(chosen[n].value ** 2 for n in inside) / len(inside))
        for n in inside:
            scales[n] = max(scales[n] if chosen[n].value else 0.0, usual) or 1.0
    return scales


def _values_at_point(
    chosen: list[Literal], scales: list[float], point: Sequence[float]
) -> list[int | float]:
    """Numbers at coordinates, which count in steps; ints are rounded."""
    moved = [one.value + float(z) * scale for one, scale, z in zip(chosen, scales, point)]
    return [
        round(new) if isinstance(one.value, int) else float(f"{new:.8g}")
        for one, new in zip(chosen, moved)
    ]


def _text_with_values(
    source: EditableText, chosen: list[Literal], values: list[int | float]
) -> str:
    text = source.replace_spans(
        *((one.span, numeral_text(source, value)) for one, value in zip(chosen, values))
    )
    return text if text is not None and is_well_formed(source, text) else source.text


def tuned_candidates(source: EditableText, candidate: Candidate, options: JsonObject) -> Edits:
    """Whole candidates with one part tuned, in the order in which rewards are expected."""
    name, texts = source.name, tuned_texts(source, options)
    return Edits(
        tuple({**candidate.parts, name: text} for text in texts),
        fault="" if texts else "inapplicable",
    )


def kmeans_clusters(candidates: tuple[Candidate, ...], options: JsonObject, rng: Random) -> Edits:
    """Clusters of `vectors` (rows of one length) for k = `k`.

    Data: `labels`, one in 0..k-1 per row. There are fewer clusters if fewer rows differ. Fault
    `no_sklearn` if the package is missing.
    """
    try:
        from sklearn.cluster import KMeans  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Edits(fault="no_sklearn")
    import numpy as np

    points = np.asarray(options["vectors"], dtype=np.float64)
    k = min(int(options["k"]), len(np.unique(points, axis=0)))
    model = KMeans(n_clusters=k, n_init=10, random_state=rng.getrandbits(31))  # pyright: ignore[reportArgumentType]
    return Edits(data={"labels": [int(label) for label in model.fit_predict(points)]})


TOOLS: dict[str, Tool] = {
    "vary": vary_candidate,
    "cma": cma_generation,
    "pace": candidates_with_calls,
}
_ALL = TOOLS | {"kmeans": kmeans_clusters}


def run_tool(request: EditRequest) -> Edits:
    """Run one tool; an unknown name is a fault of the result."""
    tool = _ALL.get(request.tool)
    if tool is None:
        return Edits(fault="unknown_tool")
    return tool(request.candidates, request.options, Random(request.seed))


def serve_requests(requests: BinaryIO, results: BinaryIO) -> None:
    """Answer requests in their order."""
    decoder, encoder = msgspec.msgpack.Decoder(EditRequest), msgspec.msgpack.Encoder()
    while len(head := requests.read(4)) == 4:
        body = encoder.encode(run_tool(decoder.decode(requests.read(int.from_bytes(head, "big")))))
        results.write(len(body).to_bytes(4, "big") + body)
        results.flush()


def main() -> None:
    """Serve on stdin and stdout, at low priority; output of libraries goes to stderr."""
    os.nice(5)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve_requests(sys.stdin.buffer, results)


# Changes of a set of skills: one dropped, one taken from another candidate, or two merged.

Parts = dict[str, str]


def change_skills(
    parent: Candidate, mates: Sequence[Candidate], most: int, rng: Random
) -> Parts | None:
    """The parts after one change, of at most `most` skills; None if there is none to make."""
    names = skill_names(parent.parts)
    whole = [name for name in names if f"{name}/{SKILL_FILE}" in parent.parts]
    kinds = [
        [without_skill(parent.parts, name) for name in names if len(names) > 1],
        [parts for mate in mates for parts in _adopted(parent.parts, mate.parts, names)],
        [_merged(parent.parts, one, other) for one in whole for other in whole if one != other],
    ]
    possible = [
        found for kind in kinds if (found := [parts for parts in kind if _fits(parts, most)])
    ]
    return rng.choice(rng.choice(possible)) if possible else None


def _fits(parts: Parts, most: int) -> bool:
    return len(skill_names(parts)) <= most


def without_skill(parts: Parts, name: str) -> Parts:
    """The parts without one skill."""
    return {part: text for part, text in parts.items() if not part.startswith(f"{name}/")}


def _adopted(parts: Parts, others: Parts, names: Sequence[str]) -> Iterator[Parts]:
    """The parts with each skill of other parts that they lack."""
    for name in skill_names(others):
        if name not in names:
            taken = {part: text for part, text in others.items() if part.startswith(f"{name}/")}
            yield {**parts, **taken}


def _merged(parts: Parts, kept: str, dropped: str) -> Parts:
    """One skill with another's instructions below its own; the other one's further files go."""
    main, other = f"{kept}/{SKILL_FILE}", f"{dropped}/{SKILL_FILE}"
    body = parts[other].removeprefix(frontmatter(parts[other]))
    return without_skill(parts, dropped) | {main: f"{parts[main].rstrip()}\n\n{body.strip()}\n"}


if __name__ == "__main__":
    main()
