"""Kill writing processes at random instants, many times over one run.

Usage: python crash_harness.py FOLDER ROUNDS SEED [URL]. Prints the findings as one JSON document.
URL: a database for the journal. A child acknowledges each append by writing its last seq to a pipe;
the parent kills it after a random number of acknowledgements.
"""

import json
import os
import random
import signal
import sqlite3
import sys
from pathlib import Path

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.task import Task
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal


def entry(seq):
    """The entry at this place, in every life the same."""
    if seq % 3 == 0:
        size = (
            90_000 if seq % 30 == 0 else 2_000
        )  # now and then a candidate large enough to be a file
        candidate = Candidate.of({"main.py": f"{seq} " * size})
        return Entry(
            "done", seq, "m", "propose", result=Proposal((candidate,), prompt=f"{seq} " * 2_000)
        )
    return Entry(
        "done", seq, "m", "evaluate", result=Observation("a" * 12, Status.OK, float(seq), seed=seq)
    )


def write_for_ever(folder, seed, pipe):
    chance = random.Random(seed)
    journal = SqlJournal.open(folder, write=True)
    seq = max((event.seq for event in journal.read()), default=0)
    while True:
        batch = [entry(seq + place) for place in range(1, chance.choice([2, 4, 9]))]
        seq = journal.append(batch)[-1].seq
        os.write(pipe, seq.to_bytes(8))


def one_life(folder, chance):
    """The last seq acknowledged before the kill."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        write_for_ever(folder, chance.random(), into)
    os.close(into)
    acknowledged = b""
    for _ in range(chance.randrange(1, 12)):
        acknowledged = os.read(out, 8) or acknowledged
    for _ in range(chance.randrange(0, 20_000)):
        pass  # the instant within the next append
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(out, 8):
        acknowledged = more
    os.close(out)
    return int.from_bytes(acknowledged)


def main(folder, rounds, seed, url=None):
    folder, chance = Path(folder), random.Random(int(seed))
    SqlJournal.create(folder, RunMeta("run", Task("task")), url).close()
    lost, wrong, acknowledged = 0, 0, 0
    for _ in range(int(rounds)):
        acknowledged = max(acknowledged, one_life(folder, chance))
        last = views.run_status(folder).events
        lost += max(0, acknowledged - last)
    for event in SqlJournal.open(folder).read(whole=True):
        wrong += event.entry != entry(event.seq)
    status = views.run_status(folder)
    made = sum(1 for seq in range(1, status.events + 1) if seq % 3)
    check = (
        "ok"
        if url
        else sqlite3.connect(folder / "journal.db").execute("PRAGMA integrity_check").fetchone()[0]
    )
    report = {
        "lost": lost,
        "wrong": wrong,
        "events": status.events,
        "acknowledged": acknowledged,
        "check": check,
    }
    print(json.dumps({**report, "miscounted": status.evaluations - made, "state": status.state}))


if __name__ == "__main__":
    main(*sys.argv[1:])
