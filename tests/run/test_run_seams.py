"""Objects of the caller's own get budgets, progress and retries like the built-in ones.

For the rest they get defaults.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import culmen
from culmen.core import ports
from culmen.core.evaluation import Status
from culmen.core.usage import Usage
from culmen.extensions.agents import cato
from culmen.extensions.baselines.portfolio import Portfolio
from culmen.run import fork
from culmen.run.study import Study
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.strategies import catalog
from tests.run.parts import Arithmetic, Dice, Flat, Tally

TASK = culmen.Task("number", seeds=({"number": "1.5"},))


@dataclass(frozen=True)
class Embedding:
    """Asks for candidates, vectors and scores in turn."""

    async def search(self, lab):
        for _ in range(100):
            found = (await lab.propose(culmen.Brief(lab.seeds[0]))).candidates
            await lab.embed([*lab.seeds, *found])
            await lab.gather(*(lab.evaluate(candidate) for candidate in (*lab.seeds, *found)))


def test_parts_with_the_required_methods_alone_are_retried_counted_and_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # no replies of another run
    model, backend, embedder, observer = Dice(), Arithmetic(), Flat(), Tally()
    study = Study.create(
        TASK,
        Embedding(),
        model=model,
        backend=backend,
        embedder=embedder,
        observers=(observer,),
        budget=culmen.Budget(evaluations=30, dollars=0.05),
        run_dir=tmp_path / "run",
    )
    assert study.run() == "finished"
    status = study.status
    assert status.usage.dollars <= 0.05 and status.evaluations <= 30  # limited
    done = [
        event for event in views.log_events(study.path, limit=10_000) if event.entry.kind == "done"
    ]
    proposals = [event.entry.result for event in done if event.entry.effect == "propose"]
    assert (
        not any(each.fault for each in proposals) and model.calls == len(proposals) + 1
    )  # one attempt failed
    seen = list(study.observations())
    assert len(seen) == status.evaluations and all(each.status is Status.OK for each in seen)
    assert backend.asked > len(seen)  # what it lost was asked for a second time
    assert (
        embedder.calls > 1
        and observer.count == len(list(views.log_events(study.path, limit=10_000))) - 1
    )  # all of this session


def test_what_an_object_lacks_has_its_default():
    embedder = ports.with_protocol_defaults(ports.Embedder, Arrays())
    assert embedder.embed_with_usage(["ab"]) == ([[2.0]], Usage())
    observer = ports.with_protocol_defaults(ports.Observer, Tally())
    assert observer.interrupted() is None
    backend = ports.with_protocol_defaults(ports.Backend, Arithmetic())
    assert (backend.workers, backend.attempts, backend.scoring.why) == (0, 2, "")


class Arrays:
    name = "arrays"

    def embed(self, texts):
        return [[float(len(text))] for text in texts]


def test_what_is_complete_stays_itself():
    class Complete(ports.Strategy):
        async def search(self, lab):
            pass

    strategy = Complete()
    assert ports.with_protocol_defaults(ports.Strategy, strategy) is strategy


def test_a_copy_of_a_strategy_of_agents_does_not_retrace(tmp_path: Path):
    """Its own declaration decides, whatever its path."""
    copy = tmp_path / "mine.py"
    shutil.copyfile(cato.__file__, copy)
    known, own = (
        catalog.make_strategy("cato", {"agent": "builtin"}),
        catalog.make_strategy(f"{copy}:Cato", {"agent": "builtin"}),
    )
    searches, agents = Portfolio(("polca", "beam")), Portfolio(("polca", "cato(agent=offline)"))
    taken = ((catalog.make_strategy("polca"), True), (searches, True), (agents, False))
    for strategy, retraces in ((known, False), (own, False), *taken):
        meta = RunMeta(
            "run",
            TASK,
            catalog.strategy_config(strategy),
            model="openai/any",
            budget=culmen.Budget(evaluations=100),
        )
        assert fork.retraces_parent(meta) is retraces
        budget, carry = fork.settle_fork_budget(meta, 100, "evaluations=+40")
        assert (budget.evaluations, carry) == ((140, 0) if retraces else (40, 10))
