"""GEPA's `optimize_anything` and `optimize` with culmen's search.

They take the same arguments and return a result with the same attributes:

    from culmen import gepa as oa                # was: import gepa.optimize_anything as oa
    result = oa.optimize_anything("...", evaluator=mine, objective="...",
                                  config=oa.GEPAConfig(...))
    print(result.best_candidate)

All other names of `gepa.optimize_anything` and `gepa` (`GEPAConfig`, `Image`, `EvaluationBatch`)
are those of the package, which has to be installed for them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from culmen.core.errors import UserError, missing_extra
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.usage import Budget
from culmen.extensions.compat.example_cases import Asked, cases_of
from culmen.extensions.compat.gepa_evaluators import (
    AdapterJudge,
    BatchJudge,
    FunctionJudge,
    LogContext,
    OptimizationState,
    check_signature,
    get_log_context,
    log,
    set_log_context,
)
from culmen.extensions.compat.gepa_result import GepaResult, result_of

_DEFAULT_MODEL = "openai/gpt-5.1"  # of gepa 0.1.4, for optimize_anything without another

_REPLACEMENTS = {  # settings of GEPA that have another form here, or none
    "stop_callbacks": "budget=culmen.Budget(...) and stop_at=SCORE end a run",
    "callbacks": "observers=[...]: objects with on_event (docs/extending.md)",
    "logger": "observers=[...]",
    "use_wandb": "culmen run --track wandb, or observers=[...]",
    "use_mlflow": "culmen run --track mlflow, or observers=[...]",
    "refiner": "leave it out: the next proposal sees the evaluator's feedback",
    "reflection_prompt_template": "templates={'propose': ...} (culmen prompts)",
    "reflection_lm_kwargs": "a models file with the model's settings: models_file=FILE",
    "custom_candidate_proposer": "proposer=: an object with propose(brief)",
    "reflection_strategy": "proposer=: an object with propose(brief)",
    "candidate_selection_strategy": (
        "strategy=: culmen.extensions.baselines.gepa.Gepa() chooses from the Pareto frontier, "
        "others their own way"
    ),
    "module_selector": "leave it out: parts take turns",
    "batch_sampler": "leave it out: minibatches are drawn by the random seed",
    "sampling_strategy": "strategy=culmen.extensions.baselines.gepa.Gepa(proposals=N)",
    "selection_strategy": "strategy=",
    "acceptance_criterion": "strategy=",
    "val_evaluation_policy": "strategy=culmen.extensions.baselines.gepa.Gepa(pareto=N)",
    "frontier_type": "leave it out: the frontier is over cases",
    "perfect_score": "stop_at=SCORE",
    "skip_perfect_score": "stop_at=SCORE",
}
_HARMLESS = {  # settings without a counterpart that change no result
    "display_progress_bar",
    "use_cloudpickle",
    "track_best_outputs",
    "cache_evaluation",
    "cache_evaluation_storage",
    "best_example_evals_k",
    "merge_val_overlap_floor",
}


def __getattr__(name: str) -> Any:
    """Names that are the package's own, from `gepa.optimize_anything` or `gepa`."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        homes = [import_module(home) for home in ("gepa.optimize_anything", "gepa")]
    except ImportError:
        raise missing_extra(f"culmen.gepa.{name}", "gepa", "gepa") from None
    for home in homes:
        if hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(f"neither culmen.gepa nor gepa has an attribute '{name}'")


def optimize_anything(
    seed_candidate: str | Mapping[str, str] | None = None,
    *,
    evaluator: Callable[..., object] | None = None,
    batch_evaluator: Callable[..., Iterable[object]] | None = None,
    dataset: Iterable[object] | None = None,
    valset: Iterable[object] | None = None,
    objective: str | None = None,
    background: str | None = None,
    config: object = None,
    **keywords: object,
) -> GepaResult:
    """GEPA's function of this name with culmen's search.

    `evaluator(candidate)` or, with a data set, `evaluator(candidate, example=...)` returns a score
    or `(score, side_info)`; `side_info["scores"]` are metrics, all other entries feedback.
    `batch_evaluator` gets a list of one pair, and is preferred if both are given. Further keywords
    are those of `culmen.optimize` and override `config`. Raises `UserError` for settings without a
    counterpart, with the form to use instead.
    """
    settings = _changed_settings(config)
    if dataset is None and valset is not None:
        dataset = [None]
    cases, examples = cases_of(_examples(dataset), _examples(valset))
    judge = _anything_judge(evaluator, batch_evaluator, examples, settings)
    asked = settings.setdefault("reflection_lm", _DEFAULT_MODEL)
    if keywords.keys() & {"model", "models_file", "proposer"} and asked == _DEFAULT_MODEL:
        del settings["reflection_lm"]
    goal = "\n\n".join(text for text in (objective, background) if text)
    return _search_with_gepa(seed_candidate, judge, cases, goal, settings, keywords)


def _anything_judge(
    evaluator: Callable[..., object] | None,
    batch_evaluator: Callable[..., Iterable[object]] | None,
    examples: Mapping[str, object],
    settings: JsonObject,
) -> FunctionJudge | BatchJudge:
    """The evaluator of `optimize_anything`; takes its settings from `settings`."""
    capture = bool(settings.pop("capture_stdio", False))
    zero_on_error = settings.pop("raise_on_exception", True) is False
    for function in filter(None, (batch_evaluator, evaluator)):
        _warn_of_empty_history(function)
    if batch_evaluator is not None:
        warnings.warn("batch_evaluator is called with one pair at a time", stacklevel=3)
        return BatchJudge(batch_evaluator, examples, zero_on_error)
    if evaluator is None:
        raise UserError(
            "there is no evaluator", where="evaluator=", fix="pass evaluator= or batch_evaluator="
        )
    check_signature(evaluator, bool(examples))
    return FunctionJudge(evaluator, examples, capture, zero_on_error)


def _warn_of_empty_history(function: Callable[..., object]) -> None:
    named = {"opt_state", "opt_states"} & inspect.signature(function).parameters.keys()
    for name in sorted(named):
        warnings.warn(
            f"{name} has no earlier evaluations: evaluations are independent of one another",
            stacklevel=4,
        )


def _examples(loader: Any) -> Iterable[object] | None:
    """The examples of a list, or of a `DataLoader` of GEPA."""
    if hasattr(loader, "all_ids") and hasattr(loader, "fetch"):
        return loader.fetch(loader.all_ids())
    return loader


def optimize(
    seed_candidate: Mapping[str, str],
    trainset: Iterable[object],
    valset: Iterable[object] | None = None,
    adapter: Any = None,
    task_lm: object = None,
    evaluator: Callable[..., object] | None = None,
    **keywords: object,
) -> GepaResult:
    """GEPA's `gepa.optimize` with culmen's search.

    A candidate of named texts is judged by a `GEPAAdapter`; without one, by GEPA's own for
    `task_lm`. Its other keywords and those of `culmen.optimize` follow. Raises `UserError` for
    settings without a counterpart.
    """
    adapter = _default_adapter(task_lm, evaluator) if adapter is None else adapter
    if getattr(adapter, "propose_new_texts", None) is not None:
        warnings.warn(
            "the adapter's propose_new_texts is not called: culmen's model proposes", stacklevel=2
        )
    gepa_settings = {
        name: value
        for name, value in keywords.items()
        if name in _REPLACEMENTS or name in _HARMLESS | _SUPPORTED
    }
    cases, examples = cases_of(_examples(trainset), _examples(valset))
    culmen_keywords = {name: value for name, value in keywords.items() if name not in gepa_settings}
    switched_on = {
        name: value
        for name, value in gepa_settings.items()
        if value is not None and value is not False and not _is_default(name, value)
    }
    switched_on.pop("raise_on_exception", None)
    return _search_with_gepa(
        dict(seed_candidate),
        AdapterJudge(adapter, examples),
        cases,
        "",
        _supported_settings(switched_on),
        culmen_keywords,
    )


def _search_with_gepa(
    seed: str | Mapping[str, str] | None,
    judge: Asked[Any],
    cases: list[Case],
    goal: str,
    settings: JsonObject,
    keywords: Mapping[str, object],
) -> GepaResult:
    from culmen.extensions.baselines.gepa import Gepa
    from culmen.run.study import optimize

    batch = settings.pop("reflection_minibatch_size", None) or (3 if cases else 1)
    arguments = {
        "strategy": Gepa(batch=batch, merges=_merge_limit(settings)),
        "goal": goal,
        **_culmen_keywords(settings),
        **keywords,
    }
    if "budget" not in arguments:
        raise UserError(
            "nothing ends this run", where="budget", fix="give max_metric_calls=N or budget=N"
        )
    is_text = not isinstance(seed, Mapping)
    if isinstance(seed, str):  # by a name, else one line that ends with .md would be a file
        seed, judge.is_text = {"candidate": seed}, True
    for name, text in (seed or {}).items():
        if not isinstance(text, str):
            what = f"the part {name!r} is no text but {text!r}"
            raise UserError(what, where="seed_candidate=", fix="write it as a text")
    return result_of(optimize(seed, judge, cases=cases, **arguments), is_text)


def _merge_limit(settings: JsonObject) -> int:
    """The most merges of the settings, which are removed; 0 unless GEPA would merge."""
    merge, use_merge = settings.pop("merge", None), settings.pop("use_merge", False)
    most = settings.pop("max_merge_invocations", 5)
    return merge.max_merge_invocations if merge is not None else most if use_merge else 0


_SUPPORTED = {
    "run_dir",
    "seed",
    "max_metric_calls",
    "max_candidate_proposals",
    "max_reflection_cost",
    "max_workers",
    "parallel",
    "reflection_lm",
    "reflection_minibatch_size",
    "capture_stdio",
    "raise_on_exception",
    "merge",
    "use_merge",
    "max_merge_invocations",
}
_DEFAULTS: JsonObject = {  # of gepa.optimize, as far as they are neither None nor False
    "candidate_selection_strategy": "pareto",
    "frontier_type": "instance",
    "skip_perfect_score": True,
    "batch_sampler": "epoch_shuffled",
    "perfect_score": 1.0,
    "module_selector": "round_robin",
    "tracking_key_prefix": "",
    "acceptance_criterion": "strict_improvement",
    "val_evaluation_policy": "full_eval",
}


def _is_default(name: str, value: object) -> bool:
    default = _DEFAULTS.get(name)
    return type(value) is type(default) and value == default


def _culmen_keywords(settings: JsonObject) -> JsonObject:
    """Settings of GEPA as keywords of `culmen.optimize`."""
    limits = {
        "evaluations": "max_metric_calls",
        "calls": "max_candidate_proposals",
        "dollars": "max_reflection_cost",
    }
    budget = {
        name: settings[gepa_name]
        for name, gepa_name in limits.items()
        if settings.get(gepa_name) is not None
    }
    names = {
        "run_dir": "run_dir",
        "seed": "random_seed",
        "reflection_lm": "model",
        "max_workers": "workers",
    }
    keywords = {
        name: settings[gepa_name]
        for gepa_name, name in names.items()
        if settings.get(gepa_name) is not None
    }
    if settings.get("parallel") is False:
        keywords["workers"] = 1
    return {**keywords, "budget": Budget(**budget)} if budget else keywords


def _changed_settings(config: object) -> JsonObject:
    """The settings of a `GEPAConfig` that differ from the defaults, in one mapping.

    Raises `UserError` for settings that have no effect here.
    """
    changed: JsonObject = {}
    defaults = type(config)() if config is not None else None
    for name, value in vars(config).items() if config is not None else ():
        default = getattr(defaults, name)
        if name in ("engine", "reflection", "tracking"):
            changed |= {
                key: setting
                for key, setting in vars(value).items()
                if key == "reflection_lm" or _is_changed(setting, getattr(default, key))
            }
        elif _is_changed(value, default):
            changed[name] = value
    return _supported_settings(changed)


def _is_changed(value: object, default: object) -> bool:
    return value is not default and (type(value) is not type(default) or value != default)


def _supported_settings(settings: JsonObject) -> JsonObject:
    """The settings that have a meaning here.

    Raises `UserError` for those that would be ignored.
    """
    for name in settings:
        if name not in _SUPPORTED | _HARMLESS:
            track = "culmen run --track wandb or mlflow, or observers=[...]"
            fix = _REPLACEMENTS.get(
                name,
                track
                if name.partition("_")[0] in ("wandb", "mlflow", "tracking")
                else "leave it out",
            )
            raise UserError(f"GEPA's setting {name} has no effect here", where=f"{name}=", fix=fix)
    return {name: value for name, value in settings.items() if name in _SUPPORTED}


def _default_adapter(task_lm: object, evaluator: Callable[..., object] | None) -> object:
    if task_lm is None:
        raise UserError(
            "there is no adapter to run a candidate",
            where="adapter=",
            fix="pass adapter= or task_lm=",
        )
    try:
        from gepa.adapters.default_adapter.default_adapter import DefaultAdapter  # pyright: ignore
    except ImportError:
        raise missing_extra("task_lm without an adapter", "gepa", "gepa", "task_lm=") from None
    return DefaultAdapter(model=task_lm, evaluator=evaluator)


__all__ = [
    "GepaResult",
    "LogContext",
    "OptimizationState",
    "get_log_context",
    "log",
    "optimize",
    "optimize_anything",
    "set_log_context",
]
