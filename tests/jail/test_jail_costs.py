"""Costs of an evaluation, counted so that load does not matter, and the memory of its child."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.task import Evaluator
from culmen.jail.scorer_pool import ScorerProcess
from culmen.jail.zygote import remove_small_folder
from tests.evaluate.conftest import Ground
from tests.jail.test_jail_faults import SCORE, zygote

Make = Callable[..., Ground]
PAGES = 950  # 780 to 840 where this was written; 1,140 without the preparation before the fork
OWN = """
import os, random
def run():
    seen = map(int, os.listdir("/proc/self/fd"))
    open_ones = sorted(filter(is_open, seen))
    places = [os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()]
    return {"open": open_ones, "places": places, "drawn": random.random(), "names": list(os.environ)}

def is_open(n):
    try:
        return bool(os.fstat(n))
    except OSError:
        return False
"""
SHOW = "import json\ndef score(output): return {'score': 1.0, 'feedback': json.dumps(output)}\n"


@pytest.mark.jail
@pytest.mark.parametrize("level", ["namespaces", "restricted", "limits"])
def test_a_child_copies_few_pages_and_its_folder_needs_no_process(ground: Make, level: str) -> None:
    arena, pages = ground(SCORE, level), []
    for _ in range(11):
        assert arena.one("def run(): return 2").score == 2.0
        fields = Path(f"/proc/{zygote(arena)}/stat").read_text().rpartition(")")[2].split()
        pages.append(int(fields[8]))  # page faults of all children that have been waited for
    assert (pages[-1] - pages[0]) / 10 < PAGES


@pytest.mark.jail
@pytest.mark.parametrize("level", ["namespaces", "restricted", "limits"])
def test_what_is_prepared_for_one_child_reaches_no_other(ground: Make, level: str) -> None:
    arena = ground(SHOW, level)
    spoils = "import os, random\ndef run():\n    os.environ['LEFT'] = '1'; random.seed(1); return 1"
    first = json.loads(arena.one(OWN).feedback)
    assert arena.one(spoils).score == 1.0
    second = json.loads(arena.one(OWN).feedback)
    assert first["open"] == second["open"] == [0, 1, 2, 3]  # neither ruleset nor handover
    assert "LEFT" not in second["names"] and first["drawn"] == second["drawn"]
    for said in (first, second):
        home, temporary, current = said["places"]
        assert home == current and temporary in (home, "/tmp")
    assert (first["places"] == second["places"]) is (level == "namespaces")


def test_only_a_folder_of_few_files_is_removed_at_once(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "note").write_text("stays")
    for name, files in (("flat", 3), ("full", 30), ("deep", 0)):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / str(number)).touch()
    (tmp_path / "flat" / "link").symlink_to(kept)
    (tmp_path / "deep" / "inner").mkdir()
    (tmp_path / "link").symlink_to(kept)
    names = ("flat", "full", "deep", "absent", "link")
    removed = {name for name in names if remove_small_folder(str(tmp_path / name))}
    assert removed == {"flat"} and not (tmp_path / "flat").exists()
    assert (kept / "note").read_text() == "stays"


def test_a_scorer_is_closed_once_though_it_is_asked_twice(tmp_path: Path) -> None:
    path = tmp_path / "evaluator.py"
    path.write_text(SCORE)

    async def work() -> None:
        scorer = ScorerProcess(Evaluator(path=str(path)), 256)
        await scorer.wait_until_loaded()
        await scorer.close()
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(9)]  # take the freed numbers
        await scorer.close()
        for fd in others:
            os.close(fd)  # still open

    asyncio.run(work())
