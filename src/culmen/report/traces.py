"""Words on traces of evaluations: random numbers drawn, and changes left in their process."""

from __future__ import annotations

from collections.abc import Mapping

from culmen.core.evaluation import FILE_MARK
from culmen.report.figures import count_text, join_nonempty
from culmen.store.views import RunStatus

_NAMED = 4  # names listed, the most frequent first


def traces_line(now: RunStatus) -> str:
    """`describe_traces` of a run.

    All evaluations are looked at: the journal counts them by name as they are made, so a reader
    adds nothing up.
    """
    return describe_traces(now.drew, now.left, now.keeps_state)


def describe_traces(drew: Mapping[str, int], left: Mapping[str, int], keeps_state: bool) -> str:
    """`draws: evaluator.rng; left and reset: os.environ; state kept: no`.

    "" if no evaluation drew or left anything, and none keeps state. Files are named elsewhere.
    """
    changed = {name: count for name, count in left.items() if not name.startswith(FILE_MARK)}
    if not (drew or changed or keeps_state):
        return ""
    title = "left for the next" if keeps_state else "left and reset"
    return join_nonempty(
        [
            f"draws: {drawn_names(drew) or 'none seen'}",
            f"{title}: {drawn_names(changed)}" if changed else "",
            f"state kept: {'yes' if keeps_state else 'no'}",
        ],
        "; ",
    )


def drawn_names(counts: Mapping[str, int]) -> str:
    """`evaluator.rng, program random`: generators that evaluations drew from, most used first."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    more = len(names) - _NAMED
    rest = f"and {count_text(more, 'other')}" if more > 0 else ""
    return join_nonempty([*names[:_NAMED], rest])
