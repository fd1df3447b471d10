"""Tokens of programs in C, C++, Rust, Go and JavaScript that edits may change.

There is no parser: comments, texts and characters are found by patterns, and changes keep to tokens
whose exchange seldom breaks a program. A compiler refuses what is wrong all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

Span = tuple[int, int]

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TEXT = r'"(?:\\.|[^"\\\n])*"'
_CHARACTER = r"'(?:\\[^\n']{1,10}|[^\\'\n])'"  # of one character, so that 'a of Rust is none
_C = rf"{_COMMENT}|^[ \t]*#[ \t]*include[^\n]*|{_TEXT}|{_CHARACTER}"
_OPAQUE = {  # what holds no code, by suffix
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hpp"), _C),
    ".rs": rf'{_COMMENT}|\br(#*)".*?"\1|{_TEXT}|{_CHARACTER}',
    ".go": rf"{_COMMENT}|`[^`]*`|{_TEXT}|{_CHARACTER}",
    **dict.fromkeys((".js", ".mjs"), rf"{_COMMENT}|`[^`]*`|{_TEXT}|'(?:\\.|[^'\\\n])*'"),
}
_NUMERAL = re.compile(
    r"(?<!\w)(?<![^.]\.)((?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"(?:_?(?:[fF]|[uUlL]{1,3}|[iu](?:8|16|32|64|128|size)|f32|f64|n))?(?![\w]|\.\d)"
)
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FAMILIES = (
    _COMPARISONS,
    ("+", "-", "*", "/"),
    ("+=", "-=", "*=", "/="),
    ("&&", "||"),
    ("===", "!=="),
)
_RELATED = {sign: family for family in _FAMILIES for sign in family}
_SPACED = re.compile(
    r"(?<=[\w)\]] )(?:[<>]=?|[=!]==?|[-+*/]=?|&&|\|\|)(?= [\w(.!-])"
)  # spaces around it: no template, reference, pointer or text
_NAME_PAIRS = (("min", "max"), ("floor", "ceil"), ("sin", "cos"), ("true", "false"))
_SWAPPED = {a: b for pair in _NAME_PAIRS for a, b in (pair, pair[::-1])}
_NAME = re.compile(r"\b(?:(?:min|max|floor|ceil|sin|cos)(?=\()|true\b|false\b)")
_STATEMENT = re.compile(  # an assignment without a declaration, or a call, on a line of its own
    r"^[ \t]*(?:[\w.\[\]>-]+ (?:[-+*/]?=) [^{}\n]+|[\w.:>-]+\([^{}\n]*\));?[ \t]*(?:\n|\Z)",
    re.MULTILINE,
)
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def is_code(suffix: str) -> bool:
    """True for the suffixes of languages that this module reads."""
    return suffix in _OPAQUE


@lru_cache(64)
def blanked_text(text: str, suffix: str) -> str:
    """The text with comments, texts and characters as blanks; every offset stays the same."""
    pattern = re.compile(_OPAQUE[suffix], re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def numeral_spans(text: str, suffix: str) -> list[Span]:
    """Spans of decimal numbers without sign and suffix."""
    found = _NUMERAL.finditer(blanked_text(text, suffix))
    return [match.span(1) for match in found]


def operator_changes(text: str, suffix: str) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """(span, replacements) of operators and of names that have a counterpart."""
    blanked = blanked_text(text, suffix)
    for match in _SPACED.finditer(blanked):
        if (family := _RELATED.get(match[0])) is not None and not _has_text_beside(text, match):
            yield match.span(), tuple(sign for sign in family if sign != match[0])
    for match in _NAME.finditer(blanked):
        yield match.span(), (_SWAPPED[match[0]],)


def _has_text_beside(text: str, match: re.Match[str]) -> bool:
    """True beside a text: `+` joins texts, and no other operator does."""
    line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
    return any(quote in line for quote in "\"'`")


def statement_spans(text: str, suffix: str) -> list[Span]:
    """Whole lines that are one assignment or one call, with balanced brackets."""
    blanked = blanked_text(text, suffix)
    return [
        match.span()
        for match in _STATEMENT.finditer(blanked)
        if _are_brackets_balanced(match[0]) and (match[0].rstrip()[-1] == ";" or suffix == ".go")
    ]


def _are_brackets_balanced(text: str) -> bool:
    stack: list[str] = []
    for char in text:
        if char in "([{":
            stack.append(char)
        elif char in _BRACKETS and (not stack or stack.pop() != _BRACKETS[char]):
            return False
    return not stack


def has_balanced_brackets(text: str, suffix: str) -> bool:
    """True if all brackets outside of texts and comments are in pairs."""
    return _are_brackets_balanced(blanked_text(text, suffix))
