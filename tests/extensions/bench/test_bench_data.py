"""Made-up data are named in every table with scores of a task.

They are not where real files are given.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from culmen import tasks as taskfiles
from culmen.extensions.bench.reproduce import places, running
from culmen.extensions.bench.reproduce.making import make_place
from culmen.extensions.web.pages.overview import head_page
from culmen.extensions.web.runs import Digest
from culmen.store import views
from tests.cli.conftest import TOML, Place

DATA = '\n[data]\nfiles = ["data/tides.csv", "data/tides.npz"]\ngenerated = "made-up tides"\n'
NAMED = "peak (made-up tides)"
BENCH = (
    "compare",
    "--tasks",
    "peak",
    "--strategies",
    "best_of_n",
    "--budget",
    "evaluations=6",
)


def tables(place: Place) -> dict[str, str]:
    """The output of each command about a bench's two runs of the task."""
    made = place.here(*BENCH, "--seeds", "2")
    assert made.code == 0, made.err
    runs = sorted(str(file.parent) for file in place.root.rglob("journal.db"))
    commands = {
        "compare analyze": runs,
        "compare": runs,
        "compare score": [runs[0]],
        "status": [runs[0]],
    }
    found = {name: place.here(*name.split(), *words) for name, words in commands.items()}
    for name, done in found.items():
        assert done.code == 0, (name, done.err)
    return {name: done.out for name, done in found.items()} | {"made": made.out}


def test_made_up_data_are_named_in_every_table_and_kept_with_the_run(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak", toml=TOML + DATA)
    for name, text in tables(place).items():
        assert "made-up tides" in text.replace("\n", " "), (name, text)
    (run, *_) = (file.parent for file in tmp_path.rglob("journal.db"))
    assert head_page(Digest(run), {})["task"] == NAMED
    (tmp_path / "peak" / "data").mkdir()
    (tmp_path / "peak" / "data" / "tides.npz").write_bytes(b"")
    assert views.run_status(run).task_label == NAMED  # the run is of before
    assert views.run_status(run).task == "peak"


def test_with_a_real_file_nothing_is_named(tmp_path: Path):
    place = Place(tmp_path)
    folder = place.task("peak", toml=TOML + DATA)
    (folder / "data").mkdir()
    (folder / "data" / "tides.npz").write_bytes(b"")
    for name, text in tables(place).items():
        assert "peak" in text or name == "status", (name, text)
        assert "made-up" not in text, (name, text)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("eplb", "expert-load.json", "generated loads"),
        ("kuairec", "interactions.npz", "a generated log"),
    ],
)
def test_the_built_in_tasks_name_their_made_up_data(
    name: str, file: str, words: str, tmp_path: Path
):
    source = taskfiles.example_path(name)
    assert taskfiles.load(source).label == f"{name} ({words})"
    for each in source.iterdir():
        if each.is_file():
            (tmp_path / each.name).write_bytes(each.read_bytes())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / file).write_bytes(b"")
    assert taskfiles.load(tmp_path).label == name


@pytest.mark.jail
def test_a_place_names_made_up_data_in_its_table_and_panels(tmp_path: Path):
    (pair,) = places.find_places("turboevolve/table1")
    paper, place = pair
    folder = Place(tmp_path).task(
        "circle_packing", toml=TOML.replace("peak", "circle_packing") + DATA
    )
    experiments = {
        name: msgspec.structs.replace(
            plan, toy=msgspec.structs.replace(plan.toy, tasks=(str(folder),))
        )
        for name, plan in paper.experiments.items()
    }
    paper = msgspec.structs.replace(paper, experiments=experiments)
    conditions = running.Conditions(tmp_path / "out", toy=True, seeds=1, budget="evaluations=6")
    shown = make_place(paper, place, conditions, lambda line: None).shown
    assert shown.rows and all(
        row[0].startswith("circle_packing (made-up tides)") for row in shown.rows
    )
    assert [panel.title for panel in shown.panels] == ["circle_packing (made-up tides)"]
