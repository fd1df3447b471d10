"""Every verb, with --json and for people, on a real run."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate, Origin
from culmen.store import views
from tests.store.runs import new_run, observed, program, proposed

from .conftest import Place

READING = [
    ("status", "first"),
    ("status", "runs/first"),
    ("status",),
    ("status", "--all"),
    ("best", "first"),
    ("show", "first"),
    ("show", "first", "seed"),
    ("show", "first", "best", "--prompt"),
    ("show", "first", "--diff", "seed"),
    ("show", "first", "seed", "--diff", "best"),
    ("show", "first", "--lineage"),
    ("story", "first"),
    ("show", "first", "--log"),
    ("show", "first", "--log", "--all"),
    ("runs", "replay", "first", "--verify"),
    ("strategies",),
    ("strategies", "polca"),
    ("templates",),
    ("new", "--examples"),
    ("doctor",),
    ("check", "peak"),
    ("resume", "first"),
    ("docs",),
    ("docs", "tasks"),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_verb_prints_one_document_with_json_and_words_without(
    done: Place, arguments: tuple[str, ...]
) -> None:
    asked = done.here(*arguments, "--json")
    assert asked.code == 0, asked.err
    assert isinstance(asked.document, dict)
    assert "error" not in asked.document
    told = done.here(*arguments)
    assert told.code == 0, told.err
    assert told.out.strip()
    assert "Traceback" not in told.err


def test_a_process_prints_the_same_document(done: Place) -> None:
    asked = done.culmen("best", "first", "--json")
    assert (asked.code, asked.err) == (0, "")
    assert asked.document == done.here("best", "first", "--json").document


def test_every_verb_has_json_and_its_help(done: Place) -> None:
    for row in done.here("help", "--all", "--json").document["verbs"]:
        words = row["verb"].split()
        if row["verb"] not in ("runs db", "runs pool", "runs advisor"):
            shown = done.here(*words, "--help").out
            assert "--json" in shown and f"Usage: culmen {row['verb']}" in shown, row["verb"]
            assert words == ["help"] or done.here("help", *words).out == shown


def test_status_has_what_scripts_need(done: Place) -> None:
    status = done.culmen("status", "first", "--json").document
    wanted = {
        "run": "first",
        "task": "peak",
        "strategy": "pedigree",
        "state": "finished",
        "in_flight": 0,
    }
    assert {key: status[key] for key in wanted} == wanted
    assert 0 < status["evaluations"] <= 14
    assert {"id", "score", "count", "verified"} <= set(status["best"])
    assert status["best"]["verified"] is True
    assert {"calls", "input_tokens", "output_tokens", "dollars"} <= set(status["usage"])
    assert status["elapsed_seconds"] > 0
    assert status["isolation"] in ("namespaces", "restricted", "limits")


def test_best_text_alone_goes_to_standard_output(done: Place, tmp_path: Path) -> None:
    document = done.here("best", "first", "--json").document
    text = document["parts"]["guess.py"]
    assert done.here("best", "first").out == text
    scope: dict[str, object] = {}
    exec(text, scope)
    assert -((scope["run"]() - 7.0) ** 2) == pytest.approx(document["best"]["score"])  # pyright: ignore
    out = tmp_path / "out"
    assert done.here("best", "first", "--out", str(out), "--json").document["files"] == [
        str(out / "guess.py")
    ]
    assert (out / "guess.py").read_text() == text


def test_story_tells_the_steps_and_what_was_in_vain(done: Place) -> None:
    told = done.here("story", "first", "--json").document
    assert told["run"] == "first" and told["result"] and told["direction"] == "max"
    assert told["steps"] or told["why"]
    assert sum(step["gain"] for step in told["steps"]) == pytest.approx(told["gain"])
    shown = done.here("story", "first")
    assert shown.code == 0 and told["result"].split(":")[0] in shown.out
    for step in told["steps"]:
        assert step["sentence"] in " ".join(shown.out.split()) and step["id"][:8] in shown.out
    assert "tried in vain" in shown.out or not told["vain"]


def test_story_of_a_run_without_a_score(place: Place) -> None:
    place.task(
        "broken", evaluator="def score(output):\n    raise ValueError('the table is missing')\n"
    )
    place.culmen("run", "broken", "--budget", "evaluations=4", "--run-dir", "runs/broken")
    told = place.here("story", "broken", "--json")
    assert (
        told.code == 0
        and told.document["steps"] == []
        and told.document["why"].startswith("nothing has scored")
    )
    assert told.document["vain"][0]["name"] == "failed"
    shown = place.here("story", "broken")
    assert (
        "the initial program gives no score" in shown.out
        and "the table is missing" in shown.out
        and "next" not in shown.out
    )


def test_story_shows_what_candidates_say_as_it_is(place: Place) -> None:
    idea = "[bold]a wider ring[/bold] \x1b]0;owned\x07 on all sides"
    run = new_run(place.root / "runs", "said")
    run.append([proposed(1, first := program(0, operator="seed")), observed(2, first, 0.5)])
    for number in range(1, 5):
        child = Candidate.of(
            {"main.py": f"x = {number}"}, (first.id,), Origin("rewrite", "m", note=idea)
        )
        run.append([proposed(2 * number + 1, child), observed(2 * number + 2, child, 0.1)])
    run.close()
    shown = place.here("story", "said")
    assert (
        shown.code == 0
        and "[bold]a wider ring" in shown.out
        and "4 candidates, best 0.1" in shown.out
    )
    assert "\x1b]0" not in shown.out and "\x07" not in shown.out


def test_show_diff_and_lineage_agree(done: Place) -> None:
    best = done.here("best", "first", "--json").document["best"]["id"]
    detail = done.here("show", "first", best[:6], "--json").document
    assert detail["candidate"]["id"] == best
    assert detail["observations"]
    steps = done.here("show", "first", "--lineage", "--json").document["steps"]
    assert steps[-1]["row"]["id"] == best
    assert steps[0]["row"]["operator"] == "seed"
    diff = done.here("show", "first", "--diff", "seed", "--json").document
    assert (diff["first"], diff["second"]) == (steps[0]["row"]["id"], best)
    added = [line[1:] for line in diff["diff"].splitlines() if re.match(r"\+(?!\+\+)", line)]
    assert bool(diff["diff"]) == (best != steps[0]["row"]["id"])
    assert set(added) <= set(done.here("best", "first").out.splitlines())


def test_log_covers_the_whole_run(done: Place) -> None:
    status = done.here("status", "first", "--json").document
    events = done.here("show", "first", "--log", "--all", "--json").document["events"]
    assert [event["seq"] for event in events] == list(range(1, status["events"] + 1))
    assert all(event["words"] for event in events)
    last = done.here("show", "first", "--log", "-n", "3", "--json").document["events"]
    assert [event["seq"] for event in last] == [
        event["seq"] for event in events if event["kind"] != "started"
    ][-3:]


def test_exports_hold_every_event_and_evaluation(done: Place, tmp_path: Path) -> None:
    status = done.here("status", "first", "--json").document
    lines = done.here("runs", "export", "first").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, status["events"] + 1))
    rows = list(
        csv.DictReader(io.StringIO(done.here("runs", "export", "first", "--format", "csv").out))
    )
    assert len(rows) == status["evaluations"]
    written = done.here(
        "runs", "export", "first", "--format", "files", "--out", str(tmp_path / "x"), "--json"
    ).document
    assert written["written"] == len(list((tmp_path / "x").iterdir())) > 0
    again = done.here("runs", "export", "first", "--format", "files", "--out", str(tmp_path / "x"))
    assert again.code == 2


def test_fork_reuses_what_is_finished(done: Place, tmp_path: Path) -> None:
    target = str(tmp_path / "forked")
    forked = done.culmen(
        "runs", "fork", "first", "--budget", "evaluations=16", "--run-dir", target, "--json"
    )
    assert forked.code == 0, forked.err
    assert (
        forked.document["evaluations"]
        >= done.here("status", "first", "--json").document["evaluations"]
    )
    old = {
        event["mark"]: event["result"] for event in reversed(_done(done, "first"))
    }  # the first of each counts
    new = {event["mark"]: event["result"] for event in _done(done, target)}
    shared = old.keys() & new.keys()
    assert (
        len(shared) >= 3
    )  # two workers finish in an order of their own, so the two searches may part company
    assert all(old[mark] == new[mark] for mark in shared)


def _done(place: Place, run: str) -> list[dict[str, object]]:
    events = place.here("show", run, "--log", "--all", "--json").document["events"]
    return [
        event for event in events if event["kind"] == "done"
    ]  # seconds and all: copied, not measured again


def test_new_writes_a_task_that_passes_its_check(place: Place) -> None:
    made = place.culmen("new", "mine", "--json")
    assert made.code == 0
    assert sorted(Path(file).name for file in made.document["files"]) == [
        "evaluator.py",
        "search.py",
        "task.toml",
    ]
    checked = place.here("check", "mine", "--times", "2", "--json")
    assert (checked.code, checked.document["fit"]) == (0, True)


def test_check_names_the_cases_on_which_the_evaluator_raises_and_ends_with_1(place: Place) -> None:
    body = (
        "def score(output, case):\n    return 1.0 if case.id[-1] != '3' else case.info['missing']\n"
    )
    toml = 'cases = "cases.jsonl"\n[seed]\nfiles = ["guess.py"]\n'
    folder = place.task("partly", "def run(x):\n    return x\n", body, toml)
    lines = (json.dumps({"id": f"c{i}", "input": i, "info": {}}) for i in range(30))
    (folder / "cases.jsonl").write_text("\n".join(lines))
    checked = place.here("check", "partly", "--times", "2", "--json")
    (fault,) = (one for one in checked.document["findings"] if one["level"] == "error")
    assert (checked.code, checked.document["fit"], fault["place"]) == (1, False, "evaluator.py:2")
    assert fault["what"] == "evaluator.py:2 raises KeyError on 3 of 30 cases: c3, c13, c23"
    assert fault["cases"] == ["c3", "c13", "c23"]
    told = place.here("check", "partly", "--times", "2", "--cases", "10")
    assert "1 initial program in 18 evaluations, 10 of 30 cases at least once" in told.err
    assert "10 of 30 cases were tried (33 %)" in " ".join(told.out.split())


@pytest.mark.slow
def test_demo_ends_with_the_result_a_picture_and_one_command(place: Place) -> None:
    shown = place.culmen("demo", "--seconds", "15", "--run-dir", "runs/demo", "--workers", "2")
    assert shown.code == 0, shown.err
    result, picture, command = shown.out.strip().splitlines()
    assert (
        "initial 0.959764" in result and " used " in picture and "next: culmen best demo" in command
    )
    assert "▁" in picture or "better than" not in result
    assert "runs/demo" in shown.err
    status = place.here("status", "--json").document
    assert (status["task"], status["models"], status["strategy"]) == (
        "circle_packing",
        {"default": "offline"},
        "pedigree",
    )
    assert status["best"]["score"] >= 0.9597


def test_run_takes_every_option(place: Place) -> None:
    place.task("peak")
    ran = place.culmen(
        "run",
        "peak",
        "--strategy",
        "polca",
        "--set",
        "explore=2",
        "--set",
        "epsilon=0.01",
        "--model",
        "offline",
        "--budget",
        "evaluations=8,calls=3,dollars=1,tokens=1000,seconds=60",
        "--seed",
        "3",
        "--workers",
        "1",
        "--run-dir",
        "here",
        "--set",
        "embedder=hashing",
        "--require",
        "limits",
        "--quiet",
    )
    assert ran.code == 0, ran.err
    assert ran.err == ""
    shown = place.here("status", "here", "--json").document
    assert shown["budget"] == {
        "evaluations": 8,
        "calls": 3,
        "dollars": 1.0,
        "tokens": 1000,
        "seconds": 60.0,
    }
    assert (shown["seed"], shown["workers"]) == (3, 1)


def test_progress_without_a_terminal_is_plain_lines(place: Place) -> None:
    place.task("peak")
    ran = place.culmen("run", "peak", "--budget", "evaluations=8", "--run-dir", "here")
    assert ran.code == 0
    assert "at most      8 evaluations, $0" in ran.err
    assert any(line.startswith("0:0") and "best -" in line for line in ran.err.splitlines())
    assert "\x1b" not in ran.err + ran.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["status", "--json"], ["status"], ["show", "--log"], ["strategies"]],
    ids=str,
)
def test_light_verbs_import_nothing_heavy(done: Place, arguments: list[str]) -> None:
    code = (
        "import sys\nfrom culmen.cli.main import main\nassert main(sys.argv[1:]) == 0\n"
        "heavy = {'numpy', 'scipy', 'openai', 'cma'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=done.root, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr.strip().splitlines()[-1]) == (0, "[]")


def test_a_run_ends_at_the_score_it_was_asked_for(done: Place) -> None:
    line = (
        "run",
        "peak",
        "--budget",
        "evaluations=60",
        "--seed",
        "1",
        "--workers",
        "1",
        "--json",
        "--quiet",
    )
    first = done.here(*line, "--run-dir", "runs/aimed", "--stop-at", "-10")
    assert first.code == 0, first.err
    assert first.document["reason"] == "target" and first.document["best"]["score"] >= -10
    assert first.document["evaluations"] < 60
    replayed = done.here("runs", "replay", "aimed", "--verify")
    assert replayed.code == 0, replayed.err
    further = done.here(
        "runs",
        "fork",
        "aimed",
        "--stop-at",
        "none",
        "--run-dir",
        "runs/further",
        "--json",
        "--quiet",
    )
    assert further.document["reason"] != "target"
    refused = done.here(*line, "--stop-at", "target")
    assert refused.code == 2 and "declares no target" in refused.out + refused.err


@pytest.mark.slow
def test_a_run_starts_from_what_another_has_learnt(done: Place) -> None:
    line = (
        "run",
        "peak",
        "--budget",
        "evaluations=30",
        "--workers",
        "1",
        "--json",
        "--quiet",
        "--strategy",
        "pedigree",
    )
    first = done.here(*line, "--run-dir", "runs/learnt")
    assert first.code == 0, first.err
    second = done.here(*line, "--run-dir", "runs/knowing", "--set", "prior=runs/learnt")
    assert second.code == 0, second.err
    settings = json.loads(json.dumps(views.run_meta(done.root / "runs/knowing").strategy))["config"]
    assert settings["prior"]["fields"]["step"] > 0
    replayed = done.here("runs", "replay", "knowing", "--verify")
    assert replayed.code == 0, replayed.err
    refused = done.here(*line[:-1], "polca", "--set", "prior=runs/learnt")
    assert refused.code == 2 and "only the strategy pedigree" in refused.out + refused.err
