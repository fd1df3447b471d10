"""PACEvolve as a whole: the shared and the separate things of its islands.

Also when they intervene, and the mistakes of the first code.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.event import EvaluateRequest, ProposeRequest, WriteRequest
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.strategies.pacevolve.advisor import Advising, Upkeep, from_menu
from culmen.strategies.pacevolve.implementing import Implementing
from culmen.strategies.pacevolve.island import Island, Momentum, Population, version_weights
from culmen.strategies.pacevolve.memory import IdeaRepository
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Faults, Landscape, task, written_reward
from culmen.testing.virtual import Simulation, simulate


def paper(**settings: Any) -> Pacevolve:
    """As the paper has it: a request to the advisor for every step."""
    return Pacevolve(**{"advising": Advising(), "upkeep": Upkeep(tries=3), **settings})


def notes(run: Simulation, kind: str) -> list[dict[str, Any]]:
    entries = (event.entry for event in run.journal.read())
    return [e.body for e in entries if e.kind == "note" and e.body["note"] == kind]


def rollout(n: float) -> Rollout:
    return Rollout(Candidate.of({"p": str(n)}), (), (n,))


def island() -> Island:
    return Island(Population(100), Momentum(0.85, 0.001, 15))


class Heard(Landscape):
    """A landscape that keeps the requests to the advisor.

    The function that it is given answers a step, or leaves it to the menu with None.
    """

    def __init__(self, says: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        object.__setattr__(self, "asked", [])
        object.__setattr__(self, "says", says or (lambda step, slots: None))

    def write(self, request: WriteRequest) -> Text:
        step = request.role.rpartition(".")[2]
        self.asked.append((step, request.slots))  # pyright: ignore[reportAttributeAccessIssue]
        said = self.says(step, request.slots)  # pyright: ignore[reportAttributeAccessIssue]
        reply = super().write(request)
        return reply if said is None else msgspec.structs.replace(reply, text=json.dumps(said))

    def slots(self, step: str) -> list[dict[str, Any]]:
        return [slots for name, slots in self.asked if name == step]  # pyright: ignore[reportAttributeAccessIssue]


class Dealt(Landscape):
    """Draws in the order of the requests, whatever their words; `sign` turns scores round."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        object.__setattr__(self, "sign", sign)
        object.__setattr__(self, "draws", Random(5))

    def observe(self, candidate: Candidate, seed: int, rng: Random) -> Observation:
        seen = super().observe(candidate, seed, rng)
        return msgspec.structs.replace(seen, score=self.sign * written_reward(candidate))  # pyright: ignore[reportAttributeAccessIssue]

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        return super().propose(brief, self.draws)  # pyright: ignore[reportAttributeAccessIssue]

    def write(self, request: WriteRequest) -> Text:
        text = from_menu(request.role.rpartition(".")[2], request.slots, self.draws)  # pyright: ignore[reportAttributeAccessIssue]
        return Text(text)


def told(run: Simulation) -> list[Any]:
    kept = ("island", "turn", "parent", "candidate", "better", "momentum", "branch")
    found = [tuple(note[name] for name in kept) for note in notes(run, "experiment")]
    return found + [note["version"] for note in notes(run, "backtrack")]


def test_a_minimised_task_is_searched_as_its_mirror_image_is():
    """Tournaments, momentum, best versions and interventions all look at rewards.

    Nothing knows a direction.
    """
    rules, budget = paper(islands=3, freeze=2, threshold=0.01), Budget(evaluations=150)
    up = simulate(rules, task(), Dealt(1.0), budget, order="request")
    mirrored = msgspec.structs.replace(task(), objective=Objective(direction="min"))
    down = simulate(rules, mirrored, Dealt(-1.0), budget, order="request")
    assert told(up) == told(down) and notes(up, "backtrack") and notes(up, "crossover")


def test_what_an_island_takes_over_stays_its_own():
    one, other = island(), island()
    one.ideas = one.ideas.with_idea("wider").with_result(1, "score 1")
    one.add_rollout(rollout(1.0), 9.0)
    one.keep_version()
    other.ideas = other.ideas.with_idea("own")
    other.take_over(one.best_version().ideas, one.population.best)
    other.ideas = other.ideas.with_result(2, "score 7").with_description(2, "changed")
    assert [idea.description for idea in other.ideas.ideas] == ["own", "changed"]
    assert (
        one.ideas.find_idea(1)
        == one.versions[0].find_idea(1)
        == IdeaRepository().with_idea("wider").with_result(1, "score 1").find_idea(1)
    )
    assert (
        one.next_parent(4, 2, Random(0)).reward == other.next_parent(4, 2, Random(0)).reward == 1.0
    )  # its best, once
    assert other.next_parent(4, 2, Random(0)) is None


def test_the_best_version_is_the_latest_with_the_best_program_whatever_came_between():
    one = island()
    for n, reward in enumerate((0.0, 3.0, 1.0)):
        one.ideas = one.ideas.with_idea(f"idea {n}")
        one.add_rollout(rollout(reward), 9.0)
        one.keep_version()
    one.take_over(IdeaRepository().with_idea("foreign").ideas, rollout(2.0))
    one.keep_version()
    assert [version.best.reward for version in one.versions] == [0.0, 3.0, 3.0, 3.0]
    best = one.best_version()
    assert best.best.reward == 3.0 and len(best.ideas) == 4


def test_ideas_of_experiments_that_failed_are_kept():
    world = Heard(faults=Faults(error=1.0))
    run = simulate(
        paper(islands=1, upkeep=Upkeep(cap=50, tries=3)),
        task(),
        world,
        Budget(evaluations=12),
        trial=False,
    )
    assert all(note["outcome"].startswith("failed") for note in notes(run, "experiment"))
    tried = [idea for idea in world.slots("generate")[-1]["ideas"] if idea["tried"]]
    assert tried and all(
        result.startswith("failed") for idea in tried for result in idea["results"]
    )


def one_idea(step: str, slots: dict[str, Any]) -> Any:
    """Always a new experiment under one and the same idea."""
    serial = Random(json.dumps(slots, sort_keys=True, default=str)).random()
    return {
        "generate": {"hypotheses": [f"try {serial}"]},
        "classify": {"exists": bool(slots.get("ideas")), "idea": 1, "description": "the idea"},
        "select": {"idea": 1, "experiment": f"do {serial}"},
        "result": {"lesson": "a lesson"},
        "condense": {"description": "shorter", "result": "all in all"},
    }.get(step)


def test_a_history_is_condensed_once_each_time_it_is_due():
    world = Heard(one_idea)
    run = simulate(
        paper(islands=1, upkeep=Upkeep(condense=5, tries=3)), task(), world, Budget(evaluations=24)
    )
    tries = [note["ideas"][0]["tries"] for note in notes(run, "experiment")]
    assert len(world.slots("condense")) == sum(n % 5 == 0 for n in tries) > 2
    histories = [
        slots["ideas"][0]["results"] for slots in world.slots("generate") if slots["ideas"]
    ]
    assert max(map(len, histories)) == 5 and "all in all" in histories[-1]
    assert all("a lesson" in line or line == "all in all" for line in histories[-1])


def test_what_is_due_is_asked_again_until_it_can_be_read_then_done_by_rule():
    world = Heard(lambda step, slots: {"nothing": 1} if step in ("prune", "classify") else None)
    run = simulate(
        paper(islands=1, upkeep=Upkeep(cap=2, tries=3)), task(), world, Budget(evaluations=12)
    )
    assert all(len(note["ideas"]) <= 2 for note in notes(run, "experiment"))
    for step in ("prune", "classify"):
        reminders = [bool(slots["reminder"]) for slots in world.slots(step)]
        assert reminders[:6] == [False, True, True] * 2
    assert len(notes(run, "experiment")[0]["dropped"]) == 1


def test_code_that_failed_is_not_evaluated_again():
    class Same(Landscape):
        def propose(self, brief: Brief, rng: Random) -> Proposal:
            return Proposal((Candidate.of({"program": "mu=0.5\nserial=1\n"}),))

    run = simulate(
        paper(islands=2),
        task(),
        Same(faults=Faults(error=1.0)),
        Budget(evaluations=40, calls=200),
        trial=False,
    )
    done = [e.entry.result for e in run.journal.read() if e.entry.kind == "done"]
    assert (
        Counter(r.candidate for r in done if isinstance(r, Observation)).most_common(1)[0][1] <= 2
    )  # of two islands
    assert notes(run, "experiment")[-1]["failures"]["no_candidate"] > 2


def test_an_advisor_that_insists_on_what_failed_has_failed_by_repeating():
    says = {"generate": {"hypotheses": ["one"]}, "select": {"idea": 1, "experiment": "the same"}}
    world = Heard(lambda step, slots: says.get(step), faults=Faults(error=1.0))
    run = simulate(paper(islands=1), task(), world, Budget(evaluations=20, calls=200), trial=False)
    outcomes = [note["outcome"] for note in notes(run, "experiment")]
    assert outcomes[0] == "failed (error)" and set(outcomes[1:]) == {"failed (repeat)"}
    assert [slots["refused"] for slots in world.slots("select")][:7] == [
        "",
        *["", "the same", "the same"] * 2,
    ]


def test_the_failure_memory_outlives_pruning_and_going_back():
    """One experiment fails early.

    Much later, after many versions and pruned ideas, it is still refused.
    """
    fixed = [0]

    def says(step: str, slots: dict[str, Any]) -> Any:
        if step != "select":
            return None
        fixed[0] += 1
        return {
            "idea": slots["options"][0]["idea"],
            "experiment": "again" if fixed[0] % 10 == 1 else f"step {fixed[0]}",
        }

    class First(Heard):
        def observe(self, candidate: Candidate, seed: int, rng: Random) -> Observation:
            seen = super().observe(candidate, seed, rng)
            bad = len(self.slots("select")) == 1
            return (
                seen
                if not bad
                else Observation(candidate.id, Status.ERROR, seed=seed, reason="first")
            )

    rules = paper(islands=1, freeze=1, backtrack_every=4, upkeep=Upkeep(cap=2, tries=3))
    run = simulate(rules, task(), First(says, delta0=0.0), Budget(evaluations=60))
    made = [note for note in notes(run, "experiment") if note["experiment"] == "again"]
    assert len(made) == 1 and made[0]["outcome"] == "failed (error)"
    assert notes(run, "backtrack") and notes(run, "experiment")[-1]["failures"]["pruned"] > 0
    assert notes(run, "experiment")[-1]["failures"]["repeat"] > 1


def plateau(target: float, seed: int, experiments: int = 360) -> Simulation:
    """Three islands that soon stand at 0.5 and cannot go on."""
    rules = paper(islands=3, freeze=1, backtrack_length=1, target=target)
    return simulate(
        rules, task(), Landscape(delta0=0.5, bound=0.5), Budget(evaluations=experiments), seed=seed
    )


@pytest.mark.slow
@pytest.mark.parametrize(("target", "back"), [(5.0, 0.99), (1.0, 0.5), (0.55, 0.01)])
def test_a_forced_stall_fires_with_the_published_probabilities(target: float, back: float):
    """A = 0.1, 0.5, 0.9 on all islands once they stand still.

    Going back has probability .99, .5 and .01 (CE).
    """
    run = plateau(target, seed=1)
    returned, crossed = notes(run, "backtrack"), notes(run, "crossover")
    level = 0.5 / target
    still = [n for n in returned + crossed if all(abs(a - level) < 1e-6 for a in n["progress"])]
    assert len(still) > 60
    chances = [n["weights"][n["island"]] / sum(n["weights"]) for n in still]
    assert all(chance == pytest.approx(back, abs=0.01) for chance in chances)
    seen, expected = sum("version" in n for n in still), sum(chances)
    spread = sum(chance * (1 - chance) for chance in chances) ** 0.5
    assert abs(seen - expected) <= 3 * spread + 1


def test_versions_are_gone_back_to_by_the_published_weights():
    """P(j) over (j + 1)^-1.5, the oldest first.

    How often the oldest was chosen, and the mean place by rank.
    """
    found = [note for seed in (1, 2, 3) for note in notes(plateau(5.0, seed, 240), "backtrack")]
    expected = seen = variance = 0.0
    for note in found:
        weights = version_weights(note["of"])
        chance = weights[0] / sum(weights)
        expected, variance = expected + chance, variance + chance * (1 - chance)
        seen += note["version"] == 0
    assert len(found) > 150 and abs(seen - expected) <= 3 * variance**0.5
    places = [
        sum(version_weights(n["of"])[: n["version"] + 1]) / sum(version_weights(n["of"]))
        for n in found
    ]
    assert max(n["version"] for n in found) > 10 and 0.5 < sum(places) / len(places) < 0.9


def test_an_island_may_go_back_on_a_schedule():
    run = simulate(paper(islands=2, backtrack_every=6), task(), Landscape(), Budget(evaluations=60))
    turns = [
        (note["island"], note["turn"]) for note in notes(run, "experiment") if note["turn"] % 6 == 0
    ]
    assert len(turns) - len(notes(run, "backtrack")) <= 2  # two at most were on a branch already
    assert not notes(
        simulate(paper(islands=2), task(), Landscape(), Budget(evaluations=20)), "backtrack"
    )


def test_islands_run_side_by_side_with_one_experiment_in_flight_on_each():
    asked: dict[int, int | None] = {}

    class Watched(Landscape):
        def perform(self, effect: Any, rng: Random) -> Any:
            if isinstance(effect.request, ProposeRequest):
                asked[effect.key] = effect.request.brief.island
            return super().perform(effect, rng)

    run = simulate(paper(islands=3), task(), Watched(), Budget(evaluations=60), workers=3)
    flying, most = Counter[int | None](), 0
    for entry in (event.entry for event in run.journal.read()):
        if entry.effect == "propose" and entry.kind == "started":
            flying[asked[entry.key]] += 1
        elif entry.effect == "propose" and entry.kind == "done":
            flying[asked[entry.key]] -= 1
        assert max(flying.values(), default=0) <= 1
        most = max(most, flying.total())
    assert most > 1


def test_without_a_seed_progress_begins_at_the_first_program_that_scores():
    rules = paper(islands=2, freeze=1, target=0.5)
    run = simulate(
        rules, task(seeds=()), Landscape(delta0=0.5, bound=0.45), Budget(evaluations=120)
    )
    assert notes(run, "crossover")[-1]["progress"] == pytest.approx([0.9, 0.9], abs=0.01)


def test_every_bound_is_a_setting():
    rules = paper(
        islands=1,
        remembered=3,
        advising=Advising(hypotheses=2, tries=1, failures=1, program_chars=200),
        implementing=Implementing(attempts=1, repairs=0),
        upkeep=Upkeep(cap=50, sentences=1, feedback_chars=5),
    )
    world = Heard(lambda step, slots: {"lesson": "One. Two. Three."} if step == "result" else None)
    run = simulate(rules, task(), world, Budget(evaluations=20))
    asked = world.slots("generate")[-1]
    assert asked["count"] == 2 and len(asked["failures"]) <= 1 and len(asked["program"]) <= 200
    results = [line for idea in asked["ideas"] for line in idea["results"]]
    assert results and all("Two" not in line for line in results)
    assert all(len(slots["feedback"]) <= 5 for slots in world.slots("result"))
    assert sum(notes(run, "experiment")[-1]["failures"].values()) <= 3


def test_repairs_are_bounded_and_given_what_failed():
    briefs: list[Brief] = []

    class Watched(Landscape):
        def propose(self, brief: Brief, rng: Random) -> Proposal:
            briefs.append(brief)
            return super().propose(brief, rng)

        def perform(self, effect: Any, rng: Random) -> Any:
            failing = isinstance(effect.request, EvaluateRequest) and bool(
                effect.request.candidate.parents
            )
            seconds, result = super().perform(effect, rng)
            name = effect.request.candidate.id if failing else ""
            return seconds, Observation(
                name, Status.ERROR, feedback="line 3: no"
            ) if failing else result

    rules = paper(islands=1, implementing=Implementing(repairs=2))
    run = simulate(rules, task(), Watched(), Budget(evaluations=13))
    made = [note for note in notes(run, "experiment") if note["candidate"]]
    assert (
        len(made) >= 3 and 3 * len(made) <= len(briefs) <= 3 * len(made) + 3
    )  # an attempt and two repairs each
    assert briefs[1].observations[0].feedback == "line 3: no" and briefs[1].role == "implementer"
    assert briefs[0].parent != briefs[1].parent and "Repair" in briefs[1].hypothesis


def test_a_plan_is_carried_out_on_its_parent_before_the_advisor_is_asked_again():
    world = Heard(lambda step, slots: PLAN if step == "plan" else None, delta0=0.0)
    run = simulate(Pacevolve(islands=1), task(), world, Budget(evaluations=16))
    made = notes(run, "experiment")
    assert [note["experiment"] for note in made[:3]] == ["one", "two", "three"]
    assert len({note["parent"] for note in made[:3]}) == 1
    assert [note["idea"] for note in made[:3]] == [1, 2, 1]  # equal descriptions are one idea
    assert len(world.slots("plan")) == -(-len(made) // 3)
    assert {step for step, _ in world.asked} == {"plan"}  # results and upkeep by rule


PLAN = {
    "experiments": [
        {"idea": None, "description": "wider", "experiment": "one"},
        {"idea": None, "description": "finer", "experiment": "two"},
        {"idea": None, "description": "wider", "experiment": "three"},
        {"idea": 1},
        "no object",
    ]
}


def test_a_plan_gives_up_ideas_but_none_that_it_goes_on_with():
    reply = {"experiments": [{"idea": 1, "experiment": "x"}], "drop": [1, 2, "9"]}
    world = Heard(lambda step, slots: reply if step == "plan" and slots["ideas"] else None)
    run = simulate(Pacevolve(islands=1), task(), world, Budget(evaluations=30))
    asked = world.slots("plan")
    assert [idea["number"] for idea in asked[1]["ideas"]][:1] == [1]
    assert 2 not in [idea["number"] for idea in asked[2]["ideas"]] and notes(run, "experiment")


def test_what_failed_word_by_word_is_not_carried_out_from_a_plan_again():
    world = Heard(lambda step, slots: PLAN if step == "plan" else None, faults=Faults(error=1.0))
    run = simulate(
        Pacevolve(islands=1), task(), world, Budget(evaluations=60, calls=60), trial=False
    )
    made = [note["experiment"] for note in notes(run, "experiment") if note["experiment"]]
    assert made == ["one", "two", "three"]
    assert notes(run, "experiment")[-1]["outcome"] == "failed (repeat)"
