"""Checks for semantic filters, and a plain reference of POLCA's Algorithm 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from culmen.core.candidate import Candidate
from culmen.core.json import JsonObject

Vector = Sequence[float]


class SemanticFilter(Protocol):
    """A semantic filter: see `culmen.strategies.memory.epsilon_net`."""

    needs_vectors: bool
    refused: int

    def __len__(self) -> int: ...
    def __contains__(self, candidate: Candidate) -> bool: ...
    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]: ...
    def add(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector]
    ) -> list[Candidate]: ...
    def admit(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector]
    ) -> list[Candidate]: ...
    def facts(self) -> JsonObject: ...


def check_filter(
    make: Callable[[], SemanticFilter], batches: Sequence[Sequence[tuple[Candidate, Vector]]]
) -> None:
    """Feed the same batches to two filters and check that they agree.

    Members are admitted once, counted, and known afterwards.
    """
    one, two = make(), make()
    members: list[str] = []
    offered = 0
    for batch in batches:
        candidates, vectors = [c for c, _ in batch], [v for _, v in batch]
        unknown = one.unknown(candidates)
        admitted = one.admit(candidates, vectors)
        offered += len(candidates)
        assert admitted == two.admit(candidates, vectors), (
            "the same offers are admitted differently"
        )
        digests = [candidate.digest for candidate in admitted]
        assert len({*members, *digests}) == len(members) + len(digests), (
            "a content was admitted twice"
        )
        assert all(candidate in unknown for candidate in admitted), (
            "something not offered, or known, was admitted"
        )
        assert all(candidate in one for candidate in admitted), (
            "an admitted candidate is not a member"
        )
        assert one.unknown(admitted) == [], "an admitted candidate still counts as unknown"
        members += digests
        assert len(one) == len(members), "the size is not the number admitted"
        assert one.refused == offered - len(members), "the refusals do not add up"
    assert one.facts()["size"] == len(members)
