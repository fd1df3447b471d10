"""The offline proposer in the real engine on simulated time.

It improves unlike tasks, replays, and stops honestly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.task import Limits, Objective, Surface, Task
from culmen.core.usage import Budget
from culmen.extensions.baselines.map_elites import MapElites
from culmen.models.offline.proposer import UNTIMED, OfflineProposer
from culmen.store.journal import MemoryJournal
from culmen.strategies.polca import Polca
from culmen.testing.virtual import Simulation, simulate
from tests.models.offline.worlds import ROUTE, Workshop, run

Judge = Callable[[dict[str, str], Case | None], float | None]
CURVE = "SCALE = 1.0\n\ndef model():\n    return [SCALE * x + 0.5 for x in (0.0, 1.0, 2.0, 3.0)]\n"
RULES = "Use many words.\nkeep calm\nNever shout.\nrepeat repeat repeat\nanswer in order: 9\n"
BOWL = "def point():\n    return [4.0, -3.0, 2.5]\n"


def fit(parts: dict[str, str], case: Case | None) -> float | None:
    """Squared error against the line 2.4 x - 1."""
    values = run(parts["curve.py"], "model")
    try:
        return sum(
            float(y - (2.4 * x - 1.0)) ** 2 for x, y in zip((0, 1, 2, 3), values, strict=True)
        )  # pyright: ignore
    except (TypeError, ValueError, OverflowError):
        return None


def obey(parts: dict[str, str], case: Case | None) -> float | None:
    """Words of the case count for a prompt, its length against it."""
    assert case is not None
    text = parts["prompt.txt"].lower()
    return (case.input in text) - len(text) / 200


def depth(parts: dict[str, str], case: Case | None) -> float | None:
    values = run(parts["bowl.py"], "point")
    try:
        x, y, z = values  # pyright: ignore
        return float((x - 1) ** 2 + (y + 1) ** 2 + (z - 0.3) ** 2 + math.sin(3 * x))
    except (TypeError, ValueError, OverflowError):
        return None


RANK = """def ranks():
    return [rank(w, v, s) for w, v, s in ((3, 5, 1), (8, 2, 4), (1, 9, 2))]

# EVOLVE-BLOCK-START
def rank(weight, value, size):
    return weight
# EVOLVE-BLOCK-END
"""


def rank_error(parts: dict[str, str], case: Case | None) -> float | None:
    """Distance from value - size, which only other names than the program's reach."""
    try:
        return sum(
            abs(y - x) for x, y in zip((4, -2, 7), run(parts["rank.py"], "ranks"), strict=True)
        )  # pyright: ignore
    except (TypeError, ValueError, OverflowError):
        return None


TASKS: dict[str, tuple[Task, Judge, float]] = {  # the initial programs score 11.2, 17.3 and 0.605
    "curve": (
        Task("c", seeds=({"curve.py": CURVE},), objective=Objective("min"), deterministic=True),
        fit,
        0.5,
    ),
    "bowl": (
        Task("b", seeds=({"bowl.py": BOWL},), objective=Objective("min"), deterministic=True),
        depth,
        -0.69,
    ),
    "prompt": (
        Task(
            "p",
            seeds=({"prompt.txt": RULES},),
            cases=tuple(Case(w, w) for w in ("calm", "order", "shout", "keep")),
            deterministic=True,
        ),
        obey,
        0.7,
    ),
}


def search(name: str, strategy: object, evaluations: int = 400, **more: object) -> Simulation:
    task, judge, _ = TASKS[name]
    budget = Budget(evaluations=evaluations)
    settings = {"workers": 2, "seed": 1, "proposer": OfflineProposer(UNTIMED), **more}
    return simulate(strategy, task, Workshop(judge), budget, **settings)  # pyright: ignore


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", [Polca(epsilon=None), MapElites()], ids=["polca", "map_elites"]
)
@pytest.mark.parametrize("name", sorted(TASKS))
def test_it_improves_tasks_of_different_kinds(name: str, strategy: object) -> None:
    objective, level = TASKS[name][0].objective, TASKS[name][2]
    verdict = search(name, strategy).verdict
    assert verdict is not None
    assert objective.reward(verdict.score) >= objective.reward(level)


def test_a_killed_search_replays_to_the_same_end() -> None:
    whole = search("curve", Polca(), 150, order="request")
    journal = MemoryJournal()
    search("curve", Polca(), 150, order="request", journal=journal, kill_after=60)
    resumed = search("curve", Polca(), 150, order="request", journal=journal)
    assert resumed.verdict == whole.verdict
    assert _finished(resumed) == _finished(whole)


def test_its_evaluations_are_counted() -> None:
    done = search("curve", Polca(), 80)
    assert (
        sum(e.entry.kind == "done" and e.entry.effect == "evaluate" for e in done.journal.read())
        <= 80
    )


def test_origins_name_the_operators_and_parents_are_known() -> None:
    done = search("bowl", MapElites(), 120)
    notes = [
        e.entry.result
        for e in done.journal.read()
        if e.entry.kind == "note" and e.entry.result is not None
    ]
    born = [c for note in notes for c in note.candidates if c.origin.operator != "seed"]  # pyright: ignore
    known = {c.id for c in TASKS["bowl"][0].initial_candidates()} | {c.id for c in born}
    assert born
    for candidate in born:
        assert (
            candidate.origin.operator.startswith("offline:") and candidate.origin.model == "offline"
        )
        assert candidate.parents and set(candidate.parents) <= known


@pytest.mark.slow
def test_other_names_are_found_where_no_other_change_helps() -> None:
    task = Task("n", seeds=({"rank.py": RANK},), objective=Objective("min"), deterministic=True)
    proposer, budget = OfflineProposer(UNTIMED), Budget(evaluations=300)
    found = simulate(
        Polca(epsilon=None),
        task,
        Workshop(rank_error),
        budget,
        workers=2,
        seed=0,
        proposer=proposer,
    )
    assert found.verdict is not None and found.verdict.score <= 5  # 17 at first


def test_a_text_with_few_edits_ends_the_run_once_all_are_made() -> None:
    """Two words, deleted, exchanged or repeated within the longest length."""
    task = Task("t", seeds=({"note": "no yes"},), surface=Surface(max_chars=6), deterministic=True)
    with pytest.raises(UserError, match=r"has made all it can: [0-9]+ texts"):
        simulate(
            MapElites(),
            task,
            Workshop(lambda parts, case: 1.0),
            Budget(evaluations=1000),
            workers=2,
            seed=1,
            proposer=OfflineProposer(UNTIMED),
        )


def test_nothing_to_edit_ends_with_a_clear_error() -> None:
    frozen = Task("f", seeds=({"bowl.py": BOWL},), surface=Surface(frozen=("bowl.py",)))
    with pytest.raises(UserError, match="nothing to change"):
        simulate(
            _Asking(), frozen, Workshop(depth), Budget(evaluations=50), proposer=OfflineProposer()
        )


def test_without_a_parent_there_is_no_proposal() -> None:
    asking = _Asking(rounds=1, parent=False)
    simulate(
        asking,
        TASKS["bowl"][0],
        Workshop(depth),
        Budget(evaluations=50),
        proposer=OfflineProposer(),
    )
    assert asking.faults == ["no_parent"]


def climb(parts: dict[str, str], case: Case | None) -> float | None:
    value = run(parts["route.py"], "run")
    return (
        value if isinstance(value, float) and -1e9 < value <= 0.0 else None
    )  # above zero it was not the hill


def race(seconds: float) -> Simulation:
    """One lane with loops, on a world whose evaluations say that they took so long."""
    task = Task("r", seeds=({"route.py": ROUTE},), limits=Limits(seconds=1.0), deterministic=True)
    world, budget = Workshop(climb, seconds), Budget(evaluations=30)
    strategy = Polca(explore=1, epsilon=None)
    return simulate(
        strategy,
        task,
        world,
        budget,
        workers=2,
        seed=4,
        proposer=OfflineProposer(),
        order="request",
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_where_evaluations_are_counted_the_clock_decides_nothing() -> None:
    slow, fast = (race(seconds) for seconds in (9.0, 0.001))
    assert slow.verdict == fast.verdict and slow.verdict is not None
    assert _finished(slow) == _finished(fast)
    assert slow.verdict.score > -1.0  # the seed scores -22
    calls = [
        call
        for text in _texts(slow)
        for call in re.findall(r"calls=(\d+), seconds=[\d.e-]+, seed", text)
    ]
    assert len(set(calls)) > 2  # the best of many short loops were given longer ones


def _texts(simulation: Simulation) -> list[str]:
    results = [event.entry.result for event in simulation.journal.read()]
    return [
        one.parts["route.py"] for result in results for one in getattr(result, "candidates", ())
    ]


def _finished(simulation: Simulation) -> dict[int, str]:
    return {e.entry.key: e.entry.mark for e in simulation.journal.read() if e.entry.kind == "done"}


class _Asking:
    """A strategy that only asks."""

    def __init__(self, rounds: int = 5000, parent: bool = True) -> None:
        self.rounds, self.parent = rounds, parent
        self.faults: list[str] = []

    async def search(self, lab: object) -> None:
        parent: Candidate | None = lab.seeds[0] if self.parent else None  # pyright: ignore
        for _ in range(self.rounds):
            self.faults.append((await lab.propose(Brief(parent))).fault)  # pyright: ignore
