"""ShinkaEvolve's contract, inside the jail: call `evaluate.py`, read its results.

The program's path leads to a stub (see `openevolve.evaluator_process`), and the program's own
process never sees the folder of the results.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from types import ModuleType

from culmen.core.json import JsonObject

STANDINS = str(Path(__file__).parent / "standins")
CONTRACT = (
    "ShinkaEvolve's contract: main(program_path, results_dir) writes correct.json, "
    '{"correct": bool, "error": text}, '
    'and metrics.json, {"combined_score": number, "public": {...}, "text_feedback": text}, '
    "into results_dir"
)
_MAX_BYTES = 16 << 20  # bytes of a file of results
_ARGUMENTS = {"program_path", "results_dir"}


class BrokenContract(Exception):
    """The evaluator breaks ShinkaEvolve's contract; the text has the place."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {CONTRACT}")


def install_stand_in() -> None:
    """Make `shinka.core` a stand-in with `run_shinka_eval`.

    Other modules of an installed shinka remain.
    """
    if STANDINS not in sys.path:
        sys.path.insert(0, STANDINS)
        others = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (STANDINS, others))
        )  # for interpreters it starts


def check_evaluator(module: ModuleType, path: str) -> None:
    """Raise NameError for an evaluator that can be called neither way."""
    if not _is_main_callable(module) and "__main__" not in Path(path).read_text(encoding="utf-8"):
        raise NameError("evaluate.py has no main(program_path, results_dir) and is not a script")


def evaluate_program(module: ModuleType, path: str, program: str) -> tuple[JsonObject, JsonObject]:
    """(metrics, artifacts) of a program, in OpenEvolve's form.

    `combined_score` is None if the program is not correct.
    """
    results = tempfile.mkdtemp(prefix="results-")
    if _is_main_callable(module) and not _gives_more(path):
        answer = module.main(program_path=program, results_dir=results)
        if inspect.isawaitable(answer):
            asyncio.run(_await_answer(answer))
    else:
        _as_script(path, program, results)
    correct, metrics = (
        _read_result_file(Path(results, name)) for name in ("correct.json", "metrics.json")
    )
    if not isinstance(correct.get("correct"), bool):
        raise BrokenContract(
            f"correct.json has correct = {str(correct.get('correct'))[:60]}, which is neither true "
            "nor false"
        )
    return _public_results(correct, metrics)


def _is_main_callable(module: ModuleType) -> bool:
    """True if main takes the two arguments by name and requires no others."""
    main = getattr(module, "main", None)
    if not inspect.isfunction(main):
        return False
    parameters = inspect.signature(main).parameters
    return parameters.keys() >= _ARGUMENTS and all(
        name in _ARGUMENTS
        or parameter.default is not parameter.empty
        or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        for name, parameter in parameters.items()
    )


_CALL = re.compile(r"(?<![\w.])main\(((?:[^()]|\([^()]*\))*)\)")


def _gives_more(path: str) -> bool:
    """True if the file as a script, as which ShinkaEvolve runs it, gives main other arguments."""
    script = Path(path).read_text(encoding="utf-8").partition("__main__")[2]
    return any(
        "**" in given or re.sub(r"\([^()]*\)|,\s*$", "", given).count(",") > 1
        for given in _CALL.findall(script)
    )


async def _await_answer(answer: Awaitable[object]) -> None:
    await answer


def _as_script(path: str, program: str, results: str) -> None:
    sys.argv = [path, "--program_path", program, "--results_dir", results]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise BrokenContract(f"evaluate.py exited with status {error.code}") from None


def _read_result_file(path: Path) -> JsonObject:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BrokenContract(f"{path.name} is larger than {_MAX_BYTES} bytes")
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BrokenContract(f"evaluate.py ended without a {path.name}") from None
    except (ValueError, RecursionError) as error:
        raise BrokenContract(f"{path.name} is not JSON: {error}") from None
    if not isinstance(results, dict):
        raise BrokenContract(f"{path.name} holds a {type(results).__name__}, not an object")
    return results


def _public_results(correct: JsonObject, metrics: JsonObject) -> tuple[JsonObject, JsonObject]:
    """(metrics, artifacts) without `private` metrics and `extra_data`.

    Models may see everything that is kept.
    """
    public = metrics.get("public")
    results = {**(public if isinstance(public, dict) else {})}
    results |= {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    artifacts = {
        key: results.pop(key)
        for key, value in list(results.items())
        if not isinstance(value, int | float)
    }
    if text := metrics.get("text_feedback"):
        results["text_feedback"] = str(text)
    results.pop("combined_score", None)
    if not correct["correct"]:
        return {
            **results,
            "error": str(correct.get("error") or "correct.json has correct = false"),
        } | _NONE, artifacts
    if "combined_score" not in metrics:  # the runner of ShinkaEvolve counts 0
        artifacts["note"] = "metrics.json has no combined_score: it counts 0"
    return {**results, "combined_score": metrics.get("combined_score", 0.0)}, artifacts


_NONE: JsonObject = {"combined_score": None}
