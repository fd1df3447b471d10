"""`run_shinka_eval` as documented by shinka-evolve 0.0.7.

Runs, validation, aggregation, and two files of results.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

DEFAULT_METRICS_ON_ERROR = {
    "combined_score": 0.0,
    "execution_time_mean": 0.0,
    "execution_time_std": 0.0,
    "num_successful_runs": 0,
    "num_valid_runs": 0,
    "num_invalid_runs": 0,
    "all_validation_errors": [],
}


class StopDecision(Protocol):
    """A decision of a method for early stopping."""

    should_stop: bool
    prediction: str
    confidence: float
    reason: str | None


class StopMethod(Protocol):
    """A method for early stopping, as of `shinka.utils.eval_stop`."""

    name: str

    def reset(self) -> None:
        """Forget the scores so far."""
        ...

    def check(self, scores: list[float], threshold: float) -> StopDecision:
        """The decision after these scores."""
        ...


def load_program(program_path: str) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("program", program_path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{program_path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save_json_results(
    results_dir: str, metrics: dict[str, object], correct: bool, error: str | None = None
) -> None:
    """Write correct.json and metrics.json; raise TypeError for values without a JSON form."""
    folder = Path(results_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "correct.json").write_text(
        json.dumps({"correct": correct, "error": error}), encoding="utf-8"
    )
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")


def run_shinka_eval(
    program_path: str,
    results_dir: str,
    experiment_fn_name: str,
    num_runs: int,
    get_experiment_kwargs: Callable[[int], dict[str, Any]] | None = None,
    aggregate_metrics_fn: Callable[[list[Any]], dict[str, Any]] | None = None,
    validate_fn: Callable[[Any], tuple[bool, str | None]] | None = None,
    plotting_fn: Callable[[Any], list[Any]] | None = None,
    default_metrics_on_error: dict[str, Any] | None = None,
    early_stop_method: str | StopMethod | None = None,
    early_stop_threshold: float | None = None,
    early_stop_score_fn: Callable[[Any], float] | None = None,
    early_stop_kwargs: dict[str, Any] | None = None,
    run_workers: int = 1,
    max_workers_cap: int | None = None,
) -> tuple[dict[str, Any], bool, str | None]:
    """(metrics, True if all runs are valid, the first error). Nothing is plotted."""
    if run_workers < 1:
        raise ValueError("run_workers must be >= 1")
    if max_workers_cap is not None and max_workers_cap < 1:
        raise ValueError("max_workers_cap must be >= 1 when provided")
    workers = min(run_workers, max_workers_cap or run_workers, max(1, num_runs))
    if workers > 1 and early_stop_method is not None:
        raise ValueError("Early stopping is only supported in sequential mode (set run_workers=1).")
    stop = _make_early_stop(
        early_stop_method, early_stop_threshold, early_stop_score_fn, early_stop_kwargs
    )
    runs = _Runs(program_path, experiment_fn_name, num_runs, get_experiment_kwargs, workers)
    checks = _Validation(validate_fn)
    try:
        runs.perform(checks, stop)
        metrics = (
            aggregate_metrics_fn(runs.results)
            if aggregate_metrics_fn
            else _default_metrics(runs.results)
        )
        seconds = runs.seconds
        metrics["execution_time_mean"] = statistics.fmean(seconds) if seconds else 0.0
        metrics["execution_time_std"] = statistics.pstdev(seconds) if seconds else 0.0
        checks.add_counts_to(metrics)
        if stop is not None:
            metrics["early_stop"] = stop.report(len(runs.results), num_runs)
        if "combined_score" in metrics:
            checks.check_score(metrics["combined_score"])
    except Exception as error:  # noqa: BLE001 - the contract: any exception makes an experiment incorrect
        defaults = default_metrics_on_error or {}
        metrics = {key: defaults.get(key, value) for key, value in DEFAULT_METRICS_ON_ERROR.items()}
        checks.correct, checks.error = False, str(error)
    if "extra_data" in metrics:
        Path(results_dir).mkdir(parents=True, exist_ok=True)
        Path(results_dir, "extra.pkl").write_bytes(pickle.dumps(metrics.pop("extra_data")))
    save_json_results(results_dir, metrics, checks.correct, checks.error)
    return metrics, checks.correct, checks.error


class _Validation:
    """The results of `validate_fn` on the runs so far."""

    def __init__(self, check: Callable[[object], tuple[bool, str | None]] | None) -> None:
        self._check, self._valid, self._invalid = check, 0, 0
        self._errors: list[str] = []
        self.correct, self.error = True, None

    def validate_run(self, result: object) -> None:
        """Validate one run."""
        if self._check is None:
            return
        valid, why = self._check(result)
        if valid:
            self._valid += 1
            return
        self._invalid += 1
        self.record_failure(f"Validation failed: {why}" if why else None)
        if why and why not in self._errors:
            self._errors.append(why)

    def record_failure(self, why: str | None) -> None:
        """Note a failure; the first reason is kept."""
        self.correct, self.error = False, self.error or why

    def check_score(self, score: Any) -> None:
        """Note a score that is not finite; raises what NumPy raises for other types."""
        import numpy as np

        if np.isnan(score):
            self.record_failure("combined_score is NaN")
        elif np.isinf(score):
            self.record_failure(f"combined_score is inf ({score})")

    def add_counts_to(self, metrics: dict[str, object]) -> None:
        """Add the counts to the metrics."""
        if self._check is not None:
            metrics["num_valid_runs"], metrics["num_invalid_runs"] = self._valid, self._invalid
            metrics["all_validation_errors"] = self._errors


def _load_function(program_path: str, name: str) -> Callable[..., object]:
    module = load_program(program_path)
    if not hasattr(module, name):
        raise AttributeError(f"Experiment function '{name}' not found in {program_path}")
    return getattr(module, name)


def _processes_can_lock() -> bool:
    """True if processes can share a lock.

    Not at isolation level `restricted`, where runs have to follow one another.
    """
    try:
        multiprocessing.Lock()
    except OSError:
        return False
    return True


class _Runs:
    """The runs of a program's function: results and seconds, in their order."""

    def __init__(
        self,
        path: str,
        name: str,
        number: int,
        settings_of: Callable[[int], dict[str, Any]] | None,
        workers: int,
    ) -> None:
        self._path, self._name, self._number, self._workers = path, name, number, workers
        self._settings_of = settings_of or (lambda run: {"seed": run + 1})
        self.results: list[object] = []
        self.seconds: list[float] = []

    def perform(self, checks: _Validation, stop: _EarlyStop | None) -> None:
        """Run and validate all, or as many as it takes to stop early."""
        function = _load_function(self._path, self._name)
        if self._workers > 1 and _processes_can_lock():
            self._perform_in_parallel(checks)
            return
        for run in range(self._number):
            settings = self._settings_of(run)
            start = time.perf_counter()
            result = function(**settings)
            self.results.append(result)
            self.seconds.append(time.perf_counter() - start)
            checks.validate_run(result)
            if stop is not None and stop.is_enough(result):
                break

    def _perform_in_parallel(self, checks: _Validation) -> None:
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(self._workers, mp_context=fork) as pool:
            futures = [
                pool.submit(_run_once, self._path, self._name, self._settings_of(run))
                for run in range(self._number)
            ]
            for number, future in enumerate(futures, 1):
                try:
                    result, took = future.result()
                except Exception as error:
                    what = f"Run {number}/{self._number} failed in parallel evaluation: {error}."
                    raise RuntimeError(what) from error
                self.results.append(result)
                self.seconds.append(took)
        for result in self.results:
            checks.validate_run(result)


def _run_once(path: str, name: str, kwargs: dict[str, object]) -> tuple[object, float]:
    function = _load_function(path, name)
    start = time.perf_counter()
    return function(**kwargs), time.perf_counter() - start


def _default_metrics(results: list[object]) -> dict[str, Any]:
    first = str(type(results[0])) if results else "N/A"
    preview = str(results[:2]) if results else "N/A"
    return {
        "num_successful_runs": len(results),
        "first_run_result_type": first,
        "raw_results_preview": preview,
    }


class _EarlyStop:
    """A method for early stopping, and the scores of the runs so far."""

    def __init__(
        self, method: StopMethod, threshold: float, score_of: Callable[[object], float] | None
    ) -> None:
        self._method, self._threshold, self._score_of = method, threshold, score_of
        self._scores: list[float] = []
        self._last: StopDecision | None = None

    def is_enough(self, result: Any) -> bool:
        """True if the runs so far suffice; runs without a score do not count."""
        score = self._score(result)
        if score is None:
            return False
        self._scores.append(score)
        self._last = self._method.check(self._scores, self._threshold)
        return bool(self._last.should_stop)

    def _score(self, result: Any) -> float | None:
        if self._score_of is not None:
            try:
                return self._score_of(result)
            except Exception as error:  # noqa: BLE001 - the contract: such a run has no score
                sys.stdout.write(f"early_stop_score_fn raised {type(error).__name__}: {error}\n")
                return None
        if isinstance(result, int | float):
            return float(result)
        is_scored = isinstance(result, dict) and "score" in result
        return float(result["score"]) if is_scored else None

    def report(self, completed: int, requested: int) -> dict[str, object]:
        """The metric `early_stop`."""
        last = self._last
        return {
            "method": self._method.name,
            "threshold": self._threshold,
            "triggered": last.should_stop if last else False,
            "runs_completed": completed,
            "runs_requested": requested,
            "prediction": last.prediction if last else "uncertain",
            "confidence": last.confidence if last else 0.0,
            "reason": last.reason if last else None,
            "scores": self._scores,
        }


def _make_early_stop(
    method: str | StopMethod | None,
    threshold: float | None,
    score_of: Callable[[object], float] | None,
    options: dict[str, object] | None,
) -> _EarlyStop | None:
    """None without a method; the methods themselves are those of the installed package."""
    if method is None:
        return None
    if threshold is None:
        raise ValueError("early_stop_threshold is required when early_stop_method is set")
    if isinstance(method, str):
        method = _installed_stop_method(method, options or {})
    method.reset()
    return _EarlyStop(method, threshold, score_of)


def _installed_stop_method(name: str, options: dict[str, object]) -> StopMethod:
    try:
        from shinka.utils.eval_stop import create_early_stop_method  # pyright: ignore[reportMissingImports]
    except ImportError:
        what = (
            f"early_stop_method='{name}' needs ShinkaEvolve itself: pip install "
            "shinka-evolve, or leave it out"
        )
        raise ImportError(what) from None
    return create_early_stop_method(name, **options)
