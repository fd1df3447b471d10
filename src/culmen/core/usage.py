"""What effects cost, and what a run may cost."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from culmen.core.errors import UserError


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources used. `dollars` sums the calls whose price is known; `unpriced` counts those whose is not."""

    evaluations: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    cache_hits: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.evaluations + other.evaluations,
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
            self.unpriced + other.unpriced,
            self.cache_hits + other.cache_hits,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.evaluations - other.evaluations,
            self.calls - other.calls,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.dollars - other.dollars,
            self.unpriced - other.unpriced,
            self.cache_hits - other.cache_hits,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hard limits; None is no limit. An evaluation is one candidate on one case, once; seconds are active wall time.

    `final` is the share of evaluations and seconds (0..0.9) kept for evaluating the finalists again after the search;
    None: as many as the task needs (`engine.ledger.final_share`).
    """

    evaluations: int | None = None
    calls: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = None
    final: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`evaluations=200,dollars=5,tokens=1000000,calls=300,seconds=3600`; raises `UserError` on anything else."""
        values: dict[str, float | int] = {}
        for item in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, raw = item.partition("=")
            if name not in cls.__struct_fields__:
                raise UserError(f"unknown budget '{name}'", where=f"--budget {text}", fix=f"use {_names(cls)}")
            values[name] = _number(name, raw, text)
        return cls(**values)  # pyright: ignore[reportArgumentType]

    @property
    def bounded(self) -> bool:
        """Whether any limit is set."""
        return any(v is not None for v in (self.evaluations, self.calls, self.tokens, self.dollars, self.seconds))


def _names(cls: type[msgspec.Struct]) -> str:
    return ", ".join(f"{name}=N" for name in cls.__struct_fields__)


def _number(name: str, raw: str, text: str) -> float | int:
    whole = name in ("evaluations", "calls", "tokens")
    try:
        value = int(raw.replace("_", "")) if whole else float(raw)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf") or (name == "final" and value > 0.9):
        kind = "whole number" if whole else "number"
        raise UserError(f"budget '{name}' needs a {kind} of 0 or more, not '{raw}'", where=f"--budget {text}")
    return value


def total(usages: Iterable[Usage]) -> Usage:
    """Sum of many."""
    result = Usage()
    for usage in usages:
        result = result + usage
    return result
