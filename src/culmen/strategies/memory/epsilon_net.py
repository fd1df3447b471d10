"""The semantic filter of POLCA (Algorithm 4): no two members are closer than epsilon."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culmen.core.candidate import Candidate
from culmen.core.json import JsonObject
from culmen.strategies.memory.priorities import Quantile, RunningSample, interpolated_quantile

Vector = Sequence[float]
_WARM = 20  # distances to see before a quantile of them is used
_BLOCK = 250_000  # multiplications per block
_WINDOW = 20  # latest proposals, of which less than half may be refused
_FAR = 2.0  # distance of a proposal to an empty memory: the most that rows of length 1 can have
# relative rounding error allowed to the float32 products; closer calls are decided in float64
_SLACK = 1e-5


class KeepAll:
    """The filter of the ablation without an epsilon-net.

    It refuses exact duplicates only and needs no vectors.
    """

    needs_vectors = False

    def __init__(self) -> None:
        self._digests: dict[str, None] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.digest in self._digests

    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that are not in the memory, each content once, in their order."""
        fresh = {c.digest: c for c in reversed(candidates) if c.digest not in self._digests}
        return list(reversed(fresh.values()))

    def add(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector] = ()
    ) -> list[Candidate]:
        """Enter candidates without a test (seeds); returns those entered.

        Exact duplicates are refused.
        """
        fresh = self.unknown(candidates)
        self._digests.update((c.digest, None) for c in fresh)
        return fresh

    def admit(
        self, candidates: Sequence[Candidate], vectors: Sequence[Vector] = ()
    ) -> list[Candidate]:
        """Same as `add`; also counts the refused candidates."""
        fresh = self.add(candidates)
        self.refused += len(candidates) - len(fresh)
        return fresh

    def facts(self) -> JsonObject:
        """Plain data for a note."""
        return {"size": len(self), "refused": self.refused}


class EpsilonNet:
    """Repeatedly admits the candidate farthest from the memory, while it is epsilon away.

    `epsilon` is a Euclidean distance between embeddings (0..2 for rows of length 1), or a
    `Quantile` of the distances at which proposals arrived so far: `Quantile(0.1)` refuses about the
    closest tenth of them, whatever the embedder. Until twenty distances were seen a quantile
    refuses exact duplicates only. Proposals have been paid for: `crowded` counts the times that
    more than half of the latest twenty were refused, and with `widens` the distance is then lowered
    to their lower quartile.

    The test is `>= epsilon`, as Algorithm 4 prints it; the paper's text has `> epsilon`. They
    differ at exact ties only, and at epsilon = 0, where `>=` admits everything: exact duplicates
    are therefore always refused by digest.

    Cost of admitting m candidates to a memory of n: one (m x d) by (d x n) product; distances to
    the growing net are then updated, not recomputed.
    """

    needs_vectors = True

    def __init__(self, epsilon: float | Quantile = 0.1, widens: bool = False) -> None:
        self.configured = epsilon
        self.crowded, self._widens = 0, widens
        self._most = float("inf")
        self._latest: deque[tuple[float, bool]] = deque(maxlen=_WINDOW)
        self._members: dict[str, Candidate] = {}
        self._rows: NDArray[np.float32] = np.empty((0, 0), np.float32)
        self._squares: NDArray[np.float32] = np.empty(0, np.float32)
        self._arrivals = RunningSample()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.digest in self._members

    @property
    def epsilon(self) -> float:
        """The distance in force now."""
        if isinstance(self.configured, float | int):
            return min(float(self.configured), self._most)
        if len(self._arrivals) < _WARM:
            return 0.0
        return min(self._arrivals.quantiles(self.configured.q)[0], self._most)

    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that are not in the memory, each content once, in their order."""
        fresh = {c.digest: c for c in reversed(candidates) if c.digest not in self._members}
        return list(reversed(fresh.values()))

    def add(self, candidates: Sequence[Candidate], vectors: Sequence[Vector]) -> list[Candidate]:
        """Enter candidates without a test (seeds); returns those entered.

        Exact duplicates are refused.
        """
        fresh = self.unknown(candidates)
        rows = {c.digest: v for c, v in zip(candidates, vectors, strict=True)}
        for candidate in fresh:
            self._append_member(candidate, np.asarray(rows[candidate.digest], np.float32))
        return fresh

    def admit(self, candidates: Sequence[Candidate], vectors: Sequence[Vector]) -> list[Candidate]:
        """Algorithm 4: returns the admitted candidates in the order of admission, farthest first.

        Ties are admitted in the order given. `vectors` holds one embedding per candidate, all of
        the memory's length.
        """
        place = {c.digest: i for i, c in reversed(list(enumerate(candidates)))}
        remaining = self.unknown(candidates)
        self.refused += len(candidates)
        if not remaining:
            return []
        points = np.asarray([vectors[place[c.digest]] for c in remaining], np.float32)
        distances = self.nearest_distances(points)
        self._arrivals.extend(float(d) for d in distances)
        new = self._select_farthest(remaining, points, distances, self.epsilon)
        self.refused -= len(new)
        self._widen_if_crowded()
        return new

    def _widen_if_crowded(self) -> None:
        if (
            len(self._latest) < _WINDOW
            or 2 * sum(int(refused) for _, refused in self._latest) <= _WINDOW
        ):
            return
        self.crowded += 1
        if self._widens:
            self._most = interpolated_quantile(
                sorted(distance for distance, _ in self._latest), 0.25
            )
        self._latest.clear()

    def _select_farthest(
        self,
        remaining: list[Candidate],
        points: NDArray[np.float32],
        distances: NDArray[np.float64],
        epsilon: float,
    ) -> list[Candidate]:
        new: list[Candidate] = []  # line 2
        for _ in remaining:  # line 5
            farthest = int(np.argmax(distances))  # line 7
            if distances[farthest] < epsilon:  # lines 8, 10
                break  # line 14
            new.append(remaining[farthest])  # line 11
            self._latest.append((min(float(distances[farthest]), _FAR), False))
            self._append_member(remaining[farthest], points[farthest])
            distances = np.minimum(distances, _exact_distances(points, points[farthest]))
            distances[farthest] = -np.inf  # line 12
        self._latest.extend((float(distance), True) for distance in distances if distance >= 0)
        return new

    def nearest_distances(self, points: NDArray[np.float32]) -> NDArray[np.float64]:
        """Distance of each row of `points` to the nearest member; inf without members.

        Products in float32 find the nearest, float64 differences measure them, so the outcome
        depends neither on the number of threads nor on the instruction set behind the matrix
        product.
        """
        size = len(self)
        if size == 0:
            return np.full(len(points), np.inf)
        members, squares = self._rows[:size], self._squares[:size]
        own = np.einsum("ij,ij->i", points, points)
        rough = squares[None, :] - 2.0 * _blocked_products(points, members)
        slack = _SLACK * (own + float(squares.max()))
        nearest = np.empty(len(points))
        for i, point in enumerate(points):
            close = np.flatnonzero(rough[i] <= rough[i].min() + slack[i])
            nearest[i] = _exact_distances(members[close], point).min()
        return nearest

    def _append_member(self, candidate: Candidate, row: NDArray[np.float32]) -> None:
        size = len(self)
        if size == 0:
            self._rows = np.empty((64, len(row)), np.float32)
            self._squares = np.empty(64, np.float32)
        elif size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._squares = np.concatenate([self._squares, np.empty_like(self._squares)])
        self._rows[size] = row
        self._squares[size] = float(np.dot(row, row))
        self._members[candidate.digest] = candidate

    def facts(self) -> JsonObject:
        """Plain data for a note.

        Size, epsilon in force, and quantiles of the distances at which proposals arrived.
        """
        levels = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
        values = self._arrivals.quantiles(*levels)
        quantiles = {f"q{level:g}": round(value, 6) for level, value in zip(levels, values)}
        return {
            "size": len(self),
            "refused": self.refused,
            "epsilon": self.epsilon,
            "quantiles": quantiles,
        }


def _blocked_products(
    points: NDArray[np.float32], members: NDArray[np.float32]
) -> NDArray[np.float32]:
    """points @ members.T in blocks small enough to stay in cache and on one core.

    More threads would cost more time than they save.
    """
    block = max(1, _BLOCK // max(points.size, 1))
    products = np.empty((len(points), len(members)), np.float32)
    for start in range(0, len(members), block):
        np.matmul(points, members[start : start + block].T, out=products[:, start : start + block])
    return products


def _exact_distances(rows: NDArray[np.float32], point: NDArray[np.float32]) -> NDArray[np.float64]:
    """Euclidean distances in float64, rounded to nine decimals."""
    gaps = rows.astype(np.float64) - point.astype(np.float64)
    lengths: NDArray[np.float64] = np.sqrt((gaps * gaps).sum(axis=1))
    return lengths.round(9)
