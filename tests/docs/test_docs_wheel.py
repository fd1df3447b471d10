"""Contents of the wheel: all of src/culmen, and the pages that messages name.

Of culmen.testing it holds the kits only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

KITS = {
    "backend_kit",
    "landscape",
    "memory_kit",
    "scripted",
    "strategy_kit",
    "virtual",
}
HOME = "https://example.org/culmen"


def test_no_test_server_is_installed_with_culmen():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/culmen"]}
    found = {path.stem for path in (ROOT / "src/culmen/testing").rglob("*.py")} - {"__init__"}
    assert found == KITS


def test_nothing_that_is_installed_imports_a_test():
    for path in sorted((ROOT / "src/culmen").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "\nfrom tests" not in text and "\nimport tests" not in text, path


def test_pages_that_messages_name_exist():
    for path in sorted((ROOT / "src/culmen").rglob("*.py")):
        for page in re.findall(r"culmen docs ([a-z_/]+)", path.read_text(encoding="utf-8")):
            assert (ROOT / f"docs/{page}.md").is_file() or page == "skill", (
                f"{path}: culmen docs {page}"
            )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a release from a copy of the sources, whose address is set."""
    folder = tmp_path_factory.mktemp("release")
    ask = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.split("\0")
    wanted = [
        name for name in listed if name.startswith(("src/", "docs/", "plugins/")) or "/" not in name
    ]
    for name in filter(lambda name: (ROOT / name).is_file(), wanted):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    settings = (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert 'repository = ""' in settings
    (folder / "pyproject.toml").write_text(
        settings.replace('repository = ""', f'repository = "{HOME}"')
    )
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(
        build, cwd=folder, check=True, capture_output=True, env={"CULMEN_RELEASE": "1", "PATH": ""}
    )
    return next((folder / "dist").glob("*.whl"))


@pytest.mark.slow
def test_the_page_of_the_package_has_absolute_addresses_and_links(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        about = Parser().parsestr(archive.read(name).decode())
    text = str(about.get_payload())
    targets = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text)
    assert pictures and all(
        re.fullmatch(rf"{HOME}/raw/v[\d.]+/docs/img/[\w.-]+", target) for target in pictures
    )
    assert "<!--" not in text
    links = dict(line.split(", ", 1) for line in about.get_all("Project-URL", []))
    assert set(links) == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(link.startswith(HOME) for link in links.values())
    assert "Programming Language :: Python :: 3.14" in about.get_all("Classifier", [])
    assert about["Author"] and about["License-Expression"] == "Apache-2.0"


@pytest.mark.slow
def test_the_wheel_alone_shows_its_pages(wheel: Path, tmp_path: Path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    ask = [
        sys.executable,
        "-c",
        "import sys; from culmen.cli.main import main; sys.exit(main(sys.argv[1:]))",
        "docs",
    ]
    for page, words in (
        ("tasks", "task.toml"),
        ("strategies/polca", "polca"),
        ("skill", "Keep the evaluator honest"),
    ):
        ran = subprocess.run(
            [*ask, page],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0 and words in ran.stdout, ran.stderr
    assert (
        not list((tmp_path / "culmen/docs").rglob("*.png"))
        and (tmp_path / "culmen/py.typed").is_file()
    )


@pytest.mark.slow
def test_a_release_without_an_address_is_refused(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    made = subprocess.run(
        build, cwd=ROOT, env={"CULMEN_RELEASE": "1"}, capture_output=True, text=True, check=False
    )
    assert made.returncode and "a release needs" in made.stderr
