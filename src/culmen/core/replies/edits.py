"""Edits of a candidate: matched against the text as it was, all of them or none.

SEARCH/REPLACE edits are read between their marker lines, however these are written: in small
letters, without the word, indented in a list. The hunks of a unified diff are edits, too. The lines
of an edit must occur once in the part that it names, or in one part alone if it names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from culmen.core.replies import ReplyFault
from culmen.core.replies.fences import fence_at, without_indent
from culmen.core.replies.names import PartNames

_LEAD = r"(?P<indent>[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)"
_OPEN = re.compile(
    _LEAD + r"(?:<{5,}|[<-]{2,}(?=[ \t]*SEARCH\b))[ \t]*"
    r"(?:(?:SEARCH|ORIGINAL|OLD|HEAD|BEFORE|CURRENT|FIND)\b)?[ \t]*:?[ \t]*(?P<name>.*?)[ \t]*$",
    re.IGNORECASE,
)
_MIDDLE = re.compile(r"[ \t]*={5,}[ \t]*$")
_CLOSE = re.compile(
    r"[ \t]*(?:>{5,}[ \t]*(?:(?:UPDATED|NEW|AFTER|END|REPLACEMENT)\b)?:?[ \t]*"
    r"|[>+]{2,}[ \t]*REPLACE\b.*)$",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"[^\w<>\n]*(?:> )?(?:[<>]{5,}[ \t]*\w*[^\w\n]*"
    r"|[<-]{2,}[ \t]*SEARCH\b.*|[>+]{2,}[ \t]*REPLACE\b.*"
    r"|\*\*\* (?:Begin Patch|Update File:.*))$"
)
_SIGNS = ("<<", ">>", "==", "--", "++", "*** ")
# words for markers: either alone may be part of a text
_FROM = re.compile(
    r"^[^\w\n]*(?:SEARCH[^\w\n]*$|SEARCH:|(?i:<(?:search|find|old\w*|original)>))", re.M
)
_INTO = re.compile(
    r"^[^\w\n]*(?:REPLACE[^\w\n]*$|REPLACE:|(?i:<(?:replace\w*|new\w*|updated)>))", re.M
)
_SEVEN = "======="
_QUOTED = 80  # characters of a line that a fault quotes

Reading = tuple[tuple[str, ...], tuple[str, ...]]


class Unfit(ReplyFault):
    """Edits that cannot be read, or that do not fit the text; the message quotes the line."""

    def __init__(self, detail: str) -> None:
        super().__init__("diff_mismatch", detail)


class Edit(msgspec.Struct, frozen=True):
    """Lines that are searched for and those that take their place, each in a possible reading.

    `span` are its first line in the reply and the one after its last. `named` are the parts of
    which one is meant; empty: any. `line` is the stated line of a hunk, from 0.
    """

    readings: tuple[Reading, ...]
    span: tuple[int, int]
    named: tuple[str, ...] = ()
    line: int | None = None


class EditPlace(msgspec.Struct, frozen=True, order=True):
    """Lines of a part, from `start` on, and what takes their place."""

    name: str
    start: int
    count: int
    lines: tuple[str, ...]


def quote_line(line: str) -> str:
    """A line as a fault quotes it."""
    line = line.strip()
    return f"`{line[:_QUOTED]}{'…' if len(line) > _QUOTED else ''}`"


def has_edits(lines: Sequence[str]) -> bool:
    """True if a line begins or ends an edit."""
    signs = ("<<", "--", ">>", "++")
    text = "\n".join(lines)
    return any(sign in text for sign in signs) and any(_begins(x) or _ends(x) for x in lines)


def begins_edit(text: str) -> bool:
    """True if the first line of a text that is not empty begins an edit."""
    return _begins(next((line for line in text.split("\n") if line.strip()), "")) is not None


def _begins(line: str) -> re.Match[str] | None:
    return _OPEN.match(line) if "<<" in line or "--" in line else None


def _ends(line: str) -> bool:
    return (">>" in line or "++" in line) and _CLOSE.match(line) is not None


def foreign_line(new: str, old: str) -> str:
    """The first marker line of edits in a text of which the old one has fewer, or "".

    Seven equality signs under a title are none.
    """
    worded = _INTO.search(new) if _FROM.search(new) else None
    if worded and not (_FROM.search(old) and _INTO.search(old)):
        return worded[0]
    if not any(sign in new for sign in _SIGNS):
        return ""
    for line, count in _marker_lines(new).items():
        if count > _marker_lines(old).get(line, 0):
            return line
    return ""


def _marker_lines(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    above = ""
    for line in text.split("\n"):
        bare = line.strip()
        if not any(sign in bare for sign in _SIGNS):
            above = bare
            continue
        is_middle = bare == _SEVEN and not (above and len(above) <= len(_SEVEN))
        if is_middle or _FOREIGN.match(line):
            counts[bare] = counts.get(bare, 0) + 1
        above = bare
    return counts


# Reading.


def read_edits(lines: Sequence[str], names: PartNames) -> list[Edit]:
    """The SEARCH/REPLACE edits of a reply, in order.

    Raises `Unfit` if one breaks off, or a marker has no beginning or no middle.
    """
    edits: list[Edit] = []
    named: tuple[str, ...] = ()
    start, index = 0, 0
    while index < len(lines):
        if _ends(lines[index]):
            raise Unfit(f"an edit ends that did not begin: {quote_line(lines[index])}")
        opening = _begins(lines[index])
        if opening is None:
            index += 1
            continue
        end = _edit_end(lines, index)
        named = _named_in_marker(opening, names) or named_before(lines[start:index], names) or named
        readings = _readings(lines[index + 1 : end], opening)
        edits.append(Edit(readings, (index, end + 1), named))
        start = index = end + 1
    return edits


def _edit_end(lines: Sequence[str], start: int) -> int:
    for index in range(start + 1, len(lines)):
        if _ends(lines[index]):
            return index
        if _begins(lines[index]):
            break
    raise Unfit(f"an edit breaks off: after {quote_line(lines[start])} no >>>>>>> REPLACE follows")


def _named_in_marker(opening: re.Match[str], names: PartNames) -> tuple[str, ...]:
    if not opening["name"]:
        return ()
    name = names.in_info(opening["name"])[0]
    if not name:
        raise Unfit(f"a marker is not understood: {quote_line(opening[0])}")
    return (name,)


def _readings(body: Sequence[str], opening: re.Match[str]) -> tuple[Reading, ...]:
    body = without_indent(body, re.sub(r"[^\t]", " ", opening["indent"]))
    middles = [number for number, line in enumerate(body) if _MIDDLE.match(line)]
    if not middles:
        raise Unfit(f"an edit has no line ======= after {quote_line(opening[0])}")
    return tuple((tuple(body[:middle]), tuple(body[middle + 1 :])) for middle in middles)


def named_before(lines: Sequence[str], names: PartNames) -> tuple[str, ...]:
    """The parts that the lines before an edit name, nearest first: a heading, a fence, prose."""
    mentioned: set[str] = set()
    for line in reversed(lines):
        fence = fence_at(line)
        name = names.in_info(fence.info)[0] if fence and fence.info else names.in_heading(line)
        if name and not mentioned:
            return (name,)
        if mentioned and not line.strip():  # the paragraph is over
            break
        mentioned |= names.in_prose(line) if fence is None else set()
    return tuple(sorted(mentioned))


# Applying.


def apply_edits(
    parts: Mapping[str, str], edits: Sequence[Edit], names: PartNames, after: str = ""
) -> dict[str, str]:
    """The parts that change, with all edits applied.

    `after` is what the reply says behind the edits: of several parts in which an edit fits, it may
    name the one that is meant. Raises `Unfit`.
    """
    texts = {
        name: text.replace("\r\n", "\n").split("\n")
        for name, text in parts.items()
        if name in names.editable
    }
    places = sorted(_find_place(edit, texts, names, after) for edit in edits)
    for one, other in pairwise(places):
        if one.name == other.name and one.start + one.count > other.start:
            line = texts[one.name][other.start]
            raise Unfit(f"two edits change the same line of {one.name}: {quote_line(line)}")
    changed: dict[str, str] = {}
    for name in dict.fromkeys(place.name for place in places):
        changed[name] = _replace_lines(parts[name], [p for p in places if p.name == name])
    return changed


def _marker_texts(lines: Sequence[str]) -> set[str]:
    """The marker lines among lines, those of seven equality signs under a title, too."""
    middles = {line.strip() for line in lines if _MIDDLE.match(line)}
    return middles | _marker_lines("\n".join(lines)).keys()


def _framed(lines: Sequence[str]) -> str:
    """Lines as a text that begins and ends with a line feed."""
    return "".join(f"\n{line}" for line in lines) + "\n"


def _find_place(
    edit: Edit, texts: Mapping[str, list[str]], names: PartNames, after: str
) -> EditPlace:
    """The one place where an edit fits. Raises `Unfit`."""
    for name in edit.named:
        if name in names.fixed:
            raise Unfit(f"the part {name} must not change")
        if name not in texts:
            raise Unfit(f"an edit is for {name}, which is no part of the candidate")
    meant = {name: texts[name] for name in edit.named or texts}
    own = {line.strip() for lines in meant.values() for line in lines}
    found = [
        _places(search, replace, meant)
        for search, replace in edit.readings
        if len(edit.readings) == 1 or _marker_texts(replace) <= own
    ]
    if not found:
        raise Unfit("an edit has more than one line =======")
    is_blank = any(not "".join(search).strip() for search, _ in edit.readings)
    fitting = [places for places in found if places and not (is_blank and len(found) > 1)]
    first = next((line for line in edit.readings[0][0] if line.strip()), "")
    begin = f"they begin with {quote_line(first)}"
    if not fitting:
        where = " and ".join(edit.named) or "the candidate"
        missing = f"the lines under SEARCH are not in {where}: {begin}"
        raise Unfit(missing if first else "an edit has no line under SEARCH")
    places = fitting[0] if len(fitting) == 1 else [place for each in fitting for place in each]
    if len(places) > 1 and not edit.named:
        said = names.in_prose(after)
        places = [place for place in places if place.name in said] or places
    if len(places) > 1 and edit.line is not None:
        places = [place for place in places if place.start == edit.line] or places
    if len(places) > 1:
        several = sorted({place.name for place in places})
        how = "in" if several[1:] else "more than once in"
        what = "name the part; " if several[1:] else ""
        where = " and ".join(several)
        raise Unfit(f"the lines under SEARCH occur {how} {where}: {what}{begin}")
    return places[0]


def _places(
    search: Sequence[str], replace: Sequence[str], texts: Mapping[str, list[str]]
) -> list[EditPlace]:
    """The places where lines fit exactly; without any, without regard to space at ends.

    Without these, too, where all are indented by more or by less. Nothing fits an empty text.
    """
    size, new = len(search), tuple(replace)
    if not any(map(str.strip, search)):
        empty = (each for each in texts.items() if not any(map(str.strip, each[1])))
        return [EditPlace(name, 0, len(lines), new) for name, lines in empty]
    found: list[list[EditPlace]] = [[], [], []]
    for name, lines in texts.items():
        for start in _find(lines, search):
            there = lines[start : start + size]
            if [line.rstrip() for line in there] == [line.rstrip() for line in search]:
                rank = int(there != list(search))
                found[rank].append(EditPlace(name, start, size, new))
            elif (shifted := _shifted(there, search, replace)) is not None:
                found[2].append(EditPlace(name, start, size, shifted))
    return found[0] or found[1] or found[2]


def _find(lines: Sequence[str], search: Sequence[str]) -> Iterator[int]:
    """Numbers of the lines at which the search begins, white space at both ends apart."""
    text, wanted = (_framed([line.strip() for line in each]) for each in (lines, search))
    place, line, counted = -1, 0, 0
    for _ in range(1000):  # places are looked at: the time grows with them
        place = text.find(wanted, place + 1)
        if place < 0:
            return
        line += text.count("\n", counted, place)
        counted = place
        yield line


def _shifted(
    there: Sequence[str], search: Sequence[str], replace: Sequence[str]
) -> tuple[str, ...] | None:
    """The replacement, indented as the text is; None unless one shift fits all lines."""
    first = next(n for n, line in enumerate(search) if line.strip())
    old, new = _space(search[first]), _space(there[first])
    shared = min(len(old), len(new))
    if old.endswith(new) or new.endswith(old):
        old, new = old[: len(old) - shared], new[: len(new) - shared]

    def shift(line: str) -> str | None:
        if not line.strip():
            return ""
        return new + line[len(old) :] if line.startswith(old) else None

    if [shift(line.rstrip()) for line in search] != [line.rstrip() for line in there]:
        return None
    moved = [shift(line) for line in replace]
    return None if None in moved else tuple(line for line in moved if line is not None)


def _space(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _replace_lines(text: str, places: Sequence[EditPlace]) -> str:
    lines = text.split("\n")
    end = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    for place in reversed(places):
        lines[place.start : place.start + place.count] = [f"{line}{end}" for line in place.lines]
    new = "\n".join(lines)
    return new if end == "" or text.endswith("\n") else new.removesuffix(end)


# Unified diffs in replies, read as edits: each hunk's lines before and after it.

_HUNK = re.compile(r"@@(?: -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*|[^\n]*@@.*|[ .]*)$")
_NUMBERED = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_HEADER = re.compile(r"(?:diff |index |similarity |(?:old|new) mode |--- |\+\+\+ )")
_MOVED = re.compile(r"(?:new file|deleted file|rename|copy|Binary files|GIT binary)")


def is_diff(lines: Sequence[str], tag: str = "", parent: Sequence[str] = ()) -> bool:
    """True if the lines of a block are a unified diff.

    By its language, its hunks' numbers, or the signs before lines that the parent has.
    """
    if tag in ("diff", "patch"):
        return True
    if any(_NUMBERED.match(line) for line in lines if line[:2] == "@@"):
        return True
    first = next((line for line in lines if line.strip()), " ")
    if first[0] not in " +-@":
        return False
    written = [line for line in lines if line.strip()]
    if not all(line[0] in " +-@" for line in written):
        return False
    written = [line for line in written if not _HUNK.match(line)]
    kept = {line[1:].strip() for line in written if line[0] in " -"} - {""}
    is_signed = all(line[0] in " +-" for line in written) and {"+", "-"} <= {w[0] for w in written}
    return is_signed and bool(kept) and kept <= {line.strip() for line in parent}


def read_diff(
    lines: Sequence[str], names: PartNames, span: tuple[int, int], named: tuple[str, ...] = ()
) -> list[Edit]:
    """The hunks of a diff; those without a header of a file are for the part that is `named`.

    `span` is that of the diff in the reply.

    Raises `Unfit` for anything else: a line without a sign, wrong counts, a new or a lost file.
    """
    edits: list[Edit] = []
    hunk: list[str] = []
    head: re.Match[str] | None = None
    for number, line in enumerate([*lines, "@@"]):
        is_file = _HEADER.match(line) is not None and _is_file_header(lines, number)
        begin = _HUNK.match(line)
        if _MOVED.match(line):
            raise Unfit(f"a diff adds, drops or renames a file: {quote_line(line)}")
        if not (is_file or begin):
            hunk += [] if line.startswith("\\") else [line]
            continue
        if head is not None or any(line.startswith(("+", "-")) for line in hunk):
            edits.append(_hunk_edit(hunk, head, span, named))
        hunk, head = [], begin
        if is_file and line.startswith(("--- ", "+++ ")):
            named = _file_of(line, names) or named
    if not edits:
        raise Unfit("a diff has no changes")
    return edits


def _is_file_header(lines: Sequence[str], number: int) -> bool:
    """True unless the line is one that a hunk drops or adds and that looks like a header."""
    line = lines[number]
    if line.startswith("--- "):
        return number + 1 < len(lines) and lines[number + 1].startswith("+++ ")
    if line.startswith("+++ "):
        return number > 0 and lines[number - 1].startswith("--- ")
    return True


def _file_of(line: str, names: PartNames) -> tuple[str, ...]:
    word = line[4:].split("\t")[0].strip()
    if word in ("/dev/null", "original", "modified", "old", "new", ""):
        return ()
    name = names.resolve(word.split(" ")[0].removeprefix("a/").removeprefix("b/"))
    return (name or word,)


def _hunk_edit(
    hunk: list[str], head: re.Match[str] | None, span: tuple[int, int], named: tuple[str, ...]
) -> Edit:
    is_exact = head is not None and bool(head[1]) and _count(hunk) == _stated(head)
    while hunk and not hunk[-1].strip() and not is_exact:
        hunk = hunk[:-1]  # an empty line at the end belongs to the fence
    for line in hunk:
        if line and line[0] not in " +-":
            raise Unfit(f"a line of a diff begins with no sign: {quote_line(line)}")
    if head is not None and head[1] and _count(hunk) != _stated(head):
        raise Unfit(f"a hunk has other lines than it states: {quote_line(head[0])}")
    before = tuple(line[1:] for line in hunk if not line.startswith("+"))
    after = tuple(line[1:] for line in hunk if not line.startswith("-"))
    line = int(head[1]) - 1 if head is not None and head[1] else None
    return Edit(((before, after),), span, named, line)


def _count(hunk: list[str]) -> tuple[int, int]:
    added, gone = (sum(line.startswith(sign) for line in hunk) for sign in "+-")
    return len(hunk) - added, len(hunk) - gone


def _stated(head: re.Match[str]) -> tuple[int, int]:
    return int(head[2] or 1), int(head[4] or 1)
