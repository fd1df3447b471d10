"""Signs that a text is not the one that was meant: words about it, gaps, another form."""

from __future__ import annotations

import ast
import builtins
import re
from functools import lru_cache

from culmen.core.foreign import parse_python_or_none, split_pieces
from culmen.core.replies.edits import quote_line
from culmen.core.replies.fences import fence_at
from culmen.core.replies.json_forms import read_objects

_ELIDED = re.compile(
    r"^\W{0,8}(?:\.\.\.|…)[ \t(\[]{1,3}(?:\w+ ){0,3}?"
    r"(?:existing|rest|remaining|remainder|unchanged|same|omitted|previous|original)\b"
    r"|^\W{0,8}(?:the )?(?:rest|remainder|remaining|existing|same)\b[^\n]{0,60}(?:\.\.\.|…"
    r"|\b(?:unchanged|the same|as before|as above|here)\W*$)"
    r"|^\W{0,8}(?:\w+ )?(?:unchanged|keep (?:the )?existing(?: \w+)?)\W*$",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"^\s*(?:#|//|--|/\*|<!--|;|%|\(\*|\.\.\.|…|[\[({].*[\])}]\s*$)")
_DOTS = re.compile(r"[#/\s\[(]*(?:\.\.\.|…)[\])\s]*")
_PLACEHOLDER = re.compile(r"\s*(?:\.\.\.|…|<[\w ]+>)\s*")
_NEWER = r"(?:new|improved|better|revised|updated|final|optimi[sz]ed|rewritten)"
_KINDS = r"(?:prompt|text|version|revision|instructions?|file|skill|document|program|code)"
_FRAME = (
    r"=+ (?:[\w./-]+\.\w+|(?:begin|start|end)\b.*) =+$|[\w./-]+: [|>][+-]?$"
    rf"|\W*(?:begin|start|end) of (?:the )?(?:\w+ )?{_KINDS}\W*$"
)
_OPENING = re.compile(
    rf"{_FRAME}|\W*(?:(?:sure|certainly|of course)\W+)?(?:here(?:'s| is) (?:\w+ ){{1,3}}?)?"
    rf"{_NEWER} (?:\w+ )?{_KINDS}\b[^:.]*:\W*$",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    rf"{_FRAME}|\W*(?:i hope (?:this|that|it)|hope (?:this|that) helps|let me know|feel free to"
    r"|please let me know|would you like me to|if you(?:'d| would) like, i can"
    rf"|this (?:(?:{_NEWER} )?(?:version|revision)|{_NEWER} {_KINDS}) (?:is|now|should|will|\w+s)"
    r"|these changes (?:should|will|make))\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\W*(?:changes made|what (?:i )?changed|why this works|key (?:changes|improvements)"
    r"|summary of changes)\W*(?::|$)",
    re.IGNORECASE,
)
_WRAPPER = re.compile(
    rf"<((?:prompt|answer|text|output|result|response|candidate|code|program|{_NEWER})\w*)>"
    r".*</\1>|(?:\w+ = )?(\"{3}|'{3}|\"|`{1,2}(?!`))(?:(?!\2).)*\2",
    re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"^(?:#include)?[^\"'`#/\n]*&(?:lt|gt|amp|quot|#39);", re.MULTILINE)
_BUILTINS = frozenset(dir(builtins))
_SIGNED = re.compile(r"[ \t]*(?:\d+[ \t]*[|:]|>|\.\.\.[ \t])")


def is_placeholder(text: str) -> bool:
    """True if a text only stands for another one: `...`, `<new text>`."""
    return _PLACEHOLDER.fullmatch(text) is not None


def left_out(new: str, old: str, is_code: bool) -> str:
    """The words that leave out a part of the old text, or ""."""
    known, lines = set(old.split("\n")), new.strip().split("\n")
    for line in lines:
        if line not in known and _COMMENT.match(line) and _ELIDED.match(line):
            return line
    for line in (lines[0], lines[-1]):
        if line not in known and _DOTS.fullmatch(line):
            return line
    if is_placeholder(new) and old.strip():
        return new
    if old.startswith("---\n") and new.strip() and not new.lstrip().startswith("---"):
        return "---"
    return _lost_name(new, old) if is_code else ""


def _lost_name(new: str, old: str) -> str:
    """A name that a Python text uses, and that only the old one defines; or ""."""
    lost = _outer_names(old) - _outer_names(new) - _BUILTINS
    tree = parse_python_or_none(new) if lost else None
    if tree is None:
        return ""
    nodes = list(ast.walk(tree))
    bound = _bound(nodes)
    read = {node.id for node in nodes if isinstance(node, ast.Name) and _is_read(node)}
    return "" if "*" in bound else min(lost & read - bound, default="")


def _outer_names(text: str) -> set[str]:
    """The names that a Python text binds at its margin; none for any other text."""
    return {name for piece in split_pieces(text) for name in _piece_names(piece)}


@lru_cache(maxsize=1024)
def _piece_names(text: str) -> frozenset[str]:
    tree = parse_python_or_none(text)
    return frozenset(_bound(tree.body) if tree else ())


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _bound(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """The names that definitions, imports, assignments and parameters bind."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Name) and not _is_read(node):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
    return names


def doubt_about(new: str, old: str, is_code: bool) -> str:
    """The doubt that a text is the intended one, or ""."""
    lines = [line for line in new.split("\n") if line.strip()] or [""]
    first, last = lines[0], lines[-1]
    if not old.lstrip().startswith("{") and old.strip() and _is_object(new):
        return "is a JSON object"
    if "\\n" in new and len(lines) == 1 and "\n" in old.strip():
        return "has its line breaks written as \\n"
    if all(map(_SIGNED.match, lines)) and not _SIGNED.match(old):
        return f"has numbers or signs before its lines: {quote_line(first)}"
    if is_code:
        entity = None if "&" not in new or "</" in new else _ENTITY.search(new)
        if entity and not _ENTITY.search(old):
            return f"has HTML entities for signs: {quote_line(entity[0])}"
        if fence_at(first) and not old.lstrip().startswith(first.strip()):
            return f"begins with a fence: {quote_line(first)}"
        return ""
    if _WRAPPER.fullmatch(new.strip()) and not _WRAPPER.fullmatch(old.strip()):
        return f"stands between tags or quotes: {quote_line(first)}"
    words = [line for line in lines if _CHANGES.match(line)]
    words += [first] if _OPENING.match(first.strip()) else []
    words += [last] if _CLOSING.match(last.strip()) else []
    words = [line for line in words if line.strip() not in old]
    return f"may hold words to the reader: {quote_line(words[0])}" if words else ""


def _is_object(text: str) -> bool:
    text = text.strip()
    found = read_objects(text) if text.startswith("{") and text.endswith("}") else []
    return len(found) == 1 and text.count('"') > 1
