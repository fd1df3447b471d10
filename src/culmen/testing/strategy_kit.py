"""Checks for strategies, to call from your own tests.

    def test_mine():
        check_strategy(MyStrategy())

Each check raises AssertionError with the reason. All run on a virtual clock; a whole suite takes
seconds.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from culmen.core.event import at_least
from culmen.core.foreign import parse_python
from culmen.core.ports import Journal, MinimalStrategy
from culmen.core.task import Task, digest_pieces
from culmen.core.usage import Budget
from culmen.engine.driver import replay_journal
from culmen.engine.loop import CheckpointBarrier, unpack_state
from culmen.engine.search import Search
from culmen.store.journal import MemoryJournal
from culmen.strategies import catalog
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import Simulation, VirtualWorld, simulate

Order = Literal["request", "time"]
NOISY = Landscape(sigma=0.2)
EXACT = Landscape()
ROUGH = Landscape(
    sigma=0.2, faults=Faults(error=0.15, timeout=0.1, lost=0.1, empty=0.2, repeat=0.2, silent=0.3)
)
BUDGET = Budget(evaluations=60)


def check_strategy(strategy: MinimalStrategy, *, points: int = 8) -> None:
    """Run all checks below: noisy, exact and faulty worlds, kills, and barren models.

    Searches begin with one initial program, several and none. In the faulty world an initial
    program that fails ends no search. `points` is the number of kills in each order of the noisy
    world; the faulty one has half of it.
    """
    half = max(1, points // 2)
    check_repeatable(strategy, task(), NOISY)
    check_kill_points(strategy, task(), NOISY, order="request", points=points)
    check_kill_points(strategy, task(), NOISY, order="time", points=points)
    check_repeatable(strategy, task(), ROUGH, trial=False)
    check_kill_points(strategy, task(), ROUGH, order="request", points=half, trial=False)
    check_kill_points(strategy, task(), ROUGH, order="time", points=half, trial=False)
    check_repeatable(strategy, task(deterministic=True), EXACT, Budget(evaluations=60, calls=600))
    check_checkpoints(strategy, task(), NOISY)
    check_checkpoints(strategy, task(deterministic=True), EXACT, Budget(evaluations=60, calls=600))
    for seeds in ((), (0.0,), tuple(n / 20 for n in range(12))):
        check_finishes(strategy, task(seeds=seeds), ROUGH)
    check_barren(strategy)
    check_hash_seeds(strategy)


def outcome(journal: Journal) -> list[bytes]:
    """The course of a run: finished effects and notes in order, in JSON.

    Times and torn effects are left out.
    """
    entries = (msgspec.structs.replace(event.entry, elapsed=0.0) for event in journal.read())
    return [
        msgspec.json.encode(entry) for entry in entries if entry.kind in ("done", "note", "stop")
    ]


def check_repeatable(
    strategy: MinimalStrategy,
    task: Task,
    world: VirtualWorld,
    budget: Budget = BUDGET,
    *,
    trial: bool = True,
) -> Simulation:
    """Check that a random seed determines a run, and that the budget is used.

    Two runs from one seed are the same, and another seed's run differs.
    """
    first, second, other = (
        simulate(strategy, task, world, budget, seed=s, workers=3, trial=trial) for s in (1, 1, 2)
    )
    assert outcome(first.journal) == outcome(second.journal), "two runs from one seed differ"
    assert outcome(first.journal) != outcome(other.journal), "the seed changes nothing"
    return first


def check_kill_points(
    strategy: MinimalStrategy,
    task: Task,
    world: VirtualWorld,
    budget: Budget = BUDGET,
    *,
    order: Order = "request",
    points: int = 15,
    trial: bool = True,
) -> None:
    """Check that a run killed after any number of completions loses and repeats nothing.

    With completions in request order the resumed run is the uninterrupted one, entry by entry. In
    order of time, effects in flight start anew and may finish elsewhere in the order: then the
    finished effects must stay the same, each exactly once, and the whole journal must replay to the
    same choice. `points` kill points, evenly spread. Without `trial` the engine evaluates no
    initial program by itself, so that none which fails ends the run.
    """

    def run(journal: Journal) -> Simulation:
        return simulate(
            strategy,
            task,
            world,
            budget,
            seed=3,
            workers=3,
            order=order,
            journal=journal,
            trial=trial,
        )

    whole = run(MemoryJournal())
    assert whole.search.reason != "initial_fails", "the run ends with its first evaluations"
    _check_replay(Search(strategy, task, budget, 3, 3, trial=trial), whole, "whole run")
    for point in range(1, whole.performed, max(1, whole.performed // points)):
        journal = _journal_after(whole.journal, point)
        before = _finished_effects(journal)
        resumed = run(journal)
        after = _finished_effects(journal)
        assert after[:point] == before, f"what was finished before the kill at {point} has changed"
        assert len({key for key, _ in after}) == len(after), (
            f"an effect finished twice after the kill at {point}"
        )
        if order == "request":
            assert outcome(journal) == outcome(whole.journal), (
                f"resumed after {point} completions, the run differs"
            )
        else:
            again = Search(strategy, task, budget, 3, 3, trial=trial)
            _check_replay(again, resumed, f"run killed at {point}")


class StoredStates:
    """A store of all checkpoints of a run, in memory."""

    def __init__(self) -> None:
        self.states: list[tuple[int, bytes]] = []

    def write(self, seq: int, state: bytes) -> None:
        """Keep a checkpoint."""
        self.states.append((seq, state))


def check_checkpoints(
    strategy: MinimalStrategy,
    task: Task,
    world: VirtualWorld,
    budget: Budget = BUDGET,
    *,
    every: int = 12,
    workers: int = 3,
    trial: bool = True,
) -> int:
    """Check that a search that goes on from any checkpoint is the uninterrupted one.

    Returns the number of checkpoints; 0 for a strategy that never calls `Lab.checkpoint`.
    """
    stored, kept = StoredStates(), MemoryJournal()
    run = simulate(
        *(strategy, task, world, budget),
        seed=3,
        workers=workers,
        journal=kept,
        checkpoints=stored,
        every=every,
        trial=trial,
    )
    barrier = CheckpointBarrier(every, patience=1.0)
    whole = Search(strategy, task, budget, 3, workers, trial=trial, barrier=barrier)
    _check_replay(whole, run, "whole run")
    for seq, state in stored.states:
        again = Search(
            *(strategy, task, budget, 3, workers),
            observations=run.search.observations,
            trial=trial,
            barrier=CheckpointBarrier(every, patience=1.0),
        )
        again.restore(unpack_state(state, again.anchors))
        replay_journal(again, kept.retrace(seq), at_least)
        assert again.result_so_far == run.verdict, (
            f"from the checkpoint at {seq} the choice differs"
        )
        assert again.ledger.spent == run.search.ledger.spent
    return len(stored.states)


def _journal_after(journal: Journal, completions: int) -> MemoryJournal:
    """The journal of a process that is killed after this number of completions."""
    left = MemoryJournal()
    for event in journal.read():
        left.append([event.entry])
        completions -= event.entry.kind == "done"
        if not completions:
            break
    return left


def _check_replay(search: Search, run: Simulation, name: str) -> None:
    replay_journal(search, run.journal.read(), at_least)
    assert search.result_so_far == run.verdict, (
        f"the journal of the {name} replays to another choice"
    )


def _finished_effects(journal: Journal) -> list[tuple[int, bytes]]:
    entries = (event.entry for event in journal.read())
    return [
        (entry.key, msgspec.json.encode(entry.result)) for entry in entries if entry.kind == "done"
    ]


def check_finishes(
    strategy: MinimalStrategy, task: Task, world: VirtualWorld, budget: Budget = BUDGET
) -> Simulation:
    """Check that a run spends its evaluations, reports a candidate and uses every seed."""
    run = simulate(strategy, task, world, budget, seed=5, workers=4, trial=False)
    assert run.search.reason == "evaluations", f"the search ended by '{run.search.reason}'"
    assert run.verdict is not None, "nothing was reported"
    for seed in task.initial_candidates():
        assert run.search.evidence.account.tally(seed.id), f"the seed {seed.id} was never evaluated"
    return run


def check_barren(strategy: MinimalStrategy) -> None:
    """Check that a search with a barren model ends by its budget of calls, not by spinning.

    A barren model never returns a program, or only its input.
    """
    for faults in (Faults(empty=1.0), Faults(repeat=1.0)):
        for exact in (False, True):
            world = Landscape(faults=faults)
            run = simulate(
                strategy,
                task(deterministic=exact),
                world,
                Budget(calls=12, evaluations=1200),
                workers=2,
            )
            assert run.search.reason == "calls", (
                f"a barren model: the search ended by '{run.search.reason}'"
            )


_CHILD = """
import json, sys
from culmen.core.task import digest_pieces
from culmen.strategies import catalog
from culmen.testing.landscape import task
from culmen.testing.strategy_kit import BUDGET, ROUGH, outcome, simulate
strategy = catalog.revive_object(**json.loads(sys.argv[1]))
run = simulate(strategy, task(), ROUGH, BUDGET, seed=7, workers=3, trial=False)
print(digest_pieces(*outcome(run.journal)))
"""


def check_hash_seeds(strategy: MinimalStrategy, seeds: Sequence[int] = (0, 1)) -> None:
    """Check that a run is the same for every hash seed of Python.

    A run of this process, whose hash seed is one more, against one in a process of its own for each
    of `seeds`.
    """
    told = json.dumps(catalog.strategy_config(strategy))
    here = simulate(strategy, task(), ROUGH, BUDGET, seed=7, workers=3, trial=False)
    expected = digest_pieces(*outcome(here.journal))
    for seed in seeds:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        answer = subprocess.run(
            [sys.executable, "-c", _CHILD, told],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.strip() == expected, f"with PYTHONHASHSEED={seed} the run differs"


_BANNED = ("random", "time", "uuid", "asyncio", "datetime", "secrets", "threading", "socket")


def impurities(path: str | Path) -> list[str]:
    """Constructs of a source file that could make a replay differ, as `line: complaint`.

    Clocks, sources of randomness and asyncio may not be imported (the name `Random` may, for
    annotations, not be called); `hash` and `id` may not be called; sets may be tested for
    membership, not iterated over; only integers may be added with `sum`, which rounds floats in
    its own way from Python 3.12 on (`sum(map(int, ...))`, else `culmen.core.spread.sum_floats`).
    """
    tree = parse_python(Path(path).read_text(encoding="utf-8"))
    found = [complaint for node in ast.walk(tree) for complaint in _node_complaints(node)]
    return [f"{line}: {text}" for line, text in sorted(found)]


def _node_complaints(node: ast.AST) -> list[tuple[int, str]]:
    if isinstance(node, ast.Import):
        return [
            (node.lineno, f"imports {a.name}")
            for a in node.names
            if a.name.partition(".")[0] in _BANNED
        ]
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _BANNED:
        return [
            (node.lineno, f"imports {a.name} of {node.module}")
            for a in node.names
            if a.name != "Random"
        ]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("hash", "id", "Random"):
            return [(node.lineno, f"calls {node.func.id}()")]
        if node.func.id == "sum" and not _adds_integers(node.args[0]):
            return [(node.lineno, "adds with sum() what may be floats")]
        if node.func.id in ("list", "tuple", "enumerate", "iter", "next") and any(
            map(_is_set, node.args)
        ):
            return [(node.lineno, "depends on the order of a set")]
    if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
        return [(getattr(node, "lineno", node.iter.lineno), "iterates over a set")]
    return []


def _adds_integers(values: ast.expr) -> bool:
    """True if the values are evidently lengths, comparisons, or made integers."""
    each = values.elt if isinstance(values, ast.GeneratorExp | ast.ListComp) else values
    called = r"(len|int)\(|map\((len|int|_?count\w*), |[\w.]+\.startswith\("
    return isinstance(each, ast.Compare | ast.BoolOp) or bool(re.match(called, ast.unparse(each)))


def _is_set(node: ast.AST) -> bool:
    is_call = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )
    return is_call or isinstance(node, ast.Set | ast.SetComp)
