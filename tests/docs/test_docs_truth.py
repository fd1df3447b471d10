"""Names in the documentation exist: links, headings, verbs, options, settings.

So do exit codes, dependencies and pages.
"""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from culmen import __version__
from culmen.cli import main, verbs
from culmen.core import errors
from culmen.core.options import RUN_SETTINGS
from culmen.core.usage import Budget
from culmen.strategies import catalog
from tests.docs import idea
from tests.docs.pages import PAGES, ROOT, anchors, commands, inline, links, name

APP = typer.main.get_command(main.make_app())
_EVERYWHERE = {"--help", "-h", "--version", "-V"}


def options(command: Any) -> set[str]:
    """All spellings of a command's options."""
    return {
        text
        for p in command.params
        for text in (*p.opts, *p.secondary_opts)
        if text.startswith("-")
    }


def every_option(command: Any) -> set[str]:
    """Those of a command and of all below it."""
    return options(command).union(*map(every_option, getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path):
    for target in links(page):
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.exists(), f"{name(page)} links to {target}"
        assert not anchor or anchor in anchors(place), (
            f"{name(page)} links to {target}: no such heading"
        )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_command_lines_name_verbs_and_options_that_exist(page: Path):
    for words in commands(page):
        if words[0].startswith("-") or words[0].isupper():  # culmen --version; culmen VERB
            continue
        command, rest = APP, list(words)
        while hasattr(command, "commands"):
            if isinstance(command, verbs.VerbWithViews) and (
                not rest or rest[0] not in command.commands
            ):
                break
            verb = rest.pop(0) if rest else ""
            assert verb in command.commands, f"{name(page)}: culmen {' '.join(words)}"
            command = command.commands[verb]
        own = rest[: rest.index("--")] if "--" in rest else rest  # a command comes behind it
        given = {word.partition("=")[0] for word in own if word.startswith("-")}
        assert given <= options(command) | _EVERYWHERE, f"{name(page)}: culmen {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_and_budgets_in_command_lines_can_be_read(page: Path):
    for words in commands(page):
        pairs = list(pairwise(words))
        for _, budget in (pair for pair in pairs if pair[0] == "--budget"):
            Budget.parse(budget)
        usual = "cato" if "--agent" in words else "polca"
        strategy = next((value for option, value in pairs if option == "--strategy"), usual)
        settings = [value.partition("=")[0] for option, value in pairs if option == "--set"]
        if settings and strategy in catalog.strategy_paths() and "NAME" not in settings:
            known = {
                field["name"] for field in catalog.describe_strategy(strategy)["fields"]
            } | RUN_SETTINGS.keys()
            own = {setting for setting in settings if not setting.startswith("backend.")}
            assert own <= known, f"{name(page)}: culmen {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_in_running_text_exist(page: Path):
    known = every_option(APP) | _EVERYWHERE
    named = {
        code.split()[0].partition("=")[0] for code in inline(page) if re.match(r"--[a-z]", code)
    }
    assert named <= known, f"{name(page)} names {named - known}"


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = re.findall(r"[\w/]+\.md", str(nav))
    assert sorted(listed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")
    )


def test_every_dependency_has_its_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.match(r"[\w-]+", line)[0] for line in wanted} - {"culmen"}  # pyright: ignore[reportOptionalSubscript]
    page = (ROOT / "docs/decisions/dependencies.md").read_text()
    first_cells = re.findall(r"^\| (`.+?) \|", page, re.M)
    assert {found for cell in first_cells for found in re.findall(r"`([\w-]+)`", cell)} == names


def test_every_exit_code_is_explained():
    found, kinds = {0, 1, main.BUG, verbs.INTERRUPTED}, [errors.CulmenError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        found.add(kind.exit_code)
    page = (ROOT / "docs/troubleshooting.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)} == found


def test_the_changelog_knows_this_version():
    assert re.search(
        rf"^## \[?{re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M
    )


def test_the_dashboard_explains_words_as_the_glossary_does():
    """The hint of a heading in the dashboard begins like the word's line in the glossary."""
    terms = (ROOT / "src" / "culmen" / "extensions" / "web" / "static" / "terms.js").read_text()
    shown = {
        name.strip('"'): text
        for name, text in re.findall(r'^  ("[^"]+"|\w+): "(.*)",$', terms, re.MULTILINE)
    }
    lines = re.findall(
        r"^\| (.+?) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    meanings = {word.strip(" *`"): text for words, text in lines for word in words.split(",")}
    shared = shown.keys() & meanings.keys()
    assert len(shared) >= 12
    for word in shared:
        assert re.split(r"[,:;(]", shown[word])[0].strip() in meanings[word], word


@pytest.mark.slow
def test_the_life_of_an_idea_is_what_a_run_asks_today() -> None:
    """`python -m tests.docs.idea --write` makes the page anew."""
    assert idea.page() == idea.PAGE.read_text(encoding="utf-8")
