"""Whole texts in fenced blocks: which block is which part, and where it ends.

A block is a part's if its fence, a heading before it or its first line names the part; a lone part
may go without a name where only one block can be it. A text ends where it must, and the text of a
lone named part at the last bare fence, so that fences inside it are part of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from textwrap import dedent

import msgspec
from msgspec.structs import replace

from culmen.core.candidate import Candidate
from culmen.core.foreign import parse_python_or_none, parses
from culmen.core.replies import ReplyFault
from culmen.core.replies.fences import Fence, FencedBlock, fence_at, read_blocks, text_until
from culmen.core.replies.names import PartNames, is_dressed, is_program
from culmen.core.task import Task
from culmen.core.wording import surface_language

_PROSE = ("", "text", "txt", "plaintext", "plain", "markdown", "md", "prompt")
_NESTING = ("markdown", "md")  # of blocks that may hold fences although they have no name
_ALIASES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "ts": "typescript",
    "c++": "cpp",
    "rs": "rust",
    "yml": "yaml",
    "golang": "go",
    "bash": "sh",
    "shell": "sh",
}
_MOST_ENDS = 40  # of a program that are tried
_DEFINED = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=", re.M)

# functions of other languages, where a line without indentation has their head
_CALLED = re.compile(
    r"^[\w*&:<>,\[\] \t]*?\b(?!(?:if|for|while|switch|catch)\b)(\w+)[ \t]*(?:<[^>\n]{0,80}>)?\("
    r"[^\n]*\{[ \t]*$",
    re.MULTILINE,
)


class Found(msgspec.Struct, frozen=True):
    """A block, the part that it names ("" if none), and its language."""

    block: FencedBlock
    name: str
    tag: str
    text: str


class TextReader:
    """Reader of the whole texts in the replies to one request."""

    def __init__(self, task: Task, parent: Candidate | None, names: PartNames) -> None:
        self._task, self._names = task, names
        self._parts = parent.parts if parent is not None else {}
        self._language = surface_language(task)
        self._lone = names.editable[0] if len(names.editable) == 1 else ""
        self._read: tuple[Sequence[str], list[Found]] = (), []  # the lines read last

    def find_blocks(self, lines: Sequence[str]) -> list[Found]:
        """The fenced blocks of a reply, each with the part that it names."""
        if lines is self._read[0]:
            return self._read[1]

        def choose(opening: Fence, ends: list[int], closing: list[int]) -> int | None:
            return self._choose_end(lines, opening, ends, closing)

        def is_boundary(fence: Fence) -> bool:
            return self._is_part_named(lines, fence)

        found = [self._named(lines, each) for each in read_blocks(lines, choose, is_boundary)]
        self._read = lines, found
        return found

    def read_parts(self, lines: Sequence[str]) -> dict[str, str]:
        """The texts of a reply by part.

        Raises `ReplyFault` (unparsable, unclosed, ambiguous, unknown_part, outside_blocks).
        """
        found = self.find_blocks(lines)
        if not found:
            return self._bare_program(lines)
        for each in found:
            if each.block.end is None:
                fence = "`" * len(each.block.opening.marks)
                detail = f"a fenced block is not closed: {fence}{each.block.opening.info}"
                raise ReplyFault("ambiguous" if each.block.doubt else "unclosed", detail)
        named = self.named_parts(found)
        if named:
            return named
        if not self._lone:
            raise ReplyFault("unparsable", "no fenced block opens with the name of a part")
        text = self._likely_text(found)
        inside = {n for each in found for n in range(each.block.opening.line, each.block.end or 0)}
        around = {line for n, line in enumerate(lines) if n not in inside and line.strip()}
        old = set(_stripped(self._parts.get(self._lone, ""))) if len(around) > 1 else set[str]()
        outside = len(old & around)
        if outside > 1 and outside > len(old & set(_stripped(text))):
            raise ReplyFault("ambiguous", f"the text of {self._lone} stands outside the fence")
        return {self._lone: text}

    def read_groups(self, lines: Sequence[str]) -> list[dict[str, str]]:
        """The candidates in blocks without headings: a part that occurs again begins the next.

        Empty if a block is not closed, or could end elsewhere.
        """
        found = self.find_blocks(lines)
        if any(each.block.end is None or each.block.doubt for each in found):
            return []
        if self._lone:
            whole = [each for each in self._fitting(found) if not each.name]
            fitting = [each for each in found if each.name == self._lone or each in whole]
            likely = [each for each in fitting if each.name or each.tag] or fitting
            return [{self._lone: each.text} for each in likely]
        groups: list[dict[str, str]] = []
        for each in found:
            if each.name not in self._names.editable:
                continue
            if not groups or each.name in groups[-1]:
                groups.append({})
            groups[-1][each.name] = each.text
        return groups

    # The part of a block.

    def _outer_name(self, lines: Sequence[str], fence: Fence) -> tuple[str, str]:
        """The part that a fence or the heading before it names, and the block's language."""
        name, tag = self._names.in_info(fence.info) if fence.info else ("", "")
        if not name and not fence.is_listed:
            name = self._names.in_heading(_line_above(lines, fence))
        return name, _ALIASES.get(tag, tag)

    def _is_part_named(self, lines: Sequence[str], fence: Fence) -> bool:
        """True if a fence names a part, or a heading in a heading's dress before it."""
        if fence.info:
            return self._names.resolve(self._names.in_info(fence.info)[0]) != ""
        above = _line_above(lines, fence)
        return is_dressed(above) and self._names.resolve(self._names.in_heading(above)) != ""

    def _named(self, lines: Sequence[str], block: FencedBlock) -> Found:
        name, tag = self._outer_name(lines, block.opening)
        if not name and len(self._names.editable) > 1:
            name = self._named_in_prose(lines[: block.opening.line])
        first = block.lines[0] if block.lines else ""
        if not block.opening.info and first.strip().lower() == self._language.lower() != "":
            block = replace(block, lines=block.lines[1:])
        label = self._names.in_heading(first)
        known = (*self._names.editable, *self._names.fixed)
        if label not in known or name not in ("", label) or self._begins_with(label, first):
            return Found(block, name, tag, block.text)
        if name and _is_comment(first):
            doubt = not self._is_program(label)  # the title of a text, or its name
            return Found(replace(block, doubt=block.doubt or doubt), name, tag, block.text)
        rest = block.lines[1:]
        while rest and not rest[0].strip():
            rest = rest[1:]
        return Found(block, label, tag, "".join(f"{line}\n" for line in rest))

    def _named_in_prose(self, before: Sequence[str]) -> str:
        """The only part that the paragraph at the end of these lines names."""
        paragraph = "\n".join(before).rstrip().rpartition("\n\n")[2]
        said = self._names.in_prose(paragraph)
        is_block = fence_at(paragraph.split("\n")[-1]) is not None
        return "" if is_block or len(said) != 1 else said.pop()

    def _begins_with(self, name: str, line: str) -> bool:
        return self._parts.get(name, "").lstrip().split("\n")[0].strip() == line.strip()

    # The end of a block.

    def _choose_end(
        self, lines: Sequence[str], opening: Fence, ends: list[int], closing: list[int]
    ) -> int | None:
        if len(closing) == 1 == len(ends):
            return ends[0]
        name, tag = self._outer_name(lines, opening)
        part = name or self._lone
        if self._is_python(part):
            tried = [*closing[:_MOST_ENDS], *closing[_MOST_ENDS:][-_MOST_ENDS:]]
            texts = [text_until(lines, opening, end) for end in tried]
            # characters of all these texts together, about a second's work
            few = sum(map(len, texts)) <= 500_000
            whole = [end for end, text in zip(tried, texts, strict=True) if few and parses(text)]
            if len(whole) == 1:
                return whole[0]
        for end in [] if name else closing:
            if self._is_parent(part, text_until(lines, opening, end)):
                return end
        if len(ends) < 2 or self._is_program(part):
            return ends[0] if ends else None
        if not (name or tag in _NESTING) or _is_prose_between(lines, ends):
            return None
        return ends[-1]

    # The choice among blocks.

    def named_parts(self, found: Sequence[Found]) -> dict[str, str]:
        """The texts of the blocks that name a part; see `read_parts`."""
        texts: dict[str, str] = {}
        for each in found:
            if not each.name or self._is_stray(each, len(found)) or self._is_frozen(each):
                continue
            if each.name not in self._names.editable and self._names.resolve(each.name) == "":
                raise ReplyFault("unknown_part", f"{each.name} is no part of the candidate")
            if each.block.doubt:
                raise ReplyFault("ambiguous", _ENDS.format(each.name))
            known = texts.get(each.name, each.text)
            if each.name in texts and self._is_parent(each.name, each.text):
                continue
            if known.strip() != each.text.strip() and not self._is_parent(each.name, known):
                raise ReplyFault("ambiguous", f"two blocks give different texts for {each.name}")
            texts[each.name] = each.text
        stray = next((each for each in found if not each.name and self._is_code(each)), None)
        if stray and texts and not self._lone:
            fence = stray.block.opening
            raise ReplyFault("ambiguous", f"a block names no part: {fence.marks}{fence.info}")
        return texts

    def whole_programs(self, found: Sequence[Found], name: str) -> list[str]:
        """The texts of blocks without a name that could be this part, a lone Python program."""
        if name != self._lone or not self._is_python(name):
            return []
        return [each.text for each in self._fitting(found) if not each.name]

    def _fitting(self, found: Sequence[Found]) -> list[Found]:
        return [each for each in found if self._fits_language(each) and self._is_whole(each.text)]

    def _is_frozen(self, each: Found) -> bool:
        """True if a block repeats a frozen part; raise `ReplyFault` if it changes one."""
        if each.name not in self._names.fixed:
            return False
        if not self._is_parent(each.name, each.text):
            raise ReplyFault("outside_blocks", f"the part {each.name} must not change")
        return True

    def _is_stray(self, each: Found, count: int) -> bool:
        """True for a lone block under another name, which is the lone part all the same."""
        is_known = each.name in (*self._names.editable, *self._names.fixed)
        return bool(self._lone and count == 1 and each.name and not is_known)

    def _is_code(self, each: Found) -> bool:
        return each.tag == self._language.lower() != ""

    def _is_program(self, name: str) -> bool:
        return is_program(name, self._language)

    def _is_python(self, name: str) -> bool:
        return name.endswith(".py") or (self._is_program(name) and self._language == "python")

    def _is_parent(self, name: str, text: str) -> bool:
        return name in self._parts and self._parts[name].strip() == text.strip()

    def _likely_text(self, found: Sequence[Found]) -> str:
        """The text of the one block that can be the lone part."""
        part = self._lone
        fitting = [each for each in found if self._fits_language(each)]
        others = [each for each in fitting if not self._is_parent(part, each.text)]
        texts = list(dict.fromkeys(each.text for each in others or fitting))
        whole = [text for text in texts if self._is_whole(text)]
        if len(whole) == 1:
            chosen = next(each for each in fitting if each.text == whole[0])
            if chosen.block.doubt:
                raise ReplyFault("ambiguous", _ENDS.format(part))
            return whole[0]
        if whole:
            detail = f"{len(whole)} blocks could be {part}: give one, and its name behind the fence"
            raise ReplyFault("ambiguous", detail)
        raise ReplyFault("unparsable", f"no fenced block is a whole {part}")

    def _fits_language(self, each: Found) -> bool:
        suffix = self._lone.rpartition(".")[2]
        usual = ("", self._language.lower()) if self._is_program(self._lone) else _PROSE
        return each.tag in (*usual, suffix, _ALIASES.get(suffix, suffix))

    def _is_whole(self, text: str) -> bool:
        """False for Python without what the evaluator calls, or without any name of the parent."""
        if not text.strip():
            return True
        parent = self._parts.get(self._lone, "")
        if not self._is_python(self._lone):
            is_free = self._is_program(self._lone) and self._task.surface.markers != "enforced"
            known = set(_CALLED.findall(parent)) if is_free else set[str]()
            new = set(_CALLED.findall(text))
            return not known or (bool(known & new) and ("main" in new or "main" not in known))
        if parent and not parses(parent):
            return True
        if not parses(text):
            return False
        known, new = _defined(parent), _defined(text)
        entry = self._task.evaluator.entry
        if entry and entry in known:
            return re.search(rf"\b{re.escape(entry)}\b", text) is not None and bool(new)
        return not known or bool(known & new)

    def _bare_program(self, lines: Sequence[str]) -> dict[str, str]:
        """The program in a reply without fences."""
        text = dedent("\n".join(lines)).strip("\n")
        first, _, rest = text.partition("\n")
        if self._lone and self._names.in_heading(first) == self._lone:
            text = rest.lstrip("\n")
        is_long = self._is_python(self._lone) and "\n" in text
        if is_long and self._is_whole(text) and _is_definition(text):
            return {self._lone: f"{text}\n"}
        raise ReplyFault("unparsable", "the reply has no fenced block")


_ENDS = "fences inside the text of {} leave its end open: put it between fences of four"


def _stripped(text: str) -> list[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _line_above(lines: Sequence[str], fence: Fence) -> str:
    """The last line before a fence that is not empty; "" if it is a fence itself."""
    above = next((line for line in reversed(lines[: fence.line]) if line.strip()), "")
    return "" if fence_at(above) else above


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", "//", "--", "/*", "<!--", ";", "%")) and "==" not in line


def _is_prose_between(lines: Sequence[str], ends: Sequence[int]) -> bool:
    """True if what would be a block inside the text looks like prose between two blocks.

    An empty line begins or ends it, its last line ends with a colon, or it is one sentence.
    """
    for end in ends[:-1]:
        after = next(
            (n for n in range(end + 1, ends[-1]) if lines[n].lstrip().startswith(("```", "~~~"))),
            None,
        )
        inside = lines[end + 1 : after]
        written = [line for line in inside if line.strip()]
        if inside and written and not (inside[0].strip() and inside[-1].strip()):
            return True
        if written and written[-1].rstrip().endswith(":" if written[1:] else (":", ".", "!")):
            return True
    return False


@lru_cache(maxsize=16)  # a parent's text is read for each of its replies
def _defined(text: str) -> frozenset[str]:
    return frozenset(one or other for one, other in _DEFINED.findall(text))


def _is_definition(text: str) -> bool:
    tree = parse_python_or_none(text)
    kinds = (
        ast.FunctionDef,
        ast.ClassDef,
        ast.AsyncFunctionDef,
        ast.Assign,
        ast.Import,
        ast.ImportFrom,
    )
    return tree is not None and any(isinstance(node, kinds) for node in tree.body)
