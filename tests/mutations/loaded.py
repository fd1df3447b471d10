"""Trials in a process that has loaded the tests: a changed function replaces the old one.

A pytest plugin. It runs the tests once to learn which lines of a module each of them executes and
how long it takes. Then each place is tried in a fork, with the tests that execute its line: those
that have noticed much in little time first, until one fails. Hypothesis draws the same examples in
every trial and seeks no smaller ones.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import _lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.mutations.places import Place, mutated

PATIENCE = 10.0  # seconds, beyond five times what its tests take, after which a trial counts as noticed: it hangs
Report = Callable[[Place, str, str, float], None]


class Plan:
    """Lines and seconds of each test, and the tests to try a place with."""

    def __init__(self, module: Path, enough: float) -> None:
        self._enough = enough
        self._spans = spans(ast.parse(module.read_text()))
        self.lines: dict[str, set[int]] = {}
        self.loading: set[int] = set()  # the lines executed as the module is loaded
        self.seconds: dict[str, float] = {}
        self.kills: Counter[str] = Counter()

    def tests_for(self, place: Place) -> list[str]:
        """The tests that execute the place's statement.

        For code that runs as the module is loaded: all tests that enter the module.
        """
        span = set() if self.loads(place) else self._spans[place.number]
        useful = [test for test, seen in self.lines.items() if (seen & span if span else seen)]
        useful.sort(key=lambda test: (self.seconds[test] + 0.003) / (1 + self.kills[test]))
        spent = list(accumulate(map(self.seconds.__getitem__, useful)))
        return [
            test for test, total in zip(useful, spent, strict=True) if total <= self._enough
        ] or useful[:1]

    def loads(self, place: Place) -> bool:
        """True if a place is executed as the module is loaded."""
        span = self._spans.get(place.number)
        return span is None or bool(span & self.loading)


def spans(tree: ast.Module) -> dict[int, set[int]]:
    """The lines of the statement of each node in a function's body, by the node's number.

    Of a compound statement they are those of its head. Code that is evaluated as a module is loaded
    has none: defaults, decorators, the bodies of classes.
    """
    found: dict[ast.AST, set[int]] = {}

    def enter(node: ast.AST, inside: bool, span: set[int] | None) -> None:
        if isinstance(node, ast.stmt) and inside:
            span = set(range(node.lineno, _head(node) + 1))
        if span is not None and inside:
            found[node] = span
        for name, value in ast.iter_fields(node):
            within = inside or (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body"
            )
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    enter(each, within, span)

    enter(tree, False, None)
    return {number: found[node] for number, node in enumerate(ast.walk(tree)) if node in found}


def _head(node: ast.stmt) -> int:
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return max(node.lineno, first.lineno - 1)


class Trials:
    """The plugin, which reports every place that was tried to `report`.

    `left` are the places that need a process of their own.
    """

    def __init__(self, module: Path, places: list[Place], report: Report, enough: float) -> None:
        self._module, self._places, self._report = module, places, report
        self.plan = Plan(module, enough)
        self.left: list[Place] = []
        self.broken: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "trial", settings(), phases=phases, derandomize=True, database=None
        )
        settings.load_profile("trial")
        sys.settrace(_watching(str(self._module), self.plan.loading))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        sys.settrace(None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()  # what tests/conftest.py froze is not among the objects in which functions are looked for
        items = {item.nodeid: item for item in session.items}
        self._learn(items, traced=True)
        self._learn(
            {
                test: items[test]
                for test in sorted(self.plan.seconds, key=self.plan.seconds.__getitem__)
            },
            False,
        )
        functions = _functions(self._module)
        for place in self._places:
            code = changed_function(self._module, place)
            if code is None or not functions.get(_key(code)) or self.plan.loads(place):
                self.left.append(place)
                continue
            tests = self.plan.tests_for(place)
            began = time.monotonic()
            result, killer = self._try([items[test] for test in tests], functions[_key(code)], code)
            if result == "misfit":
                self.left.append(place)
                continue
            self.plan.kills[killer] += bool(killer)
            self._report(
                place, result if tests else "not executed", killer, time.monotonic() - began
            )
        return True

    def _learn(self, items: dict[str, pytest.Item], traced: bool) -> None:
        """Run every test once in a fork; those that fail on the unchanged module are left out."""
        source, sink = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                _quiet()
                with os.fdopen(sink, "w") as told:
                    _tell(list(items.values()), str(self._module) if traced else "", told)
            finally:
                os._exit(0)
        os.close(sink)
        with os.fdopen(source) as told:
            rows = [json.loads(row) for row in told]
        for row in rows:
            test = row["test"]
            if traced:
                self.plan.lines[test] = set(row["lines"])
            if row["passed"]:
                self.plan.seconds[test] = row["seconds"]
            else:
                self.broken.append(test)
                self.plan.lines.pop(test, None)
        os.waitpid(pid, 0)

    def _try(
        self, items: list[pytest.Item], functions: list[FunctionType], code: CodeType
    ) -> tuple[str, str]:
        source, sink = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.setpgid(0, 0)
                _quiet()
                os.write(sink, json.dumps(_outcome(items, functions, code)).encode())
            finally:
                os._exit(0)
        ended = waited(pid, PATIENCE + 5 * sum(self.plan.seconds[item.nodeid] for item in items))
        os.write(sink, b"\n")
        said = os.read(source, 10_000).strip()
        os.close(sink)
        os.close(source)
        if not ended:
            return "hangs", ""
        return (
            tuple(json.loads(said)) if said else ("noticed", "")
        )  # nothing: the process ended with the test


def waited(pid: int, patience: float) -> bool:
    """Wait for a forked group of processes, then kill all that it leaves behind.

    Returns True if it ends in time.
    """
    end = time.monotonic() + patience
    done = 0
    while not done and time.monotonic() < end:
        done, _ = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.0 if done else 0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, 9)
    if not done:
        os.waitpid(pid, 0)
    return bool(done)


def _outcome(
    items: list[pytest.Item], functions: list[FunctionType], code: CodeType
) -> tuple[str, str]:
    try:
        for function in functions:
            function.__code__ = code
    except ValueError:  # it closes over other names now
        return "misfit", ""
    for item, following in zip(items, [*items, None][1:], strict=True):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return "noticed", item.nodeid
    return "survived", ""


def _tell(items: list[pytest.Item], traced: str, told: Any) -> None:
    seen: set[int] = set()
    call = _watching(traced, seen)
    caches = [
        each
        for each in gc.get_objects()
        if type(each) is _lru_cache_wrapper and "culmen" in each.__module__
    ]
    for item, following in zip(items, [*items, None][1:], strict=True):
        seen.clear()
        for cached in caches:  # else only the first test is seen to execute what is cached
            cached.cache_clear()
        began = time.monotonic()
        if traced:
            threading.settrace(call)
            sys.settrace(call)
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(None)
        passed = not any(report.failed for report in reports)
        row = {
            "test": item.nodeid,
            "seconds": time.monotonic() - began,
            "passed": passed,
            "lines": sorted(seen),
        }
        told.write(json.dumps(row) + "\n")
        told.flush()


def _watching(file: str, seen: set[int]) -> Callable[[Any, str, Any], Any]:
    """A trace function that notes the lines of a file that are executed."""

    def line(frame: Any, event: str, _: Any) -> Any:
        seen.add(frame.f_lineno)
        return line

    def call(frame: Any, event: str, _: Any) -> Any:
        return line(frame, event, _) if frame.f_code.co_filename == file else None

    return call


def _quiet() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _functions(module: Path) -> dict[tuple[str, int], list[FunctionType]]:
    """The live functions of a module."""
    found: dict[tuple[str, int], list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == str(module):
            found.setdefault(_key(each.__code__), []).append(each)
    return found


def changed_function(module: Path, place: Place) -> CodeType | None:
    """The outermost function that a change changes.

    None if it changes code that runs as the module is loaded.
    """
    text = module.read_text()
    before = compile(text, str(module), "exec")
    after = compile(mutated(text, place), str(module), "exec")
    return _difference(before, after)


def _difference(before: CodeType, after: CodeType) -> CodeType | None:
    if before.co_code != after.co_code or len(before.co_consts) != len(after.co_consts):
        return None
    differing: list[tuple[Any, Any]] = []
    for one, other in zip(before.co_consts, after.co_consts, strict=True):
        if not (type(one) is type(other) and one == other):
            differing.append((one, other))
    if len(differing) != 1 or not all(isinstance(each, CodeType) for each in differing[0]):
        return None
    one, other = differing[0]
    optimised = 0x1  # CO_OPTIMIZED: a function; without, the body of a class
    return other if one.co_flags & optimised else _difference(one, other)
