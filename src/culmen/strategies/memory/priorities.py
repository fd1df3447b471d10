"""Objects of POLCA's settings, without numpy: priorities, tie rules, and quantiles.

Priorities are those of its queue (Section 3, eq. 1, Appendix C); quantiles serve as levels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from culmen.core.errors import UserError

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]


class Observed(Protocol):
    """The statistics that a priority reads, a row per candidate in order of arrival."""

    def raw_column(self, name: str) -> Floats: ...

    def observation_counts(self) -> Floats: ...

    def mean_rewards(self) -> Floats: ...

    def latest_means(self) -> Floats: ...

    def confidence_widths(self, n: int | None = None) -> Floats: ...

    def posterior_means(self) -> Floats: ...


class Priority(Protocol):
    """p_explore: one number per candidate, in order of arrival.

    -inf ranks last; NaN is passed over while other rows remain.
    """

    def __call__(self, statistics: Observed) -> Floats: ...


class Ties(Protocol):
    """Puts rows of equal priority in order; `rows` come earliest first."""

    def order_rows(self, rows: list[int], rng: Random) -> list[int]: ...


@dataclass(frozen=True)
class Earliest:
    """Equal priorities: the earliest candidate first."""

    def order_rows(self, rows: list[int], rng: Random) -> list[int]:
        return rows


@dataclass(frozen=True)
class Shuffled:
    """Equal priorities: in random order, drawn from the run's generator."""

    def order_rows(self, rows: list[int], rng: Random) -> list[int]:
        return rng.sample(rows, len(rows))


@dataclass(frozen=True)
class Mean:
    """Empirical mean over all observations (Section 3): the paper's default."""

    def __call__(self, statistics: Observed) -> Floats:
        return statistics.mean_rewards()


@dataclass(frozen=True)
class Ucb:
    """mean + beta * sqrt(log n / T) (Appendix C).

    n is the number of observations so far of all programs.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        _check_nonnegative("beta", self.beta)

    def __call__(self, statistics: Observed) -> Floats:
        return statistics.mean_rewards() + self.beta * statistics.confidence_widths()


@dataclass(frozen=True)
class UcbSigma:
    """mean + 2 sigma sqrt(log n / T): eq. 1.

    sigma is the noise of one observation in units of the reward. n is the number of observations so
    far, or `horizon` if given: the paper's analysis fixes n to the horizon.
    """

    sigma: float = 0.5
    horizon: int | None = None

    def __post_init__(self) -> None:
        _check_nonnegative("sigma", self.sigma)

    def __call__(self, statistics: Observed) -> Floats:
        return statistics.mean_rewards() + 2.0 * self.sigma * statistics.confidence_widths(
            self.horizon
        )


@dataclass(frozen=True)
class Pedigree:
    """Posterior mean by the run's evidence: a candidate's own evaluations and its relatives'."""

    def __call__(self, statistics: Observed) -> Floats:
        return statistics.posterior_means()


@dataclass(frozen=True)
class Newest:
    """Creation order: with one program per iteration, sequential search (Appendix C).

    Scores play no part.
    """

    def __call__(self, statistics: Observed) -> Floats:
        return (statistics.raw_column("birth") * 0.0 + 1.0).cumsum()


@dataclass(frozen=True)
class ThisRound:
    """Beam search (Appendix C): the newest generation by its mean over its own iteration.

    Older programs are dropped. A generation without a score does not replace the one before it.
    """

    def __call__(self, statistics: Observed) -> Floats:
        scores, birth = statistics.latest_means(), statistics.raw_column("birth")
        scored = statistics.raw_column("scored") > 0
        if not scored.any():
            return scores
        scores[birth != birth[scored].max()] = float("nan")
        return scores


def _check_nonnegative(name: str, value: float) -> None:
    if not 0.0 <= value < float("inf"):
        raise UserError(f"{name} must be a number of 0 or more, not {value}", where="priority")


# Quantiles: levels that do not depend on units, and a bounded running sample.


@dataclass(frozen=True)
class Quantile:
    """The level below which a share `q` (0..1) of the observed values lies.

    Written `q0.1` on the command line.
    """

    q: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.q <= 1.0:
            raise UserError(
                f"a quantile lies between 0 and 1, not {self.q}", fix="write for example q0.1"
            )

    def __str__(self) -> str:
        return f"q{self.q:g}"

    @classmethod
    def parse(cls, text: str) -> Quantile | None:
        """`q0.1` as an object; None for any other text."""
        match = re.fullmatch(r"q(\d*\.?\d+)", text.strip())
        return cls(float(match[1])) if match else None


def interpolated_quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of sorted `values` (at least one), interpolated linearly."""
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


class RunningSample:
    """At most `limit` of the values seen, evenly spaced in arrival order.

    When full, every second value is dropped and from then on half as many are kept. No randomness,
    so a replayed search sees the same quantiles.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._stride = 1
        self._seen = 0
        self._kept: list[float] = []

    def __len__(self) -> int:
        return len(self._kept)

    def extend(self, values: Iterable[float]) -> None:
        """Take values in order; infinite ones (a distance to an empty memory) are ignored."""
        for value in values:
            if value == float("inf"):
                continue
            if self._seen % self._stride == 0:
                self._kept.append(value)
            self._seen += 1
            if len(self._kept) > self._limit:
                self._kept = self._kept[::2]
                self._stride *= 2

    def sorted_values(self) -> list[float]:
        """The kept values, lowest first."""
        return sorted(self._kept)

    def quantiles(self, *levels: float) -> list[float]:
        """One value per level (0..1); empty before any value."""
        ordered = self.sorted_values()
        return [interpolated_quantile(ordered, level) for level in levels if ordered]
