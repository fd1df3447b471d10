"""TurboEvolve's parts against the rules as printed, and its runs.

Islands, widths, pools, migration.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections import Counter, deque
from fractions import Fraction
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.event import EditRequest, Edits, Entry, EvaluateRequest, ProposeRequest
from culmen.core.usage import Budget
from culmen.engine.search import Search
from culmen.extensions.baselines.openevolve import OpenEvolve
from culmen.store import views
from culmen.strategies import catalog
from culmen.strategies.backbone import Grids, Openevolve
from culmen.strategies.island_loops import Adaptive, Fixed, Requery
from culmen.strategies.judging import Features, Known, dimension_value
from culmen.strategies.seed_pool import (
    Everywhere,
    Given,
    Kmeans,
    KmeansElite,
    RandomElite,
    copy_and_mix,
    fill_empty_clusters,
)
from culmen.strategies.seed_pool import Random as RandomSplit
from culmen.strategies.turboevolve import TurboEvolve
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness


def printed(rule: Adaptive, outcomes: list[bool]) -> list[int]:
    """Section 3.2, word by word: K before each iteration, and after the last."""
    k, ks = rule.start, [rule.start]
    late = outcomes[rule.warmup :]
    for i in range(1, len(outcomes) + 1):
        n = i - rule.warmup
        if n > 0 and n % rule.window == 0:
            c = sum(late[n - rule.window : n])
            k = (
                min(rule.most, k + rule.step)
                if c == 0
                else max(rule.least, k - rule.step)
                if c == rule.window
                else k
            )
        ks.append(k)
    return ks


@st.composite
def rules(draw: st.DrawFn) -> Adaptive:
    least, step, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 4))
    start = least + step * draw(st.integers(0, size))
    window, warmup = draw(st.integers(1, 4)), draw(st.integers(0, 4))
    return Adaptive(start, least, least + step * size, step, window, warmup, draw(st.booleans()))


@given(
    rule=st.just(Adaptive()) | rules(),
    outcomes=st.lists(st.sampled_from(["refused", "new", "replaced"]), max_size=40),
)
def test_the_width_follows_the_printed_rule(rule: Adaptive, outcomes: list[str]) -> None:
    """Replacement is read widely (any cell that was taken) or strictly (from an occupant)."""
    counter = rule.begin_counter()
    ks = [counter.k]
    for outcome in outcomes:
        counter.record_iteration(outcome != "refused", outcome == "replaced")
        ks.append(counter.k)
    counted = ("new", "replaced") if rule.new_cells else ("replaced",)
    assert ks == printed(rule, [outcome in counted for outcome in outcomes])
    assert all(k in range(rule.least, rule.most + 1, rule.step) for k in ks)


def test_the_papers_widths() -> None:
    assert printed(Adaptive(), [False] * 12)[::3] == [5, 5, 7, 7, 7]
    assert printed(Adaptive(), [True] * 15)[::3] == [5, 5, 3, 1, 1, 1]
    with pytest.raises(UserError, match="cannot move in steps"):
        Adaptive(start=4)
    with pytest.raises(UserError, match="cannot move in steps"):
        Adaptive(start=8, step=1)
    assert Adaptive(start=7, step=1).begin_counter().k == 7


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    d=st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0]),
    rho=st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]),
    seed=st.integers(0, 999),
)
def test_copy_and_mix_keeps_sizes_and_elites(
    sizes: list[int], d: float, rho: float, seed: int
) -> None:
    rng = Random(seed)
    clusters, n = list[list[int]](), 0
    for size in sizes:
        clusters.append(list(range(n, n + size)))
        n += size
    rewards = [rng.choice([0.0, 1.0, 2.0, 3.0]) + i / 1000 for i in range(n)]
    result = copy_and_mix(clusters, rewards, d, rho, rng)
    share, protect = Fraction(str(d)), Fraction(str(rho))
    ranked = [sorted(cluster, key=lambda i: -rewards[i]) for cluster in clusters]
    pool = [i for cluster in ranked for i in cluster[: math.ceil(share * len(cluster))]]
    for own, new in zip(ranked, result, strict=True):
        size = len(own)
        assert len(new) == len(set(new)) == size
        foreign = [i for i in new if i not in own]
        assert all(i in pool for i in foreign)
        others = [i for i in pool if i not in own]
        elites = math.ceil(protect * size)
        assert len(foreign) == min(math.floor(share * size), len(others), size - elites)
        assert [i for i in new if i in own] == own[
            : size - len(foreign)
        ]  # the bottom left, the elites did not


@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_no_island_starts_with_nothing(sizes: list[int]) -> None:
    clusters, n = list[list[int]](), 0
    for size in sizes:
        clusters.append(list(range(n, n + size)))
        n += size
    rewards = [float(i) for i in range(n)]
    result = fill_empty_clusters(clusters, rewards)
    assert all(result) if n else not any(result)
    assert all(new == old for new, old in zip(result, clusters) if old)


def notes(run, kind):
    return [
        e.entry.body
        for e in run.journal.read()
        if e.entry.kind == "note" and e.entry.body.get("note") == kind
    ]


def run(strategy, *, evaluations=120, seeds=(0.0,), world=None, **options):
    world = world or Landscape(failure=Landscape().failure)
    return simulate(
        strategy, task(seeds=seeds), world, Budget(evaluations=evaluations), workers=4, **options
    )


@pytest.mark.parametrize(
    "allocation",
    [RandomSplit(), RandomElite(0.5, 0.2), Kmeans(), KmeansElite(0.5, 0.2), Everywhere()],
)
def test_a_pool_is_shared_out_as_asked(allocation) -> None:
    seeds = tuple(n / 24 for n in range(24))
    witness = Witness()
    done = run(TurboEvolve(islands=4, allocation=allocation, bins=50), seeds=seeds, world=witness)
    given_to = [[seed["id"] for seed in note["seeds"]] for note in notes(done, "seeded")]
    counts = Counter(name for names in given_to for name in names)
    assert len(given_to) == 4 and all(given_to)
    if isinstance(allocation, Everywhere):
        assert set(counts.values()) == {4} and len(counts) == 24
    else:
        assert [len(names) for names in given_to] == [6, 6, 6, 6]
        assert (len(counts) == 24) == (not isinstance(allocation, KmeansElite))
    clustered = [e for e in witness.effects if isinstance(e.request, EditRequest)]
    assert len(clustered) == (type(allocation) in (Kmeans, KmeansElite))


@pytest.mark.parametrize("direction", ["max", "min"])
def test_scores_that_a_pool_states_are_taken_at_its_word_only_where_asked(direction) -> None:
    """With `Given`, seeds with a stated score enter by it and are not evaluated.

    The best of them is evaluated all the same.
    """
    sign = 1.0 if direction == "max" else -1.0
    plain = task(seeds=tuple(n / 10 for n in range(6)))
    ids = [candidate.id for candidate in plain.initial_candidates()]
    stated = {
        ids[n]: sign * (2.0 - n / 10) for n in range(1, 5)
    }  # reversed: the pool lies about which is better
    objective = msgspec.structs.replace(plain.objective, direction=direction)
    offered = msgspec.structs.replace(plain, stated=stated, objective=objective)

    def begun(strategy):
        witness = Witness()
        done = simulate(strategy, offered, witness, Budget(evaluations=40), trial=False)
        entered = {s["id"]: s["reward"] for note in notes(done, "seeded") for s in note["seeds"]}
        requests = [effect.request for effect in witness.effects]
        first = next(i for i, request in enumerate(requests) if isinstance(request, ProposeRequest))
        return entered, [r.candidate.id for r in requests[:first] if isinstance(r, EvaluateRequest)]

    entered, asked = begun(TurboEvolve(islands=2, allocation=Everywhere(), pool_scores=Given()))
    assert sorted(asked) == sorted(
        [ids[0], ids[1], ids[5]]
    )  # nothing stated of the first and the last; the best of it
    assert {id: entered[id] for id in ids[2:5]} == {
        ids[n]: pytest.approx(2.0 - n / 10) for n in range(2, 5)
    }
    assert entered[ids[1]] != pytest.approx(1.9)  # what was evaluated counts as it was evaluated
    entered, asked = begun(TurboEvolve(islands=2, allocation=Everywhere()))
    assert sorted(asked) == sorted(ids) and max(abs(reward) for reward in entered.values()) < 1.5


def test_given_scores_and_a_dimension_that_only_an_evaluation_reports() -> None:
    plain = task(seeds=(0.1, 0.2, 0.3))
    offered = msgspec.structs.replace(plain, stated={c.id: 1.0 for c in plain.initial_candidates()})
    strategy = TurboEvolve(
        features=("score", "complexity"), allocation=Everywhere(), pool_scores=Given()
    )
    done = simulate(strategy, offered, Landscape(), Budget(evaluations=20), trial=False)
    assert {s["features"][0] for note in notes(done, "seeded") for s in note["seeds"]} >= {1.0}
    strategy = TurboEvolve(features=("speed",), allocation=Everywhere(), pool_scores=Given())
    with pytest.raises(UserError, match="speed"):
        simulate(strategy, offered, Landscape(), Budget(evaluations=20), trial=False)


def test_seeds_that_fail_are_left_out_and_the_search_goes_on() -> None:
    world = Landscape(faults=Faults(error=0.5))
    done = run(TurboEvolve(islands=3), seeds=tuple(n / 9 for n in range(9)), world=world)
    kept = [seed for note in notes(done, "seeded") for seed in note["seeds"]]
    assert 0 < len({seed["id"] for seed in kept}) < 9
    assert done.search.reason == "evaluations"


@pytest.mark.parametrize("new_cells", [True, False])
def test_events_tell_the_whole_story(new_cells: bool) -> None:
    strategy = TurboEvolve(islands=3, interval=2, width=Adaptive(new_cells=new_cells))
    done = run(strategy, evaluations=300, world=Landscape(faults=Faults(error=0.2, repeat=0.2)))
    counted = ("new", "replaced") if new_cells else ("replaced",)
    events = notes(done, "event")
    rewards: dict[str, float] = {}
    for island in range(3):
        mine = [event for event in events if event["island"] == island]
        assert [event["turn"] for event in mine] == list(range(1, len(mine) + 1))
        updated = [any(c.get("outcome") in counted for c in event["candidates"]) for event in mine]
        assert [event["k"] for event in mine] == printed(Adaptive(), updated)[
            : len(mine)
        ]  # this island's alone
        assert any(event["migrated"] for event in mine)
        assert {c["status"] for event in mine for c in event["candidates"]} >= {"ok", "error"}
        for event in mine:
            assert [c["rank"] for c in event["candidates"]] == list(range(len(event["candidates"])))
            assert len(event["candidates"]) <= event["k"]
            for child in event["candidates"]:
                if child["status"] == "ok":  # complexity and diversity
                    size, apart = child["features"]
                    assert (
                        size == len(done.search.lab.find(child["id"]).text) and 0.0 <= apart <= 2.0
                    )
                assert ("cell" in child) == (child["status"] == "ok")
                rewards.update({child["id"]: child["reward"]} if child["status"] == "ok" else {})
            if event["parent"] is None:  # the seed failed, nothing is known yet
                continue
            assert event["parent"]["id"] not in {shown["id"] for shown in event["inspirations"]}
            assert (
                rewards.get(event["parent"]["id"], event["parent"]["reward"])
                == event["parent"]["reward"]
            )


def test_islands_do_not_wait_for_one_another() -> None:
    """One model call of one island takes for ever: the others go on."""

    class Stuck(Landscape):
        def perform(self, effect, rng):
            seconds, result = super().perform(effect, rng)
            stuck = effect.kind == "propose" and effect.request.brief.island == 0
            return (1e9 if stuck else seconds), result

    done = run(TurboEvolve(islands=3), world=Stuck())
    turns = Counter(event["island"] for event in notes(done, "event"))
    assert done.search.reason == "evaluations" and set(turns) == {1, 2}


def test_too_few_candidates_are_asked_for_again() -> None:
    class Meagre(Landscape):
        def propose(self, brief, rng):
            made = super().propose(brief, rng)
            return type(made)(made.candidates[:1], fault="too_few", usage=made.usage)

    for requery, calls in ((Requery(), 2), (Requery(minimum=1), 1), (Requery(3, 2), 3)):
        witness = Witness(Meagre())
        done = run(
            TurboEvolve(islands=1, width=Fixed(3), requery=requery), evaluations=30, world=witness
        )
        events = notes(done, "event")
        assert len(events[0]["candidates"]) == min(calls, max(1, requery.minimum))
        assert [brief.k for brief in witness.briefs[:calls]] == [3 - i for i in range(calls)]
        assert events[0]["faults"] == ["too_few"] * calls
    assert all(
        not note["faults"] for note in notes(run(TurboEvolve(islands=1), evaluations=30), "event")
    )


def test_of_too_many_candidates_the_first_are_taken_not_the_most_probable() -> None:
    class Generous(Landscape):
        def propose(self, brief, rng):
            made = super().propose(msgspec.structs.replace(brief, k=brief.k + 2), rng)
            likely = [Origin("rewrite", weight=0.1 * (n + 1)) for n in range(len(made.candidates))]
            pairs = zip(made.candidates, likely, strict=True)
            return msgspec.structs.replace(
                made,
                candidates=tuple(msgspec.structs.replace(c, origin=origin) for c, origin in pairs),
            )

    done = run(TurboEvolve(islands=1, width=Fixed(2)), evaluations=30, world=Generous())
    for event in notes(done, "event"):
        assert [child["weight"] for child in event["candidates"]] == pytest.approx([0.1, 0.2])


def test_the_baseline_never_asks_again() -> None:
    witness = Witness(Landscape(faults=Faults(empty=0.5)))
    done = run(OpenEvolve(islands=2), evaluations=30, world=witness)
    assert len(witness.briefs) - len(notes(done, "event")) <= 2  # those under way at the end


def test_the_baseline_asks_for_one_and_starts_everywhere_alike() -> None:
    witness = Witness()
    done = run(OpenEvolve(islands=3), seeds=(0.1, 0.5), world=witness)
    assert {brief.k for brief in witness.briefs} == {1} and {
        brief.format for brief in witness.briefs
    } == {"rewrite"}
    assert all(len(note["seeds"]) == 2 for note in notes(done, "seeded"))


@pytest.mark.parametrize(
    ("strategy", "workers", "wanted"),
    [
        (OpenEvolve(), 8, 8),
        (OpenEvolve(), 2, 5),
        (OpenEvolve(lanes=6), 2, 6),
        (OpenEvolve(islands=1), 4, 4),
        (TurboEvolve(), 8, 5),
        (TurboEvolve(lanes=7), 2, 7),
    ],
)
def test_there_are_as_many_requests_at_once_as_lanes(strategy, workers: int, wanted: int) -> None:
    """Eight workers and five islands: three of the workers used to have nothing to do."""
    search = Search(strategy, task(), Budget(evaluations=100), 1, workers)
    waiting, rng = deque(search.start()), Random(0)
    while not all(isinstance(effect.request, ProposeRequest) for effect in waiting):
        effect = next(each for each in waiting if not isinstance(each.request, ProposeRequest))
        waiting.remove(effect)
        result = Landscape().perform(effect, rng)[1]
        waiting += search.feed(Entry("done", effect.key, effect.mark, effect.kind, result=result))
    assert len(waiting) == wanted
    search.close()


def test_further_lanes_serve_every_island() -> None:
    done = run(OpenEvolve(islands=3, lanes=5), evaluations=120)
    turns = Counter(note["island"] for note in notes(done, "event"))
    assert set(turns) == {0, 1, 2} and min(turns.values()) >= 20
    for island in turns:
        numbers = sorted(n["turn"] for n in notes(done, "event") if n["island"] == island)
        assert len(set(numbers)) == len(numbers)


def test_the_best_move_on_every_interval_turns_of_an_island_and_at_no_other() -> None:
    events = notes(run(TurboEvolve(islands=2, interval=3, rate=0.5), evaluations=150), "event")
    moved = {event["turn"] % 3 == 0: 0 for event in events}
    for event in events:
        moved[event["turn"] % 3 == 0] += event["migrated"]
    assert moved[True] > 0 == moved[False]


def test_an_empty_island_improves_the_first_seed() -> None:
    witness = Witness()
    run(TurboEvolve(islands=3), world=witness, evaluations=30)
    assert len({brief.parent.id for brief in witness.briefs[:3] if brief.parent}) == 1
    assert all(brief.parent for brief in witness.briefs)
    run(TurboEvolve(islands=3), world=(bare := Witness()), seeds=(), evaluations=30)
    assert [brief.parent for brief in bare.briefs[:3]] == [None] * 3


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("bins", 1, None),
        ("exploration", 0.0, 1.0),
        ("exploitation", 0.0, 1.0),
        ("elites", 0.0, 1.0),
        ("top", 0, None),
        ("diverse", 0, None),
        ("interval", 1, None),
        ("rate", 0.0, 1.0),
    ],
)
def test_settings_have_bounds(name: str, least: float, most: float | None) -> None:
    for bound, beyond in ((least, least - 1), (most, None if most is None else most + 0.5)):
        if bound is not None and beyond is not None:
            assert getattr(TurboEvolve(**{name: bound}), name) == bound
            with pytest.raises(UserError, match=name):
                TurboEvolve(**{name: beyond})


def test_shares_and_intervals_of_the_documentation_are_the_defaults_of_each_backbone() -> None:
    named = {"bins": 10, "exploration": 0.2, "exploitation": 0.7, "top": 3, "diverse": 2}
    assert TurboEvolve() == TurboEvolve(**named, rate=0.1)
    assert (Grids.ELITES, Grids.INTERVAL) == (0.2, 10)
    assert (Openevolve.ELITES, Openevolve.INTERVAL) == (0.1, 50)
    assert Openevolve() == Openevolve(population=1000, archive=100)


def test_settings_as_texts() -> None:
    made = catalog.make_strategy(
        "turboevolve",
        {
            "width": "adaptive(start=3, window=2)",
            "allocation": "kmeans_elite(d=0.1, rho=0.3)",
            "requery": "requery(minimum=3)",
            "islands": "2",
        },
    )
    assert made == TurboEvolve(
        islands=2,
        width=Adaptive(start=3, window=2),
        allocation=KmeansElite(0.1, 0.3),
        requery=Requery(3),
    )
    assert (
        catalog.make_strategy("turboevolve", {"allocation": "random"}).allocation == RandomSplit()
    )
    assert catalog.make_strategy("turboevolve", {"width": "fixed"}).width == Fixed(k=1)


def test_real_clusters_are_found_in_a_worker_process() -> None:
    pytest.importorskip("sklearn")
    from culmen.models.offline.proposer import EditWorkers

    points = [
        [math.cos(a), math.sin(a)]
        for centre in (0.0, 2.0, 4.0)
        for a in (centre, centre + 0.1, centre + 0.2)
    ]

    async def go():
        toolbox = EditWorkers(seconds=90.0)
        try:
            return [
                await toolbox.perform(EditRequest("kmeans", (), {"vectors": v, "k": 3}, 5))
                for v in (points, [[1.0]] * 4)
            ]
        finally:
            await toolbox.close()

    found, same = asyncio.run(go())
    labels = found.data["labels"]
    assert [len(set(labels[i : i + 3])) for i in (0, 3, 6)] == [1, 1, 1] and len(set(labels)) == 3
    assert same.data["labels"] == [0] * 4


def test_truth_is_climbed() -> None:
    done = run(TurboEvolve(islands=2), evaluations=400)
    assert done.verdict is not None and done.verdict.score > 0.5


def test_a_missing_package_is_named() -> None:
    class Bare(Landscape):
        def cluster(self, request):
            return Edits(fault="no_sklearn")

    with pytest.raises(UserError, match="scikit-learn"):
        run(TurboEvolve(islands=2), seeds=(0.1, 0.2, 0.3), world=Bare())


def test_a_run_with_a_model_that_loses_the_format(tmp_path) -> None:
    """Through the real study: JSON with probabilities at first, then fenced blocks.

    It is replayed from its journal.
    """
    import culmen
    from culmen.store.journal import SqlJournal
    from culmen.testing.scripted import ScriptedModel

    made = itertools.count(1)

    def reply(call) -> str:
        prompt = call.prompt
        many = [f"x = {next(made)}\n" for _ in range(3)]
        if next(asked) <= 2 and '"responses"' in prompt:
            told = [{"code": text, "probability": 0.5 / n} for n, text in enumerate(many, 1)]
            return json.dumps({"responses": told})
        return "\n".join(f"=== CANDIDATE {n} ===\n```\n{text}```" for n, text in enumerate(many, 1))

    asked = itertools.count(1)
    study = culmen.optimize(
        "x = 0\n",
        lambda text: float(text.split("=")[1]),
        strategy=TurboEvolve(islands=1, width=Fixed(3)),
        model=ScriptedModel(reply),
        budget=Budget(evaluations=40),
        deterministic=True,
        run_dir=tmp_path / "run",
    )
    assert study.best is not None and study.best.score > 20
    events = [e.entry.body for e in views.note_events(study.path, "event")]
    given_up = views.note_events(study.path, "format_given_up")
    assert [c["weight"] for c in events[0]["candidates"]] == [0.5, 0.25, 0.5 / 3]
    assert [c["weight"] for c in events[-1]["candidates"]] == [None] * 3 and len(given_up) == 1
    prompts = [
        e.entry.result.prompt
        for e in SqlJournal.open(study.path).read(whole=True)
        if e.entry.effect == "propose" and e.entry.result
    ]
    assert sum("=== CANDIDATE 1 ===" in prompt for prompt in prompts) == len(prompts) - 5


def measured(names: tuple[str, ...], *scores: float, **metrics: float) -> list[dict[str, float]]:
    rollouts = [
        Rollout(
            found := Candidate.of({"a": str(n)}),
            (Observation(found.id, Status.OK, n, metrics=metrics),),
            (n,),
        )
        for n in scores
    ]
    return asyncio.run(Features(names).measure(None, rollouts))


def test_a_dimension_of_scores_spreads_the_grid_and_one_that_nobody_reports_is_refused() -> None:
    assert measured(("score", "complexity"), 0.25, 3.0) == [
        {"score": 0.25, "complexity": 4.0},
        {"score": 3.0, "complexity": 3.0},
    ]
    assert measured(("score",), 2.0, score=7.0) == [
        {"score": 7.0}
    ]  # a metric of the evaluator's own comes first
    with pytest.raises(UserError, match="'speed'") as raised:
        measured(("speed",), 1.0, size=2.0)
    assert "size" in raised.value.fix


def seen(name: str, score: float | None, **metrics: float) -> Rollout:
    found = Candidate.of({"a": name})
    status = Status.ERROR if score is None else Status.OK
    return Rollout(found, (Observation(found.id, status, score, metrics=metrics),), (score,))


def test_a_dimension_must_be_reported_by_the_first_that_are_measured_and_by_no_others() -> None:
    features = Features(("speed",))
    assert asyncio.run(features.measure(None, [])) == []
    with pytest.raises(UserError, match="'speed'"):
        asyncio.run(features.measure(None, [seen("1", 1.0)]))
    assert asyncio.run(features.measure(None, [seen("2", 1.0), seen("3", 1.0, speed=4.0)])) == [
        {"speed": 0.0},
        {"speed": 4.0},
    ]
    assert asyncio.run(features.measure(None, [seen("4", 1.0)])) == [{"speed": 0.0}]


def test_what_was_not_scored_lies_at_zero_along_scores() -> None:
    assert dimension_value("score", seen("1", None)) == 0.0


def test_what_was_met_once_is_known() -> None:
    known, (a, b, c) = Known(), (Candidate.of({"a": name}) for name in "abc")
    assert known.take_unknown([a, b, b]) == [a, b]
    assert known.take_unknown([b, c, a]) == [c] and known.take_unknown([c]) == []
