"""A text to edit: its editable characters and, for Python, its syntax tree with positions.

Edits replace spans of the original text, so comments, layout and everything outside the span stay
the same.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import symtable
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from random import Random

from culmen.core import markers
from culmen.core.candidate import frontmatter
from culmen.core.foreign import parse_python

INSERTED = "refine_by_gradient"  # of `evaluate.integrity.inserted`
_SUFFIX = re.compile(r"\.[A-Za-z0-9]+$")


@dataclass
class EditableText:
    """One text.

    If `marked`, EVOLVE-BLOCK markers, if present, bound the editable characters. If `headed`, the
    YAML at its head is not editable.
    """

    name: str
    text: str
    marked: bool = True
    headed: bool = False
    tree: ast.Module | None = field(init=False)

    def __post_init__(self) -> None:
        self.tree = parse_editable(self.text) if part_suffix(self.name) in ("", ".py") else None

    @property
    def suffix(self) -> str:
        """The file suffix of its name in lower case, "" without one."""
        return part_suffix(self.name)

    @property
    def is_code(self) -> bool:
        """True for a program in a language that is edited by tokens."""
        return is_code(self.suffix)

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of every line's first character, and the length of the text as the last."""
        return [0, *(i + 1 for i, char in enumerate(self.text) if char == "\n"), len(self.text)]

    @cached_property
    def editable_spans(self) -> list[Span]:
        """The spans that may change: the whole text, or those between markers if there are any."""
        spans = markers.editable_spans(self.text) if self.marked else None
        if spans is not None:
            return spans
        if self.name == "tools.toml":
            return self._description_spans()
        return [(len(frontmatter(self.text)) if self.headed else 0, len(self.text))]

    def _description_spans(self) -> list[Span]:
        """The whole lines inside of texts in triple quotes: the rest is form."""
        quotes = [match.start() for match in re.finditer(r'"""', self.text)]
        spans = [
            (self.text.find("\n", low, high) + 1, high) for low, high in zip(*[iter(quotes)] * 2)
        ]
        return [(low, self.text.rfind("\n", low, high) + 1) for low, high in spans if low > 0]

    def is_editable(self, start: int, end: int) -> bool:
        """True if this span lies inside an editable one."""
        return any(low <= start and end <= high for low, high in self.editable_spans)

    def node_span(self, node: ast.AST) -> Span:
        """Character offsets of a node that has a position, decorators included."""
        first = min(
            (n for n in getattr(node, "decorator_list", [])), key=lambda n: n.lineno, default=node
        )
        start = self._char_offset(first.lineno, first.col_offset)  # pyright: ignore[reportAttributeAccessIssue]
        if first is not node:
            start = self.text.rindex("@", 0, start + 1)
        return start, self._char_offset(node.end_lineno, node.end_col_offset)  # pyright: ignore[reportAttributeAccessIssue]

    def node_text(self, node: ast.AST) -> str:
        """The node's own text."""
        start, end = self.node_span(node)
        return self.text[start:end]

    def replace_spans(self, *changes: tuple[Span, str]) -> str | None:
        """The text with these spans replaced; None if one of them may not change or two overlap."""
        ordered = sorted(changes, reverse=True)
        text, limit = self.text, len(self.text) + 1
        for (start, end), new in ordered:
            if end > limit or not self.is_editable(start, end):
                return None
            text, limit = text[:start] + new + text[end:], start
        return text

    def editable_nodes(self) -> Iterator[ast.AST]:
        """All editable nodes with a position, in text order.

        Those inside formatted strings and the inserted function are left out.
        """
        queue: list[ast.AST] = [self.tree] if self.tree else []
        while queue:
            node = queue.pop()
            if _is_inserted(node):
                continue
            if hasattr(node, "lineno") and self.is_editable(*self.node_span(node)):
                yield node
            if not isinstance(node, ast.JoinedStr):
                queue.extend(reversed(list(ast.iter_child_nodes(node))))

    def limit_keywords(self) -> Iterator[ast.keyword]:
        """Limits of inserted loops: the keywords `calls` and `seconds` with plain numbers."""
        for node in self.editable_nodes():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == INSERTED
            ):
                for keyword in node.keywords:
                    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                    if keyword.arg in ("calls", "seconds") and type(value) in (int, float):
                        yield keyword

    def statement_lists(self) -> list[list[ast.stmt]]:
        """The statement lists of the program, module first, without the inserted function's."""
        lists: list[list[ast.stmt]] = []
        queue: list[ast.AST] = [self.tree] if self.tree else []
        while queue:
            node = queue.pop()
            queue.extend(
                child
                for child in reversed(list(ast.iter_child_nodes(node)))
                if not _is_inserted(child)
            )
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if isinstance(body, list) and body:
                    lists.append(body)
        return lists

    def line_span(self, node: ast.AST) -> Span | None:
        """The whole lines of a statement, or None if it shares a line with something else."""
        start, end = self.node_span(node)
        low = self.text.rfind("\n", 0, start) + 1
        high = self.text.find("\n", end)
        high = len(self.text) if high < 0 else high + 1
        after = self.text[end:high].strip()
        if (
            self.text[low:start].strip()
            or (after and not after.startswith("#"))
            or not self.is_editable(low, high)
        ):
            return None
        return low, high

    def statement_indent(self, node: ast.AST) -> str:
        """The white space before a statement's first line."""
        start = self.node_span(node)[0]
        return self.text[self.text.rfind("\n", 0, start) + 1 : start]

    def _char_offset(self, line: int, byte: int) -> int:
        start, end = self.line_starts[line - 1], self.line_starts[line]
        raw = self.text[start:end]
        return start + (byte if raw.isascii() else len(raw.encode()[:byte].decode(errors="ignore")))


@dataclass
class EditContext:
    """Arguments of an operator besides the source: randomness, step size, mates, limits.

    `mates` are other texts of the same part. `calls` is the number of calls of its criterion that
    an inserted loop may make at first, `most` the largest total of the loops of a program, `pace`
    the seconds of processor time per call after which a loop gives up. `sense` is 1 or -1 if the
    task is known to want its score high or low.
    """

    rng: Random
    step: float = 0.3
    mates: tuple[str, ...] = ()
    calls: int = 1500
    most: int = 60_000
    pace: float = 2e-4
    sense: int = 0


def parse_editable(text: str) -> ast.Module | None:
    """The syntax tree of a Python text, None for any other.

    None for texts with form feeds or lone carriage returns, too, which would shift positions.
    """
    if "\f" in text or "\r" in text or "\0" in text:
        return None
    try:
        tree = parse_python(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "candidate", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return tree


def _is_inserted(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == INSERTED


def part_suffix(name: str) -> str:
    """The file suffix of a part's name in lower case, "" without one."""
    match = _SUFFIX.search(name)
    return match[0].lower() if match else ""


def is_well_formed(source: EditableText, text: str) -> bool:
    """True if an edited text is as well-formed as its source: Python, JSON, brackets, storable.

    A Python text must not use names that nothing defines, but for those its source does.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    if source.tree is not None:
        return parse_editable(text) is not None and undefined_names(text) <= undefined_names(
            source.text
        )
    suffix = source.suffix
    if is_code(suffix) and has_balanced_brackets(source.text, suffix):
        return has_balanced_brackets(text, suffix)
    return not is_json(source.text) or part_suffix(source.name) != ".json" or is_json(text)


@lru_cache(256)
def undefined_names(text: str) -> frozenset[str]:
    """Global names that a Python text reads and never binds; none where it imports `*`."""
    used, bound = set[str](), set(dir(builtins))
    scopes = [symtable.symtable(text, "candidate", "exec")]
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        is_module = scope.get_type() == "module"
        for symbol in scope.get_symbols():
            if symbol.is_global() or is_module:
                name = symbol.get_name()
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    bound.add(name)
                elif symbol.is_referenced():
                    used.add(name)
    if re.search(r"^\s*from\s.+\simport\s+\*", text, re.MULTILINE):
        return frozenset()
    return frozenset(used - bound - _MODULE_NAMES)


_MODULE_NAMES = {"__file__", "__name__", "__doc__", "__builtins__", "__spec__", "__loader__"}


def is_json(text: str) -> bool:
    """True if the text is one JSON document."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


# Tokens of programs in C, C++, Rust, Go and JavaScript that edits may change.

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
