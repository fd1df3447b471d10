"""From what a person passes to what a run is made of: tasks, seeds, folders, and the run's description."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.task import Evaluator, Limits, Objective, Task, fingerprint
from culmen.core.usage import Budget

if TYPE_CHECKING:
    from culmen.store.meta import RunMeta
    from culmen.study import Parts


def check_runnable(task: Task, strategy: Any, model: Any, budget: Budget, parts: Mapping[str, Any]) -> None:
    """Refuse what could never start or never end."""
    check_ends(strategy, model, budget, parts)
    alone = model == "offline" and parts.get("proposer") is None and not getattr(strategy, "writes", False)
    if not task.seeds and alone:
        uses = ", ".join(task.evaluator.options.get("uses", ()))
        raise UserError(
            "a task without a seed needs a model to write the first candidate",
            where=f"task {task.name}",
            fix=f"give a first program{f' that defines {uses}' if uses else ''} with --seed-program FILE, or choose a "
            "model with --model NAME, or an agent with --agent NAME",
        )


def check_ends(strategy: Any, model: Any, budget: Budget, parts: Mapping[str, Any]) -> None:
    """Refuse what could never end: no budget, or one of which nothing is ever spent."""
    if not budget.bounded:
        raise UserError("nothing ends this run", where="budget", fix="give a budget, for example evaluations=200")
    if budget.evaluations is None and budget.seconds is None and _free(strategy, model, parts):
        named = [name for name in ("dollars", "calls", "tokens") if getattr(budget, name) is not None]
        raise UserError(
            f"nothing ends this run: the offline model spends no {' or '.join(named)}",
            where="budget",
            fix="limit evaluations=200 or seconds=600 as well, or choose a model with --model NAME",
        )


def level(task: Task, wanted: float | str | None) -> float | None:
    """The score at which a search is to end; `target` is the task's own. Raises UserError where that says nothing."""
    if wanted is None or isinstance(wanted, float | int):
        return None if wanted is None else float(wanted)
    if wanted.strip().lower() == "target":
        if task.objective.target is None:
            raise UserError("this task declares no target", where="--stop-at target", fix="write --stop-at SCORE")
        return task.objective.target
    if wanted.strip().lower() in ("none", "off"):
        return None
    try:
        score = float(wanted)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        fix = "write a number, target for the task's own, or none"
        raise UserError(f"'{wanted}' is no score", where="--stop-at", fix=fix)
    return score


def _free(strategy: Any, model: Any, parts: Mapping[str, Any]) -> bool:
    """Whether nothing this run does is ever paid for: the offline proposer, no agents, embedders in this process."""
    proposer, embedder = parts.get("proposer"), parts.get("embedder")
    if model != "offline" or getattr(strategy, "writes", False) or parts.get("crafts") or parts.get("world"):
        return False
    if proposer is not None:
        from culmen.offline.proposer import OfflineProposer

        if not isinstance(proposer, OfflineProposer):
            return False
    return embedder is None or (isinstance(embedder, str) and "/" not in embedder.partition(":")[0])


def meta(
    path: Path, task: Task, strategy: Any, model: Any, budget: Budget, seed: int, workers: int | None, parts: Any
) -> RunMeta:
    """What the journal must know to resume this run; never a key."""
    from culmen.core import VERSION
    from culmen.evaluate.cluster import choice
    from culmen.evaluate.integrity import guard
    from culmen.store.meta import RunMeta

    backend = parts.get("backend")
    if backend is not None and not hasattr(backend, "evaluate"):
        backend = choice.as_choice(backend)
        choice.check(backend)
    named = (
        model
        if isinstance(model, str | dict) or model is None
        else f"{type(model).__module__}:{type(model).__qualname__}"
    )
    return RunMeta(
        id=path.name,
        task=task,
        strategy=strategy,
        models=dict(named) if isinstance(named, dict) else {"default": str(named)},
        budget=budget,
        seed=seed,
        workers=workers or choice.usual_workers(backend),
        created=time.time(),
        culmen=VERSION,
        python=platform.python_version(),
        platform=sys.platform,
        extra={
            "model": named,
            "embedder": _embedder_name(parts.get("embedder")),
            "models_file": parts.get("models_file"),
            "require": parts.get("require"),
            "fork_of": parts.get("fork_of"),
            "integrity": guard.parse_policy(parts.get("integrity")),
            **({"backend": msgspec.to_builtins(backend)} if isinstance(backend, choice.BackendChoice) else {}),
            "stop_at": parts.get("stop_at"),
        },
    )


def _embedder_name(embedder: Any) -> str:
    return embedder if isinstance(embedder, str) else getattr(embedder, "name", "hashing")


def revive(meta: RunMeta, parts: Parts) -> Any:
    """The run's strategy: the object given, else the one described in its journal."""
    from culmen.strategies import catalog

    return parts.strategy or catalog.revive(meta.strategy["path"], meta.strategy["config"])


def new_path(task: Task, run_dir: str | Path | None) -> Path:
    """The folder of a new run: as asked, else runs/NAME-TIME, numbered if that exists."""
    if run_dir is not None:
        return Path(run_dir).expanduser().resolve()
    stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in task.name) or "run"
    base = Path("runs").resolve() / f"{stem}-{time.strftime('%m%d-%H%M%S')}"
    return next(
        p for n in range(1, 10_000) if not (p := base if n == 1 else base.with_name(f"{base.name}-{n}")).exists()
    )


def folder_task(path: str | Path, seed: Any, goal: str, direction: str = "", proxy: str = "") -> Task:
    """The task on disk, with a goal, seeds, a direction or a way of evaluating of the caller's own."""
    from culmen.evaluate.taskfiles import load, with_proxy

    task = load(path, goal=goal, seeds=_seed_parts(seed), direction=direction)
    return with_proxy(task, proxy) if proxy else task


def as_it_is(task: Task) -> Task:
    """The task with its evaluator's files as they are now."""
    from culmen.evaluate.taskfiles import as_it_is

    return as_it_is(task)


def function_task(
    seed: Any,
    cases: Iterable[Any],
    goal: str,
    direction: str,
    name: str,
    deterministic: bool,
    limits: Limits | None,
    evaluator: Callable[..., Any],
) -> Task:
    """A task judged by a Python function."""
    listed = tuple(c if isinstance(c, Case) else Case(str(i), input=c) for i, c in enumerate(cases))
    code = getattr(evaluator, "__code__", None)
    digest = fingerprint(getattr(evaluator, "__qualname__", ""), code.co_code if code else b"", repr(listed))
    return Task(
        name=name,
        goal=goal,
        seeds=_seed_parts(seed),
        evaluator=Evaluator(form="function", digest=digest),
        cases=listed,
        objective=Objective(direction="min" if direction == "min" else "max"),
        limits=limits or Limits(),
        deterministic=deterministic,
        digest=digest,
    )


def _seed_parts(seed: Any) -> tuple[dict[str, str], ...]:
    """Texts, files, mappings, or several of them, as seeds."""
    if seed is None:
        return ()
    if isinstance(seed, Mapping):
        return ({str(k): str(v) for k, v in seed.items()},)
    if isinstance(seed, Path) or (isinstance(seed, str) and "\n" not in seed and seed.endswith((".py", ".txt", ".md"))):
        path = Path(seed)
        if not path.is_file():
            raise UserError(f"there is no seed file '{seed}'", where=str(path.resolve()), fix="check the path")
        return ({path.name: path.read_text(encoding="utf-8")},)
    if isinstance(seed, str):
        return ({"candidate": seed},)
    named = [parts for item in seed for parts in _seed_parts(item)]
    if all(isinstance(item, Path) for item in seed):  # files are versions of one part, whatever they are called
        first = next(iter(named[0]))
        named = [{first: next(iter(parts.values()))} for parts in named]
    return tuple(named)
