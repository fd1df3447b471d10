"""Exceptions and values of evaluators that cannot be read: named, and never another's fault."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import culmen
from culmen.cli.main import main
from culmen.core.evaluation import Observation
from culmen.store import views

SEED = "def run():\n    return 7.0\n"
ODD = "class Odd(Exception):\n    def __str__(self): raise {}\n    __repr__ = __str__\n"
LONG = (
    "odd = ValueError('last')\nfor _ in range(3000):\n    late = ValueError('x')\n"
    "    late.__cause__, odd = odd, late\nraise odd"
)
RAISES = {
    "raises": (ODD.format("RuntimeError") + "raise Odd()", "Odd"),
    "exits": (ODD.format("SystemExit(3)") + "raise Odd()", "Odd"),
    "no text": (
        "class Odd(Exception):\n    def __str__(self): return 5\nraise Odd()",
        "Odd",
    ),
    "nested": (
        "odd = ValueError(1)\nfor _ in range(5000): odd = ExceptionGroup('g', [odd])\nraise odd",
        "ExceptionGroup: g",
    ),
    "long": (LONG, "ValueError: x"),
    "circle": (
        "one, two = ValueError('one'), ValueError('two')\none.__cause__, two.__cause__ = two, one\nraise one",
        "ValueError: one",
    ),
}
SCORES = {
    "half a pair": "return {'score': 1.0, 'feedback': 'a\\ud83d'}",
    "digits": "return {'score': 1.0, 'feedback': 10**5000}",
    "itself": "deep = []\nfor _ in range(100_000): deep = [deep]\nreturn {'score': 1.0, 'feedback': deep}",
    "closed": "import sys\nsys.stdout.close()\nsys.stderr.close()\nreturn 1.0",
}


def judged(body: str, head: str, folder: Path) -> Observation:
    """The first observation of a run with an evaluator of this body, as function or as file."""
    lines = body.replace("\n", "\n    ")
    text = f"def {head}:\n    {lines}\n"
    run = folder / "run"
    if "program" in head:
        space: dict[str, object] = {}
        exec(compile(text, str(folder / "own.py"), "exec"), space)
        keywords = {"budget": 1, "run_dir": run, "progress": False, "allow_failing": True}
        with contextlib.suppress(culmen.NothingScored):
            culmen.optimize(SEED, space["evaluate"], model="offline", **keywords)  # pyright: ignore[reportArgumentType]
    else:
        (folder / "initial_program.py").write_text(SEED)
        (folder / "evaluator.py").write_text(text)
        told = ["--budget", "1", "--run-dir", str(run), "--quiet", "--set", "allow_failing=on"]
        assert main(["run", str(folder), *told]) in (0, 1)
    return next(iter(views.stream_observations(run)))


@pytest.mark.parametrize("head", ["evaluate(program)", "score(output)"])
@pytest.mark.parametrize("name", RAISES)
def test_an_exception_that_cannot_be_shown_is_named(name: str, head: str, tmp_path: Path) -> None:
    body, words = RAISES[name]
    seen = judged(body, head, tmp_path)
    assert not seen.ok and words in seen.feedback
    assert "without a result" not in seen.feedback and "did not answer" not in seen.feedback


@pytest.mark.parametrize("head", ["evaluate(program)", "score(output)"])
@pytest.mark.parametrize("name", SCORES)
def test_a_score_with_words_that_cannot_be_read_is_a_score(
    name: str, head: str, tmp_path: Path
) -> None:
    seen = judged(SCORES[name], head, tmp_path)
    assert seen.ok and seen.score == 1.0, seen.feedback
