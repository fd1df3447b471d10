"""Reply formats: the instructions for the model, and the parsing of its replies."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections import Counter
from typing import Protocol

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate, Origin
from culmen.core.json import JsonObject
from culmen.core.task import SKILL_FILE, Surface, Task
from culmen.core.wording import indent_text, part_info, surface_language
from culmen.prompts import fragments
from culmen.prompts.fragments import (
    Mismatch,
    OutsideBlocks,
    apply_edits,
    inherit_parts,
    read_edits,
    without_thoughts,
)
from culmen.prompts.template import Templates

_NOTE = 120  # characters kept of a reply's hypothesis about its candidate
_DECODER = json.JSONDecoder(strict=False)  # line breaks in strings are common
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_ALIASES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "ts": "typescript",
    "c++": "cpp",
    "rs": "rust",
}
_SUFFIXES = {
    "python": ".py",
    "rust": ".rs",
    "cpp": ".cpp",
    "c": ".c",
    "javascript": ".js",
    "text": ".txt",
}


class Draft(msgspec.Struct, frozen=True):
    """One candidate of a reply: all its parts, and a probability if the model stated one."""

    parts: dict[str, str]
    weight: float | None = None


class Parsed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parsed reply.

    `fault` is the reason why there is no draft; `whole` is False if the reply broke off in a draft.
    """

    drafts: tuple[Draft, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    whole: bool = True


class ReplyFormat(Protocol):
    """A form of candidates in a reply. `parse` never raises, whatever the text."""

    name: str

    def samples(self, k: int) -> int:
        """Number of replies to request for k candidates."""
        ...

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        """Instructions on the form of the answer for `k` candidates."""
        ...

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed: ...


class Rewrite:
    """Whole parts in fenced blocks; one candidate a reply."""

    name = "rewrite"

    def samples(self, k: int) -> int:
        return k

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        names = part_names(task, parent)
        example = block_names(names, surface_language(task))
        return templates.fill("rewrite", example=example)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = fragments.without_thoughts(reply), part_names(task, parent)
        if parent is not None and "SEARCH" in text and read_edits(text, names):
            return parsed_edits(text, task.surface, parent)
        before, found = fragments.read_blocks(text, names)
        if not found:
            bare = _bare_program(text, names, task.surface)
            return (
                parsed_draft(bare, "", task.surface, parent, True)
                if bare
                else Parsed(fault="unparsable")
            )
        chosen = _blocks_by_part(found, names, task.surface)
        if not chosen:
            return Parsed(hypothesis=before, fault="unparsable")
        is_complete = all(block.closed for block in chosen.values())
        return parsed_draft(
            {n: b.text for n, b in chosen.items()}, before, task.surface, parent, is_complete
        )


class Diff:
    """SEARCH/REPLACE edits of the parent; one candidate a reply.

    A complete rewrite is accepted too.
    """

    name = "diff"

    def samples(self, k: int) -> int:
        return k

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        names = part_names(task, parent)
        heading = f"=== {names[0]} ===\n" if len(names) > 1 else ""
        return templates.fill("diff", heading=heading)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text = fragments.without_thoughts(reply)
        if parent is None or not read_edits(text, part_names(task, parent)):
            return Rewrite().parse(reply, task, parent)
        return parsed_edits(text, task.surface, parent)


class JsonParts:
    """One JSON object with the new texts, for models in JSON mode; broken JSON is repaired."""

    name = "json"

    def samples(self, k: int) -> int:
        return k

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        listed = map(shown_name, part_names(task, parent))
        names = ", ".join(f'{json.dumps(name)}: "..."' for name in listed)
        return templates.fill("json", names=names)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = fragments.without_thoughts(reply), part_names(task, parent)
        data, is_complete = read_json(text)
        if not isinstance(data, dict):
            return Rewrite().parse(reply, task, parent)
        parts = data.get("parts", data)
        texts = (
            {
                n: t
                for n, t in parts.items()
                if fragments.is_part_name(n, names) and isinstance(t, str)
            }
            if isinstance(parts, dict)
            else {}
        )
        hypothesis = data.get("hypothesis")
        text_of_hypothesis = hypothesis if isinstance(hypothesis, str) else ""
        return (
            parsed_draft(texts, text_of_hypothesis, task.surface, parent, is_complete)
            if texts
            else Parsed(hypothesis=text_of_hypothesis, fault="unparsable")
        )


FORMATS: dict[str, ReplyFormat] = {
    format.name: format for format in (Rewrite(), Diff(), JsonParts())
}


def part_names(task: Task, parent: Candidate | None) -> tuple[str, ...]:
    """The parts that a reply may contain.

    The parent's parts that are not frozen, with `NEW_SKILL` if skills may be added; or the single
    part of a first candidate.
    """
    if parent is not None:
        return _editable_names(task.surface, parent)
    suffix = _SUFFIXES.get(
        task.surface.language, task.evaluator.suffix if task.surface.language else ".txt"
    )
    return (task.evaluator.module or f"program{suffix}",)


def _editable_names(surface: Surface, parent: Candidate) -> tuple[str, ...]:
    more = (fragments.NEW_SKILL,) if surface.skills else ()
    return (*(name for name in parent.parts if name not in surface.frozen), *more)


def shown_name(name: str) -> str:
    """A part's name as a model reads it."""
    return f"NEW-SKILL/{SKILL_FILE}" if name == fragments.NEW_SKILL else name


def skills_note(surface: Surface) -> str:
    """Instructions to add, drop and merge skills in a reply; "" if the parts are fixed."""
    if not surface.skills:
        return ""
    return (
        f"To add a skill, give the text of its NAME/{SKILL_FILE}; to drop one, give an empty text "
        f"for its {SKILL_FILE}; to merge two, change one and drop the other. Next to edits, "
        "added and dropped skills are fenced blocks that open with the part's name."
    )


def block_names(names: tuple[str, ...], language: str) -> str:
    """The first lines of the fenced blocks of these parts, as a list.

    No example in a fence: the candidate to improve is all that a prompt has in fences.
    """
    return "\n".join(f"- `{part_info(shown_name(name), language)}`" for name in names)


def read_json(text: str) -> tuple[object, bool]:
    """JSON data in a reply, repaired if necessary, and False if the reply broke off.

    The data are None if there are none or if they cannot be repaired.
    """
    _, blocks = fragments.read_blocks(text)
    raw = blocks[0].text if blocks and text.lstrip().startswith(("`", "~")) else text
    start = raw.find("{")
    if start < 0:
        return None, True
    try:
        return _DECODER.raw_decode(raw, start)[0], True
    except (ValueError, RecursionError):
        pass
    if not _is_repairable(raw[start:]):
        return None, True
    import json_repair

    try:
        return json_repair.loads(raw[start:]) or None, raw.rstrip().endswith("}")
    except (ValueError, RecursionError, IndexError):
        return None, True


def _is_repairable(raw: str) -> bool:
    """True if repair takes at most about a second.

    Its time grows with the square of the nesting; valid replies nest two levels.
    """
    opened = sum(1 for char in _STRING.sub("", raw) if char in "{[")
    return len(raw) <= 200_000 and opened <= 100


def parsed_edits(text: str, surface: Surface, parent: Candidate) -> Parsed:
    """The parent after the SEARCH/REPLACE edits of a text.

    Faults: `diff_mismatch` and those of `drafted`.
    """
    names = _editable_names(surface, parent)
    edits = read_edits(text, names)
    before = text[: text.find("<<<<<")].strip()
    old = {name: parent.parts[name] for name in names if name in parent.parts}
    whole = _whole_blocks(text, names) if surface.skills else {}
    try:
        parts = apply_edits(old, edits) | whole
    except Mismatch:
        return Parsed(hypothesis=before, fault="diff_mismatch")
    begun, done = (len(mark.findall(text)) for mark in (fragments.SEARCH, fragments.REPLACE))
    return parsed_draft(parts, before, surface, parent, begun <= done)


def parsed_draft(
    parts: dict[str, str],
    hypothesis: str,
    surface: Surface,
    parent: Candidate | None,
    is_complete: bool,
) -> Parsed:
    """One candidate with new texts for some parts.

    Faults: `outside_blocks`, `empty` and `too_long`.
    """
    hypothesis = hypothesis[:2000]
    try:
        full = inherit_parts(
            {n: t if parent else t.rstrip("\n") + "\n" for n, t in parts.items()}, parent, surface
        )
    except OutsideBlocks:
        return Parsed(hypothesis=hypothesis, fault="outside_blocks", whole=is_complete)
    if not any(text.strip() for text in full.values()):
        return Parsed(hypothesis=hypothesis, fault="empty", whole=is_complete)
    if sum(map(len, full.values())) > surface.max_chars:
        return Parsed(hypothesis=hypothesis, fault="too_long", whole=is_complete)
    return Parsed((Draft(full),), hypothesis, whole=is_complete)


def _whole_blocks(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Texts by part of the fenced blocks of a reply that are no edits."""
    found = fragments.read_blocks(text, names)[1]
    return {
        one.name: one.text for one in found if one.name and not fragments.SEARCH.search(one.text)
    }


def _blocks_by_part(
    found: list[fragments.Block], names: tuple[str, ...], surface: Surface
) -> dict[str, fragments.Block]:
    """Blocks by name of the part: for each part, the last block that names it.

    Without names, the most likely block for a lone part.
    """
    named = {block.name: block for block in found if block.name}
    if named or len(names) != 1:
        return named
    wanted = surface.language.lower()
    return {names[0]: max(found, key=lambda b: (_ALIASES.get(b.tag, b.tag) == wanted, len(b.text)))}


def _bare_program(text: str, names: tuple[str, ...], surface: Surface) -> dict[str, str]:
    """The program in a reply without fences; {} unless it is Python with a definition."""
    if surface.language != "python" or len(names) != 1 or "\n" not in text.strip():
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    defines = (
        ast.FunctionDef,
        ast.ClassDef,
        ast.AsyncFunctionDef,
        ast.Assign,
        ast.Import,
        ast.ImportFrom,
    )
    return (
        {names[0]: text.strip() + "\n"} if any(isinstance(node, defines) for node in body) else {}
    )


# Several candidates in one reply: as JSON with a stated probability each (TurboEvolve, Appendix A),
# or as blocks.

_HEADING = re.compile(r"^[^\w\n]{0,8}CANDIDATE \d{1,3}[^\w\n]{0,8}$", re.MULTILINE)
# keys that models use for the one text
_TEXTS = ("code", "text", "program", "prompt")


class Verbalized:
    """One JSON object, `responses`, with K candidates a reply.

    Each response has `code` (or `parts` by name) and `probability`. Broken JSON is repaired; a
    response that broke off at the end of the reply is left out. A reply without such an object gets
    the fault `not_json`, but programs in fenced blocks are still accepted.
    """

    name = "verbalized"

    def samples(self, k: int) -> int:
        return 1

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        fields, meaning = self.response_fields(part_names(task, parent))
        return templates.fill("verbalized", k=str(k), fields=fields, meaning=meaning)

    def response_fields(self, names: tuple[str, ...]) -> tuple[str, str]:
        """The fields of a response besides its probability, and their description."""
        if len(names) == 1:
            return (
                '"code": "..."',
                f'"code" is the complete new text of {names[0]}, as a JSON string without fences.',
            )
        inside = ", ".join(f'{json.dumps(shown_name(name))}: "..."' for name in names)
        description = (
            '"parts" holds the new text of each part that changes, whole; parts you leave out stay '
            "as they are."
        )
        return f'"parts": {{{inside}}}', description

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        items, is_complete = _response_objects(fragments.without_thoughts(reply))
        if not items:
            found = Blocks().parse(reply, task, parent)
            return msgspec.structs.replace(
                found, fault="not_json", whole=found.whole and is_complete
            )
        if not is_complete and "probability" not in items[-1]:
            items = items[:-1]  # the reply ended inside the last item
        read = [_parsed_response(item, task, parent) for item in items]
        drafts = tuple(draft for one in read for draft in one.drafts)
        fault = next((one.fault for one in read if one.fault), "" if drafts else "unparsable")
        return Parsed(drafts, fault=fault)


class VerbalizedDiff(Verbalized):
    """Verbalized candidates as SEARCH/REPLACE edits of the parent, in `diff`.

    Without a parent, complete texts are requested.
    """

    name = "verbalized_diff"

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        if parent is None:
            return super().instructions(templates, task, parent, k)
        names = part_names(task, parent)
        meaning = (
            '"diff" is a JSON string of edits of the candidate at the end, one after another, each '
            "of the form\n\n"
        )
        meaning += indent_text(
            (f"=== {names[0]} ===\n" if len(names) > 1 else "")
            + "<<<<<<< SEARCH\nlines copied exactly\n=======\n"
            "lines that take their place\n>>>>>>> REPLACE\n"
        )
        return templates.fill(
            "verbalized", k=str(k), fields='"diff": "..."', meaning=meaning + "\n"
        )


class Blocks:
    """K candidates in fenced blocks, each under its heading, for models weak at JSON."""

    name = "blocks"

    def samples(self, k: int) -> int:
        return 1

    def instructions(
        self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1
    ) -> str:
        names = part_names(task, parent)
        example = block_names(names, surface_language(task))
        return templates.fill("blocks", k=str(k), example=example)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = fragments.without_thoughts(reply), part_names(task, parent)
        pieces = [piece for piece in _HEADING.split(text)[1:] if piece.strip()]
        if pieces:
            read = [Rewrite().parse(piece, task, parent) for piece in pieces]
        else:
            read = [
                parsed_draft(
                    {n: b.text for n, b in group.items()},
                    "",
                    task.surface,
                    parent,
                    all(_closed_flags(group)),
                )
                for group in _grouped_blocks(
                    fragments.read_blocks(text, names)[1], names, task.surface.language
                )
            ]
        if not read:
            return Rewrite().parse(reply, task, parent)
        kept = [one for one in read if one.whole]
        drafts = tuple(draft for one in kept for draft in one.drafts)
        return Parsed(
            drafts, fault=next((one.fault for one in read if one.fault), ""), whole=bool(drafts)
        )


def _response_objects(text: str) -> tuple[list[JsonObject], bool]:
    """The response objects of a reply, and True if the reply was complete."""
    bare = text.lstrip().startswith("[")  # a list without the object around it
    data, is_complete = read_json(f'{{"responses": {text}}}' if bare else text)
    is_complete = is_complete and (not bare or text.rstrip().endswith("]"))
    if isinstance(data, dict):
        data = data.get("responses", [data])
    items = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    return [
        item for item in items if any(key in item for key in (*_TEXTS, "parts", "diff"))
    ], is_complete


def _parsed_response(item: JsonObject, task: Task, parent: Candidate | None) -> Parsed:
    """One candidate of a response.

    Its weight is the stated probability, None if that is not a number in 0..1.
    """
    names, diff = part_names(task, parent), item.get("diff")
    if isinstance(diff, str) and parent is not None:
        found = (
            parsed_edits(diff, task.surface, parent)
            if "SEARCH" in diff
            else Parsed(fault="diff_mismatch")
        )
    else:
        texts = _response_texts(item, names)
        found = (
            parsed_draft(texts, "", task.surface, parent, True)
            if texts
            else Parsed(fault="unparsable")
        )
    weight = _stated_probability(item.get("probability"))
    return msgspec.structs.replace(
        found, drafts=tuple(Draft(draft.parts, weight) for draft in found.drafts)
    )


def _response_texts(item: JsonObject, names: tuple[str, ...]) -> dict[str, str]:
    parts = item.get("parts")
    if isinstance(parts, dict):
        return {
            name: _unfenced_text(text)
            for name, text in parts.items()
            if fragments.is_part_name(name, names) and isinstance(text, str)
        }
    text = next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), None)
    return {names[0]: _unfenced_text(text)} if text is not None and len(names) == 1 else {}


def _unfenced_text(text: str) -> str:
    """The text without a fence around all of it."""
    if not text.lstrip().startswith(("```", "~~~")):
        return text
    before, found = fragments.read_blocks(text.strip())
    return found[0].text if len(found) == 1 and not before else text


def _stated_probability(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.rstrip("% ")) / (100.0 if "%" in value else 1.0)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= 1.0 else None


def _grouped_blocks(
    found: list[fragments.Block], names: tuple[str, ...], language: str
) -> list[dict[str, fragments.Block]]:
    """Blocks grouped into candidates, for replies without headings.

    A part that occurs again begins the next candidate.
    """
    if len(names) == 1:
        likely = [b for b in found if b.name or b.tag == language.lower()] or [
            b for b in found if not b.tag
        ]
        return [{names[0]: block} for block in likely]
    groups: list[dict[str, fragments.Block]] = []
    for block in found:
        if block.name and (not groups or block.name in groups[-1]):
            groups.append({})
        if block.name:
            groups[-1][block.name] = block
    return groups


def _closed_flags(group: dict[str, fragments.Block]) -> list[bool]:
    return [block.closed for block in group.values()]


SEVERAL: dict[str, ReplyFormat] = {
    form.name: form for form in (Verbalized(), VerbalizedDiff(), Blocks())
}


# All replies to a brief: parsed, separated from known candidates, faults counted by kind.

_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING = re.compile(r"<reasoning>.*?(?:</reasoning>|\Z)", re.DOTALL | re.IGNORECASE)
_REFUSAL = re.compile(
    r"\A\W*(?:i(?:'|’)?m\s+(?:very\s+)?sorry|sorry,|i\s+(?:can(?:'|’)?t|cannot|won(?:'|’)t)\s+(?:help|assist|comply|do|provide))",
    re.IGNORECASE,
)


class Completion(msgspec.Struct, frozen=True):
    """One reply: its text, its finish reason, and the tool calls as sent.

    `finish` is one of stop, length, refused, tools.
    """

    text: str
    finish: str = "stop"
    tool_calls: tuple[JsonObject, ...] = ()


class Read(msgspec.Struct, frozen=True):
    """The results of all replies to one brief."""

    candidates: tuple[Candidate, ...]
    hypothesis: str
    faults: dict[str, int]


def read_replies(
    samples: tuple[Completion, ...], form: ReplyFormat, task: Task, brief: Brief, model: str
) -> Read:
    """Distinct candidates of all replies, in order.

    Faults: empty, refused, truncated, unparsable, diff_mismatch, outside_blocks, too_long,
    unchanged (the parent again), duplicate (another candidate of the brief or of an earlier reply).
    """
    known = {brief.parent.id} if brief.parent else set()
    known |= {exhibit.candidate.id for exhibit in brief.inspirations}
    candidates: list[Candidate] = []
    faults: Counter[str] = Counter()
    hypothesis = ""
    for sample in samples:
        parsed = parse_completion(sample, form, task, brief.parent)
        hypothesis = hypothesis or parsed.hypothesis
        if parsed.fault:
            faults[parsed.fault] += 1
        for draft in parsed.drafts:
            # of a single reply, it is the proposal's hypothesis
            said = parsed.hypothesis if len(samples) > 1 else ""
            candidate = _draft_candidate(
                draft.parts, draft.weight, form.name, model, len(candidates), brief, said
            )
            if candidate.id in known:
                faults[
                    "unchanged" if brief.parent and candidate.id == brief.parent.id else "duplicate"
                ] += 1
            else:
                known.add(candidate.id)
                candidates.append(candidate)
    return Read(tuple(candidates[: brief.k]), hypothesis, dict(faults))


def parse_completion(
    sample: Completion, form: ReplyFormat, task: Task, parent: Candidate | None
) -> Parsed:
    """The drafts of one reply, or its fault."""
    if sample.finish == "refused":
        return Parsed(fault="refused")
    if not sample.text.strip():
        return Parsed(fault="truncated" if sample.finish == "length" else "empty")
    parsed = form.parse(sample.text, task, parent)
    if sample.finish == "length" and not (parsed.drafts and parsed.whole):
        return Parsed(hypothesis=parsed.hypothesis, fault="truncated")
    if parsed.fault == "unparsable" and _REFUSAL.match(without_thoughts(sample.text)):
        return Parsed(fault="refused")
    return parsed


def is_broken_off(
    sample: Completion, form: ReplyFormat, task: Task, parent: Candidate | None
) -> bool:
    """True if a reply hit its length limit before the candidate was complete."""
    return (
        sample.finish == "length"
        and parse_completion(sample, form, task, parent).fault == "truncated"
    )


def reply_summary(reply: str) -> str:
    """The text between <summary> tags (an unclosed one runs to the end).

    Without tags, the reply without its reasoning.
    """
    text = without_thoughts(reply)
    match = _SUMMARY.search(text)
    return match[1].strip() if match else _REASONING.sub("", text).strip()


def _draft_candidate(
    parts: dict[str, str],
    weight: float | None,
    operator: str,
    model: str,
    rank: int,
    brief: Brief,
    hypothesis: str,
) -> Candidate:
    parents = tuple(
        c.id
        for c in (
            *((brief.parent,) if brief.parent else ()),
            *(e.candidate for e in brief.inspirations),
        )
    )
    origin = Origin(operator=operator, model=model, rank=rank, weight=weight, island=brief.island)
    if hypothesis:
        origin = msgspec.structs.replace(origin, note=" ".join(hypothesis.split())[:_NOTE])
    return Candidate.of(parts, tuple(dict.fromkeys(parents)), origin)
