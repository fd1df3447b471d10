"""Strategies by name and settings, their pages, and the way through a journal and back."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, get_args

import pytest

from culmen.core.errors import UserError
from culmen.core.usage import Budget
from culmen.extensions.agents.cato import Cato
from culmen.extensions.baselines.map_elites import MapElites
from culmen.strategies import catalog
from culmen.strategies.ask_tell import AskTell
from culmen.strategies.memory.priorities import Newest, Quantile, Shuffled, Ucb, UcbSigma
from culmen.strategies.polca import FreshBatch, Polca
from culmen.strategies.settings import About, field_hints
from culmen.strategies.settings import check as check_settings
from culmen.strategies.summarizer import Summarizer
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .optimizers import Counter, HillClimber

NAMES = [name for name in catalog.strategy_paths() if name != "ask_tell"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Polca()),
        (
            {"explore": "3", "epsilon": "0.25", "tau": "0.9"},
            Polca(explore=3, epsilon=0.25, tau=0.9),
        ),
        ({"epsilon": "q0.1", "tau": "q0.5"}, Polca(epsilon=Quantile(0.1), tau=Quantile(0.5))),
        ({"epsilon": "off", "summarizer": "off"}, Polca(epsilon=None, summarizer=None)),
        ({"priority": "ucb(1.5)"}, Polca(priority=Ucb(1.5))),
        ({"priority": "UcbSigma(sigma=0.2, horizon=300)"}, Polca(priority=UcbSigma(0.2, 300))),
        ({"priority": "newest", "ties": "shuffled"}, Polca(priority=Newest(), ties=Shuffled())),
        ({"validation": "fresh_batch", "summarizer": "on"}, Polca(validation=FreshBatch())),
        ({"summarizer": "summarizer(programs=4)"}, Polca(summarizer=Summarizer(programs=4))),
        ({"priority": "culmen.strategies.memory.priorities:Newest"}, Polca(priority=Newest())),
    ],
)
def test_settings_are_texts(settings, expected):
    assert catalog.make_strategy("polca", settings) == expected


def test_names_forgive_case_and_hyphens():
    assert catalog.make_strategy("Map-Elites", {"features": "complexity, speed"}) == MapElites(
        features=("complexity", "speed")
    )


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("polka", {}, "did you mean 'polca'"),
        ("polca", {"exlore": "3"}, "did you mean 'explore'"),
        ("polca", {"explore": "many"}, "a whole number"),
        ("polca", {"explore": "2.5"}, "a whole number"),
        ("polca", {"explore": "0"}, "1 or more"),
        ("polca", {"epsilon": "-1"}, "0 or more"),
        ("polca", {"epsilon": "nan"}, "out of range"),
        ("polca", {"epsilon": "q2"}, "between 0 and 1"),
        ("map_elites", {"batch": "on"}, "a whole number or off"),
        ("polca", {"priority": "best"}, "ucb\\(beta\\)"),
        ("polca", {"priority": "ucb(x)"}, "a number"),
        ("polca", {"priority": "ucb(1, 2)"}, "ucb\\(beta\\)"),
        ("polca", {"priority": "__import__('os').getcwd()"}, "cannot be"),
        ("map_elites", {"exploration": "1.5"}, "from 0 to 1"),
        ("ask_tell", {}, "needs an optimiser"),
        ("nowhere:Thing", {}, "no module 'nowhere'"),
        ("nowhere.py:Thing", {}, "no file"),
        ("json:Thing", {}, "no 'Thing' in json"),
        (":", {}, "does not name a class"),
        ("json:", {}, "does not name a class"),
        (":Thing", {}, "does not name a class"),
    ],
)
def test_mistakes_are_explained(name, settings, complaint):
    with pytest.raises(UserError, match=complaint):
        catalog.make_strategy(name, settings)


def test_no_two_strategies_have_one_title():
    titles = [catalog.describe_strategy(name)["title"] for name in catalog.strategy_paths()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", catalog.strategy_paths())
def test_every_strategy_has_a_page(name):
    assert (Path(__file__).parents[2] / "docs" / "strategies" / f"{name}.md").is_file()
    page = catalog.describe_strategy(name)
    assert page["name"] == name and page["title"] and page["paper"] and len(page["doc"]) > 100
    assert all(
        field["doc"] and field["type"] and field["default"] is not None for field in page["fields"]
    )
    json.dumps(page)


@pytest.mark.parametrize("name", NAMES)
def test_defaults_shown_on_the_page_are_settings_that_give_the_defaults(name):
    page = catalog.describe_strategy(name)
    assert catalog.make_strategy(
        name, {field["name"]: field["default"] for field in page["fields"]}
    ) == catalog.make_strategy(name)


@pytest.mark.parametrize(
    "strategy",
    [
        *(catalog.make_strategy(name) for name in NAMES),
        Polca(
            epsilon=Quantile(0.2), priority=UcbSigma(0.3), summarizer=None, validation=FreshBatch()
        ),
        AskTell(HillClimber, batch=3),
        MapElites(features=("a", "b")),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_strategy_survives_the_journal(strategy):
    written = json.loads(json.dumps(catalog.strategy_config(strategy)))
    assert catalog.revive_object(**written) == strategy


def parts(cls):
    """A class with settings, and those that its settings may name."""
    found = {cls}
    for hint, about in field_hints(cls).values():
        for option in (*about.choices, hint, *get_args(hint)):
            if dataclasses.is_dataclass(option) and option is not Quantile:
                found |= parts(option)
    return found


EVERY = sorted(
    {part for name in catalog.strategy_paths() for part in parts(catalog.strategy_class(name))},
    key=str,
)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_bound_of_a_setting_is_kept(cls):
    needed = {field.name: HillClimber for field in dataclasses.fields(cls) if field.name == "make"}
    for name, (hint, about) in field_hints(cls).items():
        beyond = [
            bound + step
            for bound, step in ((about.least, -1), (about.most, 1))
            if bound is not None
        ]
        infinite = [float("inf")] if beyond and float in (hint, *get_args(hint)) else []
        for value in beyond + infinite:
            with pytest.raises(UserError, match=name):
                cls(**needed, **{name: value})


OWN = """
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated
from culmen.core.brief import Brief
from culmen.strategies.settings import About

@dataclass(frozen=True)
class Patient:
    '''Asks and waits.'''
    repeats: Annotated[int, About("looks per program", least=1)] = 2
    name: str = "patient"

    async def search(self, lab):
        while True:
            for candidate in (await lab.propose(Brief(lab.seeds[0]))).candidates:
                await lab.evaluate(candidate, repeats=self.repeats)
"""


def test_a_strategy_of_your_own_from_a_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    strategy = catalog.make_strategy(f"{file}:Patient", {"repeats": "3"})
    assert strategy.repeats == 3
    written = json.loads(json.dumps(catalog.strategy_config(strategy)))
    assert written == {"path": f"{file}:Patient", "config": {"repeats": 3, "name": "patient"}}
    assert catalog.revive_object(**written) == strategy
    assert [f["default"] for f in catalog.describe_strategy(f"{file}:Patient")["fields"]] == [
        "2",
        "patient",
    ]
    assert (
        simulate(strategy, task(), Landscape(), Budget(evaluations=12)).search.reason
        == "evaluations"
    )


def test_a_strategy_of_your_own_from_a_module_beside_you(tmp_path, monkeypatch):
    (tmp_path / "beside_me.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert catalog.make_strategy("beside_me:Patient").repeats == 2


@dataclass(frozen=True)
class Cooling:
    heat: Annotated[float, About("share of the gain", most=1)] = 0.5


def test_a_range_that_is_open_below_is_named():
    with pytest.raises(UserError) as error:
        check_settings(Cooling(heat=2.0))
    assert error.value.fix == "give a number of 1 or less: share of the gain"


class Loose:
    def __init__(self, n):
        self.n = n

    async def search(self, lab): ...


class Bare:
    async def search(self, lab): ...


def test_an_object_with_hidden_state_has_to_be_passed_again():
    written = catalog.strategy_config(Loose(3))
    assert written["config"] is None
    with pytest.raises(UserError, match="cannot be serialised"):
        catalog.revive_object(**written)
    assert isinstance(catalog.revive_object(**catalog.strategy_config(Bare())), Bare)


@dataclass(frozen=True)
class Holding:
    thing: object = None

    async def search(self, lab): ...


def test_what_cannot_be_journaled_is_named():
    with pytest.raises(UserError, match="setting 'thing' holds dict"):
        catalog.strategy_config(Holding({}))


def test_a_field_that_is_gone_is_named():
    with pytest.raises(UserError, match="'old'"):
        catalog.revive_object("culmen.strategies.polca:Polca", {"old": 1})


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("polca", "polca", {}),
        (
            " polca ( epsilon = off , priority=ucb(1, b=2) ) ",
            "polca",
            {"epsilon": "off", "priority": "ucb(1, b=2)"},
        ),
        ("polca()", "polca", {}),
    ],
)
def test_a_strategy_is_written_with_its_settings(text, name, settings):
    assert catalog.parse_strategy(text) == (name, settings)


@pytest.mark.parametrize(
    "text", ["", "(tau=off)", "polca(tau=off", "polca(tau)", "polca(=1)", "polca(a=1, b)"]
)
def test_what_is_not_written_so_cannot_be_read(text):
    with pytest.raises(UserError, match="cannot read"):
        catalog.parse_strategy(text)


def test_pieces_lie_between_the_commas_outside_of_brackets():
    assert catalog.split_top_level(" a, b(c, d(e, f), g) ,, h ") == ["a", "b(c, d(e, f), g)", "h"]


def test_a_strategy_that_wraps_up_gets_the_score_to_end_at_unless_it_has_another():
    assert catalog.ending_at(Polca(), 3.0) == (Polca(), 3.0) and catalog.ending_at(
        Cato(), None
    ) == (Cato(), None)
    for strategy in (Cato(), Cato(threshold=3.0)):
        assert catalog.ending_at(strategy, 3.0) == (Cato(threshold=3.0), None)
    with pytest.raises(UserError, match=r"threshold is 2\.0, and 3.0 was asked for"):
        catalog.ending_at(Cato(threshold=2.0), 3.0)


def test_values_are_shown_as_they_are_written():
    values = [None, dataclasses.MISSING, Ucb(1.5), Newest(), Quantile(0.1), ("a", "b"), 0.5]
    assert list(map(catalog.value_text, values)) == [
        "none",
        "",
        "ucb(beta=1.5)",
        "newest",
        "q0.1",
        "a, b",
        "0.5",
    ]


def test_a_page_tells_what_may_be_written():
    told = {field["name"]: field["type"] for field in catalog.describe_strategy("polca")["fields"]}
    assert (
        told["explore"] == "a whole number"
        and told["summarizer"] == "summarizer(programs, chars, every) or off"
    )
    assert told["ties"] == "earliest or shuffled or module:Class"


def test_a_function_is_named_by_its_path():
    path = f"{HillClimber.__module__}:{HillClimber.__qualname__}"
    assert catalog.make_strategy("ask_tell", {"make": path}) == AskTell(HillClimber)
    with pytest.raises(UserError, match="module:Class"):
        catalog.make_strategy("ask_tell", {"make": "HillClimber"})


def test_settings_that_there_are_none_of_are_said_to_be_none():
    with pytest.raises(UserError, match="its settings are none"):
        catalog.make_strategy(catalog.path_of(Bare), {"n": "1"})
    with pytest.raises(UserError, match="its settings are make, batch;"):
        catalog.make_strategy("ask_tell", {"n": "1"})


def test_a_module_that_misses_another_one_is_not_said_to_be_missing(tmp_path, monkeypatch):
    (tmp_path / "in_need.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        catalog.find_by_path("in_need:Thing")
    with pytest.raises(UserError, match=r"no module 'nowhere\.inside'"):
        catalog.find_by_path("nowhere.inside:Thing")


def test_a_class_of_the_file_that_runs_is_found_there(tmp_path, monkeypatch):
    """It is not loaded again.

    Its own classes would not be those of the objects that it has made.
    """
    file = tmp_path / "own.py"
    file.write_text(OWN)
    running = ModuleType("__main__")
    running.__file__, running.Patient = str(file), Bare
    monkeypatch.setitem(sys.modules, "__main__", running)
    assert catalog.find_by_path(f"{file}:Patient") is Bare


@pytest.mark.parametrize("name", NAMES)
def test_the_least_and_the_most_of_a_setting_are_legal(name):
    bounds = {
        "batch": "1",
        "lanes": "1",
        "proposals": "1",
        "exploration": "0",
        "beta": "1",
        "rate": "0",
    }
    given = {
        field: text
        for field, text in bounds.items()
        if field in field_hints(catalog.strategy_class(name))
    }
    made = catalog.make_strategy(name, given)
    assert {field: float(getattr(made, field)) for field in given} == {
        field: float(text) for field, text in given.items()
    }


def test_ask_tell_alternates_and_may_end_by_itself():
    run = simulate(AskTell(Counter), task(), Landscape(), Budget(evaluations=100, final=0.0))
    assert run.search.reason == "strategy_done"
    assert len(Counter.told) == 3 and all(len(told) == 1 for told in Counter.told)
