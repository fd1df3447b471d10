"""Python programs in pieces, one for each function or class at the margin.

A child shares most pieces with its parent, and a piece that was parsed before needs no parsing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from culmen.core.foreign import parse_python, parse_python_or_none

ODD_LINES = re.compile(r"[\r\f]")  # Python's parser may count lines differently there
SHORT = 10_000  # characters of the longest piece that is remembered

_HEAD = re.compile(r"^(?:@.*\n)*(?:async +)?(?:def|class)\b", re.M)


@lru_cache(maxsize=16)
def split_pieces(text: str) -> tuple[str, ...]:
    """The text in pieces that are programs by themselves; () if it is not Python.

    Pieces that parse are Python together as well, statement by statement: each begins at the
    margin, with nothing left open before it. If one does not parse (a string holds such a line, an
    `else` follows), the text is one piece.
    """
    if not ODD_LINES.search(text):
        places = [0, *(head.start() for head in _HEAD.finditer(text) if head.start()), len(text)]
        pieces = tuple(text[low:high] for low, high in pairwise(places))
        if all(map(_can_parse, pieces)):
            return pieces
    return (text,) if _can_parse(text) else ()


def parses(text: str) -> bool:
    """True if a text is Python."""
    return bool(split_pieces(text))


def _can_parse(text: str) -> bool:
    return _short_parses(text) if len(text) <= SHORT else parse_python_or_none(text) is not None


@lru_cache(maxsize=8192)
def _short_parses(text: str) -> bool:
    try:
        parse_python(text)
    except SyntaxError:
        return False
    return True
