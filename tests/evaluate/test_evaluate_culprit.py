"""The culprit of a failed evaluation, as its observation names it.

It is the candidate, scorer, provider, machine or budget.
"""

import asyncio
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status, culprit_of, is_excused, place_in
from culmen.core.task import Evaluator, Task
from culmen.evaluate.function import FunctionBackend
from culmen.evaluate.integrity.guard import apply_policy
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load

TASK = Task("t", evaluator=Evaluator(form="function", digest="d"))


def judged(fn: Callable[..., object], text: str) -> Observation:
    """One evaluation of a text by a Python function."""

    async def once() -> Observation:
        backend = FunctionBackend(TASK, fn, 1)
        await backend.start()
        try:
            return await backend.evaluate(Candidate.of({"main.py": text}), Case("c"), 0)
        finally:
            await backend.close()

    return asyncio.run(once())


def raising(error: Exception) -> Callable[[str], float]:
    def evaluator(program: str) -> float:
        raise error

    return evaluator


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Error code: 503 - {'error': {'message': 'overloaded'}}"),
        RuntimeError("Error code: 429 - rate limited"),
        RuntimeError("judge failed: HTTP 502 Bad Gateway"),
        RuntimeError("the model is currently overloaded, try again"),
        RuntimeError("status code 500"),
        TimeoutError("read timed out"),
        TimeoutError("The read operation timed out"),
        OSError(110, "Connection timed out"),
        RuntimeError("connection to the model server lost"),
        RuntimeError("Connection reset by peer"),
    ],
    ids=str,
)
def test_a_service_that_does_not_answer_is_the_providers_failure(error: Exception) -> None:
    seen = judged(raising(error), "x = 1")
    assert (seen.status, seen.reason, culprit_of(seen)) == (
        Status.LOST,
        "provider_away",
        "provider",
    )
    assert is_excused(seen)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("connection to the simulator lost"),
        RuntimeError("no matching overloaded function found"),
        RuntimeError("error code 5: the solver gave up"),
        RuntimeError("Error code: 404 - no such model"),
        TimeoutError("the program timed out after 500 seconds"),
        TimeoutError("timed out"),
        TimeoutError(),
        ValueError("the answer was: Error code: 503"),
        KeyError("area"),
    ],
    ids=repr,
)
def test_what_a_function_raises_otherwise_is_undecided(error: Exception) -> None:
    seen = judged(raising(error), "x = 1")
    assert (seen.status, seen.reason, culprit_of(seen)) == (Status.ERROR, "exception", "")
    assert not is_excused(seen)


def wrapping(program: str) -> float:
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        raise ValueError("the judge gave nothing") from error


def quoting(program: str) -> float:
    raise RuntimeError(f"bad output: {program}")


def test_a_providers_failure_is_seen_through_another_exception_and_not_in_a_candidates_words() -> (
    None
):
    assert culprit_of(judged(wrapping, "x = 1")) == "provider"
    assert culprit_of(judged(quoting, "Error code: 503")) == ""


def executing(program: str) -> float:
    space: dict[str, object] = {}
    exec(program, space)
    return float(space["run"]())  # pyright: ignore


def importing(program: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidate.py")
        path.write_text("import math\n" + program)
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.run()


@pytest.mark.parametrize("evaluator", [executing, importing])
@pytest.mark.parametrize(
    "program",
    [
        "def run():\n    return 1 / 0\n",
        "def run():\n    return nope\n",
        "def run(:\n",
        "import nope\n",
        "def run():\n    raise ConnectionError('Error code: 503')\n",
        "def run():\n    raise TimeoutError('read timed out')\n",
        "import json\ndef run():\n    return json.loads('{')\n",
        "import sys\ndef run():\n    sys.exit(2)\n",
    ],
)
def test_what_a_candidates_text_raises_is_its_own(
    evaluator: Callable[[str], float], program: str
) -> None:
    seen = judged(evaluator, program)
    assert seen.status is Status.ERROR and culprit_of(seen) == "candidate", seen.feedback
    assert place_in(seen.failure_kind) == ""


def misspelling(program: str) -> float:
    return scroe  # noqa: F821  # pyright: ignore


def lacking(program: str) -> float:
    import no_such_module  # noqa: F401  # pyright: ignore

    return 1.0


def asking_the_candidates_module(program: str) -> float:
    import main.missing  # noqa: F401  # pyright: ignore

    return 1.0


def test_a_wrong_name_or_import_of_the_evaluator_is_its_own() -> None:
    for evaluator in (misspelling, lacking):
        seen = judged(evaluator, "x = 1")
        assert culprit_of(seen) == "scorer" and is_excused(seen), seen.feedback
        assert place_in(seen.failure_kind).startswith("test_evaluate_culprit.py:")
    assert culprit_of(judged(asking_the_candidates_module, "x = 1")) == ""


def test_a_wrong_output_that_an_evaluator_trips_over_is_undecided_and_its_kind_names_the_line() -> (
    None
):
    seen = judged(executing, "def run():\n    return 'word 12'\n")
    assert culprit_of(seen) == ""
    line = executing.__code__.co_firstlineno + 3
    assert seen.failure_kind == (
        f"error exception ValueError: could not convert string to float: 'word #' @ test_evaluate_culprit.py:{line}"
    )


FOLDER = {
    "p.py": "def run():\n    return 1\n",
    "task.toml": '[seed]\nfiles = ["p.py"]\n',
}


def in_folder(folder: Path, body: str, program: str = FOLDER["p.py"]) -> Observation:
    """One evaluation with a scorer in a process of its own."""
    for name, text in FOLDER.items():
        (folder / name).write_text(text)
    (folder / "evaluator.py").write_text(f"def score(output):\n    {body}\n")
    task = load(folder)

    async def once() -> Observation:
        backend = LocalBackend(task, 1)
        await backend.start()
        try:
            return await backend.evaluate(Candidate.of({"p.py": program}), None, 0)
        finally:
            await backend.close()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("body", "culprit", "status"),
    [
        ("return open('answers.json').read()", "scorer", Status.INVALID),
        ("return open('/nonexistent/answers.json').read()", "", Status.INVALID),
        ("import no_such_module", "scorer", Status.INVALID),
        ("return nope", "scorer", Status.INVALID),
        ("return 1 / 0", "", Status.INVALID),
        ("raise RuntimeError('Error code: 503')", "provider", Status.LOST),
        ("raise RuntimeError('connection to the simulator lost')", "", Status.INVALID),
        ("return {'loss': 1.0}", "scorer", Status.LOST),
        ("return {'score': None}", "candidate", Status.INVALID),
        ("return float('nan')", "candidate", Status.INVALID),
        ("return 1.0", "", Status.OK),
    ],
)
def test_a_scorer_in_a_process_of_its_own(
    tmp_path: Path, body: str, culprit: str, status: Status
) -> None:
    seen = in_folder(tmp_path, body)
    assert (seen.status, culprit_of(seen)) == (status, culprit), seen.feedback


def test_a_candidates_output_cannot_pass_for_a_provider_that_is_away(tmp_path: Path) -> None:
    program = "def run():\n    return 'Error code: ' + str(500 + 3)\n"
    seen = in_folder(tmp_path, "raise RuntimeError('cannot judge ' + output)", program)
    assert (seen.status, culprit_of(seen)) == (Status.INVALID, "")


@pytest.mark.parametrize(
    "program", ["def run():\n    return 1 / 0\n", "import os\ndef run():\n    os._exit(3)\n"]
)
def test_all_that_happens_in_a_candidates_own_process_is_its_own(
    tmp_path: Path, program: str
) -> None:
    assert in_folder(tmp_path, "return 1.0", program).culprit == "candidate"


def test_journals_that_have_no_culprit_have_what_status_and_reason_say() -> None:
    said = {
        (Status.LOST, "provider_away"): "provider",
        (Status.LOST, "scorer_error"): "scorer",
        (Status.LOST, "budget_dollars"): "budget",
        (Status.LOST, "zygote_died"): "machine",
        (Status.TIMEOUT, "cpu_limit"): "candidate",
        (Status.REJECTED, "memory_limit"): "candidate",
        (Status.REJECTED, "scorer_stalled"): "",
        (Status.INVALID, "score_nan"): "candidate",
        (Status.INVALID, "scorer_raised"): "",
        (Status.ERROR, "exception"): "",
        (Status.ERROR, "crash"): "",
        (Status.OK, ""): "",
    }
    for (status, reason), culprit in said.items():
        assert culprit_of(Observation("c", status, reason=reason)) == culprit, (status, reason)
        assert is_excused(Observation("c", status, reason=reason)) == (
            culprit not in ("", "candidate")
        )


def test_a_refusal_for_integrity_is_the_candidates_whoever_failed_before() -> None:
    from culmen.core.evaluation import Sign

    seen = Observation("c", Status.INVALID, culprit="scorer", signs=(Sign("frames", grave=True),))
    assert culprit_of(apply_policy("reject", seen)) == "candidate"


def test_failures_are_alike_whatever_their_numbers_and_place_in_the_candidate() -> None:
    trace = 'Traceback:\n  File "{}", line {}, in f\nValueError: {} of 7\n'
    one, two = (
        Observation(
            "c", Status.ERROR, reason="exception", feedback=trace.format("/w/p.py", line, line)
        )
        for line in (3, 4)
    )
    assert one.failure_kind == two.failure_kind == "error exception ValueError: # of #"
    there = Observation(
        "c", Status.ERROR, reason="exception", feedback=trace.format("/t/evaluator.py", 3, 3)
    )
    assert (
        place_in(there.failure_kind) == "evaluator.py:3"
        and Observation("c", Status.OK, 1.0).failure_kind == ""
    )
