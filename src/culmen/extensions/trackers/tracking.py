"""The observer that feeds a tracker from a bounded queue on a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from culmen.core.evaluation import Observation
from culmen.core.event import Event, Result
from culmen.core.ports import Observer
from culmen.core.usage import Usage
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.evidence import FollowedLeader
from culmen.store.views import CandidateRow

WAITING = 10_000  # events by which a slow tracker may lag; later ones are dropped
PATIENCE = 10.0  # seconds that a run waits for its trackers at its end
_PAGE = 2000  # events read at once

ReportMessage = Callable[[str], None]


class Tracking(Observer):
    """Observer that sends events to `tracker`: `with tracking.for_run(folder, report): ...`."""

    def __init__(
        self, name: str, tracker: Tracker, waiting: int = WAITING, patience: float = PATIENCE
    ) -> None:
        self.name, self._tracker, self._patience = name, tracker, patience
        self._queue: queue.Queue[Event] = queue.Queue(waiting)
        self._run, self._report_message = Path(), _discard_message
        self._closing, self._broken = threading.Event(), threading.Event()
        self._missed = 0
        self._thread = threading.Thread(
            target=self._run_thread, name=f"culmen-track-{name}", daemon=True
        )

    def for_run(self, run: Path, report_message: ReportMessage) -> Tracking:
        """Set the run to track, and the receiver of messages about trouble."""
        self._run, self._report_message = run, report_message
        return self

    def __enter__(self) -> Tracking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._report_message(
                f"Tracker {self.name} is still busy and was left behind; the run is not affected."
            )
        elif self._missed:
            self._report_message(
                f"Tracker {self.name} was too slow: {self._missed:,} events were left out of it."
            )

    def see(self, events: Iterable[Event]) -> None:
        """Queue durable events; returns at once, whatever the tracker does."""
        if self._broken.is_set():
            return
        for event in events:
            try:
                self._queue.put_nowait(event)
            except queue.Full:
                self._missed += 1

    def told(self, text: str) -> None:
        """No-op: a tracker shows no messages."""

    def send_journal(self, run: Path) -> int:
        """Send a run from its journal to the tracker; return the number of evaluations sent.

        Waits for the end of a running search. Evaluations that the tracker has already are not sent
        again if it reports them (`reached`).
        """
        self._run = run
        points, after, sent = self._start_tracker(), 0, 0
        reached = self._tracker.reached
        while True:
            # read first, so that events before the end are still sent
            over = views.run_status(run).state != "running"
            page = views.log_events(run, after, _PAGE)
            for event in page:
                point, span = points.convert_event(event)
                if points.evaluations > reached:
                    sent += self._send_event(point, span)
                after = event.seq
            if not page and over:
                break
            if not page:
                time.sleep(0.5)  # seconds between two reads of a running run
        self._finish_tracker(points.state)
        return sent

    def _run_thread(self) -> None:
        try:
            self._send_queued()
        except Exception as error:  # noqa: BLE001 - the boundary of a foreign library: the run must not end with it
            self._broken.set()
            self._report_message(
                f"Tracker {self.name} failed and is left out from now on: "
                f"{type(error).__name__}: {error}"
            )

    def _send_queued(self) -> None:
        """Send all events up to the end of the run; earlier processes' events are only counted."""
        event = self._next_event()
        points = self._start_tracker(event.seq if event is not None else 0)
        while event is not None:
            self._send_event(*points.convert_event(event))
            event = self._next_event()
        self._finish_tracker(points.state)

    def _start_tracker(self, first: int = 0) -> TrackedEvents:
        """Start the tracker; events before `first` are only counted."""
        meta = views.run_meta(self._run)
        points = TrackedEvents(meta)
        for event in self._events_before(first):
            points.convert_event(event)
        strategy = str(meta.strategy.get("path", "")).rpartition(":")[2]
        settings = {"seed": str(meta.seed), "model": meta.model_name}
        settings |= {
            f"strategy.{name}": str(value)
            for name, value in (meta.strategy.get("config") or {}).items()
        }
        self._tracker.start(TrackedRun(meta.id, meta.task.name, strategy, settings))
        return points

    def _send_event(self, point: TrackedPoint | None, span: EffectSpan | None) -> bool:
        """Send one event's data; True if it was an evaluation."""
        if span is not None:
            self._tracker.log_span(span)
        if point is not None:
            self._tracker.log_point(point)
        return point is not None

    def _finish_tracker(self, state: str) -> None:
        """Send the tree of candidates and the final state."""
        # the oldest candidates
        rows = views.candidate_rows(self._run, "old", limit=5000)
        self._tracker.log_candidates(
            [_tracked_candidate(self._run, row, self._tracker.texts) for row in rows]
        )
        self._tracker.close(state)

    def _next_event(self) -> Event | None:
        """The next event; None once the run is over and the queue is empty."""
        while True:
            over = self._closing.is_set()
            try:
                return self._queue.get(timeout=0.1)
            except queue.Empty:
                if over:
                    return None

    def _events_before(self, first: int) -> Iterator[Event]:
        after = 0
        while first and (page := views.log_events(self._run, after, _PAGE)):
            for event in page:
                if event.seq >= first:
                    return
                yield event
            after = page[-1].seq


def _discard_message(text: str) -> None:
    """Discard a message: no receiver is set yet."""


# Events turned into data for trackers: one point per evaluation, one span per effect.


class TrackedRun(msgspec.Struct, frozen=True):
    """The tracked run: its name, task, strategy, and flat settings as texts."""

    run: str
    task: str
    strategy: str
    settings: dict[str, str]


class TrackedPoint(msgspec.Struct, frozen=True):
    """State after `evaluations` evaluations.

    `score` is the last one (None: it failed), `best` the best so far in the task's own direction,
    `usage` everything spent, `seconds` the active seconds, `time` the wall time (Unix seconds).
    """

    evaluations: int
    score: float | None
    best: float | None
    usage: Usage
    seconds: float
    time: float

    def plotted_values(self) -> dict[str, float]:
        """Figures to plot, by name."""
        spent = self.usage
        figures: dict[str, float | None] = {
            "score": self.score,
            "best": self.best,
            "seconds": self.seconds,
        }
        figures |= {
            "dollars": spent.dollars,
            "calls": float(spent.calls),
            "tokens": float(spent.tokens),
        }
        return {name: value for name, value in figures.items() if value is not None}


class EffectSpan(msgspec.Struct, frozen=True):
    """One finished effect with start and end in Unix seconds, and its result."""

    key: int
    effect: str
    role: str
    start: float
    end: float
    result: Result | None


class TrackedCandidate(msgspec.Struct, frozen=True):
    """A candidate with its parents' ids and its mean score over `count` evaluations.

    `parts` are its texts if wanted, else {}.
    """

    id: str
    parents: tuple[str, ...]
    score: float | None
    margin: float | None
    count: int
    failed: int
    operator: str
    model: str
    parts: dict[str, str] = {}


def _tracked_candidate(run: Path, row: CandidateRow, texts: bool) -> TrackedCandidate:
    parts = views.candidate_detail(run, row.id, observations=0, children=0).parts if texts else {}
    return TrackedCandidate(
        row.id,
        row.parents,
        row.mean,
        row.margin,
        row.count,
        row.failed,
        row.operator,
        row.model,
        parts,
    )


class Tracker:
    """Base of adapters to a tracking library, used from one thread only; they log what they can.

    Any error ends this tracker alone. `texts`: it may receive candidates' texts. `reached`: the
    evaluations that it has already.
    """

    texts, reached = False, 0

    def start(self, about: TrackedRun) -> None:
        """Open the run there."""
        raise NotImplementedError

    def log_point(self, point: TrackedPoint) -> None:
        """Log one step of every curve."""

    def log_span(self, span: EffectSpan) -> None:
        """Log one finished effect."""

    def log_candidates(self, candidates: Sequence[TrackedCandidate]) -> None:
        """Log all candidates."""

    def close(self, state: str) -> None:
        """Close the run there, which ended in this state."""
        raise NotImplementedError


class TrackedEvents:
    """Converter of a run's events, in order, to points and spans."""

    def __init__(self, meta: RunMeta) -> None:
        self._leader, self._usage = FollowedLeader(meta), Usage()
        self._begun: dict[int, tuple[float, str]] = {}
        self.evaluations = 0
        self.state = ""

    def convert_event(self, event: Event) -> tuple[TrackedPoint | None, EffectSpan | None]:
        """The point and the span of this event, None for each that it lacks."""
        entry = event.entry
        self._leader.enter_entry(entry)
        if entry.kind == "started":
            self._begun[entry.key] = (event.time, str(entry.body.get("role", "")))
        elif entry.kind == "state":
            self.state = str(entry.body.get("state", ""))
        if entry.kind != "done":
            return None, None
        start, role = self._begun.pop(entry.key, (event.time, ""))
        role = str(entry.body.get("role", "")) or role
        self._usage = self._usage + (getattr(entry.result, "usage", None) or Usage())
        return self._tracked_point(event), EffectSpan(
            entry.key, entry.effect, role, start, event.time, entry.result
        )

    def _tracked_point(self, event: Event) -> TrackedPoint | None:
        observation = event.entry.result
        if not isinstance(observation, Observation):
            return None
        self.evaluations += 1
        best = None if self._leader.best is None else self._leader.best[0]
        return TrackedPoint(
            self.evaluations, observation.score, best, self._usage, event.entry.elapsed, event.time
        )
