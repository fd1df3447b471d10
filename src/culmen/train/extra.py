"""Optional packages, asked for by name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from culmen.core.errors import UserError


def require(module: str, extra: str) -> ModuleType:
    """The module; raises `UserError` with the one command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise UserError(
            f"this needs {module}, which is not installed",
            where=f"culmen's extra '{extra}'",
            fix=f"pip install 'culmen[{extra}]'",
        ) from None
