"""The lines of an export: byte for byte the output of `json` for each event.

This is so whatever the journal holds.
"""

import json
import random
import struct

import msgspec
import pytest

from culmen.core.brief import Text
from culmen.core.event import Custom, Entry
from culmen.core.usage import Usage
from culmen.store import export as lines
from culmen.store.export import export_run
from culmen.store.journal import SqlJournal
from tests.store.contracts import ODD, specimen_entries
from tests.store.runs import new_run, observed, program, proposed

NUMBERS = (
    0.0,
    -0.0,
    1.0,
    1e-4,
    9.99e-5,
    -5.9e-05,
    1e-5,
    1e-7,
    1e15,
    1e16,
    -1.5e22,
    5e-324,
    1.7976931348623157e308,
)
WORDS = (
    "plain",
    "",
    "tab\t\n\r\b\f\x01",
    "\x7f",
    "é",
    "\U0001f600",
    'quote " \\ /',
    "1e-5",
    ":1e9",
    "null",
    ODD,
)


def told_by_json(run):
    """The definition."""
    for event in SqlJournal.open(run).read(whole=True):
        plain = msgspec.to_builtins(event)
        line = {"seq": plain["seq"], "time": plain["time"], **plain["entry"]}
        yield json.dumps(line, separators=(",", ":")) + "\n"


def exported(run, folder):
    count = export_run(run, "jsonl", folder / "run.jsonl")
    text = (folder / "run.jsonl").read_bytes().decode("ascii")
    assert text.count("\n") == count
    return text


def fill(journal):
    journal.append(specimen_entries())
    one, draw = program(1), random.Random(1)
    for number in NUMBERS:
        journal.append(
            [observed(1, one, min(number, 1e16), elapsed=abs(number), metrics={"a": -number})]
        )
        journal.append(
            [
                Entry(
                    "note",
                    2,
                    body={"note": "n", "x": [number, int(min(number, 1e300))]},
                    elapsed=2e-5,
                )
            ]
        )
    for word in WORDS:
        journal.append(
            [
                observed(3, one, 1.0, feedback=word, artifacts={word: word * 900}),
                Entry("note", 4, word),
            ]
        )
        journal.append(
            [Entry("done", 5, word, f"kind{word}", {word: word}, Custom({word: [word, None]}))]
        )
        journal.append(
            [proposed(6, program(2, text=word), prompt=word * 5000, reply=word, fault=word)]
        )
        journal.append(
            [
                Entry(
                    "done",
                    7,
                    "m",
                    "write",
                    result=Text(word, word, word, Usage(1), word * 5000, word),
                )
            ]
        )
    odd = {"nan": float("nan"), "infinity": float("inf"), "less": -float("inf")}
    journal.append(
        [observed(8, one, 1.0, metrics=odd), Entry("note", 9, body={"note": "odd", **odd})]
    )
    for key in range(1500):
        (number,) = struct.unpack("d", draw.randbytes(8))
        near = draw.uniform(-1, 1) * 10 ** draw.randint(-8, 18)
        journal.append(
            [
                observed(
                    key, one, near, metrics={"any": number, "near": near}, seed=draw.getrandbits(64)
                )
            ]
        )


@pytest.mark.slow
def test_lines_are_what_json_writes_of_every_event(each_store, tmp_path):
    journal = new_run(tmp_path)
    fill(journal)
    assert exported(journal.run_dir, tmp_path) == "".join(told_by_json(journal.run_dir))
    journal.close()


@pytest.mark.parametrize("size", [1, 7])
def test_pages_of_any_length_make_the_same_lines(tmp_path, monkeypatch, size):
    journal = new_run(tmp_path)
    journal.append(specimen_entries() * 3)
    once = exported(journal.run_dir, tmp_path)
    monkeypatch.setattr(lines, "PAGE", size)
    monkeypatch.setattr(lines, "_LITTLE", 0)
    monkeypatch.setattr(lines, "_MUCH", 0)
    pages = list(lines.json_pages(journal))
    assert (
        b"".join(page for _, page in pages).decode() == once
        and max(count for count, _ in pages) <= size
    )
    journal.close()
