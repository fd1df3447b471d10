"""Migrations make the same tables as a new run gets, and keep what is in them."""

import os
import sqlite3
from collections import Counter
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from culmen.core.evaluation import Sign, Status, trust_rank
from culmen.store import schema, views
from culmen.store.codec import bytes_text, decode_value, encode_value, escape_text, text_bytes, unescape_text
from culmen.store.database import FORMAT, alembic_configuration, engine_for, open_snapshot, upgrade_tables
from culmen.store.journal import SqlJournal
from culmen.store.transfer import recover_run
from tests.store.runs import new_run, observed, program, proposed


def differences(connection):
    return compare_metadata(MigrationContext.configure(connection), schema.metadata)


def test_an_empty_database_is_upgraded_to_the_tables_of_today(tmp_path):
    with engine_for(tmp_path / "new.db", write=True).connect() as connection:
        with connection.begin():
            upgrade_tables(connection)
        with connection.begin():
            assert differences(connection) == []
            assert connection.execute(select(schema.version.c.version_num)).scalar_one() == schema.REVISION
            assert ScriptDirectory.from_config(alembic_configuration(connection)).get_current_head() == schema.REVISION
            upgrade_tables(connection)  # nothing to do


def test_a_new_run_has_the_tables_and_the_stamp_of_the_migrations(tmp_path):
    journal = new_run(tmp_path)
    connection = journal._required_writer._connection
    with connection.begin():
        assert differences(connection) == []
        assert MigrationContext.configure(connection).get_current_revision() == schema.REVISION
    journal.close()


def test_a_run_made_by_migrations_is_opened_and_keeps_its_rows(tmp_path):
    """The way of an old run: tables from the first revision, filled, then opened by this program."""
    meta = new_run(tmp_path, "other").meta
    folder = tmp_path / "old"
    folder.mkdir()
    with engine_for(folder / "journal.db", write=True).connect() as connection:
        with connection.begin():
            command.upgrade(alembic_configuration(connection), "0001")
            connection.execute(insert(schema.run).values(id=1, format=1, epoch=3, meta=encode_value(meta)))
    journal = SqlJournal.open(folder, write=True)
    journal.append([observed(1, program(1), 2.5)])
    journal.close()
    status = views.run_status(folder)
    assert (status.run, status.evaluations, status.best.score) == ("other", 1, 2.5)


def old_run(folder, name="old"):
    """A run that a culmen of format 1 wrote: three candidates, scored yes, no, and certified."""
    (folder / name).mkdir()
    raw = sqlite3.connect(folder / name / "journal.db")
    raw.executescript((Path(__file__).parent / "fixtures" / "format1.sql").read_text())
    raw.close()
    return folder / name


def levels(folder):
    return {row.search_mean: row.trust for row in views.candidate_rows(folder)}


def test_a_run_of_format_1_is_read_as_it_lies_there(tmp_path):
    folder = old_run(tmp_path)
    before = (folder / "journal.db").read_bytes()
    results = [event.entry.result for event in SqlJournal.open(folder).read() if event.entry.kind == "done"]
    assert [(o.score, o.trust, o.is_verified) for o in results] == [
        (1.0, "verified", True),
        (2.0, "", False),
        (3.0, "certified", True),
        (None, "", False),
        (1.5, "verified", True),
    ]
    assert levels(folder) == {1.25: "verified", 2.0: "self-reported", 3.0: "verified"}  # tables knew yes and no only
    best = views.run_status(folder).best
    assert (best.score, best.certified, best.value) == (
        2.5,
        2.5,
        2.5,
    )  # what the verifier certified stands in its place
    assert (best.trust, best.verified) == ("verified", False)  # repaired
    assert (folder / "journal.db").read_bytes() == before and os.listdir(folder) == ["journal.db"]


def test_a_run_of_format_1_goes_on_and_is_then_closed_to_older_programs(tmp_path):
    folder = old_run(tmp_path)
    with SqlJournal.open(folder, write=True) as journal:
        journal.append([proposed(6, program(4)), observed(7, program(4), 9.0)])
        connection = journal._required_writer._connection
        with connection.begin():
            assert differences(connection) == []
            assert connection.execute(select(schema.run.c.format)).scalar_one() == FORMAT == 3
    assert levels(folder)[9.0] == "verified" and views.run_status(folder).best.id == program(4).id


def test_a_run_of_format_1_is_read_by_many_at_once_and_upgraded_anew_only_when_it_changes(tmp_path):
    """As a dashboard does: the upgrade takes long for a large run, and Alembic knows one migration at a time."""
    from concurrent.futures import ThreadPoolExecutor

    from culmen.store import database

    folder = old_run(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(str, pool.map(lambda _: levels(folder), range(24))))) == 1
    first = database._kept[folder / "journal.db"].file
    levels(folder)
    assert database._kept[folder / "journal.db"].file == first
    raw = sqlite3.connect(folder / "journal.db")
    raw.execute("UPDATE observation SET verified = 0")
    raw.commit()
    raw.close()
    assert set(levels(folder).values()) == {"self-reported"}
    for place in range(6):
        levels(old_run(tmp_path, f"other-{place}"))
    assert len(database._kept) == 4 and not first.exists()


def test_what_views_count_by_is_what_the_observations_say_also_after_an_upgrade(tmp_path):
    old, today = old_run(tmp_path), tmp_path / "today"
    recover_run(old, today)
    with SqlJournal.open(today, write=True) as journal:
        signed = observed(9, program(9), 1.0, trust="proxied", signs=(Sign("frames"),))
        journal.append([signed, observed(10, program(9), 2.0), observed(11, program(8), None, Status.ERROR)])
    SqlJournal.open(old, write=True).close()
    for folder, signs in ((old, 0), (today, 1)):
        with open_snapshot(folder) as connection:
            seen = connection.execute(select(schema.observation).where(schema.observation.c.status == "ok")).all()
            weakest = dict(map(tuple, connection.execute(select(schema.tally.c.candidate, schema.tally.c.trust))))
            counts = {(row[0], row[1]): row[2] for row in connection.execute(select(schema.counter))}
        expected = dict.fromkeys(weakest)
        for row in seen:
            expected[row.candidate] = max(expected[row.candidate] or 0, trust_rank(row.trust))
        assert weakest == expected
        assert {name: n for (scope, name), n in counts.items() if scope == "trust"} == Counter(r.trust for r in seen)
        assert counts.get(("sign", ""), 0) == signs == len(views.run_integrity(folder).findings)


def test_what_is_no_observation_is_found_by_its_index(tmp_path):
    journal = new_run(tmp_path)
    journal.close()
    query = select(schema.event.c.seq).where(schema.others, schema.event.c.shape.in_(("proposal", "text")))
    with open_snapshot(journal.run_dir) as connection:
        text = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
    assert "event_other" in str(plan)


any_text = st.text(st.characters())
any_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=12,
)


@given(any_text)
def test_texts_survive_escaping_and_bytes(text):
    assert unescape_text(escape_text(text)) == text == bytes_text(text_bytes(text))
    assert "\x00" not in escape_text(text)
    escape_text(text).encode()  # no lone surrogate is left


@given(any_data)
def test_plain_data_survives_encoding(data):
    assert repr(decode_value(encode_value(data))) == repr(data)
