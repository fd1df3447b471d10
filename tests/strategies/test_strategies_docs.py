"""The code in the documentation of strategies runs, and keeps the rules that stand beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from culmen.strategies import catalog
from culmen.strategies.ask_tell import AskTell
from culmen.strategies.settings import hints
from culmen.testing import strategy_kit as kit
from culmen.testing.landscape import task

DOCS = Path(__file__).parents[2] / "docs" / "strategies"


def code(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def loaded(tmp_path, page, name):
    file = tmp_path / "example.py"
    file.write_text(code(page)[0])
    return catalog.load(f"{file}:{name}")


def test_the_strategy_of_your_own_passes_the_kit(tmp_path):
    kit.check_repeatable(loaded(tmp_path, "index.md", "TwoLooks")(), task(), kit.ROUGH)
    kit.check_kill_points(loaded(tmp_path, "index.md", "TwoLooks")(), task(), kit.NOISY)


def test_the_optimiser_of_your_own_runs(tmp_path):
    kit.check_repeatable(AskTell(loaded(tmp_path, "ask_tell.md", "Climber")), task(), kit.NOISY)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_every_setting_is_on_the_page(name):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    table = "\n".join(line.partition(" | ")[0] for line in page.splitlines() if line.startswith("| `"))
    for field in hints(catalog.load(name)):
        assert f"`{field}`" in table, f"{field} is not in the table of {name}.md"
