"""Lines of an evaluator that an attack exploits, found in its syntax tree.

No code is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from culmen.extensions.audit.attack import EvaluatorLine
from culmen.extensions.audit.tolerances import ordering_lines, syntax_tree, tolerance_numbers

_MOST = 4  # places reported for one cause
_REPORTED = re.compile(r"reported|claimed|returned", re.I)


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
    lines = {number.lineno for number in tolerance_numbers(tree)}
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
        lines += [(line, why) for line in ordering_lines(function)[:1]]
    return sorted(lines) or _entry_lines(tree, "non-finite numbers are not refused anywhere here")


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


def _type_lines(tree: ast.Module) -> Findings:
    why = "turn the output into plain numbers before this"
    return [(line, why) for line in ordering_lines(tree)] or _entry_lines(tree, why)


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


# why, a pattern of the called name, and why the entry if there is no such call
_CALLS = {
    "import": (
        "the candidate's code runs in this process from here on",
        "exec_module|import_module|__import__|exec|load_module|run_path|spec_from_file_location",
        "the candidate shares this process",
    ),
    "stdout": (
        "the printed output of the candidate's process is taken for a result",
        "loads|check_output|communicate|run|Popen",
        "",
    ),
    "files": (
        "this file may be the candidate's",
        "load|loads|open|read_text|loadtxt|read_bytes",
        "",
    ),
    "answers": (
        "candidates can read files here",
        "open|load|loadtxt|read_text|read_csv|read_bytes",
        "",
    ),
    "random": (
        "draws from the generator that the candidate can seed",
        r"(?!default_rng$|Random$|RandomState$|seed$)\w+",
        "",
    ),
    "clock": (
        "this clock can be the candidate's",
        "time|perf_counter|monotonic|process_time|perf_counter_ns|timeit",
        "",
    ),
}


# of the name as it is written
_BEGINS = {"random": r"(np|numpy)\.random\.|random\.", "clock": "time|perf|mono|proc"}


def _call_lines(tree: ast.Module, cause: str) -> Findings:
    why, pattern, otherwise = _CALLS[cause]
    calls = sorted(
        (n.lineno, ast.unparse(n.func)) for n in ast.walk(tree) if isinstance(n, ast.Call)
    )
    begin = _BEGINS.get(cause, "")
    found = [
        (line, why)
        for line, name in calls
        if re.match(begin, name) and re.fullmatch(pattern, name.rpartition(".")[2])
    ]
    return found or (_entry_lines(tree, otherwise) if otherwise else [])


def _entry_lines(
    tree: ast.Module, why: str, wanted: tuple[str, ...] = ("score", "evaluate", "drive")
) -> Findings:
    return [
        (n.lineno, why)
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in wanted
    ]


_FINDERS: dict[str, Callable[[ast.Module], Findings]] = {
    "tolerance": _tolerance_lines,
    "finite": _finite_lines,
    "reported": _reported_lines,
    "types": _type_lines,
    "ratio": _ratio_lines,
    "repeats": _repeat_lines,
    **{cause: partial(_call_lines, cause=cause) for cause in _CALLS},
    "size": partial(
        _entry_lines, why="no number is refused for its size: limit what can be an answer"
    ),
    "answer": partial(
        _entry_lines,
        why="an answer without work passes here",
        wanted=("check", "score", "evaluate", "drive"),
    ),
}
