"""Names of parts in a reply: in the info string of a fence, in a heading, in prose."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.foreign import lazy_pattern
from culmen.core.task import SKILL_FILE, Task

# among the names of parts: any other skill's file, of a set to which skills may be added
NEW_SKILL = f"*/{SKILL_FILE}"
_SKILL_PART = lazy_pattern(rf"[\w.-]+/{re.escape(SKILL_FILE)}")
_LEAD = lazy_pattern(r"^(?:name|file|filename|path|title|part)[=:]", re.IGNORECASE)
_HEADING_LEAD = lazy_pattern(
    r"^(?:\d{1,3}[.)]\s+|(?:new\s+)?(?:file|part|path|name|file\s?name)\s*:\s*)", re.I
)
_DRESS = "#=*-`:>[]()<!/\"' \t"
_FILE = lazy_pattern(
    r"(?:[\w.-]+/)*[\w-][\w.-]*\.(?:py|jsx?|tsx?|rs|c|h|cc|cpp|hpp|cu|go|java|kt|rb|php|sh|jl|r|f90"
    r"|swift|cs|scala|lean|v|sql|md|txt|rst|json|ya?ml|toml|ini|cfg|html?|css)",
    re.IGNORECASE,
)
_WORD = lazy_pattern(r"[\w./\\-]*\w")
_SUFFIXES = {
    "python": ".py",
    "rust": ".rs",
    "cpp": ".cpp",
    "c": ".c",
    "javascript": ".js",
    "text": ".txt",
}


class PartNames(msgspec.Struct, frozen=True):
    """Names of parts: those that a reply may give, and those that never change.

    `editable` has `NEW_SKILL` if skills may be added.
    """

    editable: tuple[str, ...]
    fixed: tuple[str, ...] = ()

    def resolve(self, word: str) -> str:
        """The part that a word names, by its path or by an end of it that no other has; or ""."""
        word = word.strip("\"'`{}[](),;*").replace("\\", "/").removeprefix("./")
        known = [name for name in (*self.editable, *self.fixed) if name != NEW_SKILL]
        if not word or word in known:
            return word
        if NEW_SKILL in self.editable and _SKILL_PART.fullmatch(word):
            return word
        ends = [n for n in known if n.endswith(f"/{word}") or word.endswith(f"/{n}")]
        return ends[0] if len(ends) == 1 else ""

    def in_info(self, info: str) -> tuple[str, str]:
        """The part that an info string names and its language, "" for what it does not name.

        Forms: `python main.py`, `main.py`, `python:main.py`, `python name=main.py`. A file that is
        no part is returned as it is.
        """
        words = re.split(r"[\s,]+", info.strip())
        tag, colon, rest = words[0].partition(":")
        tag = tag.strip("{}.").lower()
        said = [rest, *words] if colon else words
        found = [_LEAD.sub("", word).strip("\"'`{}()") for word in said]
        for word in [*found, info.strip()]:
            if name := self.resolve(word):
                return name, "" if self.resolve(words[0]) == name else tag
        name = next((word for word in found if _FILE.fullmatch(word)), "")
        return name, "" if name == words[0] else tag

    def in_heading(self, line: str) -> str:
        """The part that is all a line says, or else a file in a heading's dress; or "".

        Forms: `=== main.py ===`, `**main.py**`, `File: main.py`, `### 2. main.py`.
        """
        bare = line.strip()
        words = _HEADING_LEAD.sub("", bare.strip(_DRESS)).strip(_DRESS)
        name = self.resolve(words) if words else ""
        return name or (words if is_dressed(bare) and _FILE.fullmatch(words) else "")

    def in_prose(self, text: str) -> set[str]:
        """The parts that a text mentions; a name without a suffix only in quotes."""
        words = {self.resolve(word.rstrip(".")) for word in _WORD.findall(text)}
        plain = {name for name in words if "." not in name and "/" not in name}
        quoted = {name for name in plain if re.search(rf"[`\"'*]{re.escape(name)}[`\"'*]", text)}
        return (words - plain) | (quoted - {""})


def is_dressed(line: str) -> bool:
    """True if a line looks like a heading."""
    return line.lstrip().startswith(("=", "#", "*", "`", "File", "file"))


def part_names(task: Task, parent: Candidate | None) -> PartNames:
    """The parts of the parent, with `NEW_SKILL` if skills may be added.

    Without a parent, the single part of a first candidate.
    """
    if parent is not None:
        frozen = task.surface.frozen
        more = (NEW_SKILL,) if task.surface.skills else ()
        return PartNames(
            (*(name for name in parent.parts if name not in frozen), *more),
            tuple(name for name in parent.parts if name in frozen),
        )
    surface = task.surface
    suffix = _SUFFIXES.get(surface.language, task.evaluator.suffix if surface.language else ".txt")
    return PartNames((task.evaluator.module or f"program{suffix}",))


@lru_cache(maxsize=256)
def is_program(name: str, language: str) -> bool:
    """True if a part is a program, by its name or else by the language of the task."""
    suffix = PurePosixPath(name).suffix
    if suffix in (".md", ".txt", ".rst", ".toml", ".yaml", ".yml", ".json", ".prompt"):
        return False
    return bool(suffix) or language not in ("", "text", "markdown")


def shown_name(name: str) -> str:
    """A part's name as a model reads it."""
    return f"NEW-SKILL/{SKILL_FILE}" if name == NEW_SKILL else name


def without_empty_skills(parts: dict[str, str]) -> dict[str, str]:
    """The parts without the folders whose SKILL.md is empty."""
    gone = {
        name.partition("/")[0]
        for name, text in parts.items()
        if not text.strip() and _SKILL_PART.fullmatch(name)
    }
    return {name: text for name, text in parts.items() if name.partition("/")[0] not in gone}
