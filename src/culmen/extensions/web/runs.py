"""Digests: parts of runs that a dashboard keeps, so that it reads only new events."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from culmen.core.errors import CulmenError, UserError
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.store import sidecar, views
from culmen.store.address import has_run, journal_file, read_pointer
from culmen.store.database import RunMeta, run_folders
from culmen.store.lease import current_owner, run_signature
from culmen.store.sidecar import load_kept, save_kept
from culmen.store.views import RunLine, StrategyNote

T = TypeVar("T")


class TimelineSpan(NamedTuple):
    """One effect from start to end in active seconds.

    `end` is None while it runs; `outcome` is done | torn | abandoned.
    """

    key: int
    effect: str
    start: float
    end: float | None
    outcome: str


class Digest:
    """Spans, costs, notes and evaluations of one run, up to the event `last`.

    `refresh` moves `last` on. Each part is read at first use and extended from then on: the first
    page of a long run need not wait for parts that it does not show. `names` maps the path of a
    strategy's class to its display name; `name` is the run's name, by default its folder's;
    `settings` gives `NAME=VALUE` of a stored strategy's changed settings. Safe for use from several
    threads. Lists are only appended to, except `spans`, whose open spans get
    their end.
    """

    def __init__(
        self,
        run: Path,
        names: Mapping[str, str] | None = None,
        name: str = "",
        settings: Callable[[JsonObject], list[str]] = lambda stored: [],
    ) -> None:
        self.run, self.name, self._names, self.last = run, name or run.name, names or {}, 0
        self._settings = settings
        self._spans: list[TimelineSpan] = []
        self._sessions: list[float] = []
        self._costs: list[tuple[int, Usage]] = []
        self._shares: dict[tuple[str, str], list[tuple[int, Usage]]] = {}
        self._evaluations: list[int] = []
        self._faults: Counter[str] = Counter()
        self._notes: list[StrategyNote] = []
        self._open: dict[int, int] = {}
        self._read_to: dict[str, int] = {}  # last event read for each part
        self._kept: dict[str, object] = {}  # data that pages have read so far
        self._memos: dict[str, tuple[int, Any]] = {}
        self._meta: RunMeta | None = None
        self._lock = threading.Lock()

    @property
    def meta(self) -> RunMeta:
        """The run's task and settings, cached.

        Facts that change while it runs (the isolation found) are in its status.
        """
        self._meta = self._meta or views.run_meta(self.run)
        return self._meta

    def refresh(self) -> Digest:
        """Advance `last` to the newest event."""
        with self._lock:
            self.last = max(self.last, views.last_seq(self.run))
        return self

    @property
    def spans(self) -> list[TimelineSpan]:
        """All effects, in the order of their starts."""
        self._read_new_events("marks", self._read_marks)
        return self._spans

    @property
    def sessions(self) -> list[float]:
        """Active seconds at which a process started or resumed the run."""
        self._read_new_events("marks", self._read_marks)
        return self._sessions

    @property
    def costs(self) -> list[tuple[int, Usage]]:
        """Pairs of event and everything spent up to it."""
        self._read_new_events("costs", self._read_costs)
        return self._costs

    @property
    def shares(self) -> dict[tuple[str, str], list[tuple[int, Usage]]]:
        """The same pairs by role and model."""
        self._read_new_events("costs", self._read_costs)
        return self._shares

    @property
    def faults(self) -> Counter[str]:
        """Faults of calls by kind, including those that a retry resolved."""
        self._read_new_events("costs", self._read_costs)
        return self._faults

    @property
    def evaluations(self) -> list[int]:
        """Events of all observations."""
        self._read_new_events("evaluations", self._read_evaluations)
        return self._evaluations

    @property
    def notes(self) -> list[StrategyNote]:
        """The strategy's notes."""
        self._read_new_events("notes", self._read_notes)
        return self._notes

    def spent_at(self, seq: int) -> Usage:
        """Cost of model calls and other effects up to event `seq`."""
        costs = self.costs
        count = bisect_right(costs, seq, key=lambda cost: cost[0])
        return costs[count - 1][1] if count else Usage()

    def dollars_at(self, seqs: Sequence[int]) -> list[float]:
        """Dollars spent up to each of these events."""
        return [round(self.spent_at(seq).dollars, 10) for seq in seqs]

    def evaluations_at(self, seq: int) -> int:
        """Number of evaluations up to event `seq`."""
        return bisect_right(self.evaluations, seq)

    @property
    def strategy(self) -> str:
        """The strategy's name on the command line, else the name of its class."""
        path = str(self.meta.strategy.get("path", ""))
        return self._names.get(path) or path.rpartition(":")[2]

    @property
    def strategy_word(self) -> str:
        """The argument of `--strategy`: the name, else the path of its class."""
        path = str(self.meta.strategy.get("path", ""))
        return self._names.get(path, path)

    @property
    def changed_settings(self) -> list[str]:
        """`NAME=VALUE` of each setting of the strategy that is not the default."""
        return self._settings(self.meta.strategy)

    @property
    def is_at_rest(self) -> bool:
        """True while no process works on the run."""
        return current_owner(self.run) is None

    def memoise_result(
        self, name: str, state: int, make: Callable[[], T], in_folder: bool = True
    ) -> T:
        """The result of `make`, cached while `state` (a seq, a count) is unchanged.

        Of a long run at rest it is kept in the run's folder, too, if `in_folder`.
        """
        found = self._memos.get(name)
        if found is None or found[0] != state:
            result = self._kept_result(name, state, make) if in_folder else make()
            found = self._memos[name] = (state, result)
            while len(self._memos) > _MEMOS:
                self._memos.pop(next(iter(self._memos)))
        return found[1]

    def _kept_result(self, name: str, state: int, make: Callable[[], T]) -> T:
        if self.last < sidecar.EVENTS or not self.is_at_rest:
            return make()
        found = load_kept(self.run, self.meta.id, name)
        if found is not None and found[0] == self.last and found[1][0] == state:
            return cast("T", found[1][1])
        result = make()
        save_kept(self.run, self.meta.id, name, self.last, (state, result))
        return result

    def kept_part(self, name: str, kind: type[T], make: Callable[[], T]) -> T:
        """Data that a page keeps and extends, made with `make` at first."""
        part = self._kept.get(name)
        if not isinstance(part, kind):
            part = self._kept[name] = make()
        return part

    def _read_new_events(self, part: str, read: Callable[[int, int], None]) -> None:
        """Read the new events of a part, up to `last`."""
        if self._read_to.get(part, 0) == self.last:
            return
        with self._lock:
            after, last = self._read_to.get(part, 0), self.last
            if after < last:
                read(after, last)
                self._read_to[part] = last

    def _read_marks(self, after: int, last: int) -> None:
        for mark in views.effect_marks(self.run, after, last):
            self._apply_mark(mark)

    def _read_costs(self, after: int, last: int) -> None:
        spent = self._costs[-1][1] if self._costs else Usage()
        for cost in views.effect_costs(self.run, after, last):
            spent = spent + cost.usage
            self._costs.append((cost.seq, spent))
            self._faults.update(cost.faults)
            for role, model, usage in cost.shares:
                course = self._shares.setdefault((role, model), [])
                course.append((cost.seq, usage + course[-1][1] if course else usage))

    def _read_evaluations(self, after: int, last: int) -> None:
        self._evaluations += views.evaluation_seqs(self.run, after, last)

    def _read_notes(self, after: int, last: int) -> None:
        self._notes += views.strategy_notes(self.run, after, last)

    def _apply_mark(self, mark: views.EffectMark) -> None:
        if mark.kind == "started":
            self._end_span(mark.key, mark.elapsed, "torn")  # left by an earlier session
            self._open[mark.key] = len(self._spans)
            self._spans.append(TimelineSpan(mark.key, mark.effect, mark.elapsed, None, ""))
        elif mark.kind in ("done", "torn"):
            self._end_span(mark.key, mark.elapsed, mark.kind)
        else:
            if mark.kind == "state" and mark.elapsed not in self._sessions:
                self._sessions.append(mark.elapsed)
            for key in list(self._open):
                self._end_span(key, mark.elapsed, "abandoned")

    def _end_span(self, key: int, elapsed: float, outcome: str) -> None:
        index = self._open.pop(key, None)
        if index is not None:
            self._spans[index] = self._spans[index]._replace(end=elapsed, outcome=outcome)


# The runs that a dashboard shows: one, or those of a folder.

_MEMOS = 64  # results of a run that are kept in memory
_SEEN = 5_000  # folders searched at most
_JOIN = "~"  # in the name of a run in a deeper folder: a name must be a single segment of a URL


class RunCatalog:
    """Runs by the names of their folders.

    `path` is a run, or a folder of runs, which may appear and disappear. Runs in deeper folders
    (`culmen compare`, benches) are called `TASK~STRATEGY~seed-0`. `names` maps the path of a
    strategy's class to its display name.
    """

    def __init__(self, path: Path, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self.single = has_run(path)
        self.folder = path.resolve().parent if self.single else path.resolve()
        self._only = path.resolve() if self.single else None
        self._digests: dict[str, tuple[int, Digest]] = {}
        self._lines: dict[Path, tuple[object, RunLine]] = {}
        self._curves: dict[Path, tuple[object, list[tuple[int, float]]]] = {}
        self._paths: dict[str, Path] = {}
        self._lock = threading.Lock()

    @property
    def display_location(self) -> str:
        """The folder or database of the runs, for display."""
        return str(read_pointer(self.folder) or self.folder)

    def list_lines(self) -> list[tuple[str, RunLine]]:
        """All runs with their names, newest first.

        Runs deleted in the meantime are left out.
        """
        called = {path.rpartition(":")[2]: name for path, name in self._names.items()}
        known = {path: name for name, path in self.paths().items()}
        there = [line for path in known if (line := self._cached_line(path)).task or has_run(path)]
        lines = sorted(there, key=lambda line: (-line.created, line.run))
        return [
            (
                known[Path(line.path)],
                msgspec.structs.replace(line, strategy=called.get(line.strategy, line.strategy)),
            )
            for line in lines
        ]

    def progress_curve(self, line: RunLine) -> list[tuple[int, float]]:
        """Evaluations and the best so far, thinned for a row of a table.

        Empty for a run that cannot be read or was deleted in the meantime.
        """
        if not line.task:
            return []
        path, state = Path(line.path), change_signature(Path(line.path))
        known = self._curves.get(path)
        if known is None or known[0] != state or state is None:
            try:
                # points of a run's course in the list
                points = thin_points(views.progress_points(path, views.LISTED), 24)
            except UserError:
                if has_run(path):
                    raise
                return []
            known = self._curves[path] = (
                state,
                [(point.evaluations, point.mean) for point in points],
            )
        return known[1]

    def _cached_line(self, path: Path) -> RunLine:
        """The line of a run, cached while its files are unchanged."""
        state = change_signature(path)
        known = self._lines.get(path)
        if known is None or known[0] != state or state is None:
            known = self._lines[path] = (state, views.run_lines([path])[0])
        return known[1]

    def paths(self) -> dict[str, Path]:
        """Folders of runs by name."""
        if self._only is not None:
            return {self._only.name: self._only}
        deeper = (
            self.folder.is_dir() and read_pointer(self.folder) is None
        )  # a database lists its runs
        # OUT/TASK/STRATEGY/seed-N
        runs = {*run_folders(self.folder), *_runs_below(self.folder, 4 if deeper else 0)}
        inside = {
            path: path.relative_to(self.folder) if self.folder in path.parents else path
            for path in runs
        }
        named = {
            _JOIN.join(short.parts) if path != short else path.name: path
            for path, short in inside.items()
        }
        self._paths = dict(sorted(named.items()))
        return self._paths

    def find_path(self, name: str) -> Path:
        """The folder of a run; raises `UserError` for an unknown name."""
        path = self._paths.get(name)
        if path is None or not has_run(path):
            path = self.paths().get(name)
        if path is None:
            raise UserError(
                f"there is no run '{name}'", where=str(self.folder), fix="choose one from the list"
            )
        return path

    def digest(self, name: str) -> Digest:
        """The digest of a run; pages refresh it as needed."""
        path = self.find_path(name)
        file = journal_file(path).stat().st_ino  # another run may have replaced a deleted one
        with self._lock:
            known = self._digests.get(name)
            if known is None or known[0] != file:
                known = self._digests[name] = (file, Digest(path, self._names, name))
            return known[1]


def _runs_below(folder: Path, deep: int) -> Iterator[Path]:
    """Runs in a folder and the folders in it, level by level.

    Links are not followed, and runs are not searched. Stops after `_SEEN` folders: the folder is
    then hardly one of runs.
    """
    level, seen = [folder], 0
    for _ in range(deep):
        inside: list[Path] = []
        for each in level:
            with os.scandir(each) as entries:
                folders = [
                    Path(e.path)
                    for e in entries
                    if e.is_dir(follow_symlinks=False) and e.name[0] != "."
                ]
            seen += len(folders)
            yield from (path for path in folders if has_run(path))
            inside += [path for path in folders if not has_run(path)]
            if seen > _SEEN:
                return
        level = inside


def change_signature(run: Path) -> object:
    """A value that changes when the run does.

    None if it cannot be read: the run may just be appearing or disappearing.
    """
    try:
        return run_signature(run)
    except CulmenError:
        return None


def fields_of(value: object, *names: str) -> JsonObject:
    """These attributes of a value, by name."""
    return {name: getattr(value, name) for name in names}


# Series short enough to draw.


def thin_points(points: Sequence[T], max_points: int) -> list[T]:
    """At most `max_points` of the points, evenly spread, the first and the last among them."""
    if len(points) <= max_points:
        return list(points)
    step = (len(points) - 1) / (max_points - 1)
    return [points[round(number * step)] for number in range(max_points)]


def thin_with_extremes(
    points: Sequence[tuple[float, float]], max_points: int
) -> list[tuple[float, float]]:
    """At most `max_points` points of a series in order of x, keeping its lows and highs.

    Two points for each bucket.
    """
    if len(points) <= max_points:
        return list(points)
    size = -(-len(points) // (max_points // 2))
    ends: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        inside = points[start : start + size]
        low, high = min(inside, key=lambda p: p[1]), max(inside, key=lambda p: p[1])
        ends += sorted({low, high})
    return ends
