"""The sequence of agents: thresholds, limits, shares, certified scores, and why agents end."""

from __future__ import annotations

import msgspec
import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Status
from culmen.core.event import Custom, Entry
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.messages import (
    AnswerExperiments,
    Commit,
    Experiment,
    Open,
    Opened,
    Waited,
    to_plain_data,
)
from culmen.testing.landscape import Landscape, landscape_program
from culmen.testing.virtual import simulate
from tests.extensions.agents.team.worlds import EXACT, PLAIN, Desks, notes


def ask(*rewards, ended="", **more):
    """A wait in which a program asks for candidates of these true rewards."""
    wanted = tuple(
        Experiment(f"t{reward}-{n}", f"candidates/a00/{n}.py", landscape_program(reward, n), "try")
        for n, reward in enumerate(rewards)
    )
    return Waited(wanted, ended=ended, **more)


GONE = Waited(ended="finished", word="that is all")


def run(strategy, world, task=PLAIN, budget=None, **options):
    return simulate(
        strategy, task, world, budget or Budget(evaluations=200), seed=1, workers=2, **options
    )


def trailers(world):
    return [commit.trailers for commit in world.of(Commit)]


def test_a_program_is_served_and_its_work_committed():
    world = Desks(programs=(ask(0.3, 0.5), GONE))
    end = run(Cato(agents=2, agent="cmd:x"), world)
    assert end.search.reason == "agents"
    first, second = trailers(world)
    assert first["Experiments"] == second["Experiments"] == "2"
    assert (
        first["Best-Score"] == "0.5"
        and first["Best-So-Far"] == "0.5"
        and first["Stop-Reason"] == "finished"
    )
    assert len(first["Journal-Head"]) == 16 and first["Journal-Head"] != second["Journal-Head"]
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows]
    assert [row.agent for row in rows] == [-1, 0, 0, 1, 1] and rows[0].ticket == "seed-0"
    assert sorted(row.n for row in rows) == [1, 2, 3, 4, 5]
    ended = notes(end, "agent ended")
    assert [(note["ended"], note["word"], note["gained"]) for note in ended] == [
        ("finished", "that is all", True),
        ("finished", "that is all", False),
    ]


def test_seeds_open_the_history_and_lie_on_disk():
    world = Desks(programs=(GONE,))
    run(
        Cato(agents=1, agent="cmd:x"),
        world,
        msgspec.structs.replace(PLAIN, seeds=(landscape_program(0.1), landscape_program(0.7))),
    )
    answers = world.of(AnswerExperiments)
    assert {row.ticket for answer in answers for row in answer.rows} == {"seed-0", "seed-1"}
    assert all(answer.agent == -1 and answer.parts for answer in answers)
    assert "0.7" in answers[-1].leaderboard


@pytest.mark.parametrize(("threshold", "reached"), [(0.9, True), (0.95, False)])
def test_only_the_certified_score_counts_for_the_threshold(threshold, reached):
    world = Desks(programs=(ask(0.93), GONE), certify=lambda mu: mu - 0.02)
    end = run(Cato(agents=3, agent="cmd:x", threshold=threshold), world, EXACT)
    assert end.search.reason == ("threshold" if reached else "agents")
    assert len(world.of(Commit)) == (1 if reached else 3)
    assert trailers(world)[0]["Certified"] == "0.91"
    assert trailers(world)[0]["Stop-Reason"] == ("threshold" if reached else "finished")


def test_a_seed_that_reaches_the_threshold_leaves_nothing_to_do():
    world = Desks(programs=(GONE,))
    assert run(Cato(agents=3, agent="cmd:x", threshold=0.1), world).search.reason == "threshold"
    assert not world.of(Open)


def test_the_target_of_the_task_is_the_threshold_unless_one_is_set():
    world = Desks(programs=(ask(0.96), GONE))
    assert run(Cato(agents=3, agent="cmd:x"), world).search.reason == "threshold"
    assert run(Cato(agents=2, agent="cmd:x", threshold=2.0), world).search.reason == "agents"
    assert "0.95" in world.of(Open)[0].texts["TASK.md"]


def test_what_the_verifier_refuses_leads_nowhere():
    world = Desks(programs=(ask(0.93), ask(0.5), GONE), certify=lambda mu: None if mu > 0.9 else mu)
    end = run(Cato(agents=1, agent="cmd:x", threshold=0.9), world, EXACT)
    rows = {row.score: row for answer in world.of(AnswerExperiments) for row in answer.rows}
    assert rows[0.93].reason == "not_certified" and rows[0.93].certified is None
    assert rows[0.5].certified == 0.5
    assert end.search.reason == "agents" and trailers(world)[0]["Certified"] == "0.5"
    assert "0.93" not in world.of(AnswerExperiments)[-1].leaderboard


def test_only_candidates_that_would_lead_are_certified():
    world = Desks(programs=(ask(0.6), ask(0.4), ask(0.5), GONE))
    run(Cato(agents=1, agent="cmd:x"), world, EXACT)
    certified = {
        row.score: row.certified for answer in world.of(AnswerExperiments) for row in answer.rows
    }
    assert certified == {0.1: 0.1, 0.6: 0.6, 0.4: None, 0.5: None}


def test_a_noisy_leader_is_looked_at_twice():
    noisy = msgspec.structs.replace(PLAIN, deterministic=False)
    world = Desks(programs=(ask(0.9), GONE), sigma=0.01)
    end = run(Cato(agents=1, agent="cmd:x", threshold=5.0), world, noisy)
    leader = max(end.search.evidence.account.tallies(), key=lambda tally: tally.mean)
    assert leader.count >= 2


def test_budgets_are_shared_out_evenly_and_what_is_left_goes_on():
    world = Desks(programs=(ask(*(0.2 + n / 100 for n in range(6))), GONE))
    budget = Budget(evaluations=41, tokens=1000, dollars=4.0, calls=40, final=0.0)
    run(Cato(agents=4, agent="cmd:x", calls=3), world, budget=budget)
    limits = [opened.limits for opened in world.of(Open)]
    assert [limit["experiments"] for limit in limits] == [10, 12, 17, 34]  # asking again is free
    assert limits[0]["tokens"] == 250 and limits[0]["dollars"] == 1.0 and limits[0]["calls"] == 3
    assert limits[0]["idle"] == 600.0 and limits[0]["seconds"] == 3600.0


def test_agents_at_once_share_what_is_left_and_never_have_more_than_there_is():
    world = Desks(programs=(Waited(), Waited(), GONE))
    run(
        Cato(agents=2, parallel=2, agent="cmd:x", experiments=30),
        world,
        budget=Budget(evaluations=41, final=0.0),
    )
    assert [opened.limits["experiments"] for opened in world.of(Open)] == [30, 10]


def test_experiments_beyond_the_limit_are_turned_away():
    world = Desks(programs=(ask(0.2, 0.3, 0.4, 0.5), ask(0.6), GONE))
    end = run(Cato(agents=1, agent="cmd:x", experiments=2), world)
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows if row.agent == 0]
    assert [row.status for row in rows].count("ok") == 2
    assert {row.reason for row in rows if row.status == "refused"} == {"experiments"}
    assert trailers(world)[0]["Stop-Reason"] == "experiments" and nudges(end) == 1
    assert world.of(AnswerExperiments)[-1].closing == "experiments"


@pytest.mark.parametrize("parallel", [1, 3])
def test_the_budget_of_evaluations_ends_the_run_in_good_order(parallel):
    world = Desks(programs=(ask(0.2, 0.3, 0.4), ask(0.5, 0.6), ask(0.7), GONE))
    noisy = msgspec.structs.replace(PLAIN, deterministic=False)
    strategy = Cato(agents=50, parallel=parallel, agent="cmd:x", experiments=9, threshold=5.0)
    end = run(strategy, world, noisy, Budget(evaluations=40))
    assert end.search.reason == "evaluations"
    assert len(world.of(Open)) == len(world.of(Commit))
    assert end.verdict is not None and end.verdict.confirmed


def test_tokens_that_programs_spend_are_counted_and_end_the_run():
    spends = (Waited(), Usage(calls=1, input_tokens=400))
    world = Desks(programs=(spends, spends, GONE))
    end = run(Cato(agents=50, agent="cmd:x"), world, budget=Budget(tokens=2000, evaluations=100))
    assert end.search.reason == "tokens" and len(world.of(Commit)) == 3
    assert notes(end, "agent ended")[0]["tokens"] == 800


def test_a_silent_program_is_nudged_and_then_ended():
    world = Desks(programs=(Waited(idle=700.0),))
    end = run(Cato(agents=1, agent="cmd:x", nudges=2), world)
    assert trailers(world)[0]["Stop-Reason"] == "idle"
    assert nudges(end) == 2


def nudges(end):
    kinds = [(event.entry.kind, event.entry.effect) for event in end.journal.read()]
    return kinds.count(("done", "session.nudge"))


def test_a_program_that_does_not_go_is_told_and_then_sent_away():
    world = Desks(programs=(ask(0.96), Waited()))
    end = run(Cato(agents=1, agent="cmd:x"), world)
    assert end.search.reason == "threshold" and trailers(world)[0]["Stop-Reason"] == "threshold"
    assert nudges(end) == 1


def test_one_agent_that_reaches_the_threshold_ends_the_others_in_good_order():
    class Two(Desks):
        def waited(self, agent, seen, nth):
            return ask(0.96) if (agent, nth) == (1, 2) else ask(0.2 + agent / 10 + nth / 100)

    world = Two(programs=(GONE,))
    end = run(Cato(agents=9, parallel=2, agent="cmd:x"), world)
    assert end.search.reason == "threshold" and nudges(end) == 2
    assert [each["Stop-Reason"] for each in trailers(world)] == ["threshold", "threshold"]


def test_plateau():
    world = Desks(programs=(ask(0.3), GONE))
    end = run(Cato(agents=9, agent="cmd:x", plateau=2), world)
    assert end.search.reason == "plateau" and len(world.of(Commit)) == 3


def test_programs_that_cannot_be_started_end_the_run_soon():
    world = Desks(fault="not installed")
    end = run(Cato(agents=9, agent="nobody"), world)
    assert end.search.reason == "unavailable" and len(world.of(Commit)) == 3
    assert {note["word"] for note in notes(end, "agent ended")} == {"not installed"}


def test_only_programs_in_a_row_that_cannot_be_started_end_the_run():
    class Now(Desks):
        def session(self, kind, given):
            opened = super().session(kind, given)
            missing = kind == "open" and given["agent"] not in (1, 4)
            return Custom(to_plain_data(Opened(fault="busy"))) if missing else opened

    end = run(Cato(agents=9, agent="cmd:x"), Now(programs=(GONE,)))
    reasons = [note["ended"] for note in notes(end, "agent ended")]
    lost = ["unavailable"]
    assert (
        reasons == [*lost, "finished", *lost * 2, "finished", *lost * 3]
        and end.search.reason == "unavailable"
    )


def test_the_note_of_an_agent_has_the_best_score_so_far_and_the_start_of_what_was_said():
    said = Waited(ended="finished", word="word " * 99)
    end = run(Cato(agents=1, agent="cmd:x"), Desks(programs=(ask(0.3), said)))
    assert [(note["best"], len(note["word"])) for note in notes(end, "agent ended")] == [(0.3, 400)]
    nothing = msgspec.structs.replace(PLAIN, seeds=())
    end = run(Cato(agents=1, agent="cmd:x"), Desks(programs=(GONE,)), nothing, trial=False)
    assert [note["best"] for note in notes(end, "agent ended")] == [None]


def test_a_crew_is_told_in_words_and_only_programs_write_by_themselves():
    assert Cato(agents=3, agent="claude", parallel=2).crew == "3 x claude, 2 at once"
    assert Cato(agents=1, agent="offline").crew == "1 x offline"
    assert [Cato(agent=name).writes for name in ("offline", "builtin", "claude")] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("how", ["crashed", "interrupted", "seconds", "dollars"])
def test_how_a_session_ended_is_the_reason(how):
    world = Desks(programs=(ask(0.3), Waited(ended=how)))
    run(Cato(agents=2, agent="cmd:x"), world)
    assert [each["Stop-Reason"] for each in trailers(world)] == [how, how]


def test_what_was_asked_for_before_the_end_is_still_answered():
    world = Desks(programs=(ask(0.3, 0.4, ended="crashed"),))
    run(Cato(agents=1, agent="cmd:x"), world)
    assert trailers(world)[0]["Experiments"] == "2"


def test_reports_and_refused_files_are_passed_on():
    bad = Waited(
        (Experiment("t-1", "evaluator.py", fault="outside_candidates"),),
        reports=("the tolerance is wide",),
    )
    world = Desks(programs=(bad, GONE))
    end = run(Cato(agents=1, agent="cmd:x"), world)
    assert notes(end, "report") == [{"note": "report", "agent": 0, "text": "the tolerance is wide"}]
    row = world.of(AnswerExperiments)[-1].rows[0]
    assert (row.status, row.reason, row.candidate) == ("refused", "outside_candidates", "")


def test_three_candidates_that_play_the_evaluator_end_an_agent():
    class Guarded(Desks):
        def observe(self, candidate, seed, rng):
            seen = super().observe(candidate, seed, rng)
            cheats = (seen.score or 0) > 0.5
            if not cheats:
                return seen
            return msgspec.structs.replace(
                seen, status=Status.REJECTED, score=None, reason="integrity_frames"
            )

    world = Guarded(programs=(ask(0.6), ask(0.7), ask(0.8), ask(0.3), GONE))
    run(Cato(agents=1, agent="cmd:x"), world)
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows]
    assert rows[-1].status == "refused" and rows[-1].reason == "integrity"
    assert trailers(world)[0]["Best-So-Far"] == "0.1"


def test_a_task_without_a_seed_is_begun_by_the_program():
    bare = msgspec.structs.replace(PLAIN, seeds=())
    world = Desks(programs=(ask(0.3), GONE))
    end = run(Cato(agents=1, agent="cmd:x"), world, bare)
    assert "write one" in world.of(Open)[0].texts["TASK.md"]
    assert end.verdict is not None and end.verdict.score == 0.3


def test_parts_that_a_folder_leaves_out_are_the_seeds():
    seeds = ({"program": landscape_program(0.1)["program"], "fixed": "x"},)
    task = msgspec.structs.replace(PLAIN, seeds=seeds)
    asked = Experiment(
        "t-1", "candidates/a00/dir", landscape_program(0.4), parents=("seed-0", "nobody")
    )
    end = run(Cato(agents=1, agent="cmd:x"), Desks(programs=(Waited((asked,)), GONE)), task)
    tally = max(end.search.evidence.account.tallies(), key=lambda tally: tally.mean)
    leader = end.search.lab.find(tally.id)
    assert leader.parts == {**landscape_program(0.4), "fixed": "x"}
    assert leader.parents == (task.initial_candidates()[0].id,)


def test_offline_agents_leave_true_reflections():
    world = Desks()
    end = run(Cato(agents=3, agent="offline"), world, EXACT, Budget(evaluations=60))
    assert end.search.reason == "evaluations"
    rows = [row for answer in world.of(AnswerExperiments) for row in answer.rows if row.agent == 1]
    told = world.files[1, "reflections.md"]
    assert told.startswith("\n## Agent a01 (offline)") and f"- {len(rows)} experiments in" in told
    for row in rows:
        assert world.files[1, row.path].startswith("mu=")
        assert row.parents and row.origin == "landscape"
    better = sum(row.score > float(world_score(world, row.parents[0])) for row in rows)
    assert f"landscape {better} of {len(rows)}" in told


def world_score(world, candidate):
    return next(
        row.score
        for answer in world.of(AnswerExperiments)
        for row in answer.rows
        if row.candidate == candidate
    )


HANDED = Candidate.of(landscape_program(0.8, 4711), (), Origin("person"))


def tell(candidate=HANDED):
    body = {"tell": "candidate", "id": "1"}
    return Entry("tell", effect="candidates", body=body, result=Proposal(candidates=(candidate,)))


def test_what_a_person_hands_in_lies_before_the_agents():
    world = Desks(programs=(ask(0.3), Waited(), GONE))
    end = run(Cato(agents=1, agent="cmd:x"), world, EXACT, told=[(4, tell())])
    answers = [
        answer for answer in world.of(AnswerExperiments) if answer.rows[0].ticket == "person-1"
    ]
    assert (
        len(answers) == 1 and HANDED.id in answers[0].parts and answers[0].rows[0].certified == 0.8
    )
    assert f"| {HANDED.id} | 0.8 | 0.8 | person |" in answers[0].leaderboard
    assert end.verdict is not None and end.verdict.id == HANDED.id


def test_what_a_person_hands_in_can_reach_the_threshold():
    world = Desks(programs=(ask(0.3), Waited(), ask(0.4), GONE))
    end = run(Cato(agents=3, agent="cmd:x", threshold=0.8), world, told=[(4, tell())])
    assert end.search.reason == "threshold" and len(world.of(Commit)) == 1


def test_an_offline_agent_works_on_what_a_person_handed_in():
    end = run(Cato(agents=1, agent="offline"), Landscape(), told=[(10, tell())])
    found = [e.entry.result for e in end.journal.read() if isinstance(e.entry.result, Proposal)]
    assert any(
        HANDED.id in candidate.parents for proposal in found for candidate in proposal.candidates
    )


class Confessing(Desks):
    """A world whose second agent writes its deeds into the file that all share.

    The others leave that there.
    """

    def session(self, kind, given):
        if kind != "end":
            return super().session(kind, given)
        told = "a00: steps of 0.1 help\n"
        if given["agent"] >= 1:
            told += "a01: I exploit the tolerance of the evaluator by a hair.\n"
        return Custom({"reflections": told})


def test_what_an_agent_admits_marks_its_own_candidates_and_nobody_elses():
    world = Confessing(programs=(ask(0.3, 0.5), GONE))
    end = run(Cato(agents=3, agent="cmd:x"), world)
    (told,) = notes(end, "admission")
    assert told["agent"] == 1 and told["evidence"] == [
        "a01: I exploit the tolerance of the evaluator by a hair."
    ]
    made = {
        row.candidate
        for answer in world.of(AnswerExperiments)
        for row in answer.rows
        if row.agent == 1
    }
    assert set(told["candidates"]) == made and made


def test_where_every_agent_crashed_the_run_says_so():
    crashed = Waited(ended="crashed", word="exit code 1")
    assert (
        run(Cato(agents=2, agent="cmd:x"), Desks(programs=(crashed,))).search.reason
        == "agents_crashed"
    )
    assert (
        run(Cato(agents=2, agent="cmd:x"), Desks(programs=(ask(0.3), GONE))).search.reason
        == "agents"
    )
