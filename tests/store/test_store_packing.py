"""Texts in few bytes: packed ones come back, and need no others that were not stored."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import Unavailable
from culmen.store.codec import Packer, compress, decompress
from culmen.store.journal import SqlJournal
from tests.store.runs import new_run, observed, program, proposed

ALIKE = "".join(f"Line {number} of a prompt that every request repeats.\n" for number in range(60))


def appended(journal, number, text=ALIKE):
    """One proposal with a long prompt, and its evaluation."""
    candidate = program(number, text=f"{text}{number}")
    prompt = f"{text}{number * 7}"
    journal.append(
        [proposed(2 * number, candidate, prompt=prompt), observed(2 * number + 1, candidate, 1.0)]
    )
    return prompt


def prompts(run):
    """The prompts of a run in full, read by another process's way."""
    events = SqlJournal.open(run).read(whole=True)
    return [event.entry.result.prompt for event in events if event.entry.effect == "propose"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=600)), max_size=12))
def test_what_is_packed_comes_back(texts):
    packer = Packer()
    packed = [packer.pack(kind, text) for kind, text in texts]
    dictionaries = {0: b"", **{each.number: each.text for each in packer.added}}
    assert [decompress(data, dictionaries[number]) for number, data in packed] == [
        text for _, text in texts
    ]


def test_bytes_that_are_damaged_are_none():
    assert decompress(b"\xff" + compress(b"a text")) != b"a text"


def test_a_text_depends_on_no_dictionary_that_was_not_stored(tmp_path):
    journal = new_run(tmp_path)
    raw = journal._required_writer._connection.raw
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(Unavailable):
        for number in range(50):
            appended(journal, number)
    raw.execute("PRAGMA max_page_count=100000")
    made = len(prompts(journal.run_dir))
    later = [appended(journal, 100 + number) for number in range(3)]
    assert prompts(journal.run_dir)[made:] == later
    journal.close()


def test_who_goes_on_writing_uses_the_dictionaries_that_are_there(tmp_path):
    journal = new_run(tmp_path)
    wanted = [appended(journal, number) for number in range(3)]
    journal.close()
    with SqlJournal.open(journal.run_dir, write=True) as again:
        wanted += [appended(again, number) for number in range(3, 6)]
    assert prompts(journal.run_dir) == wanted
    with sqlite3.connect(journal.run_dir / "journal.db") as database:
        kinds = [kind for (kind,) in database.execute("SELECT kind FROM dictionary")]
        sizes = [size for (size,) in database.execute("SELECT length(data) FROM blob")]
    assert sorted(kinds) == ["parts", "prompt"]
    assert max(sizes) < len(ALIKE) // 20
