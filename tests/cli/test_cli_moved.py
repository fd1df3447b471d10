"""Verbs and options of before are answered with the command to type instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from culmen.cli import main

from .conftest import Place

MOVED = {
    "watch a": "runs watch a",
    "fork a --budget evaluations=+100": "runs fork a --budget evaluations=+100",
    "db list db:": "runs db list db:",
    "pool show 'my file.json'": "runs pool show 'my file.json'",
    "mine logs --out house": "skill mine logs --out house",
    "reproduce polca/table1 --toy": "paper reproduce polca/table1 --toy",
    "bench polca --seeds 3": "compare --suite polca --seeds 3",
    "score a best --split test": "compare score a best --split test",
    "compare bench polca --seeds 3": "compare --suite polca --seeds 3",
    "show a --follow": "runs watch a",
    "log a -f": "runs watch a",
    "diff": "show --diff seed",
    "log a --follow": "runs watch a",
    "diff a": "show a --diff seed",
    "diff a 0a1b": "show a --diff 0a1b",
    "diff a 0a1b best": "show a best --diff 0a1b",
    "lineage a 0a1b": "show a 0a1b --lineage",
    "explain a 12": "show a 12 --explain",
    "log -n 5": "show --log -n 5",
    "fork --help": "runs fork --help",
    "run . --embedder local:m --allow-failing": "run . --set embedder=local:m --set allow_failing=on",
    "run . --integrity=stop": "run . --set integrity=stop",
    "run . --ray-address auto --backend-set cpu=2,memory=1GB": (
        "run . --set backend.address=auto --set backend.cpu=2 --set backend.memory=1GB"
    ),
    "resume a --backend-set wait=9": "resume a --set backend.wait=9",
    "fork a --integrity reject": "runs fork a --set integrity=reject",
    "prompt p.txt c.csv --templates mine": "prompt p.txt c.csv --set templates=mine",
}


@pytest.mark.parametrize(("before", "today"), MOVED.items(), ids=list(MOVED))
def test_the_command_of_today_is_named_with_its_arguments(
    place: Place, before: str, today: str
) -> None:
    asked = place.here(*shlex.split(before))
    assert (asked.code, asked.out) == (2, "")
    assert asked.err.startswith("Error: ") and asked.err.endswith(f"\n  next   culmen {today}\n")
    again = shlex.split(today)
    assert main.current_words(again) == again


def test_it_is_a_document_with_json(place: Place) -> None:
    error = place.here("watch", "a", "--json").document["error"]
    assert error == {
        "kind": "usage",
        "what": "'culmen watch' has another name now",
        "where": "",
        "next": "culmen runs watch a --json",
    }


def test_help_of_a_verb_of_before_leads_to_todays(place: Place) -> None:
    assert "culmen runs fork --help" in place.here("help", "fork").err


def test_verbs_that_have_options_of_such_names_keep_them(place: Place) -> None:
    words = ["paper", "reproduce", "polca/table1", "--embedder", "hashing"]
    assert main.current_words(words) == words
    words = ["check", ".", "--proxy", "never"]
    assert main.current_words(words) == words


def test_a_run_of_that_name_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.current_words(["compare", "bench", "b"])[1] == "--suite"
    (tmp_path / "runs" / "bench").mkdir(parents=True)
    assert main.current_words(["compare", "bench", "b"]) == ["compare", "bench", "b"]


@pytest.mark.parametrize(
    "gone", [*main.GONE, "nightly", "db migrate", "advisor chat", "log --starts"]
)
def test_what_is_gone_is_answered_with_a_sentence_and_a_command(place: Place, gone: str) -> None:
    asked = place.here(*gone.split(), "a")
    what, command = asked.err.removeprefix("Error: ").rstrip().split("\n  next   ")
    assert (asked.code, asked.out) == (2, "")
    assert (what, command) in main.GONE.values()


def test_every_verb_of_before_leads_to_one_of_today() -> None:
    root: Any = typer.main.get_command(main.make_app())
    answers = "; ".join(command for _, command in main.GONE.values())
    told = re.findall(r"culmen ((?:[a-z]+ ?)+)", answers)
    moved = (" ".join(main.current_words([verb])) for verb in main.VERBS)
    for words in (*told, *(found for found in moved if found not in main.GONE)):
        found = root
        for word in words.partition(" --")[0].split():
            if hasattr(found, "commands"):
                found = found.commands[word]
        assert found is not root, words


def test_no_verb_or_option_of_today_is_told_to_be_gone() -> None:
    root: Any = typer.main.get_command(main.make_app())
    for gone in main.GONE:
        found = root
        for word in gone.split():
            found = found.commands.get(word) if hasattr(found, "commands") else found
            if found is None:
                break
        options = {name for each in getattr(found, "params", ()) for name in each.opts}
        assert found is None or not options.issuperset(re.findall("--[a-z]+", gone)), gone
