"""Running candidates and judging their outputs; importing the package loads nothing."""

from __future__ import annotations


def __getattr__(name: str) -> type[Exception]:
    if name == "Invalid":
        from culmen.jail.scorer import Invalid

        return Invalid
    raise AttributeError(name)
