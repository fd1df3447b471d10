"""Copies of an evaluator's text that tolerate less, and refuse NaN."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from culmen.core.foreign import parse_python
from culmen.extensions.audit.tolerances import (
    DEFAULT_SIZES,
    FIGURES_BY_TYPE,
    Constant,
    called_name,
    constant_value,
    is_near_one,
    is_of_numpy,
    is_ordering,
    leaves_nan_out,
    ordering_lines,
    place_of,
    precision_digits,
    rounded_decimals,
    syntax_tree,
    tolerance_constants,
)

_SMALLEST = 1e-12  # tolerance of a copy without tolerances: rounding errors of honest outputs
_FIGURES = 12  # digits of a copy without rounding

_HELPERS = '''
def _culmen_number(value):
    """The value; ValueError for NaN."""
    nan = isinstance(value, float) and value != value
    if not nan and getattr(getattr(value, "dtype", None), "kind", "") in ("f", "c"):
        nan = bool((value != value).any())
    if nan:
        raise ValueError("a comparison with NaN")
    return value


def _culmen_numbers(values):
    """The values; ValueError for NaN."""
    if hasattr(values, "dtype"):
        return _culmen_number(values)
    return [_culmen_number(value) for value in values]


def _culmen_figures(values, digits):
    """The values in double precision, rounded to this number of significant digits."""
    import numpy

    values = numpy.asarray(values, dtype=float)
    with numpy.errstate(all="ignore"):
        scale = 10.0 ** (digits - 1 - numpy.floor(numpy.log10(numpy.abs(values))))
        rounded = numpy.round(values * scale) / scale
    return numpy.where(numpy.isfinite(scale) & numpy.isfinite(rounded), rounded, values)[()]


def _culmen_floor(value, decimals):
    """The value, rounded down to this number of decimals."""
    import math

    if isinstance(value, (int, str)):
        return int(value)
    scale = 10.0**decimals
    return math.floor(value * scale + 1e-9) / scale
'''


def tightened_sources(sources: Mapping[str, str], share: float = 0.0) -> dict[str, str]:
    """Files that tolerate violations, by name, with all tolerances reduced to `share` of theirs.

    Their comparisons raise ValueError for NaN.
    """
    changed: dict[str, str] = {}
    for file, text in sources.items():
        constants, tree = tolerance_constants(file, text), syntax_tree(text)
        if constants or (tree and ordering_lines(tree)):
            changed[file] = _rewrite(text, constants, share, strict=True)
    return changed


def tightened_text(text: str, constant: Constant) -> str:
    """The text without one tolerance."""
    return _rewrite(text, [constant], 0.0, strict=False)


def _rewrite(text: str, constants: list[Constant], share: float, *, strict: bool) -> str:
    places = {place_of(each.node) for each in constants}
    tree = parse_python(text)
    _Tightening(places, share, strict).visit(tree)
    start = 0
    for each in tree.body:  # a docstring and imports from the future stay first
        if isinstance(each, ast.ImportFrom) and each.module == "__future__":
            start = tree.body.index(each) + 1
    tree.body[start:start] = parse_python(_HELPERS).body
    return ast.unparse(ast.fix_missing_locations(tree))


class _Tightening(ast.NodeTransformer):
    """Reduces the tolerances at `places`; with `strict`, comparisons refuse NaN."""

    def __init__(self, places: set[tuple[int, int, int, int]], share: float, strict: bool) -> None:
        self._places, self._share, self._strict = places, share, strict

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and place_of(node) in self._places:
            self._places.discard(place_of(node))  # a call that rounds is visited inside, too
            return self._tightened(node)
        return super().visit(node)

    def _tightened(self, node: ast.expr) -> ast.AST:
        value = constant_value(node)
        if value is not None:
            base = 1.0 if is_near_one(node) else 0.0
            size = max(self._share * abs(value - base), _SMALLEST)
            return ast.Constant(base + (size if value > base else -size))
        assert isinstance(node, ast.Call), "numbers and calls are the tolerances of a text"
        digits, name = precision_digits(node), called_name(node)
        self.generic_visit(node)
        if digits:
            double = _in_double_precision(node)
            return _call("_culmen_figures", double, digits if self._share else _FIGURES)
        if name in DEFAULT_SIZES:
            return self._with_tolerance(node)
        decimals = rounded_decimals(node)
        if decimals is None or name in ("int", "floor", "trunc"):
            return _call("_culmen_floor", node.args[0], 1 if self._share else _FIGURES)
        return self._with_decimals(node, decimals + 1 if self._share else _FIGURES)

    def _with_tolerance(self, node: ast.Call) -> ast.Call:
        """A call of `isclose` with a share of the default tolerance."""
        of_math = ast.unparse(node.func).startswith("math.")
        default = 1e-9 if of_math else DEFAULT_SIZES[called_name(node)]
        size = max(self._share * default, _SMALLEST)
        names = ("rel_tol",) if of_math else ("rtol", "atol")
        node.keywords += [ast.keyword(name, ast.Constant(size)) for name in names]
        return node

    def _with_decimals(self, node: ast.Call, decimals: int) -> ast.Call:
        """A call that rounds to more decimals."""
        node.keywords = [k for k in node.keywords if k.arg not in ("decimals", "ndigits")]
        is_method = isinstance(node.func, ast.Attribute) and not is_of_numpy(node)
        node.args = [*node.args[: 0 if is_method else 1], ast.Constant(decimals)]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if self._strict and is_ordering(node):
            node.left = _call("_culmen_number", node.left)
            node.comparators = [_call("_culmen_number", each) for each in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        builtin = isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "sorted")
        if self._strict and builtin and not any(isinstance(n, ast.Starred) for n in node.args):
            helper = "_culmen_numbers" if len(node.args) == 1 else "_culmen_number"
            node.args = [_call(helper, each) for each in node.args]
        elif self._strict and leaves_nan_out(node):
            node.args = [_call("_culmen_number", each) for each in node.args]
        return node


def _call(name: str, value: ast.expr, *more: int) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [value, *map(ast.Constant, more)], [])


def _in_double_precision(node: ast.Call) -> ast.expr:
    """The call, with its type replaced by double precision; the number of `float32(x)`."""
    if called_name(node) in FIGURES_BY_TYPE:
        return node.args[0]
    double = ast.Name("float", ast.Load())
    for keyword in node.keywords:
        if keyword.arg == "dtype":
            keyword.value = double
    first = 0 if called_name(node) == "astype" else 1
    if not any(keyword.arg == "dtype" for keyword in node.keywords):
        node.args[first] = double
    return node
