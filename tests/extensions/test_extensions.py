"""Each extension's README names its purpose, its needs and the place of its tests."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest

from tests.layout import rules
from tests.present import EXTENSIONS

FOLDER = rules.SOURCE / "extensions"
FIELDS = ("For", "Status", "Extra of the package", "Imports of other extensions", "Tests", "Pages")


def readme(name: str) -> dict[str, str]:
    """The fields of an extension's README."""
    text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^- ([\w ]+): (.+)$", text, re.M))


@pytest.mark.parametrize("name", EXTENSIONS)
def test_a_readme_has_its_fields_and_names_what_exists(name: str):
    fields = readme(name)
    assert tuple(fields) == FIELDS
    assert (
        fields["Tests"] == f"`tests/extensions/{name}`"
        and (rules.ROOT / "tests/extensions" / name).is_dir()
    )
    assert all((rules.ROOT / page).exists() for page in fields["Pages"].split(", "))
    extras = tomllib.loads((rules.ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(re.findall(r"`([\w-]+)`", fields["Extra of the package"])) - {"reproduce"} <= set(
        extras
    )


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_an_extension_imports_of_others_is_what_its_readme_names(name: str):
    graph = rules.imports(rules.trees())
    own = f"culmen.extensions.{name}"
    others = {
        target.split(".")[2]
        for module, targets in graph.items()
        if f"{module}.".startswith(f"{own}.")
        for target in targets
        if target.startswith("culmen.extensions.") and not f"{target}.".startswith(f"{own}.")
    }
    assert others == set(re.findall(r"`(\w+)`", readme(name)["Imports of other extensions"]))


def test_every_extension_is_registered_and_tested():
    project = tomllib.loads((rules.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    registered = project["entry-points"]["culmen.extensions"]
    assert registered == {
        name: f"culmen.extensions.{name}.extension:EXTENSION" for name in EXTENSIONS
    }
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert folders == set(EXTENSIONS)


def test_the_contracts_are_three():
    contracts = configparser.ConfigParser()
    contracts.read(rules.ROOT / ".importlinter")
    assert (
        sum(section.startswith("importlinter:contract:") for section in contracts.sections()) == 3
    )


def test_the_path_of_an_extension_has_no_other_folder_beside_the_rooms():
    rooms = {
        path.name
        for path in Path(rules.SOURCE).iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    assert len(rooms - {"extensions"}) <= 14
