"""Small runs to test on."""

import contextlib
import uuid

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget, Usage
from culmen.store.address import read_pointer
from culmen.store.database import RunMeta, connect, run_database
from culmen.store.journal import SqlJournal

DATABASE = None  # the URL, while a test asks for both kinds of store


def new_run(folder, name="run-1", direction="max", called="a task", **settings):
    task = Task(called, "a goal", objective=Objective(direction))
    strategy = {"path": "culmen.strategies.polca:Polca", "config": {"explore": 5}}
    meta = RunMeta(
        name, task, strategy, models={"proposer": "m"}, budget=Budget(evaluations=100), **settings
    )
    return SqlJournal.create(folder / name, meta, db=address(name))


def address(name):
    """A new run's place in the database that tests use just now; None while runs are folders."""
    return DATABASE and f"{DATABASE}#{name}-{uuid.uuid4().hex[:8]}"


def program(number, parents=(), operator="rewrite", text=""):
    return Candidate.of(
        {"main.py": f"x = {number}\n{text}"},
        tuple(parents),
        Origin(operator, "m", note=f"n{number}"),
    )


def proposed(key, *candidates, usage=None, **fields):
    proposal = Proposal(
        candidates, "an idea", model="m", usage=usage or Usage(calls=1, dollars=0.5), **fields
    )
    return Entry("done", key, "aa", "propose", {"role": "proposer"}, proposal)


def observed(key, candidate, score, status=Status.OK, elapsed=0.0, trust="verified", **fields):
    result = Observation(candidate.id, status, score, trust=trust, **fields)
    return Entry("done", key, "bb", "evaluate", result=result, elapsed=elapsed)


def state(name, **fields):
    return Entry("state", body={"state": name, **fields})


@contextlib.contextmanager
def tampering(run):
    """A connection of another program that writes to the run's tables."""
    where = read_pointer(run)
    if where is None:
        with contextlib.closing(connect(run / "journal.db", write=True)) as connection:
            with connection.begin():
                yield connection
        return
    lease = run_database(where).take_lease(None)
    with lease.connection.begin():
        yield lease.connection
    lease.close()
