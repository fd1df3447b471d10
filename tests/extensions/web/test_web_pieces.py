"""Pages of a run that is too long to go through, made of pieces of it.

The pieces give the same results as the whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.usage import Budget
from culmen.extensions.web.pages import effects
from culmen.extensions.web.runs import Digest
from culmen.strategies import catalog
from tests.gallery import Gallery, record, task


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of some thousand events."""
    folder = tmp_path_factory.mktemp("long") / "run"
    record(
        folder,
        catalog.make_strategy("map_elites", {}),
        budget=Budget(evaluations=1500),
        about=task(),
        world=Gallery(sigma=0.1),
    )
    return folder


@pytest.fixture
def pages(run: Path, monkeypatch: pytest.MonkeyPatch):
    """A page as of a run that can be gone through, and as of a long one."""

    def both(page, **params: str):
        exact = page(Digest(run).refresh(), params)
        monkeypatch.setattr(effects, "LONG", 100)
        monkeypatch.setattr(effects, "_CLOSE", 600)
        return exact, page(Digest(run).refresh(), params)

    return both


def test_calls_are_told_alike(pages):
    exact, seen = pages(effects.calls_page)
    assert not exact["sampled"] and seen["sampled"] > 2000
    assert seen["rows"] == exact["rows"] and seen["total"] == exact["total"]
    assert {name: seen["series"][-1][name] for name in ("dollars", "tokens")} == pytest.approx(
        {name: exact["series"][-1][name] for name in ("dollars", "tokens")}, rel=1e-3
    )
    half = [
        min(doc["series"], key=lambda p: abs(p["evaluations"] - 750))["dollars"]
        for doc in (exact, seen)
    ]
    assert half[1] == pytest.approx(half[0], rel=0.25)
    slow = {each["effect"]: each["median"] for each in exact["seconds"]}
    for each in seen["seconds"]:
        assert each["median"] == pytest.approx(slow[each["effect"]], rel=0.3)
    for kind, times in exact["tried"].items():
        assert seen["tried"].get(kind, 0) == pytest.approx(times, rel=0.5, abs=12)


def test_the_timeline_of_a_long_run_tells_the_same_load(pages):
    exact, seen = pages(effects.timeline_page)
    assert seen["sampled"] and not seen["spans"] and not seen["gaps"]["longest"]
    assert seen["whole"] == pytest.approx(exact["whole"]) and seen["sessions"] == exact["sessions"]
    assert seen["count"] == pytest.approx(exact["count"], rel=0.1) and set(seen["kinds"]) == set(
        exact["kinds"]
    )
    assert seen["busy"] == pytest.approx(exact["busy"], abs=0.1)
    for kind, load in exact["load"]["kinds"].items():
        mean = [sum(values) / len(values) for values in (load, seen["load"]["kinds"][kind])]
        assert mean[1] == pytest.approx(mean[0], rel=0.2, abs=0.05)


def test_a_short_stretch_of_a_long_run_is_shown_effect_by_effect(pages):
    whole = pages(effects.timeline_page)[1]["whole"]
    exact, seen = pages(
        effects.timeline_page, **{"from": str(whole / 2), "to": str(whole / 2 + 60)}
    )
    assert not seen["sampled"] and seen["count"] == exact["count"] > 0
    assert [(each["key"], each["how"]) for each in seen["spans"]] == [
        (e["key"], e["how"]) for e in exact["spans"]
    ]
