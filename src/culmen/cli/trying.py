"""What a person sees while a seed is tried out: that something happens, and how long it may take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from culmen.cli.screen import Screen
from culmen.observe.figures import count, duration

if TYPE_CHECKING:
    from culmen.core.task import Task

_SLOW = 5.0  # seconds of one evaluation, from which on it is said how long the rest will take


@contextlib.contextmanager
def progress(screen: Screen, task: Task, runs: int) -> Iterator[Callable[[int, int, float], None] | None]:
    """What to tell of every evaluation of a check: a line that moves on a terminal, a few lines elsewhere."""
    if screen.as_json:
        yield None
        return
    if not screen.live:
        yield _Lines(screen, task, runs).told
        return
    from rich import progress as bars

    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=screen.err, transient=True) as bar:
        line = bar.add_task(_beginning(task))

        def told(done: int, total: int, seconds: float) -> None:
            bar.update(line, description=f"evaluation {min(done + 1, total)} of {total}{_rest(done, total, seconds)}")

        yield told


class _Lines:
    """For a pipe or a file: how it begins, and how long it will take if that is long."""

    def __init__(self, screen: Screen, task: Task, runs: int) -> None:
        self._screen, self._said = screen, False
        screen.err.print(_beginning(task), markup=False, soft_wrap=True)

    def told(self, done: int, total: int, seconds: float) -> None:
        rest = _rest(done, total, seconds)
        if rest and not self._said:
            self._said = True
            self._screen.err.print(f"evaluation {done} of {total} is done{rest}", markup=False, soft_wrap=True)


def _beginning(task: Task) -> str:
    """What happens first, and when it is cut off."""
    seeds = count(len(task.seeds), "seed")
    trial = " with and without a proxy" if task.evaluator.form == "legacy" and task.evaluator.proxy != "never" else ""
    return f"trying {seeds}{trial}; an evaluation is cut off after {duration(task.limits.seconds)}"


def _rest(done: int, total: int, seconds: float) -> str:
    """` (20 s each, about 2 min to go; --times 2 makes fewer)`; "" for what is quick."""
    if seconds < _SLOW or done >= total:
        return ""
    return f" ({duration(seconds)} each, about {duration(seconds * (total - done))} to go; --times 2 makes fewer)"
