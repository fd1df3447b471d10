"""A candidate's tools: names, descriptions, input schemas and code, read and never run.

The part tools.json or tools.toml has a table for each tool, by the name that its server gives it:

    description   what the agent reads
    inputSchema   JSON Schema of its arguments, if the first candidate has one for the tool
    name          the name that the agent sees, if it is another
    arguments     the server's names of arguments, by those that the agent sees, if they differ

The public functions of the Python parts are tools without a server: an agent sees the docstring and
the annotations, and a table of the function's name goes before them.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from culmen.core.foreign import parse_python
from culmen.core.json import JsonObject

FILES = ("tools.json", "tools.toml")
_KEYS = ("description", "inputSchema", "name", "arguments")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")  # programs put the server's name before it, up to 64
_NAME_RULE = "a name has 1 to 48 letters, digits, - and _"
_DEEPEST = 12  # levels of a schema
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_ANNOTATIONS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


class ToolFault(ValueError):
    """A reason why parts are no tools."""


@dataclass(frozen=True)
class ServedTool:
    """One tool as an agent sees it.

    `schema` is None for the one that the server gives; `file` is the part with the function of the
    name `own_name`, "" if the server has the tool. `arguments` maps the shown names of arguments to
    the tool's own, if they differ.
    """

    own_name: str
    name: str
    description: str
    schema: JsonObject | None = None
    file: str = ""
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def own_arguments(self) -> dict[str, bool]:
        """The tool's own names of the arguments shown; True for those that are required."""
        schema: JsonObject = self.schema or {}
        required, shown = schema.get("required", ()), list[str](schema.get("properties", {}))
        return {self.arguments.get(name, name): name in required for name in shown}


def has_tools(parts: Mapping[str, str]) -> bool:
    """True if the parts have a file of tools."""
    return any(name in parts for name in FILES)


def read_tools(parts: Mapping[str, str]) -> list[ServedTool]:
    """The tools of parts; raise `ToolFault`."""
    functions = {tool.own_name: tool for name in parts for tool in _functions(name, parts[name])}
    if len(functions) < sum(1 for name in parts for _ in _functions(name, parts[name])):
        raise ToolFault("two public functions have the same name")
    tables = _tables(parts)
    tools = [_described(name, functions.get(name), table) for name, table in tables.items()]
    tools += [tool for name, tool in functions.items() if name not in tables]
    names = [tool.name for tool in tools]
    if not tools:
        raise ToolFault("there is no tool")
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ToolFault(f"two tools are called '{twice}'")
    return tools


def tools_fault(parts: Mapping[str, str], first: Mapping[str, str], names: str) -> str:
    """Reason why parts are no variant of the first ones, "" if they are.

    bad_tools: REASON. With `names` frozen, tools and arguments stay and keep their names.
    """
    try:
        tools, base = read_tools(parts), {tool.own_name: tool for tool in read_tools(first)}
        for tool in tools:
            if not tool.file:
                _check_against(tool, base.get(tool.own_name))
        if names == "frozen" and _names_of(tools) != _names_of(base.values()):
            raise ToolFault("the names of tools and arguments, and the set of them, may not change")
    except ToolFault as fault:
        return f"bad_tools: {fault}"
    return ""


def _names_of(tools: Iterable[ServedTool]) -> dict[str, tuple[str, frozenset[str]]]:
    return {
        tool.own_name: (tool.name, frozenset((tool.schema or {}).get("properties", ())))
        for tool in tools
    }


def _check_against(tool: ServedTool, base: ServedTool | None) -> None:
    """Raise `ToolFault` for a tool of the server that calls of the shown one cannot reach."""
    if base is None or base.file:
        raise ToolFault(f"the server has no tool '{tool.own_name}'")
    if tool.schema is None:
        return
    if base.schema is None:
        raise ToolFault(f"{tool.own_name}: inputSchema is the server's, leave it out")
    check_arguments(tool, base.own_arguments)


def check_arguments(tool: ServedTool, known: Mapping[str, bool], *, more: bool = False) -> None:
    """Raise `ToolFault` unless the shown arguments fit a tool's own (True: required).

    With `more` the tool takes others, too.
    """
    shown = tool.own_arguments
    if len(shown) < len((tool.schema or {}).get("properties", {})):
        raise ToolFault(f"{tool.own_name}: two arguments stand for the same one")
    if unknown := next((name for name in shown if name not in known and not more), ""):
        raise ToolFault(f"{tool.own_name}: it takes no argument '{unknown}'")
    if missing := next((n for n, needed in known.items() if needed and not shown.get(n)), ""):
        raise ToolFault(f"{tool.own_name}: its schema drops the required argument '{missing}'")


# -- the tables


def _tables(parts: Mapping[str, str]) -> dict[str, JsonObject]:
    """The tables of the parts' file of tools."""
    present = [name for name in FILES if name in parts]
    if len(present) > 1:
        raise ToolFault(f"one of {' and '.join(present)} is too many")
    if not present:
        return {}
    parse: Callable[[str], object] = json.loads if present[0].endswith(".json") else tomllib.loads
    try:
        found = parse(parts[present[0]])
    except (ValueError, RecursionError) as error:
        raise ToolFault(f"{present[0]} cannot be read: {str(error)[:200]}") from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ToolFault(f"{present[0]} is not a table of tools")
    return found


def _described(own_name: str, function: ServedTool | None, table: JsonObject) -> ServedTool:
    """The tool of a table, its function filling in missing keys."""
    if unknown := next((key for key in table if key not in _KEYS), ""):
        raise ToolFault(f"{own_name}: unknown key '{unknown}', known are {', '.join(_KEYS)}")
    description = table.get("description", function.description if function else "")
    name, schema = table.get("name", own_name), table.get("inputSchema")
    if not isinstance(description, str) or not description.strip():
        raise ToolFault(f"{own_name}: there is no description")
    if not isinstance(name, str) or not (name == own_name or _NAME.fullmatch(name)):
        raise ToolFault(f"{own_name}: {_NAME_RULE}")
    arguments = table.get("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(v, str) for v in arguments.values()):
        raise ToolFault(f"{own_name}: arguments is a table of names")
    if fault := "" if schema is None else _object_fault(schema):
        raise ToolFault(f"{own_name}: inputSchema {fault}")
    if set(arguments) - set((schema or {}).get("properties", {})):
        raise ToolFault(f"{own_name}: arguments names one that is not in inputSchema")
    file = function.file if function else ""
    if function is None or schema is None:
        schema = function.schema if function else schema
        return ServedTool(own_name, name, description, schema, file, arguments)
    tool = ServedTool(own_name, name, description, schema, file, arguments)
    more = bool((function.schema or {}).get("additionalProperties"))
    check_arguments(tool, function.own_arguments, more=more)
    return tool


# -- JSON Schema, as far as agents' programs agree on it


def _object_fault(schema: object) -> str:
    """Reason why a value is no JSON Schema of an object, "" if it is one."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return 'has not the type "object"'
    try:
        json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return "is not JSON"
    return schema_fault(schema)


def schema_fault(schema: object, depth: int = 0) -> str:
    """Reason why a JSON value is no JSON Schema (draft 2020-12), "" if it is one."""
    if isinstance(schema, bool) or depth > _DEEPEST:
        return "" if depth <= _DEEPEST else "is nested too deeply"
    if not isinstance(schema, dict):
        return f"is no schema: {json.dumps(schema)[:60]}"
    for key, value in schema.items():
        if key in _RULES and not _RULES[key](value):
            return f"is no JSON Schema: {key} = {json.dumps(value)[:60]}"
    required = schema.get("required", ())
    if depth == 0 and not set(required) <= set(schema.get("properties", ())):
        return "requires an argument that it does not describe"
    inner = (schema_fault(each, depth + 1) for each in _subschemas(schema))
    return next(filter(None, inner), "")


def _subschemas(schema: JsonObject) -> Iterator[object]:
    for key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
        yield from schema.get(key, {}).values()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from schema.get(key, ())
    for key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        if key in schema:
            yield schema[key]
    if "propertyNames" in schema:
        yield schema["propertyNames"]


def _is_type(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value) or True)
    except (re.error, RecursionError, OverflowError):
        return False


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


_RULES: dict[str, Callable[[object], bool]] = {
    "type": _is_type,
    "required": _are_names,
    "pattern": _is_pattern,
    "uniqueItems": lambda value: isinstance(value, bool),
    "$ref": lambda value: isinstance(value, str) and value.startswith("#"),
    **dict.fromkeys(("description", "title", "format", "$schema", "$id", "$comment"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    "multipleOf": lambda value: _is_number(value) and value > 0,  # pyright: ignore[reportOperatorIssue]
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("enum", "anyOf", "oneOf", "allOf", "prefixItems"), _is_list),
    "examples": lambda value: isinstance(value, list),
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties"), _is_table),
    "dependentSchemas": _is_table,
}


# -- Python parts: read, never imported


def _functions(name: str, text: str) -> Iterator[ServedTool]:
    """The public functions of a Python part as tools."""
    if not name.endswith(".py") or "/" in name:
        return
    try:
        body = parse_python(text).body
    except SyntaxError as error:
        raise ToolFault(f"{name}, line {error.lineno}: {error.msg}") from None
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            if not _NAME.fullmatch(node.name):
                raise ToolFault(f"{node.name}: {_NAME_RULE}")
            about = ast.get_docstring(node) or node.name.replace("_", " ")
            yield ServedTool(node.name, node.name, about, _signature(node), name)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> JsonObject:
    """The input schema of a function; raise `ToolFault` if it cannot be called by names."""
    given = node.args
    if given.posonlyargs or given.vararg:
        raise ToolFault(f"{node.name}: arguments of a tool are passed by name")
    plain = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    pairs = [*zip(given.args, plain), *zip(given.kwonlyargs, given.kw_defaults)]
    schema: JsonObject = {
        "type": "object",
        "properties": {each.arg: _type_schema(each.annotation) for each, _ in pairs},
        "required": [each.arg for each, default in pairs if default is None],
    }
    return schema | ({"additionalProperties": True} if given.kwarg else {})


def _type_schema(node: ast.expr | None) -> JsonObject:
    """The schema of an annotation, {} for one that a schema cannot express."""
    match node:
        case ast.Name(id=name) if name in _ANNOTATIONS:
            return {"type": _ANNOTATIONS[name]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _type_schema(left)
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return {"type": "array", "items": _type_schema(inner)}
        case ast.Subscript(value=ast.Name(id="dict")):
            return {"type": "object"}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            values = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            kept = [each.value for each in values if isinstance(each, ast.Constant)]
            return {"enum": [v for v in kept if isinstance(v, str | int | float)]} if kept else {}
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, about])):
            text = about.value if isinstance(about, ast.Constant) else None
            words = {"description": text} if isinstance(text, str) else {}
            return _type_schema(kind) | words
        case _:
            return {}
