"""Running candidates and judging what they give. Import what you need from the modules; nothing is loaded here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Invalid":
        from culmen.evaluate.jail.scorer import Invalid

        return Invalid
    raise AttributeError(name)
