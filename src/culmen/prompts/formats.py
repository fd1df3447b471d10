"""How replies carry candidates: what the model is told, and how its reply is read. One small class a format."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any, Protocol

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.task import Surface, Task
from culmen.core.wording import fence
from culmen.prompts import blocks
from culmen.prompts.diff import Mismatch, apply_edits, read_edits
from culmen.prompts.surface import OutsideBlocks, inherit
from culmen.prompts.template import Templates

_DECODER = json.JSONDecoder(strict=False)  # line breaks in strings are common
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_ALIASES = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "c++": "cpp", "rs": "rust"}
_SUFFIXES = {"python": ".py", "rust": ".rs", "cpp": ".cpp", "c": ".c", "javascript": ".js", "text": ".txt"}


class Draft(msgspec.Struct, frozen=True):
    """One candidate of a reply: all its parts, and a probability if the model stated one."""

    parts: dict[str, str]
    weight: float | None = None


class Parsed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reply holds. `fault` says why there is no draft; `whole` is False if the reply broke off in one."""

    drafts: tuple[Draft, ...] = ()
    hypothesis: str = ""
    fault: str = ""
    whole: bool = True


class Format(Protocol):
    """A way to carry candidates in a reply. `parse` never raises, whatever the text."""

    name: str

    def samples(self, k: int) -> int:
        """How many replies are asked for to get k candidates."""
        ...

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        """What the model is told about the form of its answer; `k` is how many candidates are wanted."""
        ...

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed: ...


class Rewrite:
    """Whole parts in fenced blocks; one candidate a reply."""

    name = "rewrite"

    def samples(self, k: int) -> int:
        return k

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        names = part_names(task, parent)
        example = "\n\n".join(fence("...", f"{task.surface.language} {name}".strip()) for name in names)
        return templates.fill("rewrite", example=example)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = blocks.without_thoughts(reply), part_names(task, parent)
        if parent is not None and "SEARCH" in text and read_edits(text, names):
            return edited(text, task.surface, parent)
        before, found = blocks.read_blocks(text, names)
        if not found:
            bare = _bare_program(text, names, task.surface)
            return drafted(bare, "", task.surface, parent, True) if bare else Parsed(fault="unparsable")
        chosen = _choose(found, names, task.surface)
        if not chosen:
            return Parsed(hypothesis=before, fault="unparsable")
        whole = all(block.closed for block in chosen.values())
        return drafted({n: b.text for n, b in chosen.items()}, before, task.surface, parent, whole)


class Diff:
    """SEARCH/REPLACE edits of the parent; one candidate a reply. A whole rewrite is understood, too."""

    name = "diff"

    def samples(self, k: int) -> int:
        return k

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        names = part_names(task, parent)
        heading = f"=== {names[0]} ===\n" if len(names) > 1 else ""
        return templates.fill("diff", heading=heading)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text = blocks.without_thoughts(reply)
        if parent is None or not read_edits(text, part_names(task, parent)):
            return Rewrite().parse(reply, task, parent)
        return edited(text, task.surface, parent)


class JsonParts:
    """One JSON object with the new texts, for models in JSON mode; broken JSON is repaired."""

    name = "json"

    def samples(self, k: int) -> int:
        return k

    def instructions(self, templates: Templates, task: Task, parent: Candidate | None, k: int = 1) -> str:
        names = ", ".join(f'{json.dumps(name)}: "..."' for name in part_names(task, parent))
        return templates.fill("json", names=names)

    def parse(self, reply: str, task: Task, parent: Candidate | None) -> Parsed:
        text, names = blocks.without_thoughts(reply), part_names(task, parent)
        data, whole = read_json(text)
        if not isinstance(data, dict):
            return Rewrite().parse(reply, task, parent)
        parts = data.get("parts", data)
        texts = {n: t for n, t in parts.items() if n in names and isinstance(t, str)} if isinstance(parts, dict) else {}
        hypothesis = data.get("hypothesis")
        said = hypothesis if isinstance(hypothesis, str) else ""
        return (
            drafted(texts, said, task.surface, parent, whole) if texts else Parsed(hypothesis=said, fault="unparsable")
        )


FORMATS: dict[str, Format] = {format.name: format for format in (Rewrite(), Diff(), JsonParts())}


def part_names(task: Task, parent: Candidate | None) -> tuple[str, ...]:
    """The parts that a reply may hold: the parent's that are not frozen, or the one that a first candidate has."""
    if parent is not None:
        return tuple(name for name in parent.parts if name not in task.surface.frozen)
    suffix = _SUFFIXES.get(task.surface.language, task.evaluator.suffix if task.surface.language else ".txt")
    return (task.evaluator.module or f"program{suffix}",)


def read_json(text: str) -> tuple[Any, bool]:
    """JSON data in a reply, repaired if need be (None if there is none), and whether it was whole."""
    _, found = blocks.read_blocks(text)
    raw = found[0].text if found and text.lstrip().startswith(("`", "~")) else text
    start = raw.find("{")
    if start < 0:
        return None, True
    try:
        return _DECODER.raw_decode(raw, start)[0], True
    except (ValueError, RecursionError):
        pass
    if not _repairable(raw[start:]):
        return None, True
    import json_repair

    try:
        return json_repair.loads(raw[start:]) or None, raw.rstrip().endswith("}")
    except (ValueError, RecursionError, IndexError):
        return None, True


def _repairable(raw: str) -> bool:
    """Whether repair ends in about a second: its time grows with the square of nesting, and ours nests twice."""
    opened = sum(1 for char in _STRING.sub("", raw) if char in "{[")
    return len(raw) <= 200_000 and opened <= 100


def edited(text: str, surface: Surface, parent: Candidate) -> Parsed:
    """The parent after the SEARCH/REPLACE edits of a text; faults `diff_mismatch` and those of `drafted`."""
    names = tuple(name for name in parent.parts if name not in surface.frozen)
    edits = read_edits(text, names)
    before = text[: text.find("<<<<<")].strip()
    try:
        parts = apply_edits({name: parent.parts[name] for name in names}, edits)
    except Mismatch:
        return Parsed(hypothesis=before, fault="diff_mismatch")
    return drafted(parts, before, surface, parent, text.count("SEARCH") <= text.count("REPLACE"))


def drafted(parts: dict[str, str], said: str, surface: Surface, parent: Candidate | None, whole: bool) -> Parsed:
    """One candidate of new texts for some parts; faults `outside_blocks`, `empty` and `too_long`."""
    said = said[:2000]
    try:
        full = inherit({n: t if parent else t.rstrip("\n") + "\n" for n, t in parts.items()}, parent, surface)
    except OutsideBlocks:
        return Parsed(hypothesis=said, fault="outside_blocks", whole=whole)
    if not any(text.strip() for text in full.values()):
        return Parsed(hypothesis=said, fault="empty", whole=whole)
    if sum(map(len, full.values())) > surface.max_chars:
        return Parsed(hypothesis=said, fault="too_long", whole=whole)
    return Parsed((Draft(full),), said, whole=whole)


def _choose(found: list[blocks.Block], names: tuple[str, ...], surface: Surface) -> dict[str, blocks.Block]:
    """Which block is which part: the last one that names it; without names, the likeliest block for a lone part."""
    named = {block.name: block for block in found if block.name}
    if named or len(names) != 1:
        return named
    wanted = surface.language.lower()
    return {names[0]: max(found, key=lambda b: (_ALIASES.get(b.tag, b.tag) == wanted, len(b.text)))}


def _bare_program(text: str, names: tuple[str, ...], surface: Surface) -> dict[str, str]:
    """A reply without fences is a program only if it is one: Python that parses and defines something."""
    if surface.language != "python" or len(names) != 1 or "\n" not in text.strip():
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    defines = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Assign, ast.Import, ast.ImportFrom)
    return {names[0]: text.strip() + "\n"} if any(isinstance(node, defines) for node in body) else {}
