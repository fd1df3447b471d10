"""A run in a notebook: as HTML (what came out, the best so far as a curve, what changed), and while it goes on."""

from __future__ import annotations

import html
import time
from pathlib import Path
from typing import Any

from culmen.observe.displays import PlainDisplay, costs, few, share
from culmen.observe.figures import clock, count, number
from culmen.store import views
from culmen.store.views import BestCandidate, ProgressPoint, RunStatus

_WIDTH, _HEIGHT, _LEFT, _BELOW = 560, 150, 62, 22  # pixels of the curve
_LINES = 24  # of a change
_SELDOM = 0.5  # seconds between two drawings
_INKS = {"+": "#1a7f37", "-": "#cf222e"}
_STYLE = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.4;white-space:pre-wrap;margin:0"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    try:
        from IPython.core.getipython import get_ipython  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    shell: Any = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def page(run: Path, words: str) -> str:
    """The run as HTML: `words` (lines of text), the curve of the best so far, the best against its initial program."""
    drawn = curve(views.progress(run), views.status(run).evaluations)
    return f"<div>{preformatted(html.escape(words))}{drawn}{_change(run)}</div>"


def curve(points: list[ProgressPoint], evaluations: int) -> str:
    """The best so far over so many evaluations as SVG; "" where nothing scored."""
    if not points:
        return ""
    last, values = max(1, evaluations, points[-1].evaluations), [point.mean for point in points]
    low, high = min(values), max(values)
    span = (high - low) or 1.0

    def x(after: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * after / last

    def y(value: float) -> float:
        return 8 + (_HEIGHT - _BELOW - 16) * (high - value) / span

    path = f"M{x(points[0].evaluations):.1f},{y(values[0]):.1f}"
    path += "".join(f"H{x(point.evaluations):.1f}V{y(point.mean):.1f}" for point in points[1:]) + f"H{x(last):.1f}"
    text = '<text font-size="11" fill="currentColor" x="{:.0f}" y="{:.0f}" text-anchor="{}">{}</text>'
    words = [
        text.format(_LEFT - 6, y(high) + 4, "end", number(high)),
        text.format(_LEFT - 6, y(low) + 4, "end", number(low)),
        text.format(_LEFT, _HEIGHT - 6, "start", "0"),
        text.format(_WIDTH - 8, _HEIGHT - 6, "end", count(last, "evaluation")),
    ]
    return (
        f'<svg role="img" aria-label="Best score so far" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<path d="{path}" fill="none" stroke="#0969da" stroke-width="1.8"/>{"".join(words)}</svg>'
    )


def _change(run: Path) -> str:
    """Lines in which the best differs from the initial program it descends from, folded away."""
    from culmen.observe.displays import compared

    best = views.best(run)
    firsts = views.candidates(run, "old", limit=1)
    if best is None or not firsts or firsts[0].id == best.id:
        return ""
    found = compared(views.candidate(run, firsts[0].id).parts, views.candidate(run, best.id).parts)
    if not found:
        return ""
    shown = few(found, _LINES)
    lines = "\n".join(f'<span style="color:{_INKS.get(x[:1], "inherit")}">{html.escape(x)}</span>' for x in shown)
    rest = len(found) - _LINES
    more = f"\n… and {count(rest, 'line')} more" if rest > 0 else ""
    return f"<details><summary>what changed: initial program → best</summary>{preformatted(lines + more)}</details>"


def preformatted(inside: str) -> str:
    """A block of monospaced lines; `inside` is HTML."""
    return f'<pre style="{_STYLE}">{inside}</pre>'


class NotebookDisplay(PlainDisplay):
    """One output of a cell that is drawn anew: how far the run is, and the curve of the best so far."""

    def __init__(self) -> None:
        super().__init__()
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        self._html = HTML
        self._handle: Any = display(HTML(preformatted("getting ready")), display_id=True)
        self._said: list[str] = []
        self._drawn = 0.0
        self._now: RunStatus | None = None

    def prepare(self, seconds: float) -> None:
        """Nothing: the output says so already."""

    def draw(self, now: RunStatus) -> None:
        """Draw anew, twice a second at most."""
        self._now = now
        if time.monotonic() - self._drawn >= _SELDOM:
            self._show(now)

    def improved(self, now: RunStatus, best: BestCandidate, before: BestCandidate | None) -> None:
        """Seen in the curve."""
        self._show(now)

    def say(self, text: str) -> None:
        """A message of its own, kept above the figures."""
        self._said.append(text)

    def close(self) -> None:
        """The last drawing stays."""
        if self._now is not None:
            self._show(self._now)

    def _show(self, now: RunStatus) -> None:
        self._drawn = time.monotonic()
        part = share(now, now.elapsed_seconds)
        best = "no score yet" if now.best is None else f"best {number(now.best.value)}"
        parts = [clock(now.elapsed_seconds), "" if part is None else f"{part:.0%}", best, *costs(now)]
        head = "  ".join(filter(None, parts))
        words = html.escape("\n".join([*self._said, head]))
        self._handle.update(
            self._html(f"<div>{preformatted(words)}{curve(views.progress(now.path), now.evaluations)}</div>")
        )
