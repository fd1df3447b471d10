"""From a caller's input to the parts of a run: task, initial programs, folder, metadata."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from culmen.core import VERSION
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.options import RunOptions
from culmen.core.ports import MinimalStrategy, Strategy, with_protocol_defaults
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
from culmen.evaluate import cluster
from culmen.offline.proposer import check_installed
from culmen.run.options import RunObjects
from culmen.store.database import RunMeta

# characters of a task's name in a run's: with the time, and beside its score, it fits a line
_STEM = 28


def check_runnable(
    task: Task, strategy: MinimalStrategy, options: RunOptions, objects: RunObjects
) -> None:
    """Refuse a run that could never start or never end."""
    check_ends(strategy, options, objects)
    if options.searches_offline and objects.model is None and objects.proposer is None:
        check_installed()
    check_models(options, objects)
    if objects.world is None:
        check_roles(
            task, options.model if objects.model is None else objects.model, options.models_file
        )
    alone = (
        options.searches_offline
        and objects.proposer is None
        and not with_protocol_defaults(Strategy, strategy).writes
    )
    if not task.seeds and alone:
        uses = ", ".join(task.evaluator.options.get("uses", ()))
        raise UserError(
            "a task without an initial program needs a model to write the first candidate",
            where=f"task {task.name}",
            fix=f"give an initial program{f' that defines {uses}' if uses else ''} with "
            "--seed-program FILE, or choose a model with --model NAME, or an agent with "
            "--agent NAME",
        )


def check_models(options: RunOptions, objects: RunObjects) -> None:
    """Refuse unknown models, invalid objects, and models with a missing key, before a run."""
    from culmen.core.ports import MinimalGateway
    from culmen.llm.roles import ModelBook
    from culmen.llm.spec import OTHERS

    model = options.model if objects.model is None else objects.model
    unasked = objects.model is None and options.model in (None, "offline")
    if isinstance(model, MinimalGateway) or unasked or objects.world is not None:
        return
    named = model if model is None or isinstance(model, str | Mapping) else {OTHERS: model}
    for entry in ModelBook(options.models_file).parse_roles(named).all_models():
        if entry.backend is None and not entry.provider.key.is_available():
            entry.provider.key.reveal()


def check_roles(task: Task, model: Any, models_file: str | None = None) -> None:
    """Refuse a task whose evaluator asks models in roles without a model."""
    from culmen.core.ports import MinimalGateway
    from culmen.llm.roles import ModelBook
    from culmen.llm.spec import OTHERS

    wanted = task.evaluator.options.get("roles", ())
    if not wanted or isinstance(model, MinimalGateway):
        return
    named = {OTHERS: model or "offline"} if not isinstance(model, str | Mapping) else model
    roles = ModelBook(models_file).parse_roles(named)
    missing = [role for role in wanted if roles.pick_model(role, 0) is None]
    if missing:
        raise UserError(
            f"the evaluator asks models as {', '.join(wanted)}; no model is named for "
            f"{', '.join(missing)}",
            where=f"task {task.name}",
            fix=(
                f"add {' '.join(f'--model {role}=MODEL' for role in missing)} (the search may stay "
                "--model offline)"
            ),
        )


def check_ends(strategy: MinimalStrategy, options: RunOptions, objects: RunObjects) -> None:
    """Refuse a run that could never end: without a budget, or with one that is never spent."""
    budget = options.budget
    if not budget.has_limit:
        raise UserError(
            "nothing ends this run",
            where="budget",
            fix="give a budget, for example evaluations=200",
        )
    if (
        budget.evaluations is None
        and budget.seconds is None
        and _is_free(strategy, options, objects)
    ):
        named = [
            name for name in ("dollars", "calls", "tokens") if getattr(budget, name) is not None
        ]
        raise UserError(
            f"nothing ends this run: the offline model spends no {' or '.join(named)}",
            where="budget",
            fix="limit evaluations=200 or seconds=600 as well, or choose a model with --model NAME",
        )


def parse_stop_score(task: Task, wanted: float | str | None) -> float | None:
    """The score at which a search is to end; `target` is the task's own.

    Raises UserError for any other word.
    """
    if wanted is None or isinstance(wanted, float | int):
        return None if wanted is None else float(wanted)
    if wanted.strip().lower() == "target":
        if task.objective.target is None:
            raise UserError(
                "this task declares no target",
                where="--stop-at target",
                fix="write --stop-at SCORE",
            )
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


def _is_free(strategy: MinimalStrategy, options: RunOptions, objects: RunObjects) -> bool:
    """True if nothing in this run is ever paid for.

    The offline proposer, no agents, embedders in this process.
    """
    if (
        options.model not in (None, "offline")
        or with_protocol_defaults(Strategy, strategy).writes
        or objects.crafts
        or objects.world
    ):
        return False
    if objects.proposer is not None and not objects.proposer.free:
        return False
    return objects.embedder is None and "/" not in options.embedder.partition(":")[0]


def build_run_meta(
    path: Path,
    task: Task,
    strategy: Mapping[str, Any],
    options: RunOptions,
    workers_of_backend: int = 0,
) -> RunMeta:
    """The metadata that the journal needs to resume this run; never a key.

    `strategy` is its `catalog.strategy_config`.
    """
    if options.backend is not None:
        cluster.require_backend_extra(options.backend)
    named = options.model
    return RunMeta(
        id=path.name,
        task=_searched_for_tolerances(task),
        strategy=dict(strategy),
        models=dict(named) if isinstance(named, dict) else {"default": str(named)},
        created=time.time(),
        culmen=VERSION,
        python=platform.python_version(),
        platform=sys.platform,
        trial=not options.allow_failing,
        **{
            **msgspec.structs.asdict(options),
            "workers": options.workers
            or workers_of_backend
            or cluster.usual_workers(options.backend),
        },
    )


def _searched_for_tolerances(task: Task) -> Task:
    """The task, with a flag for tolerances in its evaluator's text.

    Without one no evaluations need be kept to test a tolerance.
    """
    evaluator = task.evaluator
    if not evaluator.is_python or evaluator.verifier or not Path(evaluator.path).is_file():
        return task
    from culmen.audit import locate

    found = bool(locate.evaluator_lines("tolerance", locate.evaluator_sources(task)))
    return msgspec.structs.replace(
        task, evaluator=msgspec.structs.replace(evaluator, tolerances=found)
    )


def new_path(task: Task, run_dir: str | Path | None) -> Path:
    """The folder of a new run: the given one, else runs/NAME-TIME, numbered if that exists."""
    if run_dir is not None:
        return Path(run_dir).expanduser().resolve()
    stem = (
        "".join(c if c.isalnum() or c in "-_" else "-" for c in task.name)[:_STEM].rstrip("-_")
        or "run"
    )
    base = Path("runs").resolve() / f"{stem}-{time.strftime('%m%d-%H%M%S')}"
    return next(
        p
        for n in range(1, 10_000)
        if not (p := base if n == 1 else base.with_name(f"{base.name}-{n}")).exists()
    )


def folder_task(
    path: str | Path, seed: Any, goal: str, direction: str = "", proxy: str = ""
) -> Task:
    """The task on disk, with the caller's own goal, initial programs, direction or proxy."""
    from culmen.evaluate.taskfiles import load, with_proxy

    task = load(path, goal=goal, seeds=_seed_parts(seed), direction=direction)
    return with_proxy(task, proxy) if proxy else task


def as_it_is(task: Task) -> Task:
    """The task with the present content of its evaluator's files."""
    from culmen.evaluate.taskfiles import with_present_files

    return with_present_files(task)


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
