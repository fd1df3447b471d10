"""The records of papers beside `papers.toml`: every printed cell, every contender's setting."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from culmen.extensions.bench.reproduce import places
from culmen.extensions.bench.reproduce.results import (
    Panel,
    Series,
    _highest_so_far,
    _normal_value,
    printed_marks,
)

GOLDEN = tomllib.loads(Path(__file__).with_name("papers.toml").read_text(encoding="utf-8"))
PLAN = [
    "tasks",
    "contenders",
    "budget",
    "seeds",
    "workers",
    "each_case",
    "budgets",
    "models",
    "embedder",
]


def differences(papers: dict[str, places.Paper]) -> list[str]:
    """Places and experiments whose record differs from `papers.toml`."""
    found: list[str] = []
    for paper in papers.values():
        wanted = GOLDEN["experiments"][paper.name]
        for name in {*wanted, *paper.experiments}:
            plan = paper.experiments.get(name)
            said = {} if plan is None else {key: getattr(plan, key) for key in PLAN}
            blank = msgspec.structs.replace(plan, **EMPTY) if plan else None
            if said != {
                key: _plain(wanted.get(name, {}).get(key, getattr(blank, key, None)))
                for key in PLAN
            }:
                found.append(f"{paper.name}: {name}")
        for place in paper.places:
            where = f"{paper.name}/{place.name}"
            columns = GOLDEN["printed"].get(where, {})
            if columns != cells_by_column(place):
                found.append(where)
            if place.repeats != GOLDEN["repeats"].get(where, 1):
                found.append(f"{where}: {place.repeats} trials")
    return found


EMPTY = {"seeds": 3, "workers": None, "each_case": 0, "budgets": {}, "models": "", "embedder": ""}


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def cells_by_column(place: places.PaperPlace) -> dict[str, dict[str, str]]:
    """Printed cells of a place, by column and row."""
    columns = {
        head: {row: cells[n] for row, cells in place.printed.items()}
        for n, head in enumerate(place.printed_heads)
    }
    return columns | ({"reported": place.reported} if place.reported else {})


def test_every_printed_cell_and_every_setting_is_the_papers() -> None:
    assert differences(places.known_papers()) == []
    assert all(
        plan["section"] for paper in GOLDEN["experiments"].values() for plan in paper.values()
    )
    known = {f"{paper.name}/{each.name}" for paper, each in places.find_places("all")}
    assert {*GOLDEN["printed"], *GOLDEN["repeats"]} <= known


@pytest.mark.parametrize(
    ("paper", "right", "wrong", "names"),
    [
        (  # two rows exchanged
            "polca",
            'GEPA = ["0.695 ± .010"]\nOpenEvolve = ["0.738 ± .010"]',
            'GEPA = ["0.738 ± .010"]\nOpenEvolve = ["0.695 ± .010"]',
            "polca/table2",
        ),
        (
            "polca",
            "explore=5, batch=2, epsilon=off",
            "explore=5, batch=1, epsilon=off",
            "polca: tau_parts",
        ),
        ("polca", "interval=20, rate=0.1, top=3", "interval=20, rate=0.02, top=3", "polca: tau"),
        (
            "polca",
            'show = "final"\nrepeats = 10',
            'show = "final"\nrepeats = 1',
            "polca/table1: 1 trials",
        ),
        (  # two columns exchanged
            "turboevolve",
            '["printed, Gemini-2.5-Flash", "Gemini-3-Flash"]',
            '["Gemini-3-Flash", "printed, Gemini-2.5-Flash"]',
            "turboevolve/table1",
        ),
        ("polca", "threshold=0.5), lanes=1", "threshold=0.2), lanes=1", "polca: hotpotqa"),
        ("turboevolve", "turboevolve(preset=paper)", "turboevolve", "turboevolve: tasks"),
        (
            "turboevolve",
            '"evaluations=800"\nseeds = 3',
            '"evaluations=800"\nseeds = 1',
            "turboevolve: tasks",
        ),
        ("cato", "agents=10", "agents=1", "cato: problems"),
    ],
)
def test_a_wrong_record_is_named(paper: str, right: str, wrong: str, names: str) -> None:
    file = Path(places.__file__).with_name(f"{paper}.toml")
    text = file.read_text(encoding="utf-8")
    assert right in text
    changed = msgspec.toml.decode(text.replace(right, wrong), type=places.Paper)
    assert names in differences({paper: changed})


def test_the_highest_attained_never_falls_and_minimisation_counts() -> None:
    course = [(1.0, 0.4), (2.0, 0.6), (3.0, 0.5)]
    assert _highest_so_far(course, "max") == [(1.0, 0.4), (2.0, 0.6), (3.0, 0.6)]
    assert _highest_so_far(course, "min") == [(1.0, 0.4), (2.0, 0.4), (3.0, 0.4)]


def test_a_normalised_line_is_not_filled_backwards() -> None:
    line = Series("POLCA", (4.0, 8.0), (1.0, 3.0))
    assert [_normal_value(line, mark, [1.0, 5.0]) for mark in (3.9, 4.0, 8.0, 20.0)] == [
        None,
        0.0,
        0.5,
        0.5,
    ]


def test_printed_figures_are_marks_without_blanks() -> None:
    texts = ("0.888 ± .023", "$10.99", "—", "-")
    assert printed_marks("abcd", texts) == (("a", 0.888), ("b", 10.99))


def test_a_method_has_one_colour_in_all_places_of_a_paper_and_no_other_has_it() -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    from culmen.extensions.bench.reproduce.drawing import method_colours

    shared = dict[str, set[str]]()
    for paper in places.known_papers().values():
        found = method_colours(
            label for plan in paper.experiments.values() for label in plan.contenders
        )
        assert len(set(found.values())) == len(found) and "black" not in found.values()
        for name, colour in found.items():
            shared.setdefault(name, set()).add(colour)
    assert all(len(shared[name]) == 1 for name in ("OpenEvolve", "GEPA", "POLCA"))
    pools = ["all programs: kmeans", "bottom 80%: kmeans"]
    assert list(method_colours(pools)) == ["kmeans"]


def test_a_cost_that_is_not_counted_is_said_and_a_hidden_line_is_wider() -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    from culmen.extensions.bench.plots import panel_figure
    from culmen.extensions.bench.reproduce.drawing import _draw_panel, method_colours

    _, (left, right) = panel_figure(2, "")
    colours, absent = method_colours(["CATO", "GEPA", "POLCA"]), {"CATO": "not counted"}
    printed = {"CATO": (("CATO", 10.99),), "GEPA": (("GEPA", 25.43),)}
    bars = (Series("GEPA", ("GEPA",), (0.02,)),)
    _draw_panel(
        left, Panel("", "", "dollars", bars, bars=True, printed=printed, absent=absent), colours
    )
    assert [each.get_text() for each in left.get_xticklabels()] == ["CATO", "GEPA"]
    assert {"not counted", "0.02"} <= {each.get_text() for each in left.texts}
    marks = [
        line.get_ydata()[0]
        for line in left.lines
        if line.get_marker() == "D" and len(line.get_xdata())
    ]
    assert sorted(marks) == [10.99, 25.43]

    same = [Series(label, (1.0, 2.0), (0.5, 0.5)) for label in ("GEPA", "POLCA")]
    _draw_panel(right, Panel("", "dollars", "score", tuple(same), absent=absent), colours)
    assert right.lines[0].get_linewidth() > right.lines[1].get_linewidth()
    assert "CATO: dollars not counted" in right.get_legend_handles_labels()[1]
