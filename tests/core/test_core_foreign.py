"""Foreign words are read, or have a fault with a name; nothing that they hold ends a run."""

import asyncio
import re
import threading
import time
from pathlib import Path

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError, UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Effect, EvaluateRequest
from culmen.core.foreign import (
    UNREADABLE,
    Unreadable,
    boundary,
    parse_python,
    parse_python_or_none,
    without_surrogates,
)
from culmen.engine.world import LiveWorld
from culmen.evaluate.integrity import signs
from culmen.models.embed import HashingEmbedder
from culmen.models.prompts import formats
from tests import boundaries

DOCS = Path(__file__).parents[2] / "docs" / "threats.md"
SOURCES = boundaries.ROOT
SUM = f"LONG = {' + '.join(['1'] * 520)}\n"


@boundary(10)
def read_shortly(text: str, table: object = None) -> int:
    """A boundary of a few characters."""
    if text == "user":
        raise UserError("a mistake")
    return int(text) // len(text.strip("0"))


def test_a_boundary_returns_or_raises_an_error_of_culmens():
    assert read_shortly("12") == 6
    for text, kind in (("x", "ValueError"), ("0", "ZeroDivisionError"), ("1" * 11, "TooLong")):
        with pytest.raises(Unreadable, match=f"unreadable: {kind} in .*read_shortly") as caught:
            read_shortly(text)
        assert caught.value.kind == kind and isinstance(caught.value, CulmenError)
    with pytest.raises(UserError, match=r"^a mistake$"):
        read_shortly("user")
    with pytest.raises(Unreadable, match="TooLong"):
        read_shortly("1", {"a": "12345", "b": b"12345"})


def test_every_boundary_is_listed_and_tried():
    text = DOCS.read_text(encoding="utf-8").partition("## Boundaries")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([\w.]+\.\w+)`", text.partition("### ")[0]))
    assert listed == boundaries.decorated() == set(boundaries.READERS)


def test_programs_are_parsed_in_one_place():
    apart = {"extensions/builtin/tau_retail/store.py"}  # runs in processes of its own
    calls = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if re.search(r"\bast\.parse\(", path.read_text(encoding="utf-8"))
    }
    assert calls == {"core/foreign.py"} | apart


def test_threads_that_parse_at_once_disturb_nobody():
    # CPython 3.11.2 to 3.11.7 raise SystemError for some of these without a lock
    text, failed = "\n".join(f"x{n} = [f({n}) + {n} * (a - b)]" for n in range(300)), []

    def parse_often():
        for _ in range(30):
            try:
                parse_python(text)
            except SyntaxError as error:
                failed.append(error)

    threads = [threading.Thread(target=parse_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("text", ["x = (", "\0", f"x = {'9' * 5_000}", f"x = {'-' * 20_000}1"])
def test_what_cannot_be_parsed_is_a_syntax_error(text):
    with pytest.raises(SyntaxError):
        parse_python(text)
    assert parse_python_or_none(text) is None


def test_half_a_sign_becomes_a_question_mark():
    assert without_surrogates("a\ud83d, \U0001f600 é") == "a?, \U0001f600 é"


def test_the_scan_visits_any_depth_and_any_number():
    task, context = boundaries.TASK, signs.ScanContext()
    deep = f"import os\n{SUM}os._exit({' + '.join(['1'] * 900)})\n"
    found = signs.of_parts({"program.py": deep}, task, context)
    assert [sign.name for sign in found] == ["exit"] and found[0].evidence.startswith("os._exit")
    digits = f"0x{'F' * 3600}"
    forged = f'print({{"score": {digits}}})\nif tolerance < {digits}:\n    pass\n'
    found = signs.of_parts({"program.py": forged}, task, context)
    assert sorted(sign.name for sign in found) == ["forged", "tolerance"]
    assert found[0].evidence.startswith('print({"score": 0xFFF')


class Raising:
    """A backend whose reading of the candidate fails as culmen's own code may."""

    async def evaluate(self, candidate, case, seed, **more):
        read_shortly("x")


def test_what_raises_in_a_reader_is_a_fault_of_the_candidate():
    world = LiveWorld(boundaries.TASK, Raising(), None, HashingEmbedder(), None, lambda *_: "")
    request = EvaluateRequest(Candidate.of({"program.py": "x = 1\n"}), None, 0)
    observation = asyncio.run(world.perform(Effect(1, "mark", request)))
    assert isinstance(observation, Observation) and observation.status is Status.REJECTED
    assert observation.reason == UNREADABLE and "read_shortly" in observation.feedback


def test_what_raises_in_a_format_is_a_fault_of_the_reply():
    class Broken(formats.Rewrite):
        def parse(self, reply, task, parent):
            return read_shortly("x")

    found = formats.read_completion(formats.Completion("text"), Broken(), boundaries.TASK, None)
    assert found.fault == UNREADABLE and "ValueError" in found.detail
    kept = msgspec.structs.replace(found, detail="")
    assert kept == formats.Parsed(fault=UNREADABLE)


def test_a_reply_of_thirty_megabytes_is_a_fault_at_once():
    for text in ("```python\nx = 1\n```\n", "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n"):
        began = time.process_time()
        sample = formats.Completion(text * (30_000_000 // len(text)))
        for form in boundaries.FORMATS:
            found = formats.read_completion(sample, form, boundaries.TASK, boundaries.PARENT)
            assert found.fault == UNREADABLE and "characters" in found.detail
        assert time.process_time() - began < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_text_of_twenty_thousand_raises_at_a_boundary(part, tmp_path):
    # bench/bench_boundaries.py tries more of them, and measures the time
    seeds = range(2_500 * part, 2_500 * (part + 1))
    faults, raised, _ = boundaries.summarize(boundaries.try_many(seeds, tmp_path))
    assert sum(faults.values()) == 2_500 and faults["read"] > 250
    assert [(call.name, call.seed, repr(call.raised)) for call in raised] == []
