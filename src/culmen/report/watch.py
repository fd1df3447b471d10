"""An observer that shows a run's progress from a thread of its own.

It reads the same view as `culmen status`, a few times a second and only after new events, so
everything shown is durable and equal in both places, and a slow terminal never delays the search.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

from culmen.core.errors import Unavailable, UserError
from culmen.core.event import Event
from culmen.core.extensions import find_part, part_addresses
from culmen.core.ports import Observer
from culmen.core.result import RunResult
from culmen.report.causes import unanswered_text
from culmen.report.forecast import ForecastNews, RunForecast
from culmen.report.sentences import noise_note
from culmen.store import views
from culmen.store.sidecar import sampling_time
from culmen.store.views import RunStatus

INTERVAL = 0.25  # seconds between two drawings
_STALE = 20.0  # seconds after which a run without events is read again: its clock goes on
_SHARE = 0.05  # largest share of the time spent on reading the run: large runs are read less often


_LOOKING = threading.Lock()  # held while a run is read, so that no process is forked during a read
os.register_at_fork(
    before=_LOOKING.acquire, after_in_parent=_LOOKING.release, after_in_child=_LOOKING.release
)


class Display(Protocol):
    """Drawing of a run's state, used from one thread only.

    It gets a new state at most every `every` seconds.
    """

    every: float

    def show_preparation(self, seconds: float) -> None: ...

    def start(self, now: RunStatus) -> None: ...

    def draw(self, now: RunStatus) -> None: ...

    def on_improvement(self, now: RunStatus, best: RunResult, before: RunResult | None) -> None: ...

    def show_message(self, text: str) -> None: ...

    def close(self) -> None: ...


class Watch(Observer):
    """Observer that shows a run on `display`: `with watch.of(folder): ...`."""

    def __init__(self, display: Display) -> None:
        self._display, self._run = display, Path()
        self._messages: list[str] = []
        self._interrupts = 0
        self._begun = self._changed = False
        self._wake, self._closing = threading.Event(), threading.Event()
        self._now: RunStatus | None = None
        self._forecast: ForecastNews | None = None
        self._best: RunResult | None = None
        self._look_at = self._entered = self._drawn = 0.0
        self._thread = threading.Thread(
            target=self._display_loop, name="culmen-progress", daemon=True
        )

    def for_run(self, run: Path) -> Watch:
        """Set the run to show."""
        self._run = run
        return self

    def __enter__(self) -> Watch:
        self._entered = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def correct_forecast(self, first: RunForecast | None) -> None:
        """Show corrections of this forecast while the run proceeds."""
        self._forecast = None if first is None else ForecastNews(first)

    def see(self, events: Iterable[Event]) -> None:
        """Note that new events are durable."""
        self._begun = self._changed = True
        for event in events:
            if sentence := noise_note(event.entry):
                self.remarked(sentence)

    def interrupted(self) -> None:
        """Show a message on the effect of Ctrl-C."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._messages.append(
                "Stopping: waiting for what runs, 10 s at most. Ctrl-C again stops at once."
            )
        elif self._interrupts == 2:
            self._messages.append("Stopping at once: what was running is done again on resume.")
        self._wake.set()

    def told(self, text: str) -> None:
        """Show a message from outside the search, such as a provider's outage or return."""
        self._messages.append(text)
        self._wake.set()

    def remarked(self, text: str) -> None:
        """Show a remark of the search, unless the display shows only results."""
        if self._display.every < math.inf:
            self.told(text)

    def _display_loop(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(INTERVAL)
            self._wake.clear()
            with _LOOKING:
                self._update_display(last=self._closing.is_set())
        self._display.close()

    def _update_display(self, last: bool) -> None:
        self._show_messages()
        if not self._begun:
            if not last:
                self._display.show_preparation(time.monotonic() - self._entered)
            return
        began, drawn = time.monotonic(), sampling_time(self._run)
        if drawn != self._drawn:  # the advisor draws replies: minutes may pass without a new event
            self._drawn, self._changed = drawn, True
        is_old = began >= self._look_at + _STALE
        if self._now is None or last or is_old or (self._changed and began >= self._look_at):
            self._changed = False
            with suppress(
                Unavailable
            ):  # an unavailable database: the search's own connection handles that
                self._show_status(views.run_status(self._run))
            self._look_at = time.monotonic() + max(
                (time.monotonic() - began) / _SHARE, self._display.every
            )
        if self._now is not None:
            self._display.draw(self._now)

    def _show_messages(self) -> None:
        """Show waiting messages, also before the run has begun: a cluster's queue may be slow."""
        messages, self._messages = self._messages, []
        for message in messages:
            self._display.show_message(message)

    def _show_status(self, now: RunStatus) -> None:
        if self._now is None:
            self._display.start(now)
            self._best = now.best
            if now.best is not None:
                self._display.on_improvement(now, now.best, None)
        is_new = now.unanswered and not (self._now and self._now.unanswered)
        if is_new and now.state == "running":
            self.told(f"{unanswered_text(now.unanswered[0])}; the search goes on asking")
        self._now = now
        if self._forecast is not None and (news := self._forecast.take_news(self._run, now)):
            self.remarked(news)
        best, before = now.best, self._best
        if best is None or (before is not None and now.state == "finished"):
            # the reported score is another mean: news only if no improvement was shown before
            return
        is_news = bool(best.front) or (
            before is not None and _is_better(now, best.value, before.value)
        )
        if before is None or (best.id != before.id and is_news):
            self._best = best
            self._display.on_improvement(now, best, before)


def _is_better(now: RunStatus, score: float, than: float) -> bool:
    return score > than if now.direction == "max" else score < than


def own_display() -> Display:
    """The display for this process: a notebook's, a terminal's, or plain lines."""
    from culmen.report import displays
    from culmen.report.displays import PlainDisplay, TerminalDisplay

    if displays.in_notebook():
        return displays.NotebookDisplay()
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console

        return TerminalDisplay(Console(stderr=True, highlight=False))
    return PlainDisplay()


# Trackers: observers that copy a run to another program; extensions add them by name.


class RunTracker(Observer, Protocol):
    """An observer that copies a run to a tracker."""

    name: str

    def for_run(
        self, run: Path, report_message: Callable[[str], None]
    ) -> AbstractContextManager[object]:
        """The tracker at work on this run, as a context; it reports trouble, and raises nothing."""
        ...

    def send_journal(self, run: Path) -> int:
        """Copy a run from its journal; return the number of evaluations sent.

        Waits for the end of a running search.
        """
        ...


def make_trackers(wanted: Sequence[str]) -> tuple[RunTracker, ...]:
    """Trackers for texts `NAME[:PLACE][#OPTIONS]`, each made by the extension of its name.

    Raises `UserError` for an unknown name or option, or a missing package.
    """
    return tuple(_make_tracker(text) for text in dict.fromkeys(wanted))


def _make_tracker(text: str) -> RunTracker:
    name = text.partition("#")[0].partition(":")[0]
    make: Callable[[str], RunTracker] | None = find_part("trackers", name)
    if make is None:
        known = ", ".join(part_addresses("trackers"))
        raise UserError(
            f"there is no tracker '{name}'",
            where=f"--track {text}",
            fix=f"use one of {known}" if known else "install a package that adds it",
        )
    return make(text)
