"""Candidates: named texts, identified by their content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

INITIAL, CARRIED = "seed", "carried"
"""Operators of the task's initial programs, and of candidates of another run or a pool."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Provenance of a candidate.

    `rank` is its place in the reply (0 = first), `weight` a probability the model stated for it
    (recorded, not used), `note` free text of the operator.
    """

    operator: str = INITIAL
    model: str = ""
    rank: int = 0
    weight: float | None = None
    island: int | None = None
    note: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """One point of the search space: named texts (`parts`; one for a plain program).

    `id` is the first 12 hex digits of `digest`, the SHA-256 of the parts, so equal content is the
    same candidate.
    """

    id: str
    parts: dict[str, str]
    digest: str
    parents: tuple[str, ...] = ()
    origin: Origin = Origin()

    @classmethod
    def of(
        cls, parts: Mapping[str, str], parents: tuple[str, ...] = (), origin: Origin | None = None
    ) -> Candidate:
        """The candidate with these parts; its identity depends on the parts alone."""
        digest = digest_parts(parts)
        return cls(digest[:12], dict(parts), digest, parents, origin or Origin())

    @property
    def text(self) -> str:
        """The whole candidate as one text.

        The only part, or all parts under `=== name ===` headings.
        """
        if len(self.parts) == 1:
            return next(iter(self.parts.values()))
        return "\n".join(f"=== {name} ===\n{text}" for name, text in self.parts.items())


def skill_names(parts: Mapping[str, str]) -> list[str]:
    """The first folders of the parts' names, in order: the skills of a set."""
    return list(dict.fromkeys(name.partition("/")[0] for name in parts if "/" in name))


def frontmatter(text: str) -> str:
    """The YAML at the head of a text, with its lines ---; "" without any."""
    found = re.match(r"---[ \t]*\n.*?^---[ \t]*(\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[0] if found else ""


def digest_parts(parts: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the parts, independent of their order.

    Names and texts are length-prefixed, so that they cannot run into one another.
    """
    sha = hashlib.sha256()
    for name in sorted(parts):
        for text in (name, parts[name]):
            raw = text.encode("utf-8", "surrogatepass")
            sha.update(len(raw).to_bytes(8, "big"))
            sha.update(raw)
    return sha.hexdigest()


def key_of(digest: str) -> int:
    """The first 64 bits of a digest or of a candidate's id.

    Long runs use these as keys of dicts: half the memory of the text. An id in a journal of others
    that is no digest has the first bits of its own.
    """
    try:
        key = int(digest[:16], 16)
    except ValueError:
        key = -1
    return key if key >= 0 else int(digest_parts({"": digest})[:16], 16)


def is_text(text: str) -> bool:
    """True if a text can be stored and written to a file: UTF-8 without NUL."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text
