"""On which minibatch new programs are first evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from culmen.core.evaluation import Case
from culmen.core.ports import Lab


class Validation(Protocol):
    """Chooses the cases for lines 9-10, given the iteration's minibatch."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]: ...


@dataclass(frozen=True)
class SameBatch:
    """The minibatch of the iteration (the paper): parents and children are compared on the same cases."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return batch


@dataclass(frozen=True)
class FreshBatch:
    """A minibatch of their own, drawn anew: children are not judged on the cases they were just written to solve."""

    def cases(self, lab: Lab, batch: Sequence[Case | None]) -> Sequence[Case | None]:
        return lab.minibatch(len(batch))
