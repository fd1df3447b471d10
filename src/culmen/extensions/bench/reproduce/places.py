"""Places of papers as records: runs to make, analysis, printed figures, and what differs.

One TOML file beside this module describes one paper. An experiment is a set of runs; places share
experiments, so that a run is made once for all of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from culmen.core.errors import UserError

Kind = Literal[
    "final",
    "course",
    "normalised",
    "shares",
    "picks",
    "best",
    "analysis",
    "costs",
    "training",
    "metrics",
]
"""Kinds of analysis (`results.ANALYSES`)."""


class Toy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An experiment at toy size; empty fields stay those of the experiment.

    `stand_in` replaces the tasks by that number of tasks that need no tool and no time; `cases`
    limits the data set to its first cases of each split.
    """

    budget: str
    seeds: int = 2
    tasks: tuple[str, ...] = ()
    stand_in: int = 0
    cases: int = 0
    contenders: dict[str, str] = {}
    budgets: dict[str, str] = {}


class ExperimentPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs of contenders on tasks under budgets.

    `contenders` maps the paper's name to a strategy as `culmen compare` reads it, `budgets`
    names those with a budget of their own. `each_case` makes one task of each of the first cases.
    `models` and `embedder` are the paper's, in words.
    """

    tasks: tuple[str, ...]
    contenders: dict[str, str]
    budget: str
    toy: Toy
    seeds: int = 3
    workers: int | None = None
    each_case: int = 0
    budgets: dict[str, str] = {}
    models: str = ""
    embedder: str = ""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cases of a split, `first` to before `last`, that make one column of a table."""

    name: str
    first: int = 0
    last: int | None = None


class PaperPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table or a figure of a paper.

    `axis` is the axis of a course, `measure` a metric, a share or an analysis; `repeats` and
    `columns` belong to the final measurement, `printed` holds the paper's figures by contender,
    under `printed_heads`, `reported` those of other papers' methods by task and method. Scores of
    the tasks `square_roots` are shown as their square roots, in the paper's unit. `note` says where
    printed figures come from if they are no table's.
    """

    name: str
    title: str
    experiments: tuple[str, ...]
    show: Kind
    axis: str = "evaluations"
    measure: str = ""
    repeats: int = 1
    columns: tuple[Column, ...] = ()
    contenders: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    printed_heads: tuple[str, ...] = ()
    printed: dict[str, tuple[str, ...]] = {}
    reported: dict[str, str] = {}
    square_roots: tuple[str, ...] = ()
    note: str = ""
    differs: tuple[str, ...] = ()


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paper: its title, experiments by name, and places by name."""

    name: str
    title: str
    experiments: dict[str, ExperimentPlan]
    places: tuple[PaperPlace, ...]
    differs: tuple[str, ...] = ()


@cache
def known_papers() -> dict[str, Paper]:
    """All papers by name, in a fixed order."""
    folder = Path(__file__).parent
    order = ("polca", "turboevolve", "cato", "pacevolve_plus_plus")
    texts = {name: (folder / f"{name}.toml").read_text(encoding="utf-8") for name in order}
    return {name: msgspec.toml.decode(text, type=Paper) for name, text in texts.items()}


def find_places(wanted: str) -> list[tuple[Paper, PaperPlace]]:
    """The places of a text: `PAPER/PLACE`, `PAPER`, or `all`; UserError for any other."""
    papers = known_papers()
    if wanted == "all":
        return [(paper, place) for paper in papers.values() for place in paper.places]
    name, _, which = wanted.strip("/").partition("/")
    if name not in papers:
        raise UserError(
            f"there is no paper '{name}'",
            where="culmen paper reproduce",
            fix=f"use one of {', '.join(papers)}; culmen paper reproduce lists their places",
        )
    found = [place for place in papers[name].places if which in ("", place.name)]
    if not found:
        there = ", ".join(place.name for place in papers[name].places)
        raise UserError(
            f"there is no place '{which}' of {name}",
            where="culmen paper reproduce",
            fix=f"one of {there}",
        )
    return [(papers[name], place) for place in found]
