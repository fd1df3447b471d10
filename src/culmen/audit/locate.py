"""Lines of an evaluator that an attack exploits, found in its syntax tree.

No code is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from culmen.audit.attack import EvaluatorLine
from culmen.core.task import Task

_MOST = 4  # places reported for one cause
_LARGEST = 1e-2  # largest constant that counts as a tolerance
_NAMED = re.compile(r"tol|slack|eps|margin|threshold", re.I)
_REPORTED = re.compile(r"reported|claimed|returned", re.I)


def evaluator_sources(task: Task) -> dict[str, str]:
    """Texts of the evaluator and of the modules beside it that it imports, by file name."""
    if not task.evaluator.path:
        return {}
    path = Path(task.evaluator.path)
    main = path.read_text(encoding="utf-8", errors="replace")
    skipped = {path.name, Path(task.evaluator.verifier).name}
    imported = [
        sibling
        for sibling in sorted(path.parent.glob("*.py"))
        if sibling.name not in skipped and f"import {sibling.stem}" in main
    ]
    imported += [
        sibling
        for sibling in sorted(path.parent.glob("*.py"))
        if sibling.name not in skipped and f"from {sibling.stem} " in main
    ]
    return {
        path.name: main,
        **{
            sibling.name: sibling.read_text(encoding="utf-8", errors="replace")
            for sibling in imported
        },
    }


class Constant:
    """A tolerance in a text: the place of its number.

    For a `close` call without a tolerance of its own, the place is the call.
    """

    def __init__(self, file: str, node: ast.expr, line: int) -> None:
        self.file, self.node, self.line = file, node, line


def tolerance_constants(file: str, text: str) -> list[Constant]:
    """Tiny numbers that comparisons use, directly, by a name, or as a tolerance argument."""
    tree = syntax_tree(text)
    if tree is None:
        return []
    constants: dict[tuple[int, int], Constant] = {}
    used = {
        n.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for n in ast.walk(node)
        if isinstance(n, ast.Name)
    }
    for node in ast.walk(tree):
        for number in _tolerance_nodes(node, used):
            constants.setdefault(
                (number.lineno, number.col_offset), Constant(file, number, number.lineno)
            )
    return [constants[key] for key in sorted(constants)]


def _tolerance_nodes(node: ast.AST, used: set[str]) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            yield from (n for n in ast.walk(node) if _is_tiny_float(n))  # pyright: ignore[reportReturnType]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_tiny_float(value) and (
            name in used or _NAMED.search(name)
        ):
            yield value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_tiny_float(
            value
        ):
            yield value
        case ast.keyword(arg=str(name), value=value) if _is_tiny_float(value) and _NAMED.search(
            name
        ):
            yield value
        case ast.FunctionDef(args=args):
            pairs = [
                *zip(reversed([*args.posonlyargs, *args.args]), reversed(args.defaults)),
                *zip(args.kwonlyargs, args.kw_defaults),
            ]
            yield from (
                value
                for arg, value in pairs
                if value is not None
                and _is_tiny_float(value)
                and (arg.arg in used or _NAMED.search(arg.arg))
            )
        case ast.Call(func=ast.Attribute(attr="isclose" | "allclose"), keywords=keywords) if (
            len(node.args) < 3
        ):
            if not any(
                keyword.arg in ("atol", "abs_tol", "rel_tol", "rtol") for keyword in keywords
            ):
                yield node
        case _:
            return


def _is_tiny_float(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and type(node.value) is float
        and 0 < abs(node.value) <= _LARGEST
    )


_TIGHT = "1e-12"


def tightened_text(text: str, constant: Constant, share: float = 0.0) -> str:
    """The text with one tolerance reduced to `share` of its value, at least to 1e-12."""
    node, lines = constant.node, text.splitlines(keepends=True)
    line, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    last = lines[end].encode()
    if isinstance(node, ast.Call):  # isclose(a, b) -> isclose(a, b, rtol=0, atol=1e-12)
        offset = (node.end_col_offset or 0) - 1
        exact = "math." in ast.unparse(node.func)
        # a share of the default relative tolerance of these functions
        tight = repr(share * (1e-9 if exact else 1e-5)) if share else _TIGHT
        word = (
            ("rel_tol=0, abs_tol" if not share else "rel_tol")
            if exact
            else ("rtol=0, atol" if not share else "rtol")
        )
        lines[end] = (last[:offset] + f", {word}={tight}".encode() + last[offset:]).decode()
        return "".join(lines)
    smaller = float(_TIGHT)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        smaller = max(share * abs(node.value), smaller)
    first = lines[line].encode()
    lines[line] = (
        first[: node.col_offset] + repr(smaller).encode() + first[node.end_col_offset or 0 :]
    ).decode()
    return "".join(lines)


def tightened_sources(sources: Mapping[str, str], share: float = 0.0) -> dict[str, str]:
    """Files with tolerances, by name, with all of theirs reduced."""
    changed: dict[str, str] = {}
    for file, text in sources.items():
        for constant in reversed(tolerance_constants(file, text)):
            changed[file] = text = tightened_text(text, constant, share)
    return changed


# -- causes
# ------------------------------------------------------------------------------


def evaluator_lines(cause: str, sources: Mapping[str, str]) -> tuple[EvaluatorLine, ...]:
    """Lines for a cause in the order of the text, at most `_MOST`."""
    finder = _FINDERS.get(cause)
    exploited: list[EvaluatorLine] = []
    for file, text in sources.items():
        tree, lines, known_lines = syntax_tree(text), text.splitlines(), set[int]()
        for line, why in finder(tree) if finder and tree else ():
            if line not in known_lines:
                known_lines.add(line)
                exploited.append(EvaluatorLine(file, line, lines[line - 1].strip(), why))
    return tuple(exploited[:_MOST])


Findings = Iterable[tuple[int, str]]


def _tolerance_lines(tree: ast.Module) -> Findings:
    used = {
        n.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for n in ast.walk(node)
        if isinstance(n, ast.Name)
    }
    lines = {number.lineno for node in ast.walk(tree) for number in _tolerance_nodes(node, used)}
    why = "violations of this size are accepted: check exactly, or repair the output first"
    return [(line, why) for line in sorted(lines)]


def _finite_lines(tree: ast.Module) -> Findings:
    """The first comparison of each function; without any, the evaluator's entry."""
    calls = {
        ast.unparse(n.func).rpartition(".")[2] for n in ast.walk(tree) if isinstance(n, ast.Call)
    }
    if "isfinite" in calls:
        why = "finiteness is checked elsewhere, but not before this comparison"
    else:
        why = "NaN makes this comparison false: refuse non-finite values before it"
    lines: list[tuple[int, str]] = []
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        lines += [(line, why) for line in sorted(_ordering_lines(function))[:1]]
    return sorted(lines) or _entry_lines(tree, "non-finite numbers are not refused anywhere here")


def _ordering_lines(tree: ast.AST) -> set[int]:
    """Lines with a comparison of sizes."""
    compared = (n for n in ast.walk(tree) if isinstance(n, ast.Compare))
    return {
        n.lineno
        for n in compared
        if any(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in n.ops)
    }


def _reported_lines(tree: ast.Module) -> Findings:
    """Lines in which a value from the output reaches a returned score."""
    unpacked = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
        for name in node.targets[0].elts
        if isinstance(name, ast.Name)
    }
    lines: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Return | ast.Assign) or node.value is None:
            continue
        names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        trusted = {name for name in names if _REPORTED.search(name)} or (
            names & unpacked if isinstance(node, ast.Return) else set()
        )
        if trusted:
            lines.append(
                (
                    node.lineno,
                    f"'{sorted(trusted)[0]}' comes from the candidate: use the value computed here",
                )
            )
    return sorted(lines) or _entry_lines(
        tree, "a number that the candidate reports reaches the score"
    )


def _import_lines(tree: ast.Module) -> Findings:
    wanted = (
        "exec_module",
        "import_module",
        "__import__",
        "exec",
        "load_module",
        "run_path",
        "spec_from_file_location",
    )
    why = "the candidate's code runs in this process from here on"
    return [
        (n.lineno, why) for n in _calls_by_line(tree) if _called_name(n) in wanted
    ] or _entry_lines(tree, "the candidate shares this process")


def _stdout_lines(tree: ast.Module) -> Findings:
    why = "the printed output of the candidate's process is taken for a result"
    return [
        (n.lineno, why)
        for n in _calls_by_line(tree)
        if _called_name(n) in ("loads", "check_output", "communicate", "run", "Popen")
    ]


def _file_lines(tree: ast.Module) -> Findings:
    why = "this file may be the candidate's"
    return [
        (n.lineno, why)
        for n in _calls_by_line(tree)
        if _called_name(n) in ("load", "loads", "open", "read_text", "loadtxt", "read_bytes")
    ]


def _answer_lines(tree: ast.Module) -> Findings:
    why = "candidates can read files here"
    return [
        (n.lineno, why)
        for n in _calls_by_line(tree)
        if _called_name(n) in ("open", "load", "loadtxt", "read_text", "read_csv", "read_bytes")
    ]


def _type_lines(tree: ast.Module) -> Findings:
    why = "turn the output into plain numbers before this"
    return [(line, why) for line in sorted(_ordering_lines(tree))] or _entry_lines(tree, why)


def _random_lines(tree: ast.Module) -> Findings:
    why = "draws from the generator that the candidate can seed"
    calls = [
        n
        for n in _calls_by_line(tree)
        if re.match(r"(np|numpy)\.random\.|random\.", ast.unparse(n.func))
    ]
    return [
        (n.lineno, why)
        for n in calls
        if _called_name(n) not in ("default_rng", "Random", "RandomState", "seed")
    ]


def _clock_lines(tree: ast.Module) -> Findings:
    wanted = ("time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "timeit")
    why = "this clock can be the candidate's"
    return [
        (n.lineno, why)
        for n in _calls_by_line(tree)
        if _called_name(n) in wanted
        and ast.unparse(n.func).startswith(("time", "perf", "mono", "proc"))
    ]


def _ratio_lines(tree: ast.Module) -> Findings:
    why = "the divisor may underflow: normalise first"
    return [
        (n.lineno, why)
        for n in ast.walk(tree)
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)
    ]


def _repeat_lines(tree: ast.Module) -> Findings:
    why = "calls in this loop may repeat their inputs"
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.While)]
    return [
        (n.lineno, why) for n in loops if any(isinstance(node, ast.Call) for node in ast.walk(n))
    ]


_FINDERS: dict[str, Callable[[ast.Module], Findings]] = {
    "tolerance": _tolerance_lines,
    "finite": _finite_lines,
    "reported": _reported_lines,
    "import": _import_lines,
    "stdout": _stdout_lines,
    "files": _file_lines,
    "answers": _answer_lines,
    "types": _type_lines,
    "random": _random_lines,
    "clock": _clock_lines,
    "ratio": _ratio_lines,
    "repeats": _repeat_lines,
}


def _calls_by_line(tree: ast.Module) -> list[ast.Call]:
    return sorted((n for n in ast.walk(tree) if isinstance(n, ast.Call)), key=lambda n: n.lineno)


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _entry_lines(tree: ast.Module, why: str) -> Findings:
    wanted = ("score", "evaluate", "drive")
    return [
        (n.lineno, why)
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in wanted
    ]


def syntax_tree(text: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
