"""First programs for an evaluator that comes without one: written from what it asks for.

Where its syntax tells the shapes of what is returned, the programs return plain numbers of these shapes: a few sets of
them, since it does not tell which are acceptable. Otherwise there is only a stub that says what to write.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from culmen.evaluate.taskfiles import asked
from culmen.evaluate.taskfiles.asked import EACH, Asked, Path

PART = "program.py"


class Value(msgspec.Struct, frozen=True):
    """A returned value: an array of `shape` (() is a number), or several values in a tuple, or in a dict by key."""

    name: str
    shape: tuple[int, ...] = ()
    inner: tuple[Value, ...] = ()
    keys: tuple[str, ...] = ()
    array: bool = False  # used as a numpy array without being made one


class First(msgspec.Struct, frozen=True):
    """What could be made: `programs` that run (none if the shapes are not known; `given` if the evaluator brings one),
    a `stub`, the functions it `uses`."""

    programs: tuple[str, ...] = ()
    stub: str = ""
    uses: tuple[str, ...] = ()
    given: bool = False


def of(text: str, form: str, entry: str = "run") -> First:
    """First programs for an evaluator's text; nothing if it asks for no function that can be seen."""
    tree = ast.parse(text)
    found = asked.of_evaluate(tree) if form == "legacy" else asked.of_score(tree, entry)
    given = example(tree, tuple(found.uses))
    stub = "\n\n\n".join(_hollow(name, count) for name, count in found.uses.items())
    stub = f'"""{_title(found)}"""\n\n\n{stub}\n' if stub else ""
    if given:
        return First((given,), stub, tuple(found.uses), given=True)
    values = {name: value(found, (name,)) for name in found.uses}
    if not values or any(one is None for one in values.values()) or any(found.uses.values()):
        return First((), stub, tuple(found.uses))
    known = {name: one for name, one in values.items() if one is not None}
    programs = dict.fromkeys(_program(known, fill) for fill in FILLS)
    return First(tuple(programs), stub, tuple(found.uses))


def example(tree: ast.Module, uses: tuple[str, ...]) -> str:
    """A program that the evaluator brings as a text: the constant SEED, EXAMPLE or INITIAL_PROGRAM; "" if none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"SEED", "EXAMPLE", "INITIAL_PROGRAM"} and node.value.value.strip():
                return node.value.value.strip("\n") + "\n"
    return ""


def value(found: Asked, path: Path) -> Value | None:
    """What is returned at a path, as far as it can be told; None if it cannot."""
    name = found.names.get(path, "" if len(path) == 1 or path[-1] == EACH else str(path[-1]))
    if found.keys.get(path):
        return _several(found, path, name, tuple(found.keys[path]), tuple(found.keys[path]))
    dims = dict(found.dims.get(path, {}))
    element = (*path, EACH)
    if element in found.arity:
        dims.setdefault(1, found.arity[element])
    dims.update({axis + 1: size for axis, size in found.dims.get(element, {}).items()})
    if 0 in dims:
        shape = tuple(dims.get(axis, 0) for axis in range(max(dims) + 1))
        tuple_of = found.arity.get(path, 0)
        if tuple_of == dims[0] and len(dims) == 1 and any((*path, i) in found.names for i in range(tuple_of)):
            return _several(found, path, name, tuple(range(tuple_of)), ())
        return Value(name, shape, array=path in found.arrays) if all(shape) else None
    if path in found.arity and not dims:
        return _several(found, path, name, tuple(range(found.arity[path])), ())
    if dims or element in found.names or path in found.arrays:
        return None
    return Value(name) if path in found.numbers or len(path) > 1 else None


def _several(found: Asked, path: Path, name: str, places: tuple[Any, ...], keys: tuple[str, ...]) -> Value | None:
    inner = [value(found, (*path, place)) for place in places]
    if any(one is None for one in inner):
        return None
    return Value(name, inner=tuple(one for one in inner if one is not None), keys=keys)


def _program(values: dict[str, Value], fill: str) -> str:
    """A module that defines each function, its numbers as constants on top."""
    constants: list[str] = []
    functions: list[str] = []
    needs_numpy = False
    for name, one in values.items():
        returned = _returned(one, fill, constants)
        needs_numpy = needs_numpy or "np." in returned
        functions.append(f"def {name}():\n    return {returned}\n")
    head = ['"""A first program: plain numbers in the shape that the evaluator asks for."""']
    head += ["import numpy as np"] if needs_numpy else []
    return "\n\n".join([*head, *constants]) + "\n\n\n" + "\n\n".join(functions)


def _returned(one: Value, fill: str, constants: list[str]) -> str:
    """The expression for a value; its numbers go into `constants`."""
    if one.inner:
        parts = [_returned(each, fill, constants) for each in one.inner]
        sums = [place for place, each in enumerate(one.inner) if not each.inner and len(each.shape) == 1]
        if sums and not one.inner[-1].shape and not one.inner[-1].inner and len(one.inner) > 2:
            parts[-1] = f"float(sum({constants[-2].partition(' =')[0]}))"  # a total of what stands before it
            constants.pop()
        if one.keys:
            return "{" + ", ".join(f'"{key}": {part}' for key, part in zip(one.keys, parts)) + "}"
        return ", ".join(parts) + ("," if len(parts) == 1 else "")
    name = one.name if one.name[:1].isalpha() else "values" if one.shape else "value"
    name = "".join(char if char.isalnum() else "_" for char in name).upper()
    known = {text.partition(" =")[0] for text in constants}
    name = next(each for each in (name, *(f"{name}_{n}" for n in range(2, 99))) if each not in known)
    constants.append(f"{name} = {_written(_numbers(one.shape, fill))}")
    return f"np.array({name})" if one.array and one.shape else name


FILLS = ("grid", "spread", "corner", "zeros", "ones")


def _numbers(shape: tuple[int, ...], fill: str) -> Any:
    """Numbers in this shape: points on a grid in the unit cube, scattered over it or over its lower corner, with small
    numbers beside them; or only 0, or only 1."""
    if not shape:
        return {"ones": 1.0}.get(fill, 0.0)
    if fill in ("zeros", "ones"):
        return _nested(shape, iter([float(fill == "ones")] * math.prod(shape)))
    if len(shape) == 1:
        return [round(0.45 / _cells(shape[0]), 4) if fill == "grid" else 0.01] * shape[0]
    if fill == "grid":
        return _nested(shape, _lattice(math.prod(shape) // shape[-1], shape[-1]))
    low, wide = (0.04, 0.92) if fill == "spread" else (0.05, 0.4)
    return _nested(shape, (round(low + wide * x, 4) for x in _scattered(math.prod(shape) // shape[-1], shape[-1])))


def _cells(count: int, width: int = 2) -> int:
    """Cells along an axis of the smallest grid that has room for so many points."""
    return next(cells for cells in range(1, count + 2) if cells**width >= count)


def _lattice(count: int, width: int) -> Iterator[float]:
    """Coordinates of the centres of cells: as many cells along each axis as there must be."""
    cells = _cells(count, width)
    rows = -(-count // cells ** (width - 1))
    for n in range(count):
        for axis in range(width):
            along = rows if axis == width - 1 else cells
            yield round((n // cells**axis % along + 0.5) / along, 4)


def _scattered(count: int, width: int) -> Iterator[float]:
    """Coordinates of evenly scattered points: a Kronecker sequence with powers of the generalised golden ratio."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (width + 1))
    for n in range(1, count + 1):
        for axis in range(width):
            yield (0.5 + n * ratio ** -(axis + 1)) % 1.0


def _nested(shape: tuple[int, ...], numbers: Iterator[float]) -> Any:
    return [_nested(shape[1:], numbers) for _ in range(shape[0])] if shape else next(numbers)


def _written(numbers: Any) -> str:
    """A literal: rows of points on lines of their own."""
    if isinstance(numbers, list) and len(numbers) > 1 and numbers == [numbers[0]] * len(numbers):
        return f"[{_written(numbers[0])}] * {len(numbers)}"  # one number is changed more easily than many
    if isinstance(numbers, list) and numbers and isinstance(numbers[0], list):
        return "[\n" + "".join(f"    {row!r},\n" for row in numbers) + "]"
    return repr(numbers)


def _hollow(name: str, arguments: int) -> str:
    given = ", ".join(f"x{n}" for n in range(1, arguments + 1))
    return f'def {name}({given}):\n    raise NotImplementedError("write {name}")'


def _title(found: Asked) -> str:
    names = ", ".join(found.uses)
    return f"What the evaluator asks for: {names}."
