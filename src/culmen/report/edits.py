"""Descriptions of a change of texts in one sentence: of Python by its syntax, else by lines."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from culmen.core.foreign import Unreadable, boundary, parse_python
from culmen.report.figures import count_text

_NAMED = 3  # functions, constants or calls named in a sentence
_SHOWN = 24  # characters of a constant

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_MODULE = ""  # name of the statements outside functions


def describe_edit(before: Mapping[str, str], after: Mapping[str, str], language: str = "") -> str:
    """The change from some texts to others, e.g. `place(): adds a loop, calls sorted`.

    `language` is that of parts whose names have no ending. "" for equal texts.
    """
    names = list(dict.fromkeys([*before, *after]))
    changed = [name for name in names if before.get(name) != after.get(name)]
    label = "{}: " if len(names) > 1 else ""
    sentences = [
        _describe_part(name, before.get(name), after.get(name), language, label.format(name))
        for name in changed[:_NAMED]
    ]
    rest = len(changed) - _NAMED
    return "; ".join(sentences) + (f"; {count_text(rest, 'more part')} changed" if rest > 0 else "")


def _describe_part(
    name: str, before: str | None, after: str | None, language: str, label: str
) -> str:
    if before is None:
        return f"adds {name} ({count_text(len((after or '').splitlines()), 'line')})"
    if after is None:
        return f"removes {name}"
    is_python = name.endswith(".py") or ("." not in name and language == "python")
    if is_python and (sentence := describe_python_edit(before, after)):
        return label + sentence
    lines = changed_line_count(before, after)
    if not lines:
        return f"{name}: {_moved_text(before, after)}"
    if lines == 1 and (pair := _only_line_text(before, after)):
        return f"{name}: {pair}"
    return f"{count_text(lines, 'line')} changed in {name}"


def _moved_text(before: str, after: str) -> str:
    """The change between texts of the same lines."""
    is_order = before.splitlines() != after.splitlines()
    return "its lines in another order" if is_order else "only the ends of lines changed"


def changed_line_count(before: str, after: str) -> int:
    """Number of lines changed: of those removed and those added the larger number."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return max((old - new).total(), (new - old).total())


def describe_python_edit(before: str, after: str) -> str:
    """The change of a Python program; "" if one of the texts cannot be parsed."""
    try:
        return _describe_python(before, after)
    except Unreadable:
        return ""


@boundary(400_000)  # characters of both programs
def _describe_python(before: str, after: str) -> str:
    count = changed_line_count(before, after)
    lines = count_text(count, "line") if count else "lines moved"
    return _compare_functions(_functions_of(before), _functions_of(after), lines)


def _compare_functions(old: dict[str, ast.AST], new: dict[str, ast.AST], lines: str) -> str:
    gone, added = [n for n in old if n not in new], [n for n in new if n not in old]
    changed = [n for n in new if n in old and ast.dump(old[n]) != ast.dump(new[n])]
    if not gone and not added and not changed:
        return "only comments, docstrings or the layout changed"
    if not gone and not added and len(changed) == 1:
        return _describe_function(changed[0], old[changed[0]], new[changed[0]])
    if not gone and not changed:
        return f"adds {_names_text(added)}"
    verbs = (("adds", added), ("changes", changed), ("removes", gone))
    parts = [f"{verb} {_names_text(names)}" for verb, names in verbs if names]
    return f"{', '.join(parts)} ({lines})"


def _names_text(names: list[str]) -> str:
    shown = [f"{name}()" if name else "the module's own lines" for name in names[:_NAMED]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {count_text(more, 'more function')}"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _functions_of(text: str) -> dict[str, ast.AST]:
    """Functions by qualified name without docstrings, and the remaining statements as `_MODULE`."""
    tree = parse_python(text)
    for node in ast.walk(tree):
        if isinstance(node, Definition | ast.ClassDef | ast.Module):
            node.body = _without_docstring(node.body)
    found = dict(_definitions_in(tree.body, ""))
    rest = [node for node in tree.body if not isinstance(node, Definition)]
    return {**found, _MODULE: _ClassShells().visit(ast.Module(rest, []))}


def _definitions_in(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, Definition):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _definitions_in(node.body, f"{prefix}{node.name}.")


class _ClassShells(ast.NodeTransformer):
    """Classes without their methods, which are compared on their own."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [each for each in node.body if not isinstance(each, Definition)]
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def _describe_function(name: str, old: ast.AST, new: ast.AST) -> str:
    place = f"{name}()" if name else ""
    constants = _changed_constants(old, new)
    if constants:
        shown = ", ".join(f"{label}{a} → {b}" for label, a, b in constants[:_NAMED])
        more = len(constants) - _NAMED
        shown += f" and {count_text(more, 'more constant')}" if more > 0 else ""
        return f"{place}: {shown}" if place else shown
    traits = [*_changed_loops(old, new), *_changed_calls(old, new)]
    before, after = (ast.unparse(each) for each in (old, new))
    lines = changed_line_count(before, after)
    if not lines:
        return f"{place or 'the module'}: {_moved_text(before, after)}"
    if lines == 1 and (pair := _only_line_text(before, after)):
        return f"{place or 'the module'}: {pair}"
    if not traits:
        return f"{count_text(lines, 'line')} of {place or 'the module'} rewritten"
    return f"{place or 'the module'}: {', '.join(traits)} ({count_text(lines, 'line')})"


def _only_line_text(before: str, after: str) -> str:
    """`best = min(a, b) → best = max(a, b)` for one changed line; "" if it is long."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    gone, added = (" ".join(line.strip() for line in each) for each in (old - new, new - old))
    if max(len(gone), len(added)) > 56:  # characters of a line in a sentence
        return ""
    if not gone or not added:
        return f"adds {added}" if added else f"removes {gone}"
    return f"{gone} → {added}"


def _changed_constants(old: ast.AST, new: ast.AST) -> list[tuple[str, str, str]]:
    """(label, before, after) of each changed constant if nothing else differs; else []."""
    found: list[tuple[str, str, str]] = []
    return found if _compare_nodes(old, new, "", found) else []


def _compare_nodes(old: object, new: object, label: str, found: list[tuple[str, str, str]]) -> bool:
    """True if two trees differ in constants alone, which are added to `found`."""
    if type(old) is not type(new):
        return False
    if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
        if old.value != new.value or type(old.value) is not type(new.value):
            found.append((label, _constant_text(old), _constant_text(new)))
        return True
    if isinstance(old, ast.AST) and isinstance(new, ast.AST):
        label = _label_of(old) or label
        return all(
            _compare_nodes(getattr(old, field, None), getattr(new, field, None), label, found)
            for field in old._fields
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            _compare_nodes(one, other, label, found) for one, other in zip(old, new)
        )
    return old == new


def _label_of(node: ast.AST) -> str:
    """`steps ` for the value of an assignment or a keyword `steps`; "" for other nodes."""
    if isinstance(node, ast.keyword) and node.arg:
        return f"{node.arg} "
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return f"{target.id} " if isinstance(target, ast.Name) else ""


def _constant_text(node: ast.Constant) -> str:
    value = node.value
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _changed_loops(old: ast.AST, new: ast.AST) -> list[str]:
    before, after = (sum(isinstance(n, _LOOPS) for n in ast.walk(each)) for each in (old, new))
    many = "a loop" if abs(after - before) == 1 else f"{abs(after - before)} loops"
    return [] if before == after else [f"{'adds' if after > before else 'removes'} {many}"]


def _changed_calls(old: ast.AST, new: ast.AST) -> list[str]:
    """Calls that are new, and those that they replace."""
    before, after = _calls_in(old), _calls_in(new)
    added = ", ".join([name for name in after if name not in before][:_NAMED])
    gone = ", ".join([name for name in before if name not in after][:_NAMED])
    if added:
        return [f"calls {added}{f' in place of {gone}' if gone else ''}"]
    return [f"no longer calls {gone}"] if gone else []


def _calls_in(node: ast.AST) -> list[str]:
    """Names of the functions called, in order, each once."""
    names = (
        ast.unparse(each.func)
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name | ast.Attribute)
    )
    return list(dict.fromkeys(name for name in names if len(name) <= 2 * _SHOWN))
