"""The solved share of a suite of tasks, and fast_p.

By the bench over folders, and by the rules alone.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from bench import bench_shares
from msgspec.structs import replace

from culmen.core.evaluation import Status
from culmen.core.event import Entry
from culmen.core.result import RunResult
from culmen.core.task import Objective
from culmen.extensions.bench import shares
from culmen.extensions.bench.shares import SuiteRun
from tests.cli.conftest import TOML, Place
from tests.store.runs import new_run, observed, program, proposed

PRESET = (
    '[presets.paper]\nstrategy = "map_elites"\nsettings = { bins = 3, features = ["complexity"] }\n'
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty working folder."""
    return Place(tmp_path)


def cell(task: str, strategy: str, seed: int, **facts: Any) -> SuiteRun:
    return SuiteRun(
        task, strategy, **{"run": f"{task}-{strategy}-{seed}", "state": "finished", **facts}
    )


def measures(outcomes: list[SuiteRun]) -> dict[tuple[str, str], float]:
    return {(row["strategy"], row["measure"]): row["share"] for row in shares.share_rows(outcomes)}


def test_solved_is_the_target_reached_by_what_the_verifier_vouches_for():
    aim, none = Objective("min", target=2.0), Objective("min")
    best = RunResult("c", 2.0, 1, confirmed=True)
    assert shares.is_solved(aim, best) is True and shares.is_solved(none, best) is None
    assert shares.is_solved(aim, replace(best, score=2.001)) is False
    assert shares.is_solved(aim, None) is False
    vouched = replace(best, strict=False, certified=2.5)
    assert shares.is_solved(aim, vouched) is False
    assert shares.is_solved(aim, replace(best, strict=False, certified=None)) is False
    assert shares.is_solved(aim, replace(best, score=3.0, strict=True, certified=1.5)) is True


def test_fast_p_counts_what_is_right_and_more_than_p_times_as_fast():
    found = (1.0, 1.5, None, 0.4)
    assert [shares.fast_share(found, p) for p in (0.0, 0.4, 0.5, 1.0, 1.5)] == [
        0.75,
        0.5,
        0.5,
        0.25,
        0.0,
    ]
    assert shares.fast_share(None, 0.0) == shares.fast_share((), 0.0) == 0.0


def test_a_speed_up_is_that_of_the_final_choice_and_of_right_problems_only(tmp_path: Path):
    mine, other = program(0), program(1)

    def seen(
        key: int,
        case: str,
        speed: float | None,
        phase: str = "final",
        status: Status = Status.OK,
        of: Any = mine,
    ) -> Any:
        metrics = {} if speed is None else {"speed_up": speed}
        entry = observed(
            key, of, 1.0 if status is Status.OK else None, status, case=case, metrics=metrics
        )
        return replace(entry, body={"phase": phase})

    with new_run(tmp_path) as journal:
        journal.append([proposed(n, each) for n, each in enumerate((mine, other))])
        journal.append(
            [seen(10, "a", 9.0, ""), seen(11, "e", 9.0, ""), seen(12, "a", 8.0, of=other)]
        )
        rows = [seen(20 + n, "a", speed) for n, speed in enumerate((1.0, 3.0, 1.2))]
        rows += [seen(30, "b", 2.0), seen(31, "b", None, status=Status.INVALID)]
        rows += [seen(40, "c", 2.0), seen(41, "c", None, status=Status.LOST), seen(50, "d", None)]
        journal.append(rows)
    best = RunResult(mine.id, 1.0, 1, confirmed=True)
    assert shares.speed_ups(journal.run_dir, best) == (1.2, None, 2.0, None)
    assert shares.speed_ups(journal.run_dir, None) is None


def test_tasks_count_alike_and_those_that_say_nothing_are_left_out_and_named():
    outcomes = [cell("x", "a", seed, solved=seed == 0, speed_ups=(2.0, 0.5)) for seed in range(4)]
    outcomes += [cell("y", "a", seed, solved=True, speed_ups=(1.2,)) for seed in range(2)]
    outcomes += [
        cell("z", "a", 0),
        cell("w", "a", 0, state="interrupted", solved=True, speed_ups=(9.0,)),
    ]
    found = measures(outcomes)
    assert found["a", "solved"] == pytest.approx((0.25 + 1.0) / 2)
    assert (found["a", "fast_0"], found["a", "fast_1"], found["a", "fast_1.5"]) == (1.0, 0.75, 0.25)
    rows = shares.share_rows(outcomes)
    solved = rows[0]
    assert (solved["tasks"], solved["runs"]) == (2, 6)
    assert 0.5 <= solved["low"] < solved["share"] < solved["high"] <= 1.0  # y is always solved


def journal_of(folder: Path, name: str, speeds: list[float | None], scores: list[float]) -> str:
    """A run of several candidates, one after the other, each evaluated once.

    Its last two are of one proposal.
    """
    programs = [program(n) for n in range(len(scores))]
    with new_run(folder, name) as journal:
        objective = Objective("max", target=5.0)
        journal.set_meta(task=replace(journal.meta.task, objective=objective))
        for n, (each, speed, score) in enumerate(zip(programs, speeds, scores)):
            proposal = (
                proposed(10 * n, each) if n < len(scores) - 2 else proposed(10 * n, *programs[-2:])
            )
            effects = (
                [Entry("started", 10 * n, effect="propose"), proposal]
                if n < len(scores) - 1
                else []
            )
            status = Status.OK if speed is not None else Status.INVALID
            metrics = {} if speed is None else {"speed_up": speed}
            seen = observed(
                10 * n + 1, each, score if speed is not None else None, status, metrics=metrics
            )
            journal.append([*effects, Entry("started", 10 * n + 1, effect="evaluate"), seen])
    return str(journal.run_dir)


def test_a_run_without_a_right_answer_counts_and_so_does_the_other_strategys_task():
    outcomes = [
        cell("x", "a", 0, speed_ups=(2.0,)),
        cell("x", "b", 0),
        cell("y", "a", 0, speed_ups=(2.0,)),
    ]
    found = measures(outcomes)
    assert (found["a", "fast_1"], found["b", "fast_1"]) == (1.0, 0.0)
    assert {row["tasks"] for row in shares.share_rows(outcomes)} == {1}  # y has no run of b
    assert ("a", "solved") not in found and shares.share_rows([cell("x", "a", 0)]) == []


def suite_of(place: Place) -> None:
    """Three tasks in a folder that all call themselves peak.

    One is solved and fast, one neither, one cannot be.
    """
    (place.root / "kernels").mkdir()
    for name, score, speed, target in (
        ("one", 0.0, 1.6, -0.5),
        ("two", -1.0, 0.8, -0.5),
        ("three", -1.0, None, None),
    ):
        metrics = {} if speed is None else {"speed_up": speed}
        aim = "" if target is None else f"target = {target}\n"
        text = f"def score(output):\n    return {{'score': {score}, 'metrics': {metrics}}}\n"
        toml = TOML.replace('direction = "max"\n', f'direction = "max"\n{aim}') + PRESET
        place.task(f"kernels/{name}", evaluator=text, toml=toml.replace("start = -16.0\n", ""))


def test_shares_rise_along_steps_by_the_best_so_far_and_end_as_the_table(tmp_path: Path):
    runs = [
        journal_of(tmp_path, "one", [0.5, None, 1.5, 2.5], [1.0, 9.0, 4.0, 6.0]),
        journal_of(tmp_path, "two", [0.5, 0.9, 1.0, 1.0], [1.0, 2.0, 3.0, 0.0]),
    ]
    outcomes = [
        cell("x", "a", 0, run=runs[0], solved=True, speed_ups=(2.5,)),
        cell("x", "a", 1, run=runs[1], solved=False, speed_ups=(0.5,)),
    ]
    rows = shares.share_curves(outcomes)

    def curve(measure: str, axis: str) -> list[tuple[int, float]]:
        return [
            (row["at"], row["share"])
            for row in rows
            if (row["measure"], row["axis"]) == (measure, axis)
        ]

    assert curve("solved", "evaluations") == [(0, 0.0), (4, 0.5)]
    assert curve("fast_1", "evaluations") == [(0, 0.0), (3, 0.5)]
    assert curve("fast_0", "evaluations") == [(0, 0.0), (1, 1.0)]
    assert curve("fast_1", "evaluation_steps") == [(0, 0.0), (3, 0.5)]
    assert curve("fast_2", "proposal_steps") == [
        (0, 0.0),
        (3, 0.5),
    ]  # two candidates came in the third
    assert curve("fast_2", "proposals") == [(0, 0.0), (4, 0.5)]
    assert curve("fast_0.5", "evaluations") == [
        (0, 0.0),
        (2, 0.5),
        (3, 1.0),
        (4, 0.5),
    ]  # as reported
    ends = {measure: curve(measure, "proposals")[-1][1] for _, measure in measures(outcomes)}
    assert ends == {measure: share for (_, measure), share in measures(outcomes).items()}


@pytest.mark.slow
@pytest.mark.jail
def test_the_shares_of_a_bench(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    suite_of(place)
    words = (
        "compare",
        "--suite",
        "polca",
        "--tasks",
        "kernels",
        "--strategies",
        "map_elites(preset=paper),best_of_n",
    )
    words += ("--seeds", "2", "--budget", "evaluations=4", "--workers", "1", "--out", "out")
    made = place.here(*words, "--json")
    assert made.code == 0, made.err + made.out
    monkeypatch.setattr("sys.argv", ["bench_shares.py", str(place.root / "out")])
    capsys.readouterr()
    bench_shares.main()
    printed = capsys.readouterr().out
    assert "| solved (of 2) | fast_0 (of 2) |" in printed and "50% [50%, 50%]" in printed
    assert printed.count(": three.") == 2
    with (place.root / "out/shares.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for strategy in ("map_elites-preset-paper", "best_of_n"):
        found = {row["measure"]: row for row in rows if row["strategy"] == strategy}
        told = {
            measure: (float(row["share"]), row["tasks"], row["runs"])
            for measure, row in found.items()
        }
        shared = {
            "solved": 0.5,
            "fast_0": 1.0,
            "fast_0.5": 1.0,
            "fast_1": 0.5,
            "fast_1.5": 0.5,
            "fast_2": 0.0,
        }
        assert told == {measure: (share, "2", "4") for measure, share in shared.items()}
    with (place.root / "out/shares_by_steps.csv").open(newline="") as file:
        ends = {(row["strategy"], row["measure"]): row["share"] for row in csv.DictReader(file)}
    assert ends == {(row["strategy"], row["measure"]): row["share"] for row in rows}
