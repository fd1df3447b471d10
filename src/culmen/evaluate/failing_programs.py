"""Programs that fail on purpose: what they score shows if failing pays.

An evaluator that catches every error and returns 0 rewards a crash wherever working programs score
less. `failing_programs` makes such programs from an initial program; those that a form of evaluator
never gets to see, since culmen refuses them itself, are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case
from culmen.core.foreign import parse_python, parse_python_or_none
from culmen.core.ports import Backend
from culmen.core.task import Evaluator, Task
from culmen.jail.forms import has_own_backend, takes_path

_RAISE = 'raise RuntimeError("this program fails on purpose")'
_CONTROL = _RAISE.replace("raise", "assert")  # the same text, without an effect
_NO_PROGRAM = "This text is no program.\n"
_COMPILED = (
    *(".c", ".cc", ".cpp", ".cu", ".f90", ".go", ".java", ".jl", ".js", ".lean", ".metal"),
    *(".ml", ".rs", ".swift", ".ts"),
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class FailingProgram(NamedTuple):
    """A program that fails; `does` is the way ("raises"). `is_crash`: it surely does no work.

    `control` has nearly the same text and works: a function may score texts without running them.
    """

    does: str
    candidate: Candidate
    is_crash: bool = True
    control: Candidate | None = None


class FailingResult(NamedTuple):
    """Mean scores of a failing program and of its control over the cases tried.

    None without a score, or without a control.
    """

    program: FailingProgram
    score: float | None
    control: float | None = None


def failing_programs(task: Task, initial: Candidate) -> list[FailingProgram]:
    """Programs that raise and that return nothing, made from an initial program.

    None where the candidate is not known to be a program: a prompt, or a text for a function.
    """
    evaluator, parts = task.evaluator, dict(initial.parts)
    if has_own_backend(task) or (evaluator.form == "call" and not evaluator.entry):
        return []
    part = evaluator.module if evaluator.module in parts else next(iter(parts), "")
    text, suffix = parts.get(part, ""), _suffix_of(evaluator, part)
    if suffix not in ("", ".py"):
        variants = [("is no program", _NO_PROGRAM, True)] if suffix in _COMPILED else []
    else:
        variants = _python_variants(text, evaluator)
    control = None
    if evaluator.form == "function" and variants:
        control = Candidate.of({**parts, part: f"{_CONTROL}\n{text}"})
    return [
        FailingProgram(does, Candidate.of({**parts, part: changed}), is_crash, control)
        for does, changed, is_crash in variants
    ]


def _suffix_of(evaluator: Evaluator, part: str) -> str:
    if takes_path(evaluator.form):
        return evaluator.suffix
    name, dot, ending = part.rpartition(".")
    return f".{ending}" if dot and name else ""


def _python_variants(text: str, evaluator: Evaluator) -> list[tuple[str, str, bool]]:
    """Changed texts of a Python program, and the ways they fail; none if it is no such program.

    A program without functions, such as `x = 1`, raises before its first line.
    """
    tree = parse_python_or_none(text)
    if tree is None or all(isinstance(node, ast.Expr) for node in tree.body):
        return []
    if not any(isinstance(node, _DEFINITIONS) for node in ast.walk(tree)):
        return [("raises", f"{_RAISE}\n{text}", True)]
    empty = "return []" if evaluator.form == "call" else "return None"  # culmen itself refuses None
    returns = "an empty list" if evaluator.form == "call" else "nothing"
    try:
        variants = [(f"returns {returns}", _with_bodies(text, empty), False)]
        if evaluator.form != "call":  # there culmen refuses a program that raises
            variants.insert(0, ("raises", _with_bodies(text, _RAISE), True))
    except (RecursionError, ValueError):  # too deep, or a number too long, to be written anew
        return []
    return variants


def _with_bodies(text: str, statement: str) -> str:
    """The program with one statement in place of the body of every function."""
    tree = parse_python(text)
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            node.body = parse_python(f"def f():\n    {statement}").body[0].body  # pyright: ignore
    return ast.unparse(tree)


async def try_failing_programs(
    backend: Backend, programs: Sequence[FailingProgram], cases: Sequence[Case | None]
) -> list[FailingResult]:
    """The result of each program, evaluated once on each case until one gives no score."""
    results = list[FailingResult]()
    for program in programs:
        mean, control = await _mean_score(backend, program.candidate, cases), None
        if mean is not None and program.control is not None:
            control = await _mean_score(backend, program.control, cases)
        results.append(FailingResult(program, mean, control))
    return results


async def _mean_score(
    backend: Backend, candidate: Candidate, cases: Sequence[Case | None]
) -> float | None:
    scores = list[float]()
    for case in cases:
        score = (await backend.evaluate(candidate, case, 0)).score
        if score is None:
            return None
        scores.append(score)
    return fmean(scores)
