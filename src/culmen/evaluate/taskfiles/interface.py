"""First programs for an evaluator that comes without one, written from its syntax tree.

Nothing is run. The evaluator is followed from its input (the output of `score`, the module that
`evaluate` loads) through assignments, loops and its own functions. Shapes come from unpackings,
indices, and comparisons of `len` and `.shape` with whole numbers. Recognised are a number, a list
of numbers, a list of points, and a tuple of these; the programs then return plain numbers of these
shapes. There are several sets of numbers, since shapes do not determine which are acceptable.
Without known shapes there is only a stub with the functions to write.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

import msgspec

PART = "program.py"
FILLS = ("grid", "spread", "corner", "zeros", "ones")
_MODULE = "."
_LOADERS = ("__import__", "module_from_spec", "import_module")
# return their argument, or the value itself, in another form
_SAME = ("array", "asarray", "list", "tuple", "float", "tolist", "astype")
_DEEPEST, _CALLS, _PARTS = 6, 300, 100


class FirstPrograms(msgspec.Struct, frozen=True):
    """First programs for an evaluator, or a stub.

    `programs` run (none if the shapes are not known; `given` if the evaluator contains one); `stub`
    has the functions to write; `uses` are the functions that the evaluator calls.
    """

    programs: tuple[str, ...] = ()
    stub: str = ""
    uses: tuple[str, ...] = ()
    embedded: bool = False


def first_programs(text: str, form: str, entry: str = "run") -> FirstPrograms:
    """First programs for an evaluator's text; none if it calls no function that can be seen.

    With the form "legacy", `evaluate(path)` loads the program, or passes it to another process that
    does; with others, `score(output)` gets the result of `entry`.
    """
    tree = ast.parse(text)
    reader = _Reader(tree)
    if form == "legacy":
        for function in reader.functions.values():
            reader.follow_function(function, {})
    else:
        score = reader.functions.get("score")
        if score is not None and score.args.args:
            reader.follow_function(score, {score.args.args[0].arg: reader.use_function(entry, 0)})
    uses, stub = tuple(reader.arguments), _write_stub(reader.arguments)
    if embedded := _embedded_program(tree):
        return FirstPrograms((embedded,), stub, uses, embedded=True)
    if (
        not uses
        or any(reader.arguments.values())
        or not all(value.is_known() for value in reader.returned.values())
    ):
        return FirstPrograms((), stub, uses)
    programs = dict.fromkeys(_first_program_text(reader.returned, fill) for fill in FILLS)
    return FirstPrograms(tuple(programs), stub, uses)


@dataclass(eq=False)
class _Value:
    """The known structure of a value that the program returns, or of a part of it."""

    name: str = ""  # the evaluator's
    length: int = 0  # 0 is not known
    parts: list[_Value] = field(default_factory=list["_Value"])  # in the order of unpacking
    element: _Value | None = None  # any element, as seen in a loop
    number: bool = False  # used in arithmetic
    array: bool = False  # used as a numpy array

    def part_at(self, index: int) -> _Value:
        """The part at this index."""
        self.parts += [_Value() for _ in range(len(self.parts), index + 1)]
        return self.parts[index]

    def any_element(self) -> _Value:
        """The value that stands for every element."""
        self.element = self.element or _Value()
        return self.element

    def element_length(self) -> int:
        """The length of the elements, 0 if it is not known."""
        return (self.element.length or len(self.element.parts)) if self.element else 0

    def tuple_values(self) -> list[_Value]:
        """The values of a tuple; none if it is a list, an array or a number."""
        if self.element_length() or self.length not in (0, len(self.parts)):
            return []
        return self.parts if not self.length or any(part.name for part in self.parts) else []

    def shape(self) -> tuple[int, ...] | None:
        """() of a number, (count,) of a list, (count, width) of points; None if unknown."""
        if self.length:
            return (self.length, self.element_length()) if self.element_length() else (self.length,)
        return None if self.parts or self.element or self.array else ()

    def is_known(self) -> bool:
        """True if the shapes are known.

        A part of a tuple counts as a number if nothing else is known of it.
        """
        if values := self.tuple_values():
            return all(value.shape() is not None for value in values)
        return bool(self.shape() or self.number) and self.shape() is not None


_Known = _Value | str | None  # a value, the program's module, or the name of a function of it
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Reader(ast.NodeVisitor):
    """Follows values through the functions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
        self.arguments: dict[str, int] = {}  # how many are given to each function of the program
        self.returned: dict[str, _Value] = {}
        self._constants: dict[str, int] = {}
        self._known: dict[str, _Known] = {}  # by variable
        self._result: _Known = None
        self._depth = self._calls = 0
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and (value := self._whole_number(node.value)) is not None
            ):
                self._constants.update(
                    (target.id, value) for target in node.targets if isinstance(target, ast.Name)
                )

    def use_function(self, name: str, arguments: int) -> _Value:
        """The result of a function of the program."""
        self.arguments.setdefault(name, arguments)
        return self.returned.setdefault(name, _Value())

    def follow_function(self, function: _Function, known: dict[str, _Known]) -> _Known:
        """Read a function's body with these variables known; return its result, if known."""
        self._calls += 1
        if self._depth >= _DEEPEST or self._calls > _CALLS:
            return None
        outer = self._known, self._result
        self._known, self._result = known, None
        self._depth += 1
        for statement in function.body:
            self.visit(statement)
        self._depth -= 1
        result = self._result
        self._known, self._result = outer
        return result

    def visit(self, node: ast.AST) -> None:
        """Bind loop variables before the bodies are read, those of assignments after the values."""
        loops = node.generators if isinstance(node, ast.ListComp | ast.GeneratorExp) else [node]
        for loop in loops:
            if isinstance(loop, ast.For | ast.comprehension):
                self._bind_loop(loop.target, loop.iter)
        self.generic_visit(node)
        match node:
            case ast.Assign(
                targets=[ast.Tuple() as target], value=ast.GeneratorExp(generators=[loop])
            ):
                self._bind_target(target, self._value_of(loop.iter))
            case ast.Assign(targets=[target], value=value):
                self._bind_target(target, self._value_of(value))
            case ast.Return(value=ast.expr() as value):
                self._result = self._result or self._value_of(value)
            case ast.Compare(left=left, ops=[sign, *_], comparators=[other, *_]):
                self._mark_numbers(left, *node.comparators)
                if isinstance(sign, ast.Eq | ast.NotEq):
                    self._note_lengths(left, other)
            case ast.BinOp(left=left, right=right):
                self._mark_numbers(left, right)
            case ast.Call() | ast.Subscript():
                self._value_of(node)
            case _:
                pass

    def _bind_target(self, target: ast.expr, value: _Known) -> None:
        if isinstance(target, ast.Name):
            self._known[target.id] = value
            if isinstance(value, _Value):
                value.name = value.name or target.id
        elif isinstance(target, ast.Tuple):
            for index, element in enumerate(target.elts):
                self._bind_target(
                    element, value.part_at(index) if isinstance(value, _Value) else None
                )

    def _bind_loop(self, target: ast.expr, iterated: ast.expr) -> None:
        """Bind loop variables to elements of the iterated value."""
        match target, iterated:
            case ast.Tuple(elts=targets), ast.Call(
                func=ast.Name(id="enumerate" | "zip" as name), args=arguments
            ):
                for variable, argument in zip(targets[name == "enumerate" :], arguments):
                    self._bind_loop(variable, argument)
            case _:
                value = self._value_of(iterated)
                self._bind_target(
                    target, value.any_element() if isinstance(value, _Value) else None
                )

    def _value_of(self, node: ast.expr) -> _Known:
        """The value, or part of one, of an expression."""
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Tuple(elts=elements):
                values = [self._value_of(element) for element in elements]
                return _Value(
                    parts=[
                        element if isinstance(element, _Value) else _Value() for element in values
                    ]
                )
            case ast.IfExp(body=body, orelse=orelse):
                return self._value_of(body) or self._value_of(orelse)
            case ast.Subscript(value=value, slice=index):
                return self._indexed_value(self._value_of(value), index)
            case ast.Call():
                return self._call_result(node)
            case ast.Attribute(value=value, attr=name):
                return name if self._value_of(value) == _MODULE else None
        return None

    def _indexed_value(self, base: _Known, index: ast.expr) -> _Known:
        if not isinstance(base, _Value):
            return None
        position = self._whole_number(index)
        if position is not None and position < _PARTS:
            return base.part_at(position)
        base.array = base.array or isinstance(index, ast.Tuple)
        element = base.any_element()
        return None if isinstance(index, ast.Tuple | ast.Slice) else element

    def _call_result(self, node: ast.Call) -> _Known:
        name, function = _callee_name(node), self._value_of(node.func)
        if name in _LOADERS:
            return _MODULE
        if isinstance(function, str) and function != _MODULE:
            return self.use_function(function, len(node.args) + len(node.keywords))
        if isinstance(node.func, ast.Name) and name in self.functions:
            params = self.functions[name].args.args
            known = {param.arg: self._value_of(value) for param, value in zip(params, node.args)}
            return self.follow_function(self.functions[name], known)
        first = self._value_of(node.args[0]) if node.args else None
        if (
            name in ("points", "vector") and len(node.args) == 4
        ):  # the readers of culmen.evaluate.certify
            self._set_lengths(first, node.args[2:] if name == "points" else node.args[3:])
        if name == "float":
            self._mark_numbers(*node.args)
        if name in _SAME:
            return first or (
                self._value_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
            )
        return None

    def _mark_numbers(self, *operands: ast.expr) -> None:
        for operand in operands:
            if isinstance(value := self._value_of(operand), _Value):
                value.number = True

    def _note_lengths(self, left: ast.expr, right: ast.expr) -> None:
        """Note the lengths in a comparison: `len(x) != 3`, `x.shape != (3, 2)`."""
        match left, right:
            case ast.Call(func=ast.Name(id="len"), args=[measured]), _:
                self._set_lengths(self._value_of(measured), [right])
            case ast.Attribute(value=measured, attr="shape"), ast.Tuple(elts=sizes):
                self._set_lengths(self._value_of(measured), sizes, array=True)
            case _:
                pass

    def _set_lengths(self, value: _Known, sizes: list[ast.expr], array: bool = False) -> None:
        if isinstance(value, _Value):
            value.array = value.array or array
            for size in sizes if len(sizes) < 3 else ():
                value.length = self._whole_number(size) or value.length
                value = value.any_element() if size is not sizes[-1] else value

    def _whole_number(self, node: ast.expr) -> int | None:
        """A whole number that is not negative: a literal, or a constant of the module."""
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _callee_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _embedded_program(tree: ast.Module) -> str:
    """A program that the evaluator contains as a text, "" if there is none.

    The constant is named SEED, EXAMPLE or INITIAL_PROGRAM.
    """
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"SEED", "EXAMPLE", "INITIAL_PROGRAM"} and node.value.value.strip():
                return node.value.value.strip("\n") + "\n"
    return ""


def _write_stub(arguments: dict[str, int]) -> str:
    """Functions of these names and numbers of arguments, without bodies."""
    if not arguments:
        return ""
    text = f'"""What the evaluator asks for: {", ".join(arguments)}."""\n'
    for name, count in arguments.items():
        parameters = ", ".join(f"x{n}" for n in range(1, count + 1))
        text += f'\n\ndef {name}({parameters}):\n    raise NotImplementedError("write {name}")\n'
    return text


def _first_program_text(returned: dict[str, _Value], fill: str) -> str:
    """A module that defines each function, its numbers as constants on top."""
    constants: dict[str, str] = {}
    functions = [
        f"def {name}():\n    return {_return_expression(value, fill, constants)}\n"
        for name, value in returned.items()
    ]
    head = ['"""A first program: plain numbers in the shape that the evaluator asks for."""']
    head += ["import numpy as np"] if any("np." in text for text in functions) else []
    written = [f"{name} = {text}" for name, text in constants.items()]
    return "\n\n".join([*head, *written]) + "\n\n\n" + "\n\n".join(functions)


def _return_expression(value: _Value, fill: str, constants: dict[str, str]) -> str:
    """The expression that a function returns; its numbers are added to `constants`."""
    values = value.tuple_values()
    parts = []
    for index, member in enumerate(values or [value]):
        shape = member.shape() or ()
        if (
            index > 1
            and index == len(values) - 1
            and not shape
            and len(values[index - 1].shape() or ()) == 1
        ):
            parts.append(f"float(sum({list(constants)[-1]}))")  # the sum of the last constant
            continue
        name = member.name.upper() or ("VALUES" if shape else "VALUE")
        name = next(
            free_name
            for free_name in (name, *(f"{name}_{n}" for n in range(2, 999)))
            if free_name not in constants
        )
        constants[name] = _number_literal(_fill_numbers(shape, fill))
        parts.append(f"np.array({name})" if member.array and shape else name)
    return ", ".join(parts) + ("," if len(values) == 1 else "")


def _fill_numbers(shape: tuple[int, ...], fill: str) -> float | list[float] | list[list[float]]:
    """Numbers in this shape.

    `fill` "grid": points on a grid in the unit cube; "spread": scattered over the cube; "corner":
    scattered over its lower corner; beside points, small numbers. "zeros" or "ones": only 0 or 1.
    """
    if not shape:
        return float(fill == "ones")
    if len(shape) == 1:
        small = round(0.45 / _cells_per_axis(shape[0], 2), 4) if fill == "grid" else 0.01
        return [{"zeros": 0.0, "ones": 1.0}.get(fill, small)] * shape[0]
    count, width = shape
    if fill == "grid":
        return _grid_points(count, width)
    if fill in ("zeros", "ones"):
        return [[float(fill == "ones")] * width] * count
    low, wide = (0.04, 0.92) if fill == "spread" else (0.05, 0.4)
    return [[round(low + wide * x, 4) for x in point] for point in _scattered_points(count, width)]


def _cells_per_axis(count: int, width: int) -> int:
    """Cells along an axis of the smallest grid with room for `count` points."""
    return next(cells for cells in range(1, count + 1) if cells**width >= count)


def _grid_points(count: int, width: int) -> list[list[float]]:
    """Centres of the first `count` cells of a grid in the unit cube."""
    cells = _cells_per_axis(count, width)
    along = [cells] * (width - 1) + [-(-count // cells ** (width - 1))]
    return [
        [
            round((n // cells**axis % cells_on_axis + 0.5) / cells_on_axis, 4)
            for axis, cells_on_axis in enumerate(along)
        ]
        for n in range(count)
    ]


def _scattered_points(count: int, width: int) -> list[list[float]]:
    """Evenly scattered points in the unit cube.

    A Kronecker sequence with powers of the generalised golden ratio.
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (width + 1))
    return [
        [(0.5 + n * ratio ** -(axis + 1)) % 1.0 for axis in range(width)]
        for n in range(1, count + 1)
    ]


def _number_literal(numbers: float | list[float] | list[list[float]]) -> str:
    """A literal of the numbers, one point a line."""
    if not isinstance(numbers, list):
        return repr(numbers)
    if len(numbers) > 1 and numbers == [numbers[0]] * len(numbers):
        # one number is changed more easily than many
        return f"[{_number_literal(numbers[0])}] * {len(numbers)}"
    if isinstance(numbers[0], list):
        return "[\n" + "".join(f"    {row!r},\n" for row in numbers) + "]"
    return repr(numbers)
