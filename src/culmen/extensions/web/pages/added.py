"""Pages of extensions (slot `pages`) in the dashboard and the report.

A page's document has `blocks`, each a mapping with `kind` and an optional `heading` and `note`:

    facts    `pairs`: [label, value] each; with `lines`, one below the other
    table    `columns`: names; `rows`: lists of texts and numbers, one for each column
    text     `text`: shown in a fixed width
    diff     `before` and `after`: two texts, shown as the lines that changed

In a table with `diagonal`, the number in the n-th column of row n counts what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from culmen.core import extensions
from culmen.core.json import JsonObject
from culmen.extensions.web.runs import Digest

PageMaker = Callable[[Digest, Mapping[str, str]], JsonObject]
"""A function of a run and the parameters in the page's address that returns its document."""


def _applies_always(run: Digest) -> bool:
    return True


@dataclass(frozen=True)
class Page:
    """A page of an extension: its title, the maker of its document, and the place it belongs to.

    Places are the questions of the navigation: `result`, `candidates`, `how`, `cost`, `trust`.
    The navigation has the page only for runs that it `applies` to.
    """

    title: str
    make: PageMaker
    place: str = "how"
    applies: Callable[[Digest], bool] = _applies_always


def added_pages() -> dict[str, Page]:
    """The pages that extensions add, by name."""
    return extensions.all_parts("pages")


def added_titles(run: Digest) -> list[JsonObject]:
    """Name, title and place of each page added to this run, in the order of the navigation."""
    return [
        {"name": name, "title": page.title, "place": page.place}
        for name, page in added_pages().items()
        if page.applies(run)
    ]
