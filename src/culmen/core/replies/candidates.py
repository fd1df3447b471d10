"""Candidates from the texts and edits of a reply, by the rules of the task."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.markers import OutsideBlocks, merge_blocks
from culmen.core.replies.diffs import is_diff, read_diff
from culmen.core.replies.doubts import doubt_about, left_out
from culmen.core.replies.edits import (
    Edit,
    Unfit,
    apply_edits,
    begins_edit,
    foreign_line,
    has_edits,
    quote_line,
    read_edits,
)
from culmen.core.replies.fences import fence_at
from culmen.core.replies.names import is_program, part_names, without_empty_skills
from culmen.core.replies.parsed import Draft, Parsed, ReplyFault
from culmen.core.replies.texts import Found, TextReader
from culmen.core.task import Task
from culmen.core.wording import surface_language

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
