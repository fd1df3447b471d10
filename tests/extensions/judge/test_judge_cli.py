"""`culmen judge` and `culmen receipt` in a repository, with real commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Place

PRINTS = "#!/bin/sh\ncat value; echo x >> value; test ! -e refuse\n"


def repository(folder: Path, value: str = "5\n") -> Place:
    """A folder with a committed file `value`, and a script that prints and then spoils it."""
    (folder / "value").write_text(value)
    (folder / "bench.sh").write_text(PRINTS)
    (folder / ".gitignore").write_text("data\nruns\n")
    (folder / "data").mkdir()
    (folder / "data" / "big").write_text("7\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *own, *words], cwd=folder, check=True)
    return Place(folder)


@pytest.mark.parametrize(
    ("value", "code", "verdict"),
    [("6\n", 0, "better"), ("4\n", 1, "worse"), ("5.0\n", 2, "no difference that matters")],
)
def test_an_edit_is_judged_against_the_last_commit(
    tmp_path: Path, value: str, code: int, verdict: str
):
    place = repository(tmp_path)
    (tmp_path / "value").write_text(value)
    done = place.here("judge", "--edit", "value", "--json", "--", "sh", "bench.sh")
    assert (done.code, done.document["verdict"]) == (code, verdict), done.err
    assert done.document["session"]["asks"] == 1
    assert (tmp_path / "value").read_text() == value  # runs had copies of their own


def test_too_few_pairs_cannot_tell_and_say_how_many_more_would(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    done = place.here("judge", "--edit", "value", "--pairs", "4", "--json", "--", "sh", "bench.sh")
    assert (done.code, done.document["verdict"]) == (3, "cannot tell")
    assert 4 <= done.document["more_pairs"] <= 12
    told = place.here("judge", "--edit", "value", "--pairs", "4", "--", "sh", "bench.sh")
    assert "cannot tell (needs about" in told.out and "ask 2 in runs/judge" in told.out


def test_an_edit_that_breaks_the_command_is_worse_and_no_number(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("broken\n")
    done = place.here("judge", "--edit", "value", "--json", "--", "sh", "bench.sh")
    assert (done.code, done.document["after"]) == (1, None)
    assert "it printed no number" in done.document["failure"]
    assert "broken" in done.document["failure"]


def test_before_may_be_a_folder_and_a_file_may_be_new(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "value").write_text("9\n")
    words = ("--edit", "value", "--direction", "min", "--json", "--", "sh", "bench.sh")
    assert place.here("judge", "--against", "old", *words).document["verdict"] == "better"
    (tmp_path / "refuse").write_text("")
    done = place.here(
        "judge", "--edit", "refuse", "--metric", "exit", "--json", "--", "sh", "bench.sh"
    )
    assert (done.code, done.document["verdict"]) == (1, "worse")


def test_what_git_ignores_is_shared_by_both_sides(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    command = "echo $(($(cat data/big) + $(cat value)))"
    done = place.here("judge", "--edit", "value", "--json", "--", "sh", "-c", command)
    assert (done.document["before"], done.document["after"]) == (12.0, 13.0)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--edit", "value"), "are needed"),
        (("--", "true"), "are needed"),
        (("--edit", "bench.sh", "--", "true"), "the same before and after"),
        (("--edit", "value", "--against", "nowhere", "--", "true"), "no revision 'nowhere'"),
        (("--edit", "value", "--", "sh", "-c", "echo own words >&2; exit 3"), "own words"),
        (("--edit", "value", "--", "echo", "none"), "it printed no number"),
        (("--edit", "value", "--", "no-such-program-here"), "no-such-program-here"),
        (("--edit", "value", "--gain", "much", "--", "true"), "'much' is not a gain"),
        (("--edit", "value", "--metric", "(a)(b)", "--", "true"), "has 2 groups"),
        (("--edit", "../value", "--", "true"), "lies outside"),
        (("--nonsense",), "No such option"),
    ],
)
def test_mistakes_have_a_code_that_is_no_verdict(tmp_path: Path, words: tuple[str, ...], what: str):
    folder = tmp_path / "repository"
    folder.mkdir()
    place = repository(folder)
    (folder / "value").write_text("6\n")
    done = place.here("judge", *words)
    assert done.code == 64 and what in done.err


def test_a_hold_out_has_the_last_word_and_is_not_named(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    hidden = "sh -c 'echo 1'"
    done = place.here(
        "judge", "--edit", "value", "--confirm", hidden, "--json", "--", "sh", "bench.sh"
    )
    assert (done.code, done.document["verdict"]) == (2, "no difference that matters")
    assert "echo 1" not in (tmp_path / "runs/judge/1.json").read_text() + done.out


def test_a_hold_out_that_fails_tells_nothing_of_itself(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    hidden = "sh -c 'echo hidden; exit 3'"
    done = place.here("judge", "--edit", "value", "--confirm", hidden, "--", "sh", "bench.sh")
    assert done.code == 64 and "the hold-out fails without the edit" in done.err
    assert "hidden" not in done.out + done.err


def test_all_asks_of_a_session_share_one_rate_of_error(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    words = ("judge", "--edit", "value", "--pairs", "1", "--json")
    assert place.here(*words, "--", "sh", "bench.sh").code == 3
    done = place.here(*words, "--error", "0.4", "--", "sh", "bench.sh")
    assert done.code == 64 and "share the rate of error 0.01" in done.document["error"]["what"]


def test_every_ask_of_a_session_has_a_smaller_share_of_its_error_rate(tmp_path: Path):
    place = repository(tmp_path)
    (tmp_path / "value").write_text("6\n")
    words = ("judge", "--edit", "value", "--pairs", "1", "--json", "--", "sh", "bench.sh")
    shares = [place.here(*words).document["session"]["error_of_this_ask"] for _ in range(4)]
    assert shares == [0.01 / (k * (k + 1)) for k in (1, 2, 3, 4)]


def verify_elsewhere(receipt: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program beside a receipt without culmen: isolated Python, another folder."""
    shutil.copy(receipt.with_name("verify.py"), folder / "verify.py")
    line = [sys.executable, "-I", "-S", str(folder / "verify.py"), str(receipt)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def changed(receipt: Path, change: Any) -> Path:
    """A copy of a receipt with a change."""
    document = json.loads(receipt.read_text())
    change(document)
    new = receipt.with_name("changed.json")
    new.write_text(json.dumps(document))
    return new


def test_a_stranger_checks_the_receipt_of_a_judgement(tmp_path: Path):
    folder, elsewhere = tmp_path / "repository", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    place = repository(folder)
    (folder / "value").write_text("6\n")
    place.here("judge", "--edit", "value", "--", "sh", "bench.sh")
    assert place.here("receipt", "1").code == 0
    receipt = folder / "1.receipt.json"
    done = verify_elsewhere(receipt, elsewhere)
    assert done.returncode == 0 and "better, gain within [[0.1" in done.stdout, done.stderr
    new = changed(receipt, lambda d: d["comparisons"][0]["pairs"][2].update(after=7.0))
    done = verify_elsewhere(new, elsewhere)
    assert done.returncode == 1 and "refused: it was changed" in done.stderr


def test_the_receipt_of_a_run_has_its_journal(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    place.here("run", "peak", "--budget", "evaluations=20", "--name", "first", "--quiet")
    made = place.here("receipt", "first", "--json")
    assert (made.code, made.document["verdict"]) == (0, "better"), made.err
    receipt, elsewhere = place.root / "first.receipt.json", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert verify_elsewhere(receipt, elsewhere).returncode == 0

    def cut(document: dict[str, Any]) -> None:
        from culmen.extensions.judge import verify

        del document["journal"]["rows"][-1]
        del document["seal"]
        document["seal"] = verify.digest(document)

    done = verify_elsewhere(changed(receipt, cut), elsewhere)
    assert done.returncode == 1 and "the journal is not whole" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["polca", "best_of_n", "turboevolve", "beam", "sequential"])
def test_receipts_of_runs_by_five_strategies_pass_elsewhere(tmp_path: Path, strategy: str):
    place, elsewhere = Place(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.task("peak")
    for seed in ("1", "2", "3", "4"):
        words = ("--budget", "evaluations=30", "--seed", seed, "--name", f"run{seed}", "--quiet")
        place.here("run", "peak", "--strategy", strategy, *words)
        made = place.here("receipt", f"run{seed}")
        assert made.code == 0 or "no winner beside its initial program" in made.err, made.err
        receipt = tmp_path / f"run{seed}.receipt.json"
        assert made.code or verify_elsewhere(receipt, elsewhere).returncode == 0


def test_verify_is_one_screen_and_a_half_of_the_standard_library():
    from culmen.extensions.judge import verify

    assert len(Path(verify.__file__).read_text().splitlines()) <= 150
