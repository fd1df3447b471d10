"""Columns of all rows: views that read them show what all events show."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from culmen.core.admissions import ADMISSION
from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import LEVELS, Observation, RoleUsage, Sign, Status
from culmen.core.event import Entry
from culmen.core.usage import Usage
from culmen.evidence.account import Account
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.runs import Digest
from culmen.store import evidence, views
from culmen.store.columns import TALLIES, read_columns
from culmen.store.database import open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.transfer import recover_run
from culmen.store.views import CandidateQuery, course
from tests.store.runs import address, new_run, observed, proposed

pytestmark = pytest.mark.usefixtures("each_store")

# the seed says all: smaller ones are not searched for
HOW = {"phases": [Phase.generate], "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def random_entries(chance: random.Random, count: int) -> list[Entry]:
    """Proposals and evaluations of a search and its final choice, of all kinds."""
    pool: list[Candidate] = []
    entries: list[Entry] = []
    for key in range(count):
        if not pool or chance.random() < 0.4:
            new = [
                new_candidate(chance, pool, key, place)
                for place in range(chance.choice((1, 1, 1, 3)))
            ]
            pool += new
            entries.append(
                proposed(key, *new, usage=Usage(calls=1, dollars=chance.choice((0.0, 0.1, 0.7))))
            )
            continue
        if chance.random() < 0.05:
            named = [each.id for each in chance.sample(pool, 1)]
            entries.append(Entry("note", key, body={"note": ADMISSION, "candidates": named}))
        entry = random_observation(chance, key, chance.choice(pool))
        if key > 0.9 * count:
            entry = Entry(
                "done", key, "bb", "evaluate", {"phase": "final"}, entry.result, entry.elapsed
            )
        entries.append(entry)
    return entries


def new_candidate(chance: random.Random, pool: list[Candidate], key: int, place: int) -> Candidate:
    parents = tuple(
        each.id for each in chance.sample(pool, min(len(pool), chance.choice((0, 1, 1, 2, 3))))
    )
    operator = (
        "seed" if not pool and not place else chance.choice(("", "rewrite", "cross\x00", "Ä"))
    )
    origin = Origin(operator, chance.choice(("", "m", "n")), island=chance.choice((None, 0, -2, 7)))
    return Candidate.of({"main.py": f"x = {key}, {place}"}, parents, origin)


def random_observation(chance: random.Random, key: int, candidate: Candidate) -> Entry:
    status = chance.choice(
        (Status.OK, Status.OK, Status.OK, Status.ERROR, Status.LOST, Status.TIMEOUT)
    )
    score = chance.choice((0.0, -0.0, 1.0, chance.gauss(0, 1))) if status is Status.OK else None
    fields = {"signs": (Sign("frames"),)} if chance.random() < 0.1 else {}
    if chance.random() < 0.2:
        usage = Usage(calls=1, dollars=0.03)
        fields |= {"usage": usage, "asked": (RoleUsage("judge", "j", 1, usage),)}
    if score is not None and chance.random() < 0.2:
        fields |= {"strict": chance.random() < 0.5, "certified": chance.choice((None, score - 1.0))}
    trust = chance.choice(("verified", "proxied", ""))
    return observed(
        key,
        candidate,
        score,
        status,
        key / 8,
        trust,
        reason="raised" if score is None else "",
        **fields,
    )


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


def expected_scores(
    events: list[tuple[int, Entry]], columns: int, rows: int
) -> list[tuple[object, ...]]:
    """(number, event, count) of the evaluations of the search that the chart shows."""
    seen = [(seq, entry) for seq, entry in events if isinstance(entry.result, Observation)]
    search = [
        (n, seq, entry.result)
        for n, (seq, entry) in enumerate(seen, 1)
        if not entry.body.get("phase")
    ]
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


def expected_order(
    events, query: CandidateQuery, means: dict[str, views.CandidateRow]
) -> list[str]:
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
@given(seed=st.integers(0, 2**32), size=st.integers(1, 120))
def test_what_pages_show_is_what_all_events_say(tmp_path_factory, monkeypatch, seed, size):
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    monkeypatch.setattr(course, "COLUMNS", 5)
    with write_run(folder, chance, random_entries(chance, size)) as journal:
        events, run = all_results(journal), folder / "run-1"
        shown = views.search_evaluations(run)
        expected = expected_scores(events, 5, course.ROWS)
        assert [(each.n, each.seq, each.count) for each in shown] == expected
        entries = dict(events)
        for each in shown:
            seen = entries[each.seq].result
            assert (each.candidate, each.score, each.status) == (
                seen.candidate,
                seen.score,
                seen.status.value,
            )
        last = len(events)
        spent_at = views.spending_by_event(run)
        assert [spent_at(seq).dollars for seq in range(last + 1)] == pytest.approx(
            [expected_dollars(events, seq) for seq in range(last + 1)]
        )
        rows_of = {row.id: row for row in views.candidate_rows(run, "old", limit=None)}
        for sort in (each for each in views.SORTS if each != "best"):
            for descending in (False, True):
                query = CandidateQuery(sort, descending, limit=1000)
                listed = [each.row.id for each in views.candidate_page(run, query).rows]
                assert listed == expected_order(events, query, rows_of), query
        page = [each.row.id for each in views.candidate_page(run, CandidateQuery(limit=1000)).rows]
        assert page == [row.id for row in views.candidate_rows(run, limit=None)]
        assert page[::-1] == [
            each.row.id
            for each in views.candidate_page(run, CandidateQuery(descending=True, limit=1000)).rows
        ]


@pytest.mark.slow
@settings(max_examples=8, **HOW)
@given(seed=st.integers(0, 2**32))
def test_columns_of_tallies_are_those_of_the_table(tmp_path_factory, seed):
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    with write_run(folder, chance, random_entries(chance, 150)):
        with open_snapshot(folder / "run-1") as connection:
            found = read_columns(connection, TALLIES)
            names = "candidate, first, count, failed, mean, spread, low, high, asked, accepted, strict, barred, trust"
            stored = connection.execute(
                f"SELECT {names} FROM tally ORDER BY first, candidate"
            ).all()
        rows = zip(
            *(found[name].tolist() for name in names.replace("candidate", "key").split(", "))
        )
        plain = [[f"{key:012x}", *map(none_for_missing, values)] for key, *values in rows]
        assert plain == [[*row[:-1], -1 if row[-1] is None else row[-1]] for row in stored]


def none_for_missing(value: float) -> float | None:
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.slow
@settings(max_examples=5, **HOW)
@given(seed=st.integers(0, 2**32))
def test_pages_of_a_long_run_are_the_same_when_it_is_opened_anew(
    tmp_path_factory, monkeypatch, seed
):
    """Also of a recovered copy, whose tables are made from the events."""
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("runs")
    monkeypatch.setattr(evidence, "MODELLED", 20)
    monkeypatch.setattr(Account.value_model, "__defaults__", (20,))
    write_run(folder, chance, random_entries(chance, 100)).close()
    run = folder / "run-1"
    before = pages(run)
    if address("any") is None:
        recover_run(run, folder / "again")
        assert views.search_evaluations(folder / "again") == views.search_evaluations(run)
    SqlJournal.open(run, write=True).close()
    assert pages(run) == before


def pages(run) -> list[object]:
    """The overview and the table of a run as documents.

    They are read by a process that knows nothing of the run.
    """
    evidence._kept.clear()
    course._kept.clear()
    found = []
    for name, params in (("overview", {}), ("candidates", {}), ("candidates", {"sort": "mean"})):
        document = dict(page_makers()[name](Digest(run), params))
        found.append(
            {key: value for key, value in document.items() if key not in ("path", "in_flight")}
        )
    return found
