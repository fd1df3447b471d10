"""Settings of a strategy: help, legal ranges and names, and settings that many share."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Annotated, get_args, get_type_hints

from culmen.core.errors import UserError
from culmen.core.usage import MOST


@dataclass(frozen=True)
class About:
    """Annotation of a field: help, bounds that `check` enforces, and named choices.

    `choices` are, for a field of a protocol type, the classes that settings may name in snake case,
    as in `ucb(1.0)`.
    """

    doc: str
    least: float | None = None
    most: float | None = None
    choices: tuple[type, ...] = ()


@functools.cache
def field_hints(cls: type) -> dict[str, tuple[object, About]]:
    """Type and annotation of every field of a strategy class, in order.

    Fields without an annotation get an empty `About`.
    """
    hints: dict[str, tuple[object, About]] = {}
    resolved = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = resolved[field.name]
        notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, About)]
        hints[field.name] = (get_args(hint)[0], notes[0]) if notes else (hint, About(""))
    return hints


def check(strategy: object) -> None:
    """Raise `UserError` for the first number out of its range; call it from `__post_init__`."""
    for name, (_, about) in field_hints(strategy.__class__).items():
        value = getattr(strategy, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low, high = about.least, about.most
        if not (-MOST if low is None else low) <= value <= (MOST if high is None else high):
            raise UserError(
                f"'{name}' is out of range: {value!s:.60}",
                where=f"strategy {type(strategy).__name__}",
                fix=f"give {_range_text(low, high)}: {about.doc}",
            )


def _range_text(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"a number from {low:g} to {high:g}"
    if high is not None:
        return f"a number of {high:g} or less"
    return "a finite number" if low is None else f"a number of {low:g} or more"


Batch = Annotated[int, About("cases per minibatch, or repeats if the task has no cases", least=1)]
Cases = Annotated[int | None, About("cases per evaluation; none: all training cases", least=1)]
Format = Annotated[
    str,
    About(
        "reply format: rewrite, diff, auto (diff of a long parent, else rewrite), blocks, "
        "verbalized, verbalized_diff, "
        "verbalized_auto"
    ),
]
Proposals = Annotated[int, About("programs asked for at a time", 1, 10_000)]
Lanes = Annotated[int, About("loops over one shared memory, none waiting for another", 1, 10_000)]
WorkerLanes = Annotated[int | None, About("loops side by side; none: one per worker", 1, 10_000)]
