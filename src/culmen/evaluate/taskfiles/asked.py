"""What an evaluator asks of a program, read from its syntax tree: functions it calls, the shape of what they return.

The evaluator is followed from the value it gets (the output of `score`, the module that `evaluate` loads) through
assignments, loops and its own functions. Shapes come from unpackings, indices, and comparisons of `len` and `.shape`
with whole numbers. Nothing is run; what cannot be told is left open.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

Path = tuple[int | str, ...]
EACH = "*"  # any element of an array
_MODULE: Path = ("module",)
_LOADERS = ("__import__", "module_from_spec", "import_module", "load_module", "run_path", "load_source")
_SAME = (
    "array",
    "asarray",
    "asanyarray",
    "ascontiguousarray",
    "list",
    "tuple",
    "float",
)  # their argument in other form
_OWN = ("tolist", "astype", "copy")  # methods that give the value itself in other form
_DEEPEST, _CALLS = 6, 300


@dataclass
class Asked:
    """`arity` of unpacked values, `keys` of dicts, `dims` of arrays by axis, `arrays` whose methods are used as they
    come, `numbers` that are calculated with, `names` that the evaluator gives, all by path: the function's name, then
    indices, keys or EACH."""

    uses: dict[str, int] = field(default_factory=dict[str, int])  # functions and their numbers of arguments
    arity: dict[Path, int] = field(default_factory=dict[Path, int])
    keys: dict[Path, list[str]] = field(default_factory=dict[Path, list[str]])
    dims: dict[Path, dict[int, int]] = field(default_factory=dict[Path, dict[int, int]])
    arrays: set[Path] = field(default_factory=set[Path])
    numbers: set[Path] = field(default_factory=set[Path])
    names: dict[Path, str] = field(default_factory=dict[Path, str])


def of_score(tree: ast.Module, entry: str) -> Asked:
    """What `score(output)` asks of the output of `entry`."""
    reader = _Reader(tree)
    function = reader.functions.get("score")
    if function is not None and function.args.args:
        reader.asked.uses[entry] = 0
        reader.follow(function, {function.args.args[0].arg: (entry,)})
    return reader.asked


def of_evaluate(tree: ast.Module) -> Asked:
    """What `evaluate(path)` asks of the module that it, or a function it hands to another process, loads."""
    reader = _Reader(tree)
    for function in reader.functions.values():
        reader.follow(function, {})
    return reader.asked


class _Reader(ast.NodeVisitor):
    """Follows values through the functions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        self.functions = {node.name: node for node in defined}
        self.asked = Asked()
        self._constants: dict[str, int] = {}
        self._known: dict[str, Any] = {}  # paths of variables; a tuple of paths in a list
        self._returned: Any = None
        self._depth = self._calls = 0
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(value := self._number(node.value), int):
                self._constants.update((one.id, value) for one in node.targets if isinstance(one, ast.Name))

    def follow(self, function: ast.FunctionDef | ast.AsyncFunctionDef, known: dict[str, Any]) -> Any:
        """Read a function's body with these variables known; what it returns, if that is known."""
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
                dims = self.asked.dims.setdefault(path, {})
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
                self.asked.arity[found] = len(target.elts)
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
                self.asked.arity[element] = len(target.elts)
            for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                self._name(one, element if one is target else None)

    def _name(self, target: ast.expr, found: Any) -> None:
        if isinstance(target, ast.Name):
            if found is None:
                self._known.pop(target.id, None)
            else:
                self._known[target.id] = found
                if isinstance(found, tuple):
                    self.asked.names.setdefault(found, target.id)

    def _path(self, node: ast.expr) -> Any:
        """Where in the returned value this expression leads: a path, a list of paths for a tuple, or None."""
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
            keys = self.asked.keys.setdefault(base, [])
            keys.append(index.value) if index.value not in keys else None
            return (*base, index.value)
        place = self._number(index)
        if isinstance(place, int) and place >= 0:
            self.asked.arity[base] = max(self.asked.arity.get(base, 0), place + 1)
            return (*base, place)
        if isinstance(index, ast.Tuple):
            self.asked.arrays.add(base)
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
        self.asked.uses.setdefault(name, arguments)
        return (name,)

    def _follow(self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call) -> Any:
        params = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        given = dict(zip(params, node.args)) | {word.arg: word.value for word in node.keywords if word.arg}
        known = {name: path for name, value in given.items() if (path := self._path(value)) is not None}
        return self.follow(function, known)

    def _calculate(self, *operands: ast.expr) -> None:
        paths = (self._path(one) for one in operands)
        self.asked.numbers.update(path for path in paths if isinstance(path, tuple))

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
                self.asked.arrays.add(path)
        elif isinstance(one, ast.Call) and _called(one) == "shape" and one.args:
            path = self._path(one.args[0])
        else:
            return
        sizes = [size] if axis is not None else size if isinstance(size, list) else []
        if isinstance(path, tuple):
            found = {place: one for place, one in enumerate(sizes, axis or 0) if isinstance(one, int)}
            self.asked.dims.setdefault(path, {}).update(found)

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
