"""The code in the documentation of strategies runs, and keeps the rules beside it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from culmen.strategies import catalog
from culmen.strategies.ask_tell import AskTell
from culmen.strategies.settings import field_hints
from culmen.testing import strategy_kit as kit
from culmen.testing.landscape import task

DOCS = Path(__file__).parents[2] / "docs" / "strategies"


def code(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def loaded(tmp_path, page, name):
    file = tmp_path / "example.py"
    file.write_text(code(page)[0])
    return catalog.strategy_class(f"{file}:{name}")


def test_the_strategy_of_your_own_passes_the_kit(tmp_path):
    kit.check_repeatable(loaded(tmp_path, "../extending.md", "Climb")(), task(), kit.ROUGH)
    kit.check_kill_points(loaded(tmp_path, "../extending.md", "Climb")(), task(), kit.NOISY)


def test_the_optimiser_of_your_own_runs(tmp_path):
    kit.check_repeatable(AskTell(loaded(tmp_path, "ask_tell.md", "Climber")), task(), kit.NOISY)


def table(name):
    """The settings on a strategy's page: what stands there as the default, and the meaning."""
    page = (
        (DOCS / f"{name}.md")
        .read_text(encoding="utf-8")
        .partition("| Setting | Default |")[2]
        .partition("\n\n")[0]
    )
    found = {}
    for line in page.splitlines():
        names, default, meaning = (*line.strip("| ").split(" | ", 2), "", "")[:3]
        found |= {field: (default.strip("`"), meaning) for field in re.findall(r"`(\w+)`", names)}
    return found


@pytest.mark.parametrize("name", catalog.strategy_paths())
def test_every_setting_is_on_the_page(name):
    assert not set(field_hints(catalog.strategy_class(name))) - set(table(name))


IN_WORDS = ("the task's", "empty", "—")


@pytest.mark.parametrize("name", catalog.strategy_paths())
def test_the_defaults_on_the_page_are_those_of_the_class(name):
    """Also those of a part, where the page writes all of it: `kmeans_elite(d=0.2, rho=0.2)`."""
    cls, rows = catalog.strategy_class(name), table(name)
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    for field, (hint, about) in field_hints(cls).items():
        written, meaning = rows[field]
        if not written.startswith(IN_WORDS):
            assert catalog.parse_value(hint, about, written) == defaults[field], field
        for part in re.findall(r"`(\w+\(\w+=[^`]+, \w+=[^`]+\))`", meaning):
            assert catalog.parse_value(hint, about, part) == catalog.parse_value(
                hint, about, part.partition("(")[0]
            ), part
