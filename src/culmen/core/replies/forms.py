"""The forms of replies: whole texts or edits, one JSON object, several candidates.

Signs that a text is not the one that was meant: words about it, gaps, another form.

JSON objects in replies, wherever they stand.

Line breaks in strings and commas before a closing bracket are read, too. Of an object that breaks
off or is broken, those inside it that are whole are read; no text is guessed.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.foreign import parse_python_or_none, split_pieces
from culmen.core.json import JsonObject
from culmen.core.markers import OutsideBlocks, merge_blocks
from culmen.core.replies import Draft, Parsed, ReplyFault
from culmen.core.replies.edits import (
    Edit,
    Unfit,
    apply_edits,
    begins_edit,
    foreign_line,
    has_edits,
    is_diff,
    quote_line,
    read_diff,
    read_edits,
)
from culmen.core.replies.fences import fence_at, only_end, read_blocks
from culmen.core.replies.names import NEW_SKILL, is_program, part_names, without_empty_skills
from culmen.core.replies.texts import Found, TextReader
from culmen.core.replies.thoughts import answer_in, without_thoughts
from culmen.core.task import Task
from culmen.core.wording import surface_language

_ELIDED = re.compile(
    r"^\W{0,8}(?:\.\.\.|…)[ \t(\[]{1,3}(?:\w+ ){0,3}?"
    r"(?:existing|rest|remaining|remainder|unchanged|same|omitted|previous|original)\b"
    r"|^\W{0,8}(?:the )?(?:rest|remainder|remaining|existing|same)\b[^\n]{0,60}(?:\.\.\.|…"
    r"|\b(?:unchanged|the same|as before|as above|here)\W*$)"
    r"|^\W{0,8}(?:\w+ )?(?:unchanged|keep (?:the )?existing(?: \w+)?)\W*$",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"^\s*(?:#|//|--|/\*|<!--|;|%|\(\*|\.\.\.|…|[\[({].*[\])}]\s*$)")
_DOTS = re.compile(r"[#/\s\[(]*(?:\.\.\.|…)[\])\s]*")
_PLACEHOLDER = re.compile(r"\s*(?:\.\.\.|…|<[\w ]+>)\s*")
_NEWER = r"(?:new|improved|better|revised|updated|final|optimi[sz]ed|rewritten)"
_KINDS = r"(?:prompt|text|version|revision|instructions?|file|skill|document|program|code)"
_FRAME = (
    r"=+ (?:[\w./-]+\.\w+|(?:begin|start|end)\b.*) =+$|[\w./-]+: [|>][+-]?$"
    rf"|\W*(?:begin|start|end) of (?:the )?(?:\w+ )?{_KINDS}\W*$"
)
_OPENING = re.compile(
    rf"{_FRAME}|\W*(?:(?:sure|certainly|of course)\W+)?(?:here(?:'s| is) (?:\w+ ){{1,3}}?)?"
    rf"{_NEWER} (?:\w+ )?{_KINDS}\b[^:.]*:\W*$",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    rf"{_FRAME}|\W*(?:i hope (?:this|that|it)|hope (?:this|that) helps|let me know|feel free to"
    r"|please let me know|would you like me to|if you(?:'d| would) like, i can"
    rf"|this (?:(?:{_NEWER} )?(?:version|revision)|{_NEWER} {_KINDS}) (?:is|now|should|will|\w+s)"
    r"|these changes (?:should|will|make))\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\W*(?:changes made|what (?:i )?changed|why this works|key (?:changes|improvements)"
    r"|summary of changes)\W*(?::|$)",
    re.IGNORECASE,
)
_WRAPPER = re.compile(
    rf"<((?:prompt|answer|text|output|result|response|candidate|code|program|{_NEWER})\w*)>"
    r".*</\1>|(?:\w+ = )?(\"{3}|'{3}|\"|`{1,2}(?!`))(?:(?!\2).)*\2",
    re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"^(?:#include)?[^\"'`#/\n]*&(?:lt|gt|amp|quot|#39);", re.MULTILINE)
_BUILTINS = frozenset(dir(builtins))
_SIGNED = re.compile(r"[ \t]*(?:\d+[ \t]*[|:]|>|\.\.\.[ \t])")


def is_placeholder(text: str) -> bool:
    """True if a text only stands for another one: `...`, `<new text>`."""
    return _PLACEHOLDER.fullmatch(text) is not None


def left_out(new: str, old: str, is_code: bool) -> str:
    """The words that leave out a part of the old text, or ""."""
    known, lines = set(old.split("\n")), new.strip().split("\n")
    for line in lines:
        if line not in known and _COMMENT.match(line) and _ELIDED.match(line):
            return line
    for line in (lines[0], lines[-1]):
        if line not in known and _DOTS.fullmatch(line):
            return line
    if is_placeholder(new) and old.strip():
        return new
    if old.startswith("---\n") and new.strip() and not new.lstrip().startswith("---"):
        return "---"
    return _lost_name(new, old) if is_code else ""


def _lost_name(new: str, old: str) -> str:
    """A name that a Python text uses, and that only the old one defines; or ""."""
    lost = _outer_names(old) - _outer_names(new) - _BUILTINS
    tree = parse_python_or_none(new) if lost else None
    if tree is None:
        return ""
    nodes = list(ast.walk(tree))
    bound = _bound(nodes)
    read = {node.id for node in nodes if isinstance(node, ast.Name) and _is_read(node)}
    return "" if "*" in bound else min(lost & read - bound, default="")


def _outer_names(text: str) -> set[str]:
    """The names that a Python text binds at its margin; none for any other text."""
    return {name for piece in split_pieces(text) for name in _piece_names(piece)}


@lru_cache(maxsize=1024)
def _piece_names(text: str) -> frozenset[str]:
    tree = parse_python_or_none(text)
    return frozenset(_bound(tree.body) if tree else ())


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _bound(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """The names that definitions, imports, assignments and parameters bind."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Name) and not _is_read(node):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
    return names


def doubt_about(new: str, old: str, is_code: bool) -> str:
    """The doubt that a text is the intended one, or ""."""
    lines = [line for line in new.split("\n") if line.strip()] or [""]
    first, last = lines[0], lines[-1]
    if not old.lstrip().startswith("{") and old.strip() and _is_object(new):
        return "is a JSON object"
    if "\\n" in new and len(lines) == 1 and "\n" in old.strip():
        return "has its line breaks written as \\n"
    if all(map(_SIGNED.match, lines)) and not _SIGNED.match(old):
        return f"has numbers or signs before its lines: {quote_line(first)}"
    if is_code:
        entity = None if "&" not in new or "</" in new else _ENTITY.search(new)
        if entity and not _ENTITY.search(old):
            return f"has HTML entities for signs: {quote_line(entity[0])}"
        if fence_at(first) and not old.lstrip().startswith(first.strip()):
            return f"begins with a fence: {quote_line(first)}"
        return ""
    if _WRAPPER.fullmatch(new.strip()) and not _WRAPPER.fullmatch(old.strip()):
        return f"stands between tags or quotes: {quote_line(first)}"
    words = [line for line in lines if _CHANGES.match(line)]
    words += [first] if _OPENING.match(first.strip()) else []
    words += [last] if _CLOSING.match(last.strip()) else []
    words = [line for line in words if line.strip() not in old]
    return f"may hold words to the reader: {quote_line(words[0])}" if words else ""


def _is_object(text: str) -> bool:
    text = text.strip()
    found = read_objects(text) if text.startswith("{") and text.endswith("}") else []
    return len(found) == 1 and text.count('"') > 1


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


# Candidates from the texts and edits of a reply, by the rules of the task.

_EDIT_HERE = "\0edit"  # a line that stands for those of an edit


class CandidateReader:
    """Reader of one candidate from a text that is the answer of a reply, LF as line ends."""

    def __init__(self, task: Task, parent: Candidate | None) -> None:
        self._task, self._parent = task, parent
        self._language = surface_language(task)
        self.names = part_names(task, parent)
        self.texts = TextReader(task, parent, self.names)

    def read_text(self, text: str, *, must_edit: bool = False) -> Parsed:
        """The candidate of edits, of a diff, or of whole texts unless it `must_edit`."""
        lines = _lf(text).split("\n")
        before = "" if must_edit else _first_prose(lines)
        try:
            edits = self._edits(lines)
            if edits:
                return self._edited(lines, edits, before)
            if must_edit:
                raise Unfit("there is no edit between <<<<<<< SEARCH and >>>>>>> REPLACE")
            whole = self.draft_of(self.texts.read_parts(lines), before)
            return msgspec.structs.replace(whole, whole=len(self.names.editable) == 1)
        except ReplyFault as fault:
            return fault.as_parsed(before)

    def draft_of(self, parts: Mapping[str, str], hypothesis: str = "") -> Parsed:
        """One candidate with new texts for some parts.

        Faults: those of `_inherited`, empty and too_long.
        """
        hypothesis = hypothesis[:2000]
        try:
            full = self._inherited(parts)
        except ReplyFault as fault:
            return fault.as_parsed(hypothesis)
        if not any(text.strip() for text in full.values()):
            return Parsed(hypothesis=hypothesis, fault="empty")
        length, most = sum(map(len, full.values())), self._task.surface.max_chars
        if length > most:
            detail = f"the candidate has {length} characters, more than {most}"
            return Parsed(hypothesis=hypothesis, fault="too_long", detail=detail)
        return Parsed((Draft(full),), hypothesis)

    # Edits.

    def _edits(self, lines: list[str]) -> list[Edit]:
        """The edits of a reply, none if it has whole texts.

        Where the candidate itself has marker lines, a block with other text before them is a whole
        text.
        """
        if self._parent is None:
            return []
        if has_edits(lines):
            own = "\n".join(self._parent.parts.values())
            if has_edits(own.split("\n")) and any(
                has_edits(found.text.split("\n")) and not begins_edit(found.text)
                for found in self.texts.find_blocks(lines)
            ):
                return []
            return read_edits(lines, self.names)
        edits: list[Edit] = []
        for found in self._diff_blocks(lines):
            start, end = found.block.opening.line + 1, found.block.end
            if end is None:
                raise Unfit("a diff breaks off: its fence is not closed")
            named = (found.name,) if found.name else ()
            edits += read_diff(found.block.lines, self.names, (start, end), named)
        return edits

    def _diff_blocks(self, lines: list[str]) -> list[Found]:
        """The blocks that are diffs, unless the candidate has diffs itself."""
        assert self._parent is not None
        own = [line for text in self._parent.parts.values() for line in _lf(text).split("\n")]
        if is_diff(own):
            return []
        if is_diff(lines, "", own) and not any(map(fence_at, lines)):
            first = next(line for line in lines if line.startswith(("@@", "---", "-")))
            raise Unfit(f"a diff stands outside a fence: {quote_line(first)}")
        found = self.texts.find_blocks(lines)
        return [block for block in found if is_diff(block.block.lines, block.tag, own)]

    def _edited(self, lines: list[str], edits: list[Edit], before: str) -> Parsed:
        """The candidate after edits, with the texts of parts that stand beside them."""
        assert self._parent is not None
        after = "\n".join(lines[edits[-1].span[1] :])
        parts = apply_edits(self._parent.parts, edits, self.names, after)
        inside = {line for edit in edits for line in range(*edit.span)}
        rest = [_EDIT_HERE if number in inside else line for number, line in enumerate(lines)]
        found = [b for b in self.texts.find_blocks(rest) if _EDIT_HERE not in b.text]
        whole = self.texts.named_parts(found)
        for name in parts:
            self._check_frame(name, parts[name])
            given = [whole[name]] if name in whole else self.texts.whole_programs(found, name)
            if any(text.strip() != _lf(parts[name]).strip() for text in given):
                raise Unfit(f"{name} is both edited and given whole")
        return msgspec.structs.replace(self.draft_of({**whole, **parts}, before), whole=False)

    def _check_frame(self, name: str, text: str) -> None:
        """Raise `OutsideBlocks` if edits removed what lies outside of enforced blocks."""
        if self._parent is None or self._task.surface.markers != "enforced":
            return
        framed = merge_blocks(_lf(self._parent.parts[name]), _lf(text))
        if framed.split() != text.split():
            raise OutsideBlocks("an edit removes lines outside of the blocks")

    # The rules of the task.

    def _inherited(self, parts: Mapping[str, str]) -> dict[str, str]:
        """The parent's parts with those of the reply inserted.

        Of a set of skills, new ones are added, and one whose SKILL.md is empty is dropped with all
        its files. Raises `OutsideBlocks` if a text changes what lies outside enforced blocks.
        """
        surface = self._task.surface
        old = self._parent.parts if self._parent is not None else {}
        child = dict(old)
        for name, text in parts.items():
            was = old.get(name, "")
            if name in surface.frozen:
                if text.strip() != was.strip():
                    raise OutsideBlocks(f"the part {name} must not change")
                continue
            text = _like_parent(text, was)
            self._check_text(name, text, was)
            if name in old and surface.markers == "enforced" and text.strip():
                text = _like_parent(merge_blocks(_lf(was), _lf(text)), was)
            if line := left_out(_lf(text), _lf(was), is_program(name, self._language)):
                detail = f"the text leaves out a part of {name}: {quote_line(line)}"
                raise ReplyFault("elided", detail)
            child[name] = text
        return without_empty_skills(child) if surface.skills else child

    def _check_text(self, name: str, new: str, old: str) -> None:
        """Raise `Unfit` or `ReplyFault` for a text with pieces of a reply in it."""
        new, old = _lf(new), _lf(old)
        if line := foreign_line(new, old):
            raise Unfit(f"a marker of an edit would become part of {name}: {quote_line(line)}")
        lines, known = new.split("\n"), old.split("\n")
        if is_diff(lines, "", known) and not is_diff(known):
            raise Unfit(f"a diff would become part of {name}")
        if what := doubt_about(new, old, is_program(name, self._language)):
            raise ReplyFault("ambiguous", f"the text of {name} {what}")


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _like_parent(text: str, parent: str) -> str:
    """The text with the parent's line ends, and a line feed at its end if the parent has one.

    A text that differs in empty lines at its end alone is the parent's.
    """
    if parent.strip() and _lf(text).rstrip("\n") == _lf(parent).rstrip("\n"):
        return parent
    if not text.endswith("\n"):
        text += "\n" if text and (parent.endswith("\n") or not parent) else ""
    elif parent and not parent.endswith("\n"):
        text = text.removesuffix("\n").removesuffix("\r")
    is_crlf = 2 * parent.count("\r\n") > parent.count("\n")
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if is_crlf else text


def _first_prose(lines: list[str]) -> str:
    """The text before the first block or edit."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("```", "~~~", "<<<<<", "@@ ")):
            return "\n".join(lines[:number]).strip()
    return ""
