"""The persistent level of a hierarchical context: ideas, what was tried under each, and versions of the whole.

Values are immutable: islands exchange and revisit them, and none can change what another holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from culmen.core.candidate import Candidate

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
MOST_CHARACTERS = 600  # of a description or a result, however few sentences it has


class Idea(msgspec.Struct, frozen=True):
    """A direction of search: what it is, one line for each experiment made under it, and how many there were.

    `number` is its name on its island and never given to another idea there.
    """

    number: int
    description: str
    results: tuple[str, ...] = ()
    tries: int = 0


class Ranked(msgspec.Struct, frozen=True):
    """A candidate with its mean reward (higher is better)."""

    candidate: Candidate
    reward: float


class Repository(msgspec.Struct, frozen=True):
    """The ideas of one island at one moment, with its best program then. `next` is the number of the next new idea,
    `sentences` the most that a description or a result may have."""

    ideas: tuple[Idea, ...] = ()
    best: Ranked | None = None
    next: int = 1
    sentences: int = 2

    def find(self, number: int) -> Idea | None:
        """The idea of this number, None if there is none (any more)."""
        return next((idea for idea in self.ideas if idea.number == number), None)

    def added(self, description: str) -> Repository:
        """With one more idea, numbered `next`."""
        idea = Idea(self.next, bounded(description, self.sentences))
        return msgspec.structs.replace(self, ideas=(*self.ideas, idea), next=self.next + 1)

    def described(self, number: int, description: str) -> Repository:
        """With an idea's description replaced, unless the new one is empty."""
        if not description.strip():
            return self
        return self._changed(number, description=bounded(description, self.sentences))

    def tried(self, number: int, result: str) -> Repository:
        """With the result of one experiment under an idea."""
        idea = self.find(number)
        if idea is None:
            return self
        lines = (*idea.results, bounded(result, self.sentences)) if result.strip() else idea.results
        return self._changed(number, results=lines, tries=idea.tries + 1)

    def condensed(self, number: int, description: str, result: str) -> Repository:
        """With an idea's history squeezed into one line."""
        shorter = self.described(number, description)
        return shorter._changed(number, results=(bounded(result, self.sentences),)) if result.strip() else shorter

    def without(self, numbers: Collection[int]) -> Repository:
        """Without these ideas; those left keep their numbers."""
        return msgspec.structs.replace(self, ideas=tuple(i for i in self.ideas if i.number not in numbers))

    def joined(self, others: Sequence[Idea]) -> Repository:
        """With the ideas of another repository, numbered anew; one whose description is here already is left out."""
        here = {_key(idea.description) for idea in self.ideas}
        fresh = [idea for idea in others if _key(idea.description) not in here]
        taken = tuple(msgspec.structs.replace(idea, number=self.next + n) for n, idea in enumerate(fresh))
        return msgspec.structs.replace(self, ideas=self.ideas + taken, next=self.next + len(taken))

    def bettered(self, best: Ranked) -> Repository:
        """With this program as its best, if it is better."""
        better = self.best is None or best.reward > self.best.reward
        return msgspec.structs.replace(self, best=best) if better else self

    def _changed(self, number: int, **fields: object) -> Repository:
        ideas = tuple(msgspec.structs.replace(i, **fields) if i.number == number else i for i in self.ideas)
        return msgspec.structs.replace(self, ideas=ideas)


def bounded(text: str, sentences: int = 2) -> str:
    """The first sentences on one line, never more than `MOST_CHARACTERS`: what a model sends is not always short."""
    flat = " ".join(text.split())
    kept = " ".join(_SENTENCE.split(flat)[:sentences])
    return kept if len(kept) <= MOST_CHARACTERS else kept[: MOST_CHARACTERS - 1].rstrip() + "…"


def _key(description: str) -> str:
    return " ".join(re.findall(r"\w+", description.lower()))
