"""Both journals against the public kit, and against a model under Hypothesis."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, Edits, Entry, Vectors
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.store import views
from culmen.store.codec import encode_value
from culmen.store.database import RunMeta
from culmen.store.journal import MemoryJournal, SqlJournal
from tests.store.contracts import JournalContract

META = RunMeta("run", Task("task"))


class TestMemoryJournal(JournalContract):
    def make(self, folder):
        return MemoryJournal()


class TestSqlJournal(JournalContract):
    def make(self, folder):
        return SqlJournal.create(folder / "run", META)

    def reopen(self, journal, folder):
        journal.close()
        return SqlJournal.open(folder / "run", write=True)


texts = (
    st.text(st.characters(), max_size=20)
    | st.builds("x".__mul__, st.just(5000))
    | st.just("blob:" + "a" * 64)
)
names = st.text(st.characters(), max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
bodies = st.dictionaries(names, plain, max_size=3)
usages = st.builds(
    Usage, calls=st.integers(0, 9), input_tokens=st.integers(0, 10**12), dollars=st.floats(0, 1e6)
)
parts = st.dictionaries(names, texts, min_size=1, max_size=3)
candidates = st.builds(
    Candidate.of,
    parts,
    st.tuples(st.sampled_from(["a" * 12, "b" * 12])) | st.just(()),
    st.builds(
        Origin,
        names,
        model=names,
        rank=st.integers(0, 9),
        weight=st.none() | st.floats(),
        note=texts,
    ),
)
scored = st.builds(
    Observation,
    st.sampled_from(["a" * 12, "b" * 12, "\udfff"]),
    st.just(Status.OK),
    st.floats(-1e9, 1e9),
    case=names,
    metrics=st.dictionaries(names, st.floats(), max_size=2),
    feedback=texts,
    seed=st.integers(0, 2**63),
    artifacts=st.dictionaries(names, texts, max_size=2),
    usage=usages,
)
failed = st.builds(
    Observation,
    st.sampled_from(["a" * 12, "c" * 12]),
    st.sampled_from(list(Status)[1:]),
    reason=names,
)
results = st.one_of(
    st.none(),
    scored,
    failed,
    st.builds(
        Proposal,
        st.lists(candidates, max_size=3).map(tuple),
        texts,
        names,
        names,
        usages,
        texts,
        texts,
    ),
    st.builds(Text, texts, names, names, usages, texts, texts),
    st.builds(Vectors, st.integers(0, 9), st.integers(0, 9), st.binary(max_size=50), names),
    st.builds(Edits, st.lists(parts, max_size=2).map(tuple), st.tuples(texts), bodies, names),
    st.builds(Custom, bodies, usages),
)
kinds = st.sampled_from(["started", "done", "note", "torn", "stop", "state", "tell"])
entries = st.builds(
    Entry,
    kinds,
    st.integers(0, 2**62),
    names,
    names,
    bodies,
    results,
    st.floats(0, 1e9, allow_nan=False),
).filter(lambda entry: entry.kind != "torn" or "usage" not in entry.body)


def comparable(entry_list):
    return [encode_value(entry) for entry in entry_list]


class Machine(RuleBasedStateMachine):
    """Appends, reopenings and kills against a plain list."""

    @initialize()
    def create(self):
        self.home = Path(tempfile.mkdtemp())
        self.folder = self.home / "0"
        self.journal = SqlJournal.create(self.folder, META)
        self.model, self.lives = [], 0

    @rule(batch=st.lists(entries, min_size=1, max_size=5))
    def append(self, batch):
        events = self.journal.append(batch)
        self.model += batch
        assert [event.seq for event in events] == list(
            range(len(self.model) - len(batch) + 1, len(self.model) + 1)
        )

    @rule(
        bad=st.floats().filter(lambda x: x != x or abs(x) == float("inf")),
        batch=st.lists(entries, max_size=2),
    )
    def refuse(self, bad, batch):
        try:
            self.journal.append(
                [*batch, Entry("done", 1, result=Observation("a" * 12, Status.OK, bad))]
            )
        except ValueError:
            return
        raise AssertionError("accepted a score that is not finite")

    @rule()
    def reopen(self):
        self.journal.close()
        self.journal = SqlJournal.open(self.folder, write=True)

    @rule()
    def kill(self):
        """Go on from a copy of the files without any closing, as a killed process leaves them."""
        self.lives += 1
        copy = self.home / str(self.lives)
        shutil.copytree(self.folder, copy)
        self.journal.close()
        self.folder, self.journal = copy, SqlJournal.open(copy, write=True)

    @rule(after=st.integers(0, 10))
    def read_on(self, after):
        found = [event.entry for event in self.journal.read(after, whole=True)]
        assert comparable(found) == comparable(self.model[after:])

    @invariant()
    def counts_agree(self):
        made = [
            e.result for e in self.model if e.kind == "done" and isinstance(e.result, Observation)
        ]
        status = views.run_status(self.folder)
        assert status.events == len(self.model)
        assert status.evaluations == len(made)
        assert sum(row.usage.evaluations for row in views.call_costs(self.folder)) == len(made)

    def teardown(self):
        if hasattr(self, "journal"):
            assert comparable(e.entry for e in self.journal.read(whole=True)) == comparable(
                self.model
            )
            self.journal.close()
            shutil.rmtree(self.home)


Machine.TestCase.settings = settings(
    max_examples=int(os.environ.get("CULMEN_EXAMPLES", "10")),
    stateful_step_count=12,
    deadline=None,
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # shrinking whole batches of texts takes minutes
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestMachine = Machine.TestCase
