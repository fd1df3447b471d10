"""One plain script from the front end's modules, for pages opened from disk, where browsers refuse to load modules.

It knows the few forms that our own sources use, one to a line: `import { a, b } from "./x.js";`, `import * as x from
"./x.js";`, `import "./x.js";` and `export` before a function, a class or a const. Anything else is an error.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import (?:(?:\{ (?P<names>[^}]*?) \}|\* as (?P<whole>\w+)) from )?"(?P<path>\.[^"]*\.js)";$')
_EXPORT = re.compile(r"^export (?P<rest>(?:async )?(?:function\*?|class|const) (?P<name>\w+).*)$")


def bundle(entry: Path) -> str:
    """The module `entry` and all it imports, each as a function that is called once, in the order of their imports.

    Same sources, same script. Raises `ValueError` for a form that it does not know, and for circles of imports.
    """
    modules: dict[Path, str] = {}
    _add(entry.resolve(), entry.resolve().parent, modules, ())
    return '"use strict";\n' + "".join(modules.values())


def _add(path: Path, root: Path, modules: dict[Path, str], above: tuple[Path, ...]) -> None:
    if path in modules:
        return
    if path in above:
        raise ValueError(f"{path.name} imports itself by way of {above[-1].name}")
    exports: list[str] = []
    body: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := _IMPORT.match(line):
            other = (path.parent / found["path"]).resolve()
            _add(other, root, modules, (*above, path))
            body.append(_binding(found, _name(other, root)))
        elif found := _EXPORT.match(line):
            exports.append(found["name"])
            body.append(found["rest"])
        elif re.match(r"(import|export)\b(?!\()", line):
            raise ValueError(f"{path.name}:{number}: not a form that can be bundled: {line}")
        else:
            body.append(line)
    text = "\n".join(body)
    modules[path] = (
        f"const {_name(path, root)} = (() => {{\n{text}\nreturn Object.freeze({{ {', '.join(exports)} }});\n}})();\n"
    )


def _binding(found: re.Match[str], module: str) -> str:
    if found["whole"]:
        return f"const {found['whole']} = {module};"
    if found["names"]:
        return f"const {{ {found['names'].replace(' as ', ': ')} }} = {module};"
    return ""


def _name(path: Path, root: Path) -> str:
    """`pages/calls.js` -> `$pages_calls`."""
    return "$" + re.sub(r"\W", "_", str(path.relative_to(root).with_suffix("")))
