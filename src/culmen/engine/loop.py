"""A deterministic trampoline for coroutines: no clock, no threads, first in first out.

Strategies run here and not on asyncio, so the order in which their coroutines advance depends only
on the order in which effects are resolved. This makes replay exact.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from collections.abc import Set as AbstractSet
from importlib import import_module
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

T = TypeVar("T")
L = TypeVar("L")


class Future(Generic[T]):
    """A value to come; awaiting it suspends the coroutine until `resolve` or `fail`."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []

    def resolve(self, value: T) -> None:
        """Settle with a value; later calls are ignored, as a late completion may follow a close."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Settle with an error, raised where the future is awaited."""
        self._settle(None, error)

    def result(self) -> T:
        """The value of a settled future, or its error raised."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def when_done(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back once settled (at once if it already is)."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    @property
    def error(self) -> BaseException | None:
        """The error of a failed future."""
        return self._error

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        if self.done:
            return
        self.done, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self.done:
            yield self
        return self.result()


class Fiber(Future[T]):
    """A coroutine being driven; settled with its return value or its error."""

    __slots__ = ("_coroutine", "_loop")

    def __init__(self, coroutine: Coroutine[object, None, T], loop: Loop) -> None:
        super().__init__()
        self._coroutine, self._loop = coroutine, loop

    def step(self) -> None:
        """Advance to the next unsettled future."""
        if self.done:
            return
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self.resolve(stop.value)
        except BaseException as error:  # noqa: BLE001 - raised where this task is awaited, in the end in the search
            self.fail(error)
        else:
            cast("Future[object]", awaited).when_done(lambda _: self._loop.schedule(self))

    def close(self) -> None:
        """End the coroutine at its present await (its `finally` blocks run).

        The task never settles afterwards.
        """
        if not self.done:
            self.done = True
            self._coroutine.close()


class Steppable(Protocol):
    """A coroutine being driven, whatever it returns."""

    def step(self) -> None: ...

    def close(self) -> None: ...


class Loop:
    """Runs tasks until none can advance."""

    def __init__(self) -> None:
        self._ready: deque[Steppable] = deque()
        self._tasks: dict[Steppable, None] = {}
        self.running: Steppable | None = None  # the task that advances now

    def spawn(self, coroutine: Coroutine[object, None, T]) -> Fiber[T]:
        """Start driving a coroutine; it takes its first step when its turn comes."""
        task = Fiber(coroutine, self)
        self._tasks[task] = None
        task.when_done(lambda _: self._tasks.pop(task, None))
        self._ready.append(task)
        return task

    def schedule(self, task: Steppable) -> None:
        """Put a task at the end of the queue."""
        self._ready.append(task)

    def drain(self) -> None:
        """Advance until every task waits for an effect or is done."""
        while self._ready:
            self.running = self._ready.popleft()
            self.running.step()
        self.running = None

    @property
    def tasks(self) -> AbstractSet[Steppable]:
        """All tasks that are not done, in the order in which they were spawned."""
        return self._tasks.keys()

    def close(self) -> None:
        """End all tasks, the newest first, so that waiting ones never see half-closed children."""
        for task in reversed(list(self._tasks)):
            task.close()
        self._tasks.clear()
        self._ready.clear()

    async def gather(self, *coroutines: Coroutine[object, None, T]) -> list[T]:
        """Run coroutines side by side; results in the order given.

        The first error closes the others and is raised.
        """
        if not coroutines:
            return []
        tasks = [self.spawn(coroutine) for coroutine in coroutines]
        all_done: Future[None] = Future()
        waiting = len(tasks)

        def one_done(task: Future[T]) -> None:
            nonlocal waiting
            waiting -= 1
            if task.error is not None:
                all_done.fail(task.error)
            elif waiting == 0:
                all_done.resolve(None)

        for task in tasks:
            task.when_done(one_done)
        try:
            await all_done
        finally:
            for task in tasks:
                task.close()
        return [task.result() for task in tasks]

    async def within(
        self, limit: Future[L], *coroutines: Coroutine[object, None, T]
    ) -> list[T | None]:
        """Like `gather`, until `limit` settles.

        Coroutines still running then are ended and give None.
        """
        tasks = [self.spawn(coroutine) for coroutine in coroutines]
        over: Future[None] = Future()

        def look(task: Future[L] | Future[T]) -> None:
            if task.error is not None:
                over.fail(task.error)
            elif limit.done or all(one.done for one in tasks):
                over.resolve(None)

        limit.when_done(look)
        for task in tasks:
            task.when_done(look)
        results: list[T | None] = []
        try:
            await over
            results = [task.result() if task.done else None for task in tasks]
        finally:
            for task in tasks:
                task.close()
        return results


# The barrier at which lanes of a search wait for a checkpoint.

_GROWTH = 40  # a later one is due after this part of all completions
_PER_WORKER = 100  # and after as many completions of each worker
_PATIENCE = 1.0  # seconds that lanes wait at least


class CheckpointBarrier:
    """Holds the lanes of a search while a checkpoint is due; `every` 0: never.

    They wait until nothing is under way, or until their patience is over: a share of the time since
    the last checkpoint, about what three completions of a worker take. Then the next one is due
    later.
    """

    def __init__(self, every: int = 0, workers: int = 0, patience: float = 0.03) -> None:
        self._every = self._due = every and max(every, _PER_WORKER * workers)
        self._share = patience
        self.completions = 0
        self.timer = 0  # key of the effect that ends the wait, 0 without one
        self.is_over = False
        self._since = 0.0  # active seconds of the run at the last one
        self._lanes: dict[Steppable, Future[None]] = {}
        self._states: list[object] = []
        self._known: set[Steppable] = set()  # all lanes that ever came by

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_lanes": {}, "_states": [], "_known": set[Steppable]()}

    @property
    def is_due(self) -> bool:
        """True if lanes are to wait."""
        return bool(self._every) and self.completions >= self._due

    @property
    def lanes(self) -> Mapping[Steppable, Future[None]]:
        """The waiting lanes, each with its future."""
        return self._lanes

    def patience_at(self, elapsed: float) -> float:
        """Seconds that lanes may wait from this active second of the run on."""
        return round(max(_PATIENCE, self._share * (elapsed - self._since)), 3)

    def hold_lane(self, lane: Steppable, state: object) -> Future[None]:
        """Let a lane wait that needs nothing but `state`."""
        self._known.add(lane)
        self._states.append(state)
        future = self._lanes[lane] = Future()
        return future

    def pass_lane(self, lane: Steppable) -> None:
        """Note a lane that need not wait."""
        self._known.add(lane)

    def shared_state(self) -> object | None:
        """The object that all lanes gave; None if they gave several, or if a lane has ended.

        A search that begins with this object begins all its lanes.
        """
        first = self._states[0]
        is_shared = all(state is first for state in self._states)
        return first if is_shared and self._known <= self._lanes.keys() else None

    def end_wait(self) -> None:
        """Note that the patience is over."""
        self.is_over = True

    def open(self, elapsed: float) -> dict[Steppable, Future[None]]:
        """The lanes that waited, to go on now; the next checkpoint is due later."""
        lanes, self._lanes, self._states = self._lanes, {}, []
        self.timer, self.is_over, self._since = 0, False, elapsed
        self._due = self.completions + max(self._every, self.completions // _GROWTH)
        return lanes

    def clear(self) -> None:
        """Forget the lanes of a search that ended."""
        self._lanes, self._states, self._known, self.timer = {}, [], set(), 0


# Checkpoints: the stored state of a search, so that a resume replays only what follows.

EVERY = 1000
"""Completions after which a checkpoint is due, for runs made today."""


class SearchState(NamedTuple):
    """All of a search at rest: members of the search and of its lab, by name.

    `remembered` are the keys of evaluations by mark; `strategy` is what the lanes share.
    """

    search: dict[str, object]
    lab: dict[str, object]
    remembered: dict[int, int]
    strategy: object


class CheckpointStore(Protocol):
    """Stores the newest checkpoint of a run."""

    def write(self, seq: int, state: bytes) -> None:
        """Replace the checkpoint by that after the event `seq`, which is durable."""
        ...


SaveState = Callable[[SearchState], None]
"""Called with the state of a search at rest; must be done with it on return."""


def pack_state(state: SearchState, anchors: Mapping[str, object]) -> bytes:
    """A state as bytes; `anchors` are objects that it refers to by name.

    Raises `pickle.PicklingError`, `TypeError` or `AttributeError` if it cannot be stored.
    """
    names = {id(anchor): name for name, anchor in anchors.items()}
    target = io.BytesIO()
    _Packer(target, names).dump(state)
    return target.getvalue()


def unpack_state(packed: bytes, anchors: Mapping[str, object]) -> SearchState:
    """The inverse of `pack_state`, with the anchors of another search.

    For bytes of one's own only: they can name any function to call.
    """
    return _Unpacker(io.BytesIO(packed), anchors).load()


class _Packer(pickle.Pickler):
    """Stores anchors by name, and defaults of structures as such.

    Whether a member is its default decides if it is encoded, and with that random seeds.
    """

    def __init__(self, target: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(target, protocol=5)
        self._names = {**_default_names(), **names}

    def persistent_id(self, obj: object) -> str | None:
        return self._names.get(id(obj))


class _Unpacker(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, anchors: Mapping[str, object]) -> None:
        super().__init__(source)
        self._known = dict(anchors)

    def persistent_load(self, pid: str) -> object:
        if pid not in self._known:
            module, _, name = pid.partition(":")
            struct, _, member = name.rpartition(".")
            self._known[pid] = _defaults_of(getattr(import_module(module), struct))[member]
        return self._known[pid]


def _default_names() -> dict[int, str]:
    """Names of the defaults of all structures of culmen, by identity."""
    names: dict[int, str] = {}
    structs: list[type[msgspec.Struct]] = list(msgspec.Struct.__subclasses__())
    for struct in structs:  # grows
        structs += struct.__subclasses__()
        if struct.__module__.startswith("culmen.") and "." not in struct.__qualname__:
            for member, default in _defaults_of(struct).items():
                names[id(default)] = f"{struct.__module__}:{struct.__name__}.{member}"
    return names


def _defaults_of(struct: type[msgspec.Struct]) -> dict[str, object]:
    """Defaults by name, without those of which Python has a single object."""
    found = {each.name: each.default for each in msgspec.structs.fields(struct)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, float | str | bytes | tuple | msgspec.Struct) and value not in ("", ())
    }
