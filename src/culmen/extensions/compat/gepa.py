"""GEPA's `optimize_anything` and `optimize` with culmen's search.

They take the same arguments and return a `Study`:

    from culmen import gepa as oa                # was: import gepa.optimize_anything as oa
    study = oa.optimize_anything("...", evaluator=mine, objective="...",
                                 config=GEPAConfig(...), model="gpt-5-mini")

The package `gepa` is needed only for its own types (`GEPAConfig`, `DefaultAdapter`, `oa.log`).
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from culmen.core.errors import UserError, missing_extra
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject
from culmen.core.usage import Budget
from culmen.extensions.compat.example_cases import Asked, cases_of, shortened_text

if TYPE_CHECKING:
    from culmen.run.study import Study

_LOGGED: list[str] = []

_REPLACEMENTS = {  # settings of GEPA that have another form here, or none
    "stop_callbacks": "budget=culmen.Budget(...) and stop_at=SCORE end a run",
    "callbacks": "observers=[...]: objects with on_event (docs/extending.md)",
    "logger": "observers=[...]",
    "use_wandb": "culmen run --track wandb, or observers=[...]",
    "use_mlflow": "culmen run --track mlflow, or observers=[...]",
    "merge": "strategy=culmen.extensions.baselines.gepa.Gepa(merges=N)",
    "use_merge": "strategy=culmen.extensions.baselines.gepa.Gepa(merges=N)",
    "max_merge_invocations": "strategy=culmen.extensions.baselines.gepa.Gepa(merges=N)",
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
    "raise_on_exception",
    "use_cloudpickle",
    "track_best_outputs",
    "cache_evaluation",
    "cache_evaluation_storage",
    "best_example_evals_k",
    "merge_val_overlap_floor",
}


def log(*values: object, sep: str = " ", end: str = "\n") -> None:
    """Record values for the model to read, like `print`; GEPA's `oa.log`."""
    _LOGGED.append(sep.join(map(str, values)) + end)


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
) -> Study:
    """GEPA's function of this name with culmen's search.

    `evaluator(candidate)` or `evaluator(candidate, example)` returns a score or `(score,
    side_info)`; numbers in `side_info["scores"]` become metrics, all other entries feedback.
    `batch_evaluator` gets a list of one pair. Further keywords are those of `culmen.optimize` and
    override `config`. Raises `UserError` for settings without a counterpart, with the form to use
    instead.
    """
    settings = _changed_settings(config)
    cases, examples = cases_of(dataset, valset)
    capture = bool(settings.pop("capture_stdio", False))
    if evaluator is not None:
        judge = _Anything(evaluator, examples, capture)
    elif batch_evaluator is not None:
        judge = _Batch(batch_evaluator, examples, capture)
    else:
        raise UserError(
            "there is no evaluator", where="evaluator=", fix="pass evaluator= or batch_evaluator="
        )
    goal = "\n\n".join(text for text in (objective, background) if text)
    return _search_with_gepa(seed_candidate, judge, cases, goal, settings, keywords)


def optimize(
    seed_candidate: Mapping[str, str],
    trainset: Iterable[object],
    valset: Iterable[object] | None = None,
    adapter: Any = None,
    task_lm: object = None,
    evaluator: Callable[..., object] | None = None,
    **keywords: object,
) -> Study:
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
    cases, examples = cases_of(trainset, valset)
    culmen_keywords = {name: value for name, value in keywords.items() if name not in gepa_settings}
    switched_on = {
        name: value for name, value in gepa_settings.items() if value not in (None, False)
    }
    return _search_with_gepa(
        dict(seed_candidate),
        _Adapter(adapter, examples),
        cases,
        "",
        _supported_settings(switched_on),
        culmen_keywords,
    )


def _search_with_gepa(
    seed: str | Mapping[str, str] | None,
    judge: _Anything | _Adapter,
    cases: list[Case],
    goal: str,
    settings: JsonObject,
    keywords: Mapping[str, object],
) -> Study:
    from culmen.extensions.baselines.gepa import Gepa
    from culmen.run.study import optimize

    batch = settings.pop("reflection_minibatch_size", None)
    arguments = {
        "strategy": Gepa() if batch is None else Gepa(batch=batch),
        "goal": goal,
        **_culmen_keywords(settings),
        **keywords,
    }
    if "budget" not in arguments:
        raise UserError(
            "nothing ends this run", where="budget", fix="give max_metric_calls=N or budget=N"
        )
    return optimize(seed, judge, cases=cases, **arguments)


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
}


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
                if _is_changed(setting, getattr(default, key))
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


class _Anything(Asked[str | Mapping[str, str]]):
    """An evaluator of `optimize_anything`.

    Its log and, with `capture`, its printed output are feedback.
    """

    def __init__(
        self, fn: Callable[..., object], examples: Mapping[str, object], capture: bool
    ) -> None:
        super().__init__(fn, examples)
        self.capture = capture

    def judge_example(
        self, candidate: str | Mapping[str, str], has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        printed = io.StringIO()
        with contextlib.ExitStack() as stack:
            logged = stack.enter_context(_collect_logs())
            if self.capture:
                stack.enter_context(contextlib.redirect_stdout(printed))
                stack.enter_context(contextlib.redirect_stderr(printed))
            result = self.call_evaluator(candidate, has_example, example)
        score, info = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        facts = _metrics_and_texts(info)
        texts = {"log": "".join(logged()), "printed": printed.getvalue()}
        return score, {
            **facts,
            **{name: shortened_text(text) for name, text in texts.items() if text.strip()},
        }

    def call_evaluator(
        self, candidate: str | Mapping[str, str], has_example: bool, example: object
    ) -> object:
        if not has_example:
            return self.fn(candidate)
        parameters = inspect.signature(self.fn).parameters
        if "example" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        ):
            return self.fn(candidate, example=example)
        return self.fn(candidate, example) if len(parameters) > 1 else self.fn(candidate)


class _Batch(_Anything):
    """A batch evaluator, called with one pair: culmen decides one evaluation at a time."""

    def __init__(
        self,
        fn: Callable[..., Iterable[object]],
        examples: Mapping[str, object],
        capture: bool,
    ) -> None:
        super().__init__(fn, examples, capture)
        self.batch_evaluator = fn

    def call_evaluator(
        self, candidate: str | Mapping[str, str], has_example: bool, example: object
    ) -> object:
        results = list(self.batch_evaluator([(candidate, example)]))
        if len(results) != 1:
            raise TypeError(
                f"batch_evaluator returned {len(results)} results for 1 pair: one a pair is "
                "expected"
            )
        return results[0]


class _Adapter(Asked[Mapping[str, str]]):
    """A `GEPAAdapter`: `evaluate` on one example, and its reflective data set as feedback."""

    def __init__(self, adapter: Any, examples: Mapping[str, object]) -> None:
        super().__init__(adapter.evaluate, examples)
        self.adapter = adapter

    def judge_example(
        self, candidate: Mapping[str, str], has_example: bool, example: object
    ) -> tuple[object, JsonObject]:
        batch = self.adapter.evaluate([example], candidate, capture_traces=True)
        if len(batch.scores) != 1:
            raise TypeError(
                f"the adapter's evaluate returned {len(batch.scores)} scores for 1 example"
            )
        scores = (batch.objective_scores or [None])[0]
        records = self.adapter.make_reflective_dataset(candidate, batch, list(candidate))
        texts = [
            f"## {part}\n{_info_text(record)}"
            for part, part_records in records.items()
            for record in part_records
        ]
        return batch.scores[0], {
            **_metrics_and_texts({"scores": scores or {}}),
            "feedback": shortened_text("\n".join(texts)),
        }


@contextlib.contextmanager
def _collect_logs() -> Iterator[Callable[[], list[str]]]:
    """Collect `log`'s texts and those of GEPA's own `oa.log`, if that is loaded."""
    _LOGGED.clear()
    gepa_module: Any = sys.modules.get("gepa.optimize_anything")
    context = gepa_module.LogContext() if gepa_module else None
    if context is not None:
        gepa_module.set_log_context(context)
    try:
        yield lambda: [*_LOGGED, context.drain() if context is not None else ""]
    finally:
        if context is not None:
            gepa_module.set_log_context(None)


def _metrics_and_texts(info: object) -> JsonObject:
    """Side information as metrics and texts.

    Scores are metrics, those of a part (`NAME_specific_info`) under its name; the rest is text.
    """
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        return {"feedback": shortened_text(_info_text(info))}
    facts: JsonObject = {}
    for name, value in info.items():
        if name == "scores" and isinstance(value, Mapping):
            facts |= {str(key): entry for key, entry in value.items()}
        elif str(name).endswith("_specific_info") and isinstance(value, Mapping):
            part = str(name).removesuffix("_specific_info")
            facts |= {f"{part}.{key}": entry for key, entry in _metrics_and_texts(value).items()}
        else:
            facts[str(name)] = (
                value if type(value) in (int, float) else shortened_text(_info_text(value))
            )
    return facts


def _info_text(value: object) -> str:
    """A value of any type as text: mappings line by line."""
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_info_text(entry)}" for key, entry in value.items())
    return value if isinstance(value, str) else repr(value)
