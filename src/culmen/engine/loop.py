"""A deterministic trampoline for coroutines: no clock, no threads, first in first out.

Strategies run here and not on asyncio, so the order in which their coroutines advance depends only
on the order in which effects are resolved. This makes replay exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar, cast

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
