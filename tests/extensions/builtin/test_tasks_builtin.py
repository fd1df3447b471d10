"""The built-in tasks: they load, and they can be copied out.

In the jail their seeds score as stated.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.check import TaskReport, check_task
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, examples, load, surface_fault, write_new

NAMES = [name for name, _ in examples()]
# What they need may be missing, or they take long: tests of their own.
AGENTS = {"harness", "mcp", "skill", "tools"}  # rollouts: tests/extensions/skills/rollouts
BENCHMARKS = {"hotpotqa", "kernel_matmul", "python_to_dafny", "tau_retail", "veribench", *AGENTS}
LIGHT = [  # others: tests/extensions/train
    name
    for name in NAMES
    if name not in BENCHMARKS and "torch" not in load(example_path(name)).evaluator.packages
]
TIMED = {"eplb"}  # a busy machine changes what these score


def run(task: Task, candidate: Candidate, seeds: int = 1) -> list[Observation]:
    """The candidate on every training case, with this many random seeds."""

    async def all_cases() -> list[Observation]:
        backend = LocalBackend(task, 2)
        try:
            await backend.start()
            jobs = [
                (case, seed) for case in task.split("train") or (None,) for seed in range(seeds)
            ]
            return await asyncio.gather(
                *(backend.evaluate(candidate, case, seed) for case, seed in jobs)
            )
        finally:
            await backend.close()

    return asyncio.run(all_cases())


def test_what_there_is() -> None:
    forms = {load(example_path(name)).evaluator.form for name in NAMES if name not in AGENTS}
    assert forms == {"call", "serve", "command"} and len(NAMES) == 25
    assert all(line and len(line) < 120 and not line.endswith(".") for _, line in examples())


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_the_same_task_and_says_nothing_is_wrong(tmp_path: Path, name: str) -> None:
    written = write_new(tmp_path / "new", name)
    made = name in AGENTS  # their tasks are written into the copy
    again = write_new(tmp_path / "again", name)[0].parent if made else example_path(name)
    task, original = load(tmp_path / "new"), load(again)
    assert (task.evaluator.form == "rollout") == made
    judge = "test.sh" if task.evaluator.form == "rollout" else "evaluator.py"
    assert {"task.toml", judge} <= {path.name for path in written}
    assert task.digest == original.digest and task.seeds == original.seeds
    assert name in BENCHMARKS or task.notes == ()
    assert all(surface_fault(task, candidate) == "" for candidate in task.initial_candidates())


def test_a_new_task_is_three_files_and_nothing_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "mine"
    assert len(write_new(target)) == 3
    (target / "task.toml").write_text("mine")
    with pytest.raises(UserError, match="the folder is not empty"):
        write_new(target)
    assert (target / "task.toml").read_text() == "mine"
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="there is a file of that name"):
        write_new(tmp_path / "file")
    with pytest.raises(UserError, match="could not be written"):
        write_new(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="did you mean 'circle_packing'"):
        write_new(tmp_path / "other", "circle_packin")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_seeds_score_as_stated(name: str) -> None:
    task = load(example_path(name))
    seen = run(task, task.initial_candidates()[0], 1 if task.deterministic else 12)
    assert {o.status for o in seen} == {Status.OK}, seen[0].feedback
    assert all(
        o.trust == "verified" and o.feedback and o.evaluator == task.evaluator.digest for o in seen
    )
    scores = [o.score for o in seen if o.score is not None]
    start = task.objective.start
    assert start is not None and not task.objective.reaches_target(fmean(scores))
    slack = 1e-3 if task.deterministic else 0.5 if name in TIMED else 0.2
    assert fmean(scores) == pytest.approx(start, rel=slack)


BETTER: dict[str, dict[str, str]] = {
    "bin_packing": {
        "pack.py": """
def pack(capacity, items):
    gaps, chosen = [], [0] * len(items)
    for i in sorted(range(len(items)), key=lambda i: -items[i]):
        b = min((b for b, gap in enumerate(gaps) if gap >= items[i]), key=lambda b: gaps[b], default=len(gaps))
        gaps += [capacity] * (b == len(gaps))
        gaps[b] -= items[i]
        chosen[i] = b
    return chosen
"""
    },
    "function_minimization": {
        "search.py": "def run():\n    return [[2.15555604, -0.00928296]] * 5\n"
    },
    "log_report": {
        "report.awk": "!($1 in t){n[++c]=$1}{t[$1]+=$2}END{while(i<c)print n[++i],t[n[i]]}"
    },
    "pole_balance": {
        "controller.py": "def act(s):\n    return s[0] + 2 * s[1] + 35 * s[2] + 8 * s[3]\n"
    },
    "routing_rules": {
        "rules.txt": "".join(
            f"{word} -> {desk}\n"
            for desk, words in {
                "billing": "refund invoice charged charge payment receipt card price",
                "shipping": "parcel courier delivery tracking order box boxes",
                "technical": "error app",
                "account": "account password login log user email code",
            }.items()
            for word in words.split()
        )
        + "* -> technical\n",
    },
}


@pytest.mark.parametrize("name", BETTER)
def test_better_candidates_score_better(name: str) -> None:
    task = load(example_path(name))
    seen = run(task, Candidate.of(BETTER[name]), 1 if task.deterministic else 6)
    assert {o.status for o in seen} == {Status.OK}, seen[0].feedback
    start = task.objective.start
    assert start is not None
    gain = fmean(task.reward(o) or 0.0 for o in seen) - task.objective.reward(start)
    assert gain > 0.02


BAD: dict[str, list[tuple[dict[str, str], Status, str]]] = {
    "bin_packing": [
        (
            {"pack.py": "def pack(capacity, items):\n    return [0] * len(items)\n"},
            Status.INVALID,
            "its capacity is",
        ),
        (
            {"pack.py": "def pack(capacity, items):\n    return []\n"},
            Status.INVALID,
            "one for each item",
        ),
        (
            {"pack.py": "def pack(capacity, items):\n    return [True] * len(items)\n"},
            Status.INVALID,
            "whole numbers",
        ),
    ],
    "function_minimization": [
        (
            {"search.py": "def run():\n    return [[float('nan'), 0.0]] * 5\n"},
            Status.INVALID,
            "between -5 and 5",
        ),
        (
            {"search.py": "def run():\n    return [[0.0, 0.0, -99.0]] * 5\n"},
            Status.INVALID,
            "two numbers",
        ),
        ({"search.py": "def run():\n    return {'score': -9}\n"}, Status.INVALID, "five points"),
    ],
    "log_report": [({"report.awk": "{print $1,$2}"}, Status.INVALID, "of the output should be")],
    "pole_balance": [
        (
            {"controller.py": "def act(s):\n    return float('nan')\n"},
            Status.INVALID,
            "finite number",
        ),
        ({"controller.py": "def act(s):\n    return 'left'\n"}, Status.INVALID, "finite number"),
    ],
    "routing_rules": [
        ({"rules.txt": "invoice billing\n"}, Status.INVALID, "line 1 is no rule"),
        ({"rules.txt": "invoice -> nowhere\n"}, Status.INVALID, "line 1 is no rule"),
        ({"rules.txt": "* -> billing\n" * 61}, Status.INVALID, "at most 60"),
    ],
    "tide_forecast": [
        (
            {"model.py": "def forecast(h):\n    return [0.0]\n", "constants.json": "{}"},
            Status.INVALID,
            "24 numbers",
        ),
        (
            {
                "model.py": "def forecast(h):\n    return [float('nan')] * len(h)\n",
                "constants.json": "{}",
            },
            Status.INVALID,
            "between -500 and 500",
        ),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_unacceptable_outputs_get_no_score(name: str) -> None:
    task = load(example_path(name))
    one = msgspec.structs.replace(task, cases=task.split("train")[1:2])
    for parts, status, piece in BAD[name]:
        (seen,) = run(one, Candidate.of(parts))
        assert (seen.status, seen.score) == (status, None), seen.feedback
        assert piece in seen.feedback


def checked(task: Task, runs: int = 3) -> TaskReport:
    return asyncio.run(check_task(task, LocalBackend(task, 2), runs))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_check_finds_nothing_wrong_with_them(name: str) -> None:
    report = checked(load(example_path(name)))
    assert report.fit and (report.repeatable or name in TIMED) and report.seeds[0].mean is not None
    assert not any(finding.level == "error" for finding in report.findings)


def test_check_tells_noise_from_determinism() -> None:
    noisy = checked(load(example_path("function_minimization")), 6)
    assert noisy.seeds[0].noise == 0 and (noisy.seeds[0].seed_noise or 0) > 0.02
    assert noisy.repeatable and noisy.seed_free is False and noisy.evaluations == 11
    sure = checked(load(example_path("circle_packing")))
    assert sure.seed_free and sure.seeds[0].seed_noise == 0 and sure.findings == ()
    spread = checked(load(example_path("tide_forecast")))
    assert (spread.seeds[0].case_spread or 0) > 0.05 and spread.evaluations == 4 * (
        3 + 2
    ) + 12  # of 16 cases
