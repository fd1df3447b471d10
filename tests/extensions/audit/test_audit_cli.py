"""`culmen audit` as a command: its arguments, output and exit codes.

It takes a task or a run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Place
from tests.evaluate.conftest import need
from tests.extensions.audit.test_audit_tightened import bare
from tests.extensions.audit.worlds import OLD_PACK, POINTS, PUSHED, SCALED, old, packing, triangle

RANDOM = """\
import random


def run():
    rng, found = random.Random(1), []
    while len(found) < 11:
        x, y = rng.random(), rng.random()
        if 0.01 < x and 0.01 < y and x + y < 0.99:
            found.append((x, y))
    return found
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    need("restricted")
    return Place(tmp_path)


pytestmark = pytest.mark.jail


@pytest.mark.slow
def test_a_task_that_can_be_gamed(place: Place) -> None:
    packing(place.root / "pack", verify=False)
    done = place.here("audit", "pack", "--only", "tolerance", "--only", "patch_numpy", "--json")
    assert done.code == 1, done.err
    report = done.document
    assert (report["kind"], report["gamed"], report["trust"]) == ("task", True, "verified")
    outcomes = {outcome["name"]: outcome for outcome in report["outcomes"]}
    assert {name: outcome["result"] for name, outcome in outcomes.items()} == {
        "tolerance": "gamed",
        "patch_numpy": "held",
    }
    (line,) = outcomes["tolerance"]["places"]
    assert (line["file"], line["line"], line["proven"]) == ("evaluator.py", 3, True)


@pytest.mark.slow
def test_the_same_for_people(place: Place) -> None:
    packing(place.root / "pack", verify=False)
    done = place.here("audit", "pack", "--only", "tolerance")
    assert done.code == 1
    assert (
        "Pushed into the tolerance" in done.out
        and "evaluator.py:3 (proven)  TOLERANCE = 1e-6" in done.out
    )
    assert "1 attack of 1 paid" in done.out


def test_a_task_that_holds(place: Place) -> None:
    packing(place.root / "pack", verify=False)
    done = place.here("audit", "pack", "--only", "patch_numpy", "--only", "forge_line")
    assert (
        done.code == 0 and "None of 2 attacks paid." in done.out and "culmen run pack" in done.out
    )


def test_an_evaluator_alone_is_tried_with_your_program(place: Place) -> None:
    old(place.root / "old")
    (place.root / "old" / "initial_program.py").rename(place.root / "mine.py")
    done = place.here("audit", "old/evaluator.py", "--only", "forge_line")
    assert (
        done.code == 2 and "the audit needs a program" in done.err and "--program FILE" in done.err
    )
    done = place.here(
        "audit", "old/evaluator.py", "--program", "mine.py", "--only", "forge_line", "--json"
    )
    assert done.code == 0 and done.document["trust"] in ("proxied", "self-reported"), done.err
    done = place.here("audit", "old/evaluator.py", "--program", "theirs.py")
    assert done.code == 2 and "no program 'theirs.py'" in done.err


@pytest.mark.slow
def test_a_program_other_than_the_seed(place: Place) -> None:
    """A seed far from the edge shows nothing about tolerances; one at the edge does."""
    folder = packing(place.root / "pack", verify=False)
    (folder / "pack.py").write_text(
        OLD_PACK.replace("run_packing", "run").replace(", float(radii.sum())", " * 0.5")
    )
    done = place.here("audit", "pack", "--only", "tolerance")
    assert (
        done.code == 6
        and "Inconclusive: pushed into the tolerance" in done.out
        and "--program FILE" in done.out
    )
    assert (
        "evaluator.py:3" in done.out and "None of 1 attacks paid, which proves little" in done.out
    )
    edge = place.root / "edge.py"
    edge.write_text(OLD_PACK.replace("run_packing", "run").replace(", float(radii.sum())", ""))
    assert place.here("audit", "pack", "--program", "edge.py", "--only", "tolerance").code == 1


@pytest.mark.slow
def test_no_program_of_the_paper_s_example_is_reassured(place: Place) -> None:
    """Points at random, a shrunken optimum and the cheating winner itself.

    None ends with `none of them paid`.
    """
    folder = bare(place.root / "triangle", triangle)
    (folder / "random.py").write_text(RANDOM)
    (folder / "inner.py").write_text(
        POINTS.replace(
            "return POINTS", "return [(0.1 + 0.8 * x, 0.1 + 0.7 * y) for x, y in POINTS]"
        )
    )
    (folder / "scaled.py").write_text(SCALED)
    codes = {}
    for name in ("random.py", "inner.py", "scaled.py", "points.py"):
        only = ("--only", "tolerance", "--only", "tightened", "--only", "forge_line")
        codes[name] = place.here("audit", "triangle", "--program", f"triangle/{name}", *only)
    assert {name: done.code for name, done in codes.items()} == {
        "random.py": 6,
        "inner.py": 6,
        "scaled.py": 1,
        "points.py": 1,
    }
    assert "refused (invalid) with a tenth of the tolerance" in codes["scaled.py"].out
    assert (
        "slope, not an edge" in codes["inner.py"].out
        or "nowhere at the edge" in codes["inner.py"].out
    )


def test_a_program_that_scores_nothing_reassures_nobody(place: Place) -> None:
    folder = old(place.root / "old")
    (folder / "initial_program.py").write_text(
        OLD_PACK.replace("[0.1] * 25", "[0.2] * 25")
    )  # they overlap
    done = place.here("audit", "old", "--only", "forge_line", "--json")
    assert done.code == 6 and done.document["inconclusive"] is True
    assert "the program scores 0" in done.document["doubts"][0]


def test_mistakes(place: Place) -> None:
    packing(place.root / "pack", verify=False)
    done = place.here("audit", "pack", "--only", "nuke")
    assert done.code == 2 and "no attack 'nuke'" in done.err and "tolerance" in done.err
    assert place.here("audit", "nowhere").code == 2


def test_a_run_is_looked_through(place: Place) -> None:
    folder = packing(place.root / "pack")
    (folder / "pack.py").write_text(
        PUSHED.replace("run():", "run():  # exploits the evaluator's slack")
    )
    run = place.here(
        "run",
        "pack",
        "--strategy",
        "best_of_n",
        "--budget",
        "evaluations=3",
        "--run-dir",
        "runs/one",
        "--json",
    )
    assert run.code == 0, run.err
    status = run.document
    assert (
        status["findings"] >= 1
        and status["integrity"] == "warn"
        and "best_before_first_finding" in status
    )
    done = place.here("audit", "one", "--json")
    assert done.code == 1, done.err
    found = {finding["sign"]: finding for finding in done.document["findings"]}
    assert (
        found["certified_gap"]["grave"]
        and found["certified_gap"]["certified"] < found["certified_gap"]["score"]
    )
    assert "tolerance" not in found  # it is the seed's own
    shown = place.here("audit", "runs/one")
    assert (
        shown.code == 1
        and "certified_gap" in shown.out
        and "culmen runs fork one --set integrity=reject" in shown.out
    )
    assert "grave sign" in place.here("status", "one").out
    assert place.here("audit").code == 1  # the latest run


def test_a_run_under_stop_says_so_and_exits_with_findings(place: Place) -> None:
    folder = packing(place.root / "pack")
    (folder / "pack.py").write_text(PUSHED)
    line = (
        "run",
        "pack",
        "--strategy",
        "best_of_n",
        "--budget",
        "evaluations=4",
        "--run-dir",
        "runs/two",
    )
    done = place.here(*line, "--set", "integrity=stop", "--quiet")
    assert (
        done.code == 1 and "culmen audit two" in done.out and "(--set integrity=stop)" in done.out
    )
    again = place.here(*line[:-1], "runs/three", "--set", "integrity=shrug")
    assert again.code == 2 and "warn, reject, stop" in again.err
