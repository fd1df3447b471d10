"""Read models against values computed by hand from the same events; exports."""

import csv
import json
import random
import statistics
import time

import msgspec
import pytest

from culmen.cli.pages import show_status
from culmen.cli.screen import Screen
from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Sign, Status
from culmen.core.event import Entry
from culmen.core.usage import Usage
from culmen.evidence.evidence import Evidence
from culmen.store import views
from culmen.store.export import export_run
from culmen.store.journal import SqlJournal
from tests.store.runs import new_run, observed, program, proposed, state

pytestmark = pytest.mark.usefixtures("each_store")


def random_run(folder, direction="max", seed=1, noise=0.3):
    """60 candidates, unevenly observed, some failing.

    Returns the journal and scores and failures by id.
    """
    chance = random.Random(seed)
    journal = new_run(folder, direction=direction)
    pool = [program(number) for number in range(60)]
    journal.append(
        [
            Entry(
                "note",
                1,
                effect="candidates",
                body={"note": "candidates"},
                result=Proposal(tuple(pool)),
            )
        ]
    )
    scores, failures = {c.id: [] for c in pool}, {c.id: 0 for c in pool}
    key = 0
    for _ in range(80):
        batch = []
        for _ in range(chance.randrange(1, 9)):
            place, key = chance.randrange(50), key + 1  # ten are never evaluated
            candidate = pool[place]
            if place % 9 == 0 and chance.random() < 0.3:
                batch.append(
                    observed(key, candidate, None, chance.choice(list(Status)[1:]), elapsed=key)
                )
                failures[candidate.id] += batch[-1].result.status is not Status.LOST
            else:
                batch.append(observed(key, candidate, place + chance.gauss(0, noise), elapsed=key))
                scores[candidate.id].append(batch[-1].result.score)
        journal.append(batch)
    return journal, scores, failures


def as_observed(journal):
    """The evidence from the observations themselves, as the engine has it."""
    evidence, known = Evidence(journal.meta.task), {}
    for event in journal.read():
        result = event.entry.result
        if isinstance(result, Proposal):
            known |= {each.id: each for each in result.candidates}
        elif isinstance(result, Observation):
            evidence.observe(known[result.candidate], result, event.entry.body.get("phase", ""))
    return evidence


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_best_and_list_follow_the_rule(tmp_path, direction, seed):
    journal, scores, _ = random_run(tmp_path, direction, seed)
    evidence = as_observed(journal)
    order = evidence.ranking.best_ids(60)
    truth = [program(number).id for number in range(50)]  # a candidate's true score is its number
    assert order[0] in (truth[-3:] if direction == "max" else truth[:3])
    assert set(order) == {name for name in scores if scores[name]}
    rows = views.candidate_rows(journal.run_dir, "best", limit=None)
    assert [row.id for row in rows if row.count] == order
    assert len(rows) == 60 and all(row.mean is None for row in rows[len(order) :])
    firsts = [
        views.candidate_rows(journal.run_dir, "best", limit=n) for n in (1, 5, 20)
    ]  # found without sorting all
    assert [[row.id for row in first] for first in firsts] == [order[:n] for n in (1, 5, 20)]
    best = views.run_status(journal.run_dir).best
    assert best == views.best_result(journal.run_dir)
    assert best == evidence.result()
    assert (best.id, best.count) == (order[0], len(scores[order[0]])) and not best.confirmed
    points = views.progress_points(journal.run_dir)
    assert points[-1].candidate == order[0] and points[-1].mean == best.score
    assert [point.evaluations for point in points] == sorted(
        {point.evaluations for point in points}
    )
    journal.close()


def test_failed_candidates_stand_before_those_never_evaluated(tmp_path, each_store):
    journal = new_run(tmp_path)
    unseen, failed, best = (program(number) for number in range(3))
    journal.append([proposed(0, unseen, failed, best)])
    journal.append([observed(1, best, 1.0), observed(2, failed, None, Status.ERROR)])
    order = [best.id, failed.id, unseen.id]
    assert [row.id for row in views.candidate_rows(journal.run_dir, "best")] == order
    for descending in (False, True):
        query = views.CandidateQuery(descending=descending)
        shown = [each.row.id for each in views.candidate_page(journal.run_dir, query).rows]
        assert shown == order[:: -1 if descending else 1]
    journal.close()


def test_statistics_of_a_candidate_are_those_of_its_scores(tmp_path):
    journal, scores, failures = random_run(tmp_path)
    for row in views.candidate_rows(journal.run_dir, "old", limit=None):
        values = scores[row.id]
        assert (row.count, row.search_count, row.failed) == (
            len(values),
            len(values),
            failures[row.id],
        )
        if len(values) > 1:
            assert row.search_mean == pytest.approx(statistics.mean(values)) and row.expected
            assert abs(row.mean - row.search_mean) < 2 * row.margin
            assert row.sd == pytest.approx(statistics.stdev(values), abs=1e-9)
        assert sum(n for name, n in row.statuses.items() if name != "lost") == failures[row.id]
    pages = [
        views.candidate_rows(journal.run_dir, "score", offset, 7) for offset in range(0, 63, 7)
    ]
    assert [row.id for page in pages for row in page] == [
        row.id for row in views.candidate_rows(journal.run_dir, "score", limit=None)
    ]
    assert all(row.failed for row in views.candidate_rows(journal.run_dir, failed=True))
    assert views.candidate_rows(journal.run_dir, operator="nothing") == []
    journal.close()


def test_many_large_scores_that_differ_little_keep_their_spread(tmp_path):
    journal, candidate = new_run(tmp_path), program(1)
    values = [1e9 + random.Random(number).random() for number in range(200)]
    for start in range(0, 200, 7):
        journal.append(
            [observed(start + i, candidate, v) for i, v in enumerate(values[start : start + 7])]
        )
    journal.append([proposed(999, candidate)])
    row = views.candidate_rows(journal.run_dir)[0]
    assert row.sd == pytest.approx(statistics.stdev(values), rel=1e-5)
    journal.close()


def test_one_lucky_sample_does_not_win_but_a_steady_candidate_does(tmp_path):
    """A single 0.9 of a program in a field around 0.5 is taken for luck.

    A mean of 0.8 over many evaluations stands beside it.
    """
    journal, lucky, steady = new_run(tmp_path), program(1), program(2)
    field = [program(number) for number in range(3, 15)]
    noisy = [observed(key, steady, 0.8 + 0.2 * (-1) ** key) for key in range(2, 20)]
    others = [
        observed(60 + key, each, 0.5 + 0.1 * (-1) ** key) for key, each in enumerate(field * 2)
    ]
    journal.append([proposed(1, lucky, steady, *field), *noisy, *others, observed(50, lucky, 0.9)])
    assert [row.id for row in views.candidate_rows(journal.run_dir, "best", limit=2)] == [
        steady.id,
        lucky.id,
    ]
    journal.close()


def test_failures_cost_as_much_as_they_are_likely_and_what_was_lost_costs_nothing(tmp_path):
    """Failures count at the floor.

    A candidate that fails half of the time and scores 9 otherwise is worth less than a steady 8,
    and more than a steady 2.
    """
    journal, steady, flaky, low = new_run(tmp_path), program(1), program(2), program(3)
    journal.append([proposed(1, steady, flaky, low)])
    ends = [(9.0, Status.OK), (None, Status.ERROR)] * 6
    journal.append([observed(10 + key, flaky, *end) for key, end in enumerate(ends)])
    assert views.best_result(journal.run_dir).id == flaky.id
    journal.append([observed(30 + key, low, 2.0) for key in range(4)])
    assert views.best_result(journal.run_dir).id == flaky.id
    journal.append([observed(40 + key, steady, 8.0) for key in range(4)])
    journal.append(
        [observed(50 + key, steady, None, Status.LOST, reason="worker_died") for key in range(8)]
    )
    assert [row.id for row in views.candidate_rows(journal.run_dir, "best")] == [
        steady.id,
        flaky.id,
        low.id,
    ]
    best = views.best_result(journal.run_dir)
    assert (best.id, best.count, best.failed) == (steady.id, 4, {"candidate": 6, "machine": 8})
    journal.close()


def test_states_follow_the_lock_and_the_last_state_event(tmp_path):
    journal = new_run(tmp_path)

    def now():
        return views.run_status(journal.run_dir).state

    assert now() == "running"
    journal.append(
        [
            state("running"),
            Entry("started", 1, "aa", "propose"),
            Entry("started", 2, "aa", "propose"),
        ]
    )
    journal.append([proposed(1)])
    assert views.run_status(journal.run_dir).in_flight == 1
    journal.close()
    assert now() == "interrupted"
    for name in ("paused", "failed", "interrupted"):
        journal = SqlJournal.open(journal.run_dir, write=True)
        journal.append([state("running"), state(name, reason="why", error="E")])
        assert now() == "running"
        journal.close()
        assert (now(), views.run_status(journal.run_dir).reason) == (name, "why")
    journal = SqlJournal.open(journal.run_dir, write=True)
    winner = {
        "id": "abc",
        "score": 0.5,
        "count": 12,
        "margin": 0.2,
        "confirmed": True,
        "verified": True,
    }
    journal.append(
        [state("running"), Entry("started", 2, "aa", "propose"), state("finished", winner=winner)]
    )
    status = views.run_status(journal.run_dir)
    assert (status.state, status.in_flight) == ("finished", 0)
    assert (status.best.id, status.best.score, status.best.count, status.best.verified) == (
        "abc",
        0.5,
        12,
        True,
    )
    assert status.best.confirmed and status.best.margin == 0.2
    journal.close()


def test_usage_calls_and_faults_add_up(tmp_path):
    journal = new_run(tmp_path)
    paid = Usage(calls=2, input_tokens=10, output_tokens=5, dollars=0.25, unpriced=1)
    lost = Entry("torn", 4, "aa", "propose", {"usage": {"calls": 1, "dollars": 2.0}})
    failed = Entry(
        "done",
        3,
        "aa",
        "propose",
        {"role": "judge"},
        Proposal(fault="truncated", model="k", usage=paid),
    )
    journal.append([proposed(1, program(1), usage=paid), proposed(2, usage=paid), failed, lost])
    status = views.run_status(journal.run_dir)
    assert (
        status.usage.calls,
        status.usage.input_tokens,
        status.usage.dollars,
        status.usage.unpriced,
    ) == (
        6,
        30,
        0.75,
        3,
    )
    assert status.usage.possibly_lost == Usage(calls=1, dollars=2.0)
    assert status.faults == {"truncated": 1}
    assert [(row.role, row.model, row.effects) for row in views.call_costs(journal.run_dir)] == [
        ("proposer", "m", 2),
        ("judge", "k", 1),
    ]
    journal.close()


def test_evaluations_that_examined_another_one_count_in_every_figure(tmp_path, each_store, capsys):
    """The result counts like the status and the list of runs, while it runs and after."""
    run = new_run(tmp_path)
    first = program(1)
    run.append([proposed(0, first), observed(1, first, 0.5)])
    examined = observed(2, first, 0.5, usage=Usage(evaluations=2))
    run.append([state("running"), examined])
    status, line = views.run_status(run.run_dir), views.list_runs(tmp_path)[0]
    assert (status.evaluations, line.evaluations) == (4, 4)
    assert status.best is not None and status.best.evaluations == 4
    show_status(Screen(), status, run.run_dir)
    assert "2 ok, 2 to examine others" in capsys.readouterr().out
    run.close()


def test_a_candidate_in_full_its_children_and_its_lineage(tmp_path):
    journal = new_run(tmp_path, direction="min")
    seed = program(0, operator="seed")
    child = program(1, [seed.id])
    grandchild = program(2, [child.id, seed.id])
    journal.append(
        [Entry("note", 1, effect="seeds", body={"note": "seeds"}, result=Proposal((seed,)))]
    )
    journal.append([observed(1, seed, 5.0), proposed(2, child, prompt="P" * 9000, reply="R")])
    journal.append(
        [observed(3, child, 4.0, feedback="slow"), observed(4, child, None, Status.LOST)]
    )
    journal.append([proposed(5, grandchild), observed(6, grandchild, 4.5)])
    detail = views.candidate_detail(journal.run_dir, child.id[:6])
    assert detail.candidate == child and detail.parts == child.parts
    assert (detail.prompt, detail.reply, detail.hypothesis) == ("P" * 9000, "R", "an idea")
    assert [o.score for o in detail.observations] == [4.0, None] and detail.children == (
        grandchild.id,
    )
    bare = views.candidate_detail(journal.run_dir, detail.id, observations=0, children=0)
    assert bare == msgspec.structs.replace(detail, observations=(), phases=(), children=())
    steps = views.lineage_steps(journal.run_dir, grandchild.id)
    assert [(step.row.id, step.gain, step.note) for step in steps] == [
        (seed.id, None, "n0"),
        (child.id, -1.0, "n1"),
        (grandchild.id, 0.5, "n2"),
    ]
    assert [o.score for o in views.stream_observations(journal.run_dir, child.id)] == [4.0, None]
    assert len(list(views.stream_observations(journal.run_dir))) == 4
    journal.close()


def test_a_long_line_of_ancestors_is_read_whole_and_a_circle_ends(tmp_path, each_store):
    """More ancestors than are fetched at once, and a circle of two.

    The two candidates name each other as their first parent.
    """
    journal = new_run(tmp_path)
    chain = [program(0, operator="seed")]
    for number in range(1, 1_203):
        chain.append(program(number, [chain[-1].id, chain[0].id]))
    one, other = program(5000), program(5001)
    circle = [program(5000, [other.id]), program(5001, [one.id])]
    journal.append(
        [Entry("note", 1, effect="c", body={"note": "c"}, result=Proposal((*chain, *circle)))]
    )
    journal.append(
        [observed(number, each, float(number)) for number, each in enumerate(chain[::2], 1)]
    )
    steps = views.lineage_steps(journal.run_dir, chain[-1].id)
    assert [step.row.id for step in steps] == [each.id for each in chain]
    assert [step.note for step in steps] == [f"n{number}" for number in range(1_203)]
    assert [step.row.mean for step in steps[:3]] == [1.0, None, 2.0] and steps[2].gain is None
    assert [step.row.id for step in views.lineage_steps(journal.run_dir, one.id)] == [
        other.id,
        one.id,
    ]
    journal.close()


def test_islands_and_signs_are_found_in_what_is_stored_as_bytes(tmp_path, each_store):
    """Also where a text pretends to name an island.

    Or where it holds characters that databases do not take for JSON.
    """
    journal = new_run(tmp_path)
    notes = ("plain", '{"island":7}', "a\x00b", "\ud800", "")
    pool = [
        Candidate.of(
            {"main.py": f"x = {number}\n"},
            (),
            Origin("rewrite", "M", island=island, note=notes[number % 5]),
        )
        for number, island in enumerate((0, 1, 1, None, -2, 12))
    ]
    journal.append([proposed(1, *pool)])
    sign = Sign("clock", "it looks at the clock", True)
    journal.append(
        [observed(2, pool[0], 1.0), observed(3, pool[1], 2.0, signs=(sign,), feedback='no "signs"')]
    )
    run = journal.run_dir
    assert views.candidate_facets(run).islands == ((-2, 1), (0, 1), (1, 2), (12, 1))
    for island in (0, 1, -2, 12, 7):
        found = views.candidate_page(run, views.CandidateQuery(island=island)).rows
        assert {each.row.id for each in found} == {
            each.id for each in pool if each.origin.island == island
        }
    order = [
        each.island
        for each in views.candidate_page(
            run, views.CandidateQuery(sort="island", descending=True)
        ).rows
    ]
    assert order == [12, 1, 1, 0, -2, None]
    assert (
        views.candidate_page(run, views.CandidateQuery(text="m")).total == 6
    )  # capitals do not matter
    assert [(each.candidate, each.sign) for each in views.run_integrity(run).findings] == [
        (pool[1].id, "clock")
    ]
    journal.close()


def test_signs_are_counted_over_the_whole_run_and_a_rare_one_is_shown(tmp_path, each_store):
    """A grave sign of one early evaluation must not be hidden by many notes after it."""
    journal = new_run(tmp_path)
    one, other = program(1), program(2)
    journal.append([proposed(1, one, other)])
    journal.append(
        [
            observed(
                2, one, 9.0, signs=(Sign("frames", "it walks up the stack", True), Sign("clock"))
            )
        ]
    )
    journal.append(
        [
            observed(10 + number, other, 1.0, signs=(Sign("clock"), Sign("clock")))
            for number in range(30)
        ]
    )
    seen = views.run_integrity(journal.run_dir, limit=20)
    assert (seen.signs, seen.kinds) == (31, {"frames": 1, "clock": 31})
    assert [(each.candidate, each.grave) for each in seen.findings if each.sign == "frames"] == [
        (one.id, True)
    ]
    journal.close()


def test_what_is_in_flight_is_what_began_and_did_not_end(tmp_path, each_store):
    journal = new_run(tmp_path)
    journal.append([state("running"), Entry("started", 1, "m", "propose")])
    journal.append(
        [Entry("started", 2, "m", "evaluate"), Entry("started", 3, "m", "evaluate", elapsed=1.0)]
    )
    many = [program(number) for number in range(300)]
    journal.append([Entry("started", 10 + number, "m", "evaluate") for number in range(300)])
    journal.append([observed(10 + number, each, 1.0) for number, each in enumerate(many)])
    journal.append(
        [Entry("torn", 2, "m", "evaluate", {"usage": {}}), Entry("note", 1, body={"note": "x"})]
    )
    assert [(mark.key, mark.effect, mark.elapsed) for mark in views.in_flight(journal.run_dir)] == [
        (1, "propose", 0.0),
        (3, "evaluate", 1.0),
    ]
    journal.append([Entry("started", 2, "m", "evaluate", elapsed=2.0)])
    assert [mark.key for mark in views.in_flight(journal.run_dir)] == [1, 3, 2]
    journal.append([Entry("stop", body={"reason": "user"})])
    assert views.in_flight(journal.run_dir) == []
    journal.close()


def test_unknown_and_ambiguous_ids_come_with_suggestions(tmp_path):
    journal = new_run(tmp_path)
    with pytest.raises(UserError, match="no candidates yet"):
        views.candidate_detail(journal.run_dir, "abc")
    pool = [program(number) for number in range(40)]
    journal.append([proposed(1, *pool)])
    shared = next(c.id[0] for c in pool if sum(o.id[0] == c.id[0] for o in pool) > 1)
    with pytest.raises(UserError, match=f"several candidates begin with '{shared}'"):
        views.candidate_detail(journal.run_dir, shared)
    wrong = pool[0].id[:-1] + "z"
    with pytest.raises(UserError, match=f"did you mean {pool[0].id}"):
        views.candidate_detail(journal.run_dir, wrong)
    with pytest.raises(UserError, match="no candidate ''"):
        views.candidate_detail(journal.run_dir, "")
    assert views.find_candidate(journal.run_dir, pool[3].id) == pool[3].id
    journal.close()


def test_log_and_notes_select_and_page(tmp_path):
    journal = new_run(tmp_path)
    for number in range(10):
        journal.append(
            [
                Entry(
                    "note",
                    number,
                    body={"note": "width" if number % 2 else "odd\ud800", "n": number},
                )
            ]
        )
        journal.append([observed(number, program(number), 1.0)])
    assert [event.entry.body["n"] for event in views.note_events(journal.run_dir, "width")] == [
        1,
        3,
        5,
        7,
        9,
    ]
    later = views.note_events(journal.run_dir, "odd\ud800", after=8)
    assert [event.entry.body["n"] for event in later] == [4, 6, 8]
    assert [event.seq for event in views.log_events(journal.run_dir, after=3, limit=2)] == [4, 5]
    assert [event.seq for event in views.log_events(journal.run_dir, kinds=["note"], limit=3)] == [
        1,
        3,
        5,
    ]
    assert [
        event.entry.kind for event in views.log_events(journal.run_dir, kinds={"done"}, limit=2)
    ] == [
        "done",
        "done",
    ]
    journal.close()


def test_runs_are_listed_newest_first_and_found_by_name(tmp_path):
    for name, created in (("old", 1.0), ("new", 9.0), ("middle", 5.0)):
        new_run(tmp_path, name, created=created).close()
    (tmp_path / "no-run").mkdir()
    assert [line.run for line in views.list_runs(tmp_path)] == ["new", "middle", "old"]
    assert views.find_run(None, tmp_path).name == "new"
    assert (
        views.find_run("mid", tmp_path)
        == views.find_run(tmp_path / "middle", tmp_path)
        == tmp_path / "middle"
    )
    with pytest.raises(UserError, match="no run 'none'"):
        views.find_run("none", tmp_path)
    with pytest.raises(UserError, match="no runs yet"):
        views.find_run(None, tmp_path / "no-run")


def test_settings_can_be_changed_and_are_kept(tmp_path):
    journal = new_run(tmp_path)
    journal.set_meta(isolation="namespaces", models={"proposer": "other"})
    with pytest.raises(TypeError):
        journal.set_meta(nonsense=1)
    journal.close()
    assert views.run_meta(journal.run_dir) == journal.meta
    assert views.run_status(journal.run_dir).isolation == "namespaces"


def test_exports_hold_everything_once(tmp_path):
    journal, scores, _ = random_run(tmp_path)
    odd = program(100, text="\ud800\x00")
    journal.append([proposed(900, odd, prompt="p" * 9000), observed(901, odd, 1e9)])
    lines = tmp_path / "out" / "run.jsonl"
    assert export_run(journal.run_dir, "jsonl", lines) == views.run_status(journal.run_dir).events
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-2]["result"]["prompt"] == "p" * 9000
    assert events[-2]["result"]["candidates"][0]["parts"] == odd.parts
    count = export_run(journal.run_dir, "csv", tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count == views.run_status(journal.run_dir).evaluations
    assert sum(1 for row in rows if row["score"]) == sum(map(len, scores.values())) + 1
    assert export_run(journal.run_dir, "files", tmp_path / "best", count=3) == 3
    first = tmp_path / "best" / f"1-{odd.id}"
    assert (first / "main.py").read_bytes().decode("utf-8", "surrogatepass") == odd.parts["main.py"]
    assert (
        json.loads((first / "about.json").read_text())["mean"]
        == views.candidate_detail(journal.run_dir, odd.id).row.mean
    )
    with pytest.raises(UserError, match="unknown format"):
        export_run(journal.run_dir, "xml", tmp_path / "x")
    journal.close()


def test_exported_parts_cannot_leave_their_folder(tmp_path):
    from culmen.core.candidate import Candidate

    journal = new_run(tmp_path)
    names = ["../../evil.py", "/etc/evil", "about.json", "a/b/c.py", "nul\x00", ""]
    sly = Candidate.of(dict.fromkeys(names, "x"))
    journal.append([proposed(1, sly)])
    export_run(journal.run_dir, "files", tmp_path / "deep" / "out")
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and journal.run_dir not in path.parents
    ]
    assert all((tmp_path / "deep" / "out") in path.parents for path in written)
    assert len(written) == len(names) + 1
    assert any(path.as_posix().endswith("a/b/c.py") for path in written)
    journal.close()


def test_the_level_of_a_candidate_is_that_of_its_weakest_score(tmp_path):
    journal = new_run(tmp_path)
    one, two, three, four = (program(number) for number in range(4))
    journal.append([proposed(1, one, two, three, four)])
    levels = [
        (one, "verified"),
        (one, "certified"),
        (two, "proxied"),
        (two, "verified"),
        (three, ""),
    ]
    journal.append(
        [observed(key, each, 1.0, trust=level) for key, (each, level) in enumerate(levels, 2)]
    )
    journal.append([observed(9, four, None, Status.TIMEOUT, trust="proxied")])
    found = {row.id: row.trust for row in views.candidate_rows(journal.run_dir)}
    assert found == {one.id: "verified", two.id: "proxied", three.id: "self-reported", four.id: ""}
    listed = views.candidate_page(journal.run_dir, views.CandidateQuery(sort="trust"))
    assert [line.row.trust for line in listed.rows] == ["verified", "proxied", "self-reported", ""]
    assert {
        line.row.id
        for line in views.candidate_page(
            journal.run_dir, views.CandidateQuery(trust="proxied")
        ).rows
    } == {
        one.id,
        two.id,
    }
    assert [
        line.row.id
        for line in views.candidate_page(
            journal.run_dir, views.CandidateQuery(below="proxied")
        ).rows
    ] == [three.id]
    with pytest.raises(UserError, match="no such level"):
        views.candidate_page(journal.run_dir, views.CandidateQuery(trust="sworn"))
    journal.close()


def test_time_goes_on_while_somebody_works_on_the_run(tmp_path, each_store):
    """A candidate that hangs leaves no event.

    A run that is taken up again does not count the time between.
    """
    journal = new_run(tmp_path)
    journal._writer.append([state("running")], [time.time() - 1e6])
    journal._writer.append([Entry("started", 1, "m", "evaluate", elapsed=3.0)], [time.time() - 1e6])
    first = views.run_status(journal.run_dir).elapsed_seconds
    assert 3.0 < first < views.run_status(journal.run_dir).elapsed_seconds < 1000.0
    journal.close()
    assert views.run_status(journal.run_dir).elapsed_seconds == 3.0
