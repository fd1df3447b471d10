"""A leader's output is pushed and compared with nearly equal outputs before it is believed.

The evaluators of `spelled` state the same tolerance in many ways; honest programs are never accused.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from culmen.cli.keep import replay_run
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import NOT_PUSHED, Evaluator, Objective, Task
from culmen.core.usage import Budget
from culmen.extensions.audit.outputs import (
    insert_code,
    json_blocks,
    output_prelude,
    reported_blocks,
)
from culmen.extensions.audit.pushing import OutputPushes
from culmen.run.study import Study
from culmen.store import views
from tests.evaluate.conftest import need
from tests.extensions.audit.spelled import CONFESSION, CONVERGING, TWELVE, Spelled

FUNCTION = Task("numbers", goal="", evaluator=Evaluator(form="function"), deterministic=True)


@dataclass(frozen=True)
class Programs:
    """Evaluates these programs one after another."""

    texts: tuple[str, ...]
    writes: ClassVar[bool] = True

    async def search(self, lab: Any) -> None:
        for text in self.texts:
            await lab.evaluate(Candidate.of({"program.py": text}))


def ident(text: str) -> str:
    return Candidate.of({"program.py": text}).id


def run(
    folder: Path, case: Spelled, texts: tuple[str, ...], policy: str, **more: Any
) -> views.RunStatus:
    """The status of a finished run over these programs."""
    study = Study.create(
        case.write(folder / f"task-{policy}"),
        Programs(texts),
        budget=Budget(evaluations=100),
        run_dir=folder / policy,
        workers=1,
        integrity=policy,
        **more,
    )
    assert study.run() == "finished"
    return views.run_status(folder / policy)


# -- with evaluations by a function: no process is needed


def checked(
    leader: str, *neighbours: str, limit: int = 12, over: float = 1e-6, direction: Any = "max"
) -> Observation:
    """The check of a JSON list whose sum may be `over` above 1."""
    sign = 1.0 if direction == "max" else -1.0

    async def evaluate(candidate: Candidate, case: Case | None, seed: int) -> Observation:
        (text,) = candidate.parts.values()
        total = sum(json.loads(text))
        if total > 1 + over:
            return Observation(candidate.id, Status.INVALID)
        return Observation(candidate.id, Status.OK, score=sign * total)

    def candidate(text: str) -> Candidate:
        return Candidate.of({"answer": text})

    async def check() -> Observation:
        task = Task(
            "t", evaluator=Evaluator(form="function"), objective=Objective(direction=direction)
        )
        push = OutputPushes(task, evaluate, None, 0, limit)
        first = await evaluate(candidate(leader), None, 0)
        return await push.check(candidate(leader), first, tuple(map(candidate, neighbours)))

    return asyncio.run(check())


def names(observation: Observation) -> list[str]:
    return [sign.name for sign in observation.signs]


GAMED, HONEST = "[0.5000009, 0.5]", "[0.5, 0.5]"


@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_edge_between_nearly_equal_outputs_is_a_sign(direction: str) -> None:
    found = checked(GAMED, "[0.2, 0.3]", HONEST, direction=direction)
    assert names(found) == ["edge"] and found.signs[0].grave
    assert found.artifacts["tolerance"].startswith("used: ")
    assert 5 <= found.usage.evaluations <= 12


@pytest.mark.parametrize(
    ("leader", "neighbour", "over"),
    [
        (HONEST, "[0.499999, 0.5]", 0.0),  # a solver's last step onto the border
        (GAMED, "[0.4, 0.5]", 1e-6),  # not nearly equal
        (GAMED, "[0.5, 0.4999]", 1e-6),
        ("[0.50000004, 0.5]", HONEST, 1e-6),  # a solver's rounding
        (GAMED, HONEST, 1e-2),  # nothing is refused
    ],
    ids=["last step", "far", "further", "rounding", "no edge"],
)
def test_nothing_else_is_a_sign(leader: str, neighbour: str, over: float) -> None:
    found = checked(leader, neighbour, over=over)
    assert names(found) == [] and "pushed: " in found.artifacts["tolerance"]


def test_a_push_that_pays_and_is_refused_further_on_shows_an_edge_that_is_not_used() -> None:
    words = checked(HONEST).artifacts["tolerance"]
    assert words.endswith("by 0.001 it is refused: an edge that this output does not lie on")
    assert "slope" in checked(HONEST, over=1.0).artifacts["tolerance"]
    assert "does not pay" in checked(HONEST, over=0.0).artifacts["tolerance"]
    assert "whole numbers" in checked("[1, 0]").artifacts["tolerance"]


def test_what_was_not_pushed_is_said() -> None:
    assert (
        checked(GAMED, HONEST, limit=3)
        .artifacts["tolerance"]
        .startswith(f"not checked: {NOT_PUSHED} to the end: no evaluations were left")
    )
    words = checked.__doc__ and asyncio.run(_of_text()).artifacts["tolerance"]
    assert words == f"not checked: {NOT_PUSHED}: no output of numbers was seen"


def test_an_earlier_check_that_held_says_whether_the_output_was_pushed() -> None:
    earlier = f"held: the score stays the same; {NOT_PUSHED}"
    for text, words in ((GAMED, "; pushed: "), ("a poem", f"; {NOT_PUSHED}: no output")):
        candidate = Candidate.of({"answer": text})
        seen = Observation(candidate.id, Status.OK, 1.0, artifacts={"tolerance": earlier})

        async def evaluate(candidate: Candidate, case: Case | None, seed: int) -> Observation:
            return Observation(candidate.id, Status.OK, score=1.0)

        push = OutputPushes(FUNCTION, evaluate, None, 0, 12)
        found = asyncio.run(push.check(candidate, seen, ())).artifacts["tolerance"]
        assert found.startswith(f"held: the score stays the same{words}")


async def _of_text() -> Observation:
    async def evaluate(candidate: Candidate, case: Case | None, seed: int) -> Observation:
        return Observation(candidate.id, Status.OK, score=1.0)

    candidate = Candidate.of({"answer.txt": "a poem"})
    observation = await evaluate(candidate, None, 0)
    return await OutputPushes(FUNCTION, evaluate, None, 0, 12).check(candidate, observation, ())


def test_numbers_of_one_json_text_are_an_output() -> None:
    assert json_blocks({"a": "[[1, 2], [3, 4]]"}) is not None
    for text in ("[[1], [2, 3]]", "7", "[]", "{}", "print(1)", '["a"]'):
        assert json_blocks({"a": text}) is None
    assert json_blocks({"a": "[1]", "b": "[1]"}) is None


def test_code_stands_before_the_main_block() -> None:
    text = insert_code("def run(): ...\nif __name__ == '__main__':\n    run()\n", "mark = 1", {})
    assert text.index("mark = 1") < text.index("if __name__") and "audit_tell" in output_prelude()


def test_an_output_of_any_kind_is_pushed_or_not_looked_for() -> None:
    outputs = ["7.5", "[7.5]", "[NaN, 1.0]", "[Infinity, 1]", "[1e308, 1.7e308]", "[[], []]"]
    outputs += ["[[0.1, 0.2, 0.3], [0.4, 0.5, 0.1]]", "[5e-324, 0.0]", "[0.0, 0.0]", "[true, 0.5]"]
    outputs += ["[[1.5], [2, 3]]", '"text"', "{}", "[" * 5000, "[9" + "9" * 400 + ", 0.5]"]

    async def evaluate(candidate: Candidate, case: Case | None, seed: int) -> Observation:
        return Observation(candidate.id, Status.OK, score=0.5)

    for text in outputs:
        candidate = Candidate.of({"answer": text})
        observation = Observation(candidate.id, Status.OK, score=0.5)
        push = OutputPushes(FUNCTION, evaluate, None, 0, 12)
        found = asyncio.run(push.check(candidate, observation, (Candidate.of({"answer": HONEST}),)))
        assert not found.signs and found.artifacts["tolerance"], text


@pytest.mark.parametrize(
    "report", ['"output", "text"]', '"output", [1, [2]]]', '"output", {}]', "[" * 9000, "]"]
)
def test_a_report_that_the_program_wrote_by_itself_is_no_output(report: str) -> None:
    line = f'AUDIT ["token", {report}'
    assert reported_blocks(Observation("a", Status.OK, 1.0, feedback=line), "token") is None


# -- with real runs


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.parametrize("confessed", [False, True], ids=["silent", "confessed"])
@pytest.mark.parametrize("name", TWELVE)
def test_a_tolerance_is_found_however_it_is_spelled(
    tmp_path: Path, name: str, confessed: bool
) -> None:
    need("restricted")
    case = TWELVE[name]
    cheat = case.program(case.gamed, CONFESSION if confessed else "")
    first, *others = map(case.program, case.honest)
    status = run(tmp_path, case, (first, cheat, *others), "warn")
    assert status.findings == 1 and status.best is not None and status.best.id == ident(cheat)
    assert replay_run(tmp_path / "warn", verify=True).data["matches"]
    best = run(tmp_path, case, (first, cheat, *others), "reject").best
    assert best is not None and best.id == ident(others[-1])
    assert replay_run(tmp_path / "reject", verify=True).data["matches"]


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.parametrize("name", [*TWELVE, *CONVERGING])
def test_honest_programs_are_never_accused(tmp_path: Path, name: str) -> None:
    need("restricted")
    case = {**TWELVE, **CONVERGING}[name]
    texts = tuple(map(case.program, case.honest))
    status = run(tmp_path, case, texts, "reject")
    assert status.findings == 0 and status.best is not None and status.best.id == ident(texts[-1])


@pytest.mark.jail
def test_a_flagged_leader_does_not_end_a_run_and_the_honest_best_stands_beside(
    tmp_path: Path,
) -> None:
    need("restricted")
    case = TWELVE["whole millionths"]
    cheat, (_, second, best) = case.program(case.gamed), map(case.program, case.honest)
    later = case.program("[0.25, 0.25, 0.25]")
    status = run(tmp_path, case, (best, cheat, later), "warn", stop_at=1.0000005)
    assert status.reason == "strategy_done" and status.findings == 1
    assert status.best is not None and status.best.id == ident(cheat)
    honest = status.best_before_first_finding
    assert honest is not None and honest.id == ident(best)
    assert ident(later) in {row.id for row in views.candidate_rows(tmp_path / "warn", limit=None)}
    # an honest score still ends it
    status = run(tmp_path / "honest", case, (second, best, later), "warn", stop_at=1.0)
    assert status.reason == "target" and status.findings == 0
