"""A run is the same on every Python, and a journal of one replays on the others.

`CULMEN_TEST_PYTHONS` names other interpreters with the dependencies of culmen, joined by colons.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from culmen.core.task import digest_pieces
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.testing import strategy_kit as kit
from culmen.testing.landscape import task
from culmen.testing.virtual import simulate

from .test_strategies_kit import VARIANTS

NAMED = os.environ.get("CULMEN_TEST_PYTHONS", "").split(":")
CHILD = """
import sys
import msgspec
from culmen.core.event import at_least
from culmen.core.task import digest_pieces
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.testing.landscape import task
from culmen.testing.strategy_kit import BUDGET, ROUGH, outcome, simulate
with SqlJournal.open(sys.argv[1]) as journal:
    strategy = catalog.revive_object(**journal.meta.strategy)
    replayed = Search(strategy, task(), BUDGET, 7, 3, trial=False)
    replay_journal(replayed, journal.retrace(), at_least)
run = simulate(strategy, task(), ROUGH, BUDGET, seed=7, workers=3, trial=False)
print(digest_pieces(msgspec.json.encode(replayed.result_so_far)))
print(digest_pieces(*outcome(run.journal)))
"""


@cache
def other_pythons() -> list[str]:
    """Interpreters of other minor versions that can import what culmen needs."""
    names = [shutil.which(f"python3.{minor}") or "" for minor in range(11, 20)]
    found: dict[str, str] = {}
    for python in filter(None, [*NAMED, *names]):
        asked = subprocess.run(
            [python, "-c", "import cma, msgspec, numpy, sys; print(sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0 and asked.stdout.strip() != str(sys.version_info[:2]):
            found.setdefault(asked.stdout, python)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_another_python_replays_the_journal_and_makes_the_same_run(
    tmp_path: Path, variant: str
) -> None:
    if not (pythons := other_pythons()):
        pytest.skip("no other Python 3.11+ with numpy, msgspec and cma: CULMEN_TEST_PYTHONS")
    strategy = catalog.make_strategy(variant.split()[0], VARIANTS[variant])
    meta = RunMeta("run", task(), catalog.strategy_config(strategy), budget=kit.BUDGET)
    run = simulate(strategy, task(), kit.ROUGH, kit.BUDGET, seed=7, workers=3, trial=False)
    with SqlJournal.create(tmp_path / "run", meta) as journal:
        journal.append([event.entry for event in run.journal.read()])
    verdict = digest_pieces(msgspec.json.encode(run.verdict))
    expected = [verdict, digest_pieces(*kit.outcome(run.journal))]
    for python in pythons:
        answer = subprocess.run(
            [python, "-c", CHILD, tmp_path / "run"],
            env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.split() == expected, python
