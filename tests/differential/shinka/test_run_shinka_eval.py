"""`run_shinka_eval`: results, both files and errors; the folder of results as a pool."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
from hypothesis import given
from hypothesis import strategies as st
from shinka.core.wrap_eval import run_shinka_eval as package_eval
from shinka.database import DatabaseConfig, Program, ProgramDatabase
from shinka.utils.general import load_results

from culmen.extensions.compat.shinka_process import (
    BrokenContract,
    _public_results,
    _read_result_file,
)
from culmen.extensions.compat.shinka_results import read_pool
from culmen.extensions.compat.standins.shinka.core.wrap_eval import run_shinka_eval as our_eval
from tests.differential.comparing import answer_or_error, inputs, same

RESULTS = st.sampled_from(
    (
        1.5,
        2,
        True,
        math.nan,
        "text",
        None,
        {"score": 3},
        {"score": "x"},
        {"other": 1},
        (1, 2),
        "RAISE",
    )
)
SCORES = st.sampled_from(
    (0.5, 3, True, math.nan, math.inf, -math.inf, None, "0.5", [1.0], numpy.float64(2.5), 10**400)
)
METRICS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "combined_score": SCORES,
            "public": st.dictionaries(st.sampled_from("ab"), st.sampled_from((1, 0.5, "t", None))),
            "private": st.just({"hidden": 1}),
            "extra_data": st.sampled_from(({"raw": [1]}, "text")),
            "text_feedback": st.sampled_from(("", "good", "two\nlines")),
            "other": st.sampled_from((1, True, "t", None)),
        },
    ),
    st.just("RAISE"),
    st.just([1, 2]),
)
CHECKS = st.sampled_from((None, "valid", "invalid", "no reason", "odd", "RAISE", "not a pair"))
METHODS = st.sampled_from((None, "none", "bayesian", "ci", "hybrid", "own", "unknown"))
SCORE_FUNCTIONS = st.sampled_from((None, "number", "RAISE", "none", "alternate"))


class OwnMethod:
    """A method for early stopping of one's own."""

    name = "own"

    def reset(self) -> None:
        self.calls = 0

    def check(self, scores: list[float], threshold: float) -> Any:
        return SimpleNamespace(
            should_stop=len(scores) > 1, prediction="beats", confidence=0.75, reason="two"
        )


def validate_with(kind: str | None) -> Callable[[Any], Any] | None:
    def validate(result: Any) -> Any:
        if kind == "RAISE":
            raise ValueError("validation raised")
        if kind == "not a pair":
            return True
        is_valid = kind == "valid" or (kind == "odd" and isinstance(result, int | float))
        return is_valid, None if is_valid or kind == "no reason" else f"bad {result!r}"

    return None if kind is None else validate


def aggregate_with(metrics: Any) -> Callable[[list[Any]], Any] | None:
    def aggregate(results: list[Any]) -> Any:
        if metrics == "RAISE":
            raise RuntimeError("aggregation raised")
        return dict(metrics) if isinstance(metrics, dict) else metrics

    return None if metrics is None else aggregate


def score_with(kind: str | None) -> Callable[[Any], Any] | None:
    seen: list[int] = []

    def score(result: Any) -> Any:
        seen.append(1)
        if kind == "RAISE" or (kind == "alternate" and len(seen) % 2):
            raise ValueError("no score")
        return None if kind == "none" else float(len(seen))

    return None if kind is None else score


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Any], Callable[[], dict[str, Any]], str]:
    """The results of a program's runs, and a maker of the other arguments."""
    results = draw(st.lists(RESULTS, max_size=4))
    number = draw(st.integers(0, 4))
    metrics, check, method = draw(METRICS), draw(CHECKS), draw(METHODS)
    score, threshold = draw(SCORE_FUNCTIONS), draw(st.sampled_from((None, 0.5, 2.0)))
    defaults = draw(st.sampled_from((None, {}, {"combined_score": -1.0, "num_valid_runs": 7})))
    workers = draw(st.sampled_from((1, 1, 1, 0)))
    kwargs = draw(st.sampled_from((None, "run", "RAISE", "late")))
    name = draw(st.sampled_from(("experiment",) * 9 + ("missing",)))

    def settings_of(run: int) -> dict[str, Any]:
        if kwargs == "RAISE" or (kwargs == "late" and run == 1):
            raise KeyError("settings")
        return {"seed": run + 10}

    def arguments() -> dict[str, Any]:
        return {
            "experiment_fn_name": name,
            "num_runs": number,
            "get_experiment_kwargs": settings_of if kwargs else None,
            "aggregate_metrics_fn": aggregate_with(metrics),
            "validate_fn": validate_with(check),
            "default_metrics_on_error": defaults,
            "early_stop_method": OwnMethod() if method == "own" else method,
            "early_stop_threshold": threshold,
            "early_stop_score_fn": score_with(score),
            "run_workers": workers,
        }

    return results, arguments, f"{results} {number} {metrics} {check} {method} {score} {kwargs}"


PROGRAM = """
RESULTS = {results}
def experiment(seed):
    result = RESULTS[seed % len(RESULTS)] if RESULTS else seed
    if result == "RAISE":
        raise ZeroDivisionError("the program raised")
    return result
"""


def written(folder: Path) -> tuple[Any, ...]:
    """Both files and the extra data, without times."""
    texts = []
    for name in ("correct.json", "metrics.json"):
        path = folder / name
        values = json.loads(path.read_text()) if path.is_file() and path.stat().st_size else None
        if isinstance(values, dict):
            values = {key: value for key, value in values.items() if "time" not in key}
        texts.append(values)
    extra = folder / "extra.pkl"
    return (*texts, pickle.loads(extra.read_bytes()) if extra.is_file() else None)


@inputs(2000)
@given(calls())
def test_results_and_files(call: tuple[list[Any], Callable[[], dict[str, Any]], str]) -> None:
    results, arguments, shown = call
    place = Path(tempfile.mkdtemp(prefix="shinka-"))
    try:
        program = place / "program.py"
        program.write_text(
            PROGRAM.format(results=repr(results).replace("nan", "float('nan')")), encoding="utf-8"
        )
        answers = []
        for name, function in (("package", package_eval), ("ours", our_eval)):
            folder = place / name
            answer = answer_or_error(
                lambda run=function, into=folder: without_times(
                    run(str(program), str(into), **arguments())
                )
            )
            is_written = folder.is_dir() and not isinstance(answer, str)
            answers.append((answer, written(folder) if is_written else None))
        same("run_shinka_eval: results and files", answers[0], answers[1], shown)
        if answers[0][1] is not None:
            check_runner(place / "package", place / "ours")
    finally:
        shutil.rmtree(place)


def without_times(answer: tuple[dict[str, Any], bool, str | None]) -> Any:
    metrics, *others = answer
    return {key: value for key, value in metrics.items() if "time" not in key}, *others


def check_runner(package: Path, ours: Path) -> None:
    """The score that ShinkaEvolve's runner takes from the files, and the one that culmen takes."""
    loaded = load_results(str(package))
    correct = loaded["correct"]["correct"]
    score = loaded["metrics"].get("combined_score", 0.0)
    try:
        files = [_read_result_file(ours / f"{name}.json") for name in ("correct", "metrics")]
        results, _ = _public_results(*files)
    except BrokenContract as error:
        assert str(error)
        return
    taken = score if correct else None  # what is not correct is no result of a search
    same("runner: the score of the files", taken, results["combined_score"], loaded)


@inputs(40)
@given(
    st.lists(
        st.tuples(st.text("ab=1\n", max_size=9), st.sampled_from((0.0, 1.0, -2.5)), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_a_folder_of_results(rows: list[tuple[str, float, bool]]) -> None:
    place = Path(tempfile.mkdtemp(prefix="shinka-"))
    try:
        database = ProgramDatabase(DatabaseConfig(db_path=str(place / "programs.sqlite")))
        for number, (code, score, correct) in enumerate(rows):
            program = Program(
                id=f"p{number}", code=code, generation=number, combined_score=score, correct=correct
            )
            program.embedding = [0.0]
            database.add(program)
        stored = [each for each in database.get_all_programs() if each.correct]
        database.close()
        wanted = sorted((-each.combined_score, each.code) for each in stored)
        found = [(-(m.score or 0.0), m.parts["initial.py"]) for m in read_pool(place).members]
        same("folders of results: programs and scores", wanted, sorted(found), rows)
    finally:
        shutil.rmtree(place)
