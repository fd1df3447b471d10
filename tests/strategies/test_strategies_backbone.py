"""Backbones of island searches, their loop, and the programs shown beside a parent."""

from __future__ import annotations

from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.usage import Budget
from culmen.strategies import catalog
from culmen.strategies.backbone import Grids, Openevolve, ProgramPopulation
from culmen.strategies.island_loops import Adaptive, Fixed, Middle, Requery, tail_text
from culmen.strategies.memory.grid import Axis, Elite, Grid, GridIsland, Selection
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness

ON_OPENEVOLVE = {"backbone": Openevolve(), "islands": 3, "interval": 5}


def notes(strategy, evaluations=150, seeds=(0.0,), world=None):
    done = simulate(
        strategy, task(seeds=seeds), world or Landscape(), Budget(evaluations=evaluations)
    )
    return bodies(done, "event")


def bodies(done, name):
    entries = [event.entry for event in done.journal.read()]
    return [entry.body for entry in entries if entry.body.get("note") == name]


def test_one_candidate_a_request_on_openevolves_backbone_is_openevolve() -> None:
    """The same engine, so the same run: nothing but K stands between the two."""
    baseline = pytest.importorskip("culmen.extensions.baselines.openevolve").OpenEvolve
    plain = TurboEvolve(
        backbone=Openevolve(),
        width=Fixed(1),
        requery=Requery(times=0),
        format="auto",
        islands=3,
        interval=5,
    )
    ours = notes(plain)
    assert ours == notes(baseline(islands=3, interval=5, lanes=3)) and len(ours) > 100
    assert any(note["migrated"] for note in ours)


def test_openevolves_backbone_starts_on_the_first_island_and_keeps_losers() -> None:
    done = simulate(TurboEvolve(**ON_OPENEVOLVE), task(), Landscape(), Budget(evaluations=80))
    seeded = bodies(done, "seeded")
    assert [len(note["seeds"]) for note in seeded] == [1, 0, 0]
    last = {note["island"]: note for note in notes(TurboEvolve(**ON_OPENEVOLVE), 80)}
    refused = [c for note in last.values() for c in note["candidates"] if c["outcome"] == "refused"]
    assert refused and sum(note["cells"] for note in last.values()) > 40


def test_the_width_on_openevolves_backbone_follows_replaced_occupants_or_any_cell() -> None:
    for new_cells, counted in ((False, {"replaced"}), (True, {"replaced", "new"})):
        found = notes(TurboEvolve(**ON_OPENEVOLVE, width=Adaptive(new_cells=new_cells)), 300)
        for island in range(3):
            mine = [note for note in found if note["island"] == island]
            updated = [
                any(c.get("outcome") in counted for c in note["candidates"]) for note in mine
            ]
            for first in range(3, len(mine) - 3, 3):  # the first three do not count
                c, k = sum(updated[first : first + 3]), mine[first]["k"]
                wanted = min(7, k + 2) if c == 0 else max(1, k - 2) if c == 3 else k
                assert mine[first + 2]["next_k"] == wanted


def test_the_best_are_copied_every_interval_of_the_furthest_island() -> None:
    found = notes(TurboEvolve(**ON_OPENEVOLVE), 300)
    turns = [note["turn"] for note in found if note["migrated"]]
    assert turns and all(turn % 5 == 0 for turn in turns)


def test_presets_are_the_papers_backbone_with_both_readings_of_replacement() -> None:
    made = [
        catalog.make_strategy("turboevolve", {"preset": name})
        for name in ("paper", "paper_any_cell")
    ]
    assert made == [
        TurboEvolve(backbone=Openevolve(), width=Adaptive(new_cells=new)) for new in (False, True)
    ]
    assert catalog.make_strategy("turboevolve", {}) == TurboEvolve(backbone=Grids())
    small = catalog.make_strategy(
        "turboevolve", {"backbone": "openevolve(population=50, archive=5)"}
    )
    assert small == TurboEvolve(backbone=Openevolve(50, 5))


def test_prompts_on_openevolves_backbone_name_the_features_and_grids_do_not() -> None:
    for backbone, named in ((Openevolve(), True), (Grids(), False)):
        witness = Witness()
        notes(TurboEvolve(backbone=backbone, islands=2), 40, world=witness)
        assert all(("complexity, diversity" in brief.context) is named for brief in witness.briefs)


def elite(n: int, reward: float, feature: float) -> Elite:
    candidate = Candidate.of({"p": str(n)})
    seen = Observation(candidate.id, Status.OK, reward)
    return Elite(Rollout(candidate, (seen,), (reward,)), reward, (feature,))


@pytest.mark.parametrize("kept", ["occupants", "programs"])
def test_inspirations_at_middle_distance_leave_out_the_nearest_and_the_farthest(kept: str) -> None:
    axis, chosen = Axis("a", 21, 0.0, 20.0), Selection(top=1, diverse=3)
    island = (
        GridIsland(Grid([axis]), chosen)
        if kept == "occupants"
        else ProgramPopulation([axis], 1, chosen, 100, 1000).islands[0]
    )
    elites = [elite(n, 1.0 + n % 3 if n else 9.0, float(n)) for n in range(21)]
    for each in (elites[0], elites[20], *elites[1:20]):  # the ends first: cells stay as they are
        island.grid.offer_elite(each)
    parent, rng, shown = elites[20], Random(0), set[float]()
    for _ in range(200):
        best, *drawn = Middle().draw_inspirations(island, parent, chosen, rng)
        assert best is elites[0] and len(drawn) == 3 == len({id(each) for each in drawn})
        shown |= {each.features[0] for each in drawn}
    # of 19 others, distances 1 to 19: floor(.3 * 19) = 5 nearer and 19 - ceil(.7 * 19) = 5 farther
    assert shown == {20.0 - distance for distance in range(6, 15)}


def test_bounds_of_the_middle_have_an_order() -> None:
    with pytest.raises(UserError, match="no distance lies between"):
        Middle(low=0.5, high=0.5)
    made = catalog.make_strategy("turboevolve", {"inspirations": "middle(low=0.4, high=0.6)"})
    assert made.inspirations == Middle(0.4, 0.6)


def test_the_tail_is_asked_for_in_whole_candidates() -> None:
    assert [tail_text(0.5, k)[:26] for k in (1, 3, 7)] == [
        "",
        "Draw at least 1 of the 3 c",
        "Draw at least 3 of the 7 c",
    ]
    assert tail_text(0.0, 7) == ""
    witness = Witness()
    notes(TurboEvolve(islands=1, tail=0.5), 40, world=witness)
    assert witness.briefs[0].context == tail_text(0.5, 5)
