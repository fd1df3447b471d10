"""A killed run goes on from its checkpoint, to the end of a run that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from culmen.cli.keep import replay_run
from culmen.run.study import Study
from culmen.store.journal import SqlJournal
from culmen.store.sidecar import CHECKPOINT

PROGRAM = """
import random, sys
import culmen
from culmen.engine import loop
from culmen.run import plan

plan.EVERY, loop._PER_WORKER = 40, 1  # small runs have checkpoints, too

def evaluator(program):
    space = {}
    exec(program, space)
    return -(space["x"] - 3.0) ** 2 + random.Random(program).gauss(0, 0.05)

def run(folder, budget):
    return culmen.optimize(
        "x = 0.5\\n", evaluator, budget=budget, workers=1, random_seed=7, run_dir=folder, progress=False
    )
"""


def effects(run: Path) -> list[tuple[int, str, object]]:
    with SqlJournal.open(run) as journal:
        entries = [event.entry for event in journal.read()]
    done = [entry for entry in entries if entry.kind == "done"]
    results = [(e.key, e.mark, getattr(e.result, "score", None)) for e in done]
    return [each for each, entry in zip(results, done, strict=True) if entry.effect != "clock.wait"]


def first_states(run: Path) -> list[int]:
    """The event of the checkpoint that each session began with."""
    with SqlJournal.open(run) as journal:
        bodies = [event.entry.body for event in journal.read() if event.entry.kind == "state"]
    return [body.get("checkpoint", 0) for body in bodies if body["state"] == "running"]


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found: dict[str, object] = {}
    from culmen.engine import loop
    from culmen.run import plan

    monkeypatch.setattr(plan, "EVERY", plan.EVERY)
    monkeypatch.setattr(loop, "_PER_WORKER", loop._PER_WORKER)
    exec(PROGRAM, found)
    return found


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path, space) -> None:
    space["run"](tmp_path / "whole", 90)
    code = f"{PROGRAM}\nrun({str(tmp_path / 'killed')!r}, 90)"
    killed = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while not (tmp_path / "killed" / CHECKPOINT).exists() and time.monotonic() < until:
        time.sleep(0.02)
    stored = len(effects(tmp_path / "killed"))
    while len(effects(tmp_path / "killed")) < stored + 4 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = len(effects(tmp_path / "killed"))
    shutil.copytree(tmp_path / "killed", tmp_path / "other")
    resumed = Study.resume(tmp_path / "killed", evaluator=space["evaluator"])
    assert resumed.run(progress=False) == "finished"
    whole, run = effects(tmp_path / "whole"), effects(tmp_path / "killed")
    assert before < len(whole) and run == whole
    assert first_states(tmp_path / "killed")[1] > 0
    with SqlJournal.open(tmp_path / "whole") as journal:
        assert journal.meta.checkpoints == 40
    assert Study.open(tmp_path / "whole").best == resumed.best

    number_differently(tmp_path / "other")  # a checkpoint that does not fit
    told = Told()
    again = Study.resume(tmp_path / "other", evaluator=space["evaluator"], observers=[told])
    assert again.run(progress=False) == "finished"
    assert any("does not fit" in each for each in told.texts)
    assert effects(tmp_path / "other") == whole


class Told:
    """An observer that keeps sentences for people."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def see(self, events) -> None: ...

    def told(self, text: str) -> None:
        self.texts.append(text)


def number_differently(run: Path) -> None:
    """Store a state that asks for its next effect under another number."""
    from culmen.engine.loop import pack_state, unpack_state
    from culmen.run.assemble import checkpoint_file, rebuild_search
    from culmen.run.options import RunObjects

    with SqlJournal.open(run) as journal:
        meta = journal.meta
    search, _ = rebuild_search(meta, RunObjects(), run)
    file = checkpoint_file(run, meta, search)
    assert file is not None
    stored = file.read()
    assert stored is not None
    state = unpack_state(stored.state, search.anchors)
    state.search["issued"] = search.issued - 1
    file.write(stored.seq, pack_state(state, search.anchors))
    search.close()


def test_without_its_file_the_same_run_replays_all(tmp_path: Path, space) -> None:
    study = space["run"](tmp_path / "run", 60)
    assert (tmp_path / "run" / CHECKPOINT).exists()
    found = replay_run(tmp_path / "run", True)
    assert found.data["matches"] and found.data["checkpoint"] > 0
    (tmp_path / "run" / CHECKPOINT).unlink()
    again = replay_run(tmp_path / "run", True)
    assert again.data["matches"] and again.data["checkpoint"] == 0
    assert study.best is not None


def test_replay_tells_a_checkpoint_of_another_state(tmp_path: Path, space) -> None:
    run = tmp_path / "run"
    space["run"](run, 60)
    number_differently(run)
    found = replay_run(run, True)
    assert not found.data["matches"] and "checkpoint" in found.data["differences"][0]


def test_code_of_ones_own_has_no_checkpoints(tmp_path: Path, space) -> None:
    """A change of such code would go unseen."""
    import culmen
    from culmen.strategies.best_of_n import BestOfN

    class Mine(BestOfN):
        """A strategy of a user's own."""

    culmen.optimize(
        "x = 0.5\n",
        space["evaluator"],
        strategy=Mine(),
        budget=50,
        workers=1,
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert not (tmp_path / "run" / CHECKPOINT).exists()


@dataclass(frozen=True)
class Oldest:
    """A priority of a user's own, inside a strategy of culmen's."""

    def __call__(self, statistics):
        return -statistics.count


def test_own_code_inside_settings_is_seen() -> None:
    from culmen.run.assemble import _is_own
    from culmen.strategies.pedigree import PedigreeSearch
    from culmen.strategies.polca import Polca

    assert _is_own(PedigreeSearch()) and _is_own(Polca())
    assert not _is_own(Polca(priority=Oldest()))
