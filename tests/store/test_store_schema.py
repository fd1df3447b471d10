"""The tables of a run: number of their format, counts, indexes, stored texts and data."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.core.evaluation import Sign, Status, trust_rank
from culmen.store import schema, views
from culmen.store.codec import (
    bytes_text,
    decode_value,
    encode_value,
    escape_text,
    text_bytes,
    unescape_text,
)
from culmen.store.database import open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.transfer import recover_run
from tests.store.runs import new_run, observed, program, proposed, tampering


@pytest.mark.parametrize(
    ("number", "maker", "remedy"),
    [
        (schema.FORMAT + 1, "a newer culmen", "pip install --upgrade culmen"),
        (schema.FORMAT - 1, "an unreleased version of culmen", "the version that wrote it"),
    ],
)
def test_a_run_of_another_format_is_refused_with_what_to_do(
    each_store, tmp_path, number, maker, remedy
):
    journal = new_run(tmp_path)
    journal.close()
    run = journal.run_dir
    with tampering(run) as connection:
        connection.execute("UPDATE run SET format = :number", number=number)
    looks = [views.run_status, SqlJournal.open, lambda run: SqlJournal.open(run, write=True)]
    for look in looks + [recover_run] * (each_store == "folder"):
        with pytest.raises(UserError, match=f"written by {maker} .*format {number}") as caught:
            look(run)
        assert (
            caught.value.exit_code == 2
            and caught.value.where == str(run)
            and remedy in caught.value.fix
        )


def test_what_views_count_by_is_what_the_observations_say(tmp_path):
    journal = new_run(tmp_path)
    with journal:
        journal.append([proposed(0, program(9), program(8))])
        signed = observed(9, program(9), 1.0, trust="proxied", signs=(Sign("frames"),))
        journal.append(
            [signed, observed(10, program(9), 2.0), observed(11, program(8), None, Status.ERROR)]
        )
    folder = journal.run_dir
    with open_snapshot(folder) as connection:
        seen = connection.execute("SELECT * FROM observation WHERE status = 'ok'").all()
        weakest = dict(connection.execute("SELECT candidate, trust FROM tally"))
        counts = {(row[0], row[1]): row[2] for row in connection.execute("SELECT * FROM counter")}
    expected = dict.fromkeys(weakest)
    for row in seen:
        expected[row.candidate] = max(expected[row.candidate] or 0, trust_rank(row.trust))
    assert weakest == expected
    assert {name: n for (scope, name), n in counts.items() if scope == "trust"} == Counter(
        r.trust for r in seen
    )
    assert counts["signed", ""] == 1 == len(views.run_integrity(folder).findings)


def test_what_is_no_observation_is_found_by_its_index(tmp_path):
    journal = new_run(tmp_path)
    journal.close()
    query = f"SELECT seq FROM event WHERE {schema.OTHERS} AND shape IN ('proposal', 'text')"
    with open_snapshot(journal.run_dir) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}").all()
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
