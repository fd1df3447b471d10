"""One search as a person sees it: what it may cost, how it goes, how it ended, what to type next."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from culmen.cli import pages, preflight, runs
from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.store import views

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.observe.trackers import Tracking
    from culmen.observe.watch import Display, Watch
    from culmen.study import Study


def trackers(wanted: Sequence[str] | None) -> Sequence[Tracking]:
    """The observers behind `--track`; raises `UserError` for one that there is not."""
    if not wanted:
        return ()
    from culmen.observe import tracker_backends as known

    return known.trackers(wanted)


def search(
    screen: Screen,
    make: Callable[[Watch], Study],
    quiet: bool,
    notes: Sequence[str] = (),
    tracks: Sequence[Tracking] = (),
) -> Answer:
    """Run the study that `make` makes to its end or an interrupt, showing and tracking how it goes."""
    from culmen.observe.watch import Watch

    logging.getLogger("asyncio").setLevel(logging.ERROR)  # its warnings are about its own book-keeping
    watch = Watch(display(screen, quiet))
    study = make(watch)
    if not screen.as_json and not quiet:
        announce(screen, study, notes)
    try:
        with watch.of(study.path), contextlib.ExitStack() as stack:
            for each in tracks:
                stack.enter_context(each.of(study.path, watch.told))
            study.run()
    except UserError as error:
        run = runs.shown(study.path)
        error.fix = re.sub(r"(culmen \w+) RUN\b", rf"\g<1> {run}", error.fix) or f"culmen resume {run}"
        raise
    except KeyboardInterrupt:  # before the search had begun, or while it was taken down
        pass
    now = views.status(study.path)
    data = {**pages.document(now, study.path), "at_most": preflight.data(study.meta)}
    return Answer(data, lambda screen: pages.end(screen, now, study.path), pages.exit_code(now))


def beforehand(task: Task) -> list[str]:
    """What happens before the first evaluation that counts, where a slow evaluator would keep people waiting."""
    if task.evaluator.form != "legacy" or task.evaluator.proxy == "never" or not task.seeds:
        return []
    return ["the initial program is scored with and without a proxy first, to see how far scores can be trusted"]


def over(screen: Screen, path: Path) -> Answer | None:
    """The answer to who resumes a run that has nothing left to do: how it ended; None if it has."""
    now = views.status(path)
    if now.state != "finished":
        return None
    if not screen.as_json:
        screen.note("this run is finished: there is nothing left to do in it")
    data = {**pages.document(now, path), "at_most": preflight.data(views.meta(path))}
    return Answer(data, lambda screen: pages.end(screen, now, path), pages.exit_code(now))


def unchangeable(path: Path, budget: str) -> UserError:
    """The answer to who would resume with another budget."""
    wanted = budget if "=+" in budget else budget.replace("=", "=+")
    return UserError(
        "a run keeps the budget it was made with: to resume is to replay it",
        where=f"--budget {budget}",
        fix=f"culmen fork {runs.shown(path)} --budget {wanted}",
    )


def announce(screen: Screen, study: Study, notes: Sequence[str]) -> None:
    """What is about to happen, to standard error."""
    screen.pairs(*preflight.lines(study.meta), ("run", runs.place(study.path)), err=True)
    for note in notes:
        screen.note(note)


def display(screen: Screen, quiet: bool) -> Display:
    from culmen.observe.displays import PlainDisplay, SilentDisplay, TerminalDisplay

    if quiet or screen.as_json:
        return SilentDisplay(None if screen.as_json else sys.stderr)
    return TerminalDisplay(screen.err) if screen.live else PlainDisplay()
