"""Deleting, doubling, swapping and moving whole statements; for other texts, lines and sentences."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap

from culmen.offline.edits.source import EditableText, EditContext, Span

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?[ \t]*\n?|\n")


def statements(source: EditableText, edit: EditContext) -> str | None:
    """One statement deleted, doubled, swapped with another of its block, or moved to another place."""
    spots = [(body, node, at) for body in source.bodies() for node in body if (at := _movable(source, node))]
    if not spots:
        return None
    body, node, at = edit.rng.choice(spots)
    text = _ended(source.text[slice(*at)])
    action = edit.rng.choice(("delete", "double", "swap", "move"))
    if action == "delete":
        return source.replace((at, "" if len(body) > 1 else f"{source.indent(node)}pass\n"))
    if action == "double":
        return source.replace(((at[1], at[1]), text if source.text[: at[1]].endswith("\n") else "\n" + text))
    if action == "swap":
        others = [place for block, _, place in spots if block is body and place != at]
        other = edit.rng.choice(others) if others else at
        return source.replace((at, _ended(source.text[slice(*other)])), (other, text)) if others else None
    _, target, there = edit.rng.choice(spots)
    moved = textwrap.indent(textwrap.dedent(text), source.indent(target))
    removed = "" if len(body) > 1 else f"{source.indent(node)}pass\n"
    return None if at[0] <= there[0] <= at[1] else source.replace((at, removed), ((there[0], there[0]), moved))


def lines(source: EditableText, edit: EditContext) -> str | None:
    """Of a text that is no code: a line or sentence deleted, doubled, swapped or moved, or one of its words changed."""
    if source.tree is not None:
        return None
    pattern = _SENTENCE if edit.rng.random() < 0.3 else re.compile(r"[^\n]*\n|[^\n]+")
    units = [m.span() for m in pattern.finditer(source.text) if m[0].strip() and source.allows(*m.span())]
    if not units:
        return None
    at, other = edit.rng.choice(units), edit.rng.choice(units)
    one, two = (
        _ended(source.text[slice(*span)]) if pattern is not _SENTENCE else source.text[slice(*span)]
        for span in (at, other)
    )
    action = edit.rng.choice(("delete", "double", "swap", "move", "words", "words", "merge", "merge"))
    if action == "delete":
        return source.replace((at, ""))
    if action == "double":
        return source.replace(((at[1], at[1]), one))
    if action in ("words", "merge"):
        return source.replace((at, _reworded(one, two, edit, keep=action == "merge")))
    if at == other:
        return None
    return (
        source.replace((at, two), (other, one))
        if action == "swap"
        else source.replace((at, ""), ((other[0], other[0]), one))
    )


def crossover(source: EditableText, edit: EditContext) -> str | None:
    """Some of the runs of lines in which another candidate's text differs, taken over from it."""
    mates = [mate for mate in edit.mates if mate != source.text]
    if not mates:
        return None
    mine, theirs = source.text.splitlines(keepends=True), edit.rng.choice(mates).splitlines(keepends=True)
    starts = [0]
    for line in mine:
        starts.append(starts[-1] + len(line))
    hunks: list[tuple[Span, str]] = []
    for tag, low, high, first, last in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        if tag != "equal" and source.allows(starts[low], starts[high]):
            hunks.append(((starts[low], starts[high]), "".join(theirs[first:last])))
    taken = [hunk for hunk in hunks if edit.rng.random() < 0.5] or hunks[:1]
    return source.replace(*taken) if taken else None


def _movable(source: EditableText, node: ast.stmt) -> Span | None:
    fixed = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return None if fixed or docstring else source.lines(node)


def _reworded(line: str, other: str, edit: EditContext, *, keep: bool) -> str:
    """The line without one of its words (or, with `keep`, with all of them) and maybe with one of another line."""
    words = re.findall(r"\s+|[^\s]+", line)
    own = [i for i, word in enumerate(words) if not word.isspace()]
    foreign = other.split()
    if not own or not foreign:
        return line
    place = edit.rng.choice(own)
    new = edit.rng.choice(["", edit.rng.choice(foreign)])
    words[place] = f"{words[place]} {new}" if keep else new
    return "".join(words)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
