"""Contracts of journals, databases of runs, and observation stores.

Subclass one in a test module as `Test...`, and define `make`:

    class TestMine(JournalContract):
        def make(self, folder): return MyJournal(folder)
        def reopen(self, journal, folder): ...  # if it is durable: close, and open again
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import RunLocked, UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, Edits, Entry, Event, Vectors
from culmen.core.ports import Journal, ObservationStore
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.store.address import Address
from culmen.store.database import RunDatabase, RunMeta, run_database
from culmen.store.journal import SqlJournal

ODD = "\ud83d\ude00 \x00 \x1b0000 \U0001f600 blob:"
"""Text that is legal in Python and breaks files, JSON and databases.

It has two lone surrogates, NUL and escapes.
"""


def specimen_entries() -> list[Entry]:
    """One entry of every kind and with every result; texts are short, long, very long and odd."""
    parts = {"main.py": "x = 1\n" * 20_000, "odd.txt": ODD}
    first = Candidate.of(parts, ("aaaaaaaaaaaa",), Origin("rewrite", "a-model", 1, 0.25, 2, ODD))
    second = Candidate.of({"main.py": ""})
    usage = Usage(calls=1, input_tokens=10, output_tokens=20, dollars=0.125)
    scored = Observation(
        first.id,
        Status.OK,
        -0.5,
        "case",
        metrics={"a": 1.5},
        feedback="f" * 9000 + ODD,
        seconds=0.25,
    )
    failed = Observation(
        second.id,
        Status.TIMEOUT,
        reason="cpu",
        artifacts={"log": "l" * 70_000, ODD: ODD},
        seed=2**62,
    )
    reply = Proposal((first, second), "why", "", "a-model", usage, "p" * 70_000, ODD)
    return [
        Entry("note", 1, effect="seeds", body={"note": "seeds"}, result=Proposal((second,))),
        Entry("state", body={"state": "running"}),
        Entry("started", 1, "0f", "propose", elapsed=0.5),
        Entry("done", 1, "0f", "propose", {"role": "proposer"}, reply, 1.5),
        Entry(
            "done",
            2,
            "0f",
            "write",
            {},
            Text("t" * 70_000, "", "a-model", usage, ODD, "blob:" + "0" * 64),
        ),
        Entry("done", 3, "0f", "embed", {}, Vectors(2, 1, bytes(range(8)), "hashing")),
        Entry(
            "done", 4, "0f", "edit", {}, Edits((parts, {}), (ODD,), {"deep": [1, {"x": None}]}, "")
        ),
        Entry("done", 5, "0f", "session", {}, Custom({"list": ["a", 1, 2.5, True, None]}, usage)),
        Entry("done", 6, "0f", "evaluate", {"phase": "search"}, scored, 2.0),
        Entry("done", 7, "0f", "evaluate", {}, failed),
        Entry("torn", 8, "0f", "propose", {"usage": {"calls": 1, "dollars": 0.5}}),
        Entry("tell", body={"text": ODD, "big": 2**70}),
        Entry("stop", body={"reason": "seconds"}, elapsed=3.0),
    ]


class JournalContract:
    """The contract of `core.ports.Journal`, as tests for pytest."""

    def make(self, folder: Path) -> Journal:
        """A new, empty journal; `folder` exists and is empty."""
        raise NotImplementedError

    def reopen(self, journal: Journal, folder: Path) -> Journal:
        """The same journal in a new process, as far as possible; the default stays in this one."""
        return journal

    def whole(self, journal: Journal, text: str) -> str:
        """The whole text of a prompt or reply from `read`."""
        return getattr(journal, "text", str)(text)

    def plain(self, journal: Journal, events: Iterable[Event]) -> list[Entry]:
        """The entries of events, with prompts and replies whole."""
        return [
            _with_texts(event.entry, lambda text: self.whole(journal, text)) for event in events
        ]

    def test_an_empty_journal_reads_nothing(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        assert journal.append([]) == []
        assert list(journal.read()) == []
        journal.close()

    def test_everything_comes_back_as_it_was_given(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        journal.append(specimen_entries())
        journal = self.reopen(journal, tmp_path)
        assert self.plain(journal, journal.read()) == specimen_entries()
        journal.close()

    def test_append_returns_what_read_gives(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        returned = [event for entry in specimen_entries() for event in journal.append([entry])]
        assert list(journal.read()) == returned
        journal.close()

    def test_a_replay_is_told_all_that_it_looks_at(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        journal.append(
            [*specimen_entries(), Entry("held", 9, "0f", "propose", {"most": {"calls": 2}})]
        )
        for event, told in zip(journal.read(), journal.retrace(), strict=True):
            entry, seen = event.entry, told.entry
            assert (told.seq, told.time) == (event.seq, event.time)
            assert (seen.kind, seen.key, seen.mark, seen.effect, seen.elapsed) == (
                (entry.kind, entry.key, entry.mark, entry.effect, entry.elapsed)
            )
            assert entry.kind == "note" or seen.result == entry.result
            assert entry.kind in ("started", "note", "done") or seen.body == entry.body
        journal.close()

    def test_places_are_counted_from_one_without_gaps(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        journal.append(specimen_entries()[:3])
        journal = self.reopen(journal, tmp_path)
        journal.append(specimen_entries()[3:5])
        assert [event.seq for event in journal.read()] == [1, 2, 3, 4, 5]
        assert [event.seq for event in journal.read(after=3)] == [4, 5]
        assert list(journal.read(after=5)) == []
        journal.close()

    def test_reading_sees_what_is_appended_meanwhile(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        journal.append(specimen_entries()[:2])
        reader = journal.read()
        first = next(reader)
        journal.append(specimen_entries()[2:4])
        assert [first.seq, *(event.seq for event in reader)] == [1, 2, 3, 4]
        journal.close()

    def test_a_score_that_is_no_number_is_refused_and_its_batch_with_it(
        self, tmp_path: Path
    ) -> None:
        journal = self.make(tmp_path)
        for score in (float("nan"), float("inf"), None):
            self._check_refused(journal, Observation("c", Status.OK, score))
        self._check_refused(journal, Observation("c", Status.ERROR, 1.0))
        assert list(journal.read()) == []
        assert [event.seq for event in journal.append(specimen_entries()[:1])] == [1]
        journal.close()

    def test_a_metric_may_be_no_number(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        metrics = {"nan": float("nan"), "high": float("inf"), "low": float("-inf"), "one": 1.0}
        journal.append(
            [
                Entry(
                    "done",
                    1,
                    "0f",
                    "evaluate",
                    result=Observation("c", Status.OK, 1.0, metrics=metrics),
                )
            ]
        )
        result = next(iter(self.reopen(journal, tmp_path).read())).entry.result
        assert isinstance(result, Observation)
        assert str(result.metrics) == str(metrics)

    def test_a_closed_journal_takes_nothing(self, tmp_path: Path) -> None:
        journal = self.make(tmp_path)
        journal.close()
        journal.close()
        try:
            journal.append(specimen_entries()[:1])
        except ValueError:
            return
        raise AssertionError("append after close must raise ValueError")

    def _check_refused(self, journal: Journal, observation: Observation) -> None:
        batch = [*specimen_entries()[:2], Entry("done", 1, "0f", "evaluate", result=observation)]
        try:
            journal.append(batch)
        except ValueError:
            return
        raise AssertionError(f"{observation} must be refused with ValueError")


def _with_texts(entry: Entry, whole: Callable[[str], str]) -> Entry:
    if not isinstance(entry.result, Proposal | Text):
        return entry
    texts = {"prompt": whole(entry.result.prompt), "reply": whole(entry.result.reply)}
    return msgspec.structs.replace(entry, result=msgspec.structs.replace(entry.result, **texts))


class RunDatabaseContract:
    """The contract of `store.database.RunDatabase`, as tests for pytest.

    Its databases are found as any are, by the scheme of their address.
    """

    def make_address(self) -> Address:
        """The address of a run that does not exist, in a database that can be written."""
        raise NotImplementedError

    def make_run(self, folder: Path) -> tuple[RunDatabase, SqlJournal]:
        """A new run, and its open journal."""
        address = self.make_address()
        meta = RunMeta(address.name, Task("task"))
        journal = SqlJournal.create(folder / "run", meta, db=f"{address.secret_url}#{address.name}")
        return run_database(address), journal

    def test_runs_are_listed_newest_first_until_they_are_dropped(self, tmp_path: Path) -> None:
        first, one = self.make_run(tmp_path / "first")
        second, two = self.make_run(tmp_path / "second")
        names = [two.meta.id, one.meta.id]
        one.close()
        assert [name for name in first.list_runs() if name in names] == names
        first.drop_run()
        assert [name for name in second.list_runs() if name in names] == names[:1]
        with pytest.raises(RunLocked):
            second.drop_run()
        two.close()
        second.drop_run()
        assert not {*names} & {*second.list_runs()}

    def test_a_run_has_one_writer_which_is_named(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        owner = database.read_owner()
        assert owner is not None and owner.pid == os.getpid()
        with pytest.raises(RunLocked, match=f"process {os.getpid()} "):
            database.take_lease(None)
        journal.close()
        assert database.read_owner() is None
        lease = database.take_lease(None)
        assert not lease.files
        connection = lease.renew()
        assert connection is lease.connection and database.read_owner() is not None
        lease.close()
        assert database.read_owner() is None

    def test_a_name_is_taken_once(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        journal.close()
        with pytest.raises(UserError, match="already"):
            database.take_lease(lambda connection: None)

    def test_a_run_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        address = self.make_address()
        database = run_database(address)
        assert database.read_owner() is None
        for ask in (
            database.open_snapshot().__enter__,
            lambda: database.take_lease(None),
            database.read_signature,
            database.message_bodies,
            lambda: database.insert_message("1", b""),
            database.measure_run,
            database.drop_run,
        ):
            with pytest.raises(UserError, match=address.name):
                ask()

    def test_a_signature_changes_with_the_run(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        seen = [database.read_signature()]
        assert database.read_signature() == seen[0]
        journal.append(specimen_entries()[:1])
        seen.append(database.read_signature())
        journal.close()
        seen.append(database.read_signature())
        assert len(set(seen)) == 3

    def test_messages_wait_in_the_order_of_their_ids(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        other, another = self.make_run(tmp_path / "other")
        bodies = [b"", ODD.encode(errors="surrogatepass"), b"\x00\xff" * 9000]
        for name, body in (("2", bodies[1]), ("1", bodies[0]), ("3", bodies[2])):
            database.insert_message(name, body)
        other.insert_message("1", b"other")
        assert database.message_bodies() == bodies
        database.delete_message("1")
        database.delete_message("1")
        assert database.message_bodies() == bodies[1:] and other.message_bodies() == [b"other"]
        journal.close()
        another.close()

    def test_a_snapshot_stays_as_it_was(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        journal.append(specimen_entries()[:1])
        query = "SELECT count(*) FROM event"
        with database.open_snapshot() as connection:
            before = connection.execute(query).scalar()
            journal.append(specimen_entries()[1:2])
            assert connection.execute(query).scalar() == before == 1
        with database.open_snapshot() as connection:
            assert connection.execute(query).scalar() == 2
        journal.close()

    def test_unused_space_can_be_freed(self, tmp_path: Path) -> None:
        database, journal = self.make_run(tmp_path)
        journal.append(specimen_entries())
        journal.close()
        assert database.measure_run() > 0
        lease = database.take_lease(None)
        database.vacuum_run(lease.connection)
        lease.close()
        assert database.measure_run() > 0

    def test_only_its_own_errors_are_translated(self, tmp_path: Path) -> None:
        database = run_database(self.make_address())
        assert all(issubclass(error, Exception) for error in database.driver_errors())
        assert database.culmen_error(ValueError("a bug")) is None


Deliver = Callable[[str, Candidate, Observation], None]


class ObservationStoreContract:
    """The contract of `core.ports.ObservationStore`, as tests for pytest.

    `make` gives `(MyStore(folder), MyStore.deliver)`.
    """

    def make(self, folder: Path) -> tuple[ObservationStore, Deliver]:
        """An empty store, and a function that stores an evaluation behind it.

        The function takes (mark, candidate, observation); `folder` exists and is empty.
        """
        raise NotImplementedError

    def test_gives_back_what_was_evaluated(self, tmp_path: Path) -> None:
        store, deliver = self.make(tmp_path)
        candidates = [
            Candidate.of({"main.py": f"x = {n}\n", "odd": ODD}, origin=Origin("rewrite"))
            for n in range(60)
        ]
        stored: list[tuple[str, Candidate, Observation]] = []
        for number, candidate in enumerate(candidates):
            feedback = "f" * 9000 if number == 7 else ODD
            stored.append(
                (
                    f"{number:016x}",
                    candidate,
                    Observation(candidate.id, Status.OK, float(number), feedback=feedback),
                )
            )
        for evaluation in stored:
            deliver(*evaluation)
            store.keep(*evaluation)
        for mark, candidate, observation in stored:
            assert store.candidate(candidate.id).parts == candidate.parts
            assert store.observation(candidate.id, mark) == observation

    def test_the_first_observation_under_a_mark_stays(self, tmp_path: Path) -> None:
        store, deliver = self.make(tmp_path)
        candidate = Candidate.of({"main.py": "x = 1\n"})
        cases = [
            ("0a", "first", 1.0),
            ("0b", "second", 2.0),
            ("0a", "first", 3.0),
            ("0c", "", None),
        ]
        for mark, case, score in cases:
            status = Status.LOST if score is None else Status.OK
            evaluation = (mark, candidate, Observation(candidate.id, status, score, case))
            deliver(*evaluation)
            store.keep(*evaluation)
        assert store.observation(candidate.id, "0a").score == 1.0
        assert store.observation(candidate.id, "0b").case == "second"
        assert store.observation(candidate.id, "0c").status is Status.LOST

    def test_what_was_never_there_is_an_error(self, tmp_path: Path) -> None:
        store, _ = self.make(tmp_path)
        candidate = Candidate.of({"main.py": "x = 1\n"})
        for read in (
            lambda: store.candidate(candidate.id),
            lambda: store.observation(candidate.id, "0a"),
        ):
            with pytest.raises(KeyError):
                read()
