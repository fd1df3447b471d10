"""Verbs and options of before are answered with the command to type instead."""

from __future__ import annotations

import shlex
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


def test_every_verb_of_before_leads_to_one_of_today() -> None:
    commands: Any = typer.main.get_command(main.make_app())
    for verb in main.VERBS:
        first, *rest = main.current_words([verb])
        assert first in commands.commands
        assert first == "show" or verb == "bench" or rest[0] in commands.commands[first].commands
