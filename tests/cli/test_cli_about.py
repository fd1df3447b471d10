"""culmen doctor: the extras of the installed package."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from culmen.store import views

from .conftest import Place

METADATA = """Metadata-Version: 2.4
Name: culmen
Version: 0
Provides-Extra: here
Provides-Extra: half
Requires-Dist: typer>=0.15
Requires-Dist: no-such-package-always>=1
Requires-Dist: typer[all]>=0.1; extra == "here"
Requires-Dist: typer>=0.1; (python_version > "3") and extra == 'half'
Requires-Dist: no-such-package>=1; extra == 'half'
"""


@pytest.mark.slow
def test_doctor_takes_the_extras_from_the_package(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "first" / "culmen-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(METADATA)
    asked = place.culmen("doctor", "--json", PYTHONPATH=str(folder.parent))
    assert asked.document["extras"] == {"here": True, "half": False}
    words = place.culmen("doctor", PYTHONPATH=str(folder.parent)).out
    assert "here   installed" in words and "half   pip install 'culmen[half]'" in words


def test_doctor_knows_every_extra(done: Place) -> None:
    names = importlib.metadata.metadata("culmen").get_all("Provides-Extra")
    assert names and set(done.here("doctor", "--json").document["extras"]) == set(names)


def test_templates_are_written_changed_and_used_and_the_run_keeps_them(place: Place) -> None:
    place.task("peak")
    listed = place.here("templates", "--json").document["templates"]
    assert "$goal" not in listed["improve"] and {"goal", "parent", "attempts", "reply"} <= set(
        listed["improve"]
    )
    assert place.here("templates", "mine").code == 0
    folder = place.root / "mine"
    assert {path.stem for path in folder.iterdir()} == set(listed)
    refused = place.here("templates", "mine")
    assert refused.code == 2 and "not empty" in refused.err
    for path in folder.iterdir():
        if path.name != "improve.md":
            path.unlink()
    run = (
        "run",
        "peak",
        "--set",
        "templates=mine",
        "--budget",
        "evaluations=2",
        "--run-dir",
        "runs/own",
    )
    made = place.here(*run)
    assert made.code == 0 and "templates    improve" in made.err
    assert list(views.run_meta(place.root / "runs" / "own").templates) == ["improve"]
    (folder / "improve.md").write_text("$nothing")
    wrong = place.here(*run[:-1], "runs/wrong")
    assert wrong.code == 2 and "nothing" in wrong.err and "$goal" in wrong.err
