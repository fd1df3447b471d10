"""Chance of each candidate to fail: the interface for models of failures."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from culmen.evidence.pedigree.arrays import Floats, Ints


class FailureChances(NamedTuple):
    """Posterior mean and standard deviation of each candidate's chance to fail.

    `step` is the standard deviation of the mean after one more evaluation: its information.
    """

    mean: Floats
    sd: Floats
    step: Floats


class FailureModel(Protocol):
    """A model of failures; a pure function, so that results do not depend on the calls."""

    def chances_to_fail(
        self, scored: Floats, failed: Floats, means: Floats, parents: Ints
    ) -> FailureChances:
        """Chances to fail of candidates with these counts of evaluations.

        All arrays have one element per candidate, in order of their first observation; candidates
        without any evaluation come last and must not influence the others. `means`: posterior means
        on the model's scale (nan: no candidate has a score yet). `parents`: places in these arrays,
        -1 for none. Absurd scores count as failed.
        """
        ...

    def counted_failures(self, failed: Floats) -> Floats:
        """Failures of each candidate that count against it."""
        ...


class FailureShare:
    """Share of failures of each candidate, shrunk to that of candidates that also scored.

    r = sum of failed / (sum of (scored + failed - 1) + 2)     over candidates with a score
    q = (failed + 2 r) / (scored + failed + 2)                 its sd as that of a Beta law
    """

    def chances_to_fail(
        self, scored: Floats, failed: Floats, means: Floats, parents: Ints
    ) -> FailureChances:
        """Chances by this rule; means and parents are not used."""
        both = scored > 0
        again = float((scored + failed)[both].sum() - both.sum())
        rate = float(failed[both].sum()) / (again + 2.0)
        trials = scored + failed
        share = (failed + 2.0 * rate) / (trials + 2.0)
        spread = np.sqrt(share * (1.0 - share))
        return FailureChances(share, spread / np.sqrt(trials + 3.0), spread / (trials + 3.0))

    def counted_failures(self, failed: Floats) -> Floats:
        """All failures."""
        return failed
