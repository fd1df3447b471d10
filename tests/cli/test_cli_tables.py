"""Tables of verbs: their order in the help, and those that other packages add."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from culmen import core
from culmen.cli import first_page
from culmen.cli.main import EXTENSION_OF, make_app
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable, declare_tables
from culmen.core.errors import UserError
from culmen.core.extensions import installed_extensions
from tests.present import EXTENSIONS

from .conftest import Place

PANELS = {
    "Start": "demo new check audit judge import",
    "Search": "run resume prompt",
    "Look at a run": "status best story show receipt report ui compare",
    "About": "doctor docs help strategies templates mcp",
}
GROUPS = {
    "runs": "watch stop tell fork export track replay recover archive vacuum db pool advisor",
    "skill": "mine tools",
    "paper": "reproduce",
    "compare": "analyze power score",
    "import": "algotune llm4ad",
}
FIRST = (
    "demo new check audit run resume prompt status best story report ui compare doctor docs help"
)


def named(app: typer.Typer) -> dict[str, str]:
    """The words of each panel, in the order of the help."""
    found: dict[str, list[str]] = {}
    for entry in (*app.registered_commands, *app.registered_groups):
        found.setdefault(str(entry.rich_help_panel), []).append(str(entry.name))
    return {panel: " ".join(names) for panel, names in found.items()}


def test_the_help_has_the_verbs_of_all_parts_in_one_order() -> None:
    panels = named(make_app())
    assert {panel: panels[panel] for panel in PANELS} == PANELS
    commands: Any = typer.main.get_command(make_app())
    assert {name: set(commands.commands[name].commands) for name in GROUPS} == {
        name: set(words.split()) for name, words in GROUPS.items()
    }


@pytest.mark.parametrize("columns", ["80", "100"])
def test_the_first_page_has_sixteen_verbs(place: Place, columns: str) -> None:
    page = place.culmen("--help", COLUMNS=columns).out.splitlines()
    assert len(page) <= 45 and not any(len(line) > int(columns) for line in page)
    assert [line.split()[0] for line in page if re.match(r"  [a-z]", line)] == FIRST.split()
    assert place.culmen().out.splitlines() == page


def test_the_first_page_says_of_each_verb_what_its_own_help_begins_with(place: Place) -> None:
    listed = {
        row["verb"]: row["help"] for row in place.here("help", "--all", "--json").document["verbs"]
    }
    for name, text in (pair for verbs in first_page.VERBS.values() for pair in verbs.items()):
        assert listed[name] == text


def test_the_first_page_and_the_version_import_no_verb(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['culmen', sys.argv[1]]; from culmen.__main__ import main; "
        "main(); print(*sys.modules)"
    )
    for word in ("--help", "--version"):
        words = [sys.executable, "-c", code, word]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        loaded = done.stdout.splitlines()[-1].split()
        assert not {"typer", "rich", "msgspec", "culmen.cli.main"} & set(loaded)


def test_all_verbs_are_listed_by_group(place: Place) -> None:
    listed = [row["verb"] for row in place.here("help", "--all", "--json").document["verbs"]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {
        "compare",
        *(word for words in PANELS.values() for word in words.split() if word not in GROUPS),
        *(f"{group} {word}" for group, words in GROUPS.items() for word in words.split()),
    }
    shown = place.culmen("help", "--all").out
    assert (
        all(f"  {words} " in shown for words in listed) and max(map(len, shown.splitlines())) <= 80
    )


def one(screen: Screen) -> Answer:
    """A verb."""
    return Answer(None)


def two(screen: Screen) -> Answer:
    """Another verb."""
    return Answer(None)


def three(screen: Screen) -> Answer:
    """A third verb."""
    return Answer(None)


def test_tables_are_joined_by_panel_and_place() -> None:
    app = typer.Typer()
    tables = (
        VerbTable("A", (one, two), {"last": ("", {"one": one})}),
        VerbTable("B"),
        VerbTable("C", groups={"c": ("", {"two": two})}),
        VerbTable("A", (three,), {"first": ("", {"one": one})}, after="one"),
        VerbTable("A", groups={"end": ("", {"one": one})}, after="of no panel"),
    )
    declare_tables(app, tables)
    assert named(app) == {"A": "one three two first last end", "C": "c"}


def test_a_word_stands_for_one_verb() -> None:
    with pytest.raises(UserError, match="'one'"):
        declare_tables(
            typer.Typer(),
            (VerbTable("A", (one,)), VerbTable("B", groups={"one": ("", {"two": two})})),
        )


CODE = """
from culmen.cli.screen import Answer
from culmen.cli.verbs import VerbTable
from culmen.core.extensions import Extension

def greet(screen, name: str) -> Answer:
    \"\"\"Greet somebody.\"\"\"
    return Answer({"hello": name}, lambda screen: screen.print_line(f"hello {name}"))

VERBS = VerbTable("Greetings", (greet,))
EXTENSION = Extension(name="greetings", verbs={"greetings": "culmen_greetings:VERBS"})
"""


def install(folder: Path, code: str) -> None:
    """A package `culmen_greetings` with an extension."""
    (folder / "culmen_greetings.py").write_text(code)
    metadata = folder / "culmen_greetings-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: culmen-greetings\nVersion: 1\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[culmen.extensions]\ngreetings = culmen_greetings:EXTENSION\n"
    )


def culmen(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "culmen.cli.main", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_package_adds_a_verb(tmp_path: Path) -> None:
    install(tmp_path, CODE)
    assert "greet" not in culmen(tmp_path, "--help").stdout
    assert "Greetings\n  greet " in culmen(tmp_path, "help", "--all").stdout
    assert culmen(tmp_path, "greet", "Ann").stdout == "hello Ann\n"
    assert '"hello": "Ann"' in culmen(tmp_path, "greet", "Ann", "--json").stdout


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import nonsense", "nonsense"),
        (CODE.replace("greet", "status").replace("_statusings", "_greetings"), "'status'"),
    ],
)
def test_a_package_that_breaks_the_verbs_is_named(tmp_path: Path, code: str, what: str) -> None:
    install(tmp_path, code)
    asked = culmen(tmp_path, "help", "--all")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert what in asked.stderr
    assert "Traceback" not in asked.stderr and "uninstall" in asked.stderr
    assert culmen(tmp_path, "status", "--help").returncode == 0, (
        "culmen's own verbs work all the same"
    )


def test_a_verb_is_found_without_the_others() -> None:
    for words in (
        "run",
        "mcp",
        "audit",
        "show",
        "runs fork",
        "runs pool",
        "runs db",
        "skill tools",
        "compare power",
    ):
        group, _, verb = words.rpartition(" ")
        commands: Any = typer.main.get_command(make_app(*words.split()))
        assert list(commands.commands) == [group or verb]
        assert not group or list(commands.commands[group].commands) == [verb]
    code = "import sys; from culmen.cli.main import main; main(['status', '--help']); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "culmen.cli.look" in loaded
    assert not {
        "numpy",
        "sqlite3",
        "culmen.extensions.audit",
        "culmen.cli.search",
        "culmen.extensions.mcp",
    } & set(loaded)


def test_a_verb_with_views_takes_a_first_word_that_is_no_view_as_its_own(done: Place) -> None:
    compared = done.here("compare", "first", "--json")
    assert compared.code == 0 and "tasks" in compared.document
    assert done.here("compare", "analyze", "first", "--json").document["groups"]
    assert done.here("compare", "--json").code == 2
    shown = done.here("compare", "analyze", "--help").out
    assert "Usage: culmen compare analyze" in shown
    assert "─ Views ─" in done.here("compare", "--help").out


def test_a_verb_that_is_not_there_names_its_extension(tmp_path: Path) -> None:
    package = Path(core.__file__).parents[1]
    shutil.copytree(
        package, tmp_path / "culmen", ignore=shutil.ignore_patterns("extensions", "__pycache__")
    )
    for words, extension in (
        (["ui"], "web"),
        (["runs", "track"], "trackers"),
        (["paper", "reproduce"], "bench"),
    ):
        line = [sys.executable, "-m", "culmen.cli.main", *words]
        done = subprocess.run(
            line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
        )
        assert done.returncode == 2 and f"the extension '{extension}' has it" in done.stderr


@pytest.mark.extension(*EXTENSIONS)
def test_every_verb_of_an_extension_names_it() -> None:
    found = {
        word: extension.name
        for extension in installed_extensions()
        for words in extension.verbs
        if (word := words.split()[1 if words.startswith("runs ") else 0])
        if extension.name in EXTENSIONS
    }
    assert found == EXTENSION_OF
