"""JSON objects in replies, wherever they stand.

Line breaks in strings and commas before a closing bracket are read, too. Of an object that breaks
off or is broken, those inside it that are whole are read; no text is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import cast

from culmen.core.json import JsonObject
from culmen.core.replies.thoughts import without_thoughts

_DECODER = json.JSONDecoder(strict=False)  # line breaks in strings are common
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|,(?=\s*[}\]])', re.DOTALL)


def read_objects(text: str) -> list[JsonObject]:
    """The JSON objects of a text in order, those inside others left out."""
    found: list[JsonObject] = []
    place = text.find("{")
    for _ in range(200 + len(found)):  # opening braces that begin no object: valid replies have few
        if place < 0:
            break
        value, end = _object_at(text, place)
        found += [] if value is None else [value]
        place = text.find("{", place + 1 if value is None else end)
    return found


def _object_at(text: str, place: int) -> tuple[JsonObject | None, int]:
    try:
        value, end = _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return _mended_object(text, place)
    return cast(JsonObject, value), end


def _mended_object(text: str, place: int) -> tuple[JsonObject | None, int]:
    """The object without commas before closing brackets, and its end in the text."""
    end = _matching_end(text, place)
    if end is None:
        return None, place
    mended = _TOKEN.sub(lambda match: "" if match[0] == "," else match[0], text[place:end])
    try:
        return cast(JsonObject, _DECODER.raw_decode(mended)[0]), end
    except (ValueError, RecursionError):
        return None, place


_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)


def _matching_end(text: str, place: int) -> int | None:
    """The end of what the bracket at this place opens, None if it is not closed."""
    depth = 0
    for match in _BRACKET.finditer(text, place):
        depth += (match[0] in "{[") - (match[0] in "}]")
        if depth == 0:
            return match.end()
        if depth > 100:  # of brackets: valid replies nest two levels
            return None
    return None


def find_object(reply: str, is_wanted: Callable[[JsonObject], bool]) -> JsonObject:
    """The last wanted object of a reply without its thoughts, {} if there is none."""
    found = [each for each in read_objects(without_thoughts(reply)) if is_wanted(each)]
    return found[-1] if found else {}
