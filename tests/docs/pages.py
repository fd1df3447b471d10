"""The project's Markdown files: blocks of code with marks, links, headings, command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    page
    for place in ("*.md", "docs/**/*.md", "plugins/**/*.md")
    for page in sorted(ROOT.glob(place))
)

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>run|file: (?P<file>[\w./-]+)) -->\n)?```(?P<lang>\w*)\n(?P<body>.*?)^```$",
    re.M | re.S,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_INLINE = re.compile(r"(?<!`)`(?P<code>[^`\n]+)`(?!`)")
_SMALLER = ((r"\bevaluations=\d+", "evaluations=12"), (r"\bseconds=\d+", "seconds=2"))
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is "", run or file: NAME."""

    lang: str
    body: str
    mark: str
    file: str


def name(page: Path) -> str:
    """The name of a page in messages."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """All fenced blocks in their order."""
    return [
        Block(m["lang"], m["body"], m["mark"] or "", m["file"] or "")
        for m in _FENCE.finditer(_text(page))
    ]


def links(page: Path) -> list[str]:
    """Targets of links and images that lie in this project."""
    targets = (m["target"] for m in _LINK.finditer(_prose(page)))
    return [
        target for target in targets if "://" not in target and not target.startswith("mailto:")
    ]


def anchors(page: Path) -> set[str]:
    """Anchors (`#...`) of a page, as Python-Markdown makes them from headings."""
    titles = (m["title"] for m in _HEADING.finditer(_prose(page)))
    plain = (re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in plain}


def inline(page: Path) -> list[str]:
    """All inline code."""
    return [m["code"].replace("\\|", "|") for m in _INLINE.finditer(_prose(page))]


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `culmen` of every command line in shell blocks and inline code."""
    shell = [
        block.body.replace("\\\n", " ") for block in blocks(page) if block.lang in ("sh", "console")
    ]
    lines = [line for body in shell for line in body.splitlines()]
    for line in (*lines, *(code for code in inline(page) if code.startswith("culmen "))):
        for part in re.split(r"&&|;|\|(?!\d)", line.removeprefix("$ ")):
            words = shlex.split(part.replace("...", "").replace("…", ""), comments=True)
            if words and words[0].rpartition("/")[2] == "culmen" and len(words) > 1:
                yield words[1:]


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    return _FENCE.sub("", _text(page))


def cut_budgets(body: str) -> str:
    """A text of code with budgets that suffice to see that it runs."""
    for pattern, smaller in _SMALLER:
        body = re.sub(pattern, smaller, body)
    return body
