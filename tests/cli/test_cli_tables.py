"""Tables of verbs: their order in the help, and those that other packages add."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from culmen.cli.main import make_app
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable, declare_tables
from culmen.core.errors import UserError

PANELS = {
    "Start": "demo new check power mine nightly tools audit import",
    "Search": "run prompt resume fork worker queue",
    "Look at a run": "status best score story show diff lineage explain log report",
    "Attend to a run": "watch ui stop tell mcp",
    "Compare runs": "analyze bench compare reproduce",
    "Keep a run": "export track replay recover archive vacuum db pool advisor",
    "About": "strategies templates doctor docs",
}


def named(app: typer.Typer) -> dict[str, str]:
    """The words of each panel, in the order of the help."""
    found: dict[str, list[str]] = {}
    for entry in (*app.registered_commands, *app.registered_groups):
        found.setdefault(str(entry.rich_help_panel), []).append(str(entry.name))
    return {panel: " ".join(names) for panel, names in found.items()}


def test_the_help_has_the_verbs_of_all_parts_in_one_order() -> None:
    assert named(make_app()) == PANELS
    assert list(named(make_app())) == list(PANELS)


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
        declare_tables(typer.Typer(), (VerbTable("A", (one,)), VerbTable("B", groups={"one": ("", {"two": two})})))


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
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: culmen-greetings\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[culmen.extensions]\ngreetings = culmen_greetings:EXTENSION\n")


def culmen(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "culmen.cli.main", *words],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_another_package_adds_a_verb(tmp_path: Path) -> None:
    install(tmp_path, CODE)
    assert "Greetings" in culmen(tmp_path, "--help").stdout
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
    asked = culmen(tmp_path, "--help")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert what in asked.stderr
    assert "Traceback" not in asked.stderr and "uninstall" in asked.stderr
    assert culmen(tmp_path, "status", "--help").returncode == 0, "culmen's own verbs work all the same"


def test_a_verb_is_found_without_the_others() -> None:
    for panel, words in PANELS.items():
        for word in words.split():
            assert named(make_app(word)) in ({panel: word}, PANELS)
    for word in ("run", "mcp", "pool", "audit", "queue"):
        assert list(named(make_app(word)).values()) == [word]
    assert named(make_app("analyse")) == PANELS
    code = "import sys; from culmen.cli.main import main; main(['status', '--help']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "culmen.cli.look" in loaded
    assert not {"numpy", "sqlalchemy", "culmen.audit", "culmen.cli.search", "culmen.mcp"} & set(loaded)
