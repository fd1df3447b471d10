"""Errors: one document with kind, what, where and next; its exit code.

In words, there is no traceback.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from culmen.cli.screen import plain_data
from culmen.core.event import Entry
from culmen.store.journal import SqlJournal

from .conftest import TOML, Place

MISTAKES = [
    (("nonsense",), "usage", "nonsense"),
    (("init",), "usage", "culmen new"),
    (("ls",), "usage", "culmen status --all"),
    (("rnu",), "usage", "'run'"),
    (("run",), "user_error", "--skill"),
    (("run",), "user_error", "culmen new"),
    (("run", "peak", "--bugdet", "evaluations=3"), "usage", "did you mean --budget?"),
    (("run", "peak", "--workers", "zero"), "usage", "workers"),
    (("run", "missing"), "task_error", "missing"),
    (("run", "circle_packing"), "task_error", "culmen new circle_packing --example circle_packing"),
    (
        ("run", "peak", "--strategy", "turboevolve", "--pool", "nowhere"),
        "user_error",
        "cannot read the pool",
    ),
    (("check", "missing"), "task_error", "missing"),
    (("run", "wrong_key"), "task_error", "directon"),
    (("run", "no_seed_file"), "task_error", "guess.py"),
    (("run", "no_evaluator"), "task_error", "evaluator.py"),
    (("run", "peak", "--strategy", "polka"), "user_error", "polca"),
    (("run", "peak", "--strategy", "polca", "--set", "epsilom=1"), "user_error", "epsilon"),
    (("run", "peak", "--set", "epsilon=many"), "user_error", "epsilon"),
    (("run", "peak", "--set", "epsilon"), "user_error", "NAME=VALUE"),
    (("run", "peak", "--budget", "evaluations=many"), "user_error", "evaluations"),
    (("run", "peak", "--budget", "evals=3"), "user_error", "evaluations"),
    (("run", "peak", "--budget", "final=0.1"), "user_error", "budget"),
    (("run", "peak", "--model", "nobody/model"), "user_error", "nobody"),
    (("run", "peak", "--model", "openai/gpt-5"), "user_error", "OPENAI_API_KEY"),
    (("run", "peak", "--models", "missing.toml", "--model", "x"), "user_error", "missing.toml"),
    (("run", "peak", "--set", "embedder=nothing"), "user_error", "hashing"),
    (("run", "peak", "--run-dir", "runs/first"), "user_error", "culmen resume"),
    (("strategies", "polka"), "user_error", "polca"),
    (("status", "frist"), "user_error", "first"),
    (("resume", "nowhere"), "user_error", "first"),
    (("resume", "first", "--set", "backend.gpus=1"), "user_error", "gpu"),
    (("show", "first", "zzzz"), "user_error", "zzzz"),
    (("show", "first", "ffffffffffff0", "--diff", "seed"), "user_error", "ffff"),
    (("runs", "export", "first", "--format", "xml"), "user_error", "jsonl"),
    (("runs", "export", "first"), "user_error", "--out"),
    (("new", "peak"), "user_error", "not empty"),
    (("new", "other", "--example", "circle_paking"), "user_error", "circle_packing"),
    (("new",), "user_error", "DIR"),
]


@pytest.fixture(scope="module")
def faulty(done: Place) -> Place:
    """Broken tasks beside the good one."""
    done.task("wrong_key", toml=TOML.replace("direction", "directon"))
    (done.task("no_seed_file") / "guess.py").unlink()
    (done.task("no_evaluator") / "evaluator.py").unlink()
    return done


@pytest.mark.parametrize(
    ("arguments", "kind", "word"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES]
)
def test_mistakes_say_what_where_and_next(
    faulty: Place, arguments: tuple[str, ...], kind: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    before = sorted(path.name for path in (faulty.root / "runs").iterdir())
    asked = faulty.here(*arguments, "--json")
    assert asked.code == 2
    error = asked.document["error"]
    assert set(error) == {"kind", "what", "where", "next"}
    assert error["kind"] == kind
    assert word in f"{error['what']} {error['where']} {error['next']}"
    assert error["next"] or error["where"]
    assert "Traceback" not in asked.err
    assert sorted(path.name for path in (faulty.root / "runs").iterdir()) == before


def test_words_go_to_standard_error(faulty: Place) -> None:
    told = faulty.culmen("run", "peak", "--strategy", "polka")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("Error: there is no strategy 'polka'; did you mean 'polca'?")
    assert "\n  next   " in told.err
    assert "Traceback" not in told.err


def test_no_runs_yet(place: Place) -> None:
    asked = place.here("status", "--json")
    assert asked.code == 2
    assert "culmen demo" in asked.document["error"]["next"]


def test_run_being_written_is_refused_with_its_process_named(place: Place) -> None:
    place.task("peak")
    assert (
        place.here(
            "run", "peak", "--budget", "evaluations=3", "--run-dir", "runs/mine", "--json"
        ).code
        == 0
    )
    with contextlib.closing(SqlJournal.open(place.root / "runs" / "mine", write=True)) as journal:
        journal.append(
            [Entry("state", body={"state": "interrupted"})]
        )  # one that is finished has nothing to write
        asked = place.culmen("resume", "mine", "--json")
        read = place.here("status", "mine", "--json")
    assert (asked.code, asked.document["error"]["kind"]) == (3, "run_locked")
    assert str(os.getpid()) in asked.document["error"]["what"]
    assert read.code == 0


def test_changed_task_seed_is_a_mismatch_that_names_fork(place: Place) -> None:
    place.task("peak")
    assert (
        place.here(
            "run", "peak", "--budget", "evaluations=6", "--run-dir", "runs/mine", "--json"
        ).code
        == 0
    )
    with contextlib.closing(SqlJournal.open(place.root / "runs" / "mine", write=True)) as journal:
        journal.set_meta(seed=journal.meta.seed + 1)
        journal.append([Entry("state", body={"state": "interrupted"})])
    asked = place.here("runs", "replay", "mine", "--verify", "--json")
    assert (asked.code, asked.document["matches"]) == (4, False)
    assert asked.document["differences"]
    told = place.here("runs", "replay", "mine")
    assert "culmen runs fork mine" in told.out
    words = " ".join(told.out.split())
    assert "its settings, the task or culmen's version differ" in words and "after 0" not in words
    resumed = place.here("resume", "mine", "--json")
    assert (resumed.code, resumed.document["error"]["kind"]) == (4, "journal_mismatch")
    assert "culmen runs fork mine" in resumed.document["error"]["next"]


def test_damaged_journal_can_be_recovered(place: Place) -> None:
    place.task("peak")
    assert (
        place.here(
            "run", "peak", "--budget", "evaluations=6", "--run-dir", "runs/mine", "--json"
        ).code
        == 0
    )
    file = place.root / "runs" / "mine" / "journal.db"
    file.write_bytes(
        file.read_bytes()[: file.stat().st_size // 3]
    )  # of more, all that the log needs may be there
    asked = place.here("show", "mine", "--log", "--all", "--json")
    assert (asked.code, asked.document["error"]["kind"]) == (4, "journal_damaged")


def test_task_whose_seed_fails_has_findings(place: Place) -> None:
    place.task("broken", seed="def run():\n    raise ValueError('no idea')\n")
    asked = place.here("check", "broken", "--json")
    assert (asked.code, asked.document["fit"]) == (1, False)
    assert any("no idea" in finding["what"] for finding in asked.document["findings"])
    told = place.here("check", "broken")
    assert "cannot be searched" in told.out


def test_unknown_isolation_level(faulty: Place) -> None:
    asked = faulty.here("run", "peak", "--require", "vault", "--json")
    assert (asked.code, asked.document["error"]["kind"]) == (2, "user_error")


def test_a_run_whose_own_server_is_down_can_be_resumed_later(place: Place) -> None:
    place.task("peak")
    (place.root / "models.toml").write_text(
        '[providers.dead]\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = ""\nretries = 0\nbase = 0.01\n'
        "patience = 0.05\ntimeout = 2.0\ndeadline = 2.0\n"
    )
    asked = place.culmen(
        "run",
        "peak",
        "--model",
        "dead/any",
        "--models",
        "models.toml",
        "--budget",
        "evaluations=5,calls=5",
        "--run-dir",
        "runs/down",
        "--json",
    )
    assert (asked.code, asked.document["error"]["kind"]) == (1, "no_answer")
    assert "resume" in asked.document["error"]["next"]
    assert place.here("status", "down", "--json").document["state"] == "paused"


def test_reader_that_leaves_is_no_error(done: Place) -> None:
    command = f"{sys.executable} -m culmen.cli.main show first --log --all | head -n 1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=done.root, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_json_knows_no_nan() -> None:
    assert plain_data({"a": [float("nan"), 1.0, float("inf")], 1: ()}) == {
        "a": [None, 1.0, None],
        "1": [],
    }


def test_the_help_of_run_has_panels_with_the_most_used_options_first(place: Place) -> None:
    shown = place.culmen("run", "--help").out
    words = [
        "--model ",
        "--budget ",
        "--strategy ",
        "--set ",
        "─ Further ─",
        "--pool ",
        "--require ",
        "--run-dir ",
    ]
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
    assert len(shown.splitlines()) <= 60
