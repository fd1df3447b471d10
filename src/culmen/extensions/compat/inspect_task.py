"""An `inspect_ai` task as evaluator: the candidate is the task's text parameters.

The task's scorer computes the score. Samples are cases. `inspect_ai.eval` runs a sample in the
scorer's process of a task folder, which stays; it cannot run in a fork of a process in which
inspect has run, such as that of a Python function. The models are inspect's own.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from statistics import fmean
from types import NoneType
from typing import Any

from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.json import JsonObject

SPLITS = ("train", "val", "test")


DIFFERENCES = (
    "inspect_ai: one sample is one case, so a metric that is no mean over samples is that of each, "
    "and their mean is the score",
    "inspect_ai: a sample without a score (NaN, None) fails if it is evaluated alone, as a case",
    "inspect_ai: a first metric that is a spread (stderr, std, var) is passed over for another, or "
    "for the mean",
    "inspect_ai: higher scores are better; if the metric is a loss, as perplexity, write "
    "direction = 'min'",
)
"""Differences on purpose, compared with 0.3.285."""


class ModelAway(ConnectionError):
    """The model that a task asks was not available; not the candidate's fault."""


class SampleFailed(Exception):
    """A sample ended with an error; the text is inspect's."""


class InspectEvaluator:
    """Scores the text parameters of an inspect_ai task, one sample (or all of them) at a time.

    `task` is a function decorated with `@task`, or "FILE.py@NAME". `model` is an inspect model or
    its name. `parameters` names those that are the candidate's parts, by default all with a text as
    default; `arguments` are the others. `scorer` and `key` choose among several scorers, and among
    the values of a scorer that returns a dict. The score is inspect's own: epochs by the task's
    reducer, then the scorer's first metric (accuracy, mean, ...); higher is better. Samples without
    a score (NaN, None) are left out, as by inspect. `more` goes to `inspect_ai.eval`.

    Raises UserError if inspect_ai is missing, or if no such task or parameter exists.
    """

    differences = DIFFERENCES

    def __init__(
        self,
        task: Callable[..., object] | str,
        model: Any,
        *,
        parameters: tuple[str, ...] = (),
        arguments: Mapping[str, object] | None = None,
        scorer: str = "",
        key: str = "",
        **more: Any,
    ) -> None:
        self._task = _load_task_function(task) if isinstance(task, str) else task
        self._model = model
        self._more: JsonObject = more
        self._scorer, self._key = scorer, key
        self._arguments = dict(arguments or {})
        known = inspect.signature(self._task).parameters
        texts = [
            name
            for name, parameter in known.items()
            if isinstance(parameter.default, str) and name not in self._arguments
        ]
        self._parameters = tuple(parameters) or tuple(texts)
        missing = [
            name
            for name in self._parameters
            if name not in known or not isinstance(known[name].default, str)
        ]
        if missing or not self._parameters:
            what = " ".join(("the task has no text parameter", *missing[:1]))
            fix = (
                'give it one with a default, as def my_task(system: str = "You are ..."), and use '
                "it in its solver"
            )
            raise UserError(what, where=getattr(self._task, "__name__", str(task)), fix=fix)
        self.initial = {name: str(known[name].default) for name in self._parameters}

    @property
    def cases(self) -> tuple[Case, ...]:
        """The samples as cases: `id`, `input` as text, and `split`.

        The split is the one in a sample's metadata if that is train, val or test.
        """
        cases = []
        task = self._build_task(self.initial)
        for name, sample in self._named_samples(task):
            split = str((sample.metadata or {}).get("split", "train"))
            text = (
                sample.input
                if isinstance(sample.input, str)
                else "\n".join(m.text for m in sample.input)
            )
            cases.append(Case(name, text, split=split if split in SPLITS else "train"))
        return tuple(cases)

    def __call__(self, candidate: str | Mapping[str, str], case: Case | None = None) -> JsonObject:
        """The score of a candidate on one sample, or on all.

        Raises SampleFailed and ModelAway.
        """
        parts = {self._parameters[0]: candidate} if isinstance(candidate, str) else dict(candidate)
        log, samples = self._evaluate_samples(parts, case)
        metrics = {
            f"{kind}_tokens": fmean(
                sum(getattr(used, f"{kind}_tokens") for used in sample.model_usage.values())
                for sample in samples
            )
            for kind in ("input", "output")
        }
        values = reduced_values(log, samples)
        return {
            "score": self._chosen_score(log, samples, values),
            "feedback": _describe_samples(samples),
            "metrics": metrics | {name: fmean(scored) for name, scored in values.items() if scored},
        }

    def score(self, parts: dict[str, str], case: Case | None) -> JsonObject:
        """The score of a candidate, with the name and arguments of an evaluator.py's function."""
        return self(parts, case)

    def _build_task(self, parts: Mapping[str, str]) -> Any:
        return self._task(**self._arguments, **{name: parts[name] for name in self._parameters})

    def _named_samples(self, task: Any) -> list[tuple[str, Any]]:
        """The samples with their names as cases; raise UserError if they cannot be cases."""
        fault = ""
        if any(self._more.get(name) is not None for name in ("limit", "sample_id")):
            fault = "limit and sample_id choose samples, and so do cases"
        elif getattr(task, "sample_source", None) is not None:
            fault = "the task makes samples while it runs, which belong to no case"
        if fault:
            raise UserError(fault, where="InspectEvaluator", fix="evaluate it without cases")
        return [
            (str(number if sample.id is None else sample.id), sample)
            for number, sample in enumerate(task.dataset, 1)
        ]

    def _evaluate_samples(
        self, parts: Mapping[str, str], case: Case | None
    ) -> tuple[Any, list[Any]]:
        """The log, and its samples, each with its scores."""
        from inspect_ai import eval as evaluate  # pyright: ignore[reportMissingImports]

        task = self._build_task(parts)
        if case is not None:
            wanted = [sample for name, sample in self._named_samples(task) if name == case.id]
            if len(wanted) != 1:
                raise SampleFailed(f"the task has {len(wanted) or 'no'} samples {case.id}")
            task.dataset = task.dataset.filter(lambda sample: sample is wanted[0])
        quiet: JsonObject = {
            "display": "none",
            "log_level": "error",
            "log_realtime": False,
            "score_display": False,
        }
        with tempfile.TemporaryDirectory(prefix="culmen-inspect-") as logs:
            log = evaluate(task, model=self._model, log_dir=logs, **{**quiet, **self._more})[0]
            samples = list(log.samples or ())  # read from the file when they are asked for
        if log.error is not None:
            raise _failure_exception(log.error)
        if not samples:
            raise SampleFailed(f"the evaluation ended as {log.status} without a sample")
        fault = next((each.error for each in samples if each.error and not each.scores), None)
        if log.status == "error" and fault is not None:  # continue_on_fail; not score_on_error
            raise _failure_exception(fault)
        return log, samples

    def _chosen_score(
        self, log: Any, samples: list[Any], values: Mapping[str, list[float]]
    ) -> float:
        """The metric of the chosen scorer (and key); the mean of its values without a metric."""
        from inspect_ai.log import headline_metric  # pyright: ignore

        declared = None if self._scorer or self._key else getattr(log.eval, "headline_metric", None)
        if declared is not None:
            resolved = headline_metric(log)
            if resolved is None or not resolved.score.scored_samples:
                raise SampleFailed("the task's headline metric has no sample with a score")
            return float(resolved.metric.value)
        views = log.results.scores if log.results is not None else ()
        scorer = self._scorer or next((view.scorer for view in views), "")
        chosen = f"{scorer}.{self._key}" if self._key else scorer
        has_values = bool(values.get(chosen))
        levels = (
            (view, metric)
            for view in views
            if (view.scorer, view.name) == (scorer, self._key or scorer)
            for metric in view.metrics.values()
            if metric.group or metric.name not in _SPREADS  # a group may be called "std"
        )
        for view, metric in islice(levels, 1):
            if view.scored_samples and (has_values or metric.name not in _SCALAR):
                return float(metric.value)
        if has_values:
            return fmean(values[chosen])
        fault = next((sample.error for sample in samples if sample.error), None)
        if fault is not None:
            raise _failure_exception(fault)
        raise SampleFailed(_no_score_text(chosen, values))


_SPREADS = ("stderr", "bootstrap_stderr", "std", "var")  # metrics of a spread, not of a level
_SCALAR = ("accuracy", "mean")  # 0 by inspect, with a warning, for values that are dicts or lists


def reduced_values(log: Any, samples: list[Any]) -> dict[str, list[float]]:
    """Values of the samples by scorer, epochs reduced by the task's reducer.

    Those of a dict are `scorer.key`, those of a second reducer `scorer@reducer`. Unscored ones
    (NaN, None) are left out.
    """
    from inspect_ai.scorer import value_to_float  # pyright: ignore[reportMissingImports]

    number = value_to_float()
    values: dict[str, list[float]] = {
        each.scorer: [] for each in log.reductions or () if not each.samples
    }
    for name, value in _named_values(log, samples):
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, entry in entries:
            label, at, reducer = name.partition("@")
            scored = values.setdefault(f"{label}.{key}{at}{reducer}" if key else name, [])
            if not isinstance(entry, list | NoneType) and entry == entry:  # not NaN
                scored.append(float(number(entry)))
    return values


def _named_values(log: Any, samples: list[Any]) -> Iterator[tuple[str, Any]]:
    """Names of scorers and values: the reductions of the log, else the epochs as they are."""
    known: set[str] = set()
    for reduction in log.reductions or ():
        is_first = reduction.scorer not in known
        known.add(reduction.scorer)
        name = reduction.scorer if is_first else f"{reduction.scorer}@{reduction.reducer}"
        yield from ((name, sample.value) for sample in reduction.samples)
    for sample in samples:
        for name, score in (sample.scores or {}).items():
            if name not in known:
                yield name, score.value


def _no_score_text(chosen: str, values: Mapping[str, object]) -> str:
    if chosen in values:
        return f"all samples are unscored (NaN or None) by '{chosen}'"
    names = ", ".join(values) or "none"
    fix = (
        "name one: InspectEvaluator(..., scorer=NAME), and key=NAME if a scorer returns "
        "several values"
    )
    return f"no score '{chosen}' on any sample, only: {names}; {fix}"


def folder_differences(evaluator: Path) -> tuple[str, ...]:
    """The differences, for a folder whose evaluator uses `InspectEvaluator`."""
    return DIFFERENCES


def _load_task_function(task: str) -> Callable[..., object]:
    """The task function at FILE.py@NAME."""
    from culmen.jail.plain import load_file

    path, _, name = task.partition("@")
    file = Path(path).resolve()
    if not name or not file.is_file():
        raise UserError(
            f"there is no task '{task}'", where="InspectEvaluator", fix="write FILE.py@NAME"
        )
    sys.path.insert(0, str(file.parent))
    try:
        module = load_file(str(file), "inspect_task_file")
    except ModuleNotFoundError as error:
        if error.name != "inspect_ai":
            raise
        fix = "pip install 'culmen[inspect]'"
        raise UserError("inspect_ai is not installed", where="InspectEvaluator", fix=fix) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(
            f"{file.name} defines no task '{name}'",
            where=str(file),
            fix="name one of its @task functions",
        )
    return function


def _failure_exception(fault: Any) -> Exception:
    """The exception for an error in a log: an unavailable model, or a failed sample."""
    from culmen.jail.culprit import AWAY

    last = fault.traceback.strip().splitlines()[-1] if fault.traceback else fault.message
    kind = last.partition(":")[0].rpartition(".")[2]
    return (
        ModelAway(fault.message)
        if kind in AWAY
        else SampleFailed(f"{kind}: {fault.message}"[:6000])
    )


def _describe_samples(samples: list[Any]) -> str:
    """Questions, answers, targets and scorer's explanations of at most ten samples."""
    descriptions = []
    for sample in samples[:10]:
        question = sample.input if isinstance(sample.input, str) else sample.input[-1].text
        lines = [
            f"sample {sample.id}: {question}",
            f"answer: {sample.output.completion}",
            f"target: {sample.target}",
            *([f"error: {sample.error.message}"] if sample.error else []),
            *([f"ended by its {sample.limit.type} limit"] if sample.limit else []),
        ]
        for name, score in (sample.scores or {}).items():
            lines.append(
                f"{name}: {score.value}" + (f" ({score.explanation})" if score.explanation else "")
            )
        descriptions.append("\n".join(line[:2000] for line in lines))
    return "\n\n".join(descriptions)


def main() -> None:
    """Write the samples as cases.

    `python -m culmen.extensions.compat.inspect_task FILE.py@NAME > cases.jsonl`
    """
    import msgspec

    for case in InspectEvaluator(sys.argv[1], None).cases:
        sys.stdout.write(
            msgspec.json.encode({"id": case.id, "input": case.input, "split": case.split}).decode()
            + "\n"
        )


if __name__ == "__main__":
    main()
