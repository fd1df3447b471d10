"""A caller's input as a run's options, the objects that perform it, and its task.

options, objects = read_keywords({"model": "gpt-5"}, RunOptions(), CreateKeywords)
task = folder_task("my_task", None, "")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import isroutine, signature
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    ParamSpec,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.options import BackendChoice, RunOptions
from culmen.core.ports import (
    Backend,
    Craft,
    Embedder,
    MinimalBackend,
    MinimalEmbedder,
    MinimalObserver,
    MinimalProposer,
    MinimalStrategy,
    MinimalWorld,
    Observer,
    Proposer,
    World,
    with_protocol_defaults,
)
from culmen.core.task import (
    Evaluator,
    Limits,
    Objective,
    Task,
    check_limits,
    digest_pieces,
    parse_constraint,
    parse_direction,
    parse_metric_goals,
)
from culmen.core.usage import Budget
from culmen.evaluate import backends as cluster
from culmen.evaluate.integrity import guard
from culmen.jail.plain import value_text

Options = TypeVar("Options", bound=RunOptions)
P = ParamSpec("P")
T = TypeVar("T")


class RunObjects(msgspec.Struct, frozen=True):
    """The caller's own objects that perform a run's effects.

    The others are made from the options. `model` is a model, a gateway, or models by role;
    `evaluator` the function that scores; `crafts` make performers of custom effects
    (`culmen.core.ports.Craft`) by family. A journal keeps none of these: a resumed run gets them
    again.
    """

    strategy: MinimalStrategy | None = None
    evaluator: Callable[..., object] | None = None
    model: object | None = None
    proposer: Proposer | None = None
    backend: Backend | None = None
    embedder: Embedder | None = None
    world: World | None = None
    crafts: Mapping[str, Callable[[], Craft]] = {}
    observers: tuple[Observer, ...] = ()

    def model_of(self, options: RunOptions) -> object:
        """The model of a run: the caller's own, else the one that the options name."""
        return options.model if self.model is None else self.model

    def search_offline(self, options: RunOptions) -> bool:
        """True if the search of a run asks no model; models by role may be the evaluator's."""
        has_model = self.model is not None and not isinstance(self.model, Mapping)
        return options.searches_offline and not has_model


class _SessionKeywords(TypedDict, total=False):
    """Keywords of one session of a run, also a resumed one."""

    model: object
    models_file: str | None
    proposer: MinimalProposer | None
    backend: MinimalBackend | BackendChoice | Mapping[str, Any] | str | None
    embedder: MinimalEmbedder | str | None
    world: MinimalWorld | None
    crafts: Mapping[str, Callable[[], Craft]]
    require: str | None
    isolation: str | None
    observers: Sequence[MinimalObserver]


class ResumeKeywords(_SessionKeywords, total=False):
    """Keywords of `Study.resume`: those that may differ between the sessions of a run."""

    evaluator: Callable[..., object] | None
    strategy: MinimalStrategy | None


class RunKeywords(_SessionKeywords, total=False):
    """Keywords of `culmen.optimize`.

    Options: `culmen.core.options.RunOptions`; objects: `RunObjects`. `model`, `backend` and
    `embedder` are either a name or an object, `templates` a folder or texts by name.
    """

    budget: Budget | float | str | Mapping[str, float]
    random_seed: int
    workers: int | None
    integrity: str | None
    stop_at: float | str | None
    fork_of: str | None
    allow_failing: bool
    templates: Mapping[str, str] | str | PathLike[str] | None


class CreateKeywords(RunKeywords, total=False):
    """Keywords of `Study.create`."""

    evaluator: Callable[..., object] | None


class ForkKeywords(CreateKeywords, total=False):
    """Keywords of `Study.fork`."""

    strategy: MinimalStrategy | type[MinimalStrategy] | str | None


_FIELDS = {
    "random_seed": "seed",
    "isolation": "level",
}  # keywords that are called otherwise as options


def read_keywords(
    keywords: Mapping[str, Any], base: Options, kind: type
) -> tuple[Options, RunObjects]:
    """`base` with the options among the keywords, and the objects among them.

    None is the default of any keyword. Raises `UserError` for a keyword that the TypedDict `kind`
    does not have, and for invalid values.
    """
    allowed = kind.__optional_keys__
    for name in keywords:
        if name not in allowed:
            raise _keyword_error(name, allowed)
    options, objects = JsonObject(), JsonObject()
    for name, value in keywords.items():
        if name in _SPLIT:
            option, thing = _SPLIT[name](value)
            options[name], objects[name] = option, thing
        elif name in _COMPLETED:
            objects[name] = None if value is None else _COMPLETED[name](value)
        elif name in RunObjects.__struct_fields__:
            objects[name] = value
        else:
            options[_FIELDS.get(name, name)] = (
                _READ[name](value) if name in _READ and value is not None else value
            )
    if base.searches_offline and options.get("models_file") and not options.get("model"):
        options["model"] = models_from_file(options["models_file"])
    return replace_options(base, **options), RunObjects(**objects)


_MEANT = {  # names of these keywords in other programs
    "iterations": "budget=N (evaluations)",
    "max_iterations": "budget=N (evaluations)",
    "max_metric_calls": "budget=N (evaluations)",
    "n_trials": "budget=N (evaluations)",
    "evaluations": "budget=N",
    "seed": "random_seed=N (the initial program comes first, without a name)",
    "llm": "model=",
    "models": "model= or models_file=",
    "num_workers": "workers=",
    "n_jobs": "workers=",
    "timeout": (
        "budget=culmen.Budget(seconds=N), or limits=culmen.Limits(seconds=N) for one evaluation"
    ),
    "path": "run_dir=",
    "output_dir": "run_dir=",
    "seed_candidate": "the initial program, the first argument (or culmen.gepa.optimize_anything)",
    "dataset": "cases= (or culmen.gepa.optimize_anything)",
    "trainset": "cases= (or culmen.gepa.optimize, culmen.dspy.Optimizer)",
    "valset": "cases=, with split='val' (or culmen.gepa.optimize_anything)",
    "objective": "goal=",
    "background": "goal=",
    "reflection_lm": "model=",
    "adapter": "culmen.gepa.optimize(adapter=...)",
    "batch_evaluator": "culmen.gepa.optimize_anything(batch_evaluator=...)",
    "config": "culmen.gepa.optimize_anything(config=...)",
    "max_reflection_cost": "budget=culmen.Budget(dollars=X)",
    "metric": "evaluator= (or culmen.dspy.Optimizer(metric))",
    "maximize": "direction='max'",
    "minimize": "direction='min'",
}


def _keyword_error(name: str, allowed: Iterable[str]) -> UserError:
    """The error for an unknown keyword, with the likely one, if there is one."""
    known = sorted(allowed)
    from difflib import get_close_matches

    near = _MEANT.get(name) or next((f"{each}=" for each in get_close_matches(name, known, 1)), "")
    return UserError(
        f"there is no keyword '{name}' here",
        where=f"{name}=",
        fix=(f"did you mean {near}? " if near else "") + f"there are: {', '.join(known)}",
    )


def models_from_file(file: str) -> str:
    """The models by role in a models file, in the form of `model`; "offline" if it has none."""
    from culmen.models.roles import ModelBook

    return ModelBook(file).roles_text() or "offline"


def replace_options(options: Options, **given: Any) -> Options:
    """The options with some replaced; None is the default."""
    defaults = RunOptions()
    values = {
        name: getattr(defaults, name) if value is None else value for name, value in given.items()
    }
    if "integrity" in values:
        values["integrity"] = guard.parse_policy(values["integrity"])
    return msgspec.structs.replace(options, **values)


def _split_model(value: object) -> tuple[str | dict[str, str] | None, object | None]:
    """A model's name or names by role for the journal, and the model's object if there is one."""
    if value is None or isinstance(value, str):
        return value, None
    if isinstance(value, Mapping):
        roles = cast("Mapping[str, object]", value)
        named = {
            role: model if isinstance(model, str) else _qualified_name(model)
            for role, model in roles.items()
        }
        return named, None if named == dict(roles) else roles
    return _qualified_name(value), value


def _qualified_name(thing: object) -> str:
    if isroutine(thing):
        return f"{thing.__module__}:{thing.__qualname__}"
    return f"{type(thing).__module__}:{type(thing).__qualname__}"


def _split_backend(value: object) -> tuple[BackendChoice | None, Backend | None]:
    if value is None or isinstance(value, str | Mapping | BackendChoice):
        return None if value is None else cluster.as_choice(value), None
    return None, with_protocol_defaults(Backend, value)


def _split_embedder(value: object) -> tuple[str | None, Embedder | None]:
    if value is None or isinstance(value, str):
        return value, None
    embedder = with_protocol_defaults(Embedder, value)
    return embedder.name, embedder


def read_templates(value: Mapping[str, str] | str | PathLike[str]) -> dict[str, str]:
    """Texts by name, or those of a folder."""
    from culmen.models.prompts.template import read_folder

    return dict(value) if isinstance(value, Mapping) else read_folder(Path(value))


def _checked_strategy(value: object) -> object:
    """A strategy's object; a name stays a name until the run is planned."""
    from culmen.strategies.catalog import strategy_object

    return value if isinstance(value, str) else strategy_object(value)


_SPLIT: dict[str, Callable[[Any], tuple[object, object]]] = {
    "model": _split_model,
    "backend": _split_backend,
    "embedder": _split_embedder,
}
_READ: dict[str, Callable[[Any], object]] = {
    "budget": Budget.from_value,
    "templates": read_templates,
}
_COMPLETED: dict[str, Callable[[Any], object]] = {
    "proposer": partial(with_protocol_defaults, Proposer),
    "world": partial(with_protocol_defaults, World),
    "strategy": _checked_strategy,
    "observers": lambda given: tuple(with_protocol_defaults(Observer, each) for each in given),
}


# The task: a folder, or a Python function with its cases.


def folder_task(
    path: str | Path | Task, seed: Any, goal: str, direction: str = "", proxy: str = ""
) -> Task:
    """The task on disk, with the caller's own goal, initial programs, direction or proxy.

    The task of a command is on no disk, and has its own.
    """
    from culmen.tasks import load, with_proxy

    if isinstance(path, Task):
        return path
    task = load(path, goal=goal, seeds=_seed_parts(seed), direction=direction)
    return with_proxy(task, proxy) if proxy else task


def refuse_rules_of_folder(
    same_draws: bool = False, keeps_state: bool = False, several_objectives: bool = False
) -> None:
    """Raise `UserError` for rules of evaluations that a task folder states itself."""
    if several_objectives:
        fix = "write them into its task.toml: [objectives] and constraints"
        what = "objectives of a task folder stand in the folder"
        raise UserError(what, where="objectives=", fix=fix)
    places = {
        "same_draws": (same_draws, "at its top"),
        "keeps_state": (keeps_state, "under [evaluator]"),
    }
    for name, (is_given, table) in places.items():
        if is_given:
            raise UserError(
                f"{name} of a task folder stands in the folder",
                where=f"{name}=",
                fix=f"write {name} = true into its task.toml, {table}",
            )


_NAMED_LATER = ("seed", "budget", "direction")  # keywords whose readers say more of wrong values


def advise_keywords(search: Callable[P, T]) -> Callable[P, T]:
    """Raise `UserError` for unknown keywords, wrong types, and `seed=` after an initial program.

    None is the default of any keyword.
    """
    known = signature(search).parameters

    @wraps(search)
    def checked(*args: P.args, **keywords: P.kwargs) -> T:
        hints = get_type_hints(search)
        for name, value in [*zip(known, args), *keywords.items()]:
            if name not in known:
                raise _keyword_error(name, known)
            is_known = value is None or name in _NAMED_LATER or _fits(value, hints[name])
            if not is_known:
                what = f"{name} cannot be of type {type(value).__name__}"
                raise UserError(what, where=f"{name}=", fix=f"pass {_told(hints[name])}")
        if args and "seed" in keywords:
            raise UserError(
                "seed= is the initial program, which is given already",
                where="seed=",
                fix="for the random seed, write random_seed=1",
            )
        given = {
            name: value
            for name, value in keywords.items()
            if value is not None or name in _NAMED_LATER
        }
        return cast("Callable[..., T]", search)(*args, **given)

    return checked


_TYPES = {"int": "a whole number", "float": "a number", "bool": "True or False", "str": "a text"}
_TYPES |= {"Path": "a path", "PathLike": "a path", "Mapping": "a dict", "Callable": "a function"}
_TYPES |= {"Iterable": "a list", "Sequence": "a list"}


def _kinds(hint: object) -> list[type]:
    union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return cast("list[type]", [get_origin(kind) or kind for kind in union if kind is not NoneType])


def _told(hint: object) -> str:
    """The types of an annotation in words: those of culmen by their names."""
    return " or ".join({_TYPES.get(kind.__name__, kind.__name__): 0 for kind in _kinds(hint)})


def _fits(value: object, hint: object) -> bool:
    """False if a value is of none of the types of an annotation; protocols take any object."""
    kinds = _kinds(hint)
    try:
        return isinstance(value, (*kinds, *[int] * (float in kinds)))
    except TypeError:  # a protocol, or anything
        return True


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
    *,
    same_draws: bool = False,
    keeps_state: bool = False,
) -> Task:
    """A task judged by a Python function."""
    check_limits(limits or Limits())
    listed = tuple(c if isinstance(c, Case) else Case(str(i), input=c) for i, c in enumerate(cases))
    code = getattr(evaluator, "__code__", None)
    digest = digest_pieces(
        getattr(evaluator, "__qualname__", ""), code.co_code if code else b"", value_text(listed)
    )
    rules = ["same_draws"] * same_draws + ["keeps_state"] * keeps_state  # they shape scores, too
    return Task(
        name=name,
        goal=goal,
        seeds=_seed_parts(seed),
        evaluator=Evaluator(
            form="function",
            digest=digest,
            options={"parts": True} if _has_mapped_seeds(seed) else {},
            keeps_state=keeps_state,
        ),
        cases=listed,
        objective=_build_objective(direction, objectives, constraints),
        limits=limits or Limits(),
        deterministic=deterministic,
        digest=digest_pieces(digest, *rules) if rules else digest,
        same_draws=same_draws,
        notes=tuple(getattr(evaluator, "differences", ())),
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
                where=path.resolve(),
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
    if named and all(
        isinstance(item, Path) for item in seed
    ):  # files are versions of one part, whatever they are called
        first = next(iter(named[0]))
        named = [{first: next(iter(parts.values()))} for parts in named]
    return tuple(named)
