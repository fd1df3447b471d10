"""Prompt templates: plain files with `$name` slots, each of which a folder of the user's may replace."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template

from culmen.core.errors import UserError

_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Templates:
    """The files of this package's `templates` folder; files of the same name in `folder` come first."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder).expanduser() if folder else None
        if self._folder is not None and not self._folder.is_dir():
            raise UserError("the templates folder does not exist", where=str(folder))

    def has(self, name: str) -> bool:
        """Whether there is a template of this name."""
        return self._own(name) is not None or _shipped(name) is not None

    def fill(self, name: str, **slots: str) -> str:
        """The template with its slots filled; empty slots leave no gap. Raises `UserError` for a slot without a
        value."""
        text = self._own(name) or _shipped(name)
        if text is None:
            raise UserError(f"there is no template '{name}'", where=str(self._folder or "culmen.prompts.templates"))
        empty = "|".join(re.escape(slot) for slot, value in slots.items() if not value)
        if empty:
            text = re.sub(rf"^\$(?:{empty})\n+", "", text, flags=re.MULTILINE)
        try:
            filled = Template(text).substitute(slots)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"template '{name}' has a slot without a value: {error}",
                where=str(self._folder or ""),
                fix=f"use {', '.join(f'${slot}' for slot in sorted(slots))}; write $$ for a dollar sign",
            ) from None
        return filled.strip() + "\n"

    def _own(self, name: str) -> str | None:
        path = self._folder / f"{name}.md" if self._folder and _NAME.fullmatch(name) else None
        return path.read_text(encoding="utf-8") if path and path.is_file() else None


@cache
def _shipped(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        return None
    file = resources.files("culmen.prompts").joinpath("templates", f"{name}.md")
    return file.read_text(encoding="utf-8") if file.is_file() else None
