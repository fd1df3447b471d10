"""Names of strategies, from the names of their classes."""

from __future__ import annotations


def strategy_name(strategy: str) -> str:
    """The name by which a strategy of this class is asked for: `Polca` -> `polca`."""
    from culmen.strategies.catalog import NAMES

    return next((name for path, name in NAMES.items() if path.endswith(f":{strategy}")), strategy)
