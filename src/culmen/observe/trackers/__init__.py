"""Experiment trackers: observers outside the search, each on a thread of its own.

A tracker can neither slow nor end a run: what it is told waits in a queue that is bounded, and its first error is said
once and ends it alone.
"""

from __future__ import annotations

from culmen.observe.trackers.registry import NAMES, trackers
from culmen.observe.trackers.tracking import Tracking, tracked

__all__ = ["NAMES", "Tracking", "tracked", "trackers"]
