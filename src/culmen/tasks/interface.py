"""The functions that an evaluator asks of a program, read from its syntax tree.

Nothing is run. An evaluator that comes without a first program may contain one as a text. Otherwise
a model writes it, and is given a stub with the functions that the evaluator calls.
"""

from __future__ import annotations

import ast

import msgspec

from culmen.core.foreign import parse_python

PART = "program.py"
_LOADERS = ("__import__", "module_from_spec", "import_module")
_EMBEDDED = {"SEED", "EXAMPLE", "INITIAL_PROGRAM"}


class ProgramInterface(msgspec.Struct, frozen=True):
    """The functions that an evaluator `uses`, as definitions without bodies in `stub`.

    `program` is the first program that the evaluator contains, "" if there is none.
    """

    program: str = ""
    stub: str = ""
    uses: tuple[str, ...] = ()


def read_interface(text: str, form: str, entry: str = "run") -> ProgramInterface:
    """The interface that an evaluator's text asks for.

    With the form "legacy", `evaluate(path)` loads the program, or passes it to another process that
    does: the functions are those called of a loaded module, in textual order. With others,
    `score(output)` gets the result of `entry`.
    """
    tree = parse_python(text)
    arguments = _called_functions(tree) if form == "legacy" else {entry: 0}
    return ProgramInterface(_embedded_program(tree), _write_stub(arguments), tuple(arguments))


def _called_functions(tree: ast.Module) -> dict[str, int]:
    """Names and numbers of arguments of the functions that are called of a loaded module."""
    modules, found = _module_names(tree), dict[str, int]()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)):
        if isinstance(call.func, ast.Attribute) and _is_module(call.func.value, modules):
            found.setdefault(call.func.attr, len(call.args) + len(call.keywords))
    return found


def _module_names(tree: ast.Module) -> frozenset[str]:
    """Names of variables that hold a loaded module, and of functions that return one.

    A name counts wherever it stands.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names, found = frozenset[str](), frozenset(_LOADERS)
    while names != found:
        names = found
        for function in functions.values():
            returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
            if any(value is not None and _is_module(value, names) for value in returned):
                found |= {function.name}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _is_module(node.value, names):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Call) and (called := functions.get(_callee_name(node))):
                given = zip(called.args.args, node.args)
                found |= {parameter.arg for parameter, value in given if _is_module(value, names)}
    return found


def _is_module(node: ast.expr, names: frozenset[str]) -> bool:
    """True for one of these variables, and for a call of one of these functions."""
    if isinstance(node, ast.Call):
        return _callee_name(node) in names
    return isinstance(node, ast.Name) and node.id in names


def _callee_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _embedded_program(tree: ast.Module) -> str:
    """A program that the evaluator contains as a text, "" if there is none.

    The constant is named SEED, EXAMPLE or INITIAL_PROGRAM.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            text = node.value.value
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & _EMBEDDED and isinstance(text, str) and text.strip():
                return text.strip("\n") + "\n"
    return ""


def _write_stub(arguments: dict[str, int]) -> str:
    """Functions of these names and numbers of arguments, without bodies."""
    if not arguments:
        return ""
    text = f'"""What the evaluator asks for: {", ".join(arguments)}."""\n'
    for name, count in arguments.items():
        parameters = ", ".join(f"x{n}" for n in range(1, count + 1))
        text += f'\n\ndef {name}({parameters}):\n    raise NotImplementedError("write {name}")\n'
    return text
