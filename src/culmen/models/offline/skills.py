"""Changes of a set of skills: one dropped, one taken from another candidate, or two merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from culmen.core.candidate import Candidate, frontmatter, skill_names
from culmen.core.task import SKILL_FILE

Parts = dict[str, str]


def change_skills(
    parent: Candidate, mates: Sequence[Candidate], most: int, rng: Random
) -> Parts | None:
    """The parts after one change, of at most `most` skills; None if there is none to make."""
    names = skill_names(parent.parts)
    whole = [name for name in names if f"{name}/{SKILL_FILE}" in parent.parts]
    kinds = [
        [without_skill(parent.parts, name) for name in names if len(names) > 1],
        [parts for mate in mates for parts in _adopted(parent.parts, mate.parts, names)],
        [_merged(parent.parts, one, other) for one in whole for other in whole if one != other],
    ]
    possible = [
        found for kind in kinds if (found := [parts for parts in kind if _fits(parts, most)])
    ]
    return rng.choice(rng.choice(possible)) if possible else None


def _fits(parts: Parts, most: int) -> bool:
    return len(skill_names(parts)) <= most


def without_skill(parts: Parts, name: str) -> Parts:
    """The parts without one skill."""
    return {part: text for part, text in parts.items() if not part.startswith(f"{name}/")}


def _adopted(parts: Parts, others: Parts, names: Sequence[str]) -> Iterator[Parts]:
    """The parts with each skill of other parts that they lack."""
    for name in skill_names(others):
        if name not in names:
            taken = {part: text for part, text in others.items() if part.startswith(f"{name}/")}
            yield {**parts, **taken}


def _merged(parts: Parts, kept: str, dropped: str) -> Parts:
    """One skill with another's instructions below its own; the other one's further files go."""
    main, other = f"{kept}/{SKILL_FILE}", f"{dropped}/{SKILL_FILE}"
    body = parts[other].removeprefix(frontmatter(parts[other]))
    return without_skill(parts, dropped) | {main: f"{parts[main].rstrip()}\n\n{body.strip()}\n"}
