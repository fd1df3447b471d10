"""Prompt templates: plain files with `$name` slots, each replaceable by a user's file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from string import Template

from culmen.core.errors import UserError
from culmen.core.foreign import boundary
from culmen.core.inside import text_inside

_SHIPPED = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Templates:
    """The files of this package's `templates` folder, overridden by texts in `own`."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self._own = dict(own or {})

    def has(self, name: str) -> bool:
        """True if there is a template of this name."""
        return name in self._own or _shipped_template(name) is not None

    def fill(self, name: str, **slots: str) -> str:
        """The template with its slots filled.

        A line with only an empty slot is removed, and so is a heading above nothing else. Raises
        `UserError` for a slot without a value.
        """
        text = self._own.get(name) or _shipped_template(name)
        if text is None:
            raise UserError(
                f"there is no template '{name}'",
                where="templates",
                fix="culmen templates lists them",
            )
        text = _without_empty_slots(text, tuple(slot for slot, value in slots.items() if not value))
        try:
            filled = Template(text).substitute(slots)
        except (KeyError, ValueError) as error:
            raise _unknown_slot_error(f"{name}.md", str(error), sorted(slots)) from None
        return filled.strip() + "\n"


@lru_cache(256)
def _without_empty_slots(text: str, empty: tuple[str, ...]) -> str:
    """A template without lines that hold only one of these slots.

    Sections that consist of such lines are removed with their headings.
    """
    if not empty:
        return text
    line = re.compile(
        rf"^(?:\w+: )?\$(?:{'|'.join(map(re.escape, empty))})(?:\n+|\Z)", re.MULTILINE
    )
    kept: list[str] = []
    for section in re.split(r"(?m)^(?=# )", text):
        rest = line.sub("", section)
        if rest == section or not section.startswith("# ") or rest.partition("\n")[2].strip():
            kept.append(rest)
    return "".join(kept)


@boundary()
def read_folder(folder: str | Path) -> dict[str, str]:
    """The texts of a folder's `NAME.md` files by name.

    Raises `UserError` if there is no folder or no such file in it, and for a slot that the replaced
    template does not have.
    """
    directory = Path(folder).expanduser()
    fix = f"culmen templates {folder} writes those that culmen brings there, to be changed"
    if not directory.is_dir():
        raise UserError("the templates folder does not exist", where=str(folder), fix=fix)
    files = {
        path.stem: path for path in sorted(directory.glob("*.md")) if _NAME.fullmatch(path.stem)
    }
    if not files:
        raise UserError("there is no template in this folder", where=str(folder), fix=fix)
    texts = {name: text_inside(directory, path.name) for name, path in files.items()}
    for name, text in texts.items():
        shipped = _shipped_template(name)
        known = _GENERAL if shipped is None else _GENERAL | set(Template(shipped).get_identifiers())
        unknown = [
            slot
            for slot in _checked_slots(text, files[name])
            if shipped is not None and slot not in known
        ]
        if unknown:
            raise _unknown_slot_error(str(files[name]), unknown[0], sorted(known))
    return texts


_GENERAL = {"goal"}


def _checked_slots(text: str, path: Path) -> list[str]:
    template = Template(text)
    if not template.is_valid():
        raise UserError(
            "a template has a $ that begins no slot",
            where=str(path),
            fix="write $$ for a dollar sign",
        )
    return template.get_identifiers()


def _unknown_slot_error(where: str, slot: str, known: list[str]) -> UserError:
    listed = ", ".join(f"${name}" for name in known)
    fix = f"use {listed}; write $$ for a dollar sign"
    return UserError(f"a template has a slot without a value: {slot}", where=where, fix=fix)


def slots_of(text: str) -> list[str]:
    """The slots of a template, in order of their first occurrence."""
    return Template(text).get_identifiers()


def shipped_templates() -> dict[str, str]:
    """The texts of all templates in this package, by name."""
    names = sorted(file.stem for file in _SHIPPED.glob("*.md"))
    return {name: _shipped_template(name) or "" for name in names}


@cache
def _shipped_template(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        return None
    file = _SHIPPED / f"{name}.md"
    return file.read_text(encoding="utf-8") if file.is_file() else None
