"""A memory of what did not work. It outlives pruning and backtracking, and knows an exact repeat when it sees one."""

from __future__ import annotations

import re
from collections import Counter, deque

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """One thing that failed: `kind` is a short word (advisor_format, repeat, no_candidate, error, timeout, invalid,
    rejected, deadline, pruned), `reason` one line for whoever plans next."""

    idea: str
    experiment: str
    kind: str
    reason: str = ""


class FailureMemory:
    """The last `size` failures, and the experiments that must not be made again word by word.

    An experiment is known by its words alone, whatever their case and punctuation; code by its digest.
    """

    def __init__(self, size: int = 200) -> None:
        self._failures: deque[Failure] = deque(maxlen=size)
        self._texts: dict[str, None] = {}
        self._digests: dict[str, None] = {}
        self._size = size

    def __len__(self) -> int:
        return len(self._failures)

    def add(self, failure: Failure, digest: str = "") -> None:
        """Remember a failure, and block its experiment and its code."""
        self._failures.append(failure)
        self._block(self._texts, _words(failure.experiment))
        self.forbid(digest)

    def forbid(self, digest: str) -> None:
        """Block code alone: what was made of an experiment and repaired afterwards."""
        self._block(self._digests, digest)

    def blocks(self, experiment: str) -> bool:
        """Whether just this experiment has failed before."""
        return _words(experiment) in self._texts

    def knows(self, digest: str) -> bool:
        """Whether just this code has failed before."""
        return digest in self._digests

    def recent(self, count: int) -> list[Failure]:
        """The latest failures, newest first."""
        return list(self._failures)[::-1][:count]

    def kinds(self) -> dict[str, int]:
        """How many of each kind are remembered, most frequent first."""
        return dict(Counter(failure.kind for failure in self._failures).most_common())

    def _block(self, seen: dict[str, None], key: str) -> None:
        if key:
            seen.pop(key, None)
            seen[key] = None
            while len(seen) > 10 * self._size:
                del seen[next(iter(seen))]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
