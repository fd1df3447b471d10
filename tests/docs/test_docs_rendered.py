"""Rendered pages keep their text, and the whole site builds without a warning."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, name

markdown = pytest.importorskip("markdown")
_CONFIG = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
_EXTENSIONS = yaml.safe_load(_CONFIG)["markdown_extensions"]
_SYNTAX = (
    r"<!--.*?-->",  # comments
    r"^:::.*$",  # documentation that is put in from docstrings
    r"^ *!!! \w+",  # the kind of an admonition
    r"^ *```\w*.*$",  # fences with their language
    r"^ *\d+\. ",  # numbers of a list
    r"!\[[^\]]*\]\([^)\s]+\)",  # pictures with their texts
    r"\]\([^)\s]+\)",  # targets of links
)


def words(text: str) -> Counter[str]:
    """Count of each word of a text; a word is a run of letters and digits of any script."""
    return Counter(re.findall(r"\w+", text))


def rendered(source: str) -> str:
    """A page as a reader sees it, without tags."""
    names = [next(iter(item)) if isinstance(item, dict) else item for item in _EXTENSIONS]
    page = re.sub(
        r"</?span[^>]*>", "", markdown.markdown(source, extensions=names)
    )  # colours of code
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def lost(source: str) -> Counter[str]:
    """Words of a Markdown text that its page does not show."""
    shown = re.sub("|".join(_SYNTAX), " ", source, flags=re.M)
    return words(shown) - words(rendered(source))


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(ROOT / "docs")], ids=name)
def test_no_word_of_a_page_is_lost_in_rendering(page: Path):
    assert lost(page.read_text(encoding="utf-8")) == Counter()


def test_a_word_in_braces_that_an_extension_would_eat_is_noticed(monkeypatch: pytest.MonkeyPatch):
    table = "| a |\n|---|\n| Q ← {θ₀} |\n"
    assert lost(table) == Counter()
    monkeypatch.setattr("tests.docs.test_docs_rendered._EXTENSIONS", ["tables", "attr_list"])
    assert lost(table) == Counter({"θ₀": 1})


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    api = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    assert "optimize" in api and "Budget" in api and "class Lab" not in api.partition("<body")[0]
