"""Tasks made of a caller's input: a folder, or a Python function with its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.task import (
    Evaluator,
    Limits,
    Objective,
    Task,
    digest_pieces,
    parse_constraint,
    parse_direction,
    parse_metric_goals,
)


def folder_task(
    path: str | Path, seed: Any, goal: str, direction: str = "", proxy: str = ""
) -> Task:
    """The task on disk, with the caller's own goal, initial programs, direction or proxy."""
    from culmen.evaluate.taskfiles import load, with_proxy

    task = load(path, goal=goal, seeds=_seed_parts(seed), direction=direction)
    return with_proxy(task, proxy) if proxy else task


def function_task(
    seed: Any,
    cases: Iterable[Any],
    goal: str,
    direction: str,
    name: str,
    deterministic: bool | None,
    limits: Limits | None,
    evaluator: Callable[..., Any],
    objectives: Mapping[str, Any] | None = None,
    constraints: Iterable[str] = (),
) -> Task:
    """A task judged by a Python function."""
    listed = tuple(c if isinstance(c, Case) else Case(str(i), input=c) for i, c in enumerate(cases))
    code = getattr(evaluator, "__code__", None)
    digest = digest_pieces(
        getattr(evaluator, "__qualname__", ""), code.co_code if code else b"", repr(listed)
    )
    return Task(
        name=name,
        goal=goal,
        seeds=_seed_parts(seed),
        evaluator=Evaluator(
            form="function",
            digest=digest,
            options={"parts": True} if _has_mapped_seeds(seed) else {},
        ),
        cases=listed,
        objective=_build_objective(direction, objectives, constraints),
        limits=limits or Limits(),
        deterministic=deterministic,
        digest=digest,
    )


def _build_objective(
    direction: str, objectives: Mapping[str, Any] | None, constraints: Iterable[str]
) -> Objective:
    """One score in its direction, or several objectives."""
    limits = tuple(
        map(parse_constraint, (constraints,) if isinstance(constraints, str) else constraints)
    )
    if not objectives:
        if limits:
            fix = 'name what is optimised, too: objectives={"accuracy": "max"}'
            raise UserError("constraints need objectives", where="constraints=", fix=fix)
        return Objective(direction=parse_direction(direction))
    if direction != "max":
        fix = (
            f'leave direction out: objectives={{"{next(iter(objectives))}": "{direction}"}} says it'
        )
        raise UserError("direction is that of a single score", where="direction=", fix=fix)
    return Objective(metrics=parse_metric_goals(objectives), constraints=limits)


def _has_mapped_seeds(seed: Any) -> bool:
    """True if initial programs were given as dicts of parts: the evaluator gets dicts, too."""
    several = seed if isinstance(seed, list | tuple) else ()
    return isinstance(seed, Mapping) or any(isinstance(item, Mapping) for item in several)


def _seed_parts(seed: Any) -> tuple[dict[str, str], ...]:
    """Texts, files, mappings, or several of them, as initial programs."""
    if seed is None:
        return ()
    if isinstance(seed, Mapping):
        return ({str(k): str(v) for k, v in seed.items()},)
    if isinstance(seed, Path) or (
        isinstance(seed, str) and "\n" not in seed and seed.endswith((".py", ".txt", ".md"))
    ):
        path = Path(seed)
        if not path.is_file():
            raise UserError(
                f"there is no file '{seed}' to take as an initial program",
                where=str(path.resolve()),
                fix="check the path",
            )
        return ({path.name: path.read_text(encoding="utf-8")},)
    if isinstance(seed, str):
        return ({"candidate": seed},)
    if not isinstance(seed, Iterable):
        raise UserError(
            f"a {type(seed).__name__} cannot be an initial program",
            where="seed=",
            fix='pass its text, a Path, a mapping {"part": text}, or a list of these',
        )
    named = [parts for item in seed for parts in _seed_parts(item)]
    if all(
        isinstance(item, Path) for item in seed
    ):  # files are versions of one part, whatever they are called
        first = next(iter(named[0]))
        named = [{first: next(iter(parts.values()))} for parts in named]
    return tuple(named)
