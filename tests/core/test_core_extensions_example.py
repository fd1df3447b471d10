"""The repository's example package, installed by pip: its folder, judge and page.

They are used in real runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extension("importers", "compat")
PACKAGE = Path(__file__).parents[2] / "examples" / "culmen-contest"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip installs it."""
    folder = tmp_path_factory.mktemp("site")
    source = folder / "source"
    shutil.copytree(PACKAGE, source)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder / "there"), str(source)], check=True
    )
    return folder / "there"


def culmen(site: Path, *words: str, code: int = 0) -> str:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    line = [sys.executable, "-m", "culmen.cli.main", *words]
    done = subprocess.run(
        line, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.jail
def test_a_folder_of_the_extension_is_searched_and_has_its_page(site: Path, tmp_path: Path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    words = ("--budget", "evaluations=24", "--run-dir", str(run), "--seed", "0", "--json")
    answer = json.loads(culmen(site, "run", str(PACKAGE / "sum_of_two"), *words))
    assert answer["best"]["trust"] == "verified" and answer["best"]["score"] >= 0.75
    culmen(site, "report", str(run), "--out", str(page))
    text = page.read_text()
    assert "share of lines that are right" in text
    assert '{"name":"contest","title":"Tests","place":"how"}' in text


def test_without_the_extension_the_folder_is_no_task(site: Path):
    line = [sys.executable, "-m", "culmen.cli.main", "check", str(PACKAGE / "sum_of_two")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "task" in done.stderr


def test_a_test_without_its_output_is_named(site: Path, tmp_path: Path):
    shutil.copytree(PACKAGE / "sum_of_two", tmp_path / "problem")
    (tmp_path / "problem" / "tests" / "zeros.out").unlink()
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-m", "culmen.cli.main", "check", str(tmp_path / "problem")]
    done = subprocess.run(
        line, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "write zeros.out" in done.stderr
