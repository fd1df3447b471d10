"""Packed columns: views that read them show what all events show, however the rows were packed."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from culmen.core.admissions import ADMISSION
from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import JournalDamaged
from culmen.core.evaluation import LEVELS, Observation, RoleUsage, Sign, Status
from culmen.core.event import Entry
from culmen.core.usage import Usage
from culmen.evidence.account import Account
from culmen.store import chain, evidence, packs, views
from culmen.store.costs import running_dollars
from culmen.store.database import open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.packs import PackReader
from culmen.store.transfer import recover_run
from culmen.store.views import CandidateQuery, course
from culmen.store.views.table import float_ranks, text_words
from culmen.web.pages import page_makers
from culmen.web.runs import Digest
from tests.store.runs import address, new_run, observed, proposed, tampering

pytestmark = pytest.mark.usefixtures("each_store")

# the seed says all: smaller ones are not searched for
HOW = {"phases": [Phase.generate], "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def random_entries(chance: random.Random, count: int) -> list[Entry]:
    """Proposals and evaluations of a search and its final choice, of all kinds."""
    pool: list[Candidate] = []
    entries: list[Entry] = []
    for key in range(count):
        if not pool or chance.random() < 0.4:
            new = [new_candidate(chance, pool, key, place) for place in range(chance.choice((1, 1, 1, 3)))]
            pool += new
            entries.append(proposed(key, *new, usage=Usage(calls=1, dollars=chance.choice((0.0, 0.1, 0.7)))))
            continue
        if chance.random() < 0.05:
            named = [each.id for each in chance.sample(pool, 1)]
            entries.append(Entry("note", key, body={"note": ADMISSION, "candidates": named}))
        entry = random_observation(chance, key, chance.choice(pool))
        if key > 0.9 * count:
            entry = Entry("done", key, "bb", "evaluate", {"phase": "final"}, entry.result, entry.elapsed)
        entries.append(entry)
    return entries


def new_candidate(chance: random.Random, pool: list[Candidate], key: int, place: int) -> Candidate:
    parents = tuple(each.id for each in chance.sample(pool, min(len(pool), chance.choice((0, 1, 1, 2, 3)))))
    operator = "seed" if not pool and not place else chance.choice(("", "rewrite", "cross\x00", "Ä"))
    origin = Origin(operator, chance.choice(("", "m", "n")), island=chance.choice((None, 0, -2, 7)))
    return Candidate.of({"main.py": f"x = {key}, {place}"}, parents, origin)


def random_observation(chance: random.Random, key: int, candidate: Candidate) -> Entry:
    status = chance.choice((Status.OK, Status.OK, Status.OK, Status.ERROR, Status.LOST, Status.TIMEOUT))
    score = chance.choice((0.0, -0.0, 1.0, chance.gauss(0, 1))) if status is Status.OK else None
    fields = {"signs": (Sign("frames"),)} if chance.random() < 0.1 else {}
    if chance.random() < 0.2:
        usage = Usage(calls=1, dollars=0.03)
        fields |= {"usage": usage, "asked": (RoleUsage("judge", "j", 1, usage),)}
    if score is not None and chance.random() < 0.2:
        fields |= {"strict": chance.random() < 0.5, "certified": chance.choice((None, score - 1.0))}
    trust = chance.choice(("verified", "proxied", ""))
    return observed(key, candidate, score, status, key / 8, trust, reason="raised" if score is None else "", **fields)


def write_run(folder, chance: random.Random, entries: list[Entry]) -> SqlJournal:
    """The entries in appends of random lengths; now and then the journal is opened anew."""
    journal = new_run(folder, direction=chance.choice(("max", "min")))
    while entries:
        size = chance.choice((1, 2, 9, 40))
        journal.append(entries[:size])
        entries = entries[size:]
        if chance.random() < 0.1:
            journal.close()
            journal = SqlJournal.open(folder / "run-1", write=True)
    return journal


def all_results(journal: SqlJournal) -> list[tuple[int, Entry]]:
    return [(event.seq, event.entry) for event in journal.read()]


def expected_dollars(events: list[tuple[int, Entry]], last: int) -> float:
    spent = 0.0
    for seq, entry in events:
        if seq <= last and entry.kind == "done":
            spent += entry.result.usage.dollars
    return spent


def expected_scores(events: list[tuple[int, Entry]], columns: int, rows: int) -> list[tuple[object, ...]]:
    """(number, event, count) of the evaluations of the search that the chart shows."""
    seen = [(seq, entry) for seq, entry in events if isinstance(entry.result, Observation)]
    search = [(n, seq, entry.result) for n, (seq, entry) in enumerate(seen, 1) if not entry.body.get("phase")]
    if len(search) <= columns * 8:
        return [(n, seq, 1) for n, seq, _ in search]
    scores = [each.score for *_, each in search if each.score is not None]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    tall, wide = (high - low) / rows or 1.0, search[-1][0] / columns
    cells: dict[tuple[object, ...], list[int]] = {}
    for n, seq, each in search:
        row = each.status.value if each.score is None else int((each.score - low) / tall)
        cells.setdefault((int(n / wide), row), [n, seq, 0])[2] += 1
    return sorted(map(tuple, cells.values()))


def expected_order(events, query: CandidateQuery, means: dict[str, views.CandidateRow]) -> list[str]:
    """Ids in the order of a sort by plain values, by the rule that the table documents."""
    born: dict[str, tuple[int, Candidate]] = {}
    for seq, entry in events:
        if isinstance(entry.result, Proposal):
            for each in entry.result.candidates:
                born.setdefault(each.id, (seq, each))
    ids = sorted(born, key=lambda name: (born[name][0], name))
    values = {
        "seq": lambda name: born[name][0],
        "id": lambda name: name,
        "operator": lambda name: born[name][1].origin.operator or None,
        "model": lambda name: born[name][1].origin.model or None,
        "island": lambda name: born[name][1].origin.island,
        "parents": lambda name: " ".join(born[name][1].parents) or None,
        "count": lambda name: means[name].search_count,
        "failed": lambda name: means[name].failed,
        "mean": lambda name: means[name].search_mean,
        "trust": lambda name: LEVELS.index(means[name].trust) if means[name].search_count else None,
    }[query.sort]
    there = [name for name in ids if values(name) is not None]
    there.sort(key=values, reverse=query.descending)
    if query.descending:  # ties stay in the order of appearance
        there.sort(key=ids.index)
        there.sort(key=values, reverse=True)
    return [*there, *(name for name in ids if values(name) is None)]


@pytest.mark.slow
@settings(max_examples=12, **HOW)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 120), rows=st.sampled_from([1, 7, 50, 10_000]))
def test_what_pages_show_is_what_all_events_say(tmp_path_factory, monkeypatch, seed, size, rows):
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    monkeypatch.setattr(packs, "ROWS", rows)
    monkeypatch.setattr(packs, "LOOSE", chance.choice((0, 3, 10_000)))
    monkeypatch.setattr(course, "COLUMNS", 5)
    with write_run(folder, chance, random_entries(chance, size)) as journal:
        events, run = all_results(journal), folder / "run-1"
        shown = views.search_evaluations(run)
        expected = expected_scores(events, 5, course.ROWS)
        assert [(each.n, each.seq, each.count) for each in shown] == expected
        entries = dict(events)
        for each in shown:
            seen = entries[each.seq].result
            assert (each.candidate, each.score, each.status) == (seen.candidate, seen.score, seen.status.value)
        last = len(events)
        assert views.dollars_at(run, range(last + 1)) == [expected_dollars(events, seq) for seq in range(last + 1)]
        rows_of = {row.id: row for row in views.candidate_rows(run, "old", limit=None)}
        for sort in (each for each in views.SORTS if each != "best"):
            for descending in (False, True):
                query = CandidateQuery(sort, descending, limit=1000)
                listed = [each.row.id for each in views.candidate_page(run, query).rows]
                assert listed == expected_order(events, query, rows_of), query
        page = [each.row.id for each in views.candidate_page(run, CandidateQuery(limit=1000)).rows]
        assert page == [row.id for row in views.candidate_rows(run, limit=None)]
        assert page[::-1] == [
            each.row.id for each in views.candidate_page(run, CandidateQuery(descending=True, limit=1000)).rows
        ]


@pytest.mark.slow
@settings(max_examples=8, **HOW)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 5, 30]), loose=st.sampled_from([0, 4, 1000]))
def test_packed_tallies_are_those_of_the_table(tmp_path_factory, monkeypatch, seed, rows, loose):
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    monkeypatch.setattr(packs, "ROWS", rows)
    monkeypatch.setattr(packs, "LOOSE", loose)
    with write_run(folder, chance, random_entries(chance, 150)):
        with open_snapshot(folder / "run-1") as connection:
            found = PackReader(connection).read_tallies()
            columns = "first, count, failed, mean, spread, low, high, asked, accepted, strict, barred, trust"
            query = f"SELECT candidate, {columns} FROM tally ORDER BY first, candidate"
            stored = connection.exec_driver_sql(query).all()
        rows_found = zip(*(found[name].tolist() for name, _ in packs.TALLIES.columns))
        plain = [[f"{key:012x}", *map(none_for_missing, values)] for key, *values in rows_found]
        expected = [[*row[:-1], -1 if row[-1] is None else row[-1]] for row in stored]
        assert sorted(plain, key=repr) == sorted(expected, key=repr)
        assert [row[1] for row in plain] == [row[1] for row in expected]


ALTERED = {
    "a mean of a tally": ("tally.mean", "UPDATE pack SET data = {other} WHERE name = 'tally.mean'"),
    "a score": ("observation.score", "UPDATE pack SET data = {other} WHERE name = 'observation.score'"),
    "a column taken away": ("candidate.model", "DELETE FROM pack WHERE name = 'candidate.model'"),
    "a pack taken away": ("", "DELETE FROM pack WHERE seq = (SELECT min(seq) FROM pack)"),
    "a pack added": ("", "INSERT INTO pack SELECT name, seq + 1, data FROM pack WHERE name = 'tally.mean'"),
    "changed tallies forgotten": ("tally", "DELETE FROM loose"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_packs_that_another_program_changed_are_seen(tmp_path, monkeypatch, name):
    """What is best in a very long run is read from packs, so they are checked with the events."""
    chance, (column, statement) = random.Random(11), ALTERED[name]
    monkeypatch.setattr(packs, "ROWS", 20)
    with write_run(tmp_path, chance, random_entries(chance, 120)):
        pass
    run = tmp_path / "run-1"
    chain._known.clear()
    assert views.run_status(run).evaluations > 20
    with tampering(run) as connection:
        another = "(SELECT p.data FROM pack p WHERE p.name = 'tally.high' AND p.seq = pack.seq)"
        connection.exec_driver_sql(statement.format(other=another))
    chain._known.clear()
    for look in (views.run_status, views.best_result, lambda run: SqlJournal.open(run, write=True)):
        with pytest.raises(JournalDamaged, match=f"the packed column {column}.*not that of its rows"):
            look(run)


def none_for_missing(value: float) -> float | None:
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.slow
@settings(max_examples=5, **HOW)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([3, 20]))
def test_pages_of_a_long_run_are_the_same_however_its_rows_were_packed(tmp_path_factory, monkeypatch, seed, rows):
    """Also of a recovered copy, and of a run whose rows were packed when its tables were upgraded."""
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    monkeypatch.setattr(evidence, "MODELLED", 20)
    monkeypatch.setattr(Account.value_model, "__defaults__", (20,))
    monkeypatch.setattr(packs, "ROWS", 10_000)
    write_run(folder, chance, random_entries(chance, 100)).close()
    run = folder / "run-1"
    before = pages(run)
    monkeypatch.setattr(packs, "ROWS", rows)
    if address("any") is None:
        recover_run(run, folder / "again")
        assert views.search_evaluations(folder / "again") == views.search_evaluations(run)
        seqs = range(views.last_seq(run) + 1)
        assert views.dollars_at(folder / "again", seqs) == views.dollars_at(run, seqs)
    with SqlJournal.open(run, write=True) as journal:
        connection = journal._required_writer._connection
        with connection.begin():
            packs.pack_all(connection)
    assert pages(run) == before


def pages(run) -> list[object]:
    """The overview and the table of a run as documents, read by a process that knows nothing of it."""
    evidence._kept.clear()
    course._kept.clear()
    found = []
    for name, params in (("overview", {}), ("candidates", {}), ("candidates", {"sort": "mean"})):
        document = dict(page_makers()[name](Digest(run), params))
        found.append({key: value for key, value in document.items() if key not in ("path", "in_flight")})
    return found


@given(st.lists(st.floats(allow_nan=False)), st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"a"))))
def test_numbers_to_sort_by_sort_as_the_values_do(numbers, texts):
    ranks = float_ranks(np.array(numbers, float)).tolist()
    assert sorted(range(len(numbers)), key=ranks.__getitem__) == sorted(range(len(numbers)), key=numbers.__getitem__)
    words = list(zip(*(each.tolist() for each in text_words(np.array(texts or [b"a"])))))
    assert [b for _, b in sorted(zip(words, texts))] == sorted(texts)


def test_dollars_run_in_the_order_of_events(tmp_path):
    with write_run(tmp_path, random.Random(5), random_entries(random.Random(5), 60)) as journal:
        events = all_results(journal)
        with open_snapshot(journal.run_dir) as connection:
            found = running_dollars(connection, journal.run_dir, 0, len(events))
        assert found and all(dollars == expected_dollars(events, seq) for seq, dollars in found)


def test_of_a_long_run_few_rows_are_read(tmp_path, monkeypatch):
    """What a reader fetches row by row is bounded by the size of a pack, not by the run's length."""
    monkeypatch.setattr(packs, "ROWS", 50)
    with write_run(tmp_path, random.Random(3), random_entries(random.Random(3), 1500)) as journal:
        fetched: list[int] = []
        pack_rows = packs._pack_rows
        monkeypatch.setattr(
            packs, "_pack_rows", lambda table, rows: fetched.append(len(rows)) or pack_rows(table, rows)
        )
        with open_snapshot(journal.run_dir) as connection:
            reader = PackReader(connection)
            counts = [
                len(reader.read(packs.OBSERVATIONS, "seq")["seq"]),
                len(reader.read(packs.CANDIDATES, "seq")["seq"]),
            ]
        assert min(counts) > 500 and max(fetched, default=0) < 100
