"""Several candidates in one reply: as JSON with a stated probability each (TurboEvolve, Appendix A), or as blocks."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.task import Task
from culmen.core.wording import fence
from culmen.prompts import blocks
from culmen.prompts.formats import Draft, Format, Parsed, Rewrite, drafted, edited, part_names, read_json
from culmen.prompts.template import Templates

_HEADING = re.compile(r"^[^\w\n]{0,8}CANDIDATE \d{1,3}[^\w\n]{0,8}$", re.MULTILINE)
_TEXTS = ("code", "text", "program", "prompt")  # what models call the one text, whatever they were told


class Verbalized:
    """One JSON object, `responses`: objects with `code` (or `parts` by name) and `probability`; K candidates a reply.

    Broken JSON is repaired; a response that broke off at the end of the reply is left out. A reply without such an
    object gets the fault `not_json`, but programs in fenced blocks are still understood.
    """

    name = "verbalized"

    def samples(self, k: int) -> int:
        return 1

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        fields, meaning = self.fields(part_names(task, parent))
        return templates.fill("verbalized", k=str(k), fields=fields, meaning=meaning)

    def fields(self, names: tuple[str, ...]) -> tuple[str, str]:
        """The fields of a response beside its probability, and what they mean."""
        if len(names) == 1:
            return '"code": "..."', f'"code" is the complete new text of {names[0]}, as a JSON string without fences.'
        inside = ", ".join(f'{json.dumps(name)}: "..."' for name in names)
        told = '"parts" holds the new text of each part that changes, whole; parts you leave out stay as they are.'
        return f'"parts": {{{inside}}}', told

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        items, whole = _responses(blocks.without_thoughts(reply))
        if not items:
            found = Blocks().parse(reply, task, parent)
            return msgspec.structs.replace(found, fault="not_json", whole=found.whole and whole)
        if not whole and "probability" not in items[-1]:
            items = items[:-1]  # the reply ended inside it
        read = [_response(item, task, parent) for item in items]
        drafts = tuple(draft for one in read for draft in one.drafts)
        fault = next((one.fault for one in read if one.fault), "" if drafts else "unparsable")
        return Parsed(drafts, fault=fault)


class VerbalizedDiff(Verbalized):
    """The same with SEARCH/REPLACE edits of the parent in `diff`; without a parent, whole texts are asked for."""

    name = "verbalized_diff"

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        if parent is None:
            return super().instructions(templates, task, parent, k)
        names = part_names(task, parent)
        meaning = '"diff" is a JSON string of edits of the current candidate, one after the other, each of the form\n\n'
        meaning += fence(
            (f"=== {names[0]} ===\n" if len(names) > 1 else "")
            + "<<<<<<< SEARCH\nlines copied exactly\n=======\nlines that take their place\n>>>>>>> REPLACE\n"
        )
        return templates.fill("verbalized", k=str(k), fields='"diff": "..."', meaning=meaning + "\n")


class Blocks:
    """K candidates in fenced blocks, each under its heading; for models that cannot keep to JSON."""

    name = "blocks"

    def samples(self, k: int) -> int:
        return 1

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        names = part_names(task, parent)
        example = "\n\n".join(fence("...", f"{task.surface.language} {name}".strip()) for name in names)
        return templates.fill("blocks", k=str(k), example=example)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = blocks.without_thoughts(reply), part_names(task, parent)
        pieces = [piece for piece in _HEADING.split(text)[1:] if piece.strip()]
        if pieces:
            read = [Rewrite().parse(piece, task, parent) for piece in pieces]
        else:
            read = [
                drafted({n: b.text for n, b in group.items()}, "", task.surface, parent, all(_closed(group)))
                for group in _groups(blocks.read_blocks(text, names)[1], names, task.surface.language)
            ]
        if not read:
            return Rewrite().parse(reply, task, parent)
        kept = [one for one in read if one.whole]
        drafts = tuple(draft for one in kept for draft in one.drafts)
        return Parsed(drafts, fault=next((one.fault for one in read if one.fault), ""), whole=bool(drafts))


def _responses(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The objects of a reply, and whether it was whole."""
    bare = text.lstrip().startswith("[")  # the list alone
    data, whole = read_json(f'{{"responses": {text}}}' if bare else text)
    whole = whole and (not bare or text.rstrip().endswith("]"))
    if isinstance(data, dict):
        data = data.get("responses", [data])
    items = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    return [item for item in items if any(key in item for key in (*_TEXTS, "parts", "diff"))], whole


def _response(item: dict[str, Any], task: Task, parent: Candidate | None) -> Parsed:
    """One candidate; its weight is what was stated, None where that is no probability."""
    names, diff = part_names(task, parent), item.get("diff")
    if isinstance(diff, str) and parent is not None:
        found = edited(diff, task.surface, parent) if "SEARCH" in diff else Parsed(fault="diff_mismatch")
    else:
        texts = _texts(item, names)
        found = drafted(texts, "", task.surface, parent, True) if texts else Parsed(fault="unparsable")
    weight = _probability(item.get("probability"))
    return msgspec.structs.replace(found, drafts=tuple(Draft(draft.parts, weight) for draft in found.drafts))


def _texts(item: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    parts = item.get("parts")
    if isinstance(parts, dict):
        return {name: _bare(text) for name, text in parts.items() if name in names and isinstance(text, str)}
    text = next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), None)
    return {names[0]: _bare(text)} if text is not None and len(names) == 1 else {}


def _bare(text: str) -> str:
    """The text without a fence around all of it."""
    if not text.lstrip().startswith(("```", "~~~")):
        return text
    before, found = blocks.read_blocks(text.strip())
    return found[0].text if len(found) == 1 and not before else text


def _probability(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.rstrip("% ")) / (100.0 if "%" in value else 1.0)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= 1.0 else None


def _groups(found: list[blocks.Block], names: tuple[str, ...], language: str) -> list[dict[str, blocks.Block]]:
    """Blocks as candidates where no headings say which is which: a part that comes again begins the next one."""
    if len(names) == 1:
        likely = [b for b in found if b.name or b.tag == language.lower()] or [b for b in found if not b.tag]
        return [{names[0]: block} for block in likely]
    groups: list[dict[str, blocks.Block]] = []
    for block in found:
        if block.name and (not groups or block.name in groups[-1]):
            groups.append({})
        if block.name:
            groups[-1][block.name] = block
    return groups


def _closed(group: dict[str, blocks.Block]) -> list[bool]:
    return [block.closed for block in group.values()]


SEVERAL: dict[str, Format] = {form.name: form for form in (Verbalized(), VerbalizedDiff(), Blocks())}
