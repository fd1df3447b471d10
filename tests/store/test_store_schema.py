"""Migrations make the same tables as a new run gets, and keep what is in them."""

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from culmen.store import schema, views
from culmen.store.codec import bytes_text, decode, encode, escape, text_bytes, unescape
from culmen.store.database import engine_for
from culmen.store.journal import SqlJournal
from culmen.store.migrate import configuration, upgrade
from tests.store.runs import new_run, observed, program


def differences(connection):
    return compare_metadata(MigrationContext.configure(connection), schema.metadata)


def test_an_empty_database_is_upgraded_to_the_tables_of_today(tmp_path):
    with engine_for(tmp_path / "new.db", write=True).connect() as connection:
        with connection.begin():
            upgrade(connection)
        with connection.begin():
            assert differences(connection) == []
            assert connection.execute(select(schema.version.c.version_num)).scalar_one() == schema.REVISION
            assert ScriptDirectory.from_config(configuration(connection)).get_current_head() == schema.REVISION
            upgrade(connection)  # nothing to do


def test_a_new_run_has_the_tables_and_the_stamp_of_the_migrations(tmp_path):
    journal = new_run(tmp_path)
    connection = journal._writing._connection
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
            command.upgrade(configuration(connection), "0001")
            connection.execute(insert(schema.run).values(id=1, format=1, epoch=3, meta=encode(meta)))
    journal = SqlJournal.open(folder, write=True)
    journal.append([observed(1, program(1), 2.5)])
    journal.close()
    status = views.status(folder)
    assert (status.run, status.evaluations, status.best.score) == ("other", 1, 2.5)


any_text = st.text(st.characters())
any_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=12,
)


@given(any_text)
def test_texts_survive_escaping_and_bytes(text):
    assert unescape(escape(text)) == text == bytes_text(text_bytes(text))
    assert "\x00" not in escape(text)
    escape(text).encode()  # no lone surrogate is left


@given(any_data)
def test_plain_data_survives_encoding(data):
    assert repr(decode(encode(data))) == repr(data)
