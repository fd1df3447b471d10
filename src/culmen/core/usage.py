"""Cost of effects, and the budget of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from culmen.core.errors import UserError


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources used.

    `dollars` sums the calls with a known price; `unpriced` counts the others. `uncertain_tokens`
    and `uncertain_dollars` are the largest further cost of calls whose reply broke off, or did not
    state its cost; budgets count them as spent.
    """

    evaluations: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    cache_hits: int = 0
    uncertain_tokens: int = 0
    uncertain_dollars: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.evaluations + other.evaluations,
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
            self.unpriced + other.unpriced,
            self.cache_hits + other.cache_hits,
            self.uncertain_tokens + other.uncertain_tokens,
            self.uncertain_dollars + other.uncertain_dollars,
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
            self.uncertain_tokens - other.uncertain_tokens,
            self.uncertain_dollars - other.uncertain_dollars,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def at_most(self, budget: str) -> float:
        """Amount counted against a budget, the uncertain part included.

        Budgets are evaluations, calls, tokens and dollars.
        """
        if budget == "tokens":
            return self.input_tokens + self.output_tokens + self.uncertain_tokens
        return (
            self.dollars + self.uncertain_dollars if budget == "dollars" else getattr(self, budget)
        )


MOST = 1e15
"""The largest amount of a budget, a need or a setting: floats hold its sums exactly."""


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hard limits; None is no limit.

    An evaluation is one candidate on one case, once; seconds are active wall time. `final` is the
    share of evaluations and seconds (0..0.99) kept for evaluating the finalists again after the
    search; None: as many as the task and its gain need (`engine.finale`).
    """

    evaluations: int | None = None
    calls: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = None
    final: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """The budget in a text: `evaluations=200,dollars=5,tokens=1e6,calls=300,seconds=90m`.

        A bare `200` means evaluations, `5m` a time and `$5` money. Raises `UserError` for anything
        else.
        """
        values: dict[str, float | int] = {}
        for item in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, raw = item.partition("=")
            name, raw = (name.strip(), raw) if equals else (_infer_budget_name(item), item)
            if name not in cls.__struct_fields__:
                near = f"; {_MEANT[name]} for {name}" if name in _MEANT else ""
                raise UserError(
                    f"unknown budget '{name}'",
                    where=f"budget {text}",
                    fix=f"use {_budget_syntax(cls)}{near}",
                )
            if name in values:
                raise UserError(
                    f"budget '{name}' is named twice", where=f"budget {text}", fix="name each once"
                )
            values[name] = _parse_budget_number(name, raw.strip(), text)
        for name in (
            "evaluations",
            "seconds",
        ):  # without calls or dollars an offline search still has work to do
            if values.get(name) == 0:
                raise UserError(
                    f"with 0 {name} no work is possible",
                    where=f"budget {text}",
                    fix="at least 1, better 200",
                )
        return cls(**values)  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_value(cls, value: object) -> Budget:
        """A budget from a `Budget`, a number of evaluations, a mapping, or a text."""
        if isinstance(value, Budget):
            value = msgspec.structs.asdict(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).items()
            return cls.parse(
                ",".join(f"{name}={given}" for name, given in items if given is not None)
            )
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return cls.parse(str(value))
        fix = "budget=200 (evaluations), or culmen.Budget(evaluations=200, dollars=5)"
        raise UserError(f"a budget cannot be a {type(value).__name__}", where="budget=", fix=fix)

    def extension_text(self, reason: str) -> str:
        """As much again of the budget that ended a run: `evaluations=+200`; "" if none did."""
        limit = (
            getattr(self, reason, None)
            if reason in ("evaluations", "calls", "tokens", "dollars", "seconds")
            else None
        )
        return (
            ""
            if not limit
            else f"{reason}=+{math.ceil(limit) if reason != 'dollars' else f'{limit:g}'}"
        )

    @property
    def has_limit(self) -> bool:
        """True if any limit is set."""
        return any(
            v is not None
            for v in (self.evaluations, self.calls, self.tokens, self.dollars, self.seconds)
        )


_MEANT = {
    "iterations": "evaluations",
    "generations": "evaluations",
    "trials": "evaluations",
    "metric_calls": "evaluations",
    "time": "seconds",
    "minutes": "seconds=10m",
    "cost": "dollars",
    "usd": "dollars",
}  # names of these budgets in other programs
_TIMES = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"([0-9.]+)(s|m|min|h)")


def _infer_budget_name(text: str) -> str:
    """The budget that a number without a name belongs to."""
    if _TIME.fullmatch(text):
        return "seconds"
    return (
        "dollars"
        if text.startswith("$")
        else "evaluations"
        if text.lstrip("+-")[:1].isdigit()
        else text
    )


def _budget_syntax(cls: type[msgspec.Struct]) -> str:
    return ", ".join(f"{name}=N" for name in cls.__struct_fields__)


def _parse_budget_number(name: str, raw: str, text: str) -> float | int:
    is_whole = name in ("evaluations", "calls", "tokens")
    value = -1.0
    try:
        if name == "seconds" and (time := _TIME.fullmatch(raw)):
            value = float(time[1]) * _TIMES[time[2]]
        else:
            value = float(raw.removeprefix("$") if name == "dollars" else raw.replace("_", ""))
    except ValueError:
        pass
    if is_whole and value.is_integer():
        value = int(value)
    elif is_whole:
        value = -1
    most = 0.99 if name == "final" else MOST
    if not 0 <= value <= most:
        kind = "whole number" if is_whole else "number"
        raise UserError(
            f"budget '{name}' needs a {kind} from 0 to {most:g}, not '{raw:.60}'",
            where=f"budget {text}",
            fix=f"write a number, such as {name}={0.2 if name == 'final' else 200}",
        )
    return value


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Sum of several usages."""
    result = Usage()
    for usage in usages:
        result = result + usage
    return result


def amount_text(budget: str, cost: Usage) -> str:
    """`$0.0021`, `1,300 tokens`: this cost in the unit of a budget, rounded up."""
    amount = cost.at_most(budget)
    if budget != "dollars":
        return f"{math.ceil(amount):,} {budget}"
    scale = 10 ** (1 - math.floor(math.log10(amount))) if amount else 1  # two digits
    return f"${math.ceil(amount * scale - 1e-9) / scale:.2g}"
