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

    def find_idea(self, number: int) -> Idea | None:
        """The idea of this number, None if there is none or it was dropped."""
        return next((idea for idea in self.ideas if idea.number == number), None)

    def description_of(self, number: int) -> str:
        """The description of the idea of this number; "" if there is none."""
        idea = self.find_idea(number)
        return idea.description if idea else ""

    def with_idea(self, description: str) -> IdeaRepository:
        """With one more idea, numbered `next`."""
        idea = Idea(self.next, first_sentences(description, self.sentences))
        return msgspec.structs.replace(self, ideas=(*self.ideas, idea), next=self.next + 1)

    def with_description(self, number: int, description: str) -> IdeaRepository:
        """With an idea's description replaced, unless the new one is empty."""
        if not description.strip():
            return self
        return self._with_changed_idea(
            number, description=first_sentences(description, self.sentences)
        )

    def with_result(self, number: int, result: str) -> IdeaRepository:
        """With the result of one experiment under an idea."""
        idea = self.find_idea(number)
        if idea is None:
            return self
        lines = (
            (*idea.results, first_sentences(result, self.sentences))
            if result.strip()
            else idea.results
        )
        return self._with_changed_idea(number, results=lines, tries=idea.tries + 1)

    def with_condensed_history(self, number: int, description: str, result: str) -> IdeaRepository:
        """With an idea's history in one line."""
        shorter = self.with_description(number, description)
        return (
            shorter._with_changed_idea(number, results=(first_sentences(result, self.sentences),))
            if result.strip()
            else shorter
        )

    def without_ideas(self, numbers: Collection[int]) -> IdeaRepository:
        """Without these ideas; those left keep their numbers."""
        return msgspec.structs.replace(
            self, ideas=tuple(i for i in self.ideas if i.number not in numbers)
        )

    def with_foreign_ideas(self, others: Sequence[Idea]) -> IdeaRepository:
        """With the ideas of another repository under new numbers.

        An idea whose description exists already is left out.
        """
        here = {_description_key(idea.description) for idea in self.ideas}
        fresh = [idea for idea in others if _description_key(idea.description) not in here]
        taken = tuple(
            msgspec.structs.replace(idea, number=self.next + n) for n, idea in enumerate(fresh)
        )
        return msgspec.structs.replace(self, ideas=self.ideas + taken, next=self.next + len(taken))

    def with_better_program(self, best: Ranked) -> IdeaRepository:
        """With this program as its best, if it is better."""
        better = self.best is None or best.reward > self.best.reward
        return msgspec.structs.replace(self, best=best) if better else self

    def _with_changed_idea(self, number: int, **fields: object) -> IdeaRepository:
        ideas = tuple(
            msgspec.structs.replace(i, **fields) if i.number == number else i for i in self.ideas
        )
        return msgspec.structs.replace(self, ideas=ideas)


def first_sentences(text: str, sentences: int) -> str:
    """The first sentences on one line, at most `MOST_CHARACTERS` characters.

    Replies of a model are not always as short as the prompt asks.
    """
    flat = " ".join(text.split())
    kept = " ".join(_SENTENCE.split(flat)[:sentences])
    return kept if len(kept) <= MOST_CHARACTERS else kept[: MOST_CHARACTERS - 1].rstrip() + "…"


def _description_key(description: str) -> str:
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
        self._remember_key(self._texts, _experiment_key(failure.experiment))
        self.forbid_code(digest)

    def forbid_code(self, digest: str) -> None:
        """Block code alone: an experiment's first code, which was repaired afterwards."""
        self._remember_key(self._digests, digest)

    def blocks_experiment(self, experiment: str) -> bool:
        """True if exactly this experiment has failed before."""
        return _experiment_key(experiment) in self._texts

    def knows_code(self, digest: str) -> bool:
        """True if exactly this code has failed before."""
        return digest in self._digests

    def latest_failures(self, count: int) -> list[Failure]:
        """The latest failures, newest first."""
        return list(self._failures)[::-1][:count]

    def counts_by_kind(self) -> dict[str, int]:
        """Number of remembered failures by kind, most frequent first."""
        return dict(Counter(failure.kind for failure in self._failures).most_common())

    def _remember_key(self, seen: dict[str, None], key: str) -> None:
        if key:
            seen.pop(key, None)
            seen[key] = None
            while len(seen) > 10 * self._size:
                del seen[next(iter(seen))]


def _experiment_key(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
