"""Programs put together from the pieces in this folder, for the pools that come with culmen.

A recipe names a piece for each function that the task's program calls, and the values of its
constants. What the pieces call is taken along, so that the program stands alone.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import FunctionType, ModuleType

from culmen.core.task import Task

Constants = Mapping[str, int | Sequence[float]]
_BLOCK = re.compile(r"(# EVOLVE-BLOCK-START\n)(.*?)(# EVOLVE-BLOCK-END)", re.DOTALL)


@dataclass(frozen=True)
class Recipe:
    """The pieces and constants of one program.

    `roles` maps a function of the program to the piece that it is, `constants` names to values.
    """

    roles: Mapping[str, str]
    constants: Constants = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The pieces by name, for the pool's record of how the program was made."""
        return "+".join(self.roles.values())


def compose_program(task: Task, recipe: Recipe) -> dict[str, str]:
    """The parts of the task's program with the recipe's functions in its block."""
    module = pieces_of(task.name)
    (name, text), *others = task.initial_candidates()[0].parts.items()
    functions = list(_function_texts(module, recipe, text))
    head = [*_import_lines(module, functions, text), *_constant_lines(recipe)]
    block = "\n\n".join(["\n".join(head) + "\n", *functions] if head else functions)
    return {name: _BLOCK.sub(lambda m: m[1] + block + m[3], text), **dict(others)}


def pieces_of(task: str) -> ModuleType:
    """The module with the pieces for a task."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(task)


def _function_texts(module: ModuleType, recipe: Recipe, program: str) -> Iterator[str]:
    """Sources of the pieces under the names of their roles, and of all that they call."""
    texts = {
        role: _renamed(inspect.getsource(getattr(module, piece)), piece, role)
        for role, piece in recipe.roles.items()
    }
    outside = _BLOCK.sub("", program)
    waiting = [*texts.values(), outside]
    while waiting:
        for name in _names_used(waiting.pop()):
            function = getattr(module, name, None)
            if name not in texts and isinstance(function, FunctionType):
                texts[name] = inspect.getsource(function)
                waiting.append(texts[name])
    for text in texts.values():
        yield text if text.endswith("\n") else text + "\n"


def _renamed(text: str, piece: str, role: str) -> str:
    return re.sub(rf"\b{piece}\b", role, text)


def _names_used(text: str) -> list[str]:
    nodes = ast.walk(ast.parse(text))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))


def _import_lines(module: ModuleType, functions: Iterable[str], program: str) -> Iterator[str]:
    """Imports of modules that the functions use and the program does not import itself."""
    for name in dict.fromkeys(name for text in functions for name in _names_used(text)):
        if isinstance(getattr(module, name, None), ModuleType) and not re.search(
            rf"import.*\b{name}$", program, re.MULTILINE
        ):
            yield f"import {name}"


def _constant_lines(recipe: Recipe) -> Iterator[str]:
    """One assignment for each constant that the recipe names."""
    for name, value in recipe.constants.items():
        if isinstance(value, int):
            yield f"{name} = {value}"
        else:
            numbers = textwrap.fill(", ".join(f"{x:.17g}" for x in value), 94)
            yield f"{name} = [\n{textwrap.indent(numbers, '    ')}\n]"


Grid = Mapping[str, Sequence[str]]


def recipes_of(grid: Grid, constants: Iterable[Constants]) -> Iterator[Recipe]:
    """Every combination of the pieces in the grid with each set of constants."""
    for chosen in product(*grid.values()):
        for values in constants:
            yield Recipe(dict(zip(grid, chosen)), values)
