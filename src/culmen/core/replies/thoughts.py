"""Thoughts in a model's reply: what stands before the last closing tag of a thought.

The opening tag may be missing, since templates of chats open it. A tag inside a fenced block, an
edit or a JSON object is part of the text: `"</think>"` in a program, a pair of tags in a prompt.
"""

from __future__ import annotations

import json
import re

import msgspec

from culmen.core.foreign import lazy_pattern
from culmen.core.replies.fences import Fence, fence_at

_WORDS = "think|thinking|thought|thoughts|reasoning|reflection|scratchpad|seed:think|antthinking"
_TAG = lazy_pattern(
    rf"(?P<open><(?:{_WORDS})>|\[THINK\]|◁think▷|<\|(?:begin_of_thought|start_thinking)\|>"
    r"|<\|channel\|>(?:analysis|commentary)<\|message\|>)"
    rf"|</(?:{_WORDS})>|\[/THINK\]|◁/think▷|<\|(?:end_of_thought|end_thinking)\|>"
    r"|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_SIGN = lazy_pattern(r"[<\[◁]")  # that a tag begins with
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|return|>", "<|end|>", "<|endoftext|>", "</s>")
_EDIT = lazy_pattern(r"[ \t]*(?P<sign><{5,}|>{5,})")
_DECODER = json.JSONDecoder(strict=False)


class BareReply(msgspec.Struct, frozen=True):
    """A reply without its thoughts; `doubt` if a text stands before one of them, too."""

    text: str
    doubt: bool = False


def without_thoughts(reply: str) -> str:
    """The reply without its thoughts; "" if it broke off in one."""
    return answer_in(reply).text


def answer_in(reply: str) -> BareReply:
    """The answer in a reply, with LF as line ends."""
    text = reply.replace("\r\n", "\n").removeprefix("\ufeff")
    for end in _ENDS:
        if text.rstrip().endswith(end):
            text = text.rstrip().removesuffix(end).rstrip()
    if not any(_TAG.match(text, sign.start()) for sign in _SIGN.finditer(text)):
        return BareReply(text)
    scan = _Scan(text)
    for start, line in _offset_lines(text):
        scan.read_line(start, line)
    end = scan.opened if scan.opened is not None else len(text)
    return BareReply(text[scan.cut : end], scan.doubt)


class _Scan:
    """State of one pass over the lines of a reply.

    `cut` is where the answer begins, `opened` where a thought is open. `fence` or `edit` is open
    where tags are text; `pairs` counts the tags opened there. `written` is True after a fence or
    an edit outside thoughts.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.cut, self.doubt = 0, False
        self.opened: int | None = None
        self._fence: Fence | None = None
        self._edit = self._written = False
        self._pairs = 0
        self._json = _json_end(text, 0)

    def read_line(self, start: int, line: str) -> None:
        """Take one line into account."""
        rest = 0
        for tag in _TAG.finditer(line):
            if start + tag.start() < self._json:
                continue
            inside = self._fence is not None or self._edit
            if tag["open"]:
                self._pairs += inside
                if not inside and self.opened is None and not line[rest : tag.start()].strip():
                    self.opened, rest = start + tag.start(), tag.end()
            elif inside and (self._pairs or line[rest : tag.start()].strip()):
                self._pairs = max(0, self._pairs - 1)
            elif inside or not _is_quoted(line, tag):
                self._close(start + tag.end())
                rest = tag.end()
        self._follow(line[rest:])

    def _close(self, place: int) -> None:
        self.doubt = self.doubt or (self._written and self.opened is not None)
        self.cut, self.opened = place, None
        self._fence, self._edit, self._written, self._pairs = None, False, False, 0
        self._json = _json_end(self._text, place)

    def _follow(self, line: str) -> None:
        """Open and close fences and edits."""
        fence, edit = fence_at(line), _EDIT.match(line)
        if self._fence is not None:
            self._fence = None if fence and fence.can_close(self._fence) else self._fence
        elif fence:
            self._fence = fence
        if edit:
            self._edit = edit["sign"].startswith("<")
        if self._fence is None and not self._edit:
            self._pairs = 0
        if (fence or edit) and self.opened is None:
            self._written = True


def _is_quoted(line: str, tag: re.Match[str]) -> bool:
    before, after = line[: tag.start()], line[tag.end() :]
    return before.endswith(("`", '"', "'")) or after.startswith(('"', "'", "\\"))


def _json_end(text: str, start: int) -> int:
    """The end of the JSON object that begins at this place, the place itself without one."""
    begin = len(text) - len(text[start:].lstrip())
    if not text.startswith(("{", "["), begin):
        return start
    try:
        return _DECODER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return start


def _offset_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    place = 0
    for line in text.split("\n"):
        lines.append((place, line))
        place += len(line) + 1
    return lines
