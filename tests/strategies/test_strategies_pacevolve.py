"""PACEvolve by the published numbers, and whole searches.

Ideas, failures, momentum and interventions.
"""

from __future__ import annotations

import json
import re
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.event import EditRequest, WriteRequest
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.extensions.train.arms import FrontierAdvisor
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.extensions.train.policy import Tinker, score_bounds
from culmen.extensions.train.starts import Puct
from culmen.models.offline.proposer import OPERATORS
from culmen.models.offline.tools import run_tool
from culmen.strategies import catalog
from culmen.strategies.pacevolve.advisor import (
    MENU,
    _file_experiments,
    read_hypotheses,
    read_object,
)
from culmen.strategies.pacevolve.island import (
    Momentum,
    Population,
    absolute_progress,
    intervention_weights,
    version_weights,
)
from culmen.strategies.pacevolve.memory import (
    Failure,
    FailureMemory,
    Idea,
    IdeaRepository,
    Ranked,
    first_sentences,
)
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .test_strategies_pacevolve_scaffold import island, paper

BUDGET = Budget(evaluations=40)
BUSY = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine draws slowly


def program(n: float) -> Candidate:
    return Candidate.of({"p": str(n)})


def rollout(n: float) -> Rollout:
    return Rollout(program(n), (), (n,))


@pytest.mark.parametrize(
    ("gain", "stall"),
    [(0.5, 27), (0.2, 21), (0.1, 17), (0.05, 13), (0.02, 7), (0.01, 3), (0.006, 0)],
)
def test_stall_lengths_after_a_gain_are_the_published_ones(gain, stall):
    momentum = Momentum(beta=0.85, threshold=0.001, freeze=0)
    momentum.record_reward(0.0, 1.0)
    momentum.record_reward(gain, 1.0)
    flat = 0
    while not momentum.is_stalled:
        momentum.record_reward(0.0, 1.0)
        flat += 1
    assert flat == stall


def test_no_intervention_before_the_second_candidate_nor_during_the_freeze():
    momentum = Momentum(beta=0.85, threshold=0.001, freeze=3)
    verdicts = []
    for _ in range(6):
        momentum.record_reward(0.0, 1.0)
        verdicts.append(momentum.is_stalled)
    assert verdicts == [False, False, False, True, True, True]
    momentum.begin_freeze()
    assert not momentum.is_stalled


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ([0.1, 0.1, 0.1], {0: 0.99}),
        ([0.5, 0.5, 0.5], {0: 0.5}),
        ([0.9, 0.9, 0.9], {0: 0.01}),
        ([0.9, 0.2, 0.1], {0: 0.93}),
        ([0.1, 0.8, 0.2], {1: 0.83}),
        ([0.3], {0: 1.0}),
        ([0.0, 1.0], {1: 1.0}),
    ],
)
def test_interventions_have_the_published_probabilities(progress, expected):
    weights = intervention_weights(progress, 0)
    for index, share in expected.items():
        assert weights[index] / sum(weights) == pytest.approx(share, abs=0.006)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 7))
@BUSY
def test_there_is_always_something_to_do(progress, i):
    weights = intervention_weights(progress, i % len(progress))
    assert all(w >= 0 for w in weights) and sum(weights) > 0


def test_old_versions_are_preferred_as_published():
    weights = version_weights(20)
    assert weights[0] / sum(weights) == pytest.approx(0.46, abs=0.01)
    assert weights[-1] / sum(weights) == pytest.approx(0.005, abs=0.001)


def test_progress_follows_the_reward_whatever_the_direction():
    assert absolute_progress(-2.0, -4.0, 0.0) == 0.5
    assert absolute_progress(-9.0, -4.0, 0.0) == 0.0 and absolute_progress(1.0, -4.0, 0.0) == 1.0
    assert absolute_progress(3.0, 3.0, 3.0) == 1.0 and absolute_progress(2.0, 3.0, 3.0) == 0.0


def test_ideas_keep_their_numbers_and_never_share_them():
    ideas = (
        IdeaRepository()
        .with_idea("one")
        .with_idea("two")
        .with_idea("three")
        .with_result(2, "score 1")
    )
    smaller = ideas.without_ideas([1]).with_idea("four")
    assert [i.number for i in smaller.ideas] == [2, 3, 4]
    joined = smaller.with_foreign_ideas(IdeaRepository().with_idea("Two!").with_idea("five").ideas)
    assert [(i.number, i.description) for i in joined.ideas][-1] == (5, "five") and len(
        joined.ideas
    ) == 4
    assert (
        smaller.find_idea(2) == Idea(2, "two", ("score 1",), 1) and ideas.find_idea(1) is not None
    )


@given(st.text(max_size=5000))
@BUSY
def test_what_a_model_writes_is_bounded(text):
    short = first_sentences(text, 2)
    assert len(short) <= 600 and "\n" not in short


def test_failures_block_repeats_and_outlive_everything():
    memory = FailureMemory(size=3)
    for n in range(10):
        memory.add(Failure("idea", f"Try step {n}!", "error"), f"digest{n}")
    assert (
        len(memory) == 3
        and memory.blocks_experiment("try STEP 0")
        and memory.knows_code("digest0")
        and not memory.blocks_experiment("step")
    )
    assert (
        memory.counts_by_kind() == {"error": 3}
        and memory.latest_failures(1)[0].experiment == "Try step 9!"
    )
    assert not memory.blocks_experiment("") and not memory.knows_code("")


def test_population_is_ranked_trimmed_and_without_repeats():
    population = Population(size=3)
    assert [population.add(rollout(n)) for n in (1, 3, 2, 3, 0, 5)] == [
        True,
        True,
        True,
        False,
        False,
        True,
    ]
    assert [population.tournament_winner(top, top, Random(0)).reward for top in (1, 2)] == [5, 5]
    drawn = {population.tournament_winner(2, 1, Random(n)).reward for n in range(30)}
    assert drawn == {5, 3} and population.tournament_winner(4, 4, Random(0)).reward == 5
    assert Population(1).tournament_winner(4, 2, Random(0)) is None


def test_a_branch_starts_from_the_old_best_and_ends_with_all_that_was_known():
    one = island()
    for n, idea in enumerate(("first", "second", "third")):
        one.ideas = one.ideas.with_idea(idea)
        one.add_rollout(rollout(float(n)), 10.0)
        one.keep_version()

    class Oldest:
        def weights(self, count):
            return [1.0] + [0.0] * (count - 1)

    assert one.backtrack(Oldest(), 2, Random(0)) == 0
    assert one.next_parent(4, 2, Random(0)).reward == 0.0
    assert [i.description for i in one.ideas.ideas] == ["first"]
    one.ideas = one.ideas.with_idea("on the branch")
    one.add_rollout(rollout(0.5), 10.0)
    assert one.next_parent(4, 2, Random(0)).reward == 0.5  # the branch goes on from its own best
    one.count_turn()
    assert one.branch is not None
    one.count_turn()
    assert one.branch is None
    assert [(i.number, i.description) for i in one.ideas.ideas] == [
        (1, "first"),
        (2, "second"),
        (3, "third"),
        (4, "on the branch"),
    ]
    assert one.ideas.best == Ranked(program(2.0), 2.0)


class Tools:
    """The part of a lab that a reply's reading needs: the tools, here in this process."""

    async def edit(self, tool, candidates, **options):
        return run_tool(EditRequest(tool, tuple(candidates), options, 0))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '{"hypotheses": [{"hypothesis": "a", "reasoning": "r"}, {"hypothesis": "a"}, {"hypothesis": "b"}]}',
            ["a", "b"],
        ),
        ('Sure!\n```json\n{"hypotheses": ["x", {"hypothesis": "y"},]}\n```', ["x", "y"]),
        (
            "Hypothesis: use a grid\nReasoning: r\n**Hypothesis 2:** anneal",
            ["use a grid", "anneal"],
        ),
        ("I cannot help with that.", []),
        ('{"hypotheses": "none"}', []),
        ("", []),
    ],
)
def test_hypotheses_are_read_from_what_models_write(text, found):
    assert read_hypotheses(text) == found


def test_objects_are_read_or_empty():
    assert read_object('x {"idea": 3, "experiment": "do",}') == {"idea": 3, "experiment": "do"}
    assert read_object('{"a": 1}, so {"idea": 3}') == {"idea": 3}
    assert read_object('x {"idea": 3, "experiment": "do') == {}  # it broke off
    assert read_object("[1, 2]") == {} and read_object("{") == {}


def test_the_menu_is_what_the_offline_proposer_knows():
    assert set(MENU) == set(OPERATORS)


class Stubborn(Landscape):
    """An advisor that always wants the same experiment.

    Its implementer never gets better.
    """

    def write(self, request: WriteRequest):
        text = {
            "advisor.generate": {"hypotheses": [{"hypothesis": "one"}]},
            "advisor.classify": {"exists": False, "description": "one"},
            "advisor.select": {"idea": 1, "experiment": "the same again"},
        }.get(request.role, {})
        reply = super().write(request)
        return type(reply)(json.dumps(text), usage=reply.usage)


def notes(run, kind):
    entries = (event.entry for event in run.journal.read())
    return [e.body for e in entries if e.kind == "note" and e.body["note"] == kind]


def test_a_forced_stall_makes_islands_go_back_and_cross_over():
    run = simulate(
        paper(islands=3, freeze=2),
        task(),
        Landscape(delta0=0.0),
        Budget(evaluations=400),
        workers=3,
    )
    assert notes(run, "backtrack")
    run = simulate(
        paper(islands=3, freeze=2, target=0.3),
        task(),
        Landscape(delta0=0.4),
        Budget(evaluations=400),
    )
    assert notes(run, "crossover") and all(len(n["ideas"]) <= 5 for n in notes(run, "experiment"))


def test_an_exact_repeat_of_a_failure_is_refused():
    from culmen.testing.landscape import Faults

    world = Stubborn(faults=Faults(error=1.0))
    run = simulate(paper(islands=1), task(), world, Budget(evaluations=60, calls=300), trial=False)
    failures = notes(run, "experiment")[-1]["failures"]
    assert failures["repeat"] > 0
    assert (
        sum(n["experiment"] != "" for n in notes(run, "experiment")) == 1
    )  # made once, then blocked


def test_an_advisor_that_says_nothing_readable_ends_the_run_by_itself():
    from culmen.testing.landscape import Faults

    run = simulate(
        paper(islands=2), task(), Landscape(faults=Faults(silent=1.0)), Budget(evaluations=60)
    )
    assert run.search.reason == "nothing_new"


def plus(**settings):
    return PacevolvePlusPlus(
        **{"scaffold": Pacevolve(islands=4), "worst": 0.0, "best": 1.0, **settings}
    )


@pytest.mark.parametrize("share, ended", [(1.0, True), (0.5, False)])
def test_a_trained_advisor_whose_replies_cannot_be_read_ends_the_search(share, ended):
    """Nothing is learnt from barriers whose rewards are all alike.

    Without an end it would go on for ever.
    """
    from culmen.testing.landscape import Faults

    run = simulate(
        plus(), task(), Landscape(faults=Faults(silent=share)), Budget(evaluations=60, calls=2000)
    )
    told = notes(run, "advisor_unreadable")
    assert bool(told) == ended and len(notes(run, "barrier")) >= 20 * ended
    if ended:
        assert (
            len(notes(run, "barrier")) == 20
            and run.search.is_done
            and "A larger model" in told[0]["told"]
        )
    else:
        assert any(not each["failures"] for each in notes(run, "barrier"))


def kinds(run):
    """Effects in the order they were asked for, by kind."""
    started = [e.entry for e in run.journal.read() if e.entry.kind == "started"]
    return [entry.effect for entry in sorted(started, key=lambda entry: entry.key)]


def test_a_barrier_goes_on_in_the_order_of_the_paper():
    run = simulate(plus(), task(), Landscape(), Budget(evaluations=60), workers=4)
    barriers = notes(run, "barrier")
    assert len(barriers) > 5
    for n, told in enumerate(barriers):
        assert told["version"] == sum(
            not b["skip"] for b in barriers[: n + 1]
        )  # a step each, none where skipped
        assert len(told["rewards"]) == 4 and (not told["advantages"]) == bool(told["skip"])
        assert all(r == -1.0 or 0.0 <= r <= 5.0 for r in told["rewards"])
        assert told["clamped"] == [told["rewards"].count(0.0), told["rewards"].count(5.0)]
    alphas = [b["alpha"] for b in barriers]
    assert (
        alphas == sorted(alphas) and alphas[0] < 0.2 and alphas[-1] > 0.85
    )  # the share of the budget that is spent
    planned = notes(
        simulate(plus(barriers=9), task(), Landscape(), Budget(evaluations=60), workers=4),
        "barrier",
    )
    assert [b["alpha"] for b in planned] == pytest.approx(
        [min(1.0, n / 8) for n in range(len(planned))]
    )
    order = kinds(run)
    for place, kind in enumerate(order):
        if kind == "train.update":  # everything of a barrier is over before its update
            assert order[place - 1] != "train.sample"


def test_the_search_has_learnt_from_a_barrier_before_the_policy_is_updated_by_it():
    """Population, ideas and failures first.

    An update that fails or takes long leaves nothing of the barrier undone.
    """
    run = simulate(plus(), task(), Landscape(), Budget(evaluations=60), workers=4)
    learnt = updates = 0
    for event in run.journal.read():
        entry = event.entry
        learnt += entry.body.get("note") == "experiment"
        if entry.kind == "started" and entry.effect == "train.update":
            assert learnt and learnt % 4 == 0  # on each of the four islands
            updates, learnt = updates + 1, 0
        learnt = 0 if entry.body.get("note") == "barrier" and entry.body["skip"] else learnt
    assert updates > 3


class Recognising(Landscape):
    """An advisor that takes every hypothesis for an idea that is there already.

    The first one is new, as there is no idea yet.
    """

    def write(self, request: WriteRequest):
        known = request.slots.get("ideas") or []
        text = {
            "advisor.generate": {"hypotheses": [{"hypothesis": f"{request.seed}"}]},
            "advisor.classify": {
                "exists": True,
                "idea": known[0]["number"],
                "description": "the idea, said better",
            }
            if known
            else {"exists": False, "description": "the idea"},
            "advisor.select": {"idea": 1, "experiment": f"try {request.seed}"},
        }.get(request.role, {})
        return msgspec.structs.replace(super().write(request), text=json.dumps(text))


def test_a_hypothesis_that_is_not_new_goes_under_the_idea_that_exists():
    run = simulate(
        paper(islands=1, freeze=1000), task(), Recognising(), Budget(evaluations=30), trial=False
    )
    last = notes(run, "experiment")[-1]["ideas"]
    assert [(idea["number"], idea["description"]) for idea in last] == [
        (1, "the idea, said better")
    ]
    assert last[0]["tries"] == len(notes(run, "experiment")) > 5


def test_samples_are_drawn_from_the_version_that_is_trained():
    class Watching(Landscape):
        def train(self, request):
            if request.kind == "train.update":
                versions = {one["sample"]["version"] for one in request.payload["batch"]}
                assert versions == {request.payload["version"]}
                assert (
                    len({one["advantage"] for one in request.payload["batch"]}) <= 4
                )  # one for each decision
            return super().train(request)

    assert (
        notes(simulate(plus(), task(), Watching(), Budget(evaluations=60)), "barrier")[-1][
            "version"
        ]
        > 3
    )


def test_a_group_without_differences_takes_no_step():
    run = simulate(plus(worst=5.0, best=6.0), task(), Landscape(), Budget(evaluations=40))
    barriers = notes(run, "barrier")
    skips = {"group_collapsed", "frontier_collapsed"}
    assert barriers and all(b["skip"] in skips and b["version"] == 0 for b in barriers)
    assert ("train.update" not in kinds(run) and "skips" in barriers[-1]["alarms"]) or len(
        barriers
    ) < 10


def test_the_untrained_control_never_updates():
    run = simulate(plus(objective="none"), task(), Landscape(), Budget(evaluations=40))
    assert "train.update" not in kinds(run)
    with pytest.raises(UserError, match="no objective"):
        plus(objective="ppo")


def test_stragglers_are_failures_and_block_nobody():
    class Slow(Landscape):
        def perform(self, effect, rng):
            seconds, result = super().perform(effect, rng)
            late = (
                effect.kind == "evaluate" and effect.key > 10 and Random(effect.mark).random() < 0.3
            )
            return (10_000.0 if late else seconds), result

    run = simulate(plus(deadline=60.0), task(), Slow(), Budget(evaluations=80), workers=50)
    barriers = notes(run, "barrier")
    late = [b for b in barriers if "deadline" in b["failures"]]
    assert late and all(b["rewards"].count(-1.0) >= b["failures"]["deadline"] for b in late)
    times = [e.entry.elapsed for e in run.journal.read() if e.entry.body.get("note") == "barrier"]
    assert len(late) > 3 and times[len(times) // 2] < 10_000.0  # before any straggler was done


def test_rewards_need_two_levels():
    with pytest.raises(UserError, match="two different levels"):
        simulate(
            PacevolvePlusPlus(),
            msgspec.structs.replace(task(), objective=Objective()),
            Landscape(),
            BUDGET,
        )


@pytest.mark.parametrize(("start", "low"), [(float("-inf"), 0.2), (0.4, 0.4)])
def test_rewards_begin_at_what_was_measured_else_at_what_the_task_says(start, low):
    assert score_bounds(Objective(start=0.2, target=1.0), start, None) == (low, 1.0)


@pytest.mark.parametrize(
    ("given", "target", "known", "high"),
    [((), 1.0, 3.0, 1.0), ((), None, 3.0, 3.0), ((2.0,), 1.0, 3.0, 2.0), ((None,), 1.0, 3.0, 1.0)],
)
def test_the_full_reward_is_at_the_setting_else_the_target_else_the_best_known_value(
    given, target, known, high
):
    """y_max of equation 5."""
    objective = Objective(start=0.2, target=target, known=known)
    assert score_bounds(objective, 0.2, None, *given) == (0.2, high)


def test_a_plan_under_an_idea_that_is_not_there_makes_a_new_one():
    ideas = IdeaRepository().with_idea("first")
    plan = [{"idea": 1, "experiment": "a"}, {"idea": 7, "experiment": "b", "description": "second"}]
    known, filed = _file_experiments(plan, ideas)
    assert filed == [(1, "a"), (2, "b")] and [idea.description for idea in known.ideas] == [
        "first",
        "second",
    ]


def test_the_line_of_an_experiment_compares_it_to_its_parent():
    run = simulate(paper(islands=1), task(), Landscape(), Budget(evaluations=40))
    lines = [n["outcome"] for n in notes(run, "experiment")]
    told = [re.fullmatch(r"score (\S+) \((.+) than (\S+)\)", line) for line in lines]
    words = {(found[2], float(found[1]) > float(found[3])) for found in told if found}
    assert words == {("better", True), ("worse", False)}


def test_states_are_reused_by_puct_on_different_lines():
    run = simulate(
        plus(starts=Puct(children=1)), task(), Landscape(), Budget(evaluations=80), workers=4
    )
    expansions, barriers = notes(run, "puct"), notes(run, "barrier")
    assert len(barriers) > 5 and len(expansions) >= 4 * len(barriers)
    assert [n["total"] for n in expansions] == list(
        range(1, len(expansions) + 1)
    )  # failures count, too
    parents = {n["candidate"]: n["parent"] for n in notes(run, "experiment")}
    assert {n["parent"] for n in expansions} <= set(parents.values())
    assert len({n["parent"] for n in expansions}) > 4  # more states than the seed are started from
    last = [n["parent"] for n in expansions[-4:]]
    assert len(set(last)) > 1
    own = simulate(plus(), task(), Landscape(), Budget(evaluations=80), workers=4)
    assert not notes(own, "puct")


def test_replies_to_be_trained_are_chosen():
    class Roles(Landscape):
        def train(self, request):
            if request.kind == "train.sample":
                seen.add(request.payload["step"])
            if request.kind == "train.update":
                sizes.add(len(request.payload["batch"]))
            return super().train(request)

    seen, sizes = set(), set()
    simulate(plus(policy="model", roles=("select",)), task(), Roles(), Budget(evaluations=40))
    fewer = set(sizes)
    sizes.clear()
    simulate(
        plus(policy="model", roles=("generate", "classify", "select")),
        task(),
        Roles(),
        Budget(evaluations=40),
    )
    assert seen >= {"generate", "classify", "select"} and max(fewer) < min(sizes)
    with pytest.raises(UserError, match="cannot train"):
        plus(roles=("result",))


def test_engines_are_settings():
    made = catalog.make_strategy(
        "pacevolve_plus_plus",
        {"engine": 'tinker("http://gpu:8000", sequence_mean)', "roles": "select"},
    )
    assert made.engine == Tinker("http://gpu:8000", "sequence_mean") and made.roles == ("select",)
    assert catalog.make_strategy("pacevolve_plus_plus", {"starts": "puct(c=2)"}).starts == Puct(
        c=2.0
    )
    with pytest.raises(UserError, match="sums its loss"):
        Tinker(aggregate="batch_mean")
    opened = []

    class Opening(Landscape):
        def train(self, request):
            if request.kind == "train.open":
                opened.append(request.payload)
            return super().train(request)

    simulate(plus(), task(), Opening(), Budget(evaluations=10))
    simulate(
        plus(engine=Tinker("http://gpu:8000"), head=True), task(), Opening(), Budget(evaluations=10)
    )
    assert "engine" not in opened[0]
    assert (opened[1]["engine"]["kind"], opened[1]["engine"]["url"]) == (
        "tinker",
        "http://gpu:8000",
    )
    assert opened[1]["head"] is True


def test_all_weights_can_be_trained_and_an_anchor_is_asked_for_when_the_policy_is_made():
    class Opening(Landscape):
        def train(self, request):
            if request.kind == "train.open":
                opened.append(request.payload)
            if request.kind == "train.update":
                rules.append(request.payload["rules"])
            return super().train(request)

    opened, rules = [], []
    simulate(plus(rank=0), task(), Opening(), Budget(evaluations=30))
    simulate(plus(anchor=0.1, epochs=2), task(), Opening(), Budget(evaluations=30))
    assert opened[0]["rank"] == 0 and "anchored" not in opened[0] and opened[1]["anchored"] is True
    assert rules[0].keys() == {"rate", "low", "high"}
    assert (rules[-1]["anchor"], rules[-1]["epochs"]) == (0.1, 2) and "minibatches" not in rules[-1]


def test_no_island_goes_back_before_it_has_made_its_experiments():
    run = simulate(
        PacevolvePlusPlus(
            scaffold=Pacevolve(islands=2, backtrack_every=4, threshold=0.0), worst=0.0, best=1.0
        ),
        task(),
        Landscape(),
        Budget(evaluations=60),
    )
    done = [body["note"] for body in (e.entry.body for e in run.journal.read()) if "note" in body]
    first = done.index("backtrack")
    assert done[:first].count("barrier") == 3 and done[:first].count("experiment") in (7, 8)


def test_the_papers_baselines_have_a_word_each():
    made = catalog.make_strategy("pacevolve_plus_plus", {"preset": "ttt_discover", "anchor": "0.5"})
    assert (made.objective, made.starts, made.anchor) == ("entropic", Puct(), 0.5)
    words = {
        name: catalog.make_strategy("pacevolve_plus_plus", {"preset": name}).objective
        for name in PacevolvePlusPlus.presets
    }
    assert words == {
        "no_rl": "none",
        "thetaevolve": "grpo",
        "max_at_k": "pkpo",
        "ttt_discover": "entropic",
        "frontier": "phase_adaptive",
    }
    frontier = catalog.make_strategy("pacevolve_plus_plus", {"preset": "frontier"})
    assert frontier.arm == FrontierAdvisor() and frontier.advantage_rule().objective == "none"
    with pytest.raises(UserError, match="no preset 'ttt'"):
        catalog.make_strategy("pacevolve_plus_plus", {"preset": "ttt"})
