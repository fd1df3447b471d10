"""What an evaluator expects of a program, read from its syntax tree, and first programs written from that.

The evaluator is followed from the value it gets (the output of `score`, the module that `evaluate` loads) through
assignments, loops and its own functions. Shapes come from unpackings, indices, and comparisons of `len` and `.shape`
with whole numbers. Nothing is run. Where all shapes are known, the programs return plain numbers of these shapes: a few
sets of them, since shapes do not tell which are acceptable. Otherwise there is only a stub that says what to write.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

PART = "program.py"
Path = tuple[int | str, ...]
EACH = "*"  # any element of an array
_MODULE: Path = ("module",)
_LOADERS = ("__import__", "module_from_spec", "import_module", "load_module", "run_path", "load_source")
# functions that return their argument in another form
_SAME = ("array", "asarray", "asanyarray", "ascontiguousarray", "list", "tuple", "float")
_OWN = ("tolist", "astype", "copy")  # methods that return the value itself in another form
_DEEPEST, _CALLS = 6, 300


@dataclass
class ExpectedInterface:
    """`arity` of unpacked values, `keys` of dicts, `dims` of arrays by axis, `arrays` whose methods are used as they
    come, `numbers` used in arithmetic, `names` that the evaluator gives, all by path: the function's name, then
    indices, keys or EACH."""

    uses: dict[str, int] = field(default_factory=dict[str, int])  # functions and their numbers of arguments
    arity: dict[Path, int] = field(default_factory=dict[Path, int])
    keys: dict[Path, list[str]] = field(default_factory=dict[Path, list[str]])
    dims: dict[Path, dict[int, int]] = field(default_factory=dict[Path, dict[int, int]])
    arrays: set[Path] = field(default_factory=set[Path])
    numbers: set[Path] = field(default_factory=set[Path])
    names: dict[Path, str] = field(default_factory=dict[Path, str])


def infer_from_score(tree: ast.Module, entry: str) -> ExpectedInterface:
    """What `score(output)` expects of the output of `entry`."""
    reader = _Reader(tree)
    function = reader.functions.get("score")
    if function is not None and function.args.args:
        reader.expected.uses[entry] = 0
        reader.follow(function, {function.args.args[0].arg: (entry,)})
    return reader.expected


def infer_from_evaluate(tree: ast.Module) -> ExpectedInterface:
    """What `evaluate(path)` expects of the module that it, or a function it hands to another process, loads."""
    reader = _Reader(tree)
    for function in reader.functions.values():
        reader.follow(function, {})
    return reader.expected


class _Reader(ast.NodeVisitor):
    """Follows values through the functions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        self.functions = {node.name: node for node in defined}
        self.expected = ExpectedInterface()
        self._constants: dict[str, int] = {}
        self._known: dict[str, Any] = {}  # paths of variables; a tuple of paths in a list
        self._returned: Any = None
        self._depth = self._calls = 0
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(value := self._number(node.value), int):
                self._constants.update((one.id, value) for one in node.targets if isinstance(one, ast.Name))

    def follow(self, function: ast.FunctionDef | ast.AsyncFunctionDef, known: dict[str, Any]) -> Any:
        """Read a function's body with these variables known; returns its return value, if known."""
        self._calls += 1
        if self._depth >= _DEEPEST or self._calls > _CALLS:
            return None
        outer = self._known, self._returned
        self._known, self._returned = known, None
        self._depth += 1
        for statement in function.body:
            self.visit(statement)
        self._depth -= 1
        returned = self._returned
        self._known, self._returned = outer
        return returned

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._returned = self._returned or self._path(node.value)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._bind_each(node.target, node.iter)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        for part in node.generators:
            self.visit(part.iter)
            self._bind_each(part.target, part.iter)
            for test in part.ifs:
                self.visit(test)
        self.visit(node.elt)

    visit_GeneratorExp = visit_SetComp = visit_ListComp

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        for one, sign, other in zip(sides, node.ops, sides[1:]):
            self._calculate(one, other)
            if isinstance(sign, ast.Eq | ast.NotEq):
                self._measure(one, other)
                self._measure(other, one)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        self._calculate(node.left, node.right)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self._path(node)
        if _called(node) in ("float", "int", "isfinite", "isnan"):
            self._calculate(*node.args)
        name = _called(node)
        sizes = [self._number(arg) for arg in node.args[2:4]]
        if name in ("points", "vector") and len(sizes) == 2 and all(isinstance(size, int) for size in sizes):
            path = self._path(node.args[0])  # culmen.evaluate.certify's readers
            if isinstance(path, tuple):
                dims = self.expected.dims.setdefault(path, {})
                dims.update({0: sizes[0], 1: sizes[1]} if name == "points" else {0: sizes[1]})

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        self._path(node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        found = self._path(value)
        if found is None and isinstance(value, ast.GeneratorExp | ast.ListComp) and isinstance(target, ast.Tuple):
            found = self._path(value.generators[0].iter)
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(found, tuple):
                self.expected.arity[found] = len(target.elts)
                found = [(*found, place) for place in range(len(target.elts))]
            for place, one in enumerate(target.elts):
                self._name(one, found[place] if isinstance(found, list) and place < len(found) else None)
        else:
            self._name(target, found)

    def _bind_each(self, target: ast.expr, iterated: ast.expr) -> None:
        """Loop variables are elements of what is looped over."""
        if isinstance(iterated, ast.Call) and _called(iterated) == "enumerate" and iterated.args:
            if isinstance(target, ast.Tuple) and len(target.elts) == 2:
                self._bind_each(target.elts[1], iterated.args[0])
        elif isinstance(iterated, ast.Call) and _called(iterated) == "zip":
            for one, each in zip(target.elts if isinstance(target, ast.Tuple) else (), iterated.args):
                self._bind_each(one, each)
        else:
            path = self._path(iterated)
            element = (*path, EACH) if isinstance(path, tuple) else None
            if isinstance(target, ast.Tuple) and element is not None:
                self.expected.arity[element] = len(target.elts)
            for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                self._name(one, element if one is target else None)

    def _name(self, target: ast.expr, found: Any) -> None:
        if isinstance(target, ast.Name):
            if found is None:
                self._known.pop(target.id, None)
            else:
                self._known[target.id] = found
                if isinstance(found, tuple):
                    self.expected.names.setdefault(found, target.id)

    def _path(self, node: ast.expr) -> Any:
        """The path in the returned value that this expression stands for, a list of paths for a tuple, or None."""
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Tuple(elts=elements):
                found = [self._path(one) for one in elements]
                return found if any(one is not None for one in found) else None
            case ast.IfExp(body=body, orelse=orelse):
                return self._path(body) or self._path(orelse)
            case ast.Subscript(value=value, slice=index):
                return self._index(self._path(value), index)
            case ast.Call():
                return self._call(node)
            case ast.Attribute(value=value, attr=name):
                return ("function", name) if self._path(value) == _MODULE else None
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self._path(value)
        return None

    def _index(self, base: Any, index: ast.expr) -> Any:
        if isinstance(base, list):
            place = self._number(index)
            return base[place] if isinstance(place, int) and 0 <= place < len(base) else None
        if not isinstance(base, tuple):
            return None
        if isinstance(index, ast.Slice):
            return base
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            if base == _MODULE:
                return ("function", index.value)
            keys = self.expected.keys.setdefault(base, [])
            keys.append(index.value) if index.value not in keys else None
            return (*base, index.value)
        place = self._number(index)
        if isinstance(place, int) and place >= 0:
            self.expected.arity[base] = max(self.expected.arity.get(base, 0), place + 1)
            return (*base, place)
        if isinstance(index, ast.Tuple):
            self.expected.arrays.add(base)
            return None
        return (*base, EACH)

    def _call(self, node: ast.Call) -> Any:
        name, function = _called(node), self._path(node.func)
        if name in _LOADERS:
            return _MODULE
        if isinstance(function, tuple) and function[:1] == ("function",):
            return self._use(str(function[1]), len(node.args) + len(node.keywords))
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            return ("function", str(node.args[1].value)) if self._path(node.args[0]) == _MODULE else None
        if isinstance(node.func, ast.Name) and name in self.functions:
            return self._follow(self.functions[name], node)
        if name in _OWN and isinstance(node.func, ast.Attribute):
            return self._path(node.func.value)
        return self._path(node.args[0]) if name in _SAME and node.args else None

    def _use(self, name: str, arguments: int) -> Path:
        self.expected.uses.setdefault(name, arguments)
        return (name,)

    def _follow(self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call) -> Any:
        params = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        given = dict(zip(params, node.args)) | {word.arg: word.value for word in node.keywords if word.arg}
        known = {name: path for name, value in given.items() if (path := self._path(value)) is not None}
        return self.follow(function, known)

    def _calculate(self, *operands: ast.expr) -> None:
        paths = (self._path(one) for one in operands)
        self.expected.numbers.update(path for path in paths if isinstance(path, tuple))

    def _measure(self, one: ast.expr, other: ast.expr) -> None:
        """`len(x) != 3`, `x.shape != (3, 2)`, `x.shape[0] == 3`, also through np.shape."""
        axis: int | None = None
        if isinstance(one, ast.Subscript):
            number = self._number(one.slice)
            axis, one = (number, one.value) if isinstance(number, int) else (None, one)
        size = self._number(other)
        if isinstance(one, ast.Call) and _called(one) == "len" and one.args and axis is None:
            path, axis = self._path(one.args[0]), 0
        elif isinstance(one, ast.Attribute) and one.attr == "shape":
            path = self._path(one.value)
            if isinstance(path, tuple) and isinstance(one.value, ast.Name):
                self.expected.arrays.add(path)
        elif isinstance(one, ast.Call) and _called(one) == "shape" and one.args:
            path = self._path(one.args[0])
        else:
            return
        sizes = [size] if axis is not None else size if isinstance(size, list) else []
        if isinstance(path, tuple):
            found = {place: one for place, one in enumerate(sizes, axis or 0) if isinstance(one, int)}
            self.expected.dims.setdefault(path, {}).update(found)

    def _number(self, node: ast.expr) -> Any:
        """A whole number or a list of them (None for entries that are not known); None for anything else."""
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                return self._constants.get(name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return [self._number(one) for one in elements]
            case ast.BinOp(left=left, op=op, right=right):
                one, two = self._number(left), self._number(right)
                known = isinstance(one, int) and isinstance(two, int)
                return {ast.Add: one + two, ast.Sub: one - two, ast.Mult: one * two}.get(type(op)) if known else None
        return None


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


class ExpectedValue(msgspec.Struct, frozen=True):
    """A returned value: an array of `shape` (() is a number), or several values in a tuple, or in a dict by key."""

    name: str
    shape: tuple[int, ...] = ()
    inner: tuple[ExpectedValue, ...] = ()
    keys: tuple[str, ...] = ()
    array: bool = False  # used as a numpy array without being made one


class FirstPrograms(msgspec.Struct, frozen=True):
    """The programs found or made: `programs` that run (none if the shapes are not known; `given` if the evaluator
    brings one), a `stub`, the functions it `uses`."""

    programs: tuple[str, ...] = ()
    stub: str = ""
    uses: tuple[str, ...] = ()
    given: bool = False


def first_programs(text: str, form: str, entry: str = "run") -> FirstPrograms:
    """First programs for an evaluator's text; none if it calls no function that can be seen."""
    tree = ast.parse(text)
    found = infer_from_evaluate(tree) if form == "legacy" else infer_from_score(tree, entry)
    given = example(tree, tuple(found.uses))
    stub = "\n\n\n".join(_hollow(name, count) for name, count in found.uses.items())
    stub = f'"""{_title(found)}"""\n\n\n{stub}\n' if stub else ""
    if given:
        return FirstPrograms((given,), stub, tuple(found.uses), given=True)
    values = {name: expected_value(found, (name,)) for name in found.uses}
    if not values or any(one is None for one in values.values()) or any(found.uses.values()):
        return FirstPrograms((), stub, tuple(found.uses))
    known = {name: one for name, one in values.items() if one is not None}
    programs = dict.fromkeys(_program(known, fill) for fill in FILLS)
    return FirstPrograms(tuple(programs), stub, tuple(found.uses))


def example(tree: ast.Module, uses: tuple[str, ...]) -> str:
    """A program that the evaluator contains as a text: the constant SEED, EXAMPLE or INITIAL_PROGRAM; "" if none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"SEED", "EXAMPLE", "INITIAL_PROGRAM"} and node.value.value.strip():
                return node.value.value.strip("\n") + "\n"
    return ""


def expected_value(found: ExpectedInterface, path: Path) -> ExpectedValue | None:
    """The value expected at a path, as far as known; None if unknown."""
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
        return ExpectedValue(name, shape, array=path in found.arrays) if all(shape) else None
    if path in found.arity and not dims:
        return _several(found, path, name, tuple(range(found.arity[path])), ())
    if dims or element in found.names or path in found.arrays:
        return None
    return ExpectedValue(name) if path in found.numbers or len(path) > 1 else None


def _several(
    found: ExpectedInterface, path: Path, name: str, places: tuple[Any, ...], keys: tuple[str, ...]
) -> ExpectedValue | None:
    inner = [expected_value(found, (*path, place)) for place in places]
    if any(one is None for one in inner):
        return None
    return ExpectedValue(name, inner=tuple(one for one in inner if one is not None), keys=keys)


def _program(values: dict[str, ExpectedValue], fill: str) -> str:
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


def _returned(one: ExpectedValue, fill: str, constants: list[str]) -> str:
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


def _title(found: ExpectedInterface) -> str:
    names = ", ".join(found.uses)
    return f"What the evaluator asks for: {names}."
