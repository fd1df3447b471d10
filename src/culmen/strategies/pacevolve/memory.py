"""An island's memory: ideas with the experiments under each, and failures.

Values are immutable: islands exchange and revisit them, and none can change what another holds.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Sequence

import msgspec

from culmen.core.candidate import Candidate

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
MOST_CHARACTERS = 600  # of a description or a result, however few sentences it has


class Idea(msgspec.Struct, frozen=True):
    """A direction of search: description, one line for each experiment, and their number.

    `number` identifies the idea on its island and is never given to another idea there.
    """

    number: int
    description: str
    results: tuple[str, ...] = ()
    tries: int = 0


class Ranked(msgspec.Struct, frozen=True):
    """A candidate with its mean reward (higher is better)."""

    candidate: Candidate
    reward: float


class IdeaRepository(msgspec.Struct, frozen=True):
    """The ideas of one island at one moment, with its best program then.

    `next` is the number of the next new idea, `sentences` the largest number of sentences of a
    description or a result.
    """

    ideas: tuple[Idea, ...] = ()
    best: Ranked | None = None
    next: int = 1
    sentences: int = 2

    def find(self, number: int) -> Idea | None:
        """The idea of this number, None if there is none or it was dropped."""
        return next((idea for idea in self.ideas if idea.number == number), None)

    def added(self, description: str) -> IdeaRepository:
        """With one more idea, numbered `next`."""
        idea = Idea(self.next, bounded(description, self.sentences))
        return msgspec.structs.replace(self, ideas=(*self.ideas, idea), next=self.next + 1)

    def described(self, number: int, description: str) -> IdeaRepository:
        """With an idea's description replaced, unless the new one is empty."""
        if not description.strip():
            return self
        return self._changed(number, description=bounded(description, self.sentences))

    def tried(self, number: int, result: str) -> IdeaRepository:
        """With the result of one experiment under an idea."""
        idea = self.find(number)
        if idea is None:
            return self
        lines = (*idea.results, bounded(result, self.sentences)) if result.strip() else idea.results
        return self._changed(number, results=lines, tries=idea.tries + 1)

    def condensed(self, number: int, description: str, result: str) -> IdeaRepository:
        """With an idea's history in one line."""
        shorter = self.described(number, description)
        return (
            shorter._changed(number, results=(bounded(result, self.sentences),))
            if result.strip()
            else shorter
        )

    def without(self, numbers: Collection[int]) -> IdeaRepository:
        """Without these ideas; those left keep their numbers."""
        return msgspec.structs.replace(
            self, ideas=tuple(i for i in self.ideas if i.number not in numbers)
        )

    def joined(self, others: Sequence[Idea]) -> IdeaRepository:
        """With the ideas of another repository under new numbers.

        An idea whose description exists already is left out.
        """
        here = {_key(idea.description) for idea in self.ideas}
        fresh = [idea for idea in others if _key(idea.description) not in here]
        taken = tuple(
            msgspec.structs.replace(idea, number=self.next + n) for n, idea in enumerate(fresh)
        )
        return msgspec.structs.replace(self, ideas=self.ideas + taken, next=self.next + len(taken))

    def bettered(self, best: Ranked) -> IdeaRepository:
        """With this program as its best, if it is better."""
        better = self.best is None or best.reward > self.best.reward
        return msgspec.structs.replace(self, best=best) if better else self

    def _changed(self, number: int, **fields: object) -> IdeaRepository:
        ideas = tuple(
            msgspec.structs.replace(i, **fields) if i.number == number else i for i in self.ideas
        )
        return msgspec.structs.replace(self, ideas=ideas)


def bounded(text: str, sentences: int) -> str:
    """The first sentences on one line, at most `MOST_CHARACTERS` characters.

    Replies of a model are not always as short as the prompt asks.
    """
    flat = " ".join(text.split())
    kept = " ".join(_SENTENCE.split(flat)[:sentences])
    return kept if len(kept) <= MOST_CHARACTERS else kept[: MOST_CHARACTERS - 1].rstrip() + "…"


def _key(description: str) -> str:
    return " ".join(re.findall(r"\w+", description.lower()))


class Failure(msgspec.Struct, frozen=True):
    """One failed experiment or decision.

    `kind` is a short word (advisor_format, repeat, no_candidate, error, timeout, invalid, rejected,
    deadline, pruned), `reason` one line for the next plan.
    """

    idea: str
    experiment: str
    kind: str
    reason: str = ""


class FailureMemory:
    """The last `size` failures, and the experiments that must not be made again word by word.

    An experiment is known by its words alone, whatever their case and punctuation; code by its
    digest.
    """

    def __init__(self, size: int) -> None:
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
        """Block code alone: an experiment's first code, which was repaired afterwards."""
        self._block(self._digests, digest)

    def blocks(self, experiment: str) -> bool:
        """True if exactly this experiment has failed before."""
        return _words(experiment) in self._texts

    def knows(self, digest: str) -> bool:
        """True if exactly this code has failed before."""
        return digest in self._digests

    def recent(self, count: int) -> list[Failure]:
        """The latest failures, newest first."""
        return list(self._failures)[::-1][:count]

    def kinds(self) -> dict[str, int]:
        """Number of remembered failures by kind, most frequent first."""
        return dict(Counter(failure.kind for failure in self._failures).most_common())

    def _block(self, seen: dict[str, None], key: str) -> None:
        if key:
            seen.pop(key, None)
            seen[key] = None
            while len(seen) > 10 * self._size:
                del seen[next(iter(seen))]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
