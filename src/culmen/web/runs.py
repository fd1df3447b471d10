"""What a dashboard keeps of one run between two looks: only what is new is read again."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from culmen.core.errors import CulmenError, UserError
from culmen.core.usage import Usage
from culmen.store import views
from culmen.store.address import has_run, journal_file, pointer
from culmen.store.database import RunMeta, run_folders
from culmen.store.lease import signature
from culmen.store.views import RunLine, StrategyNote

T = TypeVar("T")


class TimelineSpan(NamedTuple):
    """One effect from start to end in active seconds; `end` None while it runs, `outcome` done |
    torn | abandoned.
    """

    key: int
    effect: str
    start: float
    end: float | None
    outcome: str


class Digest:
    """Spans, costs, notes and places of evaluations of one run, up to the event `last`, which
    `refresh` moves on.

    Each of them is read when it is first asked for, and from then on only extended: the first page
    of a long run need not wait for what it does not show. `names` maps the path of a strategy's
    class to what it is called; `name` is what the run is called, its folder's name by default.
    Usable from several threads at once. Lists are only appended to, but for `spans`, whose open
    ones get their end.
    """

    def __init__(self, run: Path, names: Mapping[str, str] | None = None, name: str = "") -> None:
        self.run, self.name, self._names, self.last = run, name or run.name, names or {}, 0
        self._spans: list[TimelineSpan] = []
        self._sessions: list[float] = []
        self._costs: list[tuple[int, Usage]] = []
        self._shares: dict[tuple[str, str], list[tuple[int, Usage]]] = {}
        self._evaluations: list[int] = []
        self._faults: Counter[str] = Counter()
        self._notes: list[StrategyNote] = []
        self._open: dict[int, int] = {}
        self._read_to: dict[str, int] = {}  # how far each part has been read
        self.kept: dict[str, Any] = {}  # what a page has read so far, for itself
        self._memos: dict[str, tuple[int, Any]] = {}
        self._meta: RunMeta | None = None
        self._lock = threading.Lock()

    @property
    def meta(self) -> RunMeta:
        """The run's task and settings; what changes while it runs (the isolation found) is in its
        status.
        """
        self._meta = self._meta or views.meta(self.run)
        return self._meta

    def refresh(self) -> Digest:
        """See what was journaled since the last time."""
        with self._lock:
            self.last = max(self.last, views.last_seq(self.run))
        return self

    @property
    def spans(self) -> list[TimelineSpan]:
        """All effects, in the order in which they were started."""
        self._bring("marks", self._read_marks)
        return self._spans

    @property
    def sessions(self) -> list[float]:
        """Active seconds at which a process took the run up."""
        self._bring("marks", self._read_marks)
        return self._sessions

    @property
    def costs(self) -> list[tuple[int, Usage]]:
        """Seq, and everything spent up to there."""
        self._bring("costs", self._read_costs)
        return self._costs

    @property
    def shares(self) -> dict[tuple[str, str], list[tuple[int, Usage]]]:
        """The same for each role and model."""
        self._bring("costs", self._read_costs)
        return self._shares

    @property
    def faults(self) -> Counter[str]:
        """What went wrong in calls by kind, also what a retry made good."""
        self._bring("costs", self._read_costs)
        return self._faults

    @property
    def evaluations(self) -> list[int]:
        """Seq of every observation."""
        self._bring("evaluations", self._read_evaluations)
        return self._evaluations

    @property
    def notes(self) -> list[StrategyNote]:
        """What the strategy noted."""
        self._bring("notes", self._read_notes)
        return self._notes

    def between(self, after: int, last: int) -> list[TimelineSpan]:
        """The effects that were started among these events; nothing of it is kept."""
        part = Digest(self.run)
        part._read_marks(after, last)
        return part._spans

    def spent_at(self, seq: int) -> Usage:
        """What model calls and other effects had cost when event `seq` was journaled."""
        costs = self.costs
        place = bisect_right(costs, seq, key=lambda cost: cost[0])
        return costs[place - 1][1] if place else Usage()

    def evaluations_at(self, seq: int) -> int:
        """How many evaluations had been made when event `seq` was journaled."""
        return bisect_right(self.evaluations, seq)

    @property
    def strategy(self) -> str:
        """What the run's strategy is called on the command line, else the name of its class."""
        path = str(self.meta.strategy.get("path", ""))
        return self._names.get(path) or path.rpartition(":")[2]

    def memo(self, name: str, state: int, make: Callable[[], T]) -> T:
        """What `make` made, kept while `state` (a seq, a count) is the same."""
        kept = self._memos.get(name)
        if kept is None or kept[0] != state:
            kept = self._memos[name] = (state, make())
        return kept[1]

    def _bring(self, part: str, read: Callable[[int, int], None]) -> None:
        """Let a part read what it has not seen up to `last`."""
        if self._read_to.get(part, 0) == self.last:
            return
        with self._lock:
            after, last = self._read_to.get(part, 0), self.last
            if after < last:
                read(after, last)
                self._read_to[part] = last

    def _read_marks(self, after: int, last: int) -> None:
        for mark in views.effect_marks(self.run, after, last):
            self._mark(mark)

    def _read_costs(self, after: int, last: int) -> None:
        spent = self._costs[-1][1] if self._costs else Usage()
        for cost in views.costs(self.run, after, last):
            spent = spent + cost.usage
            self._costs.append((cost.seq, spent))
            self._faults.update(cost.faults)
            for role, model, usage in cost.shares:
                course = self._shares.setdefault((role, model), [])
                course.append((cost.seq, usage + course[-1][1] if course else usage))

    def _read_evaluations(self, after: int, last: int) -> None:
        self._evaluations += views.evaluated(self.run, after, last)

    def _read_notes(self, after: int, last: int) -> None:
        self._notes += views.strategy_notes(self.run, after, last)

    def _mark(self, mark: views.EffectMark) -> None:
        if mark.kind == "started":
            self._end(mark.key, mark.elapsed, "torn")  # of an earlier session
            self._open[mark.key] = len(self._spans)
            self._spans.append(TimelineSpan(mark.key, mark.effect, mark.elapsed, None, ""))
        elif mark.kind in ("done", "torn"):
            self._end(mark.key, mark.elapsed, mark.kind)
        else:
            if mark.kind == "state" and mark.elapsed not in self._sessions:
                self._sessions.append(mark.elapsed)
            for key in list(self._open):
                self._end(key, mark.elapsed, "abandoned")

    def _end(self, key: int, elapsed: float, outcome: str) -> None:
        place = self._open.pop(key, None)
        if place is not None:
            self._spans[place] = self._spans[place]._replace(end=elapsed, outcome=outcome)


# The runs that a dashboard shows: one, or those of a folder.

_SMALL = 24  # points of a run's course in the list
# folders below one another in which runs are looked for; `culmen compare` makes
# OUT/TASK/STRATEGY/seed-N
_BELOW = 4
_SEEN = 5_000  # folders looked at for that
_JOIN = "~"  # in the name of a run that lies deeper: a name must do as one piece of an address


class RunCatalog:
    """Runs by the names of their folders. `place` is a run, or a folder of runs, which may come and
    go.

    Runs that lie deeper (`culmen compare`, benches) are called `TASK~STRATEGY~seed-0`. `names` maps
    the path of a strategy's class to what it is called.
    """

    def __init__(self, place: Path, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self.single = has_run(place)
        self.folder = place.resolve().parent if self.single else place.resolve()
        self._only = place.resolve() if self.single else None
        self._digests: dict[str, tuple[int, Digest]] = {}
        self._lines: dict[Path, tuple[object, RunLine]] = {}
        self._curves: dict[Path, tuple[object, list[tuple[int, float]]]] = {}
        self._found: dict[str, Path] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where they lie, for people: a folder, or a database."""
        return str(pointer(self.folder) or self.folder)

    def lines(self) -> list[tuple[str, RunLine]]:
        """All of them, newest first, each with its name; none that is deleted while they are looked
        at.
        """
        called = {path.rpartition(":")[2]: name for path, name in self._names.items()}
        known = {path: name for name, path in self.paths().items()}
        there = [line for path in known if (line := self._line(path)).task or has_run(path)]
        lines = sorted(there, key=lambda line: (-line.created, line.run))
        return [
            (
                known[Path(line.path)],
                msgspec.structs.replace(line, strategy=called.get(line.strategy, line.strategy)),
            )
            for line in lines
        ]

    def curve(self, line: RunLine) -> list[tuple[int, float]]:
        """Evaluations and the best so far, few enough for a line of a table; none for a run that
        cannot be read, or is deleted meanwhile."""
        if not line.task:
            return []
        path, state = Path(line.path), seen(Path(line.path))
        kept = self._curves.get(path)
        if kept is None or kept[0] != state or state is None:
            try:
                points = thin(views.progress(path, views.LISTED), _SMALL)
            except UserError:
                if has_run(path):
                    raise
                return []
            kept = self._curves[path] = (
                state,
                [(point.evaluations, point.mean) for point in points],
            )
        return kept[1]

    def _line(self, path: Path) -> RunLine:
        """A run in a line; not looked at again while its files are the same."""
        state = seen(path)
        kept = self._lines.get(path)
        if kept is None or kept[0] != state or state is None:
            kept = self._lines[path] = (state, views.run_lines([path])[0])
        return kept[1]

    def paths(self) -> dict[str, Path]:
        """What folders there are, by name."""
        if self._only is not None:
            return {self._only.name: self._only}
        deeper = self.folder.is_dir() and pointer(self.folder) is None  # a database knows its runs
        found = {*run_folders(self.folder), *_below(self.folder, _BELOW if deeper else 0)}
        inside = {
            path: path.relative_to(self.folder) if self.folder in path.parents else path
            for path in found
        }
        named = {
            _JOIN.join(short.parts) if path != short else path.name: path
            for path, short in inside.items()
        }
        self._found = dict(sorted(named.items()))
        return self._found

    def path(self, name: str) -> Path:
        """The folder of a run; raises `UserError` for anything that is not one of them."""
        path = self._found.get(name)
        if path is None or not has_run(path):
            path = self.paths().get(name)
        if path is None:
            raise UserError(
                f"there is no run '{name}'", where=str(self.folder), fix="choose one from the list"
            )
        return path

    def digest(self, name: str) -> Digest:
        """What is kept of a run; the pages that need it bring it up to date."""
        path = self.path(name)
        # another run may have taken the place of one that was deleted
        file = journal_file(path).stat().st_ino
        with self._lock:
            known = self._digests.get(name)
            if known is None or known[0] != file:
                known = self._digests[name] = (file, Digest(path, self._names, name))
            return known[1]


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """Runs inside a folder and the folders in it, level by level; links are not followed, and what
    a run keeps is its own. Ends after so many folders that it cannot be a place for runs."""
    level, seen = [folder], 0
    for _ in range(deep):
        inside: list[Path] = []
        for each in level:
            with os.scandir(each) as entries:
                found = [
                    Path(e.path)
                    for e in entries
                    if e.is_dir(follow_symlinks=False) and e.name[0] != "."
                ]
            seen += len(found)
            yield from (path for path in found if has_run(path))
            inside += [path for path in found if not has_run(path)]
            if seen > _SEEN:
                return
        level = inside


def seen(run: Path) -> object:
    """Something that changes when the run does; None while it cannot be looked at: it may just come
    or go.
    """
    try:
        return signature(run)
    except CulmenError:
        return None


# Series short enough to draw.


def thin(points: Sequence[T], most: int) -> list[T]:
    """At most `most` of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(place * step)] for place in range(most)]


def buckets(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points of a series in order of x that keep its lows and highs: two for each
    bucket.
    """
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // (most // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        inside = points[start : start + size]
        low, high = min(inside, key=lambda p: p[1]), max(inside, key=lambda p: p[1])
        kept += sorted({low, high})
    return kept
