"""Python to Dafny: real proofs pass, what makes the verifier believe is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.tasks import example_path, load
from tests.tasks.folder import modules

FOLDER = example_path("python_to_dafny")
needs_dafny = pytest.mark.skipif(not shutil.which("dafny"), reason="no dafny")
PROOFS = json.loads(Path(__file__).with_name("dafny_proofs.json").read_text())
CASES = {case.id: case for case in load(FOLDER).cases}


def judged(name: str, body: str) -> tuple[float, str]:
    (evaluator,) = modules("python_to_dafny", "evaluator")
    found = evaluator.score({f"methods/{name}.dfy": body}, CASES[name])
    return found["score"], found["feedback"]


@pytest.mark.slow
@needs_dafny
def test_all_methods_can_be_verified() -> None:
    (evaluator,) = modules("python_to_dafny", "evaluator")
    assert PROOFS.keys() == CASES.keys() and all(
        not evaluator.refused(body) for body in PROOFS.values()
    )
    worth, said = evaluator.verified(
        "\n".join(f"{CASES[name].info}\n{body}" for name, body in PROOFS.items())
    )
    assert worth == 1.0, said


@pytest.mark.slow
@needs_dafny
def test_the_initial_bodies_are_well_typed_and_score_as_stated() -> None:
    (evaluator,) = modules("python_to_dafny", "evaluator")
    task = load(FOLDER)
    bodies = {name: task.seeds[0][f"methods/{name}.dfy"] for name in CASES}
    worth, said = evaluator.verified(
        "\n".join(f"{CASES[name].info}\n{body}" for name, body in bodies.items())
    )
    assert worth == 0.25 and "resolution" not in said
    assert judged("absolute", bodies["absolute"])[0] == 1.0
    score, feedback = judged("maximum", bodies["maximum"])
    assert (
        score == 0.25 and "def maximum" in feedback and "postcondition might not hold" in feedback
    )


GAMED = {
    "assume": "{ assume false; }",
    "assume that a value is there": "{ m :| assume m > 0; }",
    "an attribute": "{:verify false} { m := 0; }",
    "an attribute behind a comment": "{ /* x */ {/**/:verify false} m := 0; }",
    "a clause of its own": "requires false\n{ m := 0; }",
    "another method": "{ m := Help(a); }\nlemma Help(a: seq<int>) returns (m: int) ensures false",
    "braces hidden in a comment": "{ m := 0; /* { */ } lemma L() ensures false // }",
    "a comment in a comment": "{ m := 0; /* /* */ } */ } method M() { // }",
    "a text": '{ print "{"; } }',
    "code left out": "{ ...; }",
    "nothing": "",
    "a comment without end": "{ m := 0; } /* ",
}


@needs_dafny
@pytest.mark.parametrize("name", GAMED)
def test_what_makes_the_verifier_believe_is_refused(name: str) -> None:
    score, feedback = judged("maximum", GAMED[name])
    assert score == 0 and "refused" in feedback


@pytest.mark.slow
@needs_dafny
@pytest.mark.parametrize(
    "body",
    [
        "{ m := a[0]; while m > 0 invariant true decreases 0 }",  # Dafny takes such a loop for granted, with a warning
        "{ m := a[0]; forall i | 0 <= i < |a| ensures a[i] <= m; }",
    ],
)
def test_loops_without_a_body_prove_nothing(body: str) -> None:
    score, feedback = judged("maximum", body)
    assert score == 0 and "without a body is taken for granted" in feedback


@pytest.mark.slow
@needs_dafny
@pytest.mark.parametrize("body", ["{ m := Maximum(a); }", "{ while true { } }", "{ m := 0; }"])
def test_what_never_ends_or_is_wrong_is_not_proved(body: str) -> None:
    assert judged("maximum", body)[0] == 0.25


def test_without_dafny_the_task_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "evaluator.py"],
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "apt install dafny" in done.stderr
