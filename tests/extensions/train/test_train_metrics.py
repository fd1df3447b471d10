"""An advisor learns a mechanism from metrics; bench/bench_advisor_metrics.py measures it."""

from __future__ import annotations

from statistics import fmean

from .metric_world import KINDS, searched


def test_an_advisor_with_metrics_learns_what_they_tell_and_without_them_does_not() -> None:
    last = {
        told: fmean(searched(seed, told=told, barriers=60)["hits"][3] for seed in range(4))
        for told in (True, False)
    }
    assert last[True] > 0.4 > 0.35 > last[False] and last[True] > last[False] + 1 / len(KINDS) / 2
