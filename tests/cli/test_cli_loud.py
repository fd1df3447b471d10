"""Commands that cannot give a result: the reason in the user's own terms, an exit code.

Each kind of failure has a code of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import SEED, TOML, Place

BROKEN = """\
AREAS = {}


def score(output):
    print("judging", output)
    return AREAS["circle"]
"""
MODELS = """\
[providers.mine]
base_url = "http://127.0.0.1:9/v1"
[models.fast]
provider = "mine"
"""


@pytest.fixture
def broken(tmp_path: Path) -> Place:
    """A folder with a task whose evaluator always raises."""
    task = tmp_path / "peak"
    task.mkdir()
    for name, text in {"task.toml": TOML, "guess.py": SEED, "evaluator.py": BROKEN}.items():
        (task / name).write_text(text)
    return Place(tmp_path)


def test_an_evaluator_that_always_fails_ends_a_run_with_its_traceback_and_code_1(
    broken: Place,
) -> None:
    done = broken.here("run", "peak", "--budget", "30", "--workers", "2")
    assert done.code == 1
    for words in (
        "the initial program gives no score",
        "no model was asked",
        "KeyError: 'circle'",
        'AREAS["circle"]',
        "judging 3.0",
        "correct evaluator.py line 6",
        "culmen check",
    ):
        assert words in done.err, words
    assert "/culmen/evaluate/" not in done.err and "event loop" not in done.err
    told = broken.here("status")
    first, *_ = lines = told.out.splitlines()
    assert (
        first
        == "the initial program gives no score: KeyError: 'circle' (evaluator.py line 6), in 1 of 1 evaluation"
    )
    assert (
        lines[3] == "next: culmen check peak  (correct evaluator.py line 6)"
        and "failed: the initial" in told.out
    )
    assert told.out.count("next") == 1
    assert broken.here("status", "--json").document["state"] == "failed"
    assert [
        line["state"] for line in broken.here("status", "--all", "--json").document["runs"]
    ] == ["failed"]
    assert "=+" not in told.out  # no advice to buy more of the same
    assert broken.here("resume").code == 1
    shown = broken.here(
        "show", next(path.name for path in (broken.root / "runs").iterdir()), "seed"
    )
    assert "judging 3.0" in shown.out


def test_the_same_as_a_document(broken: Place) -> None:
    done = broken.here("run", "peak", "--budget", "evaluations=30", "--json")
    assert done.code == 1 and done.document["error"]["kind"] == "nothing_scored"
    assert "KeyError: 'circle'" in done.document["error"]["what"]


def test_check_shows_what_the_evaluator_printed(broken: Place) -> None:
    done = broken.here("check", "peak")
    assert done.code == 1 and "judging 3.0" in done.out and "evaluator.py line 6" in done.out


DEEP = "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(20))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            f"{DEEP}def f20():\n    return [] < 1\ndef run():\n    return f0()\n",
            "TypeError: '<' not",
        ),
        ("def run():\n    return 3.0\n", "invalid: by the evaluator"),
    ],
)
def test_show_names_the_error_below_a_long_traceback_and_who_refused(
    place: Place, program: str, words: str
) -> None:
    place.task("peak", program, "def score(output):\n    return {'score': None}\n")
    assert place.here("run", "peak", "--budget", "3", "--name", "mine").code == 1
    assert words in place.here("show", "mine", "seed").out


def test_check_of_a_program_that_opens_a_file_outside_names_readable(place: Place) -> None:
    data = place.root / "data.csv"
    data.write_text("1")
    place.task("peak", f"def run():\n    return float(open({str(data)!r}).read())\n")
    done = place.here("check", "peak")
    assert done.code == 1 and "readable" in done.out, done.out


def test_a_search_may_be_told_to_go_on_all_the_same(broken: Place) -> None:
    done = broken.here("run", "peak", "--budget", "evaluations=12", "--set", "allow_failing=on")
    assert (
        done.code == 1
        and "nothing has scored: KeyError" in done.out
        and "next: culmen check peak" in done.out
    )


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (("--iterations", "100"), "--budget evaluations=N"),
        (("--output-dir", "x"), "--run-dir DIR"),
        (("--minimize",), "--direction min"),
        (("--budget", "iterations=100"), "evaluations for iterations"),
    ],
)
def test_other_programs_options_are_answered_with_ours(
    place: Place, options: tuple[str, ...], instead: str
) -> None:
    place.task("peak")
    done = place.here("run", "peak", *options)
    assert done.code == 2 and instead in done.err


def test_every_run_begins_with_the_same_three_lines(done: Place) -> None:
    status, best = done.here("status", "first"), done.here("best", "first")
    lines = status.out.splitlines()[:3]
    assert "initial " in lines[0]
    assert lines[1].startswith("used ") and lines[2].startswith("next: culmen ")
    assert best.err.splitlines()[:3] == lines
    told = done.here("status", "first", "--json").document["summary"]
    assert [told["result"], told["used"], told["next"]] == lines


def test_a_models_file_with_roles_is_used_and_one_without_is_asked_about(place: Place) -> None:
    place.task("peak")
    (place.root / "models.toml").write_text(MODELS)
    done = place.here("run", "peak", "--models", "models.toml", "--budget", "9")
    assert done.code == 2 and "--model fast" in done.err
    (place.root / "models.toml").write_text(MODELS + '[roles]\ndefault = "fast"\n')
    from culmen.models.roles import ModelBook

    assert ModelBook(place.root / "models.toml").roles_text() == "default=fast"


def test_a_folder_with_other_files_takes_no_run(place: Place) -> None:
    before = sorted(place.task("peak").iterdir())
    done = place.here("run", "peak", "--budget", "9", "--run-dir", "peak")
    assert done.code == 2 and "the folder holds other files" in done.err
    assert sorted((place.root / "peak").iterdir()) == before


STRATEGY = """\
class Mine:
    async def search(self, lab):
        await lab.evaluate(lab.seeds[0])
        raise ValueError("not yet written")
"""


def test_a_bug_in_a_users_strategy_is_theirs(place: Place) -> None:
    place.task("peak")
    (place.root / "mine.py").write_text(STRATEGY)
    done = place.here("run", "peak", "--strategy", "mine.py:Mine", "--budget", "9", "--quiet")
    assert (
        done.code == 2
        and "your code raised ValueError" in done.err
        and "mine.py line 4" in done.err
    )
    assert "bug in culmen" not in done.err


def test_a_file_of_the_users_that_is_no_python_is_theirs_too(place: Place) -> None:
    place.task("peak")
    (place.root / "mine.py").write_text("class Mine\n")
    done = place.here("run", "peak", "--strategy", "mine.py:Mine", "--budget", "9")
    assert done.code == 2 and "mine.py" in done.err and "bug in culmen" not in done.err


def test_the_log_says_that_it_shows_the_last(done: Place) -> None:
    log = done.here("show", "first", "--log", "--last", "5")
    assert (
        "the last 5 of " in log.err
        and "culmen show first --log --all" in log.err
        and len(log.out.splitlines()) == 5
    )
    assert "the last" not in done.here("show", "first", "--log", "--all").err


def test_lists_of_runs_break_no_word(place: Place) -> None:
    from culmen.cli.screen import Screen

    wide = [("a-task-with-a-name-that-is-long-1122-185144", "self-reported", "pacevolve_plus_plus")]
    screen = Screen()
    screen.out.width = 50
    with screen.out.capture() as shown:
        screen.print_table(["run", "trust", "strategy"], wide)
    assert all(word in shown.get().split() for word in wide[0])


def test_names_of_runs_fit_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from culmen.core.task import Task
    from culmen.run.plan import reserve_path

    monkeypatch.chdir(tmp_path)
    assert (
        len(reserve_path(Task("a very long name of a task indeed, longer than any line")).name)
        <= 40
    )


def test_runs_of_one_second_never_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from culmen.core.task import Task
    from culmen.run.plan import reserve_path

    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as starting:
        paths = list(starting.map(reserve_path, [Task("area")] * 40))
    assert len(set(paths)) == 40


def test_a_run_has_the_name_that_it_is_given(place: Place) -> None:
    place.task("peak")
    small = ("--budget", "evaluations=4", "--quiet")
    assert place.here("run", "peak", "--name", "ablation-3", *small).code == 0
    assert place.here("status", "ablation-3").code == 0
    again = place.here("run", "peak", "--name", "ablation-3", *small)
    assert again.code == 2 and "there is a run already" in again.err
    assert "no name of a run" in place.here("run", "peak", "--name", "a/b", *small).err
    assert "--run-dir" in place.here("run", "peak", "--name", "a", "--run-dir", "b", *small).err


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "power", "peak", "--gain", "nan"),
        ("audit", "peak", "--seconds", "nan"),
        ("audit", "peak", "--workers", "99999999999"),
        ("check", "peak", "--times", "9" * 30),
        ("demo", "--seconds", "inf"),
    ],
)
def test_a_number_that_nothing_can_use_is_refused(words: tuple[str, ...], broken: Place) -> None:
    answer = broken.here(*words)
    assert answer.code == 2
    assert "no number that can be used" in answer.err and f"{words[-2]}" in answer.err
