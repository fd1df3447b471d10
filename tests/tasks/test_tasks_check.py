"""Reports of `check` about tasks that are not right, each a real task run in the jail.

Also the rules by themselves.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import culmen
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Evaluator, Limits, Objective, Task
from culmen.evaluate import check as findings
from culmen.evaluate.check import (
    TaskReport,
    build_seed_report,
    check_task,
    pooled_deviation,
    spread_cases,
)
from culmen.evaluate.findings import evaluator_faults, tried_cases
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load

EVALUATOR = "def score(output):\n    return output\n"


def report(
    folder: Path, program: str, toml: str = "", evaluator: str = EVALUATOR, top: str = ""
) -> TaskReport:
    (folder / "p.py").write_text(program)
    (folder / "evaluator.py").write_text(evaluator)
    (folder / "task.toml").write_text(top + '[seed]\nfiles = ["p.py"]\n' + toml)
    task = load(folder)
    return asyncio.run(check_task(task, LocalBackend(task, 2), 3))


def said(found: TaskReport) -> str:
    return "\n".join(f"{f.level}: {f.what} -> {f.fix}" for f in found.findings)


def test_a_seed_that_fails_is_an_error_with_its_feedback(tmp_path: Path) -> None:
    found = report(tmp_path, "def run():\n    raise KeyError('no such thing')\n")
    assert not found.fit and found.evaluations == 1 and found.repeatable is None
    assert "error: initial program" in said(found) and "no such thing" in said(found)
    assert "correct the initial program" in said(found)
    assert found.seeds[0].mean is None and found.seeds[0].statuses == {"error": 1}
    assert "KeyError" in found.seeds[0].failure


def test_a_seed_that_takes_too_long(tmp_path: Path) -> None:
    found = report(tmp_path, "def run():\n    while True: pass\n", "[limits]\nseconds = 0.5\n")
    assert "ends with timeout" in said(found) and "raise [limits] seconds" in said(found)


def test_scores_outside_the_bounds(tmp_path: Path) -> None:
    found = report(tmp_path, "def run():\n    return 7\n", "[objective]\nbounds = [0, 1]\n")
    assert (
        not found.fit
        and "score_out_of_bounds" in said(found)
        and "correct [objective] bounds" in said(found)
    )


def test_an_evaluator_that_raises_is_not_the_seeds_fault(tmp_path: Path) -> None:
    found = report(
        tmp_path, "def run():\n    return 7\n", evaluator="def score(output):\n    return 1 / 0\n"
    )
    assert (
        not found.fit
        and "(scorer_raised)" in said(found)
        and "correct the evaluator" in said(found)
    )


def test_an_evaluator_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no_such_module"):
        report(
            tmp_path, "def run():\n    return 7\n", evaluator="import no_such_module\n" + EVALUATOR
        )


def test_a_false_claim_of_determinism(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        "import random\ndef run():\n    return random.random()\n",
        top="deterministic = true\n",
    )
    assert found.repeatable and found.seed_free is False
    assert "declared deterministic, but evaluations draw from program" in said(found)


def test_randomness_that_no_seed_controls(tmp_path: Path) -> None:
    found = report(
        tmp_path, "import os\ndef run():\n    return int.from_bytes(os.urandom(4), 'big')\n"
    )
    assert found.repeatable is False and (found.seeds[0].noise or 0) > 0
    assert "even with the same random seed" in said(found)


def test_levels_that_do_not_fit(tmp_path: Path) -> None:
    found = report(tmp_path, "def run():\n    return 5\n", "[objective]\nstart = 1\ntarget = 4\n")
    assert "already reach the target 4" in said(found) and "the task declares a start of 1" in said(
        found
    )
    found = report(tmp_path, "def run():\n    return 0\n", "[objective]\nbounds = [0, 1]\n")
    assert "the worst the bounds allow" in said(found) and found.fit
    assert "deterministic = true saves" in said(found)


def look(task: Task, *observations: Observation, isolation: str = "namespaces") -> str:
    found = findings.find_problems(task, isolation, observations, None, None)
    return "\n".join(f"{f.level}: {f.what} -> {f.fix}" for f in found)


def observed(score: float | None, **fields: object) -> Observation:
    status = Status.OK if score is not None else Status.ERROR
    return Observation("c", status, score, **fields)  # pyright: ignore[reportArgumentType]


def test_rules_by_themselves() -> None:
    seeds = ({"p": "x"},)
    task = Task(
        "t",
        seeds=seeds,
        evaluator=Evaluator(form="legacy", thresholds=(0.5, 0.8)),
        limits=Limits(seconds=10),
    )
    said = look(task, observed(0.4, seconds=8.0))
    assert "self-reported" in said and "later stages never run" in said
    assert "take up to 8 s (median 8 s) of the 10 s allowed" in said
    good = look(task, observed(0.6, seconds=1.0, trust="verified"))
    assert good == ""
    assert "apt install bubblewrap" in look(
        task, observed(0.6, trust="verified"), isolation="limits"
    )
    assert "has no initial program" in look(Task("t", goal="g"))
    assert (
        look(Task("t", seeds=seeds, notes=("mind this",)), observed(1.0, trust="verified"))
        == "note: mind this -> "
    )


def test_what_an_isolation_level_refuses_is_told_apart_from_a_wrong_program() -> None:
    task = Task("t", seeds=({"p": "x"},), root="/tasks/mine")
    for feedback, remedy in (
        (
            'File "synchronize.py", line 57\nPermissionError: [Errno 13] Permission denied',
            "install bubblewrap",
        ),
        ("PermissionError: [Errno 13] Permission denied: '/tasks/mine/log'", "with tempfile"),
        (
            "PermissionError: [Errno 13] Permission denied: '/tasks/mine2/log'",
            "correct the initial program",
        ),
        ("OSError: [Errno 30] Read-only file system: 'log'", "with tempfile"),
    ):
        assert remedy in look(task, observed(None, reason="exception", feedback=feedback)), feedback


def test_a_start_within_the_noise_is_not_reported() -> None:
    task = Task("t", seeds=({"p": "x"},), objective=Objective(start=1.0))
    noisy = [
        observed(score, seed=seed, trust="verified")
        for seed, score in enumerate((0.2, 1.9, 0.4, 1.7))
    ]
    assert look(task, *noisy) == ""
    exact = [observed(1.2, seed=seed, trust="verified") for seed in range(4)]
    assert "start of 1" in look(task, *exact)


def test_some_failures_are_a_warning_and_come_after_errors() -> None:
    task = Task("t", seeds=({"p": "x"},))
    flaky = [
        observed(1.0, seed=0, trust="verified"),
        observed(None, seed=1, reason="exception", feedback="a\nlast words\n"),
    ]
    assert look(task, *flaky).startswith(
        "warning: initial program c ends with error (exception): last words"
    )
    assert look(task, flaky[1]).startswith("error: initial program c")


OPENEVOLVE = (
    "import importlib.util, pathlib\n"
    "def evaluate(path):\n"
    "    spec = importlib.util.spec_from_file_location('program', path)\n"
    "    module = importlib.util.module_from_spec(spec)\n"
    "    spec.loader.exec_module(module)\n"
    "    {line}\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "program", "pieces"),
    [
        (
            "pathlib.Path(__file__).with_name('log').write_text('x')",
            "",
            ("(evaluator.py line 6)", "read-only", "tempfile"),
        ),
        (
            "return module.missing()",
            "",
            ("no attribute 'missing' (evaluator.py line 6)", "correct the initial program"),
        ),
        (
            "return {'combined_score': 0.0, 'error': 'no result'}",
            "",
            ("error: the initial program is refused", "its evaluator reports error: no result"),
        ),
        (
            "return 1.0",
            "import no_such_module\n",
            ("No module named 'no_such_module'", "install what brings the module 'no_such_module'"),
        ),
        (
            "while True: pass",
            "",
            ("ends with timeout", "timeout under evaluator in config.yaml (now 1 s)"),
        ),
    ],
    ids=["writes", "raises", "says", "imports", "hangs"],
)
def test_what_goes_wrong_in_openevolve_folders(
    tmp_path: Path, line: str, program: str, pieces: tuple[str, ...]
) -> None:
    (tmp_path / "initial_program.py").write_text(program + "value = 1\n")
    (tmp_path / "evaluator.py").write_text(OPENEVOLVE.replace("{line}", line))
    (tmp_path / "config.yaml").write_text(
        "evaluator:\n  timeout: 1\n" if "while" in line else "max_iterations: 5\n"
    )
    task = load(tmp_path)
    found = said(asyncio.run(check_task(task, LocalBackend(task, 1), 2)))
    assert all(piece in found for piece in pieces), found


def test_every_evaluation_is_told(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def run():\n    return 1\n")
    (tmp_path / "evaluator.py").write_text(EVALUATOR)
    (tmp_path / "task.toml").write_text('[seed]\nfiles = ["p.py"]\n')
    task, heard = load(tmp_path), list[tuple[int, int]]()
    asyncio.run(
        check_task(
            task, LocalBackend(task, 1), 2, lambda done, total, _: heard.append((done, total))
        )
    )
    assert heard == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_noise_is_pooled_within_cases() -> None:
    assert pooled_deviation([[1.0, 3.0], [11.0, 13.0]]) == pytest.approx(2**0.5)
    assert pooled_deviation([[1.0], []]) is None
    same = [
        observed(score, case=case)
        for case, score in (("a", 1.0), ("a", 1.0), ("b", 5.0), ("b", 5.0))
    ]
    other = [observed(score, case=case, seed=1) for case, score in (("a", 3.0), ("b", 7.0))]
    seen = build_seed_report(Candidate.of({"p": "x"}), same, other)
    assert seen.noise == 0 and seen.seed_noise == pytest.approx(2**0.5)
    assert seen.mean == 4 and seen.case_spread == pytest.approx(8**0.5)


def test_cases_are_spread_over_the_data_set() -> None:
    cases = [Case(str(i)) for i in range(10)]
    assert [case.id for case in spread_cases(cases) if case] == ["0", "3", "6", "9"]
    assert spread_cases(cases[:3]) == tuple(cases[:3]) and spread_cases([]) == (None,)


# -- every case
# ------------------------------------------------------------------------------------------------------

BY_CASE = "def score(output, case):\n{body}    return float(output)\n"
RAISES_ON_3 = "    if case.id.endswith('3'):\n        return case.info['missing']\n"


def with_cases(
    folder: Path, body: str, number: int = 36, program: str = "def run(x):\n    return x\n"
) -> Task:
    """A task of `number` cases: two thirds to train, one third to test."""
    splits = ("train", "train", "test")
    lines = [
        json.dumps({"id": f"c{i}", "input": i, "info": {}, "split": splits[i % 3]})
        for i in range(number)
    ]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "p.py").write_text(program)
    (folder / "evaluator.py").write_text(BY_CASE.format(body=body))
    (folder / "task.toml").write_text('cases = "cases.jsonl"\n[seed]\nfiles = ["p.py"]\n')
    return load(folder)


def tried(task: Task, most: int = findings.CASE_LIMIT) -> TaskReport:
    return asyncio.run(check_task(task, LocalBackend(task, 2), 2, case_limit=most))


def test_an_evaluator_that_raises_on_some_cases_is_an_error_with_its_line_and_the_cases(
    tmp_path: Path,
) -> None:
    found = tried(with_cases(tmp_path, RAISES_ON_3))
    assert not found.fit and found.evaluations == 4 * 3 + 32
    (fault,) = [finding for finding in found.findings if finding.level == "error"]
    assert fault.what == "evaluator.py:3 raises KeyError on 4 of 36 cases: c3, c13, c23, c33"
    assert (fault.place, fault.cases) == ("evaluator.py:3", ("c3", "c13", "c23", "c33"))
    assert "correct evaluator.py line 3" in fault.fix and said(found).count("KeyError") == 1


def test_every_case_of_every_split_is_tried_once_and_the_sound_ones_pass(tmp_path: Path) -> None:
    found = tried(with_cases(tmp_path, ""))
    assert found.fit and {o.case for o in found.seeds[0].observations} == {
        f"c{i}" for i in range(36)
    }
    assert found.seeds[0].mean == sum(range(36)) / 36
    assert "cases were tried" not in said(found)


def test_the_first_case_may_be_one_of_those(tmp_path: Path) -> None:
    found = tried(with_cases(tmp_path, RAISES_ON_3.replace("'3'", "'0'")))
    assert "evaluator.py:3 raises KeyError on 4 of 36 cases: c0, c10, c20, c30" in said(found)


def test_a_program_that_fails_on_all_of_four_cases_is_not_tried_on_the_rest(tmp_path: Path) -> None:
    found = tried(with_cases(tmp_path, "    raise KeyError('x')\n"))
    assert (
        found.evaluations == 4
        and "initial program" in said(found)
        and "scorer_raised" in said(found)
    )
    heard: list[tuple[int, int]] = []
    task = load(tmp_path)
    asyncio.run(
        check_task(
            task, LocalBackend(task, 2), 2, lambda done, total, _: heard.append((done, total))
        )
    )
    assert heard[0] == (0, 44) == (0, findings.planned_evaluations(task, 2)) and heard[-1][0] == 4


def test_of_a_large_data_set_a_sample_is_tried_and_its_share_is_said(tmp_path: Path) -> None:
    task = with_cases(tmp_path, "")
    found = tried(task, most=9)
    assert len({o.case for o in found.seeds[0].observations}) == 9 == tried_cases(task, 9)
    assert found.evaluations == findings.planned_evaluations(task, 2, 9) == 4 * 3 + 5
    assert (
        "note: 9 of 36 cases were tried (25 %) -> culmen check TASK --cases 36 tries all of them"
        in said(found)
    )
    assert findings.planned_evaluations(task, 2, 1) == 3 and tried(task, most=1).evaluations == 3


def test_what_the_program_itself_raises_on_a_case_is_not_the_evaluators(tmp_path: Path) -> None:
    program = "def run(x):\n    if x == 3:\n        raise KeyError('mine')\n    return x\n"
    found = tried(with_cases(tmp_path, "", program=program))
    assert (
        found.fit
        and "raises KeyError on" not in said(found)
        and "warning: initial program" in said(found)
    )


def test_an_evaluator_that_raises_now_and_then_is_an_error_with_its_rate(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def run():\n    return 1\n")
    body = "def score(output, seed):\n    if seed == 2:\n        raise RuntimeError('lost')\n    return 1.0\n"
    found = report(tmp_path, "def run():\n    return 1\n", evaluator=body)
    assert (
        "error: evaluator.py:3 raises RuntimeError in 1 of 5 evaluations" in said(found)
        and not found.fit
    )


def test_lost_evaluations_change_no_result(tmp_path: Path) -> None:
    body = "def score(output, seed):\n    if seed == 2:\n        raise ConnectionError('server gone')\n"
    found = report(tmp_path, "def run():\n    return 1\n", evaluator=f"{body}    return 1.0\n")
    assert found.seeds[0].statuses == {"ok": 4, "lost": 1}
    assert found.repeatable and found.seed_free and "results change" not in said(found)
    assert "deterministic = true" not in said(found), "its failures are still repeated"


def test_a_python_function_is_checked_on_every_case_too() -> None:
    def evaluator(program: str, case: Case) -> float:
        return {"a": 1.0}["a" if case.input % 10 != 3 else "b"]

    report = culmen.check("x = 1", evaluator, cases=range(30), times=2)
    place = f"test_tasks_check.py:{evaluator.__code__.co_firstlineno + 1}"
    assert (
        f"error: {place} raises KeyError on 3 of 30 cases: 3, 13, 23" in repr(report)
        and not report.fit
    )
    few = culmen.check("x = 1", evaluator, cases=range(30), times=2, most_cases=4)
    assert few.evaluations == 4 * 3


def test_a_program_that_a_run_could_not_read_is_an_error(tmp_path: Path) -> None:
    long_sum = f"LONG = {' + '.join(['1'] * 520)}\n"
    one, other = tmp_path / "sum", tmp_path / "long"
    for folder, text in ((one, long_sum), (other, f"# {'x' * 1_000_000}\n")):
        folder.mkdir()
        (folder / "program.py").write_text(f"{text}\n\ndef run():\n    return 1.0\n")
        (folder / "evaluator.py").write_text("def score(output):\n    return output\n")
        toml = 'goal = "g"\n[seed]\nfiles = ["program.py"]\n[surface]\nmax_chars = 2000000\n'
        (folder / "task.toml").write_text(toml)
    errors = [
        finding.what
        for finding in asyncio.run(check_task(load(one), LocalBackend(load(one), 2), 2)).findings
        if finding.level == "error"
    ]
    assert errors == []
    found = asyncio.run(check_task(load(other), LocalBackend(load(other), 2), 2)).findings
    (unread,) = [finding.what for finding in found if finding.level == "error"]
    assert "a run could not read a program: unreadable: TooLong" in unread


def raised(candidate: str, case: str, error: str = "KeyError: 'x'", line: int = 12) -> Observation:
    """An evaluation that a line of the evaluator ended."""
    trace = (
        f'Traceback (most recent call last):\n  File "/t/evaluator.py", line {line}, in f\n    x\n'
    )
    reason, feedback = "scorer_raised", trace + error
    return Observation(candidate, Status.INVALID, case=case, reason=reason, feedback=feedback)


def test_lines_that_raise_are_told_apart_and_the_most_frequent_comes_first() -> None:
    seen = [Observation("a", Status.OK, 1.0, case="3")]
    seen += [raised("a", "1", "pkg.Oops", 20), *(raised("a", case) for case in "24")]
    assert [each.what for each in evaluator_faults(seen)] == [
        "evaluator.py:12 raises KeyError on 2 of 4 cases: 2, 4",
        "evaluator.py:20 raises pkg.Oops on 1 of 4 cases: 1",
    ]


def test_many_cases_are_named_in_part_and_without_cases_evaluations_are_counted() -> None:
    scored = Observation("a", Status.OK, 1.0, case="c0")
    (fault,) = evaluator_faults([scored, *(raised("a", f"c{n}") for n in range(11))])
    assert fault.what.endswith("on 11 of 11 cases: c0, c1, c2, c3, c4, c5, c6, c7, 3 more")
    (fault,) = evaluator_faults(
        [Observation("a", Status.OK, 1.0), raised("a", ""), raised("b", "")]
    )
    assert fault.what == "evaluator.py:12 raises KeyError in 2 of 3 evaluations"


def test_a_line_that_raises_for_programs_that_never_score_is_no_fault_of_the_evaluator() -> None:
    assert evaluator_faults([raised("a", "1"), Observation("b", Status.OK, 1.0, case="1")]) == []
