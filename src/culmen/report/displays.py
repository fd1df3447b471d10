"""Progress displays: on a terminal (lines redrawn in place), in a notebook, or as lines."""

from __future__ import annotations

import difflib
import html
import itertools
import math
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from culmen.core.result import RunResult
from culmen.report import sentences
from culmen.report.figures import (
    clock_text,
    column_decimals,
    count_text,
    difference_text,
    dollars_text,
    escape_controls,
    number_text,
    trust_suffix,
)
from culmen.report.story import candidate_sentence
from culmen.store import views
from culmen.store.views import ProgressPoint, RunStatus

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text


_WINDOW = 10.0  # seconds over which the rate is averaged
_QUIET = 1.0  # seconds between two lines about improvements on a terminal
_SELDOM = 5.0  # the same elsewhere
_OCCASION = 30.0  # seconds between two plain lines without news
_TALL = 16  # lines a terminal needs to show the last improvement's idea


class Pace:
    """Evaluations per second over the last ten seconds, and since when none has finished."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._last = (0.0, -1)  # time and number of the latest evaluations that finished

    def record_reading(self, at: float, evaluations: int) -> float | None:
        """Record a reading, `at` in seconds; return the rate, None for less than a second."""
        self._seen.append((at, evaluations))
        if evaluations != self._last[1]:
            self._last = at, evaluations
        while at - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        begun, first = self._seen[0]
        return (evaluations - first) / (at - begun) if at - begun >= 1.0 else None

    def seconds_without_result(self, at: float) -> float:
        """Seconds since an evaluation finished, of those long enough to wonder; else 0."""
        since = at - self._last[0]
        return since if since >= _WINDOW else 0.0


def usage_texts(now: RunStatus) -> list[str]:
    """`312/500 evaluations`, `40 calls`, `$0.31`: amounts used, with limits if there are any."""
    usage, budget = now.usage, now.budget
    texts = [f"{_used_of_limit(now.evaluations, budget.evaluations)} evaluations"]
    if now.agents is not None and now.agents.of:
        texts.append(
            f"agent {_used_of_limit(now.agents.begun, now.agents.of)}, "
            f"{count_text(now.agents.experiments, 'experiment')}"
        )
    if usage.calls:
        texts.append(f"{_used_of_limit(usage.calls, budget.calls)} calls")
        limit = f"/{dollars_text(budget.dollars)}" if budget.dollars else ""
        texts.append(
            "price unknown"
            if usage.unpriced and not usage.dollars
            else f"{dollars_text(usage.dollars)}{limit}"
        )
    return texts


def _used_of_limit(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,}/{limit:,}"


def gain_text(best: RunResult, before: RunResult | None) -> str:
    """`+0.012`: difference from the previous best, to the digits its margin justifies.

    Of a front, the metrics of its default choice.
    """
    if (chosen := sentences.chosen_point(best)) is not None:
        return f"default choice {sentences.metrics_text(chosen)}"
    return "" if before is None else difference_text(best.value - before.value, best.margin)


class News:
    """Improvements to report, merged so that at most one is due every `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._patience, self._last_report = patience, 0.0
        self._announced: RunResult | None = None
        self._pending: tuple[RunStatus, RunResult, RunResult | None] | None = None

    def add(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None:
        """Add an improvement."""
        self._pending = (now, best, before if self._pending is None else self._pending[2])

    def take_due(
        self, at_once: bool = False
    ) -> tuple[RunStatus, RunResult, RunResult | None] | None:
        """The merged improvement if one is due: the run, its best, and the best last reported."""
        if self._pending is None or (
            not at_once and time.monotonic() - self._last_report < self._patience
        ):
            return None
        improvement, self._pending, self._last_report = self._pending, None, time.monotonic()
        self._announced = improvement[1]
        return improvement

    def fall_text(self, now: RunStatus) -> str:
        """`(was 0.667: measured again, it is less)` if the best is below the last one reported."""
        best, before = now.best, self._announced
        if best is None or before is None or best.front:
            return ""
        was, fell = number_text(before.value), is_fall(now.direction, before.value, best.value)
        if not fell or was == number_text(best.value):
            return ""
        return f"(was {was}: measured again, it is {'less' if now.direction == 'max' else 'more'})"


def is_fall(direction: str, before: float, after: float) -> bool:
    """True if a score is worse than the one before."""
    return after < before if direction == "max" else after > before


class SilentDisplay:
    """Messages only, such as the effect of Ctrl-C; without a stream not even those.

    The other displays override what they show.
    """

    every = math.inf

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream

    def show_preparation(self, seconds: float) -> None:
        """No-op."""

    def start(self, now: RunStatus) -> None:
        """No-op: the start of the run is reported by its caller."""

    def draw(self, now: RunStatus) -> None:
        """No-op."""

    def on_improvement(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None:
        """No-op."""

    def show_message(self, text: str) -> None:
        """Write the message, if there is a stream."""
        if self._stream is not None:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def close(self) -> None:
        """No-op: nothing is held back."""


class PlainDisplay(SilentDisplay):
    """A line for each improvement, and at least one every half minute."""

    every = 1.0

    def __init__(self, stream: IO[str] | None = None) -> None:
        super().__init__(stream or sys.stderr)
        self._written = time.monotonic()
        self._news = News(_SELDOM)

    def show_preparation(self, seconds: float) -> None:
        """Write a line from time to time to show that the process is alive."""
        if time.monotonic() - self._written >= _OCCASION:
            self._written = time.monotonic()
            self.show_message(f"{clock_text(seconds)}  getting ready")

    def draw(self, now: RunStatus) -> None:
        """Write a line if there is news, or if there was no line for half a minute."""
        self._report_improvement(at_once=False)
        if time.monotonic() - self._written >= _OCCASION:
            self.write_status_line(now)

    def on_improvement(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None:
        """Keep the improvement for the next drawing."""
        self._news.add(now, best, before)

    def close(self) -> None:
        """Report improvements that are still held back."""
        self._report_improvement(at_once=True)

    def _report_improvement(self, at_once: bool) -> None:
        if (improvement := self._news.take_due(at_once)) is not None:
            now, best, before = improvement
            self.write_status_line(now, gain_text(best, before))

    def write_status_line(self, now: RunStatus, news: str = "") -> None:
        """Write time, best score and usage."""
        self._written = time.monotonic()
        news = news or self._news.fall_text(now)
        self.show_message(_status_text(now, "", news, f"{now.in_flight} running", now.sampling))


def _status_text(now: RunStatus, share: str, news: str = "", *more: str) -> str:
    """Time, best score and usage in a line."""
    trust = "" if now.best is None else trust_suffix(now.best.trust)
    best = sentences.best_score_text(now.best) + trust
    parts = [clock_text(now.elapsed_seconds), share, best, news, *usage_texts(now), *more]
    return "  ".join(filter(None, parts))


class TerminalDisplay:
    """Two fixed lines at the bottom of the terminal, with the last improvement's idea.

    Improvements scroll by above them.
    """

    every = 0.0

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._pace = Pace()
        self._better_at: float | None = None
        self._news = News(_QUIET)
        self._clock = (time.monotonic(), 0.0)
        self._decimals = 0
        self._idea = ""

    def show_preparation(self, seconds: float) -> None:
        """Show the time while the run is prepared.

        Preparation tests isolation, may score the initial program, and replays a journal.
        """
        from rich.text import Text

        if seconds >= _QUIET:
            self._live.start()
            self._live.update(
                Text(f"{clock_text(seconds):>7}  getting ready", style="dim"), refresh=True
            )

    def start(self, now: RunStatus) -> None:
        """Start the display at the bottom of the terminal."""
        self._clock = (time.monotonic(), now.elapsed_seconds)
        self._live.start()

    def draw(self, now: RunStatus) -> None:
        """Redraw the lines."""
        self._announce_improvement(at_once=False)
        elapsed = self._elapsed_seconds()
        self._live.update(
            _Lines(self, now, elapsed, self._pace.record_reading(elapsed, now.evaluations)),
            refresh=True,
        )

    def on_improvement(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None:
        """Announce the improvement at the next drawing, at most one a second."""
        self._better_at = self._elapsed_seconds()
        self._news.add(now, best, before)

    def show_message(self, text: str) -> None:
        """Print a separate message above the lines."""
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Announce improvements still held back, then release the terminal."""
        self._announce_improvement(at_once=True)
        self._live.stop()

    def _announce_improvement(self, at_once: bool) -> None:
        from rich.text import Text

        if (improvement := self._news.take_due(at_once)) is None:
            return
        now, best, before = improvement
        line = Text(f"{clock_text(now.elapsed_seconds):>7}  ", style="dim")
        line.append(f"{self._score_text(best):>10}", style="not dim")
        line.append(f"  {gain_text(best, before):<10}", style="green not dim")
        line.append(f"  {best.id}  after {count_text(now.evaluations, 'evaluation')}")
        self._console.print(line)
        if self._console.height >= _TALL and views.candidate_detail(now.path, best.id).row.parents:
            self._idea = candidate_sentence(Path(now.path), best.id)[0]

    def _elapsed_seconds(self) -> float:
        began, base = self._clock
        return base + time.monotonic() - began

    def status_lines(
        self, now: RunStatus, elapsed: float, rate: float | None, width: int
    ) -> list[Text]:
        """The two lines and the idea or change of the last improvement, cut to `width`."""
        from rich.text import Text

        idea = Text(f"{'':9}last improvement: {escape_controls(self._idea)}", style="dim")
        lines = [
            self._progress_line(now, elapsed, width),
            self._usage_line(now, elapsed, rate),
            *([idea] if self._idea else []),
        ]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _progress_line(self, now: RunStatus, elapsed: float, width: int) -> Text:
        from rich.text import Text

        times = clock_text(elapsed) + (
            f" of {clock_text(now.budget.seconds)}" if now.budget.seconds else ""
        )
        line = Text(f"{times:>7}  ", style="dim")
        part = now.budget_share(elapsed)
        if part is not None:
            room = max(10, min(40, width - len(times) - 36))
            full = int(part * room)
            line.append("━" * full, style="cyan not dim").append("━" * (room - full)).append(
                f" {part:4.0%}  "
            )
        line.append("" if now.best is not None and now.best.front else "best ")
        line.append(
            "no score yet" if now.best is None else self._score_text(now.best), style="bold not dim"
        )
        line.append("" if now.best is None else trust_suffix(now.best.trust))
        if fall := self._news.fall_text(now):
            line.append(f"  {fall}")
        return line

    def _score_text(self, best: RunResult) -> str:
        """The score with its interval.

        Without an interval, with as many decimals as any score so far, so that columns stay
        aligned.
        """
        if best.front or (best.margin and best.certified is None):
            return sentences.reported_score_text(best)
        self._decimals = max(self._decimals, column_decimals([best.value]))
        return number_text(best.value, self._decimals)

    def _usage_line(self, now: RunStatus, elapsed: float, rate: float | None) -> Text:
        from rich.text import Text

        parts = usage_texts(now)
        still = self._pace.seconds_without_result(elapsed)
        parts[0] += "" if rate is None or still else f" ({rate:.1f}/s)"
        waiting = f", none finished for {clock_text(still)}" if still and now.in_flight else ""
        parts.append(f"{now.in_flight} running{waiting}")
        parts += [now.sampling] if now.sampling else []
        if self._better_at is not None:
            parts.append(f"better {clock_text(max(0.0, elapsed - self._better_at))} ago")
        return Text(" " * 9 + "  ".join(parts), style="dim")


class _Lines:
    """A renderable for the terminal's lines at its current width."""

    def __init__(
        self, terminal: TerminalDisplay, now: RunStatus, elapsed: float, rate: float | None
    ) -> None:
        self._draw = terminal.status_lines
        self._data = (now, elapsed, rate)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._draw(*self._data, options.max_width)


# A run in a notebook: as HTML (result, curve of the best so far, changes), also while it runs.

_WIDTH, _HEIGHT, _LEFT, _BELOW = 560, 150, 62, 22  # pixels of the curve
_LINES = 24  # of a change
_REDRAWN = 0.5  # seconds between two drawings
_HTML_INKS = {"+": "#1a7f37", "-": "#cf222e"}
_STYLE = (
    "font-family:ui-monospace,monospace;font-size:12px;line-height:1.4;"
    "white-space:pre-wrap;margin:0"
)


def in_notebook() -> bool:
    """True if this process is the kernel of a notebook.

    IPython is not imported for the test: a kernel has loaded it already, and its import is slow.
    """
    if "IPython" not in sys.modules:
        return False
    try:
        from IPython.core.getipython import get_ipython  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    shell: object = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def run_html(run: Path, words: str) -> str:
    """The run as HTML: `words` (lines of text), curve of the best so far, and the changes.

    The changes are those of the best candidate from its initial program.
    """
    drawn = _progress_curve(views.run_status(run))
    return f"<div>{preformatted_html(html.escape(words))}{drawn}{_best_change_html(run)}</div>"


def _progress_curve(now: RunStatus) -> str:
    """The best so far as SVG; "" with several objectives, where no score is the best."""
    if now.best is not None and now.best.front:
        return ""
    return progress_svg(views.progress_points(now.path), now.evaluations, now.direction)


def worsening_text(direction: str) -> str:
    """Reason for which a curve of the best so far gets worse."""
    way, less = ("falls", "less") if direction == "max" else ("rises", "more")
    return f"where it {way}, the best was measured again and scored {less}"


def progress_svg(points: list[ProgressPoint], evaluations: int, direction: str) -> str:
    """The best so far over `evaluations` as SVG; "" without points.

    A legend explains why it gets worse if it does.
    """
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
    path += (
        "".join(f"H{x(point.evaluations):.1f}V{y(point.mean):.1f}" for point in points[1:])
        + f"H{x(last):.1f}"
    )
    text = (
        '<text font-size="11" fill="currentColor" x="{:.0f}" y="{:.0f}" text-anchor="{}">{}</text>'
    )
    words = [
        text.format(_LEFT - 6, y(high) + 4, "end", number_text(high)),
        text.format(_LEFT - 6, y(low) + 4, "end", number_text(low)),
        text.format(_LEFT, _HEIGHT - 6, "start", "0"),
        text.format(_WIDTH - 8, _HEIGHT - 6, "end", count_text(last, "evaluation")),
    ]
    if any(is_fall(direction, *pair) for pair in itertools.pairwise(values)):
        words.append(text.format(_LEFT + 16, _HEIGHT - 6, "start", worsening_text(direction)))
    return (
        f'<svg role="img" aria-label="Best score so far" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<path d="{path}" fill="none" stroke="#0969da" stroke-width="1.8"/>{"".join(words)}</svg>'
    )


def _best_change_html(run: Path) -> str:
    """Changes of the best candidate from the run's first candidate, in a folded block."""

    best = views.best_result(run)
    firsts = views.candidate_rows(run, "old", limit=1)
    if best is None or not firsts or firsts[0].id == best.id:
        return ""
    was, parts = (views.candidate_detail(run, name).parts for name in (firsts[0].id, best.id))
    changed = [
        escape_controls(line)
        for name in dict.fromkeys([*was, *parts])
        for line in difflib.unified_diff(
            was.get(name, "").splitlines(),
            parts.get(name, "").splitlines(),
            name,
            name,
            n=0,
            lineterm="",
        )
    ]
    if not changed:
        return ""
    lines = "\n".join(
        f'<span style="color:{_HTML_INKS.get(x[:1], "inherit")}">{html.escape(x)}</span>'
        for x in changed[:_LINES]
    )
    rest = len(changed) - _LINES
    more = f"\n… and {count_text(rest, 'line')} more" if rest > 0 else ""
    return (
        "<details><summary>what changed: initial program → "
        f"best</summary>{preformatted_html(lines + more)}</details>"
    )


def preformatted_html(inside: str) -> str:
    """A block of monospaced lines; `inside` is HTML."""
    return f'<pre style="{_STYLE}">{inside}</pre>'


class NotebookDisplay(PlainDisplay):
    """One output of a cell, redrawn in place: progress, and the curve of the best so far."""

    every = _REDRAWN

    def __init__(self) -> None:
        super().__init__()
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        self._html = HTML
        self._handle: Any = display(HTML(preformatted_html("getting ready")), display_id=True)
        self._messages: list[str] = []
        self._drawn = 0.0
        self._now: RunStatus | None = None

    def show_preparation(self, seconds: float) -> None:
        """No-op: the output shows the state already."""

    def draw(self, now: RunStatus) -> None:
        """Redraw, at most twice a second."""
        self._now = now
        if time.monotonic() - self._drawn >= _REDRAWN:
            self._update_output(now)

    def on_improvement(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None:
        """Redraw: the curve shows the improvement."""
        self._update_output(now)

    def show_message(self, text: str) -> None:
        """Add a separate message, kept above the figures."""
        self._messages.append(text)

    def close(self) -> None:
        """Draw the final state, which stays."""
        if self._now is not None:
            self._update_output(self._now)

    def _update_output(self, now: RunStatus) -> None:
        self._drawn = time.monotonic()
        part = now.budget_share(now.elapsed_seconds)
        share = "" if part is None else f"{part:.0%}"
        words = html.escape("\n".join([*self._messages, _status_text(now, share)]))
        self._handle.update(
            self._html(f"<div>{preformatted_html(words)}{_progress_curve(now)}</div>")
        )
