"""The forms of replies: whole texts or edits, one JSON object, several candidates."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import cast

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.json import JsonObject
from culmen.core.replies.candidates import CandidateReader
from culmen.core.replies.doubts import is_placeholder
from culmen.core.replies.fences import only_end, read_blocks
from culmen.core.replies.json_forms import read_objects
from culmen.core.replies.names import NEW_SKILL
from culmen.core.replies.parsed import Draft, Parsed, ReplyFault
from culmen.core.replies.thoughts import answer_in
from culmen.core.task import Task

_HEADING = re.compile(r"^[^\w\n]{0,8}CANDIDATE \d{1,3}[^\w\n]{0,8}$", re.MULTILINE)
# keys that models use for the one text
_TEXTS = ("code", "text", "program", "prompt")


def read_form(form: str, reply: str, task: Task, parent: Candidate | None) -> Parsed:
    """The candidates of a reply in one of the forms text, json, responses, blocks.

    A reply in another form than it was asked for is read, too, where it is plain. Never raises.
    """
    answer = answer_in(reply)
    if answer.doubt:
        detail = "a text stands before a thought and another one after it"
        return Parsed(fault="ambiguous", detail=detail)
    reader = CandidateReader(task, parent)
    if not answer.text.strip():
        return Parsed(fault="unparsable", detail="the reply ended in its thoughts")
    return _READERS[form](answer.text, reader)


def _read_text(text: str, reader: CandidateReader) -> Parsed:
    parsed = reader.read_text(text)
    if parsed.fault == "unparsable" and '"parts"' in text:
        return _from_objects(text, reader) or parsed
    return parsed


def _read_json(text: str, reader: CandidateReader) -> Parsed:
    return _from_objects(text, reader) or reader.read_text(text)


def _from_objects(text: str, reader: CandidateReader) -> Parsed | None:
    """The candidate of the one JSON object with texts of parts, None without any."""
    try:
        found = [(each, texts) for each in read_objects(text) if (texts := _texts_in(each, reader))]
    except ReplyFault as fault:
        return fault.as_parsed()
    if not found:
        return None
    data, texts = found[0]
    if any(other != texts for _, other in found):
        return Parsed(fault="ambiguous", detail=f"{len(found)} JSON objects have texts of parts")
    hypothesis = data.get("hypothesis")
    return reader.draft_of(texts, hypothesis if isinstance(hypothesis, str) else "")


def _texts_in(data: JsonObject, reader: CandidateReader) -> dict[str, str]:
    """The texts under `parts`, by the parts' names, or that of the one part; no placeholders."""
    parts = data.get("parts")
    is_asked = isinstance(parts, dict)
    texts = _named_texts(cast(JsonObject, parts) if is_asked else data, reader, is_asked)
    editable = [name for name in reader.names.editable if name != NEW_SKILL]
    if not texts and len(editable) == 1:
        text = next((data[key] for key in _TEXTS if isinstance(data.get(key), str)), None)
        texts = {} if text is None else {editable[0]: _unfenced_text(str(text))}
    return {} if all(map(is_placeholder, texts.values())) else texts


def _named_texts(
    parts: Mapping[str, object], reader: CandidateReader, strictly: bool = True
) -> dict[str, str]:
    """The texts by part; `strictly` if nothing but parts may be named."""
    texts: dict[str, str] = {}
    for name, text in parts.items():
        part = reader.names.resolve(name)
        if part and isinstance(text, str):
            texts[part] = _unfenced_text(text)
        elif strictly:
            raise ReplyFault("unknown_part", f"{name} is no part with a text")
    return texts


def _read_responses(text: str, reader: CandidateReader) -> Parsed:
    """JSON objects with a candidate and its probability each (TurboEvolve, Appendix A).

    A reply without them gets the fault `not_json`, but programs in fenced blocks are read. What
    broke off at the end of the reply is left out.
    """
    items = [item for each in read_objects(text) for item in _response_items(each)]
    if not items:
        return msgspec.structs.replace(_read_blocks(text, reader), fault="not_json")
    read = [_read_response(item, reader) for item in items]
    drafts = tuple(draft for one in read for draft in one.drafts)
    first = next((one for one in read if one.fault), Parsed())
    fault = first.fault or ("" if drafts else "unparsable")
    return Parsed(drafts, fault=fault, detail=first.detail)


def _response_items(data: JsonObject) -> list[JsonObject]:
    items: object = data.get("responses", [data])
    keys = (*_TEXTS, "parts", "diff")
    listed = cast(list[object], items) if isinstance(items, list) else []
    objects = [cast(JsonObject, item) for item in listed if isinstance(item, dict)]
    return [item for item in objects if any(key in item for key in keys)]


def _read_response(item: JsonObject, reader: CandidateReader) -> Parsed:
    """One candidate; its weight is None if the stated probability is no number in 0..1."""
    diff = item.get("diff")
    try:
        texts = {} if isinstance(diff, str) else _texts_in(item, reader)
    except ReplyFault as fault:
        return fault.as_parsed()
    if isinstance(diff, str):
        found = reader.read_text(diff, must_edit=True)
    elif texts:
        found = reader.draft_of(texts)
    else:
        found = Parsed(fault="unparsable", detail="a response has no text of a part")
    weight = _stated_probability(item.get("probability"))
    return msgspec.structs.replace(
        found, drafts=tuple(Draft(draft.parts, weight) for draft in found.drafts)
    )


def _unfenced_text(text: str) -> str:
    """The text without a fence around all of it."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    blocks = read_blocks(lines, only_end, lambda _: False)
    if len(blocks) != 1 or blocks[0].opening.line != 0 or blocks[0].end != len(lines) - 1:
        return text
    return blocks[0].text


def _stated_probability(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.rstrip("% ")) / (100.0 if "%" in value else 1.0)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= 1.0 else None


def _read_blocks(text: str, reader: CandidateReader) -> Parsed:
    """Several candidates in fenced blocks, under their headings or one after another."""
    pieces = [piece for piece in _HEADING.split(text)[1:] if piece.strip()]
    if pieces:
        return _joined([reader.read_text(piece) for piece in pieces])
    groups = reader.texts.read_groups(text.split("\n"))
    if len(groups) < 2:
        return reader.read_text(text)
    return _joined([reader.draft_of(group) for group in groups])


def _joined(read: list[Parsed]) -> Parsed:
    drafts = tuple(draft for one in read for draft in one.drafts)
    first = next((one for one in read if one.fault), Parsed())
    whole = all(one.whole for one in read)
    return Parsed(drafts, fault=first.fault, detail=first.detail, whole=whole)


_READERS = {
    "text": _read_text,
    "json": _read_json,
    "responses": _read_responses,
    "blocks": _read_blocks,
}
